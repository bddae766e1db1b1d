"""The team of the main job as a LangGraph graph: coder, tester, fixer, tester, fixer … until the tester is content.

Coder and fixer are nodes that call one and the same routed chat model; their names are the roles.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

try:
    from langchain_core.messages import convert_to_messages
    from langgraph.graph import END, START, StateGraph
except ImportError as error:
    raise ImportError(
        f"the LangGraph team needs langgraph ({error}); install it with: pip install 'steproute[langgraph]'"
    ) from error

from typing_extensions import TypedDict

from steproute.backend import Backend
from steproute.benchmarks.humaneval import team
from steproute.benchmarks.humaneval.solve import Solving
from steproute.plugins.langgraph import RoutedChatModel
from steproute.plugins.langgraph.backend import BackendChatModel


class State(TypedDict, total=False):
    """What the nodes hand on."""

    problem: str
    reply: str
    report: str
    """What the tester says; empty when the team is done."""


def run_langgraph(solving: Solving, backend: Backend, models: Mapping[str, str]) -> None:
    """A LangGraph graph; `RoutedChatModel` is what routes it."""
    llm = RoutedChatModel(
        solving.router,
        {
            name: BackendChatModel(
                backend=backend,
                deployment=deployment,
                temperature=0,
                max_tokens=team.MAX_TOKENS,
                stop=team.STOP,
                seed=0,
                extra={"task": solving.problem.id},
            )
            for name, deployment in models.items()
        },
        task=solving.ledger,
        count_tokens=lambda messages: solving.prompt_tokens(),
    )

    def ask(system: str, *texts: str) -> State:
        messages = [{"role": "system", "content": system}, *({"role": "user", "content": text} for text in texts)]
        return {"reply": str(llm.invoke(convert_to_messages(messages)).content)}

    def coder(state: State) -> State:
        return ask(team.CODER, state["problem"])

    def fixer(state: State) -> State:
        return ask(team.FIXER, state["problem"], state["report"])

    def tester(state: State) -> State:
        return {"report": solving.test(state["reply"]) or ""}

    def on_to(state: State) -> str:
        return "fixer" if state["report"] else END

    builder: Any = StateGraph(State)
    for node in (coder, fixer, tester):
        builder.add_node(node.__name__, node)
    builder.add_edge(START, "coder")
    builder.add_edge("coder", "tester")
    builder.add_edge("fixer", "tester")
    builder.add_conditional_edges("tester", on_to, ["fixer", END])
    builder.compile().invoke({"problem": team.problem_message(solving.problem.prompt)})
