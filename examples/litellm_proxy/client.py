"""A client of the proxy: any OpenAI client; two headers say whose calls these are.

export UPSTREAM=… UPSTREAM_KEY=… LITELLM_MASTER_KEY=sk-… STEPROUTE_CONFIG=examples/litellm_proxy/steproute.yaml
litellm --config examples/litellm_proxy/config.yaml --port 4000 &
python examples/litellm_proxy/client.py http://127.0.0.1:4000
"""

from __future__ import annotations

import os
import sys

import openai

client = openai.OpenAI(base_url=f"{sys.argv[1]}/v1", api_key=os.environ["LITELLM_MASTER_KEY"], max_retries=0)

for role, text in [("planner", "Plan the fix of issue 42."), ("coder", "Write it."), ("reviewer", "Review it.")]:
    try:
        raw = client.chat.completions.with_raw_response.create(
            model="team",
            messages=[{"role": "user", "content": text}],
            max_tokens=400,
            extra_headers={"x-steproute-task": "issue-42", "x-steproute-role": role},
        )
    except openai.RateLimitError as error:
        sys.exit(f"the task's budget is used up: {error.response.json()['error']['message']}")
    said = {
        name: raw.headers.get(f"x-steproute-{name}", "?") for name in ("model", "progress", "task-spent-usd", "reason")
    }
    print(f"{role:9} {raw.parse().choices[0].message.content!r:12} {said}")
