"""Numbers drawn in blocks are those of the generator, whoever asks, and outlast a restart."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from steproute.draws import BLOCK, Draws

portions = st.lists(st.one_of(st.integers(0, 7), st.integers(BLOCK - 2, 2 * BLOCK + 3), st.just(-1)), max_size=12)
"""How many numbers are taken at once; −1 = something else is drawn from the generator itself."""


def test_one_by_one_they_are_those_of_the_seed() -> None:
    draws, plain = Draws(7), np.random.default_rng(7)
    assert [draws.random(1)[0] for _ in range(3)] == [0.625095466604667, 0.8972138009695755, 0.7756856902451935]
    assert plain.random(3).tolist() == [0.625095466604667, 0.8972138009695755, 0.7756856902451935]


@given(portions, st.integers(0, 11))
def test_the_stream_is_the_generators_in_any_portions_and_after_a_restart(taken: list[int], cut: int) -> None:
    draws, plain = Draws(3), np.random.default_rng(3)
    for number, n in enumerate(taken):
        if number == cut:
            kept, draws = draws.state(), Draws(99)
            draws.load(kept)
        if n < 0:
            assert draws.generator.integers(10, dtype=np.int32) == plain.integers(10, dtype=np.int32)
        else:
            assert draws.random(n) == plain.random(n).tolist()
    assert draws.generator.standard_normal() == plain.standard_normal()


def test_a_state_of_an_older_store_is_read_and_a_foreign_one_left_alone() -> None:
    plain = np.random.default_rng(5)
    plain.random(10)
    state = plain.bit_generator.state
    draws = Draws(1)
    draws.load(f"{state['state']['state']:x} 0 0 {state['state']['inc']:x} PCG64")
    assert draws.random(2) == plain.random(2).tolist()
    before = draws.state()
    draws.load("1 0 0 2 MT19937")
    assert draws.state() == before
