"""What evidence is worth: the sensitivity and specificity of its sources, learnt against final outcomes (DESIGN §6).

A source gives a verdict, pass or fail. Its rates P(pass | work right) and P(fail | work wrong) are learnt per domain and
number of checks (`steproute.rates`). Beliefs follow by likelihood ratios, as if sources were independent; since they are
not (what passes its examples also runs), beliefs are then calibrated by isotonic regression. Tasks are split by a hash of
their id: some teach, the others only judge what was learnt.
"""

from __future__ import annotations

import hashlib
import json
from collections import deque
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from pydantic import Field, field_validator

from steproute.calibration import Isotonic, Quality, Report
from steproute.errors import ConfigError
from steproute.ledger import Evidence, Ledger
from steproute.rates import Rates, RateTable, bucket_of, expit, logit, plain
from steproute.settings import Settings

STATE_VERSION = 1
MOST_COMBINED = 6
"""Sources whose joint verdicts are enumerated for a reliability."""

Check = tuple[str, int, bool, float]
"""Source, bucket, verdict, score as given."""
Row = tuple[str, tuple[Check, ...], bool]
"""Domain, checks, whether the work was right."""


class EvidenceConfig(Settings):
    """Settings of the evidence model."""

    sensitivity: float = Field(default=0.97, gt=0.5, lt=1)
    """P(pass | right) before anything was seen, for every source but `judged`."""
    judged: dict[str, float] = Field(default_factory=lambda: {"judge": 0.8, "self-report": 0.6})
    """Sources that judge instead of checking: sensitivity and specificity before anything was seen, within (0, 1)."""
    shallow: dict[str, float] = Field(default_factory=lambda: {"syntax": 0.1, "execution": 0.2})
    """Sources that most wrong work passes: specificity before anything was seen, whatever the number of checks."""
    pass_at: float = Field(default=0.999, gt=0, le=1)
    """Score from which on a source has passed."""
    pass_at_judged: float = Field(default=0.5, gt=0, le=1)
    """The same for the sources in `judged`."""
    strength: float = Field(default=8.0, gt=0)
    """How many outcomes the parent's opinion is worth at every level."""
    right_at: float = Field(default=0.5, gt=0, le=1)
    """Final reward from which on the work was right."""
    held_out: float = Field(default=0.2, ge=0, lt=1)
    """Share of tasks that judge and never teach."""
    isotonic_from: int = Field(default=200, ge=20)
    """Tasks that must have been learnt from before beliefs are calibrated; per domain, else over all of them."""
    keep: int = Field(default=2000, ge=100)
    """Latest tasks kept for calibration, and as many for the report."""
    blind: float = Field(default=0.25, gt=0, le=1)
    """Reliability of a step about which nothing was checked."""
    least: float = Field(default=0.02, gt=0, le=1)
    """Lowest reliability."""

    @field_validator("judged", "shallow")
    @classmethod
    def _rates(cls, value: dict[str, float]) -> dict[str, float]:
        for source, rate in value.items():
            if not 0 < rate < 1:
                raise ValueError(f"{source}: seen {rate!r}; allowed: a number between 0 and 1")
        return value


