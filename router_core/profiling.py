"""`steproute models profile`: a short calibrated load on each model, and the profile fitted to it."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from importlib.metadata import entry_points
from typing import Any

from steproute.backend import Backend, ChatRequest, ChatResponse
from steproute.errors import ConfigError, unknown_name
from steproute.metering import Meter
from steproute.models import Profile
from steproute.profiles import Accuracy, Sample, accuracy, fit_profile

LENGTHS = ((64, 96), (700, 16), (256, 48), (64, 16), (700, 96), (1400, 32), (256, 128), (1400, 16))
"""Prompt and completion tokens of the load, as far as a context allows; counts are the server's in the end."""
HELD_OUT = ((128, 64), (512, 24), (350, 100), (1000, 48), (96, 32), (800, 72))
WORDS = (
    "river", "stone", "table", "garden", "window", "paper", "morning", "letter", "music", "bridge", "winter",
    "apple", "market", "doctor", "pocket", "engine", "silver", "corner", "travel", "answer", "planet", "carpet",
    "basket", "forest", "number", "island", "coffee", "signal", "yellow", "thunder",
)  # fmt: skip


@dataclass(frozen=True)
class Load:
    """How hard to try."""

    repeats: int = 2
    """How often each pair of lengths is called."""
    loads: int = 2
    """Cold starts, where the backend can unload a model."""
    context: int = 2048
    """Most tokens of prompt and completion."""
    seconds: float = 300.0
    """No call begins after so many seconds per model, once the fit has enough."""
    power_w: float | None = None
    """Stated power, where nothing measures joules."""
    options: tuple[tuple[str, Any], ...] = ()
    """Passed on to the model server."""


@dataclass(frozen=True)
class Profiled:
    """What came of one model."""

    name: str
    profile: Profile
    samples: tuple[Sample, ...]
    held_out: tuple[Sample, ...]
    seconds: Accuracy | None
    """On the calls held out."""
    joules: Accuracy | None
    core_share: float = 1.0
    """CPU seconds of this process per second of the load: below 1 for a model that runs in it on one thread, other programs
    had the core, and seconds are longer than on a machine of its own."""


def profile_model(
    backend: Backend,
    name: str,
    load: Load | None = None,
    meter: Meter | None = None,
    clock: Callable[[], float] = time.monotonic,
    seed: int = 0,
    told: Callable[[str], None] = lambda line: None,
) -> Profiled:
    """Load a model, fit its profile, and compare it with calls that were held out.

    Args:
        backend: serves it; its phase timings are used where it has any.
        name: deployment name as the backend knows it.
        load: how hard to try.
        meter: measures joules; None = there are none.
        clock: gives the time in seconds.
        seed: of the prompts.
        told: hears of every call.

    Raises:
        BackendError: the model could not be called.
        ConfigError: too few calls came through.
    """
    load = load or Load()
    rng = random.Random(f"{seed}/{name}")
    began, cpu = clock(), time.process_time()
    samples: list[Sample] = []
    for _ in range(max(load.loads, 1)):
        if hasattr(backend, "unload") and load.loads > 0:
            backend.unload(name)
        samples.append(_call(backend, name, 64, 16, load, meter, clock, rng))
        told(_line(samples[-1]))
    pairs = [pair for _ in range(load.repeats) for pair in LENGTHS]
    waiting = list(HELD_OUT)
    held: list[Sample] = []
    for number, (prompt, completion) in enumerate(pairs):
        if clock() - began > load.seconds and len(samples) >= load.loads + 6:
            break
        samples.append(_call(backend, name, prompt, completion, load, meter, clock, rng))
        told(_line(samples[-1]))
        # in between, not at the end: a machine that gets warmer or busier meets both alike
        if waiting and (number + 1) * len(HELD_OUT) // len(pairs) > len(held):
            held.append(_call(backend, name, *waiting.pop(0), load, meter, clock, rng))
    held += [_call(backend, name, *pair, load, meter, clock, rng) for pair in waiting]
    share = (time.process_time() - cpu) / max(clock() - began, 1e-9)
    source = f"fitted {datetime.now(timezone.utc):%Y-%m-%d} to {len(samples)} calls, {os.cpu_count()} CPU cores"
    profile = fit_profile(samples, f"{source}, {getattr(meter, 'source', 'metered')}" if meter else source)
    if load.power_w is not None and profile.energy is None:
        profile = profile.model_copy(update={"power_w": load.power_w})
    metered = [s for s in held if s.joules is not None]
    return Profiled(
        name,
        profile,
        tuple(samples),
        tuple(held),
        accuracy(profile, held),
        accuracy(profile, metered, "energy_j"),
        share,
    )


