"""The wheel adds `steproute` and its metadata at top level, and nothing else."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest

import steproute

ROOT = Path(__file__).parents[2]
MOUNTS = {"router_core": "", "plugins": "plugins/", "integrations": "integrations/", "benchmarks": "benchmarks/"}
CACHES = shutil.ignore_patterns("__pycache__", "*.pyc")


def run(*command: str | Path) -> str:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=300, cwd="/", check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """Built from a copy, so that no build folder of an earlier day gets in."""
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for folder in MOUNTS:
        shutil.copytree(ROOT / folder, source / folder, ignore=CACHES)
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    offline = ["--no-build-isolation"] if int(version("setuptools").partition(".")[0]) >= 77 else []
    run(sys.executable, "-m", "pip", "wheel", "--no-deps", "--quiet", *offline, "--wheel-dir", target, source)
    [built] = target.iterdir()
    return built


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory) -> tuple[Path, Path]:
    """An empty environment with the wheel and nothing else: its interpreter and its site-packages."""
    home = tmp_path_factory.mktemp("empty") / "venv"
    venv.create(home, with_pip=False)
    python = home / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    site = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    assert list(site.iterdir()) == []
    run(sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", "--quiet", wheel)
    return python, site


def test_only_steproute_is_added_at_top_level(installed):
    _, site = installed
    assert sorted(item.name for item in site.iterdir()) == ["steproute", f"steproute-{steproute.__version__}.dist-info"]


def test_all_four_folders_are_packages_under_steproute(installed):
    python, site = installed
    code = f"""
import sys
sys.path.append({sysconfig.get_path("purelib")!r})  # for numpy and pydantic; the installed wheel comes first
import steproute, steproute.plugins, steproute.integrations, steproute.benchmarks
for package in (steproute, steproute.plugins, steproute.integrations, steproute.benchmarks):
    print(package.__file__)
router = steproute.Router([steproute.Model("m", price="free")])
print(router.decide("t").model.name)
"""
    *files, chosen = run(python, "-c", code).split()
    assert [str(Path(file).relative_to(site)) for file in files] == [
        "steproute/__init__.py", "steproute/plugins/__init__.py", "steproute/integrations/__init__.py", "steproute/benchmarks/__init__.py",
    ]  # fmt: skip
    assert chosen == "m"


def test_the_wheel_holds_every_module_and_says_that_it_is_typed(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    for folder, prefix in MOUNTS.items():
        for path in (ROOT / folder).rglob("*"):
            kept = path.suffix in (".py", ".html", ".js", ".css") or path.name == "py.typed"
            if kept and "__pycache__" not in path.parts:
                assert f"steproute/{prefix}{path.relative_to(ROOT / folder).as_posix()}" in names
    assert "steproute/py.typed" in names
    assert not [name for name in names if name.startswith(("tests", "cassettes", "examples", "steproute/tests"))]


def test_the_version_is_the_same_everywhere(wheel):
    assert version("steproute") == steproute.__version__
    assert wheel.name == f"steproute-{steproute.__version__}-py3-none-any.whl"


def test_entry_points_lead_to_modules_that_are_there(wheel):
    archive = zipfile.ZipFile(wheel)
    names = set(archive.namelist())
    text = archive.read(f"steproute-{steproute.__version__}.dist-info/entry_points.txt").decode()
    targets = [line.partition(" = ")[2] for line in text.splitlines() if " = " in line]
    assert targets
    for target in targets:
        path = target.partition(":")[0].replace(".", "/")
        assert f"{path}.py" in names or f"{path}/__init__.py" in names, target
