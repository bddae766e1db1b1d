"""A model server that costs next to nothing, for measuring what stands before it: one answer over HTTP/1.1.

The answer names the model that was asked for, as real servers do: LiteLLM looks its price up a second time under any
other name, and a benchmark would then measure which deployments were chosen.
"""

from __future__ import annotations

import asyncio
import json
from multiprocessing.connection import Connection
from typing import Any

_MODEL = "a-model"
_ANSWER = json.dumps(
    {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 0,
        "model": _MODEL,
        "choices": [
            {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "a reply " * 20}}
        ],
        "usage": {"prompt_tokens": 400, "completion_tokens": 60, "total_tokens": 460},
    }
).encode()


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(
                (int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), 0
            )
            body = await reader.readexactly(length) if length else b"{}"
            answer = _ANSWER.replace(_MODEL.encode(), str(json.loads(body).get("model", _MODEL)).encode())
            writer.write(
                b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(answer)
            )
            writer.write(answer)
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
