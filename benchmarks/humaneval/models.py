"""The models of the recordings, with what was measured of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from steproute.errors import ConfigError
from steproute.models import Model, Profile

RECORDED = (
    Model(
        "smollm2-135m",
        price="free",
        size_b=0.135,
        family="SmolLM2",
        profile=Profile(prefill_tokens_per_s=175, decode_tokens_per_s=75),
        context_window=2048,
        max_output=512,
    ),
    Model(
        "qwen2.5-coder-0.5b",
        price="free",
        size_b=0.5,
        family="Qwen2.5-Coder",
        profile=Profile(prefill_tokens_per_s=84, decode_tokens_per_s=28),
        context_window=4096,
        max_output=512,
    ),
    Model(
        "qwen2.5-coder-1.5b",
        price="free",
        size_b=1.5,
        family="Qwen2.5-Coder",
        profile=Profile(prefill_tokens_per_s=38, decode_tokens_per_s=18),
        context_window=4096,
        max_output=512,
    ),
)
"""Speeds in tokens per second: llama.cpp on one core of a 2-core AMD EPYC (Zen 4) machine, 173-token prompt."""


def candidates(names: Sequence[str] = (), power_w: float | None = None) -> list[Model]:
    """The pool of a run.

    Args:
        names: `name` of a recorded model, or `name=deployment` for one of your own; none = the recorded three.
        power_w: board power in watts while a call runs, given by the user; makes joules of seconds.

    Raises:
        ConfigError: fewer than two models.
    """
    known: Mapping[str, Model] = {model.name: model for model in RECORDED}
    models = []
    for item in names or list(known):
        name, _, deployment = item.partition("=")
        base = known.get(name) or Model(name, price="free")
        models.append(base.model_copy(update={"deployment": deployment}) if deployment else base)
    if len(models) < 2:
        raise ConfigError(f"models: seen {len(models)}; a router needs at least two")
    if power_w is not None:
        models = [
            model.model_copy(update={"profile": model.profile.model_copy(update={"power_w": power_w})})
            for model in models
        ]
    return models
