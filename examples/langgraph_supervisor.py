"""A LangGraph supervisor with two workers whose every LLM call goes to the model that steproute chooses.

The two steproute lines are `RoutedChatModel(...)` in place of a chat model, and the node made by `router_node(...)`,
which decides before each worker is called and keeps the ledger in the graph's own state.

It needs langgraph and langchain-openai (pip install 'steproute[langgraph]' langchain-openai) and any OpenAI-compatible
server that has both models, e.g. Ollama:

    python examples/langgraph_supervisor.py http://127.0.0.1:11434/v1 qwen2.5-coder:0.5b qwen2.5-coder:7b
"""

import os
import sys
from typing import Literal

from langchain_core.messages import SystemMessage
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command

from steproute import Budget, Model, Price, Router
from steproute.plugins.langgraph import RoutedChatModel, finish_node, router_node

BASE_URL = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:11434/v1"
SMALL, LARGE = sys.argv[2:4] if len(sys.argv) > 3 else ("qwen2.5-coder:0.5b", "qwen2.5-coder:7b")

router = Router(
    models=[
        Model("small", deployment=SMALL, price=Price(input=0.1, output=0.2), size_b=0.5),
        Model("large", deployment=LARGE, price=Price(input=1, output=2), size_b=7),
    ],
    budget=Budget(usd=0.05),
    seed=0,
)


def chat(model: str) -> ChatOpenAI:
    key = os.environ.get("OPENAI_API_KEY", "none")
    return ChatOpenAI(model=model, base_url=BASE_URL, api_key=key, max_tokens=400, stream_usage=True)


llm = RoutedChatModel(router, {"small": chat(SMALL), "large": chat(LARGE)})

WORKERS = {
    "coder": "You write Python. Reply with one function.",
    "reviewer": "You review Python in two sentences. End with APPROVED if there is nothing to correct.",
}


class State(MessagesState):
    next: str


def supervisor(state: State) -> Command[Literal["route", "finish"]]:
    """Ask the coder and the reviewer in turn, until the review is good or three rounds are over."""
    said = [message for message in state["messages"] if message.type == "ai"]
    if len(said) >= 6 or (said and "APPROVED" in str(said[-1].content)):
        return Command(goto="finish")
    return Command(goto="route", update={"next": "reviewer" if len(said) % 2 else "coder"})


def worker(name: str):
    def work(state: State) -> dict:
        reply = llm.invoke([SystemMessage(WORKERS[name]), *state["messages"]])
        reply.name = name
        return {"messages": [reply]}

    return work


builder = StateGraph(State)
builder.add_node("supervisor", supervisor)
builder.add_node("route", router_node(router, State, role=lambda state: state["next"]))
builder.add_node("finish", finish_node(router, State, success=lambda s: "APPROVED" in str(s["messages"][-1].content)))
for name in WORKERS:
    builder.add_node(name, worker(name))
    builder.add_edge(name, "supervisor")
builder.add_edge(START, "supervisor")
builder.add_conditional_edges("route", lambda state: state["next"], list(WORKERS))
graph = builder.compile(checkpointer=InMemorySaver())

config = {"configurable": {"thread_id": "string-reversal"}}
for update in graph.stream({"messages": ["Write a function that reverses a string."]}, config, stream_mode="updates"):
    for node, values in update.items():
        for message in (values or {}).get("messages", []):
            print(f"{node}: {message.content}\n")

for record in graph.get_state(config).values["steproute"].values():
    spent = record["spent"]
    print(
        f"step {record['step']}: {record['role']:8} → {record['model']:6} {spent['tokens']:5.0f} tokens  "
        f"${spent['usd']:.6f}  {spent['seconds']:.1f} s  ({record['reason']})"
    )
