"""Names that nothing else has."""

from __future__ import annotations

import os
import random

import pytest

from steproute.ids import new_id


def test_a_name_is_128_bits_and_no_other_has_it():
    names = {new_id() for _ in range(10_000)}
    assert len(names) == 10_000
    assert {len(name) for name in names} == {32}
    assert all(int(name, 16) < 2**128 for name in names)


def test_a_host_that_seeds_its_random_numbers_gets_new_names_all_the_same():
    found = []
    for _ in range(2):
        random.seed(1)
        found.append(new_id())
    assert found[0] != found[1]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_forked_workers_draw_names_of_their_own():
    there, here = os.pipe()
    child = os.fork()
    if not child:
        os.write(here, new_id().encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(there, 32).decode() != new_id()
    os.close(there)
    os.close(here)
