"""Python literals as one line of ASCII text: the only thing that crosses a sandbox's wall.

`reader.loads` reads it back. The module imports nothing and is short, because its source is also compiled and run
inside every sandbox.
"""

from __future__ import annotations

MAX_DEPTH = 100
_LONG_BITS = 13_000  # about 3,900 digits: `int(text)` and `str(int)` refuse 4,300 and are quadratic


class NotALiteral(ValueError):
    """A value that is no literal, or a text that holds none; the message says which."""


def dumps(value: object, depth: int = 0) -> str:
    """Write a literal as one line of ASCII.

    A subclass (`defaultdict`, `Counter`, a named tuple, an `IntEnum`) is written as the plain data it holds, read with
    the base class's own methods, so that nothing it overrides (`__eq__`, `__repr__`, `__iter__`) has a say. A frozen
    set is written as the set it equals. Integers beyond 3,900 digits are written in hexadecimal.

    Raises:
        NotALiteral: anything else (an iterator, a function, an object), or nesting deeper than 100.
    """
    if depth > MAX_DEPTH:
        raise NotALiteral(f"nested deeper than {MAX_DEPTH}")
    if value is None or value is True or value is False or value is ...:
        return repr(value)
    for base, write in _WRITERS:
        if issubclass(type(value), base):  # not isinstance, which believes an object's own `__class__`
            return write(value, depth + 1)  # type: ignore[arg-type]
    raise NotALiteral(type(value).__name__)


def _int(value: int, depth: int) -> str:
    plain = int.__add__(value, 0)
    return hex(plain) if plain.bit_length() > _LONG_BITS else repr(plain)


def _float(value: float, depth: int) -> str:
    return float.__repr__(value)


def _complex(value: complex, depth: int) -> str:
    return complex.__repr__(value)


def _str(value: str, depth: int) -> str:
    return str.__repr__(value).encode("ascii", "backslashreplace").decode("ascii")


def _bytes(value: bytes, depth: int) -> str:
    return bytes.__repr__(value)


def _bytearray(value: bytearray, depth: int) -> str:
    return bytes.__repr__(b"".join([value]))


def _list(value: list[object], depth: int) -> str:
    return f"[{', '.join([dumps(item, depth) for item in list.__iter__(value)])}]"


def _tuple(value: tuple[object, ...], depth: int) -> str:
    texts = [dumps(item, depth) for item in tuple.__iter__(value)]
    return f"({texts[0]},)" if len(texts) == 1 else f"({', '.join(texts)})"


def _dict(value: dict[object, object], depth: int) -> str:
    texts = [f"{dumps(key, depth)}: {dumps(item, depth)}" for key, item in dict.items(value)]
    return "{" + ", ".join(texts) + "}"


def _set(value: set[object], depth: int) -> str:
    texts = [dumps(item, depth) for item in set.__iter__(value)]
    return "{" + ", ".join(texts) + "}" if texts else "set()"


def _frozenset(value: frozenset[object], depth: int) -> str:
    return _set(set(frozenset.__iter__(value)), depth)


_WRITERS = (
    (int, _int),
    (float, _float),
    (complex, _complex),
    (str, _str),
    (bytes, _bytes),
    (bytearray, _bytearray),
    (list, _list),
    (tuple, _tuple),
    (dict, _dict),
    (set, _set),
    (frozenset, _frozenset),
)
