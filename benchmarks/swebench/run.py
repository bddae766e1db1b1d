"""SWE-bench as a benchmark: mini-swe-agent at work in the repository, its patch graded by the official scripts."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from steproute.benchmarks.options import RunOptions
from steproute.benchmarks.protocol import Benchmark, Stage
from steproute.benchmarks.seat import Played, Seat
from steproute.benchmarks.swebench.instances import INSTALL, check_out, load_instances
from steproute.errors import ConfigError, unknown_name

RUNTIMES = ("auto", "docker", "local")


@dataclass
class Options(RunOptions):
    """The settings of a run."""

    framework: str = "mini-swe-agent"
    data: str = "SWE-bench/SWE-bench_Verified"
    """A `.json`, `.jsonl` or `.parquet` file, or a hub name."""
    split: str = "test"
    instances: tuple[str, ...] = ()
    """Ids to run; none = all."""
    runtime: str = "auto"
    """`docker`: the benchmark's images and harness; `local`: our sandbox and this machine's packages; `auto`: docker
    where it answers."""
    repos: Path = Path("repos")
    """Clones of the repositories, for `local`."""
    tools: tuple[Path, ...] = ()
    """Folders whose `bin` the commands may use, for `local`; none = the environment this program runs in."""
    max_steps: int = 100
    """Calls per instance."""
    command_timeout_s: float = 60.0
    test_timeout_s: float = 1800.0
    temperature: float | None = 0.0
    max_tokens: int | None = None


class Swebench(Benchmark):
    """SWE-bench, any of its sets."""

    name = "swebench"
    frameworks = ("mini-swe-agent",)

    def __init__(self, options: Options):
        self.options: Options = options
        self._instances: dict[str, dict[str, Any]] = {}
        self._folder = Path()

    def tasks(self) -> list[str]:
        """Instance ids, in the order of the set."""
        if self.options.runtime not in RUNTIMES:
            raise ConfigError(unknown_name("runtime", self.options.runtime, RUNTIMES))
        self._instances = load_instances(self.options.data, self.options.split)
        for item in self.options.instances:
            if item not in self._instances:
                raise ConfigError(unknown_name("instances", item, self._instances))
        self._docker = self.options.runtime == "docker" or (self.options.runtime == "auto" and docker_answers())
        return list(self.options.instances or self._instances)

    def prepare(self, stage: Stage) -> None:
        """Remember where logs go."""
        self._folder = stage.folder

    def play(self, seat: Seat) -> Played:
        """Let the agent work, then grade its patch."""
        try:
            from minisweagent.agents.default import DefaultAgent

            from steproute.benchmarks.swebench.environment import diff, look
            from steproute.benchmarks.swebench.grade import grade_in_docker, grade_locally, prediction
            from steproute.benchmarks.swebench.model import RoutedModel
        except ImportError as error:
            raise ImportError(f"{INSTALL} ({error})") from error

        options, instance = self.options, self._instances[seat.id]
        seat.describe(instance["problem_statement"], "swe", dimension=instance["repo"], source=self.name)
        agent_settings, model_settings = _prompts()
        place = Path(tempfile.mkdtemp(prefix="steproute-swe-"))
        environment = self._environment(instance, place / "repo")
        try:
            sampling = {"temperature": options.temperature, "max_tokens": options.max_tokens}
            model = RoutedModel(seat, partial(look, environment), **model_settings, **sampling)
            limits = {"step_limit": options.max_steps, "cost_limit": 0.0}
            trajectory = self._folder / "trajectories" / _plain(seat.policy) / f"{_plain(seat.id)}.json"
            agent = DefaultAgent(model, environment, **agent_settings, **limits, output_path=trajectory)
            ended = agent.run(instance["problem_statement"])
            patch, source = str(ended.get("submission") or ""), "submission"
            if "diff --git" not in patch:
                patch, source = diff(environment), "working tree"
        finally:
            if hasattr(environment, "cleanup"):
                environment.cleanup()
            shutil.rmtree(place, ignore_errors=True)
        made = prediction(seat.id, patch, f"steproute-{_plain(seat.policy)}")
        if self._docker:
            grade = grade_in_docker(instance, made, self._folder.name, options.test_timeout_s)
        else:
            log = self._folder / "logs" / _plain(seat.policy) / f"{_plain(seat.id)}.txt"
            tools = options.tools or None
            grade = grade_locally(instance, made, options.repos, log, options.test_timeout_s, tools)
        return seat.played(
            grade.resolved,
            1.0 if grade.resolved else 0.0,
            fixed=grade.share,
            graded=grade.by,
            applied=grade.applied,
            ended=str(ended.get("exit_status") or ""),
            patch_from=source,
            prediction=made,
        )

    def _environment(self, instance: dict[str, Any], folder: Path) -> Any:
        if self._docker:
            from minisweagent.environments.docker import DockerEnvironment

            settings = {name: _settings()["environment"][name] for name in ("cwd", "interpreter", "env")}
            timeout = int(self.options.command_timeout_s)
            # nothing of this program's environment is handed on
            return DockerEnvironment(image=instance["image"], timeout=timeout, forward_env=[], **settings)
        from steproute.benchmarks.swebench.environment import SandboxEnvironment
        from steproute.benchmarks.swebench.shell import Shell

        check_out(instance, self.options.repos, folder)
        shell = Shell(folder, self.options.tools) if self.options.tools else Shell(folder)
        shell.own()
        return SandboxEnvironment(shell, self.options.command_timeout_s)


def docker_answers() -> bool:
    """Whether a Docker daemon can be used here."""
    if shutil.which("docker") is None:
        return False
    try:
        return subprocess.run(["docker", "info"], capture_output=True, timeout=20).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def write_predictions(folder: Path) -> list[Path]:
    """Write one predictions file per policy, in the format `swebench eval` reads.

    Args:
        folder: of a run.
    """
    by_policy: dict[str, list[str]] = {}
    for line in (folder / "tasks.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if row.get("prediction"):
            by_policy.setdefault(row["policy"], []).append(json.dumps(row["prediction"]) + "\n")
    files = []
    for policy, lines in by_policy.items():
        path = folder / f"predictions-{_plain(policy)}.jsonl"
        path.write_text("".join(lines), encoding="utf-8")
        files.append(path)
    return files


def _prompts() -> tuple[dict[str, Any], dict[str, Any]]:
    """mini-swe-agent's own prompts for SWE-bench: the agent's settings and the model's."""
    settings = _settings()
    wanted = ("observation_template", "format_error_template", "action_regex")
    model = {name: settings["model"][name] for name in wanted if name in settings["model"]}
    agent = {name: settings["agent"][name] for name in ("system_template", "instance_template")}
    return agent, model


def _settings() -> dict[str, Any]:
    """mini-swe-agent's configuration for SWE-bench with commands in text."""
    import minisweagent
    import yaml

    path = Path(minisweagent.package_dir) / "config" / "benchmarks" / "swebench_backticks.yaml"
    return dict(yaml.safe_load(path.read_text(encoding="utf-8")))


def _plain(name: str) -> str:
    """A name that is safe as a file's."""
    return "".join(letter if letter.isalnum() or letter in "._-" else "_" for letter in name)
