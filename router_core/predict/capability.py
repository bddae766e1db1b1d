"""Capability of models per context group: a hierarchical Bayesian model of the relative gain, in closed form.

The relative gain z of model m in node c of the group tree (all → dimension → source → role) is modelled as

    z = v[c, m] + ε,   Var ε = σ²[c] / reliability
    v[c, m] = v[parent, m] + level[c] + θ[c, m],   level ~ N(0, λ²),   θ ~ N(0, max(σ²[c]/k, least²))

The level is shared by all models: a hard group lowers every model and does not make its usual model look weak. What
remains per model is shrunk towards the parent with k pseudo-observations. Given the levels (set to their posterior mean,
which for one level is exact generalised least squares) the tree falls apart into one scalar Gaussian tree per model,
solved by messages: a node tells its parent the precision and the precision-weighted mean of what it has seen; a parent
answers with everything except what that node said. One observation touches the nodes of its own path only.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import add
from typing import Any

import numpy as np
from pydantic import Field

from steproute.errors import ConfigError
from steproute.policies.base import Feedback, StepContext
from steproute.predict.node import Node
from steproute.settings import Settings

STATE_VERSION = 1
LEAST_NOISE = 1e-3
"""A group in which every score was the same may still surprise."""
MOST_WORTH = 5.0
"""Most that a full-information observation counts for, in single ones."""
Group = tuple[str, ...]


class CapabilityConfig(Settings):
    """Settings of the capability model."""

    strength: float = Field(default=3.0, gt=0)
    """k: how many observations the parent's opinion of one model is worth in a child group."""
    least_spread: float = Field(default=0.1, ge=0)
    """Standard deviation of θ at least: a group without noise tells a lot about one model, not about the others."""
    root_sd: float = Field(default=0.03, gt=0)
    """Spread of models over all groups, around their stated prior, in units of relative gain."""
    level_sd: float = Field(default=0.3, gt=0)
    """λ: spread of a group's level around its parent's."""
    prior_level_sd: float = Field(default=0.1, gt=0)
    """The same around a published level (`set_prior`)."""
    prior_strength: float = Field(default=40.0, gt=0)
    """How many observations a published mean (`set_prior`) is worth."""
    noise: float = Field(default=0.15, gt=0)
    """Variance of one relative gain before anything was seen."""
    noise_strength: float = Field(default=4.0, gt=0)
    """How many observations a parent's noise is worth in a child group."""
    memory: float | None = Field(default=None, ge=1)
    """How many of a model's own latest observations in a group count, by discounting the older ones; None = all."""


@dataclass(slots=True)
class Estimate:
    """What is believed about some models in one group, in their order."""

    mean: list[float]
    """Expected relative gain."""
    variance: list[float]
    """Variance of that expectation, the group's level taken as known."""
    noise: float
    """Variance σ² of one fully reliable observation."""

    def gains(self, remaining: float) -> tuple[list[float], list[float]]:
        """ŷ = (1 − g)·E[z] and its standard deviation, of a task with `remaining` = 1 − g to do."""
        return [remaining * mean for mean in self.mean], [remaining * math.sqrt(v) for v in self.variance]


