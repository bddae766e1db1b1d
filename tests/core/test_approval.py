from __future__ import annotations

import threading
from datetime import datetime, timezone
from pathlib import Path

import pytest

from steproute.approval import (
    ApprovalError,
    CappedBackend,
    SpendingCap,
    approve,
    approve_beside,
    book_of,
    loopback,
    most_tokens,
    needs_approval,
    read_approval,
    stop_if_refused,
)
from steproute.backend import BackendError, ChatRequest, ChatResponse, Usage
from steproute.models import Model, Price

PAID = Model("small", price=Price(input=1, output=2), deployment="vendor/small", max_output=100)
FREE = Model("own", price="free")
UNKNOWN = Model("odd", price="unknown")
HELLO = [{"role": "user", "content": "hello"}]


def written(folder: Path, text: str) -> Path:
    path = folder / "approval.yaml"
    path.write_text(text, encoding="utf-8")
    return path


class Served:
    """Answers every request with the usage or the error it was given."""

    def __init__(self, answer: Usage | BackendError):
        self.answer = answer
        self.requests: list[ChatRequest] = []

    def complete(self, request: ChatRequest) -> ChatResponse:
        self.requests.append(request)
        if isinstance(self.answer, BackendError):
            raise self.answer
        return ChatResponse("hi", usage=self.answer)

    async def acomplete(self, request: ChatRequest) -> ChatResponse:
        return self.complete(request)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "seen a NoneType; allowed: a mapping with `models` and `usd`"),
        ("- a", "seen a list; allowed: a mapping with `models` and `usd`"),
        ("models: [", "is not YAML ("),
        ("expires: 2026-13-45", "is not YAML ("),
        ("models: [small]\nusd: 5\nusd: 500", "is not YAML ('usd' is given twice)"),
        ("usd: 5", "models: missing; it is required"),
        ("models: [small]", "usd: missing; it is required"),
        ("models: []\nusd: 5", "models: Dictionary should have at least 1 item"),
        ("models: [small]\nusd: 0", "usd: Input should be greater than 0"),
        ("models: [small]\nusd: .inf", "usd: Input should be a finite number"),
        ("models: [small, 7]\nusd: 5", "models: allowed: names of models"),
        ("models: [small]\nusd: 5\nexpire: 2027-01-01", "expire: unknown name 'expire'; did you mean 'expires'?"),
        ("models: [small]\nusd: 5\nlive: false", "live: false: live paid calls are switched off"),
        ("models: [small]\nusd: 5\nexpires: 2026-11-29", "expires: 2026-11-29 has passed"),
    ],
)
def test_what_is_no_approval_says_why(tmp_path, text, error):
    path = written(tmp_path, text)
    with pytest.raises(ApprovalError) as seen:
        read_approval(path, datetime(2026, 11, 30, tzinfo=timezone.utc).timestamp())
    assert str(seen.value).startswith(f"{path}: {error}")


def test_without_a_file_paid_calls_are_off(tmp_path):
    with pytest.raises(
        ApprovalError, match=r"approval\.yaml: missing: live paid calls are off until it names `models`"
    ):
        read_approval(tmp_path / "approval.yaml")


def test_it_holds_until_the_end_of_its_last_day(tmp_path):
    path = written(tmp_path, "models: [small]\nusd: 5\nexpires: 2026-11-30")
    last = datetime(2026, 11, 30, 23, 59, tzinfo=timezone.utc).timestamp()
    assert read_approval(path, last).usd == 5
    with pytest.raises(ApprovalError, match="has passed"):
        read_approval(path, last + 60)


def test_every_model_is_named_and_priced(tmp_path):
    path = written(tmp_path, "models: [small, own]\nusd: 5")
    approval = read_approval(path)
    assert approval.prices([PAID], "f") == {"vendor/small": PAID.price}
    with pytest.raises(ApprovalError, match=r"f: models: 'odd' \(odd\) is not approved; named: small, own"):
        approval.prices([PAID, UNKNOWN], "f")
    with pytest.raises(ApprovalError, match=r"'own' has the price 0, and a cap cannot be held without one"):
        approval.prices([FREE], "f")
    text = "models: {vendor/small: null, odd: {input: 3, output: 4}, own: free}\nusd: 5"
    prices = read_approval(written(tmp_path, text)).prices([PAID, UNKNOWN, FREE], "f")
    assert prices == {"vendor/small": PAID.price, "odd": Price(input=3, output=4), "own": Price(input=0, output=0)}
    with pytest.raises(ApprovalError, match="'odd' has no price"):
        read_approval(written(tmp_path, "models: [odd]\nusd: 5")).prices([UNKNOWN], "f")


@pytest.mark.parametrize(
    ("backend", "url", "pool", "needed"),
    [
        ("ollama", None, [UNKNOWN], False),
        ("local", None, [PAID], False),
        ("cassette", None, [PAID], False),
        ("litellm", None, [FREE], True),
        ("litellm", "https://api.vendor.example/v1", [FREE], True),
        ("litellm", "http://127.0.0.1:8000/v1", [FREE], False),
        ("litellm", "http://[::1]:8000/v1", [FREE], False),
        ("litellm", "http://localhost:8000/v1", [FREE], False),
        ("litellm", "http://localhost.vendor.example/v1", [FREE], True),
        ("litellm", "http://127.0.0.1:8000/v1", [FREE, PAID], True),
        ("litellm", "http://127.0.0.1:8000/v1", [UNKNOWN], True),
    ],
)
def test_what_is_free_needs_none(backend, url, pool, needed):
    assert needs_approval(backend, url, pool) is needed


def test_a_server_is_here_by_its_address_alone():
    assert not loopback(None)
    assert not loopback("127.0.0.1")  # no URL
    assert not loopback("http://10.0.0.1/")


