"""The `steproute` command. Benchmarks are found through entry points and loaded only when named."""

from __future__ import annotations

import logging
import sys
from difflib import get_close_matches
from importlib.metadata import entry_points, version
from pathlib import Path
from shutil import which
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from steproute.errors import ConfigError, SteprouteError, unknown_name


class EntryPointGroup(TyperGroup):
    """A command group whose commands are the entry points of the group `steproute.<its name>`.

    Contexts and commands are Click's, and untyped here: newer Typers bring a Click of their own, and none is installed.
    """

    def _points(self) -> dict[str, Any]:
        return {point.name: point for point in entry_points(group=f"steproute.{self.name}")}

    def list_commands(self, ctx: Any) -> list[str]:
        """The names, without loading anything."""
        return sorted({*super().list_commands(ctx), *self._points()})

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Load one command."""
        command = super().get_command(ctx, cmd_name)
        if command is None and cmd_name in self._points():
            command = typer.main.get_command(self._points()[cmd_name].load())
            command.name = cmd_name
        return command

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """A name that does not exist gets the nearest one that does."""
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            raise ConfigError(unknown_name(f"steproute {self.name}", args[0], self._shown(ctx)))
        found: tuple[str | None, Any, list[str]] = super().resolve_command(ctx, args)
        return found

    def _shown(self, ctx: Any) -> list[str]:
        names = self.list_commands(ctx)
        return [name for name in names if not getattr(self.commands.get(name), "hidden", False)]


class ProgramGroup(EntryPointGroup):
    """A benchmark by name, or `-- COMMAND …` for a program of the user's own."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Anything that is no benchmark is a command line, unless it is nearly a benchmark and no program."""
        if args and self.get_command(ctx, args[0]) is None:
            near = get_close_matches(args[0], self._shown(ctx), n=1, cutoff=0.7)
            if near and which(args[0]) is None:
                raise ConfigError(unknown_name(f"steproute {self.name}", args[0], self._shown(ctx)))
            return "program", self.commands["program"], args
        return super().resolve_command(ctx, args)


app = typer.Typer(no_args_is_help=True, add_completion=False, help="Choose the model of every LLM call of an agent.")
run = typer.Typer(no_args_is_help=True, help="Run a benchmark: policies side by side.")
record = typer.Typer(no_args_is_help=True, help="Record a benchmark, or `record -- COMMAND`: a program of your own.")
replay = typer.Typer(
    no_args_is_help=True, help="Replay a table of outcomes, or `replay -- COMMAND`: a recorded program."
)
models = typer.Typer(no_args_is_help=True, help="What models take: time and energy.")


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"steproute {version('steproute')}")
        raise typer.Exit