class EvidenceModel:
    """Learns what each source is worth. Callable as the router's `reliability`."""

    def __init__(self, config: EvidenceConfig | None = None):
        self.config = config or EvidenceConfig()
        self._table = RateTable(self._prior, self.config.strength)
        self._outcomes: dict[str, list[int]] = {}
        """Domain → [right, all] of the tasks learnt from."""
        self._taught: deque[Row] = deque(maxlen=self.config.keep)
        self._judging: deque[Row] = deque(maxlen=self.config.keep)
        self._maps: dict[str, Isotonic] = {}
        self._pooled: Isotonic | None = None
        self._reliabilities: dict[tuple[Any, ...], float] = {}
        self._learnt = self._refreshed = self._calibrated = 0
        """Tasks learnt from: in all, when rates were last worked out, when beliefs were last calibrated."""

    # --- learning --------------------------------------------------------------------------------------------

    def holds_out(self, task: str) -> bool:
        """Whether a task judges instead of teaching; the same in every process."""
        digest = hashlib.blake2b(task.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        return int.from_bytes(digest, "big") < self.config.held_out * 2**64

    def learn(self, task: str, domain: str, evidence: Sequence[Evidence], right: bool) -> bool:
        """Take in what was said of the work that a task ended with, and whether it was right.

        Returns:
            True = learnt from; False = kept for the report, or nothing had been checked.
        """
        checks = self._checks(evidence)
        if not checks:
            return False
        row = (domain, checks, bool(right))
        if self.holds_out(task):
            self._judging.append(row)
            return False
        self._taught.append(row)
        outcomes = self._outcomes.setdefault(domain, [0, 0])
        outcomes[0] += right
        outcomes[1] += 1
        for source, bucket, passed, _ in checks:
            self._table.add(source, domain, bucket, passed, row[2])
        self._learnt += 1
        if self._learnt - self._refreshed >= max(1, self._learnt // 50):  # rates of 2 % fewer tasks are as good
            self._refresh()
        if self._learnt - self._calibrated >= max(50, self._learnt // 10):
            self._calibrate()
        return True

    def finish(self, ledger: Ledger, steps: Sequence[object], reward: float | None) -> None:
        """Learn from a task that ended: its last step with evidence is the work that was judged. Unknown results teach
        nothing. It has the form of a policy's `finish`."""
        if reward is None:
            return
        for step in reversed(ledger.steps):
            if any(item.count > 0 for item in step.outcome.evidence):
                self.learn(ledger.task.id, ledger.task.domain, step.outcome.evidence, reward >= self.config.right_at)
                return

    # --- believing -------------------------------------------------------------------------------------------

    def rates(self, source: str, domain: str = "", count: int = 1) -> Rates:
        """Sensitivity and specificity of a source that made `count` checks."""
        return self._table.rates(source, domain, bucket_of(max(count, 1)))

    def base_rate(self, domain: str = "") -> float:
        """P(work is right) before any evidence: the domain's share, shrunk towards that of all tasks and .5."""
        k = self.config.strength
        rights = total = 0
        for right, n in self._outcomes.values():
            rights, total = rights + right, total + n
        overall = (rights + 0.5 * k) / (total + k)
        right, n = self._outcomes.get(domain, (0, 0))
        return (right + k * overall) / (n + k)

    def belief(self, evidence: Sequence[Evidence], domain: str = "", prior: float | None = None) -> float:
        """P(the step's work is right), from what its evidence says.

        Args:
            evidence: of one step; of each source the latest counts, and only if it checked something.
            domain: domain of the task.
            prior: probability before the evidence, in [0, 1]; None = the domain's base rate.

        Raises:
            ValueError: the prior is out of range.
        """
        base = self.base_rate(domain)
        start = base if prior is None else prior
        if not 0 <= start <= 1:
            raise ValueError(f"prior: seen {prior!r}; allowed: 0 to 1")
        checks = self._checks(evidence)
        if not checks or start in (0.0, 1.0):
            return start
        calibrated = self._map(domain, self._weigh(domain, checks, base))
        if prior is None:
            return calibrated
        # The map was learnt at the domain's base rate: only the evidence's own odds are carried over.
        return expit(logit(calibrated) - logit(base) + logit(start))

    def reliability(self, evidence: Sequence[Evidence], domain: str = "") -> float:
        """ρ in (0, 1]: what one such observation is worth next to seeing the truth.

        The share of the variance of "right or wrong" that the verdicts of these sources explain on average. For one source
        that is J²·p(1−p)/(q(1−q)) with J = sensitivity + specificity − 1, base rate p and P(pass) q: the variance of the
        truth over that of the unbiased estimate (verdict − (1 − specificity))/J, hence Var ε = σ²/ρ. It depends on what
        was checked, not on what came out: weights that follow verdicts would bias what is learnt.
        """
        checks = self._checks(evidence)
        if not checks:
            return self.config.blind
        key = (domain, *sorted((source, bucket) for source, bucket, _, _ in checks))
        found = self._reliabilities.get(key)
        if found is None:
            found = self._reliabilities[key] = max(self._explained(domain, checks), self.config.least)
        return found

    __call__ = reliability

    def report(self) -> list[Report]:
        """Brier and ECE on held-out tasks before and after: all of them first, then per domain; empty without any."""
        rows = list(self._judging)
        domains = sorted({domain for domain, _, _ in rows})
        groups = [("", rows)] if rows else []
        if len(domains) > 1 or domains not in ([], [""]):
            groups += [(domain, [row for row in rows if row[0] == domain]) for domain in domains]
        return [self._judge(domain, group) for domain, group in groups]

    # --- inside ----------------------------------------------------------------------------------------------

    def _checks(self, evidence: Sequence[Evidence]) -> tuple[Check, ...]:
        config = self.config
        found: dict[str, Check] = {}
        for item in evidence:
            if item.count > 0:
                bar = config.pass_at_judged if item.source in config.judged else config.pass_at
                found[item.source] = (item.source, bucket_of(item.count), item.score >= bar, item.score)
        return tuple(found.values())

    def _prior(self, source: str, count: int) -> tuple[float, float]:
        """Sensitivity and specificity before anything was seen.

        2n/(2n + 1) for n checks is the specificity at which a source that never fails right work has, at even odds, the
        reliability n/(n + 1): one passed example is worth half of what an exhaustive test would be.
        """
        config = self.config
        if source in config.judged:
            return config.judged[source], config.judged[source]
        return config.sensitivity, config.shallow.get(source, 2 * count / (2 * count + 1))

    def _weigh(self, domain: str, checks: Sequence[Check], prior: float) -> float:
        rates = self._table.rates
        return expit(logit(prior) + sum(rates(source, domain, bucket).odds(ok) for source, bucket, ok, _ in checks))

    def _explained(self, domain: str, checks: Sequence[Check]) -> float:
        p = min(max(self.base_rate(domain), 0.05), 0.95)
        rates = [self._table.rates(source, domain, bucket) for source, bucket, _, _ in checks]
        rates = sorted(rates, key=lambda rate: -abs(rate.sensitivity + rate.specificity - 1))[:MOST_COMBINED]
        variance = 0.0
        for verdicts in product((True, False), repeat=len(rates)):
            right, wrong = p, 1 - p
            for passed, rate in zip(verdicts, rates, strict=True):
                right *= rate.sensitivity if passed else 1 - rate.sensitivity
                wrong *= 1 - rate.specificity if passed else rate.specificity
            seen = right + wrong
            if seen > 0:
                variance += seen * (right / seen - p) ** 2
        return min(variance / (p * (1 - p)), 1.0)

    def _refresh(self) -> None:
        self._refreshed = self._learnt
        self._table.refresh()
        self._reliabilities.clear()

    def _calibrate(self) -> None:
        self._calibrated = self._learnt
        self._refresh()
        rows: dict[str, list[tuple[float, float]]] = {}
        for domain, checks, right in self._taught:
            rows.setdefault(domain, []).append((self._weigh(domain, checks, self.base_rate(domain)), float(right)))
        enough = self.config.isotonic_from
        self._maps = {domain: _fit(pairs) for domain, pairs in rows.items() if len(pairs) >= enough}
        if len(self._taught) >= enough:
            self._pooled = _fit([pair for pairs in rows.values() for pair in pairs])

    def _map(self, domain: str, weighed: float) -> float:
        found = self._maps.get(domain) or self._pooled
        return weighed if found is None else found(weighed)

    def _judge(self, domain: str, rows: Sequence[Row]) -> Report:
        right = [float(row[2]) for row in rows]
        face = [sum(check[3] for check in checks) / len(checks) for _, checks, _ in rows]
        weighed = [self._weigh(where, checks, self.base_rate(where)) for where, checks, _ in rows]
        final = [self._map(row[0], value) for row, value in zip(rows, weighed, strict=True)]
        return Report(domain, len(rows), *(Quality.of(said, right) for said in (face, weighed, final)))

    # --- state -----------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Everything learnt, as plain JSON values. The config is not part of it."""
        self._refresh()
        maps = {domain: [list(item.inputs), list(item.outputs)] for domain, item in self._maps.items()}
        pooled = None if self._pooled is None else [list(self._pooled.inputs), list(self._pooled.outputs)]
        return {
            "version": STATE_VERSION,
            "counts": plain(self._table.counts),
            "outcomes": {domain: list(pair) for domain, pair in self._outcomes.items()},
            "taught": [_listed(row) for row in self._taught],
            "judging": [_listed(row) for row in self._judging],
            "maps": maps,
            "pooled": pooled,
            "learnt": [self._learnt, self._calibrated],
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Take over what `state` gave; nothing changes if that fails.

        Raises:
            ConfigError: the state is of another version or malformed.
        """
        version = state.get("version") if isinstance(state, Mapping) else None
        if version != STATE_VERSION:
            raise ConfigError(f"evidence state: version: seen {version!r}; allowed: {STATE_VERSION}")
        try:
            counts = plain(state["counts"])
            outcomes = {str(domain): [int(right), int(n)] for domain, (right, n) in state["outcomes"].items()}
            taught, judging = ([_row(row) for row in state[name]] for name in ("taught", "judging"))
            maps = {str(domain): Isotonic(tuple(x), tuple(y)) for domain, (x, y) in state["maps"].items()}
            pooled = None if state["pooled"] is None else Isotonic(*map(tuple, state["pooled"]))
            learnt, calibrated = map(int, state["learnt"])
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ConfigError(f"evidence state: {type(error).__name__}: {error}") from None
        self._table.counts, self._outcomes, self._maps, self._pooled = counts, outcomes, maps, pooled
        self._taught, self._judging = (deque(rows, maxlen=self.config.keep) for rows in (taught, judging))
        self._learnt, self._calibrated = learnt, calibrated
        self._refresh()

    def to_json(self) -> str:
        """`state` as JSON text."""
        return json.dumps(self.state())

    @classmethod
    def from_json(cls, text: str | bytes, config: EvidenceConfig | None = None) -> EvidenceModel:
        """Read what `to_json` wrote.

        Raises:
            ConfigError: no JSON, or not an evidence model's state.
        """
        model = cls(config)
        try:
            state = json.loads(text)
        except ValueError as error:
            raise ConfigError(f"evidence state: no JSON: {error}") from None
        model.load(state)
        return model


def _fit(pairs: Sequence[tuple[float, float]]) -> Isotonic:
    return Isotonic.fit([stated for stated, _ in pairs], [right for _, right in pairs])


def _listed(row: Row) -> list[Any]:
    return [row[0], [list(check) for check in row[1]], row[2]]


def _row(row: Sequence[Any]) -> Row:
    domain, checks, right = row
    return str(domain), tuple((str(s), int(b), bool(ok), float(score)) for s, b, ok, score in checks), bool(right)
