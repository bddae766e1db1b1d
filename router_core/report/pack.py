"""Packs a run into the small JSON the page carries: strings and name lists once, records as arrays."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping
from typing import Any

from steproute.progress import DEFAULT_WEIGHTS, Regime
from steproute.report.run import Record, Run
from steproute.report.summary import summarise
from steproute.report.values import in_order, mapping, names, number, records, text, truth

FIELDS = {
    "step": (
        *("policy", "task", "step", "attempt", "role", "model", "regime", "g", "r", "d", "e", "terms", "costs"),
        *("candidates", "reason", "propensity", "stop", "explored", "fallback", "outcome", "visible", "hidden"),
        *("q", "regret", "after", "picked", "stop_score"),
    ),
    "candidate": ("model", "score", "terms", "cost", "gain", "gain_sd", "propensity", "cause"),
    "outcome": ("usd", "seconds", "prompt_tokens", "completion_tokens", "energy_j", "error"),
    "visible": ("passed", "total", "ok", "error"),
    "task": (
        *("policy", "task", "passed", "visible_ok", "calls", "seconds", "tokens", "usd", "energy_j"),
        *("models", "regret", "regimes"),
    ),
}
"""What stands at which place in a packed record; the page reads records by this table."""

SUMMARY_NUMBERS = (
    *("tasks", "pass_rate", "seconds", "tokens", "energy_j", "usd", "calls_per_task", "step_regret"),
    *("visible_pass_hidden_fail", "value"),
)


class Packer:
    """Turns a run into page data; `kept` are the tasks whose steps go along."""

    def __init__(self, run: Run):
        """Look through the run once for the names of its policies, models and tasks."""
        self.run = run
        self.summary = run.summary or summarise(run.tasks, number(run.config.get("price_of_second")))
        rows = [*self.summary, *run.tasks, *run.steps]
        self.policies = in_order(
            (text(row.get("policy")) for row in rows), map(_policy_name, _list(run.config.get("policies")))
        )
        results = [*run.tasks, *run.steps]
        self.tasks = in_order((text(row.get("task")) for row in results), names(run.config.get("tasks")))
        self.models = self._models()
        self._model_at = {model["name"]: i for i, model in enumerate(self.models)}
        self._words: dict[str, int] = {}
        self._lists: dict[tuple[str, ...], int] = {}

    def pack(self, kept: Collection[str]) -> Record:
        """The page's data, in plain JSON values."""
        self._words, self._lists = {"": 0}, {}
        steps = [self._step(row) for row in self.run.steps if text(row.get("task")) in kept]
        tasks = [self._task(row) for row in self.run.tasks if text(row.get("task")) in kept]
        return {
            "run": self._facts(),
            "notes": self._notes(kept),
            "models": self.models,
            "policies": self.policies,
            "regimes": _regimes(),
            "summary": [self._summary(row) for row in self.summary],
            "calls": self._calls(),
            "fields": FIELDS,
            "steps": steps,
            "tasks": tasks,
            "words": list(self._words),
            "lists": [list(item) for item in self._lists],
        }

    # --- records ---------------------------------------------------------------------------------------------

    def _step(self, row: Mapping[str, Any]) -> list[Any]:
        decision = mapping(row.get("decision"))
        progress, after = mapping(decision.get("progress")), mapping(row.get("progress_after"))
        g_after = number(after.get("g", row.get("g_after")), 4)
        candidates = records(decision.get("candidates"))
        terms = list(dict.fromkeys(name for item in candidates for name in mapping(item.get("terms"))))
        costs = list(dict.fromkeys(name for item in candidates for name in mapping(item.get("cost"))))
        q = mapping(row.get("q"))
        return [
            self._word(row.get("policy")),
            self._word(row.get("task")),
            self._word(row.get("step", decision.get("step"))),
            number(row.get("attempt", decision.get("attempt"))),
            self._word(row.get("role", decision.get("role"))),
            self._model(row.get("model", decision.get("model"))),
            self._word(progress.get("regime")),
            *(number(progress.get(name), 4) for name in "grde"),
            self._list(terms),
            self._list(costs),
            [self._candidate(item, terms, costs) for item in candidates],
            self._word(decision.get("reason")),
            number(row.get("propensity", decision.get("propensity"))),
            *(truth(decision.get(name)) for name in ("stop", "explored", "fallback")),
            self._outcome(mapping(row.get("outcome"))),
            self._visible(mapping(row.get("visible"))),
            truth(row.get("hidden")),
            [*(number(q.get(model["name"]), 4) for model in self.models), number(q.get("stop"), 4)] if q else None,
            number(row.get("regret"), 4),
            None if g_after is None else [g_after, self._word(after.get("regime"))],
            self._model(decision.get("model")),
            number(decision.get("stop_score")),
        ]

    def _outcome(self, outcome: Mapping[str, Any]) -> list[Any] | None:
        if not outcome:
            return None
        return [*(number(outcome.get(name)) for name in FIELDS["outcome"][:-1]), self._word(outcome.get("error"))]

    def _visible(self, seen: Mapping[str, Any]) -> list[Any] | None:
        if not seen:
            return None
        counts = [number(seen.get("passed")), number(seen.get("total"))]
        return [*counts, truth(seen.get("ok")), self._word(seen.get("error"))]

    def _candidate(self, item: Mapping[str, Any], terms: list[str], costs: list[str]) -> list[Any]:
        parts, cost = mapping(item.get("terms")), mapping(item.get("cost"))
        return [
            self._model(item.get("model")),
            number(item.get("score")),
            [number(parts.get(name)) for name in terms],
            [number(cost.get(name), 4) for name in costs],
            number(item.get("gain"), 4),
            number(item.get("gain_sd"), 3),
            number(item.get("propensity"), 4),
            self._word(item.get("cause")),
        ]

    def _task(self, row: Mapping[str, Any]) -> list[Any]:
        return [
            self._word(row.get("policy")),
            self._word(row.get("task")),
            truth(row.get("passed")),
            truth(row.get("visible_ok")),
            *(number(row.get(name)) for name in ("calls", "seconds", "tokens", "usd", "energy_j")),
            [self._model(name) for name in names(row.get("models"))],
            number(row.get("regret"), 4),
            [self._word(name) for name in names(row.get("regime_path"))],
        ]

    def _summary(self, row: Mapping[str, Any]) -> Record:
        bounds = [number(value) for value in _list(row.get("pass_rate_ci95"))]
        return {
            "policy": text(row.get("policy")),
            **{name: number(row.get(name)) for name in SUMMARY_NUMBERS},
            "ci": bounds if len(bounds) == 2 and None not in bounds else None,
            "energy_source": text(row.get("energy_source")),
            "share": {name: number(value) for name, value in mapping(row.get("share")).items()},
        }

    # --- what the run is about -------------------------------------------------------------------------------

    def _models(self) -> list[Record]:
        """Smallest first; a model that only the results name comes last."""
        known = {text(item.get("name")): item for item in records(self.run.config.get("models"))}
        found = dict.fromkeys(known)
        for row in self.summary:
            found.update(dict.fromkeys(mapping(row.get("share"))))
        for row in self.run.steps:
            found[text(row.get("model"))] = None
            candidates = records(mapping(row.get("decision")).get("candidates"))
            found.update(dict.fromkeys(text(item.get("model")) for item in candidates))
        found.pop("", None)
        sizes = {name: number(known.get(name, {}).get("size_b")) for name in found}
        ordered = sorted(found, key=lambda name: (sizes[name] is None, sizes[name] or 0.0))
        families = {name: text(known.get(name, {}).get("family")) for name in found}
        return [{"name": name, "size": sizes[name], "family": families[name]} for name in ordered]

    def _calls(self) -> list[list[list[int]]]:
        """Calls per policy, position in the task (first call, second call …) and model."""
        counts: dict[str, list[list[int]]] = {policy: [] for policy in self.policies}
        position: dict[tuple[str, str], int] = {}
        for row in self.run.steps:
            if mapping(row.get("decision")).get("stop") is True or text(row.get("model")) not in self._model_at:
                continue
            key = (text(row.get("policy")), text(row.get("task")))
            at = position[key] = position.get(key, -1) + 1
            table = counts[key[0]]
            if at == len(table):
                table.append([0] * len(self.models))
            table[at][self._model_at[text(row.get("model"))]] += 1
        return [counts[policy] for policy in self.policies]

    def _facts(self) -> Record:
        config = self.run.config
        return {
            **{name: text(config.get(name)) for name in ("benchmark", "framework", "backend", "git_commit", "created")},
            "seed": number(config.get("seed"), 15),
            "price_of_second": number(config.get("price_of_second")),
            "tasks": len(self.tasks),
            "versions": {name: text(value) for name, value in mapping(config.get("versions")).items()},
            "command": text(config.get("command"), 4000) or _command(config),
            "folder": self.run.folder.resolve().name,
            "prices": {text(item.get("name")): _price(item.get("price")) for item in records(config.get("models"))},
        }

    def _notes(self, kept: Collection[str]) -> list[str]:
        notes = list(self.run.notes)
        if not self.run.summary and self.summary:
            notes.append("The summary was computed from tasks.jsonl for this page.")
        if len(kept) < len(self.tasks):
            notes.append(
                f"To keep this page small it carries the steps of {len(kept)} of {len(self.tasks)} tasks, evenly "
                "chosen; totals are over all tasks, and steps.jsonl holds every step."
            )
        return notes

    # --- shared tables ---------------------------------------------------------------------------------------

    def _word(self, value: object) -> int:
        return self._words.setdefault(text(value), len(self._words))

    def _list(self, items: list[str]) -> int:
        return self._lists.setdefault(tuple(items), len(self._lists))

    def _model(self, name: object) -> int | None:
        return self._model_at.get(text(name))


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _policy_name(spec: object) -> str:
    return text(spec.get("name") if isinstance(spec, Mapping) else spec)


def _price(price: object) -> str:
    if isinstance(price, Mapping):
        amounts = number(price.get("input")), number(price.get("output"))
        if None in amounts:
            return ""
        return "free" if amounts == (0, 0) else "${} in, ${} out per million tokens".format(*amounts)
    return text(price)


def _regimes() -> list[Record]:
    weights = [(regime.label, DEFAULT_WEIGHTS.of(regime)) for regime in Regime]
    return [{"name": label, "low": number(item.lowest), "high": number(item.highest)} for label, item in weights]


def _command(config: Mapping[str, Any]) -> str:
    """The command line that makes such a run; empty when the benchmark is not known."""
    if not config.get("benchmark"):
        return ""
    parts = ["steproute", "run", text(config["benchmark"])]
    for option in ("framework", "backend"):
        if config.get(option):
            parts += [f"--{option}", text(config[option])]
    policies = [_policy_name(item) for item in _list(config.get("policies"))]
    if policies:
        parts += ["--policy", ",".join(policies)]
    if config.get("seed") is not None:
        parts += ["--seed", text(config["seed"])]
    return shlex.join(parts)
