"""Fixtures with the fake servers. Use: `from servers.fixtures import *` in a conftest.py, or in a test module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from servers.ollama_server import OllamaServer
from servers.openai_server import OpenAIServer

__all__ = ["ollama_server", "openai_server"]


@pytest.fixture
def openai_server() -> Iterator[OpenAIServer]:
    with OpenAIServer() as server:
        yield server


@pytest.fixture
def ollama_server() -> Iterator[OllamaServer]:
    with OllamaServer() as server:
        yield server
