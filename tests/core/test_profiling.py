"""`steproute models profile` against a backend whose speed is known, on a clock that is set by hand."""

from __future__ import annotations

import pytest
from doubles import FakeClock
from servers.nvml import FakeNvml, Trace
from typer.testing import CliRunner

from steproute import Profile, cli, profiling
from steproute.backend import ChatRequest, ChatResponse, Timings, Usage
from steproute.errors import ConfigError
from steproute.integrations.meters import EnergyMeter, nvml_readers
from steproute.profiles import read_profiles
from steproute.profiling import Load, named_sources, open_backend, profile_model

TRUE = Profile(latency_s=0.02, prefill_tokens_per_s=100, decode_tokens_per_s=20, load_s=2.0)


class Server:
    """Takes the time it should, on a clock of its own; the board takes 200 W all the while."""

    def __init__(self, clock: FakeClock):
        self.clock = clock
        self.loaded = False
        self.unloaded = 0

    def unload(self, model: str) -> None:
        self.loaded = False
        self.unloaded += 1

    def complete(self, request: ChatRequest) -> ChatResponse:
        prompt = len(str(request.messages[0]["content"]).split())
        completion = request.max_tokens or 0
        load = 0.0 if self.loaded else TRUE.load_s
        self.loaded = True
        timings = Timings(load, prompt / 100, completion / 20)
        self.clock.tick(timings.total_s + TRUE.latency_s)
        return ChatResponse("…", usage=Usage(prompt, completion), timings=timings)

    async def acomplete(self, request: ChatRequest) -> ChatResponse:
        return self.complete(request)


def test_seconds_and_joules_are_found_and_held_out_calls_predicted():
    clock = FakeClock()
    trace = Trace([(0, 200.0), (10**6, 200.0)])
    meter = EnergyMeter(nvml_readers(library=FakeNvml(clock, trace)), clock=clock, thread=False)
    server = Server(clock)
    found = profile_model(server, "m", Load(loads=2), meter, clock)
    assert server.unloaded == 2
    profile = found.profile
    assert profile.seconds(500, 50) == pytest.approx(TRUE.seconds(500, 50), rel=1e-6)
    assert profile.load_s == pytest.approx(2.0)
    assert profile.energy_j(500, 50) == pytest.approx(200 * TRUE.seconds(500, 50), rel=1e-3)
    assert profile.load_j == pytest.approx(400, rel=1e-2)
    assert found.seconds is not None
    assert found.joules is not None
    assert found.seconds.median < 1e-6
    assert found.joules.median < 1e-3
    assert "NVML energy counter" in profile.source


def test_it_ends_in_time_once_it_has_enough():
    clock = FakeClock()
    found = profile_model(Server(clock), "m", Load(seconds=1, repeats=9), clock=clock)
    assert len(found.samples) == 8
    stated = profile_model(Server(clock), "m", Load(power_w=50), clock=clock).profile
    assert (stated.power_w, stated.energy_j(100, 20)) == (50, pytest.approx(50 * TRUE.seconds(100, 20), rel=1e-6))


def test_the_command(monkeypatch, tmp_path):
    clock = FakeClock()
    monkeypatch.setattr(profiling.time, "monotonic", clock)
    monkeypatch.setattr("steproute.profile_command.open_backend", lambda kind, sources, url: Server(clock))
    monkeypatch.setattr("steproute.profile_command.profile_model", lambda *a, **k: profile_model(*a, clock=clock, **k))
    out = tmp_path / "profiles.yaml"
    done = CliRunner().invoke(cli.app, ["models", "profile", "small=a.gguf", "b", "--meter", "none", "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert "predicted against measured: median error 0.0 %" in done.output
    assert "nothing measures them here" in done.output
    assert list(read_profiles(out)) == ["small", "b"]


def test_names_and_backends():
    assert named_sources(["a=x=y", "b"]) == {"a": "x=y", "b": "b"}
    with pytest.raises(ConfigError, match="'a' is given twice"):
        named_sources(["a=1", "a=2"])
    with pytest.raises(ConfigError, match="backend: unknown name 'olama'; did you mean 'ollama'"):
        open_backend("olama", {}, None)
