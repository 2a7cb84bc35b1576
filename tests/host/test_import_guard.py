"""Foreign packages under our import names: refused in one line, or without effect."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
COMMAND = Path(sys.executable).parent / "nightcrew"
CHECK = """
import sys
sys.path.insert(0, sys.argv[1])
from supervisor.kernel.errors import HostError
from supervisor.host.import_guard import check_packages
try:
    check_packages()
except HostError as error:
    print(error)
"""


def package(parent: Path, name: str) -> Path:
    """A foreign package that must never be imported."""
    (parent / name).mkdir(parents=True)
    (parent / name / "__init__.py").write_text("raise SystemExit('a foreign package was imported')\n")
    return parent / name


def check(first_on_path: Path) -> str:
    """What the guard says in a process that finds `first_on_path` before everything else."""
    done = subprocess.run([sys.executable, "-I", "-c", CHECK, str(first_on_path)], capture_output=True, text=True, check=True)
    return done.stdout


def test_our_own_packages_pass(tmp_path: Path) -> None:
    assert check(tmp_path) == ""


@pytest.mark.parametrize("name", ["agents", "worktrees"])
def test_a_shadowing_package_is_named_and_not_imported(tmp_path: Path, name: str) -> None:
    path = package(tmp_path, name)
    said = check(tmp_path)
    assert str(path) in said
    assert "environment of its own" in said
    assert said.count("\n") == 1


def test_a_single_file_module_is_named_as_well(tmp_path: Path) -> None:
    (tmp_path / "agents.py").write_text("raise SystemExit('a foreign module was imported')\n")
    assert str(tmp_path / "agents.py") in check(tmp_path)


@pytest.mark.parametrize("distribution", ["supervisor-4.2.5.dist-info", "openai_agents-0.3.0.dist-info"])
def test_a_distribution_installed_over_ours_is_named(tmp_path: Path, distribution: str) -> None:
    for name in ("supervisor", "agents", "memory", "worktrees"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    assert check(tmp_path) == ""
    (tmp_path / distribution).mkdir()
    assert str(tmp_path / distribution) in check(tmp_path)


def nightcrew(cwd: Path, *argv: str, **env: str) -> subprocess.CompletedProcess[str]:
    """The installed command, as a person in `cwd` would run it."""
    clean = {name: text for name, text in os.environ.items() if not name.startswith("PYTHON")}
    return subprocess.run([COMMAND, *argv], cwd=cwd, env=clean | env, capture_output=True, text=True, timeout=60, check=False)


def test_the_command_runs_inside_a_repository_with_our_package_names(tmp_path: Path) -> None:
    for name in ("supervisor", "agents", "memory", "worktrees"):
        package(tmp_path, name)
    done = nightcrew(tmp_path, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert "Usage" in done.stdout


@pytest.mark.parametrize("names", [["supervisor"], ["agents"], ["supervisor", "agents", "worktrees", "click"]])
def test_the_command_runs_whatever_pythonpath_holds(tmp_path: Path, names: list[str]) -> None:
    for name in names:
        package(tmp_path, name)
    done = nightcrew(tmp_path, "--help", PYTHONPATH=".")
    assert (done.returncode, done.stderr) == (0, "")
    assert "Usage: nightcrew" in done.stdout


def test_the_command_refuses_a_foreign_supervisor_in_one_line(tmp_path: Path) -> None:
    path = package(tmp_path, "supervisor")
    (tmp_path / "lib").mkdir()
    shutil.copytree(ROOT / "nightcrew", tmp_path / "lib" / "nightcrew")
    program = "import sys; sys.path[:0] = sys.argv[1:]; import nightcrew; nightcrew.main()"
    argv = [sys.executable, "-I", "-c", program, str(tmp_path), str(tmp_path / "lib")]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert str(path) in done.stderr
    assert done.stderr.count("\n") == 1
