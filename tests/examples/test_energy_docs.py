"""The Python of docs/energy.md runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

from doubles import FakeClock, free
from servers.nvml import FakeNvml, Trace

from steproute import Budget, Limit, Model, Price, Router
from steproute.integrations import meters

DOCS = Path(__file__).parents[2] / "docs" / "energy.md"


def test_the_snippets(monkeypatch):
    real = meters.nvml_readers
    trace = Trace([(0, 100.0)])
    monkeypatch.setattr(meters, "nvml_readers", lambda: real(library=FakeNvml(FakeClock(), trace, trace)))
    names = {
        "models": free("a", "b"),
        "price": Price(input=1, output=2),
        "backend": SimpleNamespace(ps=lambda: [SimpleNamespace(name="a")]),
        "Limit": Limit,
        "Model": Model,
        "Price": Price,
    }
    snippets = re.findall(r"```python\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    assert len(snippets) == 6
    for snippet in snippets:
        exec(compile(snippet, str(DOCS), "exec"), names)
    assert isinstance(names["router"], Router)
    assert isinstance(names["budget"], Budget)
    Router(free("a"), names["budget"]).decide("t")
