"""What a user installs: the wheel, the locked dependencies, and the setup script."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import supervisor

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("nightcrew", "supervisor", "agents", "memory", "worktrees")
LOCKS = (ROOT / "requirements" / "runtime.txt", ROOT / "requirements" / "dev.txt")
TAKEN = {"supervisor", "openai-agents"}
"""Distributions that install our import names: never beside us."""


def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel of this checkout, built without a network."""
    where = tmp_path_factory.mktemp("wheel")
    argv = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(where)]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (file,) = where.glob("*.whl")
    return zipfile.ZipFile(file)


def test_the_wheel_holds_the_packages_with_their_data_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    inside = {name for name in wheel.namelist() if ".dist-info/" not in name}
    files = (file for package in PACKAGES for file in (ROOT / package).rglob("*") if file.is_file())
    source = {str(file.relative_to(ROOT)) for file in files if "__pycache__" not in file.parts}
    assert inside == source
    assert any(name.endswith(".sql") for name in inside)


def test_the_wheel_holds_what_its_command_starts(wheel: zipfile.ZipFile) -> None:
    module = project()["project"]["scripts"]["nightcrew"].partition(":")[0].replace(".", "/")
    assert f"{module}/__init__.py" in wheel.namelist()


def test_the_version_is_written_once(wheel: zipfile.ZipFile) -> None:
    (metadata,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    assert f"\nVersion: {supervisor.__version__}\n" in wheel.read(metadata).decode()
    assert "version" not in project()["project"]


def test_the_wheel_carries_its_licence(wheel: zipfile.ZipFile) -> None:
    (licence,) = (name for name in wheel.namelist() if name.endswith("/licenses/LICENSE"))
    assert wheel.read(licence).decode().lstrip().startswith("Apache License\n")


def pins(lock: Path) -> dict[str, Requirement]:
    """The locked requirements of a file by normal name. Each must pin one version by at least one hash."""
    logical = lock.read_text().replace("\\\n", " ").splitlines()
    found: dict[str, Requirement] = {}
    for line in (line.strip() for line in logical):
        if not line or line.startswith("#"):
            continue
        text, *hashes = re.split(r"\s+--hash=", line)
        assert hashes, f"{lock.name}: no hash: {line}"
        pin = Requirement(text)
        assert re.fullmatch(r"==[^*,]+", str(pin.specifier)), f"{lock.name}: not one version: {line}"
        found[canonicalize_name(pin.name)] = pin
    return found


def unmet(wanted: list[str], locked: dict[str, Requirement]) -> list[str]:
    """The requirements that no pin satisfies."""
    return [text for text in wanted if not _met(Requirement(text), locked.get(canonicalize_name(Requirement(text).name)))]


def _met(wanted: Requirement, pin: Requirement | None) -> bool:
    return pin is not None and wanted.specifier.contains(str(pin.specifier).removeprefix("=="))


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_a_lock_names_no_index_and_no_taken_name(lock: Path) -> None:
    assert not TAKEN & pins(lock).keys()
    assert "://" not in lock.read_text()
    assert not [line for line in lock.read_text().splitlines() if line.startswith("-")]


def test_the_locks_satisfy_pyproject() -> None:
    asked = project()
    runtime, dev = (pins(lock) for lock in LOCKS)
    builds = [line for line in (ROOT / "requirements" / "build.in").read_text().splitlines() if not line.startswith("#")]
    assert unmet(asked["project"]["dependencies"], runtime) == []
    assert unmet(asked["project"]["dependencies"] + asked["dependency-groups"]["dev"], dev) == []
    assert unmet(asked["build-system"]["requires"] + builds, dev) == []


def test_a_lock_that_is_behind_is_noticed() -> None:
    locked = {"click": Requirement("click==8.1.0")}
    assert unmet(["click>=8.2", "psutil"], locked) == ["click>=8.2", "psutil"]
    assert unmet(["Click>=8"], locked) == []


def test_both_locks_agree() -> None:
    runtime, dev = (pins(lock) for lock in LOCKS)
    assert {name: str(pin) for name, pin in runtime.items()} == {name: str(dev[name]) for name in runtime}


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A checkout without .venv, under a path with a space."""
    copy = tmp_path / "night crew"
    for part in ("tools", "requirements"):
        shutil.copytree(ROOT / part, copy / part)
    shutil.copy(ROOT / "pyproject.toml", copy)
    return copy


def setup(checkout: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([checkout / "tools" / "setup.sh"], env=os.environ | env, capture_output=True, text=True, check=False)


def only(folder: Path, *names: str) -> str:
    """A PATH on which nothing but these tools and what the script itself needs is found."""
    folder.mkdir()
    for name in ("sh", "cat", "dirname", "head", "id", "printf", "sed", "sha256sum", "sort", "tr", *names):
        found = shutil.which(name)
        assert found, name
        (folder / name).symlink_to(found)
    return str(folder)


def test_setup_names_a_missing_python_in_one_line(bare: Path) -> None:
    done = setup(bare, PYTHON="/nowhere/python3")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "python3 >= 3.11" in done.stderr


def test_setup_names_an_old_python_in_one_line(bare: Path, tmp_path: Path) -> None:
    old = tmp_path / "python3"
    old.write_text(f"#!/bin/sh\ncase $* in *executable*) echo '{old}' ;; -V) echo Python 3.9.2 ;; *) exit 1 ;; esac\n")
    old.chmod(0o755)
    done = setup(bare, PYTHON=str(old))
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "Python 3.9.2" in done.stderr


def test_setup_names_missing_tools_in_one_line_where_it_may_not_install(bare: Path, tmp_path: Path) -> None:
    done = setup(bare, PATH=only(tmp_path / "bin", "git"), PYTHON=sys.executable)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "install tmux (" in done.stderr


def test_setup_names_a_tool_that_is_too_old(bare: Path, tmp_path: Path) -> None:
    path = only(tmp_path / "bin", "git")
    old = Path(path) / "tmux"
    old.write_text("#!/bin/sh\necho tmux 3.2a\n")
    old.chmod(0o755)
    done = setup(bare, PATH=path, PYTHON=sys.executable)
    assert done.returncode == 2
    assert "install tmux" in done.stderr
    assert not (bare / ".venv").exists()


def test_what_tests_need_is_named_where_it_may_not_be_installed(bare: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [bare / "tools" / "setup.sh", "--tests"], env={"PATH": only(tmp_path / "bin", "rm")}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0
    for package in ("chromium", "bubblewrap", "strace", "gcc"):
        assert package in done.stderr.partition("some tests are skipped without")[2], done.stderr


def test_as_user_passes_the_exit_status_on_and_leaves_nothing() -> None:
    if os.getuid() != 0:
        pytest.skip("only root can become another user")
    argv = [str(ROOT / "tools" / "as-user.sh"), "sh", "-c", 'id -u; echo "$HOME"; touch "$TMPDIR/left"; exit 7']
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if "skipped" in done.stderr:
        pytest.skip(done.stderr)
    user, home = done.stdout.split()
    assert (done.returncode, user) == (7, "65534")
    assert not Path(home).exists()
