"""The `steproute` command where only the package's own requirements are installed."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from steproute import cli


def test_the_command_needs_no_click_of_its_own(tmp_path: Path) -> None:
    # newer Typers carry their own Click and do not install one
    pytest.importorskip("typer._click", reason="this Typer still requires Click")
    code = "import sys; sys.modules['click'] = None; sys.argv = ['steproute', 'policies']; from steproute.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "progrouter" in done.stdout.split()


def test_the_version(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["steproute", "--version"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"steproute {metadata.version('steproute')}\n"


def test_a_folder_that_cannot_be_written_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse() -> None:
        raise PermissionError(13, "Permission denied", "runs")

    monkeypatch.setattr(cli, "app", refuse)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    assert capsys.readouterr().err == "steproute: runs: Permission denied\n"


def test_a_fault_without_a_file_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise OSError("inside")

    monkeypatch.setattr(cli, "app", fail)
    with pytest.raises(OSError, match="inside"):
        cli.main()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (["run", "humanevl"], "steproute run: unknown name 'humanevl'; did you mean 'humaneval'?"),
        (["record", "humaneva"], "steproute record: unknown name 'humaneva'; did you mean 'humaneval'?"),
        (["replay", "coderouterbenc", "--data", "x"], "did you mean 'coderouterbench'?"),
        (["replay", "nosuchprogram"], "cannot run 'nosuchprogram'"),
    ],
)
def test_a_benchmark_that_does_not_exist_gets_the_nearest_one(
    line: list[str], message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["steproute", *line])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    assert message in capsys.readouterr().err
