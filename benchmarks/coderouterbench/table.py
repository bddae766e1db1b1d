"""A table of outcomes: the score and cost of every model on every task."""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from steproute.errors import ConfigError, unknown_name

REQUIRED = ("task_id", "dimension", "model", "score", "cost_usd")


@dataclass(frozen=True)
class OutcomeTable:
    """Scores in [0, 1] and costs in USD, both of shape (tasks, models), and what is known of a task beforehand."""

    tasks: list[str]
    models: list[str]
    dimensions: list[str]
    """One per task."""
    scores: npt.NDArray[np.float64]
    usd: npt.NDArray[np.float64]
    prompts: Mapping[str, str] = field(default_factory=dict)
    """Prompt per task; empty where the table has none."""

    def rewards(self, usd_weight: float = 0.1) -> npt.NDArray[np.float64]:
        """reward = score − 0.1·usd (arXiv 2606.22902), shape (tasks, models)."""
        return self.scores - usd_weight * self.usd

    def sources(self, pattern: str | None) -> list[str]:
        """The finer context group of each task: what the pattern's first group (or the whole match) finds in its id.

        Raises:
            ConfigError: the pattern is no regular expression, or finds nothing in any id.
        """
        if pattern is None:
            return [""] * len(self.tasks)
        try:
            compiled = re.compile(pattern)
        except re.error as error:
            raise ConfigError(f"context-regex: {pattern!r} is no regular expression ({error})") from None
        found = [compiled.search(task) for task in self.tasks]
        if not any(found):
            raise ConfigError(
                f"context-regex: {pattern!r} finds nothing in any task id; the first is {self.tasks[0]!r}"
            )
        return ["" if match is None else match.group(1 if compiled.groups else 0) or "" for match in found]


def load_table(folder: Path) -> OutcomeTable:
    """Read a folder with one results CSV, and, where they are there, `*tasks*.jsonl` (prompts) and `models.json`.

    Raises:
        ConfigError: names file, row and field, what was seen and what is allowed: missing columns, scores that are no
            number in [0, 1], costs that are negative, a row given twice, a missing cell, a model that `models.json` lacks.
    """
    if not folder.is_dir():
        raise ConfigError(f"data: no folder {folder}")
    files = sorted(folder.glob("*.csv"))
    if len(files) != 1:
        raise ConfigError(f"data: {folder} holds {len(files)} CSV files; allowed: exactly one table")
    try:
        cells, dimensions, models = _cells(files[0], _known_models(folder / "models.json"))
    except (UnicodeDecodeError, csv.Error) as error:
        raise ConfigError(f"{files[0].name}: is no CSV in UTF-8 ({error})") from None
    tasks = list(dimensions)
    scores, usd = np.empty((len(tasks), len(models))), np.empty((len(tasks), len(models)))
    for i, task in enumerate(tasks):
        for j, model in enumerate(models):
            if (task, model) not in cells:
                raise ConfigError(
                    f"{files[0].name}: task {task!r} has no row for model {model!r}; every cell is needed"
                )
            scores[i, j], usd[i, j] = cells[task, model]
    return OutcomeTable(tasks, models, list(dimensions.values()), scores, usd, _prompts(folder))


