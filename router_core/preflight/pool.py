"""Prices that look wrong, limits that cannot be kept, steps that no model could serve."""

from __future__ import annotations

from collections.abc import Iterator

from steproute.budget import Budget
from steproute.models import Model, ModelPool, Price
from steproute.options import foreseen
from steproute.preflight.finding import Finding

PER_TOKEN = 1e-3
"""USD per million tokens below which a price is more likely one per token."""
DEAR = 1000.0
"""USD per million tokens above which a price is more likely a mistake."""
PAID_PROVIDERS = (
    *(
        "openai/",
        "azure/",
        "azure_ai/",
        "anthropic/",
        "bedrock/",
        "vertex_ai/",
        "gemini/",
        "mistral/",
        "groq/",
        "cohere/",
    ),
    *(
        "openrouter/",
        "together_ai/",
        "fireworks_ai/",
        "deepseek/",
        "xai/",
        "perplexity/",
        "gpt-",
        "claude-",
        "o3",
        "o4",
    ),
)
"""Beginnings of deployment names that LiteLLM sends to providers who send bills."""


def check_prices(pool: ModelPool) -> Iterator[Finding]:
    """What is odd about the prices."""
    odd = 0
    for model in pool:
        for finding in _price(model):
            odd += 1
            yield finding
    if not odd:
        yield Finding("ok", "prices.ok", "models", f"{len(pool)} prices in USD per million tokens")


def _price(model: Model) -> Iterator[Finding]:
    name, price = model.name, model.price
    if not isinstance(price, Price):
        said = "the price is unknown: its calls count as much as the dearest model's; give one to compare them"
        yield Finding("warning", "prices.unknown", name, said)
        return
    highest = max(price.input, price.output)
    if 0 < highest < PER_TOKEN:
        said = f"{price.input:g} and {price.output:g} USD per million tokens: that looks like a price per token"
        yield Finding("warning", "prices.per_token", name, said)
    if highest > DEAR:
        yield Finding("warning", "prices.high", name, f"{highest:g} USD per million tokens is unusually dear")
    if 0 < price.output < price.input:
        said = f"output ({price.output:g}) is cheaper than input ({price.input:g}): are they swapped?"
        yield Finding("warning", "prices.swapped", name, said)
    if price.cached_input is not None and price.cached_input > price.input:
        said = f"a cached token ({price.cached_input:g}) costs more than an uncached one ({price.input:g})"
        yield Finding("warning", "prices.cache", name, said)
    if highest == 0 and model.provider_name.startswith(PAID_PROVIDERS):
        said = f"free, but {model.provider_name!r} looks like a paid provider's: no budget in USD will hold"
        yield Finding("warning", "prices.free", name, said)


def check_limits(pool: ModelPool, budget: Budget | None) -> Iterator[Finding]:
    """What is odd about the limits."""
    for resource, limit in (budget or Budget()).limits().items():
        if limit.limit is None:
            continue
        if limit.target is not None and limit.target > limit.limit:
            said = f"the long-run target {limit.target:g} is above the limit {limit.limit:g} of every task"
            yield Finding("warning", "limits.target", f"budget.{resource}", said)
        if not limit.hard:
            continue
        blind = [model.name for model in pool if not foreseen(model, resource)]
        if blind:
            said = f"no profile says what a call of {', '.join(blind)} takes: a first call may pass the hard limit"
            yield Finding("warning", "limits.blind", f"budget.{resource}", said)
        if resource == "usd":
            yield from _room(pool, limit.limit)


def _room(pool: ModelPool, limit: float) -> Iterator[Finding]:
    priced = [model for model in pool if isinstance(model.price, Price)]
    small = [
        model for model in priced if isinstance(model.price, Price) and model.price.usd(0, model.max_output) > limit
    ]
    for model in small:
        assert isinstance(model.price, Price)
        worst = model.price.usd(0, model.max_output)
        everything = len(small) == len(pool)
        said = f"a reply of its max_output {model.max_output} costs ${worst:.4g}, more than the hard limit ${limit:g} of a task"
        more = (
            "; no model fits a step that sets no max_tokens" if everything else "; it needs steps that set max_tokens"
        )
        yield Finding("error" if everything else "warning", "limits.room", model.name, said + more)


def check_capabilities(pool: ModelPool) -> Iterator[Finding]:
    """Steps that no model of the pool could serve."""
    found = []
    models = list(pool)
    for model in models:
        if model.context_window is not None and model.max_output >= model.context_window:
            said = f"max_output {model.max_output} leaves no room for a prompt in the context window {model.context_window}"
            found.append(Finding("warning", "capabilities.context", model.name, said))
    if all(model.roles is not None for model in models):
        roles = sorted({role for model in models for role in model.roles or ()})
        said = f"every model is for certain roles alone ({', '.join(roles) or 'none'}): any other role gets no model"
        found.append(Finding("warning", "capabilities.roles", "models", said))
    for need, field in (("tool calls", "tools"), ("structured output", "structured")):
        if not any(getattr(model, field) for model in models):
            found.append(Finding("warning", f"capabilities.{field}", "models", f"no model has {need}"))
    seen: dict[str, str] = {}
    for model in models:
        other = seen.setdefault(model.provider_name, model.name)
        if other != model.name:
            said = f"the same deployment as {other!r}: {model.provider_name!r}"
            found.append(Finding("warning", "capabilities.twice", model.name, said))
    if len(models) == 1:
        found.append(Finding("warning", "capabilities.single", models[0].name, "one model: there is nothing to choose"))
    yield from found
    if not found:
        yield Finding("ok", "capabilities.ok", "models", "every kind of step has a model")
