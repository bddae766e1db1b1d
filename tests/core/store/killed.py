"""A host that can be killed: it goes on wherever the store is and reports every decision through a pipe."""

from __future__ import annotations

from multiprocessing.connection import Connection

import world
from registry import RECORDING, spec


def play(path: str, policy: str, tasks: int, pipe: Connection) -> None:
    router = world.make(world.store(path, snapshot_every=60), spec(policy))
    for line in world.run(router, tasks, extra=RECORDING if policy == "oracle" else None):
        pipe.send(line)
    router.close()
    pipe.send(dict(router.accounts.queues))
    pipe.close()