def _cells(
    file: Path, known: set[str] | None
) -> tuple[dict[tuple[str, str], tuple[float, float]], dict[str, str], list[str]]:
    cells: dict[tuple[str, str], tuple[float, float]] = {}
    dimensions: dict[str, str] = {}
    models: dict[str, None] = {}
    with file.open(newline="", encoding="utf-8-sig") as lines:  # spreadsheets write a mark first
        reader = csv.DictReader(lines)
        missing = [name for name in REQUIRED if name not in (reader.fieldnames or ())]
        if missing:
            raise ConfigError(f"{file.name}: column(s) {', '.join(missing)} missing; needed: {', '.join(REQUIRED)}")
        for row in reader:
            where = f"{file.name} row {reader.line_num}"
            task, model = row["task_id"], row["model"]
            if not task or not model:
                raise ConfigError(f"{where}: task_id or model is empty")
            if known is not None and model not in known:
                raise ConfigError(
                    f"{where}: model: {model!r} is not in models.json; allowed: {', '.join(sorted(known))}"
                )
            score = _number(where, "score", row["score"], 1.0)
            cost = _number(where, "cost_usd", row["cost_usd"], math.inf)
            if (task, model) in cells:
                raise ConfigError(f"{where}: task {task!r} and model {model!r} are given twice")
            if dimensions.setdefault(task, row["dimension"]) != row["dimension"]:
                raise ConfigError(
                    f"{where}: dimension: seen {row['dimension']!r}, before {dimensions[task]!r} for {task!r}"
                )
            cells[task, model] = (score, cost)
            models.setdefault(model)
    if not cells:
        raise ConfigError(f"{file.name}: the table is empty")
    return cells, dimensions, list(models)


def _number(where: str, name: str, text: str | None, most: float) -> float:
    try:
        value = float(text or "")
    except ValueError:
        value = math.nan
    if not 0 <= value <= most or math.isinf(value):
        allowed = "a number in [0, 1]" if most == 1 else "a finite number, 0 or more"
        raise ConfigError(f"{where}: {name}: seen {text!r}; allowed: {allowed}")
    return value


def _known_models(file: Path) -> set[str] | None:
    if not file.is_file():
        return None
    try:
        return {str(item["model"]) for item in json.loads(file.read_text(encoding="utf-8"))["models"]}
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f'{file.name}: needed: {{"models": [{{"model": NAME}}, …]}} ({type(error).__name__})'
        ) from None


def _prompts(folder: Path) -> dict[str, str]:
    prompts = {}
    for file in sorted(folder.glob("*tasks*.jsonl")):
        for number, line in enumerate(file.read_bytes().splitlines(), start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
                if row.get("prompt"):
                    prompts[str(row["task_id"])] = str(row["prompt"])
            except (ValueError, KeyError, AttributeError):
                raise ConfigError(f"{file.name} line {number}: needed: a JSON object with task_id") from None
    return prompts


def load_prior(file: Path, models: list[str], dimensions: Collection[str] = ()) -> dict[str, dict[str, float]]:
    """Published mean scores: dimension → model → mean, from `{"scores": {model: {dimension: mean}}}`.

    Args:
        file: JSON.
        models: those of the table.
        dimensions: those of the table; empty = not checked.

    Raises:
        ConfigError: unreadable, an unknown model, a mean outside [0, 1], or no dimension of the table in it.
    """
    try:
        rows = [
            (str(model), str(dimension), mean)
            for model, means in json.loads(file.read_text(encoding="utf-8"))["scores"].items()
            for dimension, mean in means.items()
        ]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        why = error.strerror if isinstance(error, OSError) else type(error).__name__
        raise ConfigError(f'prior: {file}: needed: {{"scores": {{model: {{dimension: mean}}}}}} ({why})') from None
    prior: dict[str, dict[str, float]] = {}
    for model, dimension, mean in rows:
        if model not in models:
            raise ConfigError(f"prior: {file.name}: {unknown_name('model', model, models)}")
        if isinstance(mean, bool) or not isinstance(mean, (int, float)) or not 0 <= mean <= 1:
            raise ConfigError(f"prior: {file.name}: {model}.{dimension}: seen {mean!r}; allowed: a number in [0, 1]")
        prior.setdefault(dimension, {})[model] = float(mean)
    if dimensions and not any(dimension in prior for dimension in dimensions):
        raise ConfigError(
            f"prior: {file.name}: seen the dimensions {', '.join(sorted(prior)) or 'none'}; "
            f"needed: some of the table's: {', '.join(sorted(set(dimensions)))}"
        )
    return prior
