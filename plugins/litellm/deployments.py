"""Which model of the pool stands behind each of LiteLLM's deployments, and which of them a request may go to."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from steproute.models import Model
from steproute.plugins.litellm.prices import can, longest_prompt, price_of
from steproute.router import Router

logger = logging.getLogger("steproute")

Deployment = Mapping[str, Any]


class Known(NamedTuple):
    """What is known of a deployment."""

    id: str
    """LiteLLM's."""
    model: str
    """Name of its model in the pool."""
    longest: int | None
    """Longest prompt in tokens, None where nobody says."""


Offer = tuple[Deployment, Known]
"""A deployment that LiteLLM offers."""


class Deployments:
    """Names deployments by models of the router's pool; one that fits none is added to it. Safe between threads."""

    def __init__(self, router: Router):
        self._router = router
        self._known: dict[tuple[str, str], Known] = {}
        """By id and model, since a deployment with a wildcard stands for many models."""
        self._lock = threading.Lock()

    def known(self, deployment: Deployment) -> Known:
        """What is known of a deployment. Its model is the one `model_info.steproute` names, else the one whose name or
        deployment is the deployment's id, its LiteLLM model (with or without provider), or its group."""
        params, info = deployment.get("litellm_params") or {}, deployment.get("model_info")
        model = str(params.get("model") or "")
        key = str((info.get("id") if isinstance(info, (dict, Mapping)) else None) or model), model
        known = self._known.get(key)
        if known is None or known.model not in self._router.pool:
            with self._lock:
                name = self._find(deployment) or self._add(deployment)
                known = self._known[key] = Known(key[0], name, longest_prompt(deployment))
        return known

    def price_unknown(self, name: str) -> bool:
        """Whether a model of the pool has no price."""
        model = self._router.pool.resolve(name)
        return model is None or model.known_price is None

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


def admissible(offers: Sequence[Offer], tags: Sequence[str], tokens: int) -> Sequence[Offer]:
    """Leave out what LiteLLM would refuse after our choice: other tags, a later `order`, too short a context window.

    Where a rule would leave nothing it is passed over: LiteLLM then decides, and says what is wrong.

    Args:
        offers: all there are.
        tags: the request's.
        tokens: of the prompt.
    """
    offers = _tagged(offers, tags) or offers
    offers = [offer for offer in offers if (longest := offer[1].longest) is None or tokens <= longest] or offers
    return _first_in_order(offers)


def _tagged(offers: Sequence[Offer], tags: Sequence[str]) -> Sequence[Offer]:
    """Deployments with one of the request's tags, else those tagged `default`; untagged requests likewise."""
    carried = [(deployment.get("litellm_params") or {}).get("tags") for deployment, _ in offers]
    if not any(carried):
        return offers
    wanted = set(tags)
    own = [{str(tag) for tag in item} if isinstance(item, (list, tuple)) else set() for item in carried]
    matching = [offer for offer, has in zip(offers, own, strict=True) if wanted & has]
    return matching or [offer for offer, has in zip(offers, own, strict=True) if "default" in has]


def _first_in_order(offers: Sequence[Offer]) -> Sequence[Offer]:
    orders = [(deployment.get("litellm_params") or {}).get("order") for deployment, _ in offers]
    given = [order for order in orders if isinstance(order, int)]
    return [offer for offer, order in zip(offers, orders, strict=True) if order == min(given)] if given else offers
