"""The coordinator's record of a task: goal, subtasks, steps with their outcomes, evidence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, ValidationError, model_validator

from steproute.errors import LedgerError, unknown_name
from steproute.ids import new_id, sound

SCHEMA_VERSION = 1
Amount = Annotated[float, Field(ge=0)]


if TYPE_CHECKING:
    from pydantic._internal._model_construction import ModelMetaclass
else:
    ModelMetaclass = type(BaseModel)


class _Told(ModelMetaclass):
    """Lets a record that is made with a wrong value say so in our words. At the metaclass, since an `__init__` of its own
    would slow down the reading of every nested record."""

    if not TYPE_CHECKING:

        def __call__(cls, /, *args: Any, **data: Any) -> Any:
            try:
                return super().__call__(*args, **data)
            except ValidationError as error:
                raise LedgerError(f"{cls.__name__}: {_problems(error, cls)}") from None


class _Record(BaseModel, metaclass=_Told):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class Task(_Record):
    """One unit of work with one goal."""

    id: Annotated[str, AfterValidator(sound)] = Field(default_factory=new_id)
    """Unique name; budgets, posterior and idempotence hang on it."""
    goal: str = ""
    """What the user asked for. Never logged unless prompts are asked for."""
    domain: str = "generic"
    """Chooses the progress view: `code`, `math`, `retrieval`, `tools`, `swe` or `generic`."""
    dimension: str = ""
    """Kind of task, the first context group of the learners."""
    source: str = ""
    """Where it comes from (a benchmark, a customer), a finer context group."""
    parent: Annotated[str, AfterValidator(sound)] | None = None
    """Task that started this one: its budget pays too."""


class Subtask(_Record):
    """One part of the task with its status."""

    id: str
    text: str = ""
    status: Literal["todo", "doing", "done", "failed"] = "todo"


class Evidence(_Record):
    """One observation about quality, with its source."""

    source: str
    """Who says so: `syntax`, `execution`, `examples`, `judge`, `tool`, ... Reliability is learnt per source."""
    score: float = Field(ge=0, le=1)
    """1 = good, 0 = bad."""
    count: int = Field(default=1, ge=0)
    """How many checks the score summarises (examples run, claims judged); 0 = the source had nothing to check."""
    detail: str = ""
    """Short reason, for explanations and for error features."""


class ToolCall(_Record):
    """A tool call made in a step; `fingerprint` tells repeated calls apart without keeping arguments."""

    name: str
    ok: bool | None = None
    error: str = ""
    fingerprint: str = ""


class Outcome(_Record):
    """What a call cost and returned."""

    call_id: str = Field(default_factory=new_id)
    """A call is billed once per `call_id`."""
    model: str = ""
    """Model that answered, as named in the pool; empty = the one decided."""
    prompt_tokens: int = Field(default=0, ge=0)
    completion_tokens: int = Field(default=0, ge=0)
    cached_tokens: int = Field(default=0, ge=0)
    """Part of `prompt_tokens` read from the provider's prompt cache."""
    written_tokens: int = Field(default=0, ge=0)
    """Part of the others that was written to that cache, where the provider charges for it."""
    tokens_estimated: bool = False
    """True when the provider reported no usage."""
    usd: float | None = Field(default=None, ge=0)
    """None = to be priced from the tokens by the router."""
    seconds: float = Field(default=0.0, ge=0)
    energy_j: float | None = Field(default=None, ge=0)
    energy_source: str = ""
    """Which meter the joules come from; empty when there are none."""
    amounts: dict[str, Amount] = Field(default_factory=dict)
    """A user's own resources."""
    error: str | None = None
    """Provider or transport failure; None when the call returned."""
    evidence: list[Evidence] = Field(default_factory=list)


class Step(_Record):
    """One LLM call made for one role."""

    id: str = ""
    role: str = ""
    model: str = ""
    output: str = ""
    outcome: Outcome = Field(default_factory=Outcome)
    tool_calls: list[ToolCall] = Field(default_factory=list)
    g: float | None = None
    """Progress after the step."""


class Ledger(_Record):
    """Everything the router reads about one task. Round-trips through JSON."""

    schema_version: int = Field(default=SCHEMA_VERSION, ge=1)
    task: Task = Field(default_factory=Task)
    subtasks: list[Subtask] = Field(default_factory=list)
    steps: list[Step] = Field(default_factory=list)
    notes: dict[str, JsonValue] = Field(default_factory=dict)
    """Plain JSON values a domain's view may read."""

    @model_validator(mode="before")
    @classmethod
    def _not_newer(cls, data: Any) -> Any:
        version = data.get("schema_version") if isinstance(data, dict) else None
        if isinstance(version, (int, float)) and version > SCHEMA_VERSION:
            raise ValueError(f"schema_version {version} is newer than {SCHEMA_VERSION}; update steproute to read it")
        return data

    def to_json(self) -> str:
        """The ledger as one JSON object."""
        return self.model_dump_json()

    @classmethod
    def from_json(cls, text: str | bytes) -> Ledger:
        """Read what `to_json` wrote.

        Raises:
            LedgerError: the text is no JSON, lacks or adds fields, or has a newer schema; names the field.
        """
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            raise LedgerError(f"ledger JSON: {_first_problem(error)}") from None

    def evidence(self, source: str) -> Evidence | None:
        """The latest evidence of one source in the last step that has any of it."""
        for step in reversed(self.steps):
            for item in reversed(step.outcome.evidence):
                if item.source == source:
                    return item
        return None


_FIELDS: dict[str, type[BaseModel]] = {"": Ledger, "task": Task, "subtasks": Subtask, "steps": Step, "outcome": Outcome}
_FIELDS |= {"evidence": Evidence, "tool_calls": ToolCall}


def _problems(error: ValidationError, holder: type[BaseModel]) -> str:
    """Every problem of one record: field, what was seen (numbers alone: text may be the user's), what is allowed."""
    lines = []
    for item in error.errors(include_url=False):
        path = ".".join(str(part) for part in item["loc"])
        cause, seen = item.get("ctx", {}).get("error"), item["input"]
        if item["type"] == "extra_forbidden":
            fields = holder.model_fields if len(item["loc"]) == 1 else ()
            lines.append(unknown_name(path, path.rpartition(".")[2], fields))
        elif item["type"] == "missing":
            lines.append(f"{path}: missing; it is required")
        elif isinstance(cause, ValueError):
            lines.append(f"{path}: {cause}" if path else str(cause))
        else:
            shown = repr(seen) if isinstance(seen, (int, float)) else f"a value of type {type(seen).__name__}"
            lines.append(f"{path}: seen {shown}; {item['msg'].replace('Input should be', 'allowed:')}")
    return "; ".join(dict.fromkeys(lines))


def _first_problem(error: ValidationError) -> str:
    """The first problem by name of its field; values are left out, since a ledger holds the user's text."""
    first = error.errors(include_url=False, include_input=False)[0]
    names = [str(part) for part in first["loc"]]
    path = ".".join(names)
    if first["type"] == "extra_forbidden":
        holder = next((name for name in reversed(names[:-1]) if name in _FIELDS), "")
        text = unknown_name(path, names[-1], _FIELDS[holder].model_fields)
    else:
        cause = first.get("ctx", {}).get("error")
        said = str(cause) if isinstance(cause, ValueError) else first["msg"]
        text = f"{path}: {said}" if path else said
    more = error.error_count() - 1
    return f"{text} (and {more} more)" if more else text
