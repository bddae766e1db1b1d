"""Where in a running graph a call is made: what LangGraph puts into the configuration of every node."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import CONFIG_KEYS, ensure_config, var_child_runnable_config

from steproute.plugins.langgraph.records import KEY

_READ = "__pregel_read"
_CHECKPOINTER = "__pregel_checkpointer"
_SCRATCHPAD = "__pregel_scratchpad"
_RUNTIME = "__pregel_runtime"
_RESUMING = "__pregel_resuming"
_PUSH = "__pregel_push"
_KNOWN_KEYS = frozenset(CONFIG_KEYS)


@dataclass(slots=True)
class Site:
    """A node at work; outside of a graph everything is empty. It is read once per call, and not changed."""

    thread: str | None = None
    node: str = ""
    agent: str = ""
    """Name given to `create_agent`."""
    ns: str = ""
    """Namespace with the ids of the node executions: the same after an interrupt, another one in a fork."""
    place: str = ""
    """The namespace without ids, with the number of the branch under `Send`: the same in a fork too."""
    root: str = ""
    """Id of the outermost graph's checkpoint the step runs from; sorts by time."""
    addressed: str = ""
    """Checkpoint the caller went back to; empty in an ordinary run."""
    step: int = 0
    """Number of the superstep in its own graph."""
    resuming: bool = False
    execution: Any = None
    """An object that lives as long as one execution of the node."""
    attempt: int = 1
    """Attempt of a node with a retry policy."""
    checkpointer: Any = None
    read: Callable[[str], Any] | None = None
    records: Mapping[str, Any] | None = None
    """The router's part of the state of the graph the node belongs to; None when the graph has no such key."""

    @property
    def in_graph(self) -> bool:
        """Whether a node is at work."""
        return self.execution is not None

    @property
    def parent(self) -> str:
        """Namespace of the graph the node belongs to."""
        return self.ns.rpartition("|")[0]


def config_of(config: RunnableConfig | None) -> RunnableConfig:
    """The configuration of a call as `ensure_config` makes it, to be read only.

    What the host hands on complete is not copied: of all callbacks, tags and metadata each copy would cost more than the
    rest of it.
    """
    if not config:
        return var_child_runnable_config.get() or {}
    if "metadata" in config and _SCRATCHPAD in (config.get("configurable") or ()) and config.keys() <= _KNOWN_KEYS:
        return config
    return ensure_config(config)


def site_of(config: RunnableConfig) -> Site:
    """Read the place of a call from its configuration, as `config_of` gives it."""
    values: Mapping[str, Any] = config.get("configurable") or {}
    meta: Mapping[str, Any] = config.get("metadata") or {}
    thread = values.get("thread_id")
    execution = values.get(_SCRATCHPAD)
    agent = str(meta.get("lc_agent_name") or "")
    if execution is None:
        return Site(thread=None if thread is None else str(thread), agent=agent)
    runtime = getattr(values.get(_RUNTIME), "execution_info", None)
    ns = str(values.get("checkpoint_ns") or meta.get("langgraph_checkpoint_ns") or "")
    return Site(
        thread=None if thread is None else str(thread),
        node=str(meta.get("langgraph_node") or ""),
        agent=agent,
        ns=ns,
        place=_place(ns, meta.get("langgraph_path")),
        root=str((values.get("checkpoint_map") or {}).get("", "")),
        addressed=str(meta.get("checkpoint_id") or ""),
        step=int(meta.get("langgraph_step") or 0),
        resuming=bool(values.get(_RESUMING)),
        execution=execution,
        # before 1.1.3 nothing but this flag tells a retry from the first attempt
        attempt=int(getattr(runtime, "node_attempt", 0) or bool(values.get(_RESUMING))),
        checkpointer=values.get(_CHECKPOINTER) or None,
        read=values.get(_READ),
        records=_records(values.get(_READ)),
    )


def site_of_runtime(runtime: Any, state: Mapping[str, Any]) -> Site:
    """The place of an agent's model node, from what its middleware is handed.

    In asynchronous agents on Python 3.10 the configuration does not reach a middleware. Names of agents and checkpoints
    are then unknown, and what a call costs is saved when its node ends.

    Args:
        runtime: LangGraph's runtime.
        state: the agent's state.
    """
    told = getattr(runtime, "execution_info", None)
    if told is None:
        return Site()
    ns = str(told.checkpoint_ns or "")
    return Site(
        thread=told.thread_id,
        node=ns.rpartition("|")[2].partition(":")[0],
        ns=ns,
        place=_place(ns, None),
        root="" if "|" in ns else str(told.checkpoint_id),
        execution=told.task_id,
        attempt=int(told.node_attempt or 1),
        read=state.__getitem__,
        records=_records(state.__getitem__),
    )


def _records(read: Callable[[str], Any] | None) -> Mapping[str, Any] | None:
    if read is None:
        return None
    try:
        found = read(KEY)
    except KeyError:
        return None
    return found if isinstance(found, Mapping) else {}


def _place(ns: str, path: Any) -> str:
    names = [part.partition(":")[0] for part in ns.split("|")]
    if isinstance(path, (tuple, list)) and len(path) > 1 and path[0] == _PUSH:
        names[-1] += f"#{path[1]}" if isinstance(path[1], int) else "#" + "".join(str(path[1:]).split())
    return "|".join(names)
