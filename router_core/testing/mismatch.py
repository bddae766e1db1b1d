"""Drift between a program and its recording, explained by the nearest recorded request."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Iterator, Sequence

from steproute.errors import SteprouteError
from steproute.testing.canonical import Asked, Turn
from steproute.testing.exchange import Exchange

_MAX_DIFF_LINES = 40
_MAX_LINE = 200
_CLOSE_LOOKS = 12
"""Recorded requests whose texts are compared in full; the others are ranked by cheap signs only."""


class CassetteMismatch(SteprouteError):
    """A request that was never recorded. The message shows the nearest recorded one and how they differ.

    Attributes:
        asked: the request, canonical.
        nearest: the recorded exchange closest to it; None in an empty cassette.
    """

    def __init__(self, asked: Asked, recorded: Sequence[Exchange], where: str, label: str = "", advice: str = ""):
        self.asked = asked
        self.nearest = nearest(asked, recorded)
        super().__init__(_report(asked, self.nearest, recorded, where, label, advice))


def explain_mismatch(error: BaseException | None) -> str | None:
    """Why a replay failed, however deep a client library wrapped the reason.

    Args:
        error: any exception, e.g. an `openai.APIConnectionError`.

    Returns:
        The message of the `CassetteMismatch` among its causes, contexts and group members; None when there is none.
    """
    found = find_mismatch(error)
    return None if found is None else str(found)


def find_mismatch(error: BaseException | None) -> CassetteMismatch | None:
    """The `CassetteMismatch` behind an exception, or None."""
    return next((link for link in linked_errors(error) if isinstance(link, CassetteMismatch)), None)


def linked_errors(error: BaseException | None) -> Iterator[BaseException]:
    """The exception and every other it leads to: causes, contexts, members of groups, exceptions it wraps."""
    seen: set[int] = set()
    waiting = [error]
    while waiting:
        link = waiting.pop(0)
        if link is None or id(link) in seen:
            continue
        seen.add(id(link))
        yield link
        waiting += [link.__cause__, link.__context__]
        wrapped = [getattr(link, "original_exception", None), *getattr(link, "exceptions", ()), *link.args]
        waiting += [item for item in wrapped if isinstance(item, BaseException)]


def nearest(asked: Asked, recorded: Iterable[Exchange]) -> Exchange | None:
    """The recorded exchange most like the request: same kind and path, then conversation, then model."""
    ranked = sorted(recorded, key=lambda exchange: _likeness(asked, exchange.asked), reverse=True)
    return max(ranked[:_CLOSE_LOOKS], key=lambda exchange: _resemblance(asked, exchange.asked), default=None)


def _likeness(asked: Asked, other: Asked) -> tuple[bool, bool, float]:
    same = sum(a == b for a, b in zip(asked.turns, other.turns, strict=False))
    longest = max(len(asked.turns), len(other.turns), 1)
    score = same / longest + 0.3 * (asked.model == other.model) + 0.1 * (asked.tools == other.tools)
    return asked.is_chat == other.is_chat, asked.path == other.path, score


def _resemblance(asked: Asked, other: Asked) -> tuple[bool, bool, float]:
    kind, path, score = _likeness(asked, other)
    number = _first_difference(asked.turns, other.turns)
    a = asked.turns[number].content if number < len(asked.turns) else asked.rest
    b = other.turns[number].content if number < len(other.turns) else other.rest
    ratio = difflib.SequenceMatcher(None, b[-4000:], a[-4000:], autojunk=True).quick_ratio() if a or b else 0.0
    return kind, path, score + 0.5 * ratio


def _first_difference(asked: Sequence[Turn], other: Sequence[Turn]) -> int:
    for number, (a, b) in enumerate(zip(asked, other, strict=False)):
        if a != b:
            return number
    return min(len(asked), len(other))


def _report(
    asked: Asked, near: Exchange | None, recorded: Sequence[Exchange], where: str, label: str, advice: str
) -> str:
    start = f"{label}: " if label else ""
    lines = [f"{start}this request was never recorded ({where}, {_count(len(recorded), 'exchange')})"]
    lines.append(f"  asked:   {_headline(asked)}")
    if near is None:
        lines.append("  nearest: none, nothing is recorded")
    else:
        lines.append(f"  nearest: {_headline(near.asked)}   [{near.source or 'recorded now'}]")
        lines += _differences(asked, near.asked, recorded)
    if advice:
        lines.append(advice)
    return "\n".join(lines)


def _headline(asked: Asked) -> str:
    if not asked.is_chat:
        return f"{asked.method} {asked.path}"
    roles = ", ".join(turn.role for turn in asked.turns[:6]) + (", …" if len(asked.turns) > 6 else "")
    tools = f", {_count(len(asked.tools), 'tool')}" if asked.tools else ""
    stream = ", streaming" if asked.stream else ""
    return f"{asked.path} model {asked.model!r}, {_count(len(asked.turns), 'message')} ({roles}){tools}{stream}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _differences(asked: Asked, other: Asked, recorded: Sequence[Exchange]) -> list[str]:
    lines = []
    if (asked.method, asked.path) != (other.method, other.path):
        lines.append(f"path: recorded {other.method} {other.path}, asked {asked.method} {asked.path}")
    if asked.model != other.model:
        lines.append(f"model: recorded {other.model!r}, asked {asked.model!r}")
        known = sorted({exchange.asked.model for exchange in recorded if exchange.asked.turns == asked.turns})
        if known:
            lines.append(f"  the same messages are recorded for: {', '.join(known)}")
    if asked.stream != other.stream:
        lines.append(f"stream: recorded {str(other.stream).lower()}, asked {str(asked.stream).lower()}")
    lines += _turn_differences(asked.turns, other.turns)
    lines += _tool_differences(asked.tools, other.tools)
    if asked.rest != other.rest:
        lines += ["query and body differ:", *_diff(other.rest, asked.rest)]
    if not lines:
        lines.append("they are equal: each recording is served once here, and this one is used up")
    return lines


def _turn_differences(asked: Sequence[Turn], other: Sequence[Turn]) -> list[str]:
    if list(asked) == list(other):
        return []
    number = _first_difference(asked, other)
    lines = []
    if len(asked) != len(other):
        lines.append(f"messages: recorded {len(other)}, asked {len(asked)}")
    if number >= len(other):
        lines.append(f"message {number + 1} ({asked[number].role}) is not in the recording:")
        return lines + _diff("", asked[number].content)
    if number >= len(asked):
        lines.append(f"message {number + 1} ({other[number].role}) of the recording was not sent:")
        return lines + _diff(other[number].content, "")
    if asked[number].role != other[number].role:
        lines.append(f"message {number + 1}: role recorded {other[number].role!r}, asked {asked[number].role!r}")
    if asked[number].content != other[number].content:
        lines.append(f"message {number + 1} ({asked[number].role}) differs:")
        lines += _diff(other[number].content, asked[number].content)
    return lines


def _tool_differences(asked: Sequence[str], other: Sequence[str]) -> list[str]:
    if tuple(asked) == tuple(other):
        return []
    mine, theirs = {_tool_name(tool): tool for tool in asked}, {_tool_name(tool): tool for tool in other}
    lines = [f"tools: recorded [{', '.join(sorted(theirs))}], asked [{', '.join(sorted(mine))}]"]
    for name in sorted(mine.keys() & theirs.keys()):
        if mine[name] != theirs[name]:
            lines += [f"tool {name} differs:", *_diff(theirs[name], mine[name])]
    return lines


def _tool_name(tool: str) -> str:
    data = json.loads(tool)
    function = data.get("function") if isinstance(data, dict) else None
    named = function if isinstance(function, dict) else data if isinstance(data, dict) else {}
    return str(named.get("name") or named.get("type") or "?")


def _diff(recorded: str, asked: str) -> list[str]:
    """A unified diff, indented, without what would not fit a screen."""
    diff = list(difflib.unified_diff(_lines(recorded), _lines(asked), "recorded", "asked", n=1, lineterm=""))
    if not diff:  # they differ in line ends only
        diff = [f"- ends with {recorded[-20:]!r}", f"+ ends with {asked[-20:]!r}"]
    for number in range(len(diff) - 1):
        if diff[number][:1] == "-" and diff[number + 1][:1] == "+":
            diff[number], diff[number + 1] = _cropped(diff[number], diff[number + 1])
    shown = [f"  {line[:_MAX_LINE]}{'…' if len(line) > _MAX_LINE else ''}" for line in diff[:_MAX_DIFF_LINES]]
    if len(diff) > _MAX_DIFF_LINES:
        shown.append(f"  … {len(diff) - _MAX_DIFF_LINES} more lines")
    return shown


def _cropped(removed: str, added: str) -> tuple[str, str]:
    """Two long lines cut to where they begin to differ."""
    if max(len(removed), len(added)) <= _MAX_LINE:
        return removed, added
    start = 1
    while start < min(len(removed), len(added)) and removed[start] == added[start]:
        start += 1
    first = max(1, start - 60)
    mark = "…" if first > 1 else ""
    return f"-{mark}{removed[first:]}", f"+{mark}{added[first:]}"


def _lines(text: str) -> list[str]:
    _query, _, body = text.partition(" ")
    for candidate in (text, body):
        if candidate[:1] in ("{", "["):
            try:
                return json.dumps(json.loads(candidate), indent=1, ensure_ascii=False, sort_keys=True).splitlines()
            except ValueError:
                continue
    return text.splitlines()
