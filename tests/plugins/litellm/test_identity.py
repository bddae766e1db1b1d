"""Where task, step and role come from (the table in docs/litellm.md), and conversations by their beginning."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steproute.plugins.litellm import labels
from steproute.plugins.litellm.conversations import Conversations, fingerprint, prefixes
from steproute.plugins.litellm.identity import identify


def headers(**named: str) -> dict[str, Any]:
    return {
        "proxy_server_request": {"headers": {f"X-Steproute-{name.title()}": value for name, value in named.items()}}
    }


@pytest.mark.parametrize(
    ("request_kwargs", "task", "role", "step", "origin"),
    [
        ({"metadata": {"steproute": {"task": "t", "role": "r", "step": "s"}}}, "t", "r", "s", "metadata"),
        ({"litellm_metadata": {"steproute": {"task": "t", "role": "r"}}}, "t", "r", "", "metadata"),
        ({"metadata": {"steproute_task": "t", "steproute_role": "r"}}, "t", "r", "", "metadata"),
        (headers(task="t", role="r", step="s"), "t", "r", "s", "headers"),
        ({"metadata": {"headers": {"x-steproute-task": "t"}}}, "t", "", "", "headers"),
        ({"litellm_session_id": "s1"}, "s1", "", "", "session"),
        ({"metadata": {"session_id": "s1"}}, "s1", "", "", "session"),
        ({"proxy_server_request": {"headers": {"x-litellm-session-id": "s1"}}}, "s1", "", "", "session"),
        ({}, "", "", "", ""),
    ],
)
def test_each_place_is_read(request_kwargs, task, role, step, origin):
    found = identify(request_kwargs)
    assert (found.task.id, found.role, found.step, found.origin) == (task, role, step, origin)


def test_metadata_goes_before_headers_before_context_before_the_session():
    everything = {
        "metadata": {"steproute": {"task": "of metadata"}, "session_id": "of session"},
        **headers(task="of headers", role="of headers"),
    }
    with labels(task="of context", role="of context", step="of context", domain="code"):
        found = identify(everything)
        assert (found.task.id, found.role, found.step) == ("of metadata", "of headers", "of context")
        assert found.task.domain == "code"
        assert identify({"metadata": {"session_id": "of session"}}).task.id == "of context"
    assert identify({"metadata": {"session_id": "of session"}}).task.id == "of session"


def test_labels_nest():
    with labels(task="outer", role="planner"), labels(role="coder"):
        found = identify({})
    assert (found.task.id, found.role) == ("outer", "coder")


@pytest.mark.parametrize(
    ("own", "ends", "success"),
    [
        ({"success": True}, True, True),
        ({"success": "failure"}, True, False),
        ({"finish": "true"}, True, None),
        ({}, False, None),
    ],
)
def test_the_end_of_a_task(own, ends, success):
    found = identify({"metadata": {"steproute": own}})
    assert (found.ends, found.success) == (ends, success)


def test_long_ids_and_wrong_types_do_no_harm():
    own = {
        "task": "x" * 1000,
        "role": ["no"],
        "evidence": [{"source": "a", "score": 2}, "no", {"score": 0.5, "count": -1}],
    }
    found = identify({"metadata": {"steproute": own}})
    assert len(found.task.id) == 256
    assert found.role == ""
    assert [(item.source, item.score, item.count) for item in found.evidence] == [("caller", 0.5, 1)]


# --- conversations ------------------------------------------------------------------------------------------------


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


def say(known: Conversations, messages: list[Any], task: str, reply: str = "", client: str = "") -> None:
    turn = known.note(client, prefixes(messages)[-1], task)
    if reply:
        turn.reply = fingerprint(assistant(reply))


def find(known: Conversations, messages: list[Any], client: str = "") -> str:
    return known.find(client, messages, prefixes(messages))


def test_a_conversation_goes_on():
    known = Conversations()
    say(known, [user("hi")], "one", "hello")
    assert find(known, [user("hi"), assistant("hello"), user("more")]) == "one"
    assert find(known, [user("hi")]) == ""
    assert find(known, [user("ho"), assistant("hello"), user("more")]) == ""


def test_two_that_began_alike_are_told_apart_by_the_reply():
    known = Conversations()
    say(known, [user("hi")], "one", "hello")
    say(known, [user("hi")], "two", "good day")
    assert find(known, [user("hi"), assistant("hello"), user("x")]) == "one"
    assert find(known, [user("hi"), assistant("good day"), user("x")]) == "two"


def test_a_reply_not_heard_of_yet_belongs_to_the_latest():
    known = Conversations()
    say(known, [user("hi")], "one", "hello")
    say(known, [user("hi")], "two")
    assert find(known, [user("hi"), assistant("something"), user("x")]) == "two"


def test_clients_are_kept_apart():
    known = Conversations()
    say(known, [user("hi")], "one", "hello", client="key-1")
    assert find(known, [user("hi"), assistant("hello"), user("x")], client="key-2") == ""


def test_it_goes_on_past_tools_and_many_turns():
    known = Conversations()
    call = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": "{}"}}],
    }
    history: list[Any] = [user("hi")]
    say(known, history, "one")
    for item in (call, {"role": "tool", "tool_call_id": "1", "content": "42"}, assistant("it is 42"), user("thanks")):
        history.append(item)
        assert find(known, history) == "one"


def test_the_same_text_in_parts_is_the_same_message():
    assert fingerprint(user("hi")) == fingerprint({"role": "user", "content": [{"type": "text", "text": "hi "}]})


def test_old_conversations_are_forgotten():
    known = Conversations(remember=2)
    for number in range(3):
        say(known, [user(str(number))], f"t{number}", "ok")
    assert find(known, [user("0"), assistant("ok"), user("x")]) == ""
    assert find(known, [user("2"), assistant("ok"), user("x")]) == "t2"


texts = st.text(max_size=8)


@given(st.lists(texts, min_size=1, max_size=6), st.lists(texts, min_size=1, max_size=6))
def test_what_is_found_began_so(first, second):
    """A conversation is recognised only by one that begins with it."""
    known = Conversations()
    one, two = (
        [user(text) if i % 2 == 0 else assistant(text) for i, text in enumerate(words)] for words in (first, second)
    )
    say(known, one, "one")
    found = find(known, two)
    begins = len(two) > len(one) and [fingerprint(item) for item in two[: len(one)]] == [
        fingerprint(item) for item in one
    ]
    assert (found == "one") == (begins and len(one) % 2 == 1)
