"""Tools bound to a model that is not chosen yet: they wait, and are bound to each model the first time it is chosen."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, overload

from langchain_core.utils.function_calling import convert_to_openai_tool

_KEPT = 64


class QueuedTools(Sequence[dict[str, Any]]):
    """Tools with the options they were bound with. Read as a sequence they are OpenAI tool schemas.

    Frameworks look at the tools of a bound model by their schemas; the conversion is only made when one does.
    """

    def __init__(self, tools: Sequence[Any], options: Mapping[str, Any]):
        self.tools = tuple(tools)
        self.options = dict(options)
        self._schemas: list[dict[str, Any]] | None = None

    @property
    def key(self) -> tuple[Any, ...]:
        """Equal for the same tool objects bound with the same options."""
        return (*map(id, self.tools), repr(sorted(self.options.items(), key=lambda item: item[0])))

    def __len__(self) -> int:
        return len(self.tools)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self._converted())

    @overload
    def __getitem__(self, index: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[dict[str, Any]]: ...
    def __getitem__(self, index: int | slice) -> dict[str, Any] | Sequence[dict[str, Any]]:
        return self._converted()[index]

    def __repr__(self) -> str:
        return f"QueuedTools({len(self.tools)} tools)"

    def _converted(self) -> list[dict[str, Any]]:
        if self._schemas is None:
            self._schemas = [_schema(tool) for tool in self.tools]
        return self._schemas


class BoundModels:
    """What binding made of a model, kept: hosts bind the same tools before every call."""

    def __init__(self) -> None:
        self._bound: OrderedDict[tuple[Any, ...], tuple[Any, Any]] = OrderedDict()

    def get(self, key: tuple[Any, ...], held: Any, make: Callable[[], Any]) -> Any:
        """The bound model of a key, made when it is not there.

        Args:
            key: names the model and, by identity, what is bound to it.
            held: the objects behind those identities; kept alive with the entry, so that no other object gets them.
            make: binds.
        """
        found = self._bound.get(key)
        if found is None:
            found = self._bound[key] = (held, make())
            while len(self._bound) > _KEPT:
                self._bound.popitem(last=False)
        return found[1]


def _schema(tool: Any) -> dict[str, Any]:
    try:
        return convert_to_openai_tool(tool)
    except (ValueError, TypeError):  # a tool the provider runs itself, in a form of its own
        return dict(tool) if isinstance(tool, Mapping) else {"name": getattr(tool, "name", str(tool))}
