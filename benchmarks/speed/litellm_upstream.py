"""A model server that costs next to nothing, for measuring what stands before it: one fixed answer over HTTP/1.1."""

from __future__ import annotations

import asyncio
import json
from multiprocessing.connection import Connection
from typing import Any

_ANSWER = json.dumps(
    {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 0,
        "model": "m0",
        "choices": [
            {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "a reply " * 20}}
        ],
        "usage": {"prompt_tokens": 400, "completion_tokens": 60, "total_tokens": 460},
    }
).encode()
_RESPONSE = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (
    len(_ANSWER),
    _ANSWER,
)


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(
                (int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), 0
            )
            if length:
                await reader.readexactly(length)
            writer.write(_RESPONSE)
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


def serve(port: Connection) -> None:
    """Run until terminated; the port goes through the pipe."""

    async def main() -> None:
        server: Any = await asyncio.start_server(_serve, "127.0.0.1", 0)
        port.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(main())
