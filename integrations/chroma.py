"""Experience memory in Chroma: in a folder, or on a server that several hosts share (extra `chroma`)."""

from __future__ import annotations

import json
import time
import uuid
from collections import deque
from collections.abc import Iterator, Mapping
from threading import RLock
from typing import Any

import numpy as np

from steproute.embed import Vectors
from steproute.errors import ConfigError
from steproute.memory import CAPACITY, Experience, Neighbour, check_dim, unit

_OVERFETCH = 32
"""Asked for beyond k, so that ties at the k-th place are broken as the exact memory breaks them."""
_SPACE = {"hnsw:space": "ip", "hnsw:search_ef": 256, "hnsw:construction_ef": 256, "hnsw:M": 32}


class ChromaMemory:
    """The same answers as `ExactMemory` up to the recall of Chroma's HNSW index; embeddings come back at unit length.

    Several processes may share one server: each sees the others' experiences. Chroma's own embedding function and its
    telemetry stay off, and nothing is filtered by Chroma (a broad `where` is some 30 times slower than none).
    """

    def __init__(
        self,
        dim: int,
        capacity: int = CAPACITY,
        *,
        path: str | None = None,
        host: str | None = None,
        port: int = 8000,
        ssl: bool = False,
        headers: Mapping[str, str] | None = None,
        collection: str = "steproute",
        embedder: str = "",
    ):
        """Open the collection, or make it.

        Args:
            dim: length of the embeddings.
            capacity: most experiences held; the oldest leave first.
            path: folder of an embedded database.
            host: server to use instead; neither = in this process only, lost at its end.
            port: the server's port.
            ssl: speak HTTPS to the server.
            headers: sent to the server, e.g. an authorization.
            collection: its name.
            embedder: name of the embedder, so that vectors of two embedders of one dimension are never mixed.

        Raises:
            ConfigError: `path` and `host` are both given, or the collection holds vectors of another dimension or embedder.
            ImportError: Chroma is not installed.
        """
        try:
            import chromadb
            from chromadb.config import Settings
        except ImportError as error:
            raise ImportError("the Chroma memory needs the extra: pip install 'steproute[chroma]'") from error
        if dim < 1 or capacity < 1:
            raise ConfigError(f"memory: dim and capacity: seen {dim!r} and {capacity!r}; allowed: 1 or more")
        if path is not None and host is not None:
            raise ConfigError(f"memory: path and host: seen {path!r} and {host!r}; allowed: one of them")
        settings = Settings(anonymized_telemetry=False)
        client: Any
        if host is not None:
            client = chromadb.HttpClient(host=host, port=port, ssl=ssl, headers=dict(headers or {}), settings=settings)
        elif path is not None:
            client = chromadb.PersistentClient(path=path, settings=settings)
        else:
            client = chromadb.EphemeralClient(settings=settings)
        self.dim, self.capacity = dim, capacity
        self._lock = RLock()
        self._collection = client.get_or_create_collection(
            collection,
            embedding_function=None,
            metadata={**_SPACE, "steproute_dim": dim, "steproute_embedder": embedder},
        )
        stored = self._collection.metadata or {}
        check_dim(int(stored.get("steproute_dim", dim)), dim, f"memory {collection!r}", f"embedder {embedder!r}")
        before = stored.get("steproute_embedder", "")
        if before and embedder and before != embedder:
            raise ConfigError(
                f"memory {collection!r} holds vectors of embedder {before!r}; seen {embedder!r}; "
                "use the embedder it was filled with, or another collection"
            )
        self._ids: deque[str] = deque()
        self._sync()

    def __len__(self) -> int:
        return int(self._collection.count())

    def __iter__(self) -> Iterator[Experience]:
        found = self._collection.get(include=["embeddings", "metadatas"])
        order = sorted(range(len(found["ids"])), key=lambda i: found["ids"][i])
        return iter([_experience(found["embeddings"][i], found["metadatas"][i]) for i in order])

    def add(self, experience: Experience) -> None:
        """See `ExperienceMemory.add`."""
        check_dim(self.dim, experience.embedding.shape[0], "memory", "the experience's embedding")
        with self._lock:
            # Ids sort by age, also after a clock that jumped back and beside other writers.
            latest = int(self._ids[-1].partition("-")[0]) if self._ids else 0
            key = f"{max(time.time_ns(), latest + 1):020d}-{uuid.uuid4().hex[:8]}"
            self._collection.add(
                ids=[key],
                embeddings=[unit(experience.embedding).tolist()],
                metadatas=[
                    {
                        "model": experience.model,
                        "score": experience.score,
                        "cost": json.dumps(dict(experience.cost)),
                        "trace": json.dumps(dict(experience.trace)),
                    }
                ],
            )
            self._ids.append(key)
            if len(self._ids) != self._collection.count():
                self._sync()
            surplus = len(self._ids) - self.capacity
            if surplus > 0:
                self._collection.delete(ids=[self._ids.popleft() for _ in range(surplus)])

    def nearest(self, embedding: Vectors, k: int = 10) -> list[Neighbour]:
        """See `ExperienceMemory.nearest`."""
        check_dim(self.dim, embedding.shape[0], "memory", "the query's embedding")
        held = len(self)
        if held == 0 or k < 1:
            return []
        found = self._collection.query(
            query_embeddings=[unit(embedding).tolist()],
            n_results=min(k + _OVERFETCH, held),
            include=["embeddings", "metadatas", "distances"],
        )
        ids = found["ids"][0]
        likeness = np.round(1.0 - np.asarray(found["distances"][0], dtype=np.float64), 6)
        order = sorted(range(len(ids)), key=lambda i: ids[i], reverse=True)
        order.sort(key=lambda i: -likeness[i])
        return [
            Neighbour(_experience(found["embeddings"][0][i], found["metadatas"][0][i]), float(likeness[i]))
            for i in order[:k]
        ]

    def _sync(self) -> None:
        """Read the ids anew: other processes may have added and dropped some."""
        self._ids = deque(sorted(self._collection.get(include=[])["ids"]))


def _experience(embedding: Any, row: Mapping[str, Any]) -> Experience:
    return Experience(
        np.asarray(embedding, dtype=np.float32),
        str(row["model"]),
        float(row["score"]),
        json.loads(row["cost"]),
        json.loads(row["trace"]),
    )
