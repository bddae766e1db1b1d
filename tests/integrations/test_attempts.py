import asyncio
from datetime import datetime, timezone

import pytest

from steproute.backend import BackendError, ChatRequest, ChatResponse
from steproute.integrations.attempts import Retry, aserve, retry_after_s, serve, status_error
from steproute.testing import CassetteMismatch
from steproute.testing.canonical import Asked

ASK = ChatRequest("m", [{"role": "user", "content": "hi"}])


class World:
    """A clock that only moves when somebody sleeps or an attempt takes time."""

    def __init__(self, *outcomes, takes=1.0):
        self.now, self.slept, self.left, self.outcomes, self.takes = 0.0, [], [], list(outcomes), takes
        self.retry = Retry(attempts=3, sleep=self.sleep, asleep=self.asleep, clock=lambda: self.now, chance=lambda: 0.0)

    def sleep(self, seconds):
        self.slept.append(seconds)
        self.now += seconds

    async def asleep(self, seconds):
        self.sleep(seconds)

    def once(self, left):
        self.left.append(left)
        self.now += self.takes
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def aonce(self, left):
        return self.once(left)

    def serve(self, request=ASK, limit_s=None, secrets=()):
        return serve(request, self.once, retry=self.retry, limit_s=limit_s, translate=translate, secrets=secrets)

    async def aserve(self, request=ASK, limit_s=None):
        return await aserve(request, self.aonce, retry=self.retry, limit_s=limit_s, translate=translate)


def translate(error):
    return BackendError("m", "response", error, retryable=False) if isinstance(error, ValueError) else None


def refused():
    return BackendError("m", "connect", "refused", retryable=True)


def busy(after=None):
    return BackendError("m", "request", "busy", status=429, retryable=True, retry_after_s=after)


async def test_it_asks_again_with_growing_waits_and_tells_how_often():
    for run in (World.serve, World.aserve):
        world = World(refused(), busy(), ChatResponse("ok"))
        answer = run(world)
        answer = await answer if asyncio.iscoroutine(answer) else answer
        assert (answer.content, answer.attempts, answer.seconds) == ("ok", 3, 1.0)
        assert world.slept == [0.5, 1.0]


def test_it_gives_up_after_the_last_attempt():
    world = World(refused(), refused(), refused(), ChatResponse("never"))
    with pytest.raises(BackendError, match="connect failed: refused"):
        world.serve()
    assert len(world.slept) == 2


def test_what_cannot_get_better_is_not_asked_again():
    world = World(status_error("m", 400, "bad field"), ChatResponse("never"))
    with pytest.raises(BackendError) as caught:
        world.serve()
    assert (caught.value.phase, caught.value.status, world.slept) == ("request", 400, [])


def test_the_servers_wish_to_wait_is_obeyed():
    world = World(busy(after=30.0), ChatResponse("ok"))
    world.serve()
    assert world.slept == [30.0]


def test_a_wait_beyond_the_deadline_fails_at_once():
    world = World(busy(after=30.0), ChatResponse("never"))
    with pytest.raises(BackendError, match="busy"):
        world.serve(limit_s=10.0)
    assert world.slept == []


def test_each_attempt_gets_the_seconds_that_are_left():
    world = World(refused(), refused(), ChatResponse("ok"), takes=2.0)
    world.serve(limit_s=10.0)
    assert world.left == [10.0, 7.5, 4.5]


def test_the_requests_own_timeout_counts():
    world = World(ChatResponse("ok"))
    world.serve(ChatRequest("m", [], timeout=3.0), limit_s=10.0)
    assert world.left == [3.0]


def test_waits_have_a_cap_and_a_random_part():
    retry = Retry(first_wait_s=1.0, longest_wait_s=4.0, chance=lambda: 1.0)
    assert [retry.wait_s(attempt, refused()) for attempt in (1, 2, 3, 4)] == [0.5, 1.0, 2.0, 2.0]


def test_foreign_errors_are_translated_and_unknown_ones_are_left_alone():
    with pytest.raises(BackendError, match="response failed: ValueError: odd") as caught:
        World(ValueError("odd")).serve()
    assert isinstance(caught.value.__cause__, ValueError)
    with pytest.raises(ZeroDivisionError):
        World(ZeroDivisionError()).serve()


def test_a_cause_that_holds_a_key_is_not_shown():
    with pytest.raises(BackendError) as caught:
        World(ValueError("wrong key k-123-secret")).serve(secrets=["k-123-secret"])
    assert caught.value.__cause__ is None


def test_a_drifted_replay_is_not_a_failure_of_the_server():
    mismatch = CassetteMismatch(Asked("POST", "/x"), [], "a.yaml")
    wrapped = RuntimeError("wrapped")
    wrapped.__cause__ = mismatch
    for error in (mismatch, wrapped):
        world = World(error)
        with pytest.raises(CassetteMismatch):
            world.serve()
        assert world.slept == []


async def test_cancelling_ends_the_call_at_once_and_retries_nothing():
    begun = asyncio.Event()
    attempts = 0

    async def never(left):
        nonlocal attempts
        attempts += 1
        begun.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(aserve(ASK, never, retry=Retry(), limit_s=None, translate=translate))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert attempts == 1


async def test_an_attempt_without_end_is_a_timeout():
    async def never(left):
        await asyncio.Event().wait()

    request = ChatRequest("m", [], timeout=0.01)
    with pytest.raises(BackendError, match=r"timeout failed: no answer within 0\.01 s") as caught:
        await aserve(request, never, retry=Retry(attempts=1), limit_s=None, translate=translate)
    assert caught.value.retryable


@pytest.mark.parametrize(
    ("status", "phase", "retryable"),
    [
        (400, "request", False),
        (401, "request", False),
        (404, "request", False),
        (408, "timeout", True),
        (429, "request", True),
        (500, "response", True),
        (501, "response", False),
        (503, "response", True),
    ],
)
def test_statuses(status, phase, retryable):
    error = status_error("m", status, "text")
    assert (error.phase, error.retryable, error.status) == (phase, retryable, status)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"Retry-After": "3"}, 3.0),
        ({"retry-after": "1.5"}, 1.5),
        ({"Retry-After-Ms": "250", "Retry-After": "9"}, 0.25),
        ({"Retry-After": "Mon, 30 Nov 2026 10:00:20 GMT"}, 20.0),
        ({"Retry-After": "Mon, 30 Nov 2026 09:00:00 GMT"}, 0.0),
        ({"Retry-After": "soon"}, None),
    ],
)
def test_retry_after(headers, seconds):
    assert retry_after_s(headers, now=datetime(2026, 11, 30, 10, tzinfo=timezone.utc)) == seconds


def test_a_backend_error_names_model_phase_status_and_cause_without_keys():
    error = BackendError(
        "large", "request", "key sk-abc-0123456789ab is bad; so is mine-1", status=401, secrets=["mine-1"]
    )
    assert str(error) == "model 'large': request failed (HTTP 401): key REDACTED is bad; so is REDACTED"
