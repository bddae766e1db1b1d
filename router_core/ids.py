"""Names of tasks, decisions and calls."""

from __future__ import annotations

import os


def new_id() -> str:
    """A name that nothing else has: 128 random bits in hexadecimal, as `uuid4` gives them at four times the price."""
    return os.urandom(16).hex()
