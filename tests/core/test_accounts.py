from __future__ import annotations

import threading

import pytest
from doubles import FakeClock
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from steproute import Budget, BudgetExceeded, Limit
from steproute.accounts import Accounts


def accounts(clock: FakeClock | None = None, **budget: object) -> Accounts:
    return Accounts(Budget(**budget), clock or FakeClock())  # type: ignore[arg-type]


def usd(amount: float) -> dict[str, float]:
    return {"usd": amount}


def granted(books: Accounts, amount: float, times: int, task: str = "t") -> list[str]:
    keys = []
    for _ in range(times):
        try:
            keys.append(books.reserve(task, usd(amount), usd(amount)))
        except BudgetExceeded:
            continue
    return keys


def test_ten_calls_of_a_fifth_under_one_grant_exactly_five():
    books = accounts(usd=1.0)
    books.open("t")
    keys = granted(books, 0.2, 10)
    assert len(keys) == 5
    with pytest.raises(BudgetExceeded) as refusal:
        books.reserve("t", usd(0.2), usd(0.2))
    assert str(refusal.value) == (
        "task 't': hard limit usd=1 reached: spent 0, reserved by calls in flight 1, the cheapest candidate asks 0.2"
    )
    for key in keys:
        books.settle("t", key, usd(0.05))
    assert books.spending("t").spent == usd(0.25)
    assert books.spending("t").reserved == usd(0.0)
    assert len(granted(books, 0.2, 10)) == 3  # .25 spent + 3 × .2 = .85; a fourth would be 1.05


def test_threads_never_pass_the_limit():
    books = accounts(usd=1.0)
    books.open("t")
    start, keys = threading.Barrier(8), []

    def work() -> None:
        start.wait()
        for _ in range(20):
            keys.extend(granted(books, 0.01, 1))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(keys) == len(set(keys)) == 100


def test_sums_are_exact_where_floats_are_not():
    books = accounts(usd=0.3)
    books.open("t")
    books.settle("t", None, usd(0.1))
    books.settle("t", None, usd(0.1))
    assert 0.1 + 0.1 + 0.1 > 0.3
    assert books.reserve("t", usd(0.1), usd(0.1))


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=200))
def test_any_number_of_billionths_adds_up(parts):
    books = accounts(tokens=Limit(limit=1e9))
    books.open("t")
    for part in parts:
        books.settle("t", None, {"tokens": part / 10**9})
    assert books.spending("t").spent["tokens"] == sum(parts) / 10**9


def test_hard_limits_reserve_the_worst_case_soft_ones_the_expectation():
    books = accounts(usd=1.0, seconds=Limit(limit=5, hard=False))
    books.open("t")
    books.reserve("t", {"usd": 0.1, "seconds": 2.0, "tokens": 10}, {"usd": 0.4, "seconds": 9.0, "tokens": 50})
    assert books.spending("t").reserved == {"usd": 0.4, "seconds": 2.0}
    assert books.refusals("t", [{"usd": 0.6, "seconds": 1e9}, {"usd": 0.61}])[0] is None
    refusal = books.refusals("t", [{"usd": 0.61}])[0]
    assert refusal is not None
    assert (refusal.resource, refusal.limit, refusal.reserved, refusal.asked) == ("usd", 1.0, 0.4, 0.61)


def test_what_costs_nothing_fits_an_exhausted_limit_and_what_is_unknown_does_not():
    books = accounts(usd=1.0)
    books.open("t")
    books.settle("t", None, usd(1.5))
    assert books.refusals("t", [usd(0.0)]) == [None]
    refusal = books.refusals("t", [{}])[0]
    assert refusal is not None
    assert refusal.asked == 0


def test_an_unknown_amount_is_checked_against_what_was_spent():
    books = accounts(energy_j=100)
    books.open("t")
    assert books.refusals("t", [{}]) == [None]
    books.settle("t", None, {"energy_j": 100})
    assert books.refusals("t", [{}])[0] is not None


def test_a_lease_frees_what_nobody_settles():
    clock = FakeClock()
    books = accounts(clock, usd=1.0, lease_s=60)
    books.open("t")
    key = books.reserve("t", usd(1.0), usd(1.0))
    clock.tick(59)
    assert books.holds(key)
    assert granted(books, 0.5, 1) == []
    clock.tick(1)
    assert not books.holds(key)
    assert len(granted(books, 0.5, 3)) == 2
    books.settle("t", key, usd(0.3))  # the call did happen after all
    assert books.spending("t").spent == usd(0.3)
    assert books.spending("t").reserved == usd(1.0)


