"""Find the examples a problem statement shows: the only tests a user would have."""

from __future__ import annotations

import ast
import doctest
import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Example:
    """One visible example: `call` is Python source, `expected` the literal it should give."""

    call: str
    expected: str


_ARROW = re.compile(r"\s*(?:=+>|==|-+>|➞|→|=|(?:should |would |must )?(?:returns?|gives?|be|is|equals?)(?: to)?:?)\s*")
_FOR_OUTPUT = re.compile(
    r"^\s*(?:for|given)\b:?\s*(.+?)[,;]?\s+"
    r"(?:the )?(?:output|result|answer)\s+(?:should be|must be|would be|is|:)\s*(.+)$",
    re.IGNORECASE,
)
_INPUT_OUTPUT = re.compile(r"\bInput:[ \t]*([^\n]+)\n\s*Output:[ \t]*([^\n]+)")
_ASSIGNED = re.compile(r"^[A-Za-z_]\w*\s*=\s*")


def find_examples(docstring: str, entry_point: str) -> list[Example]:
    """Examples in the forms docstrings use.

    Known forms: doctest, `f(x) == y`, `f(x) -> y`, `f(x) returns y`, `For x the output is y`,
    `Input: x` above `Output: y`.

    Args:
        docstring: the text of the problem.
        entry_point: the function whose calls count.

    Returns:
        Examples in order of appearance, without repeats. Only calls with a literal right side count:
        prose that merely mentions the function is left alone.
    """
    found: list[Example] = []
    try:
        for item in doctest.DocTestParser().get_examples(docstring):
            if item.want.strip() and entry_point in item.source:
                _add(found, item.source.strip(), item.want.strip())
    except ValueError:  # inconsistent indentation: the line forms below still apply
        pass
    for line in docstring.splitlines():
        if line.lstrip().startswith(">>>"):
            line = line.lstrip()[3:]
        for match in re.finditer(rf"\b{re.escape(entry_point)}\(", line):
            end = _closing(line, match.end() - 1)
            if end is None:
                continue
            arrow = _ARROW.match(line, end)
            if arrow:
                _add(found, line[match.start() : end], line[arrow.end() :])
        said = _FOR_OUTPUT.match(line)
        if said:
            arguments = ", ".join(_ASSIGNED.sub("", part) for part in re.split(r"\s+and\s+", said.group(1)))
            _add(found, f"{entry_point}({arguments})", said.group(2))
    for given, output in _INPUT_OUTPUT.findall(docstring):
        _add(found, f"{entry_point}({given.strip()})", output)
    return found


def _closing(line: str, start: int) -> int | None:
    """Index just past the bracket that closes the one at `start`; strings are skipped."""
    depth, quote, i = 0, "", start
    while i < len(line):
        char = line[i]
        if quote:
            if char == "\\":
                i += 1
            elif char == quote:
                quote = ""
        elif char in "'\"":
            quote = char
        elif char in "([{":
            depth += 1
        elif char in ")]}":
            depth -= 1
            if depth == 0:
                return i + 1
        i += 1
    return None


def _add(found: list[Example], call: str, right: str) -> None:
    literal = _leading_literal(right)
    if literal is None:
        return
    if not _is_literal_call(call):
        return
    if all(call != known.call for known in found):
        found.append(Example(call, literal))


def _leading_literal(text: str) -> str | None:
    """The longest prefix of `text` that is a Python literal, or None."""
    text = text.strip()
    text = re.sub(r"^(true|false)\b", lambda m: m.group(1).capitalize(), text)
    for end in range(len(text), 0, -1):
        candidate = text[:end].strip()
        try:
            ast.literal_eval(candidate)
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            continue
        rest = text[end:]
        if rest[:1].isalnum() or re.match(r"\s*[-+*/%<>=]", rest):
            return None  # an expression or a word goes on: what follows is no plain literal
        return candidate
    return None


def _is_literal_call(source: str) -> bool:
    """True for a call whose arguments are all literals, possibly wrapped in other calls."""
    try:
        node = ast.parse(source, mode="eval").body
    except (SyntaxError, ValueError):
        return False
    return isinstance(node, ast.Call) and all(_is_value(arg) for arg in [*node.args, *(k.value for k in node.keywords)])


def _is_value(node: ast.expr) -> bool:
    if isinstance(node, ast.Call):
        return all(_is_value(arg) for arg in node.args)
    try:
        ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return False
    return True
