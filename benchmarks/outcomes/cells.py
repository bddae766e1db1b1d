"""Collect scores cell by cell, say what is wrong with one, and make a table of the tasks that every model has."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from steproute.benchmarks.coderouterbench.table import OutcomeTable
from steproute.errors import ConfigError, unknown_name

logger = logging.getLogger("steproute")

_WORDS = {"true": 1.0, "false": 0.0, "yes": 1.0, "no": 0.0}


@dataclass
class _Task:
    dimension: str
    prompt: str


class Cells:
    """The cells of a table that is being read."""

    def __init__(self, usd: Mapping[str, float] | None = None):
        """Start empty.

        Args:
            usd: model → USD of one call, for tables that have no costs; they are free where it is not given.
        """
        self._usd = dict(usd or {})
        self._tasks: dict[str, _Task] = {}
        self._models: dict[str, None] = {}
        self._cells: dict[tuple[str, str], tuple[float, float]] = {}

    def add(
        self,
        where: str,
        task: str,
        model: str,
        score: object,
        usd: object = None,
        *,
        dimension: str = "",
        prompt: str = "",
    ) -> None:
        """Take in one cell.

        Args:
            where: file and row, for messages.
            task: id.
            model: name.
            score: in [0, 1], true or false, or text that says so.
            usd: what the call cost; None = the model's price per call.
            dimension: kind of task; a table that has none is of one kind.
            prompt: of the task.

        Raises:
            ConfigError: names the row and the field, what was seen and what is allowed.
        """
        if not task or not model:
            raise ConfigError(f"{where}: task or model is empty")
        if (task, model) in self._cells:
            raise ConfigError(f"{where}: task {task!r} and model {model!r} are given twice")
        dimension = dimension or "all"  # learners learn per group: with none they would learn nothing
        known = self._tasks.setdefault(task, _Task(dimension, prompt))
        if known.dimension != dimension:
            raise ConfigError(f"{where}: dimension: seen {dimension!r}, before {known.dimension!r} for {task!r}")
        self._models.setdefault(model)
        paid = self._usd.get(model, 0.0) if usd is None else _number(where, "cost", usd, math.inf)
        self._cells[task, model] = (_number(where, "score", score, 1.0), paid)

    def table(self, source: str) -> OutcomeTable:
        """The table of the tasks that every model has; how many others there are is logged.

        Raises:
            ConfigError: no such task, fewer than two models, or a price for a model that is not there.
        """
        models = list(self._models)
        if len(models) < 2:
            raise ConfigError(f"data: {source} holds {len(models)} model(s); a table needs at least two")
        for name in self._usd:
            if name not in self._models:
                raise ConfigError(f"usd: {unknown_name('model', name, models)}")
        tasks = [task for task in self._tasks if all((task, model) in self._cells for model in models)]
        if not tasks:
            raise ConfigError(f"data: {source}: no task has an outcome of every model ({', '.join(models)})")
        if len(tasks) < len(self._tasks):
            logger.warning(
                "%s: %d of %d tasks lack a model and are left out",
                source,
                len(self._tasks) - len(tasks),
                len(self._tasks),
            )
        cells = np.array([[self._cells[task, model] for model in models] for task in tasks])
        return OutcomeTable(
            tasks,
            models,
            [self._tasks[task].dimension for task in tasks],
            cells[:, :, 0],
            cells[:, :, 1],
            {task: prompt for task in tasks if (prompt := self._tasks[task].prompt)},
        )


def _number(where: str, name: str, seen: object, most: float) -> float:
    value = math.nan
    if isinstance(seen, (bool, int, float)):
        value = float(seen)
    elif isinstance(seen, str):
        text = seen.strip().lower()
        try:
            value = _WORDS[text] if text in _WORDS else float(text)
        except ValueError:
            value = math.nan
    if not 0 <= value <= most or math.isinf(value):
        allowed = "a number in [0, 1], true or false" if most == 1 else "a finite number, 0 or more"
        raise ConfigError(f"{where}: {name}: seen {seen!r:.80}; allowed: {allowed}")
    return value


def usd_per_call(text: str) -> dict[str, float]:
    """Read `small=0.001,large=0.02`.

    Raises:
        ConfigError: an item is no `MODEL=USD`.
    """
    found = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        name, _, amount = item.rpartition("=")
        if not name:
            raise ConfigError(f"usd: seen {item!r}; allowed: MODEL=USD, comma-separated")
        found[name] = _number("usd", name, amount, math.inf)
    return found
