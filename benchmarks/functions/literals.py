"""Give back to arguments read from JSON the types that JSON has no words for, by the example a problem shows."""

from __future__ import annotations

import ast
from collections.abc import Sequence

_NOTHING = object()


def example_arguments(statements: str, entry_point: str) -> list[object] | None:
    """Arguments of the first call of the function with literals in a piece of Python; None = there is none."""
    try:
        tree = ast.parse(statements)
    except SyntaxError:
        return None
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == entry_point:
            try:
                return [_literal(argument) for argument in node.args]
            except ValueError:
                continue
    return None


def _literal(node: ast.expr) -> object:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("set", "complex"):
        if not node.args:
            return set() if node.func.id == "set" else 0j
        return set() if node.func.id == "set" else 1j
    return ast.literal_eval(node)


def typed(value: object, example: object) -> object:
    """`value` with lists made tuples or sets, texts made complex numbers and keys made numbers where the example has them.

    Nested values follow the example's element at the same place where both are of the same length, else the first
    element of the example that is a container.
    """
    if example is _NOTHING:
        return value
    if isinstance(example, complex) and isinstance(value, (str, int, float)):
        return complex(value.replace(" ", "") if isinstance(value, str) else value)
    if isinstance(value, list) and isinstance(example, (list, tuple, set, frozenset)):
        items = list(example)
        patterns = items if len(items) == len(value) else [_pattern(items)] * len(value)
        made = [typed(item, pattern) for item, pattern in zip(value, patterns, strict=True)]
        if isinstance(example, tuple):
            return tuple(made)
        return set(made) if isinstance(example, (set, frozenset)) else made
    if isinstance(value, dict) and isinstance(example, dict):
        pattern = _pattern(list(example.values()))
        numbers = bool(example) and all(isinstance(key, int) for key in example)
        return {int(key) if numbers else key: typed(item, example.get(key, pattern)) for key, item in value.items()}
    return value


def _pattern(examples: Sequence[object]) -> object:
    containers = [item for item in examples if isinstance(item, (list, tuple, set, frozenset, dict, complex))]
    return containers[0] if containers else _NOTHING
