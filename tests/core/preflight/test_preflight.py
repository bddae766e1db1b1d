from __future__ import annotations

import json
import os
import socket
import sqlite3
import time
from pathlib import Path

import pytest
from servers.base import Reply
from servers.fixtures import postgres_url  # noqa: F401
from servers.ollama_server import OllamaServer
from servers.openai_server import OpenAIServer
from typer.testing import CliRunner

from steproute import Outcome, Router
from steproute.cli import app
from steproute.preflight import Finding, preflight

MODELS = "models: [{name: small, price: {input: 1, output: 2}}, {name: large, price: {input: 3, output: 4}}]\n"
NOW = 4_000_000_000.0


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("STEPROUTE_APPROVAL", raising=False)


def look(text: str, **options: object) -> list[Finding]:
    path = Path("steproute.yaml")
    path.write_text(text, encoding="utf-8")
    return preflight(path, **{"clock": lambda: NOW, **options})


def codes(found: list[Finding]) -> set[str]:
    return {item.code for item in found}


def one(found: list[Finding], code: str) -> Finding:
    (item,) = [item for item in found if item.code == code]
    return item


def test_all_is_well():
    found = look(MODELS)
    assert {item.code: item.level for item in found} == {
        "config.ok": "ok", "prices.ok": "ok", "capabilities.ok": "ok", "clock.ok": "ok", "database.none": "skipped",
        "approval.none": "skipped", "servers.skipped": "skipped",
    }  # fmt: skip
    assert one(found, "config.ok").message == "2 models, policy pacer"


@pytest.mark.parametrize(
    ("text", "subject", "message"),
    [
        ("", "steproute.yaml", "seen NoneType; allowed: a mapping with the key `models`"),
        ("models: [", "steproute.yaml", "is not YAML ("),
        ("- a", "steproute.yaml", "seen list; allowed"),
        ("models: []", "models", "List should have at least 1 item"),
        ("modles: []\n" + MODELS, "modles", "unknown name 'modles'; did you mean 'models'?"),
        ("models: [{name: a}]", "Model 'a': price", "missing; it is required"),
        (MODELS + "policy: pacre", "policy", "unknown name 'pacre'; did you mean 'pacer'?"),
        (MODELS + "policy: fixed:lrge", "steproute.yaml", "policy fixed: model: unknown name 'lrge'"),
        (MODELS + "explore: 2", "steproute.yaml", "explore: seen 2.0; allowed: at least 0 and below 1"),
        (MODELS + "telemetry: {metrix: true}", "telemetry", "unknown name 'metrix'"),
        (MODELS + "store: {path: x}", "store", "seen {'path': 'x'}; allowed: a path, a URL"),
        (MODELS + "meter: nvlm", "nvlm", "meter: unknown name 'nvlm'"),
        (MODELS + "profiles: nowhere.yaml", "nowhere.yaml", "cannot be read (No such file or directory)"),
        (
            "models: [{name: a, price: unknown}]\nbudget: {usd: 1}",
            "steproute.yaml",
            "budget.usd: a hard limit needs prices",
        ),
    ],
)
def test_a_wrong_file_is_a_finding(text, subject, message):
    wrong = [item for item in look(text) if item.level == "error"]
    assert len(wrong) == 1
    assert wrong[0].code in ("config.invalid", "config.meter")
    assert wrong[0].subject == subject
    assert wrong[0].message.startswith(message)


def test_several_problems_are_several_findings():
    found = look("modles: 1\nexplre: 2\nmodels: 3\n")
    assert {item.subject for item in found} == {"modles", "explre", "models"}
    found = look("models: [{name: a, prise: 1}]\n")
    assert {item.subject for item in found} == {"Model 'a': price", "Model 'a': prise"}


@pytest.mark.parametrize(
    "content", [b"\xff\xfe", b"a: &a [*a]", b"? [a, b]\n: c", b"models: !!python/object:os.system []", b"\x00"]
)
def test_no_bytes_make_a_traceback(content, tmp_path):
    path = tmp_path / "bad.yaml"
    path.write_bytes(content)
    done = CliRunner().invoke(app, ["preflight", str(path), "--json"])
    assert done.exit_code == 1, done.output
    assert json.loads(done.stdout)["errors"] >= 1


