"""The tree of everything that could happen on a problem, from its recording: the oracle and step regret."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from steproute.backend import Backend, ChatRequest, ChatResponse
from steproute.benchmarks.humaneval import team
from steproute.benchmarks.humaneval.problems import Problem
from steproute.benchmarks.humaneval.team import VisibleReport
from steproute.benchmarks.humaneval.tester import Tester


@dataclass
class Node:
    """A shared history: `calls` models were called, the last attempt got `report`; `answer` is what ending here submits."""

    calls: int
    report: VisibleReport | None
    answer: str
    reviewed: bool = False
    hidden: bool = False
    """Whether `answer` passes the hidden test."""
    edges: dict[str, Edge] = field(default_factory=dict)

    @property
    def final(self) -> bool:
        """No further call is possible: the attempts are used up, or a passing attempt has been reviewed."""
        return self.calls >= team.MAX_ATTEMPTS or self.reviewed

    def messages(self, problem: Problem) -> list[dict[str, str]]:
        """The next request's roles and contents."""
        return (
            team.first_messages(problem.prompt)
            if self.report is None
            else team.next_messages(problem.prompt, self.report)
        )

    def after(self, report: VisibleReport) -> Node:
        """The history after one more attempt. An attempt that passes the visible examples is kept over one that does not."""
        review = self.report is not None and self.report.ok
        answer = self.answer if review and not report.ok else report.code
        return Node(self.calls + 1, report, answer, reviewed=review)

    def value(self, price_of_second: float) -> float:
        """V* = the best of ending here (hidden pass) and of every call."""
        return max(self.q(price_of_second).values())

    def q(self, price_of_second: float) -> dict[str, float]:
        """Q* per choice: `stop` (after the first attempt) and every model, by backward induction.

        Value of a run = 1 if its answer passes the hidden test, minus `price_of_second` per second of compute.
        """
        values = {} if self.report is None else {"stop": float(self.hidden)}
        for model, edge in self.edges.items():
            values[model] = edge.child.value(price_of_second) - price_of_second * edge.response.seconds
        return values


@dataclass
class Edge:
    """One recorded call and where it leads."""

    response: ChatResponse
    child: Node


def build_tree(problem: Problem, backend: Backend, models: Mapping[str, str], tester: Tester) -> Node:
    """Walk every history of a problem.

    Args:
        problem: the problem.
        backend: answers each request; a recording makes this free.
        models: pool name → deployment.
        tester: judges the attempts.

    Returns:
        The root; its edges hold one child per model, down to the last attempt.

    Raises:
        BackendError: a request was never recorded.
    """
    root = Node(0, None, "")
    for node in _growing(root):
        for name, deployment in models.items():
            response = backend.complete(request(problem, node.messages(problem), deployment))
            child = node.after(tester.visible(problem, response.content))
            child.hidden = tester.hidden(problem, child.answer)
            node.edges[name] = Edge(response, child)
    return root


def _growing(root: Node) -> Iterator[Node]:
    """Every node that calls may follow, parents first; children are found once their parent was handled."""
    queue = [root]
    while queue:
        node = queue.pop(0)
        if not node.final:
            yield node
            queue.extend(edge.child for edge in node.edges.values())


def request(problem: Problem, messages: Sequence[Mapping[str, str]], deployment: str) -> ChatRequest:
    """The request as it is sent to a model server."""
    return ChatRequest(
        model=deployment,
        messages=messages,
        temperature=0,
        max_tokens=team.MAX_TOKENS,
        stop=team.STOP,
        seed=0,
        extra={"task": problem.id},
    )
