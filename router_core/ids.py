"""Names of tasks, decisions and calls."""

from __future__ import annotations

import os


def new_id() -> str:
    """A name that nothing else has: 128 random bits in hexadecimal, as `uuid4` gives them at four times the price."""
    return os.urandom(16).hex()


def sound(name: str) -> str:
    """A name that JSON and every database can hold: zero bytes and halves of surrogate pairs are replaced."""
    if name.isascii() and "\x00" not in name:
        return name
    return name.replace("\x00", "�").encode("utf-8", "replace").decode()
