"""mini-swe-agent's `Environment`, in the sandbox: commands see the repository and nothing of the user's."""

from __future__ import annotations

import platform
from typing import Any

from minisweagent.exceptions import Submitted
from pydantic import BaseModel

from steproute.benchmarks.swebench.shell import TESTBED, Shell
from steproute.ledger import Evidence

SUBMIT = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
"""First line of a command's output that ends the task; mini-swe-agent's word."""
_UNCHANGED = 44
_LOOK = rf"""
changed=$(git -c core.fsmonitor=false diff HEAD --name-only --diff-filter=d) || exit 3
[ -n "$changed" ] || exit {_UNCHANGED}
printf '%s\n' "$changed" | grep '\.py$' | while read -r name; do
  python3 -c 'import ast, sys; ast.parse(open(sys.argv[1], "rb").read())' "$name" 2>&1 | tail -1
done
exit 0
"""


def look(environment: Any) -> list[Evidence]:
    """Whether a change is there, and whether the changed Python files parse.

    Git runs inside, as the agent's commands do: a repository's configuration can make it run programs.

    Args:
        environment: any of mini-swe-agent's, its folder the repository.
    """
    ran = environment.execute({"command": _LOOK})
    if ran["returncode"] == _UNCHANGED:
        return [Evidence(source="patch", score=0, detail="no change")]
    if ran["returncode"] != 0:
        return []
    broken = str(ran["output"]).strip()
    return [Evidence(source="patch", score=1), Evidence(source="syntax", score=float(not broken), detail=broken[:200])]


def diff(environment: Any) -> str:
    """The change to tracked files."""
    ran = environment.execute({"command": "git -c core.fsmonitor=false diff HEAD"})
    return str(ran["output"]) if ran["returncode"] == 0 else ""


class SandboxConfig(BaseModel):
    """What the templates of prompts may use."""

    cwd: str = TESTBED
    timeout: float = 60.0


class SandboxEnvironment:
    """One repository behind bubblewrap, with mini-swe-agent's way to submit."""

    def __init__(self, shell: Shell, timeout_s: float = 60.0):
        self.config = SandboxConfig(timeout=timeout_s)
        self.shell = shell

    def execute(self, action: dict[str, Any], cwd: str = "") -> dict[str, Any]:
        """Run one command.

        Raises:
            Submitted: the command said that the task is done; the rest of its output is the patch.
        """
        ran = self.shell.run(str(action.get("command", "")), self.config.timeout, cwd or self.config.cwd)
        note = f"the command took longer than {self.config.timeout:g} s and was stopped" if ran.timed_out else ""
        lines = ran.output.lstrip().splitlines(keepends=True)
        if lines and lines[0].strip() == SUBMIT and ran.code == 0:
            patch = "".join(lines[1:])
            raise Submitted(
                {"role": "exit", "content": patch, "extra": {"exit_status": "Submitted", "submission": patch}}
            )
        return {"output": ran.output, "returncode": ran.code, "exception_info": note}

    def get_template_vars(self, **kwargs: Any) -> dict[str, Any]:
        """For the prompts: the machine and this configuration; not the environment's variables."""
        return {**self.config.model_dump(), **platform.uname()._asdict(), **kwargs}

    def serialize(self) -> dict[str, Any]:
        """For mini-swe-agent's trajectory files."""
        kind = f"{type(self).__module__}.{type(self).__name__}"
        return {"info": {"config": {"environment": self.config.model_dump(), "environment_type": kind}}}
