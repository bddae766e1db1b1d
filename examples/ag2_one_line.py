"""An AG2 group chat whose every LLM call goes to the model that steproute chooses. The one line is `attach(router, hub)`.

It needs ag2 >= 1.0 (pip install 'steproute[ag2]') and any OpenAI-compatible server that has both models, e.g. Ollama:

    python examples/ag2_one_line.py http://127.0.0.1:11434/v1 qwen2.5-coder:0.5b qwen2.5-coder:7b
"""

import asyncio
import os
import sys

from ag2 import Agent
from ag2.config import OpenAIConfig
from ag2.knowledge import MemoryKnowledgeStore
from ag2.network import EV_PACKET, Hub, HubClient, LocalLink, Passport, TransitionGraph

from steproute import Budget, Model, Price, Router
from steproute.plugins.ag2 import attach

BASE_URL = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:11434/v1"
SMALL, LARGE = sys.argv[2:4] if len(sys.argv) > 3 else ("qwen2.5-coder:0.5b", "qwen2.5-coder:7b")


async def main() -> None:
    router = Router(
        models=[
            Model("small", deployment=SMALL, price=Price(input=0.1, output=0.2), size_b=0.5),
            Model("large", deployment=LARGE, price=Price(input=1, output=2), size_b=7),
        ],
        budget=Budget(usd=0.05),
        seed=0,
    )

    async with await Hub.open(MemoryKnowledgeStore()) as hub:
        config = OpenAIConfig(model=LARGE, base_url=BASE_URL, api_key=os.environ.get("OPENAI_API_KEY", "none"))
        for name, prompt in (("coder", "You write Python."), ("critic", "You review Python in one sentence.")):
            await hub.register(Agent(name, prompt, config=config), attach_plugin=False)
        user = await HubClient(LocalLink(hub)).register_human(Passport(name="user"))

        attachment = attach(router, hub)  # the one line

        order = [user.agent_id, *(hub.name_to_id_map()[name] for name in ("coder", "critic"))]
        graph = TransitionGraph.sequence(order).to_dict()
        channel = await user.open(type="workflow", target=["coder", "critic"], knobs={"graph": graph})
        await channel.send("Write a function that reverses a string.")
        while (message := await user.next_envelope(timeout=300)).event_type != "ag2.channel.closed":
            if message.event_type == EV_PACKET:
                print(f"{hub.name_for(message.sender_id)}: {message.event_data['body']}\n")
        await user.hub_client.close()

    for (model, role), row in attachment.meter.rows.items():
        print(f"{role:8} {model:6} {row.calls} call  {row.tokens:5} tokens  ${row.usd:.6f}  {row.seconds:.1f} s")


asyncio.run(main())