def test_prices_that_look_wrong():
    found = look(
        """
models:
  - {name: a, price: {input: 0.0000001, output: 0.0000004}}
  - {name: b, price: {input: 15, output: 3}}
  - {name: c, price: {input: 3, output: 15, cached_input: 4}}
  - {name: d, price: {input: 3000, output: 15000}}
  - {name: e, price: free, deployment: openai/gpt-5}
  - {name: f, price: unknown}
  - {name: g, price: free, deployment: ollama/qwen}
"""
    )
    odd = {(item.code, item.subject) for item in found if item.code.startswith("prices.")}
    assert odd == {
        ("prices.per_token", "a"), ("prices.swapped", "b"), ("prices.cache", "c"), ("prices.high", "d"),
        ("prices.free", "e"), ("prices.unknown", "f"),
    }  # fmt: skip


def test_limits_that_cannot_work():
    found = look(MODELS + "budget: {usd: {limit: 0.01, target: 0.1}, energy_j: 5}\n")
    assert one(found, "limits.target").subject == "budget.usd"
    assert "small, large" in one(found, "limits.blind").message
    room = one(found, "limits.room")  # 4096 tokens · $4 per million = $0.0164; small: $0.0082
    assert (room.level, room.subject) == ("warning", "large")
    assert "$0.01638" in room.message
    none = [item for item in look(MODELS + "budget: {usd: 0.001}\n") if item.code == "limits.room"]
    assert [item.level for item in none] == ["error", "error"]


def test_steps_that_no_model_could_serve():
    found = look(
        """
models:
  - {name: a, price: free, roles: [coder], tools: false, context_window: 2048, deployment: x}
  - {name: b, price: free, roles: [critic], tools: false, deployment: x}
"""
    )
    assert "critic" in one(found, "capabilities.roles").message
    assert {"capabilities.context", "capabilities.tools", "capabilities.twice"} <= codes(found)
    assert "capabilities.structured" not in codes(found)
    assert "capabilities.single" in codes(look("models: [{name: a, price: free}]"))


def test_a_store_that_is_there():
    router = Router.from_config({"models": [{"name": "small", "price": "free"}]}, store="s.db", clock=lambda: NOW)
    router.observe(router.decide("t"), Outcome())
    router.close()
    before = {path.name for path in Path().iterdir()}
    assert one(look(MODELS + "store: s.db"), "database.ok").message == "1 decisions"
    assert {path.name for path in Path().iterdir()} - before <= {"steproute.yaml"}
    late = look(MODELS + "store: s.db", clock=lambda: NOW - 3600)
    assert one(late, "clock.behind_store").message.startswith("the store's newest decision is 3600 s in the future")
    with sqlite3.connect("s.db") as book:
        book.execute("UPDATE alembic_version SET version_num = '9999'")
    newer = one(look(MODELS + "store: s.db"), "database.newer")
    assert newer.level == "error"
    assert "update steproute" in newer.message


def test_a_store_that_is_none():
    assert one(look(MODELS + "store: new.db"), "database.new").level == "ok"
    assert not Path("new.db").exists()
    assert one(look(MODELS + "store: no/where.db"), "database.folder").level == "error"
    Path("folder.db").mkdir()
    assert one(look(MODELS + "store: folder.db"), "database.folder").message.startswith("is a folder")
    Path("text.db").write_text("this is no database, however long one looks at it", encoding="utf-8")
    assert "cannot be opened" in one(look(MODELS + "store: text.db"), "database.unreachable").message
    with sqlite3.connect("other.db") as book:
        book.execute("CREATE TABLE decisions (x)")
    assert one(look(MODELS + "store: other.db"), "database.foreign").level == "error"
    assert one(look(MODELS + "store: mysql://x/y"), "database.url").level == "error"


def test_a_database_server_that_is_away():
    pytest.importorskip("psycopg")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    found = look(MODELS + f"store: postgresql://user:s3cretpassword@127.0.0.1:{port}/x\n")
    away = one(found, "database.unreachable")
    assert away.level == "error"
    assert "s3cretpassword" not in str(found)


def test_a_database_server_and_its_clock(postgres_url):  # noqa: F811
    text = MODELS + f"store: {postgres_url}\n"
    now = time.time()
    found = look(text, clock=lambda: now)
    assert one(found, "database.new").level == "ok"
    assert "clock.skew" not in codes(found)
    assert "behind; leases go by it" in one(look(text, clock=lambda: now + 900), "clock.skew").message
    Router.from_config({"models": [{"name": "small", "price": "free"}]}, store=postgres_url).close()
    assert one(look(text, clock=lambda: now), "database.ok").message == "0 decisions"


