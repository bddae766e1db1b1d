"""Read `steproute.yaml`: models, budget, policy and the router's own settings; unknown keys are refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field, ValidationError

from steproute.budget import Budget
from steproute.errors import ConfigError, unknown_name
from steproute.models import Model, ModelPool
from steproute.options import RouterOptions
from steproute.policies.registry import make_policy
from steproute.profiles import read_profiles
from steproute.progress import CodeView, GenericView, RegimeWeights, View, Weights
from steproute.redact import redact
from steproute.settings import Settings

if TYPE_CHECKING:
    from steproute.store import Store
    from steproute.telemetry import Telemetry


class RegimeSettings(Settings):
    """Weights of one regime in the progress formula."""

    base: float
    alpha: float
    beta: float
    gamma: float


class ProgressSettings(Settings):
    """How progress is scored; what is left out keeps its default."""

    invalid: RegimeSettings | None = None
    recoverable: RegimeSettings | None = None
    partial: RegimeSettings | None = None
    complete: RegimeSettings | None = None
    thresholds: tuple[float, float, float] | None = None
    """Mean evidence scores from which the generic view calls a step recoverable, partial and complete."""

    def weights(self) -> Weights:
        """The formula's weights.

        Raises:
            ConfigError: regimes would overlap or leave [0, 1].
        """
        regimes = ("invalid", "recoverable", "partial", "complete")
        given = {name: getattr(self, name) for name in regimes}
        return Weights(**{name: RegimeWeights(**item.model_dump()) for name, item in given.items() if item is not None})

    def views(self) -> dict[str, View]:
        """The built-in views with these thresholds.

        Raises:
            ConfigError: they are not in rising order.
        """
        if self.thresholds is None:
            return {}
        return {"generic": GenericView(thresholds=self.thresholds), "code": CodeView()}


class RouterSettings(Settings):
    """The keys of `steproute.yaml`."""

    models: list[dict[str, Any]] = Field(min_length=1)
    """One mapping per model, see `Model`."""
    default: str | None = None
    """Model used when the router itself fails."""
    budget: dict[str, Any] | None = None
    """See `Budget`."""
    profiles: Path | None = None
    """File that `steproute models profile` wrote, relative to this one; a model's own `profile` goes first."""
    policy: str | dict[str, Any] | None = None
    """A name, or `name` and settings."""
    progress: ProgressSettings = ProgressSettings()
    """Weights and thresholds of the progress formula."""
    explore: float | None = None
    seed: int | None = None
    idle_timeout: float | None = None
    cooldown_s: float | None = None
    store: str | dict[str, Any] | None = None
    """Where every step is kept: a path relative to this file, a PostgreSQL URL, or `target` and the settings of `Store`."""
    meter: str | None = None
    """What measures joules: `auto`, `nvml`, `rapl` or `none`."""
    telemetry: bool | dict[str, Any] | None = None
    """`true`, or settings of `Telemetry`; a log file's path is relative to this file."""


def load_config(source: str | Path | Mapping[str, Any]) -> RouterOptions:
    """Arguments for `Router` from a YAML file or a mapping.

    Raises:
        ConfigError: names the field, what was seen and what is allowed; for an unknown key the nearest right one.
    """
    if not isinstance(source, (str, Path, Mapping)):
        raise ConfigError(f"config: seen {type(source).__name__}; allowed: a path, or a mapping with the key `models`")
    where = "config" if isinstance(source, Mapping) else str(source)
    data: Any = dict(source) if isinstance(source, Mapping) else _read(Path(source))
    if not isinstance(data, dict):
        raise ConfigError(f"{where}: seen {type(data).__name__}; allowed: a mapping with the key `models`")
    try:
        settings = RouterSettings.model_validate({str(key): value for key, value in data.items()})
        options: RouterOptions = {
            "models": ModelPool(
                _models(settings, Path() if isinstance(source, Mapping) else Path(source).parent),
                default=settings.default,
            ),
            "budget": Budget(**{str(key): value for key, value in (settings.budget or {}).items()}),
            "weights": settings.progress.weights(),
            "views": settings.progress.views(),
        }
        if settings.policy is not None:
            options["policy"] = make_policy(settings.policy)
    except ValidationError as error:
        raise ConfigError.from_validation(where, error, RouterSettings.model_fields) from None
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}", error.problems) from None
    if settings.explore is not None:
        options["explore"] = settings.explore
    if settings.seed is not None:
        options["seed"] = settings.seed
    if settings.idle_timeout is not None:
        options["idle_timeout"] = settings.idle_timeout
    if settings.cooldown_s is not None:
        options["cooldown_s"] = settings.cooldown_s
    if settings.store is not None:
        options["store"] = _store(settings.store, where, Path() if isinstance(source, Mapping) else Path(source).parent)
    if settings.meter is not None:
        options["meter"] = settings.meter
    if settings.telemetry:
        folder = Path() if isinstance(source, Mapping) else Path(source).parent
        options["telemetry"] = _telemetry(settings.telemetry, where, folder)
    return options


def _models(settings: RouterSettings, folder: Path) -> Iterator[Model]:
    profiles = {} if settings.profiles is None else read_profiles(folder / settings.profiles)
    for item in settings.models:
        given = {str(key): value for key, value in item.items()}
        if isinstance(name := given.get("name"), str) and name in profiles:
            given.setdefault("profile", profiles[name])
        yield Model(**given)


def store_of(path: str | Path) -> str:
    """The store that a `steproute.yaml` names, for commands that look into it.

    Raises:
        ConfigError: it names none, or is malformed.
    """
    data = _read(Path(path))
    given = data.get("store") if isinstance(data, dict) else None
    if given is None:
        raise ConfigError(f"{path}: store: missing; allowed: a path, or a PostgreSQL URL")
    return str(_store(given, str(path), Path(path).parent).target)


def _store(given: Any, where: str, folder: Path) -> Store:
    from steproute.store import Store

    names = [field.name for field in fields(Store)]
    given = {"target": given} if isinstance(given, str) else given
    if not isinstance(given, Mapping) or not isinstance(given.get("target"), str) or not given["target"]:
        raise ConfigError(
            f"{where}: store: seen {redact(repr(given))[:120]}; allowed: a path, a URL, or `target` and settings"
        )
    for name in given:
        if name not in names:
            raise ConfigError(f"{where}: " + unknown_name("store", str(name), names))
    target = given["target"]
    if "://" not in target:
        target = str(folder / target)
    spool = given.get("spool")
    try:
        return Store(**{**given, "target": target, "spool": None if spool is None else folder / str(spool)})
    except (ConfigError, TypeError) as error:
        raise ConfigError(f"{where}: {error}") from None


def _telemetry(given: Any, where: str, folder: Path) -> Telemetry | None:
    from steproute.telemetry import as_telemetry

    if isinstance(given, Mapping) and isinstance(logs := given.get("logs"), str) and logs not in ("", "stderr"):
        given = {**given, "logs": str(folder / logs)}
    try:
        return as_telemetry(given)
    except (ConfigError, TypeError) as error:
        raise ConfigError(f"{where}: {error}") from None


def _read(path: Path) -> Any:
    import yaml

    from steproute.handwritten import read_yaml

    try:
        return read_yaml(path)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: is not UTF-8 text (byte {error.start})") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark is not None else ""
        raise ConfigError(f"{path}: is not YAML ({getattr(error, 'problem', None) or 'malformed'}{line})") from None
