"""An agent on `litellm.Router`: steproute picks the deployment of every call, LiteLLM does the rest.

python examples/litellm_sdk.py            # offline: three models that only pretend
python examples/litellm_sdk.py --live     # your own models: set the names and keys below
"""

from __future__ import annotations

import asyncio
import sys

from steproute import Budget, Model, Price, Router
from steproute.plugins.litellm import StepRouting, labels

import litellm  # isort: skip  (after steproute's plugin, which keeps LiteLLM's import off the network)

LIVE = "--live" in sys.argv
NAMES = ("small", "medium", "large")


def deployment(name: str) -> dict:
    params = (
        {"model": f"openai/{name}"}
        if LIVE
        else {"model": f"openai/{name}", "api_key": "none", "mock_response": f"{name}: done"}
    )
    return {"model_name": "team", "litellm_params": params, "model_info": {"id": name}}


async def main() -> None:
    router = Router(
        models=[
            Model("small", price=Price(input=0.1, output=0.4), size_b=8),
            Model("medium", price=Price(input=0.5, output=2.0), size_b=70),
            Model("large", price=Price(input=3.0, output=15.0), size_b=400),
        ],
        budget=Budget(usd=0.05),
        seed=0,
    )
    litellm.callbacks = [StepRouting(router)]  # the one line
    llm = litellm.Router(model_list=[deployment(name) for name in NAMES])

    with labels(task="issue-42", domain="code"):
        for role, text in [
            ("planner", "Plan the fix of issue 42."),
            ("coder", "Write it."),
            ("reviewer", "Review it."),
        ]:
            with labels(role=role):
                answer = await llm.acompletion(
                    model="team", messages=[{"role": "user", "content": text}], max_tokens=400
                )
            print(f"{role:9} {answer.choices[0].message.content}")

    while (ledger := router.ledger("issue-42")) is None or len(ledger.steps) < 3:
        await asyncio.sleep(0.01)  # LiteLLM reports outcomes a moment later
    print(f"spent ${router.spent('issue-42')['usd']:.6f} in {len(ledger.steps)} calls")
    print(router.decisions("issue-42")[-1].why())
    router.finish("issue-42", success=True)


asyncio.run(main())
