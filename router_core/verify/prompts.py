"""What a prompt says about the code it asks for: the function's name, what comes before it, its examples."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

from steproute.verify.examples import Example, find_examples

_FENCE = re.compile(r"^[ \t]*(?:```|~~~)[^\n]*\n(.*?)^[ \t]*(?:```|~~~)", re.DOTALL | re.MULTILINE)
_DEF = re.compile(r"^(?:async[ \t]+)?def[ \t]+([A-Za-z_]\w*)[ \t]*\(", re.MULTILINE)
_DOCSTRING = re.compile(r"(\"\"\"|''')(.*?)\1", re.DOTALL)


@dataclass(frozen=True)
class Request:
    """The function a prompt asks for."""

    entry_point: str = ""
    """Its name; empty when neither the prompt nor the code names one."""
    preamble: str = ""
    """Code the prompt shows before it: imports, given functions."""
    examples: tuple[Example, ...] = ()
    """Calls the prompt shows, with their results."""


def read_request(prompt: str, code: str) -> Request:
    """Read a prompt.

    Args:
        prompt: the user's text: a function to complete (fenced or not), or prose with examples or `assert` lines.
        code: the code that answers it; names the function where the prompt shows no definition.

    Returns:
        The last function the prompt defines, else the last one the code defines and the prompt mentions, else the last
        one the code defines.
    """
    source = next((block for block in _FENCE.findall(prompt) if _DEF.search(block)), prompt)
    defined = list(_DEF.finditer(source))
    if defined:
        last = defined[-1]
        docstring = _DOCSTRING.search(source, last.end())
        examples = find_examples(docstring.group(2), last.group(1)) if docstring else []
        return Request(
            last.group(1),
            _if_code(source[: last.start()]),
            tuple(examples or find_examples(prompt, last.group(1))),
        )
    names = _DEF.findall(code)
    mentioned = [name for name in names if re.search(rf"\b{re.escape(name)}\b", prompt)]
    name = (mentioned or names or [""])[-1]
    return Request(name, "", tuple(find_examples(prompt, name)) if name else ())


def _if_code(text: str) -> str:
    try:
        ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # prose around the function
        return ""
    return text