@app.callback()
def _options(
    shown: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Choose the model of every LLM call of an agent."""


app.add_typer(models, name="models")
app.add_typer(run, name="run", cls=EntryPointGroup)
app.add_typer(record, name="record", cls=ProgramGroup)
app.add_typer(replay, name="replay", cls=ProgramGroup)

_COMMAND_LINE = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}


@run.callback()
def _run() -> None:
    """Run a benchmark: policies side by side."""


@record.callback()
def _record(
    ctx: typer.Context,
    cassette: Annotated[Path, typer.Option(help="File to record into, for `-- COMMAND`.")] = Path("cassette.yaml"),
) -> None:
    """Record a benchmark, or `record -- COMMAND`: a program of your own."""
    ctx.obj = cassette


@record.command("program", hidden=True, context_settings=_COMMAND_LINE)
def _record_program(ctx: typer.Context) -> None:
    """Run a Python program once and record the HTTP of its model servers."""
    from steproute.testing import record_command

    raise typer.Exit(record_command(ctx.args, ctx.obj))


@replay.callback()
def _replay(
    ctx: typer.Context,
    cassette: Annotated[
        list[Path] | None, typer.Option(help="Recordings to serve, for `-- COMMAND`; repeatable.")
    ] = None,
) -> None:
    """Replay a table of outcomes, or `replay -- COMMAND`: a recorded program, with the network off."""
    ctx.obj = cassette or [Path("cassette.yaml")]


@replay.command("program", hidden=True, context_settings=_COMMAND_LINE)
def _replay_program(ctx: typer.Context) -> None:
    """Run a Python program against recordings, with the network off."""
    from steproute.testing import replay_command

    raise typer.Exit(replay_command(ctx.args, ctx.obj))


@models.callback()
def _models() -> None:
    """What models take: time and energy."""


@models.command("profile")
def profile(
    names: Annotated[list[str], typer.Argument(metavar="NAME[=SOURCE]...", help="GGUF file, Ollama's name, ...")],
    backend: Annotated[str, typer.Option(help="local, ollama, litellm.")] = "local",
    base_url: Annotated[str | None, typer.Option(help="Where the model server is.")] = None,
    out: Annotated[Path | None, typer.Option(help="YAML file to write the profiles to.")] = None,
    meter: Annotated[str, typer.Option(help="What measures joules: auto, nvml, rapl, none.")] = "auto",
    power_w: Annotated[float | None, typer.Option(min=0, help="Power in watts, where nothing measures it.")] = None,
    repeats: Annotated[int, typer.Option(min=1, help="How often each length is called.")] = 2,
    loads: Annotated[int, typer.Option(min=0, help="Cold starts that are measured.")] = 2,
    seconds: Annotated[float, typer.Option(min=1, help="Most seconds per model.")] = 300.0,
    context: Annotated[int, typer.Option(min=256, help="Most tokens of prompt and completion.")] = 2048,
) -> None:
    """Run a short calibrated load on each model; fit what calls take; compare with calls held out."""
    from steproute.profile_command import profile_models
    from steproute.profiling import Load

    options = (("ignore_eos", True),) if backend == "local" else ()
    load = Load(repeats, loads, context, seconds, power_w, options)
    profile_models(names, backend, base_url, out, meter, load)


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run.")],
    out: Annotated[Path | None, typer.Option(help="File to write; default RUN/report.html.")] = None,
) -> None:
    """Write a run as one HTML page."""
    from steproute.report import write_report

    typer.echo(write_report(folder, out))


_STORE = typer.Option(
    envvar="STEPROUTE_STORE", help="Store: a path, a PostgreSQL URL, or a steproute.yaml that names one."
)


def _store(given: str) -> str:
    if not given.endswith((".yaml", ".yml")):
        return given
    from steproute.config import store_of

    return store_of(given)


@app.command()
def log(
    store: Annotated[str, _STORE] = "steproute.db",
    task: Annotated[str | None, typer.Option(help="Steps of this task.")] = None,
    model: Annotated[str | None, typer.Option(help="Steps for which this model was chosen.")] = None,
    role: Annotated[str | None, typer.Option(help="Steps of this role.")] = None,
    policy: Annotated[str | None, typer.Option(help="Steps decided by this policy.")] = None,
    since: Annotated[
        str | None, typer.Option(help="From then on: 2026-11-30T08:00, or an age like 15m, 2h, 7d.")
    ] = None,
    until: Annotated[str | None, typer.Option(help="Before then.")] = None,
    failed: Annotated[bool | None, typer.Option("--failed/--answered", help="Calls that failed, or did not.")] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Most steps; the table shows the latest 50 by itself.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="JSON lines, with every candidate.")] = False,
    out: Annotated[Path | None, typer.Option(help="Write to FILE.jsonl or FILE.parquet.")] = None,
) -> None:
    """Print, filter and export the decisions of a store, each with what came of it."""
    import time

    from steproute.store.command import show_log, when
    from steproute.store.read import Filter

    now = time.time()
    wanted = Filter(task, model, role, policy, when(since, now), when(until, now), failed)
    show_log(_store(store), wanted, limit, json, out)


@app.command()
def explain(
    task: Annotated[str, typer.Argument(metavar="TASK")],
    step: Annotated[str | None, typer.Argument(metavar="[STEP]")] = None,
    store: Annotated[str, _STORE] = "steproute.db",
) -> None:
    """Say why each model of a task was chosen: every candidate, every term, and what came of it."""
    from steproute.explain import explain as explained

    typer.echo(explained(_store(store), task, step))


@app.command()
def evaluate(
    policy: Annotated[str, typer.Option(help="The new policy: a name, or a YAML file with `name` and settings.")],
    log: Annotated[
        str, typer.Option(envvar="STEPROUTE_STORE", help="Store, or a steproute.yaml that names one.")
    ] = "steproute.db",
    config: Annotated[
        Path | None, typer.Option(help="steproute.yaml with models and budget; default: --log, or the log's models.")
    ] = None,
    reward: Annotated[
        str, typer.Option(help="gain, final, or a resource: usd, energy_j, seconds, tokens, ...")
    ] = "gain",
    explore: Annotated[float, typer.Option(min=0, max=0.99, help="Uniform share the new policy is to run with.")] = 0.0,
    least_ess: Annotated[float, typer.Option(min=1, help="Least effective sample size.")] = 50.0,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Estimate from a log what another policy would have been worth: IPS, SNIPS, doubly robust, with intervals."""
    from steproute.evaluate.command import show_evaluation

    config = config or (Path(log) if log.endswith((".yaml", ".yml")) else None)
    show_evaluation(_store(log), policy, config, reward, explore, least_ess, json)


@app.command()
def top(
    store: Annotated[str, _STORE] = "steproute.db",
    every: Annotated[float, typer.Option(min=0.2, help="Seconds between two looks.")] = 2.0,
    minutes: Annotated[float, typer.Option(min=0.1, help="How far back the sums per model go.")] = 15.0,
    once: Annotated[bool, typer.Option("--once", help="Print once and end.")] = False,
) -> None:
    """Show live what the routers of a store are doing: models, running tasks, queues."""
    from steproute.store.command import show_top

    show_top(_store(store), every, minutes, once)


@app.command()
def preflight(
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="A steproute.yaml.")],
    json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
    live: Annotated[
        bool, typer.Option("--live", help="Ask the model servers for their models; none is called.")
    ] = False,
    base_url: Annotated[str | None, typer.Option(help="Server of the models that name none.")] = None,
    key_env: Annotated[str | None, typer.Option(help="Environment variable with the key for the servers.")] = None,
    approval: Annotated[
        Path | None, typer.Option(help="Approval file; default approval.yaml, where there is one.")
    ] = None,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds to wait for the database and each server.")] = 5.0,
) -> None:
    """Check a configuration, its prices, capabilities, database, clock and servers. Ends with 0, or with 1 on an error."""
    from steproute.preflight import preflight as checked
    from steproute.preflight.command import exit_code, show

    found = checked(config, live=live, base_url=base_url, key_env=key_env, approval=approval, timeout_s=timeout)
    show(config, found, json)
    raise typer.Exit(exit_code(found))


@app.command()
def policies() -> None:
    """List the policies by name."""
    from steproute.policies import policy_names

    typer.echo("\n".join(policy_names()))


def main() -> None:
    """Entry point: an error of ours is one line, not a traceback."""
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s", level=logging.WARNING)
    try:
        app()
    except (SteprouteError, ImportError) as error:
        typer.echo(f"steproute: {error}", err=True)
        sys.exit(2)
    except OSError as error:
        if error.filename is None:
            raise
        typer.echo(f"steproute: {error.filename}: {error.strerror}", err=True)  # a folder that cannot be written
        sys.exit(2)
