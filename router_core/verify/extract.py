"""Find the Python code in a model's reply."""

from __future__ import annotations

import ast
import re

_FENCE = re.compile(
    r"^[ \t]*(?:```|~~~)[ \t]*([\w+-]*)[^\n]*\n(.*?)(?:^[ \t]*(?:```|~~~)|\Z)", re.DOTALL | re.MULTILINE
)
_PYTHON = {"", "python", "py", "python3"}


def extract_code(reply: str, entry_point: str | None = None) -> str:
    """Return the code a reply offers, or `""` when it offers none.

    Args:
        reply: what the model wrote. A fence that is never closed counts (stop sequences cut it).
        entry_point: function the code should define; a block that defines it wins over earlier blocks.

    Returns:
        Source text without fences, right-stripped; not checked for syntax. A reply without fences
        counts only if it parses as Python with at least one statement that is more than a bare expression.
    """
    blocks: list[str] = [body.rstrip() for language, body in _FENCE.findall(reply) if language.lower() in _PYTHON]
    blocks = [block for block in blocks if block.strip()]
    if blocks:
        if entry_point is not None:
            wanted = re.compile(rf"^\s*(?:async\s+)?def\s+{re.escape(entry_point)}\s*\(", re.MULTILINE)
            for block in blocks:
                if wanted.search(block):
                    return block
        return blocks[0]
    try:
        tree = ast.parse(reply)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""
    return reply.strip("\n").rstrip() if any(not isinstance(node, ast.Expr) for node in tree.body) else ""
