"""The runner every benchmark shares, on a tiny benchmark of its own."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from steproute.backend import BackendError, ChatRequest
from steproute.benchmarks.options import RunOptions
from steproute.benchmarks.pool import candidates
from steproute.benchmarks.protocol import Benchmark, Stage
from steproute.benchmarks.resume import teach
from steproute.benchmarks.rundir import RunDirectory
from steproute.benchmarks.runner import run
from steproute.benchmarks.seat import Played, Seat
from steproute.errors import ConfigError
from steproute.integrations.scripted import ScriptedBackend
from steproute.ledger import Evidence, Task
from steproute.models import Model, Price
from steproute.router import Router

POOL = [
    Model("small", price=Price(input=1, output=1), size_b=1),
    Model("large", price=Price(input=10, output=10), size_b=70),
]


class Sums(Benchmark):
    """`3+4`, graded by the last word of the reply; up to two tries."""

    name = "sums"
    frameworks = ("plain",)

    def __init__(self, options: RunOptions, broken: tuple[str, ...] = ()):
        self.options = options
        self.broken = broken
        self.played: list[str] = []
        self.stage: Stage | None = None

    def tasks(self) -> list[str]:
        return [f"{a}+{a + 1}" for a in range(6)]

    def prepare(self, stage: Stage) -> None:
        self.stage = stage

    def play(self, seat: Seat) -> Played:
        if seat.id in self.broken:
            raise RuntimeError("the package fell over")
        self.played.append(seat.id)
        seat.describe(f"What is {seat.id}?", "generic", dimension="sum", source=self.name)
        a, b = map(int, seat.id.split("+"))
        right = False
        for _ in range(2):
            reply = seat.call("solver", [{"role": "user", "content": seat.ledger.task.goal}], max_tokens=5)
            right = reply.content.split()[-1] == str(a + b)
            seat.report([Evidence(source="examples", score=float(right), count=1)])
            if right:
                break
        return seat.played(right, visible_ok=right)


def answer(request: ChatRequest) -> str:
    a, b = map(int, request.messages[0]["content"].removeprefix("What is ").removesuffix("?").split("+"))
    return f"It is {a + b if request.model == 'large' else 1}"


def options(**more: Any) -> RunOptions:
    return RunOptions(**{"policies": ["fixed:*"], "framework": "plain", "backend": "litellm", **more})


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_one_line_per_step_and_task_and_a_summary(tmp_path: Path) -> None:
    bench = Sums(options(out=tmp_path / "run", seed=3))
    result = run(bench, POOL, backend=ScriptedBackend(answer))
    small, large = result.summary
    assert (small["pass_rate"], large["pass_rate"]) == (1 / 6, 1.0)
    assert (small["calls_per_task"], large["calls_per_task"]) == (11 / 6, 1.0)
    tasks, steps = lines(result.path / "tasks.jsonl"), lines(result.path / "steps.jsonl")
    assert len(tasks) == 12
    assert len(steps) == 11 + 6
    assert [row["task"] for row in tasks[:6]] == bench.stage.order == [row["task"] for row in tasks[6:]]
    assert sorted(bench.stage.order) == sorted(bench.tasks())
    step = next(row for row in steps if row["model"] == "large")
    spent = step["outcome"]
    assert spent["usd"] == pytest.approx((spent["prompt_tokens"] + spent["completion_tokens"]) * 10e-6)
    assert large["usd"] == pytest.approx(sum(r["outcome"]["usd"] for r in steps if r["model"] == "large") / 6)
    assert step["evidence"] == [{"source": "examples", "score": 1.0, "count": 1, "detail": ""}]
    assert step["g_after"] == 1.0
    config = json.loads((result.path / "config.json").read_text())
    assert config["benchmark"] == "sums"
    assert config["models"][0]["price"]["input"] == 1
    assert {"versions", "git_commit", "seed", "command", "tasks"} <= set(config)


def test_a_learning_policy_moves_to_the_model_that_works(tmp_path: Path) -> None:
    class Many(Sums):
        def tasks(self) -> list[str]:
            return [f"{a}+{a + 1}" for a in range(1, 60)]

    result = run(Many(options(policies=["pacer"], out=tmp_path / "run")), POOL, backend=ScriptedBackend(answer))
    late = [row["models"][0] for row in lines(result.path / "tasks.jsonl")[-20:]]
    assert late.count("large") >= 18


def test_a_fault_costs_its_task_and_nothing_else(tmp_path: Path) -> None:
    bench = Sums(options(out=tmp_path / "run", policies=["fixed:large"]), broken=("2+3",))
    result = run(bench, POOL, backend=ScriptedBackend(answer))
    assert result.errors == 1
    (row,) = (row for row in lines(result.path / "tasks.jsonl") if row.get("error"))
    assert (row["task"], row["passed"], row["error"]) == ("2+3", False, "RuntimeError: the package fell over")
    assert result.summary[0]["errors"] == 1
    assert result.summary[0]["pass_rate"] == 5 / 6


def test_a_server_that_fails_is_replaced_and_its_calls_are_logged(tmp_path: Path) -> None:
    def flaky(request: ChatRequest) -> str | Exception:
        return BackendError("small", "response", "overloaded", status=503) if request.model == "small" else "It is 1"

    class First(Sums):
        def tasks(self) -> list[str]:
            return ["0+1"]

    result = run(First(options(policies=["cheapest"], out=tmp_path / "run")), POOL, backend=ScriptedBackend(flaky))
    failed, good = lines(result.path / "steps.jsonl")
    assert (failed["model"], failed["attempt"], good["model"], good["attempt"]) == ("small", 1, "large", 2)
    assert "503" in failed["outcome"]["error"]
    assert good["outcome"]["error"] is None
    assert result.errors == 0
    assert result.summary[0]["pass_rate"] == 1


def test_no_server_at_all_is_a_fault_of_each_task_not_of_the_run(tmp_path: Path) -> None:
    down = ScriptedBackend(lambda request: BackendError(request.model, "connect", "refused"))
    result = run(Sums(options(policies=["random"], out=tmp_path / "run")), POOL, backend=down)
    assert result.errors == 6
    assert all("connect failed" in row["error"] for row in lines(result.path / "tasks.jsonl"))


def test_a_hard_limit_ends_the_task_as_failed(tmp_path: Path) -> None:
    bench = Sums(options(policies=["fixed:large"], usd_limit=1e-6, out=tmp_path / "run"))
    result = run(bench, POOL, backend=ScriptedBackend(answer))
    rows = lines(result.path / "tasks.jsonl")
    assert result.errors == 0
    assert all("hard limit usd" in row["ended"] and row["calls"] == 0 for row in rows)


def test_a_run_is_never_overwritten(tmp_path: Path) -> None:
    run(Sums(options(out=tmp_path / "run")), POOL, backend=ScriptedBackend(answer))
    with pytest.raises(ConfigError, match=r"already holds a run; .*--resume"):
        run(Sums(options(out=tmp_path / "run")), POOL, backend=ScriptedBackend(answer))


def interrupted(tmp_path: Path, policies: list[str]) -> RunOptions:
    """A run killed in its fourth task, with a torn line and a task that failed."""
    chosen = options(out=tmp_path / "run", policies=policies)

    class Killed(Sums):
        def play(self, seat: Seat) -> Played:
            if len(self.played) == 4:
                raise KeyboardInterrupt
            return super().play(seat)

    with pytest.raises(KeyboardInterrupt):
        run(Killed(chosen, broken=("0+1",)), POOL, backend=ScriptedBackend(answer))
    with (tmp_path / "run" / "steps.jsonl").open("a") as file:
        file.write('{"policy": "fixed:large", "ta')
    return replace(chosen, resume=True)


def test_an_interrupted_run_goes_on_where_it_was(tmp_path: Path) -> None:
    again = interrupted(tmp_path, ["fixed:large"])
    before = [row["task"] for row in lines(tmp_path / "run" / "tasks.jsonl") if not row.get("error")]
    bench = Sums(again)
    result = run(bench, POOL, backend=ScriptedBackend(answer))
    assert set(bench.played) == set(bench.tasks()) - set(before)
    assert result.summary[0]["tasks"] == 6
    assert result.summary[0]["pass_rate"] == 1
    assert len(lines(result.path / "steps.jsonl")) == 6
    assert '"ta\n' in (result.path / "interrupted.jsonl").read_text()
    assert len(lines(result.path / "resumed.jsonl")) == 1


def test_a_resumed_router_knows_what_it_had_learnt(tmp_path: Path) -> None:
    class Keeping(Sums):
        routers: list[Router]

        def router(self, policy: str, pool: Any) -> Router:
            self.routers = [*getattr(self, "routers", []), super().router(policy, pool)]
            return self.routers[-1]

    bench = Keeping(options(policies=["progrouter"], out=tmp_path / "run"))
    folder = RunDirectory(run(bench, POOL, backend=ScriptedBackend(answer)).path)
    taught = Sums(bench.options).router("progrouter", POOL)
    teach(taught, folder.steps(), {row["task"]: row for row in folder.tasks()}, outcomes=False)

    def gains(router: Router) -> list[float | None]:
        task = Task(id="new", goal="What is 9+10?", dimension="sum", source="sums")
        return [item.gain for item in router.decide(task, "solver").candidates]

    assert gains(taught) == pytest.approx(gains(bench.routers[-1]))
    assert gains(taught) != pytest.approx(gains(Sums(bench.options).router("progrouter", POOL)))


def test_resuming_with_other_settings_says_which(tmp_path: Path) -> None:
    again = interrupted(tmp_path, ["fixed:large"])
    with pytest.raises(ConfigError, match=r"resume: seed: the run has 0; seen 7"):
        run(Sums(replace(again, seed=7)), POOL, backend=ScriptedBackend(answer))
    with pytest.raises(ConfigError, match="holds no run"):
        run(Sums(replace(again, out=tmp_path / "none")), POOL, backend=ScriptedBackend(answer))
    with pytest.raises(ConfigError, match="resume: needs --out"):
        run(Sums(replace(again, out=None)), POOL, backend=ScriptedBackend(answer))


def test_jobs_run_at_the_same_time_and_lose_nothing(tmp_path: Path) -> None:
    together = threading.Barrier(3, timeout=30)

    class Meeting(Sums):
        def play(self, seat: Seat) -> Played:
            together.wait()  # passes only when three tasks are under way
            return super().play(seat)

    result = run(Meeting(options(jobs=3, out=tmp_path / "run")), POOL, backend=ScriptedBackend(answer))
    assert [row["pass_rate"] for row in result.summary] == [1 / 6, 1.0]
    assert len(lines(result.path / "steps.jsonl")) == 17


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"framework": "plane"}, "did you mean 'plain'"),
        ({"policies": ["paser"]}, "did you mean 'pacer'"),
        ({"jobs": 0}, "jobs: seen 0; allowed: a whole number of 1 or more"),
        ({"usd_limit": -1.0}, "usd_limit: seen -1; allowed: a finite number above 0"),
        ({"backend": "olama"}, "did you mean 'ollama'"),
    ],
)
def test_a_wrong_setting_names_the_right_one(change: dict, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        run(Sums(options(out=tmp_path / "run", **change)), POOL)
    assert not (tmp_path / "run").exists()


def test_models_from_the_command_line_and_from_a_file(tmp_path: Path) -> None:
    small, large = candidates(["small=openai/tiny", "large"], "litellm")
    assert (small.provider_name, small.price, large.provider_name) == ("openai/tiny", "unknown", "large")
    pytest.importorskip("litellm")
    (known,) = candidates(["mini=openai/gpt-4.1-mini"], "litellm")
    assert known.price == Price(input=0.4, output=1.6, cached_input=0.1)  # LiteLLM's list
    (own,) = candidates(["mini=openai/gpt-4.1-mini"], "litellm", base_url="http://127.0.0.1:1/v1")
    assert own.price == "unknown"
    (free,) = candidates(["small"], "ollama", power_w=30)
    assert (free.price.input, free.profile.power_w) == (0, 30)
    path = tmp_path / "models.yaml"
    path.write_text("models:\n  - {name: a, price: {input: 2, output: 8}, size_b: 7}\n")
    (priced,) = candidates([str(path)], "litellm")
    assert (priced.name, priced.price.output) == ("a", 8)
    with pytest.raises(ConfigError, match="models: none given"):
        candidates([], "litellm")
