"""The built-in views by domain."""

from __future__ import annotations

from collections.abc import Mapping

from steproute.progress.answers import MathView, RetrievalView
from steproute.progress.views import CodeView, GenericView, SweView, ToolsView, View

VIEWS: Mapping[str, View] = {
    "generic": GenericView(),
    "code": CodeView(),
    "math": MathView(),
    "retrieval": RetrievalView(),
    "tools": ToolsView(),
    "swe": SweView(),
}


def view_for(domain: str, views: Mapping[str, View] = VIEWS) -> View:
    """The view of a domain; an unknown domain gets the generic one."""
    return views.get(domain, views["generic"])
