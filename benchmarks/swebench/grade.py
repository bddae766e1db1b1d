"""Grades a patch by the benchmark's own scripts and parsers: in Docker by its harness, else in our sandbox."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steproute.benchmarks.swebench.instances import check_out
from steproute.benchmarks.swebench.shell import Shell

OFFICIAL = "official"
LOCAL = "local, not official"
"""The benchmark's script and parser, but this machine's packages in place of its image."""


@dataclass(frozen=True)
class Grade:
    """The verdict on one patch."""

    resolved: bool
    by: str
    """`OFFICIAL` or `LOCAL`."""
    applied: bool
    report: Mapping[str, Any]
    """swebench's own report."""

    @property
    def share(self) -> float:
        """Share of the tests to be fixed that pass; 0 when anything else broke."""
        status = self.report.get("tests_status")
        if not status:
            return 0.0
        fixed, kept = status["FAIL_TO_PASS"], status["PASS_TO_PASS"]
        total = len(fixed["success"]) + len(fixed["failure"])
        return 0.0 if kept["failure"] or not total else len(fixed["success"]) / total


def prediction(instance_id: str, patch: str, name: str) -> dict[str, str]:
    """One line of a predictions file, as `swebench eval` reads it."""
    return {"instance_id": instance_id, "model_name_or_path": name, "model_patch": patch}


def grade_locally(
    instance: Mapping[str, Any],
    made: Mapping[str, str],
    repositories: Path,
    log: Path,
    timeout_s: float = 1800.0,
    tools: Sequence[Path] | None = None,
) -> Grade:
    """Apply the patch to a fresh checkout and run the official evaluation script on it, behind bubblewrap.

    Args:
        instance: as swebench ships it.
        made: the prediction.
        repositories: clones, see `check_out`.
        log: file for the test output, kept.
        timeout_s: of the evaluation script.
        tools: folders the script sees, see `Shell.tools`.

    Raises:
        ConfigError: the repository is not there.
        SandboxUnavailable: bubblewrap does not work here.
    """
    from swebench.harness.constants import APPLY_PATCH_FAIL, APPLY_PATCH_PASS, CONTAINER_PATCH_FILE, TESTS_TIMEOUT
    from swebench.harness.grading import get_eval_report
    from swebench.harness.run_evaluation import GIT_APPLY_CMDS
    from swebench.harness.utils import make_test_spec

    spec = make_test_spec(dict(instance))
    log.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="steproute-grade-") as place:
        folder, patch, script = Path(place) / "repo", Path(place) / "patch.diff", Path(place) / "eval.sh"
        patch.write_text(made["model_patch"], encoding="utf-8")
        script.write_text(spec.eval_script, encoding="utf-8")
        check_out(instance, repositories, folder)
        shell = Shell(folder) if tools is None else Shell(folder, tools)
        shell.own()
        files = {"/tmp/patch.diff": patch, "/tmp/eval.sh": script}
        assert CONTAINER_PATCH_FILE in files
        text = f"{APPLY_PATCH_FAIL}: no attempt worked\n"
        for command in GIT_APPLY_CMDS if made["model_patch"].strip() else ():
            ran = shell.run(f"{command} {CONTAINER_PATCH_FILE}", 120, files=files)
            if ran.code == 0:
                done = shell.run("/bin/bash /tmp/eval.sh", timeout_s, files=files)
                text = f"{APPLY_PATCH_PASS}:\n{ran.output}\n{done.output}"
                text += f"\n{TESTS_TIMEOUT}" if done.timed_out else ""
                break
            shell.run("git checkout -- . ; git clean -fd", 120)
    log.write_text(text, encoding="utf-8")
    report = get_eval_report(spec, dict(made), str(log), include_tests_status=True)[instance["instance_id"]]
    return Grade(bool(report["resolved"]), LOCAL, bool(report["patch_successfully_applied"]), report)


def grade_in_docker(
    instance: Mapping[str, Any], made: Mapping[str, str], run_id: str, timeout_s: float = 1800.0
) -> Grade:
    """swebench's harness itself, in the instance's image.

    Raises:
        RuntimeError: the harness gave no report; its own log says why.
    """
    import docker
    from swebench.harness.run_evaluation import run_instance
    from swebench.harness.utils import make_test_spec

    if not made["model_patch"].strip():
        return Grade(False, OFFICIAL, False, {"patch_exists": False})
    done = run_instance(make_test_spec(dict(instance)), dict(made), docker.from_env(), run_id, int(timeout_s))
    if done is None:
        raise RuntimeError(f"swebench gave no report on {instance['instance_id']}: see logs/run_evaluation/{run_id}")
    report = done[1][instance["instance_id"]]
    return Grade(bool(report["resolved"]), OFFICIAL, bool(report["patch_successfully_applied"]), report)