def test_a_released_reservation_costs_nothing():
    books = accounts(usd=1.0)
    books.open("t")
    key = books.reserve("t", usd(1.0), usd(1.0))
    books.release(key)
    books.release(key)
    books.release(None)
    assert books.spending("t").reserved == usd(0.0)
    assert books.spending("t").spent == {}


def test_a_child_pays_from_its_parents_budget():
    books = accounts(usd=0.05)
    books.open("parent")
    books.open("child", "parent")
    books.open("grandchild", "child")
    key = books.reserve("grandchild", usd(0.03), usd(0.03))
    assert books.spending("parent").reserved == usd(0.03)
    assert books.refusals("parent", [usd(0.02), usd(0.021)])[0] is None
    assert books.refusals("parent", [usd(0.02), usd(0.021)])[1] is not None
    books.settle("grandchild", key, usd(0.03))
    assert books.spending("parent").spent == usd(0.03)
    assert books.spending("child").spent == usd(0.03)
    assert books.refusals("parent", [usd(0.021)])[0] is not None
    books.settle("parent", None, usd(0.02))
    assert books.refusals("grandchild", [usd(0.001)])[0] is not None
    assert books.pressure("grandchild").spent == {"usd": pytest.approx(0.05)}
    refusal = books.refusals("grandchild", [usd(0.001)])[0]
    assert refusal is not None
    assert (refusal.task, refusal.payer) == ("grandchild", "parent")
    assert str(refusal).startswith(
        "task 'grandchild': hard limit usd=0.05 of its parent 'parent' reached: spent 0.05, "
    )


def test_ending_a_child_in_flight_frees_its_parents_reservation():
    books = accounts(usd=1.0)
    books.open("parent")
    books.open("child", "parent")
    books.reserve("child", usd(1.0), usd(1.0))
    books.close("child")
    assert books.spending("parent").reserved == usd(0.0)


def test_ending_a_parent_does_not_lose_its_childs_spending():
    books = accounts(usd=Limit(target=1.0))
    books.open("parent")
    books.open("child", "parent")
    books.settle("child", None, usd(0.7))
    books.close("parent")
    assert books.queues == usd(0.0)
    books.settle("child", None, usd(0.7))
    assert books.queues == {"usd": pytest.approx(0.4)}
    books.close("child")
    assert books.queues == {"usd": pytest.approx(0.4)}


def test_a_parent_that_is_named_late_hears_of_what_was_spent():
    books = accounts(usd=1.0)
    books.open("child")
    books.settle("child", None, usd(0.4))
    books.open("parent")
    books.open("child", "parent")
    assert books.spending("parent").spent == usd(0.4)


@pytest.mark.parametrize("links", [[("a", "a")], [("a", "b"), ("b", "a")], [("a", "b"), ("b", "c"), ("c", "a")]])
def test_circles_of_parents_are_cut(links):
    books = accounts(usd=Limit(target=1e-6))
    for name in "abc":
        books.open(name)
    for task, parent in links:
        books.open(task, parent)
    books.settle("a", None, usd(3.0))
    for name in "abc":
        books.close(name)
    assert books.queues["usd"] == pytest.approx(3.0, abs=1e-5)  # counted once, by the task at the top


def test_only_whole_tasks_advance_the_queue():
    books = accounts(usd=Limit(target=1.0), energy_j=Limit(target=10, hard=False))
    books.open("parent")
    books.open("child", "parent")
    books.settle("child", None, {"usd": 1.5, "energy_j": 4})
    assert books.close("child") == {"usd": 1.5, "energy_j": 4}
    assert books.queues == {"usd": 0, "energy_j": 0}
    assert books.close("parent") == {"usd": 1.5, "energy_j": 4}
    assert books.queues == {"usd": 0.5, "energy_j": 0}
    assert books.close("parent") == {}
    assert books.queues == {"usd": 0.5, "energy_j": 0}


