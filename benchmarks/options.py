"""The settings every benchmark run has; the command line's options have the same names."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from steproute.budget import Budget, Limit
from steproute.errors import ConfigError


@dataclass
class RunOptions:
    """The settings of a run."""

    policies: Sequence[str]
    framework: str = "plain"
    backend: str = "litellm"
    seed: int = 0
    limit: int | None = None
    """Take only the first so many tasks."""
    models: Sequence[str] = ()
    """`name` or `name=deployment` each, or one path of a `steproute.yaml` with prices."""
    cassettes: Path | None = None
    base_url: str | None = None
    """Server of a live backend."""
    price_of_second: float | None = None
    """What a second is worth in solved tasks; None = nothing."""
    value_usd: float | None = None
    """What a dollar is worth in solved tasks; None = nothing."""
    seconds_limit: float | None = None
    """Soft limit of time per task, for policies that weigh a budget."""
    usd_limit: float | None = None
    """Hard limit of money per task."""
    power_w: float | None = None
    outcomes: bool = False
    """Tell the router each task's final result, as a user who accepts or rejects it would; else it never learns it."""
    jobs: int = 1
    """Tasks under way at one time. With more than one, what the router has learnt when depends on the clock."""
    out: Path | None = None
    resume: bool = False
    """Go on with the run in `out`."""

    def check(self) -> None:
        """Refuse what no run could use.

        Raises:
            ConfigError: names the option, what was seen and what is allowed.
        """
        if not self.policies:
            raise ConfigError("policy: none given; `steproute policies` lists them")
        for name, least in (("seed", 0), ("limit", 1), ("jobs", 1)):
            whole = getattr(self, name)
            if whole is not None and whole < least:
                raise ConfigError(f"{name}: seen {whole}; allowed: a whole number of {least} or more")
        for name in ("price_of_second", "value_usd", "seconds_limit", "usd_limit", "power_w"):
            amount = getattr(self, name)
            if amount is not None and not (math.isfinite(amount) and amount > 0):
                raise ConfigError(f"{name}: seen {amount:g}; allowed: a finite number above 0")
        if self.resume and self.out is None:
            raise ConfigError("resume: needs --out, the folder of the run to go on with")

    def budget(self) -> Budget:
        """What the options say about money and time."""
        seconds = usd = None
        if self.seconds_limit is not None or self.price_of_second is not None:
            seconds = Limit(limit=self.seconds_limit, hard=False, value=self.price_of_second or 0.0)
        if self.usd_limit is not None or self.value_usd is not None:
            usd = Limit(limit=self.usd_limit, value=self.value_usd or 0.0)
        return Budget(seconds=seconds, usd=usd)
