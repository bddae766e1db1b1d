"""The checks of a preflight, in order: configuration, prices, capabilities, database and clock, approval, servers."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

from steproute.approval import ApprovalError, SpendingCap, approval_file, book_of, read_approval
from steproute.config import load_config
from steproute.errors import ConfigError, SteprouteError
from steproute.metering import make_meter
from steproute.models import ModelPool
from steproute.options import RouterOptions
from steproute.preflight.database import check_database
from steproute.preflight.finding import Finding
from steproute.preflight.pool import check_capabilities, check_limits, check_prices
from steproute.preflight.servers import check_servers
from steproute.router import Router

_FIELD = re.compile(r"(?P<field>(?:\w+(?: '[^']{1,60}')?: )?[\w./-]{1,80}): (?P<said>.+)", re.DOTALL)
NEARLY = 0.9
"""Part of a cap from which on it is nearly spent."""


def preflight(
    path: Path,
    *,
    live: bool = False,
    base_url: str | None = None,
    key_env: str | None = None,
    approval: Path | None = None,
    timeout_s: float = 5.0,
    clock: Callable[[], float] = time.time,
) -> list[Finding]:
    """Look at a configuration and at what it needs. Nothing is changed, no model is called, nothing is paid for.

    Args:
        path: a `steproute.yaml`.
        live: ask the model servers which models they have.
        base_url: where the models are that do not say it by `serving.server`.
        key_env: environment variable that holds the key for the servers; None = none is sent.
        approval: the approval file for paid calls of benchmarks; None = the usual one, if it is there.
        timeout_s: how long to wait for the database and for each server.
        clock: gives Unix time in seconds.
    """
    options, found = _config(path)
    if options is None:
        return found
    pool = options["models"]
    assert isinstance(pool, ModelPool)
    budget = options.get("budget")
    found += [*check_prices(pool), *check_limits(pool, budget), *check_capabilities(pool)]
    found += check_database(options.get("store"), clock(), timeout_s)
    found += _approval(pool, approval, clock())
    found += check_servers(pool, base_url, key_env, timeout_s) if live else [
        Finding("skipped", "servers.skipped", str(path), "the model servers were not asked; --live asks them")
    ]  # fmt: skip
    return found


def _config(path: Path) -> tuple[RouterOptions | None, list[Finding]]:
    try:
        options = load_config(path)
    except ImportError as error:
        return None, [Finding("error", "config.extra", str(path), str(error))]
    except SteprouteError as error:
        return None, list(_problems(str(path), error))
    found = []
    parts: RouterOptions = {**options}
    for name in ("store", "telemetry", "meter"):
        parts.pop(name, None)  # type: ignore[misc]
    policy = ""
    try:
        policy = Router(**parts).policy.name
    except (SteprouteError, ImportError) as error:
        code = "config.extra" if isinstance(error, ImportError) else "config.invalid"
        found.append(Finding("error", code, str(path), str(error)))
    found += [*_meter(options), *_telemetry(options)]
    if not found:
        number = len(list(options["models"]))
        said = f"{number} model{'s' if number != 1 else ''}, policy {policy}"
        found.append(Finding("ok", "config.ok", str(path), said))
    return options, found


def _problems(path: str, error: SteprouteError) -> Iterator[Finding]:
    """An error's single problems, each with the field it is about."""
    whole = str(error).removeprefix(f"{path}: ")
    problems = error.problems if isinstance(error, ConfigError) and len(error.problems) > 1 else (whole,)
    before = whole.partition(problems[0])[0]  # `Model 'a': `, where its fields are what is wrong
    for text in problems:
        found = _FIELD.match(before + text if before not in text else text)
        if found is None:
            yield Finding("error", "config.invalid", path, text)
        else:
            yield Finding("error", "config.invalid", found["field"], found["said"])


def _meter(options: RouterOptions) -> Iterator[Finding]:
    name = options.get("meter")
    if not isinstance(name, str) or name == "none":
        return
    try:
        meter = make_meter(name)
    except (SteprouteError, ImportError) as error:
        yield Finding("error", "config.meter", name, str(error))
        return
    close: Callable[[], None] | None = getattr(meter, "close", None)
    if close is not None:
        close()


def _telemetry(options: RouterOptions) -> Iterator[Finding]:
    if not options.get("telemetry"):
        return
    from steproute.telemetry import as_telemetry

    settings = as_telemetry(options["telemetry"])
    if settings is None:
        return
    for wanted, module in ((settings.spans, "opentelemetry"), (settings.metrics, "prometheus_client")):
        if wanted and find_spec(module) is None:
            said = f"{module} is not installed: pip install 'steproute[telemetry]'"
            yield Finding("error", "config.extra", "telemetry", said)


def _approval(pool: ModelPool, given: Path | None, now: float) -> Iterator[Finding]:
    path = given or approval_file()
    if given is None and not path.is_file():
        said = "no approval file: live paid calls by benchmarks are off"
        yield Finding("skipped", "approval.none", str(path), said)
        return
    try:
        approval = read_approval(path, now)
        approval.prices(list(pool), str(path))
        book = book_of(path)
        spent = SpendingCap(book, approval.usd).spent if book.is_file() else 0.0
    except ApprovalError as error:
        for text in error.problems:
            yield Finding("error", "approval.invalid", str(path), text.removeprefix(f"{path}: "))
        return
    level, said = "approval.ok", f"${spent:.4g} of ${approval.usd:g} spent"
    if spent >= NEARLY * approval.usd:
        yield Finding("warning", "approval.nearly_spent", str(path), said)
    else:
        yield Finding("ok", level, str(path), said)
