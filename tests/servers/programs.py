"""Small programs that talk to a model server, one per HTTP client: what the tests record and replay."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

QUESTION = [{"role": "user", "content": "hello"}]
BODY = {"model": "small", "messages": QUESTION}
KEY = "sk-test-0123456789abcdef"
HEADERS = {"authorization": f"Bearer {KEY}"}


def use_httpx(base: str) -> list[Any]:
    import httpx

    with httpx.Client(base_url=base, headers=HEADERS) as client:
        whole = client.post("/v1/chat/completions", json=BODY).json()["choices"][0]["message"]["content"]
        with client.stream("POST", "/v1/chat/completions", json=BODY | {"stream": True}) as response:
            lines = [line for line in response.iter_lines() if line]
    return [whole, len(lines), lines[-1]]


def use_httpx2(base: str) -> list[Any]:
    import httpx2

    async def run() -> str:
        async with httpx2.AsyncClient(base_url=base, headers=HEADERS) as client:
            response = await client.post("/v1/chat/completions", json=BODY)
            return str(response.json()["choices"][0]["message"]["content"])

    return [asyncio.run(run())]


def use_requests(base: str) -> list[Any]:
    import requests

    with requests.Session() as session:
        url = f"{base}/v1/chat/completions"
        whole = session.post(url, json=BODY, headers=HEADERS).json()["choices"][0]["message"]["content"]
        with session.post(url, json=BODY | {"stream": True}, headers=HEADERS, stream=True) as response:
            lines = [line for line in response.iter_lines() if line]
        models = session.get(f"{base}/v1/models?key={KEY}").json()["data"][0]["id"]
    return [whole, len(lines), models]


def use_aiohttp(base: str) -> list[Any]:
    import aiohttp

    async def run() -> list[Any]:
        async with aiohttp.ClientSession(headers=HEADERS, cookies={"session": "cookie-4711"}) as session:
            async with session.post(f"{base}/v1/chat/completions", json=BODY) as response:
                whole = (await response.json())["choices"][0]["message"]["content"]
            async with session.post(f"{base}/v1/chat/completions", json=BODY | {"stream": True}) as response:
                lines = [line async for line in response.content if line.strip()]
        return [whole, len(lines)]

    return asyncio.run(run())


def use_openai(base: str) -> list[Any]:
    import openai

    client = openai.OpenAI(base_url=f"{base}/v1", api_key=KEY, organization="org-0A1b2C3d4E5f", max_retries=0)
    whole = client.chat.completions.create(model="small", messages=QUESTION)
    stream = client.chat.completions.create(model="small", messages=QUESTION, stream=True)
    pieces = [chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices]

    async def run() -> str:
        async with openai.AsyncOpenAI(base_url=f"{base}/v1", api_key=KEY, max_retries=0) as caller:
            answer = await caller.chat.completions.create(model="large", messages=QUESTION)
            return answer.choices[0].message.content or ""

    return [whole.choices[0].message.content, "".join(pieces), asyncio.run(run())]


PROGRAMS: dict[str, Callable[[str], list[Any]]] = {
    "httpx": use_httpx,
    "httpx2": use_httpx2,
    "requests": use_requests,
    "aiohttp": use_aiohttp,
    "openai": use_openai,
}
