"""Which model of the pool stands behind each of LiteLLM's deployments, and which of them a request may go to."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from steproute.models import Model
from steproute.plugins.litellm.prices import can, longest_prompt, price_of
from steproute.router import Router

logger = logging.getLogger("steproute")

Deployment = Mapping[str, Any]
Key = tuple[str, str]


class Deployments:
    """Names deployments by models of the router's pool; one that fits none is added to it. Safe between threads."""

    def __init__(self, router: Router):
        self._router = router
        self._names: dict[Key, str] = {}
        self._limits: dict[Key, int | None] = {}
        self._lock = threading.Lock()

    def name(self, deployment: Deployment, key: Key | None = None) -> str:
        """Pool name of a deployment's model: the one `model_info.steproute` names, else the model whose name or deployment
        is the deployment's id, its LiteLLM model (with or without provider), or its group."""
        key = key_of(deployment) if key is None else key
        known = self._names.get(key)
        if known is None or known not in self._router.pool:
            with self._lock:
                known = self._names[key] = self._find(deployment) or self._add(deployment)
        return known

    def limit(self, deployment: Deployment, key: Key) -> int | None:
        """Longest prompt in tokens, None where nobody says."""
        if key not in self._limits:
            self._limits[key] = longest_prompt(deployment)
        return self._limits[key]

    def price_unknown(self, name: str) -> bool:
        """Whether a model of the pool has no price."""
        model = self._router.pool.resolve(name)
        return model is None or model.price == "unknown"

    def _find(self, deployment: Deployment) -> str | None:
        params, info = deployment.get("litellm_params") or {}, deployment.get("model_info") or {}
        model = str(params.get("model") or "")
        names = (info.get("steproute"), info.get("id"), model, model.partition("/")[2], deployment.get("model_name"))
        for name in names:
            found = self._router.pool.resolve(str(name)) if name else None
            if found is not None:
                return found.name
        return None

    def _add(self, deployment: Deployment) -> str:
        params = deployment.get("litellm_params") or {}
        name = str(params.get("model") or id_of(deployment))
        model = Model(
            name,
            price=price_of(deployment),
            tools=can(deployment, "function_calling") is not False,
            structured=can(deployment, "response_schema") is not False,
            vision=bool(can(deployment, "vision")),
        )
        self._router.pool.add(model)
        cost = "price unknown" if model.price == "unknown" else f"{model.price.input:g}/{model.price.output:g} USD/Mtok"
        logger.warning("steproute: LiteLLM's model %r is not in the pool; added with %s", name, cost)
        return name


def id_of(deployment: Deployment) -> str:
    """LiteLLM's id of a deployment."""
    info = deployment.get("model_info")
    found = info.get("id") if isinstance(info, (dict, Mapping)) else None
    return str(found or (deployment.get("litellm_params") or {}).get("model") or "")


def key_of(deployment: Deployment) -> Key:
    """What a deployment is known by: its id, and its model, since one with a wildcard stands for many models."""
    return id_of(deployment), str((deployment.get("litellm_params") or {}).get("model") or "")


def admissible(
    deployments: Sequence[Deployment], tags: Sequence[str], fits: Callable[[Deployment], bool]
) -> Sequence[Deployment]:
    """Leave out what LiteLLM would refuse after our choice: other tags, a later `order`, too short a context window.

    Where a rule would leave nothing it is passed over: LiteLLM then decides, and says what is wrong.
    """
    rules: Sequence[Callable[[Sequence[Deployment]], Sequence[Deployment]]] = (
        lambda left: _tagged(left, tags),
        lambda left: [item for item in left if fits(item)],
        _first_in_order,
    )
    for rule in rules:
        deployments = rule(deployments) or deployments
    return deployments


def _tagged(deployments: Sequence[Deployment], tags: Sequence[str]) -> Sequence[Deployment]:
    """Deployments with one of the request's tags, else those tagged `default`; untagged requests likewise."""
    carried = [_tags(item) for item in deployments]
    if not any(carried):
        return deployments
    wanted = set(tags)
    matching = [item for item, own in zip(deployments, carried, strict=True) if wanted & own]
    return matching or [item for item, own in zip(deployments, carried, strict=True) if "default" in own]


def _tags(deployment: Deployment) -> set[str]:
    tags = (deployment.get("litellm_params") or {}).get("tags")
    return {str(tag) for tag in tags} if tags and isinstance(tags, (list, tuple)) else set()


def _first_in_order(deployments: Sequence[Deployment]) -> Sequence[Deployment]:
    orders = [(item.get("litellm_params") or {}).get("order") for item in deployments]
    given = [order for order in orders if isinstance(order, int)]
    return (
        [item for item, order in zip(deployments, orders, strict=True) if order == min(given)] if given else deployments
    )
