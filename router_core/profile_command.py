"""What `steproute models profile` prints and writes."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from steproute.metering import make_meter
from steproute.models import Profile
from steproute.profiles import Accuracy, write_profiles
from steproute.profiling import Load, Profiled, named_sources, open_backend, profile_model

_SHOWN = (
    ("load_s", "load", "s"),
    ("latency_s", "fixed", "s"),
    ("prefill_tokens_per_s", "prefill", "tokens/s"),
    ("prefill_context_s", "prefill, per token and token of context", "s"),
    ("decode_tokens_per_s", "decode", "tokens/s"),
    ("decode_context_s", "decode, per token and token of context", "s"),
    ("load_j", "load", "J"),
    ("latency_j", "fixed", "J"),
    ("prefill_j_per_token", "prefill", "J/token"),
    ("prefill_context_j", "prefill, per token and token of context", "J"),
    ("decode_j_per_token", "decode", "J/token"),
    ("decode_context_j", "decode, per token and token of context", "J"),
    ("power_w", "power, as stated", "W"),
)


def profile_models(
    names: Sequence[str], backend: str, base_url: str | None, out: Path | None, meter: str, load: Load
) -> None:
    """Profile models one after the other, print each, and write all to one file.

    Raises:
        BackendError: a model could not be called.
        ConfigError: a name is wrong, or too few calls came through.
        MeterUnavailable: the meter that was asked for is not there.
    """
    sources = named_sources(names)
    joules = make_meter(meter)
    console, notes = Console(), Console(stderr=True)
    server = open_backend(backend, sources, base_url)
    profiles: dict[str, Profile] = {}
    try:
        for name in sources:
            notes.print(f"{name}: {os.getloadavg()[0]:.1f} processes run on {os.cpu_count()} cores", highlight=False)
            told = (
                (lambda line: notes.print(f"  {line}", highlight=False)) if sys.stderr.isatty() else lambda line: None
            )
            found = profile_model(server, name, load, joules, told=told)
            show(console, found)
            if backend == "local" and found.core_share < 0.9:
                console.print(
                    f"  other programs had the core {100 * (1 - found.core_share):.0f} % of the time: seconds are longer "
                    "and less sure than on a machine of its own",
                    highlight=False,
                )
            profiles[name] = found.profile
            if out is not None:
                write_profiles(out, {name: found.profile})
    finally:
        for close in (getattr(part, "close", None) for part in (server, joules)):
            if close is not None:
                close()
    if out is not None:
        console.print(f"written to {out}; in steproute.yaml: profiles: {out}", highlight=False)


def show(console: Console, found: Profiled) -> None:
    """Print one model's profile and how far it is from calls that were not fitted."""
    table = Table("", "", "95 % interval", "", title=f"{found.name}: {len(found.samples)} calls", box=SIMPLE)
    for field, label, unit in _SHOWN:
        value = getattr(found.profile, field)
        if value:
            low, high = found.profile.intervals.get(field, (value, value))
            table.add_row(label, f"{value:.4g}", f"{low:.4g} … {high:.4g}", unit)
    console.print(table)
    for what, off in (("seconds", found.seconds), ("joules", found.joules)):
        if off is not None:
            console.print(f"  {_said(what, off)}", highlight=False)
    if found.profile.energy is None:
        console.print("  joules: nothing measures them here; --power-w gives an estimate", highlight=False)


def _said(what: str, off: Accuracy) -> str:
    return (
        f"{what} of {off.calls} calls held out, predicted against measured: median error {100 * off.median:.1f} %, "
        f"largest {100 * off.worst:.1f} %"
    )
