"""CPU time that routing adds to a LangGraph call, beyond the bare chat model on the same fake server in one run.

`python benchmarks/speed/langgraph_overhead.py [--calls N] [--wait-ms N] [--json]`. It needs langgraph, langchain and langchain-openai.
The server is a process of its own, so its work is not counted. Pairs of a bare and a routed graph are called in turn, so
that whatever else the machine does falls on both; of each pair the medians of the CPU time per call are compared.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from steproute import Budget, Decision, Limit, Model, Price, Progress, Router
from steproute.router import DEFAULT_POLICY

HISTORY = 20
"""Messages of the conversation each call carries."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # headers and body leave in one packet; in two, each answer waits 40 ms for an acknowledgement
    wait_s = 0.0

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        time.sleep(self.wait_s)
        body = json.dumps(
            {
                "id": "chatcmpl-1",
                "object": "chat.completion",
                "created": 0,
                "model": asked["model"],
                "choices": [
                    {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "a reply " * 20}}
                ],
                "usage": {"prompt_tokens": 400, "completion_tokens": 60, "total_tokens": 460},
            }
        ).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def serve(port: Any, wait_s: float = 0.0) -> None:
    """Run the fake server, which answers after `wait_s` seconds; its port goes through the pipe."""
    _Handler.wait_s = wait_s
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    port.send(server.server_address[1])
    server.serve_forever()


class TimedRouter(Router):
    """Adds up the CPU time of its own decisions and outcomes."""

    own_s = 0.0

    def decide(self, *given: Any, **options: Any) -> Decision:
        """`Router.decide`, timed."""
        start = time.thread_time()
        try:
            return super().decide(*given, **options)
        finally:
            self.own_s += time.thread_time() - start

    def observe(self, *given: Any, **options: Any) -> Progress:
        """`Router.observe`, timed."""
        start = time.thread_time()
        try:
            return super().observe(*given, **options)
        finally:
            self.own_s += time.thread_time() - start


def router(candidates: int, policy: str) -> TimedRouter:
    """Models of doubling size, a hard limit that is never reached, a soft one."""
    models = [
        Model(f"m{i}", price=Price(input=0.1 * 2**i, output=0.4 * 2**i), size_b=2.0**i) for i in range(candidates)
    ]
    return TimedRouter(models, Budget(usd=1e6, seconds=Limit(limit=1e9, hard=False)), policy, seed=0)


def pairs(
    base_url: str, candidates: int, policy: str
) -> dict[str, tuple[Callable[[], Any], Callable[[], Any], TimedRouter]]:
    """Name → (bare call, routed call, its router)."""
    from langchain.agents import create_agent
    from langchain_core.messages import AIMessage, HumanMessage
    from langchain_openai import ChatOpenAI
    from langgraph.graph import START, MessagesState, StateGraph
    from pydantic import SecretStr

    from steproute.plugins.langgraph import RoutedChatModel, RoutingMiddleware, router_node

    def client(name: str) -> Any:
        return ChatOpenAI(model=name, base_url=base_url, api_key=SecretStr("none"), max_retries=0)

    clients = {f"m{i}": client(f"m{i}") for i in range(candidates)}
    history: list[Any] = []
    for number in range(HISTORY // 2):
        history += [
            HumanMessage(f"question {number} " * 20, id=f"h{number}"),
            AIMessage("answer " * 40, id=f"a{number}"),
        ]
    given = {"messages": [*history, HumanMessage("and now?", id="last")]}
    threads = iter(range(10**9))

    def graph(model: Any, route: Any = None) -> Callable[[], Any]:
        builder: Any = StateGraph(MessagesState)
        builder.add_node("work", lambda state: {"messages": [model.invoke(state["messages"])]})
        builder.add_node("route", route or (lambda state: {}))
        builder.add_edge(START, "route")
        builder.add_edge("route", "work")
        app: Any = builder.compile()
        return lambda: app.invoke(given, {"configurable": {"thread_id": f"t{next(threads) // 8}"}})

    def agent(model: Any, *middleware: Any) -> Callable[[], Any]:
        app: Any = create_agent(model, [], middleware=middleware)
        return lambda: app.invoke(given, {"configurable": {"thread_id": f"t{next(threads) // 8}"}})

    own = client("m0")
    one, two, three, four = (router(candidates, policy) for _ in range(4))
    return {
        "node": (graph(own), graph(own, router_node(one, role="work")), one),
        "model": (graph(own), graph(RoutedChatModel(two, clients)), two),
        "node and model": (graph(own), graph(RoutedChatModel(three, clients), router_node(three, role="work")), three),
        "middleware": (agent(own), agent(own, RoutingMiddleware(four, clients)), four),
    }


def measure(calls: int, candidates: int, policy: str, wait_s: float = 0.0) -> list[dict[str, Any]]:
    """One row per way of use: CPU milliseconds per call, bare and routed, their difference and ratio, and the mean of
    the router's own part."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    server = context.Process(target=serve, args=(theirs, wait_s), daemon=True)
    server.start()
    rows = []
    try:
        for name, (bare, routed, used) in pairs(f"http://127.0.0.1:{ours.recv()}/v1", candidates, policy).items():
            times: tuple[list[float], list[float]] = ([], [])
            for number in range(calls + 10):
                if number == 10:
                    used.own_s = 0.0
                for kept, call in zip(times, (bare, routed), strict=True):
                    start = time.process_time()
                    call()
                    if number >= 10:  # the first calls import and connect
                        kept.append(1000 * (time.process_time() - start))
            low, high = (statistics.median(kept) for kept in times)
            row = {"way": name, "bare_ms": low, "routed_ms": high, "added_ms": high - low, "ratio": high / low}
            rows.append({**row, "router_ms": 1000 * used.own_s / calls})
    finally:
        server.terminate()
        server.join(5)
    return rows


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=200, help="calls per side and way")
    parser.add_argument("--candidates", type=int, default=3, help="models to choose from")
    parser.add_argument("--policy", default=DEFAULT_POLICY, help="how they are chosen")
    parser.add_argument(
        "--wait-ms", type=float, default=0.0, help="how long the server takes: caches of the CPU go cold"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    rows = measure(options.calls, options.candidates, options.policy, options.wait_ms / 1000)
    if options.json:
        sys.stdout.write(json.dumps(rows, indent=2) + "\n")
        return
    sys.stdout.write(
        f"CPU ms per call, median of {options.calls}; {HISTORY + 1} messages, {options.candidates} candidates, {options.policy}; "
        f"{os.cpu_count()} CPUs, {platform.machine()}, Python {platform.python_version()}\n"
    )
    for row in rows:
        sys.stdout.write(
            f"{row['way']:16} bare {row['bare_ms']:6.2f}   routed {row['routed_ms']:6.2f}   "
            f"added {row['added_ms']:5.2f} (decide and observe {row['router_ms']:.2f})   ratio {row['ratio']:.2f}\n"
        )


if __name__ == "__main__":
    main()