class CapabilityModel:
    """Expected relative gain of every model in every group, learnt online. A `GainEstimator`."""

    def __init__(self, config: CapabilityConfig | None = None):
        self.config = config or CapabilityConfig()
        self._columns: dict[str, int] = {}
        self._free: list[int] = []
        self._base: list[float] = []
        self._nodes: dict[Group, Node] = {(): Node(0)}

    # --- models ----------------------------------------------------------------------------------------------

    @property
    def models(self) -> list[str]:
        """Names of the models something is known about."""
        return list(self._columns)

    def add(self, model: str, prior: float = 0.5) -> None:
        """Make room for a model. Adding one that is there changes nothing.

        Args:
            model: its name.
            prior: expected relative gain before anything was seen, in [0, 1].
        """
        if model in self._columns:
            return
        if self._free:
            column = self._free.pop()
            self._base[column] = float(prior)
        else:
            column = len(self._base)
            self._base.append(float(prior))
            for node in self._nodes.values():
                node.grow(1)
        self._columns[model] = column

    def forget(self, model: str) -> None:
        """Drop a model and what was learnt about it; a later model of that name starts afresh."""
        column = self._columns.pop(model, None)
        if column is None:
            return
        self._free.append(column)
        for node in self._nodes.values():
            node.clear(column)

    def fade(self, model: str, keep: float) -> None:
        """Let go of most of what is known of a model that has changed: its means stay, as the prior of what it is now.

        Args:
            model: its name; one that nothing is known about is left alone.
            keep: how many observations per group the old ones are worth at most.
        """
        column = self._columns.get(model)
        if column is None:
            return
        for node in self._nodes.values():
            seen = node.seen[column]
            if seen > keep:
                node.seen[column], node.total[column] = keep, node.total[column] * (keep / seen)
            node.hush(column)
        self._tell_all()

    def renew(
        self, model: str, keep: float, shift: float, since: Iterable[tuple[Sequence[str], float, float]] = ()
    ) -> None:
        """Believe that a model has become another: what was seen since counts in full, what is older little and shifted.

        What was published about the model counts as older observations from now on.

        Args:
            model: its name; one that nothing is known about is left alone.
            keep: how many observations per group the older ones are worth at most.
            shift: what is added to their means.
            since: group, gain and weight of the observations since the change; they have been taken in before.
        """
        column = self._columns.get(model)
        if column is None:
            return
        later: dict[Group, tuple[float, float]] = {}
        for group, gain, weight in since:
            key = _trim(group)
            seen, total = later.get(key, (0.0, 0.0))
            later[key] = (seen + weight, total + weight * gain)
        for group, node in self._nodes.items():
            seen, total = later.get(group, (0.0, 0.0))
            older, old_total = node.seen[column] - seen, node.total[column] - total
            if node.prior is not None and not math.isnan(node.prior[0][column]):
                older, old_total = older + node.prior[1], old_total + node.prior[1] * node.prior[0][column]
                node.prior[0][column] = math.nan
            if older > 1e-9:
                mean, kept = old_total / older, min(older, keep)
                seen, total = seen + kept, total + kept * min(max(mean + shift, min(mean, 0.0)), 1.0)
            node.seen[column], node.total[column] = seen, total
            node.hush(column)
        self._tell_all()

    def _tell_all(self) -> None:
        for group in sorted(self._nodes, key=len, reverse=True):
            self._ascend([self._nodes[group[:depth]] for depth in range(len(group) + 1)])

    def set_prior(self, group: Sequence[str], means: Mapping[str, float], strength: float | None = None) -> None:
        """State what is published about a group: it replaces the parent's opinion there.

        Args:
            group: path from coarse to fine, e.g. `("code_generation",)`.
            means: expected relative gain per model, in [−1, 1]; models left out keep the parent's opinion.
            strength: how many observations a mean is worth; None = the config's.

        Raises:
            ConfigError: a mean or the strength is out of range.
        """
        strength = self.config.prior_strength if strength is None else strength
        if not 0 < strength < float("inf"):
            raise ConfigError(f"prior strength: seen {strength!r}; allowed: a number above 0")
        for model, mean in means.items():
            if not -1 <= mean <= 1:
                raise ConfigError(f"prior of {model!r} in {'/'.join(group)!r}: seen {mean!r}; allowed: -1 to 1")
            self.add(model)
        node = self._reach(_trim(group))[-1]
        values = [math.nan] * len(self._base)
        for model, mean in means.items():
            values[self._columns[model]] = float(mean)  # a number of numpy's would not go into JSON
        node.prior = (values, float(strength))

    # --- believing and learning ------------------------------------------------------------------------------

    def estimate(self, group: Sequence[str], models: Sequence[str]) -> Estimate:
        """Belief about models in a group.

        Args:
            group: path from coarse to fine; empty strings at the end count as unknown.
            models: names, all of them added before.

        Returns:
            Belief in the order of `models`.
        """
        mean, variance, noise = self._descend(_trim(group))
        columns = [self._columns[model] for model in models]
        return Estimate([mean[i] for i in columns], [variance[i] for i in columns], noise)

    def observe(self, group: Sequence[str], model: str, gain: float, weight: float = 1.0) -> None:
        """Take in one relative gain.

        Args:
            group: path from coarse to fine.
            model: which model made it.
            gain: relative gain z, in [−1, 1].
            weight: reliability of the observation, in (0, 1].
        """
        self.add(model)
        column = self._columns[model]
        path = self._reach(_trim(group))
        leaf = path[-1]
        before, total = leaf.seen[column], leaf.total[column]
        if before > 0:
            off = gain - total / before
            for node in path:
                node.spread += before * weight / (before + weight) * off * off
                node.freedom += weight
        keep = 1.0 if self.config.memory is None else 1.0 - weight / self.config.memory
        leaf.seen[column] = before * keep + weight
        leaf.total[column] = total * keep + weight * gain
        self._ascend(path)

    def observe_all(self, group: Sequence[str], gains: Mapping[str, float], weight: float = 1.0) -> None:
        """Take in what several models made of one and the same task (full information).

        What such a task has in common cancels out between its models, so it tells them apart better than as many
        single observations: by the ratio of the variance with and without each task's own level, learnt as it goes.

        Args:
            group: path from coarse to fine.
            gains: relative gain z per model, in [−1, 1].
            weight: reliability, in (0, 1].
        """
        for model in gains:
            self.add(model)
        if len(gains) < 2:
            for model, gain in gains.items():
                self.observe(group, model, gain, weight)
            return
        columns = [self._columns[model] for model in gains]
        values = np.array(list(gains.values()), dtype=np.float64)
        path = self._reach(_trim(group))
        leaf, n = path[-1], len(values)
        seen, total = (np.array([sums[i] for i in columns]) for sums in (leaf.seen, leaf.total))
        old = seen > 0
        off = np.where(old, values - total / np.maximum(seen, 1e-300), 0.0)
        shrink = np.where(old, leaf.rows / (leaf.rows + 1.0) if leaf.rows else 0.5, 0.0)
        for node in path:
            node.spread += float((shrink * off * off).sum()) * weight
            node.freedom += float(old.sum()) * weight
        noise = self.config.noise
        for node in path:
            noise = self._noise(node, noise)
        if old.all() and leaf.rows:
            leaf.paired += float((shrink * (off - off.mean()) ** 2).sum()) * n / (n - 1) * weight
            leaf.paired_freedom += n * weight
        leaf.rows += 1.0
        leaf.row_total += float(values.mean())
        nu = self.config.noise_strength
        paired = (nu * noise + leaf.paired) / (nu + leaf.paired_freedom)
        worth = weight * min(max(noise / max(paired, 1e-9), 1.0), MOST_WORTH)
        levelled = (values - values.mean() + leaf.row_total / leaf.rows).tolist()
        for i, value in zip(columns, levelled, strict=True):
            leaf.seen[i] += worth
            leaf.total[i] += worth * value
        self._ascend(path)

    def predict(self, context: StepContext) -> tuple[list[float], list[float]]:
        """ŷ = (1 − g)·E[z] and its standard deviation; see `GainEstimator.predict`."""
        for candidate in context.candidates:
            if candidate.name not in self._columns:
                self.add(candidate.name, candidate.model.prior)
        return self.estimate(context.group, context.names).gains(1.0 - context.progress.g)

    def learn(self, feedback: Feedback) -> None:
        """Take in one observed gain; see `GainEstimator.learn`."""
        context = feedback.context
        remaining = 1.0 - context.progress.g
        if remaining <= 1e-9:
            return
        z = min(max(feedback.gain / remaining, -1.0), 1.0)
        self.observe(context.group, context.candidates[feedback.index].name, z, feedback.reliability)

    # --- messages --------------------------------------------------------------------------------------------

    def _reach(self, group: Group) -> list[Node]:
        nodes, n = self._nodes, len(self._base)
        path = []
        for depth in range(len(group) + 1):
            key = group[:depth]
            node = nodes.get(key)
            if node is None:
                node = nodes[key] = Node(n)
            path.append(node)
        return path

    def _noise(self, node: Node, parent: float) -> float:
        nu = self.config.noise_strength
        return max(float((nu * parent + node.spread) / (nu + node.freedom)), LEAST_NOISE)

    def _spread(self, noise: float) -> float:
        """Variance of θ in a group of that noise."""
        return max(noise / self.config.strength, self.config.least_spread**2)

    def _descend(self, group: Group) -> tuple[list[float], list[float], float]:
        """From the root to the group: prior of each node from its parent, with that node's own message taken out."""
        config = self.config
        noise, root = config.noise, config.root_sd**2
        mean, variance = list(self._base), [root] * len(self._base)
        node: Node | None = self._nodes[()]
        for depth in range(len(group) + 1):
            if node is not None:
                noise = self._noise(node, noise)
            if depth:
                spread = self._spread(noise)
                variance = [inherited + spread for inherited in variance]
            if node is None:  # nothing seen below: the parent's opinion, wider at each step
                continue
            level_precision = config.level_sd**-2
            if node.prior is not None:
                level_precision = config.prior_level_sd**-2
                stated = self._spread(noise) * config.strength / node.prior[1]
                for i, published in enumerate(node.prior[0]):
                    if not math.isnan(published):
                        mean[i], variance[i] = published, stated
            child = self._nodes.get(group[: depth + 1]) if depth < len(group) else None
            self._settle(node, child, mean, variance, noise, level_precision)
            node = child
        return mean, variance, noise

    @staticmethod
    def _settle(
        node: Node, child: Node | None, mean: list[float], variance: list[float], noise: float, level_precision: float
    ) -> None:
        """Posterior of a node from its prior, in place: first its level, then the models around it.

        Args:
            node: the group; its level is renewed.
            child: the group that asks, whose own message is taken out; None = the node itself asks.
            mean: expected relative gain per model.
            variance: of that expectation.
            noise: σ² of the group.
            level_precision: 1/λ².
        """
        surprise, weight = 0.0, level_precision
        known = []
        for own, total, heard, heard_mean, expected, spread in zip(
            node.seen, node.total, node.heard, node.heard_mean, mean, variance, strict=True
        ):
            precision, product = own / noise + heard, total / noise + heard_mean
            trust = 1.0 / (1.0 + precision * spread)
            surprise += (product - precision * expected) * trust
            weight += precision * trust
            known.append((precision, product))
        node.level = level = surprise / weight
        for i, (precision, product) in enumerate(known):
            if child is not None:
                precision -= child.said[i]
                product -= child.said_mean[i]
            inherited = 1.0 / variance[i]
            variance[i] = after = 1.0 / (inherited + precision)
            mean[i] = (inherited * (mean[i] + level) + product) * after

    def _ascend(self, path: Sequence[Node]) -> None:
        """From the leaf to the root: renew the messages."""
        noises, noise = [], self.config.noise
        for node in path:
            noise = self._noise(node, noise)
            noises.append(noise)
        for depth in range(len(path) - 1, 0, -1):
            node, parent, noise = path[depth], path[depth - 1], noises[depth]
            spread, level = self._spread(noise), node.level
            published = None if node.prior is None else node.prior[0]
            for i, own in enumerate(node.seen):
                precision = own / noise + node.heard[i]
                trust = 1.0 / (1.0 + spread * precision)
                if published is not None and not math.isnan(published[i]):  # the parent's opinion does not count there
                    trust = 0.0
                said = precision * trust
                said_mean = (node.total[i] / noise + node.heard_mean[i] - level * precision) * trust
                parent.heard[i] += said - node.said[i]
                parent.heard_mean[i] += said_mean - node.said_mean[i]
                node.said[i], node.said_mean[i] = said, said_mean

    # --- state -----------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Everything learnt, as plain JSON values."""
        columns = list(self._columns.values())
        nodes = [{"group": list(group), **node.state(columns)} for group, node in self._nodes.items()]
        base = [self._base[column] for column in columns]
        return {"version": STATE_VERSION, "models": list(self._columns), "base": base, "nodes": nodes}

    def load(self, state: Mapping[str, Any]) -> None:
        """Take over what `state` gave.

        Raises:
            ConfigError: the state is of another version or does not fit together.
        """
        if state.get("version") != STATE_VERSION:
            raise ConfigError(f"capability state: version {state.get('version')!r}; allowed: {STATE_VERSION}")
        try:
            models, base = list(state["models"]), [float(prior) for prior in state["base"]]
            nodes: dict[Group, Node] = {}
            for entry in sorted(state["nodes"], key=lambda item: len(item["group"])):
                node = Node.from_state(entry, len(models))
                group = tuple(entry["group"])
                nodes[group] = node
                if group:
                    parent = nodes[group[:-1]]
                    parent.heard = list(map(add, parent.heard, node.said))
                    parent.heard_mean = list(map(add, parent.heard_mean, node.said_mean))
            if () not in nodes:
                raise ValueError("the root group is missing")
        except (KeyError, TypeError, ValueError) as error:
            raise ConfigError(f"capability state: {type(error).__name__}: {error}") from None
        self._columns = {name: column for column, name in enumerate(models)}
        self._base, self._nodes, self._free = base, nodes, []


def _trim(group: Sequence[str]) -> Group:
    """The group without empty names at its end."""
    path = tuple(group)
    while path and not path[-1]:
        path = path[:-1]
    return path
