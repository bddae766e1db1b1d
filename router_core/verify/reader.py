"""Read the text of a literal that untrusted code may have written. Its source is also run by the tester."""

from __future__ import annotations

from steproute.verify.literals import MAX_DEPTH, NotALiteral

_LONG_DIGITS = 4_000
_DIGITS = frozenset("0123456789")
MAX_VALUES = 2_000_000  # a hostile text of a few megabytes would else fill gigabytes
_SPACES = frozenset(" \n\t\r")
_HEX = frozenset("0123456789abcdefABCDEF")
_SIMPLE_ESCAPES = {"\\": "\\", "'": "'", '"': '"', "n": "\n", "r": "\r", "t": "\t"}
_CODE_ESCAPES = {"x": 2, "u": 4, "U": 8}
_WORDS = {"None": None, "True": True, "False": False, "Ellipsis": ...}


def loads(text: str) -> object:
    """Read the text of a literal, as `dumps` or `repr` write it, in linear time and without evaluating anything.

    Unlike `ast.literal_eval` it takes `inf`, `nan` and integers of any length, and never overflows the stack.

    Raises:
        NotALiteral: the text is no such literal, nests deeper than 100 or holds more than 2 million values.
    """
    reader = _Reader(text)
    value = reader.value(0)
    reader.space()
    if reader.at != len(text):
        raise reader.error()
    return value


class _Reader:
    """A recursive-descent reader; `at` is the index of the next character."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.count = 0

    def error(self) -> NotALiteral:
        return NotALiteral(f"no literal at character {self.at}: {self.text[self.at : self.at + 20]!r}")

    def space(self) -> None:
        while self.text[self.at : self.at + 1] in _SPACES:
            self.at += 1

    def accept(self, token: str) -> bool:
        self.space()
        if self.text.startswith(token, self.at):
            self.at += len(token)
            return True
        return False

    def expect(self, token: str) -> None:
        if not self.accept(token):
            raise self.error()

    def value(self, depth: int) -> object:
        if depth > MAX_DEPTH:
            raise NotALiteral(f"nested deeper than {MAX_DEPTH}")
        self.count += 1
        if self.count > MAX_VALUES:
            raise NotALiteral(f"more than {MAX_VALUES} values")
        self.space()
        char = self.text[self.at : self.at + 1]
        if char in _DIGITS or char == "-":
            return self.number()
        if char == "[":
            return self.items("[", "]", depth)[0]
        if char == "(":
            return self.parenthesis(depth)
        if char == "{":
            return self.braces(depth)
        if char and char in "'\"":
            return self.string()
        if char == "b":
            self.at += 1
            try:
                return self.string().encode("latin-1")
            except UnicodeEncodeError:  # a character that is no byte
                raise self.error() from None
        if self.text.startswith("set()", self.at):
            self.at += 5
            return set()
        for word, constant in _WORDS.items():
            if self.text.startswith(word, self.at):
                self.at += len(word)
                return constant
        return self.number()

    def items(self, opening: str, closing: str, depth: int) -> tuple[list[object], bool]:
        """The values between two brackets, and whether a comma followed the last."""
        self.expect(opening)
        found: list[object] = []
        comma = False
        while not self.accept(closing):
            if found and not comma:
                raise self.error()
            found.append(self.value(depth + 1))
            comma = self.accept(",")
        return found, comma

    def parenthesis(self, depth: int) -> object:
        found, comma = self.items("(", ")", depth)
        return found[0] if len(found) == 1 and not comma else tuple(found)

    def braces(self, depth: int) -> object:
        self.expect("{")
        if self.accept("}"):
            return {}
        keys: list[object] = []
        values: list[object] = []
        while True:
            keys.append(self.value(depth + 1))
            if self.accept(":"):
                values.append(self.value(depth + 1))
            if values and len(values) != len(keys):
                raise self.error()
            comma = self.accept(",")
            if self.accept("}"):
                break
            if not comma:
                raise self.error()
        try:
            return dict(zip(keys, values, strict=True)) if values else set(keys)
        except TypeError as error:
            raise NotALiteral(str(error)) from None  # an unhashable key or member

    def string(self) -> str:
        quote = self.text[self.at : self.at + 1]
        if not quote or quote not in "'\"":
            raise self.error()
        self.at += 1
        parts: list[str] = []
        while True:
            end = self.text.find(quote, self.at)
            if end < 0:
                raise self.error()
            escape = self.text.find("\\", self.at, end)
            if escape < 0:
                parts.append(self.text[self.at : end])
                self.at = end + 1
                return "".join(parts)
            parts.append(self.text[self.at : escape])
            self.at = escape + 1
            parts.append(self.escape())

    def escape(self) -> str:
        char = self.text[self.at : self.at + 1]
        width = _CODE_ESCAPES.get(char, 0)
        code = self.text[self.at + 1 : self.at + 1 + width]
        if char in _SIMPLE_ESCAPES:
            self.at += 1
            return _SIMPLE_ESCAPES[char]
        if not width or len(code) != width or not _HEX.issuperset(code) or int(code, 16) > 0x10FFFF:
            raise self.error()
        self.at += 1 + width
        return chr(int(code, 16))

    def run(self, allowed: frozenset[str]) -> str:
        start = end = self.at
        text, length = self.text, len(self.text)
        while end < length and text[end] in allowed:
            end += 1
        self.at = end
        return text[start:end]

    def number(self) -> int | float | complex:
        first = self.part()
        if isinstance(first, complex) or self.text[self.at : self.at + 1] not in ("+", "-"):
            return first
        second = self.part()
        if not isinstance(second, complex):
            raise self.error()  # a sum of two reals is an expression, no literal
        return complex(first, second.imag)

    def part(self) -> int | float | complex:
        """One signed number: an integer, a float, or the imaginary part of a complex number."""
        char = self.text[self.at : self.at + 1]
        sign = -1 if char == "-" else 1
        if char in ("+", "-"):
            self.at += 1
            char = self.text[self.at : self.at + 1]
        number: int | float
        if char in ("i", "n") and (word := self.text[self.at : self.at + 3]) in ("inf", "nan"):
            number = float(word)
            self.at += 3
        elif char == "0" and self.text.startswith("0x", self.at):
            self.at += 2
            digits = self.run(_HEX)
            if not digits:
                raise self.error()
            number = int(digits, 16)
        else:
            number = self.decimal()
        if self.text[self.at : self.at + 1] == "j":
            self.at += 1
            return complex(0.0, sign * number)
        return sign * number

    def decimal(self) -> int | float:
        first = self.at
        digits = self.run(_DIGITS)
        is_float = self.text[self.at : self.at + 1] == "."
        if is_float:
            self.at += 1
            digits += self.run(_DIGITS)
        if not digits:
            raise self.error()
        if self.text[self.at : self.at + 1] in ("e", "E"):
            is_float = True
            self.at += 1
            if self.text[self.at : self.at + 1] in ("+", "-"):
                self.at += 1
            if not self.run(_DIGITS):
                raise self.error()
        return float(self.text[first : self.at]) if is_float else _integer(digits)


def _integer(digits: str) -> int:
    """`int(digits)` for any length: halves are joined, so that no part meets the interpreter's limit."""
    if len(digits) <= _LONG_DIGITS:
        return int(digits)
    half = len(digits) // 2
    shift: int = 10**half
    return _integer(digits[:-half]) * shift + _integer(digits[-half:])
