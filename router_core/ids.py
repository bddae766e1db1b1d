"""Names of tasks, decisions and calls."""

from __future__ import annotations

import os
import random

_RANDOM = random.Random()  # of its own: a host that seeds `random` must not make names repeat
if hasattr(os, "register_at_fork"):  # nor may two workers draw the same
    os.register_at_fork(after_in_child=_RANDOM.seed)


def new_id() -> str:
    """A name that nothing else has: 128 random bits in hexadecimal.

    The operating system is asked once and not for every name: its answer lets other threads run in between, and a call of
    a proxy waited for them three times.
    """
    return f"{_RANDOM.getrandbits(128):032x}"


def sound(name: str) -> str:
    """A name that JSON and every database can hold: zero bytes and halves of surrogate pairs are replaced."""
    if name.isascii() and "\x00" not in name:
        return name
    return name.replace("\x00", "�").encode("utf-8", "replace").decode()
