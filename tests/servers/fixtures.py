"""Fixtures with servers of the tests' own. Use: `from servers.fixtures import *` in a conftest.py, or in a test module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from servers.ollama_server import OllamaServer
from servers.openai_server import OpenAIServer
from servers.postgres import PostgresServer, missing

__all__ = ["ollama_server", "openai_server", "postgres_url"]


@pytest.fixture
def openai_server() -> Iterator[OpenAIServer]:
    with OpenAIServer() as server:
        yield server


@pytest.fixture
def ollama_server() -> Iterator[OllamaServer]:
    with OllamaServer() as server:
        yield server


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """A PostgreSQL server for the whole session: `postgresql://postgres@127.0.0.1:PORT/postgres`, no password."""
    reason = missing()
    if reason:
        pytest.skip(reason)
    with PostgresServer() as server:
        yield server.url