def open_backend(kind: str, sources: dict[str, str], base_url: str | None) -> Backend:
    """A backend by the name of its entry point.

    Args:
        kind: `local`, `ollama`, `litellm`, or another one that is called with `{name: source}`.
        sources: model → what the backend calls it: a GGUF file, Ollama's name, LiteLLM's name.
        base_url: where the server is.

    Raises:
        ConfigError: there is no such backend.
        ImportError: its extra is missing.
    """
    points = {point.name: point for point in entry_points(group="steproute.backends")}
    if kind not in points:
        raise ConfigError(unknown_name("backend", kind, sorted(points)))
    make: Any = points[kind].load()
    if kind == "ollama":
        backend: Backend = make(base_url, sources)
    elif kind == "litellm":
        server = {"api_base": base_url} if base_url else {}
        backend = make({name: {"model": source, **server} for name, source in sources.items()})
    else:
        backend = make(sources)
    return backend


def named_sources(texts: Iterable[str]) -> dict[str, str]:
    """`name=source`, or a source that is its own name.

    Raises:
        ConfigError: a name is given twice.
    """
    found: dict[str, str] = {}
    for text in texts:
        name, equals, source = text.partition("=")
        if name in found:
            raise ConfigError(f"models: {name!r} is given twice")
        found[name] = source if equals else text
    return found


def _call(
    backend: Backend,
    name: str,
    prompt: int,
    completion: int,
    load: Load,
    meter: Meter | None,
    clock: Callable[[], float],
    rng: random.Random,
) -> Sample:
    completion = min(completion, load.context // 4)
    prompt = min(prompt, load.context - completion - 128)
    request = ChatRequest(
        name,
        [{"role": "user", "content": _text(prompt, rng)}],
        temperature=0.0,
        max_tokens=completion,
        extra=dict(load.options),
    )
    key = None if meter is None else meter.begin(name)
    began = clock()
    answer = backend.complete(request)
    seconds = clock() - began
    measured = meter.end(key) if meter is not None and key is not None else None
    return _sample(answer, seconds, None if measured is None else measured.joules)


def _sample(answer: ChatResponse, seconds: float, joules: float | None) -> Sample:
    usage, timings = answer.usage, answer.timings
    return Sample(
        usage.prompt_tokens,
        usage.completion_tokens,
        min(usage.cached_tokens, usage.prompt_tokens),
        seconds,
        timings.load_s if timings else 0.0,
        timings.prefill_s if timings else None,
        timings.decode_s if timings else None,
        joules,
    )


def _text(tokens: int, rng: random.Random) -> str:
    """A prompt of about so many tokens that begins like no other, so that no cache holds it, and asks for a long reply."""
    words: Iterator[str] = (rng.choice(WORDS) for _ in range(max(tokens - 30, 4)))
    return (
        f"{rng.randrange(10**6)} {' '.join(words)}\nWrite a long story that uses all of these words. Do not stop early."
    )


def _line(sample: Sample) -> str:
    load = f", load {sample.load_s:.2f} s" if sample.load_s else ""
    return f"{sample.prompt_tokens} + {sample.completion_tokens} tokens: {sample.warm_s:.2f} s{load}"
