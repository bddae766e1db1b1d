"""`steproute top`: a table that goes on while its database is away."""

from __future__ import annotations

import sqlite3

import pytest
from sqlalchemy.exc import OperationalError

from steproute import Model, Outcome, Router
from steproute.errors import StoreError
from steproute.store import command
from steproute.store.command import show_top


def test_it_is_live_and_outlasts_a_database_that_is_away(tmp_path, monkeypatch, capsys):
    store = str(tmp_path / "s.db")
    router = Router([Model("small", price="free")], store=store)
    looks = []
    real = command.overview

    def looked(*given: object) -> object:
        looks.append(given)
        if len(looks) == 2:
            raise OperationalError("SELECT", {}, sqlite3.OperationalError("away"))
        return real(*given)

    def sleep(seconds: float) -> None:
        assert seconds == 2.0
        if len(looks) == 3:
            raise KeyboardInterrupt
        router.observe(router.decide(f"task-{len(looks)}", "coder"), Outcome(prompt_tokens=7))

    monkeypatch.setattr(command, "overview", looked)
    monkeypatch.setattr(command.time, "sleep", sleep)
    show_top(store, 2.0, 15.0, once=False)
    shown = capsys.readouterr().out
    assert len(looks) == 3
    assert "task-1" in shown
    assert "task-2" in shown
    router.close()


def test_a_store_that_is_not_there_is_named(tmp_path):
    with pytest.raises(StoreError, match=r"nowhere\.db: no such file"):
        show_top(str(tmp_path / "nowhere.db"), 2.0, 15.0, once=True)