def test_a_clock_that_was_never_set():
    assert one(look(MODELS, clock=lambda: 86_400.0 * 365), "clock.wrong").level == "error"


def test_the_approval_file():
    assert one(look(MODELS), "approval.none").level == "skipped"
    approval = Path("approval.yaml")
    approval.write_text("models: [small, large]\nusd: 2\n", encoding="utf-8")
    assert one(look(MODELS), "approval.ok").message == "$0 of $2 spent"
    approval.write_text("models: [small]\nusd: 2\n", encoding="utf-8")
    assert "'large' (large) is not approved" in one(look(MODELS), "approval.invalid").message
    elsewhere = one(look(MODELS, approval=Path("nowhere.yaml")), "approval.invalid")
    assert "missing: live paid calls are off" in elsewhere.message
    from steproute.approval import SpendingCap

    approval.write_text("models: [small, large]\nusd: 2\n", encoding="utf-8")
    SpendingCap(Path("approval.spent.db"), 2).reserve("b", "small", 1.9)
    assert one(look(MODELS), "approval.nearly_spent").level == "warning"


# --- servers ---------------------------------------------------------------------------------------------------------


def test_servers_are_asked_for_their_lists_alone(monkeypatch):
    with OpenAIServer(lambda body: Reply("no")) as server, OllamaServer(models=["qwen:latest"]) as ollama:
        monkeypatch.setenv("OLLAMA_HOST", ollama.url)
        monkeypatch.setenv("MY_KEY", "sk-verysecret12345678")
        text = f"""
models:
  - {{name: small, price: free, deployment: openai/small, serving: {{server: "{server.base_url}"}}}}
  - {{name: huge, price: free, deployment: openai/huge, serving: {{server: "{server.base_url}"}}}}
  - {{name: own, price: free, deployment: ollama_chat/qwen}}
  - {{name: other, price: free, deployment: vendor/other}}
"""
        found = look(text, live=True, key_env="MY_KEY")
        assert {request.method for request in [*server.requests, *ollama.requests]} == {"GET"}
        assert server.requests[0].headers["authorization"] == "Bearer sk-verysecret12345678"
    servers = {item.subject: item.code for item in found if item.code.startswith("servers.")}
    assert servers == {
        "small": "servers.ok", "huge": "servers.model", "own": "servers.ok", "other": "servers.unknown",
    }  # fmt: skip
    assert one(found, "servers.model").message.endswith("has no 'huge'; it has large, small")
    assert "verysecret" not in str(found)


def test_a_server_that_is_away_and_a_key_that_is_not_set():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    found = look(MODELS, live=True, base_url=f"http://127.0.0.1:{port}/v1")
    assert one(found, "servers.unreachable").level == "error"
    assert one(look(MODELS, live=True, key_env="NO_SUCH_KEY"), "servers.key").level == "error"
    assert one(look(MODELS, live=True, base_url="nonsense"), "servers.unreachable").level == "error"


# --- the command -----------------------------------------------------------------------------------------------------


def test_exit_codes_and_machine_readable_output():
    Path("good.yaml").write_text(MODELS, encoding="utf-8")
    Path("bad.yaml").write_text("models: 3", encoding="utf-8")
    good = CliRunner().invoke(app, ["preflight", "good.yaml", "--json"])
    assert good.exit_code == 0
    told = json.loads(good.stdout)
    assert {key: told[key] for key in ("schema", "config", "ok", "errors", "warnings")} == {
        "schema": 1, "config": "good.yaml", "ok": True, "errors": 0, "warnings": 0,
    }  # fmt: skip
    assert {"level", "code", "subject", "message"} == set(told["findings"][0])
    bad = CliRunner().invoke(app, ["preflight", "bad.yaml"])
    assert bad.exit_code == 1
    assert bad.stdout.startswith("error    config.invalid         models: Input should be a valid list")
    assert bad.stdout.endswith("1 errors, 0 warnings\n")
    assert CliRunner().invoke(app, ["preflight", "nowhere.yaml"]).exit_code == 1
    assert CliRunner().invoke(app, ["preflight"]).exit_code == 2


@pytest.mark.skipif(os.getuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written():
    Path("closed").mkdir(mode=0o500)
    assert one(look(MODELS + "store: closed/s.db"), "database.folder").level == "error"