@given(
    target=st.floats(0.1, 10),
    before=st.floats(0, 20),
    during=st.floats(0, 20),
    late=st.lists(st.floats(0, 20), max_size=4),
)
def test_late_spending_leaves_the_queue_where_it_would_have_been(target, before, during, late):
    books, punctual = (accounts(usd=Limit(target=target)) for _ in range(2))
    for each, spent in ((books, during), (punctual, during + sum(late))):
        each.open("first")
        each.settle("first", None, usd(before))
        each.close("first")
        each.open("t")
        each.settle("t", None, usd(spent))
        each.close("t")
    for amount in late:
        books.settle("t", None, usd(amount))
    assert books.queues["usd"] == pytest.approx(punctual.queues["usd"], abs=1e-6)


def test_a_resumed_task_keeps_its_spending_and_counts_the_rest_once():
    books = accounts(usd=Limit(limit=1.0, target=0.5))
    books.open("t")
    books.settle("t", None, usd(0.8))
    books.close("t")
    assert books.queues["usd"] == pytest.approx(0.3)
    books.open("t", resume=True)
    assert books.refusals("t", [usd(0.3)])[0] is not None
    books.settle("t", None, usd(0.1))
    books.close("t")
    assert books.queues["usd"] == pytest.approx(0.4)
    books.settle("t", None, usd(0.1))
    assert books.queues["usd"] == pytest.approx(0.5)
    books.open("t")  # the same name anew
    assert books.spending("t").spent == {}


def test_unknown_tasks_are_no_errors():
    books = accounts(usd=Limit(limit=1.0, target=0.5))
    assert books.close("nobody") == {}
    assert books.spending("nobody").spent == {}
    books.settle("nobody", "r99", usd(0.2))
    assert books.queues["usd"] == pytest.approx(0.2)
    assert books.spending("nobody").spent == {}


def test_only_so_many_ended_tasks_are_remembered():
    books = Accounts(Budget(usd=Limit(target=1.0)), FakeClock(), remember=2)
    for name in "abc":
        books.open(name)
        books.close(name)
    assert list(books._closed) == ["b", "c"]
    books.settle("c", None, usd(0.9))
    assert books.queues["usd"] == 0
    books.settle("a", None, usd(0.9))  # forgotten: nothing is known of what its target left over
    assert books.queues["usd"] == pytest.approx(0.9)


class Books(RuleBasedStateMachine):
    """Against a model that recomputes everything from a list of events, in whole billionths."""

    LIMIT = 1000
    keys = Bundle("keys")

    def __init__(self) -> None:
        super().__init__()
        self.clock = FakeClock()
        self.books = Accounts(Budget(usd=self.LIMIT / 10**9, lease_s=10), self.clock)
        self.parents = {"root": None, "left": "root", "right": "root", "leaf": "left"}
        for task, parent in self.parents.items():
            self.books.open(task, parent)
        self.held: dict[str, tuple[str, int, float]] = {}
        self.spent: list[tuple[str, int]] = []

    def payers(self, task: str | None) -> list[str]:
        return [] if task is None else [task, *self.payers(self.parents[task])]

    def total(self, task: str) -> tuple[int, int]:
        spent = sum(amount for who, amount in self.spent if task in self.payers(who))
        held = [
            amount for who, amount, ends in self.held.values() if task in self.payers(who) and ends > self.clock.now
        ]
        return spent, sum(held)

    @rule(target=keys, task=st.sampled_from(["root", "left", "right", "leaf"]), amount=st.integers(0, 600))
    def reserve(self, task, amount):
        fits = amount == 0 or all(sum(self.total(payer)) + amount <= self.LIMIT for payer in self.payers(task))
        try:
            key = self.books.reserve(task, usd(amount / 10**9), usd(amount / 10**9))
        except BudgetExceeded:
            assert not fits
            return None
        assert fits
        self.held[key] = (task, amount, self.clock.now + 10)
        return key

    @rule(key=keys, amount=st.integers(0, 700))
    def settle(self, key, amount):
        if key in self.held:
            task = self.held.pop(key)[0]
            self.books.settle(task, key, usd(amount / 10**9))
            self.spent.append((task, amount))

    @rule(seconds=st.integers(1, 11))
    def wait(self, seconds):
        self.clock.tick(seconds)

    @invariant()
    def same_sums(self):
        for task in self.parents:
            spent, held = self.total(task)
            seen = self.books.spending(task)
            assert round(seen.spent.get("usd", 0) * 10**9) == spent
            assert round(seen.reserved.get("usd", 0) * 10**9) == held


Books.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestBooks = Books.TestCase