def test_a_call_is_paid_before_it_is_made_and_settled_by_its_usage(tmp_path):
    path = written(tmp_path, "models: [small]\nusd: 1")
    served = Served(Usage(10, 20, 0))
    backend = approve(served, path, [PAID], "bench")
    request = ChatRequest("vendor/small", HELLO, max_tokens=50)
    backend.complete(request)
    cap = SpendingCap(book_of(path), 1)
    assert cap.spent == pytest.approx((10 * 1 + 20 * 2) / 1e6)
    assert served.requests == [request]
    assert [file.name for file in sorted(tmp_path.iterdir())] == ["approval.spent.db", "approval.yaml"]


def test_a_call_without_a_limit_gets_the_models(tmp_path):
    served = Served(Usage(1, 1, 0))
    approve(served, written(tmp_path, "models: [small]\nusd: 1"), [PAID], "b").complete(
        ChatRequest("vendor/small", HELLO)
    )
    assert served.requests[0].max_tokens == 100


def test_the_cap_is_hard_over_runs(tmp_path):
    request = ChatRequest("vendor/small", HELLO, max_tokens=50)
    worst = (most_tokens(request) * 1 + 50 * 2) / 1e6
    path = written(tmp_path, f"models: [small]\nusd: {2.5 * worst:.12f}")
    for _ in range(2):  # a fresh process each time
        approve(Served(Usage(most_tokens(request), 50, 0)), path, [PAID], "b").complete(request)
    served = Served(Usage(1, 1, 0))
    third = approve(served, path, [PAID], "b")
    with pytest.raises(
        ApprovalError, match=r"spending cap of \$.* reached: \$.* spent, and the next call of 'vendor/small' may"
    ):
        third.complete(request)
    assert served.requests == []
    with pytest.raises(ApprovalError, match="spending cap"):  # what a framework has swallowed
        stop_if_refused(third)
    stop_if_refused(served)
    raised = written(tmp_path, f"models: [small]\nusd: {4 * worst:.12f}")
    assert approve(served, raised, [PAID], "b").complete(request).content == "hi"


@pytest.mark.parametrize(
    ("answer", "billed"),
    [
        (BackendError("m", "connect", "refused"), False),
        (BackendError("m", "request", "HTTP 400"), False),
        (BackendError("m", "timeout", "slow"), True),
        (BackendError("m", "response", "cut off"), True),
        (Usage(1, 1, 0, estimated=True), True),
    ],
)
async def test_what_may_be_on_the_bill_counts_with_its_worst_case(tmp_path, answer, billed):
    cap = SpendingCap(tmp_path / "x.db", 1)
    backend = CappedBackend(Served(answer), cap, {"vendor/small": PAID.price}, {"vendor/small": 100}, "b")
    request = ChatRequest("vendor/small", HELLO)
    if isinstance(answer, BackendError):
        with pytest.raises(BackendError):
            await backend.acomplete(request)
    else:
        await backend.acomplete(request)
    worst = (most_tokens(request) * 1 + 100 * 2) / 1e6
    assert cap.spent == pytest.approx(worst if billed else 0)


def test_the_dearest_prompt_price_is_set_aside(tmp_path):
    price = Price(input=1, output=2, cached_input=0.1, cache_write=4)
    request = ChatRequest("m", HELLO, max_tokens=10)
    cap = SpendingCap(tmp_path / "x.db", 1)
    CappedBackend(Served(Usage(estimated=True)), cap, {"m": price}, {}, "b").complete(request)
    assert cap.spent == pytest.approx((most_tokens(request) * 4 + 10 * 2) / 1e6)


def test_calls_side_by_side_never_pass_the_cap(tmp_path):
    granted, book = [], tmp_path / "x.db"

    def ask() -> None:
        try:
            granted.append(SpendingCap(book, 1.0).reserve("b", "m", 0.2))
        except ApprovalError:
            return

    threads = [threading.Thread(target=ask) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(granted) == 5
    assert SpendingCap(book, 1.0).spent == 1.0


def test_a_book_that_is_none_stops_the_calls(tmp_path):
    (tmp_path / "x.db").write_text("no database at all, and long enough to be read as one", encoding="utf-8")
    with pytest.raises(ApprovalError, match=r"x\.db: the book of what was spent cannot be kept"):
        SpendingCap(tmp_path / "x.db", 1)


def test_a_model_that_is_not_in_the_approval_is_not_called(tmp_path):
    backend = CappedBackend(Served(Usage()), SpendingCap(tmp_path / "x.db", 1), {"small": PAID.price}, {}, "b")
    with pytest.raises(ApprovalError, match="approval: models: unknown name 'smal'; did you mean 'small'"):
        backend.complete(ChatRequest("smal", HELLO))


def test_a_model_that_a_package_calls_itself_is_named_too(tmp_path):
    path = tmp_path / "approval.yaml"
    assert approve_beside("openai/x", "http://127.0.0.1:1/v1", path) is None
    assert approve_beside("ollama_chat/x", None, path) is None
    with pytest.raises(ApprovalError, match="missing: live paid calls are off"):
        approve_beside("openai/x", None, path)
    written(tmp_path, "models: [openai/y]\nusd: 1")
    with pytest.raises(ApprovalError, match="'openai/x' is not approved; named: openai/y"):
        approve_beside("openai/x", None, path)
    cap = approve_beside("openai/y", None, path)
    assert cap is not None
    cap.settle(cap.reserve("tau2", "openai/y", 0.0), 1.25)
    with pytest.raises(ApprovalError, match="spending cap"):
        cap.reserve("tau2", "openai/y", 0.0)
