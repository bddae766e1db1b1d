"""Literals cross the wall unchanged; nothing else does."""

import collections
import enum
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steproute.verify.literals import NotALiteral, dumps
from steproute.verify.reader import loads

hashables = st.recursive(
    st.none()
    | st.booleans()
    | st.just(...)
    | st.integers()
    | st.floats(allow_nan=False)
    | st.complex_numbers(allow_nan=False)
    | st.text(st.characters())
    | st.binary(),
    lambda inner: st.lists(inner, max_size=4).map(tuple),
    max_leaves=8,
)
values = st.recursive(
    hashables,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.sets(hashables, max_size=4)
        | st.dictionaries(hashables, inner, max_size=4)
    ),
    max_leaves=20,
)


@given(values)
def test_round_trip(value):
    text = dumps(value)
    assert text.isascii()
    assert "\n" not in text
    back = loads(text)
    assert back == value
    assert type(back) is type(value)


@given(values)
def test_reads_what_repr_writes(value):
    assert loads(repr(value)) == value


@pytest.mark.parametrize("text", ["inf", "-inf", "[inf, -inf]"])
def test_infinities(text):
    assert dumps(loads(text)) == text


def test_nan():
    assert math.isnan(loads("nan"))
    assert dumps(float("nan")) == "nan"
    both = loads("(nan+infj)")
    assert math.isnan(both.real)
    assert both.imag == math.inf


@pytest.mark.parametrize("sign", [1, -1])
def test_integers_beyond_the_interpreters_limit(sign):
    number = sign * 7**20_000  # 16,902 digits
    text = dumps(number)
    assert text.lstrip("-").startswith("0x")
    assert loads(text) == number


def test_long_decimal_text():
    assert loads("9" * 10_000) == 10**10_000 - 1


@pytest.mark.parametrize("text", ["'\\ud800'", "'\\x00ÿ'", "b'\\xff'", '"it\'s"', "'\U0001f600é'"])
def test_strings(text):
    assert repr(loads(text)) == text


def test_parenthesised_value_is_no_tuple():
    assert loads("(1)") == 1
    assert loads("(1,)") == (1,)
    assert loads("()") == ()
    assert loads(" [ 1 ,\n 2 , ] ") == [1, 2]


@pytest.mark.parametrize(
    "text",
    [
        *("", "[", "[1 2]", "[,]", "(,)", "[1]]", "1 2", "1+2", "1-2", "+", "-", "0x", "1e", "1.2.3", "1_000", "１"),
        *("f(1)", "__import__('os')", "a", "True1", "infinite", "set([1])", "frozenset({1})", "<object>", "lambda: 1"),
        *("'a", "'\\q'", "'\\x4'", "'\\U00110000'", "b'Ā'", "'a''b"),
        *("{1: 2, 3}", "{1, 2: 3}", "{1:}", "{[1]: 2}", "{[1]}", "{{1}}"),
        *("[" * 5_000, "(" * 102 + ")" * 102, "-" * 5_000 + "1"),
    ],
)
def test_no_literals(text):
    with pytest.raises(NotALiteral):
        loads(text)


class Liar(int):
    def __eq__(self, other):
        return True

    def __hash__(self):
        return 0

    def __repr__(self):
        return "42"

    def __index__(self):
        return 42

    def bit_length(self):
        return 0


class LyingList(list):
    def __iter__(self):
        return iter([42])

    def __len__(self):
        return 1


class Pretender:
    __class__ = int

    def __eq__(self, other):
        return True

    def __hash__(self):
        return 0


class Colour(enum.IntEnum):
    RED = 3


def test_a_subclass_is_the_data_it_holds():
    assert dumps(Liar(7)) == "7"
    assert dumps(LyingList([1, 2])) == "[1, 2]"
    assert dumps(Colour.RED) == "3"
    assert dumps(collections.Counter("aab")) == "{'a': 2, 'b': 1}"
    assert dumps(collections.defaultdict(list, {1: [2]})) == "{1: [2]}"
    assert dumps(collections.namedtuple("P", "x y")(1, 2)) == "(1, 2)"
    assert dumps(frozenset({1})) == "{1}"
    assert dumps(frozenset()) == "set()"
    assert dumps(bytearray(b"a")) == "b'a'"


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (object(), "object"),
        (Pretender(), "Pretender"),
        (range(3), "range"),
        ((x for x in [1]), "generator"),
        ([1, map(str, [])], "map"),
        ({1: len}, "builtin_function_or_method"),
        (int, "type"),
    ],
)
def test_what_does_not_cross(value, named):
    with pytest.raises(NotALiteral, match=f"^{named}$"):
        dumps(value)


def test_a_cycle_ends():
    cycle: list[object] = []
    cycle.append(cycle)
    with pytest.raises(NotALiteral, match="deeper than 100"):
        dumps(cycle)
