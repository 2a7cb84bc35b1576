"""Memory snapshots of a repository with a virtual environment of its own: each agent runs its own copy of that, and starts warm."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.server.snapshot_kit import commit, states
from tests.support import House, git

PACKAGES = f".venv/lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
SETUP = f"""
set -e
{sys.executable} -I -m venv --without-pip --symlinks .venv
cp -r vendored/* {PACKAGES}
echo "$PWD/src" > {PACKAGES}/mine.pth
printf '#!%s/.venv/bin/python\\nimport tool\\n' "$PWD" > .venv/bin/tool
cp tool.py {PACKAGES}
chmod +x .venv/bin/tool
"""
"""As an installer does it: packages, the repository itself as an editable install, a console script."""
TOOL = """
import importlib.metadata, importlib.util, json, os, site, sys, sysconfig
import heavy, mine
from heavy import late
tree = sys.prefix.rsplit("/", 1)[0]
print(json.dumps({
    "warm": heavy.PID != os.getpid(),
    "tree": tree,
    "prefixes": [sys.prefix, sys.exec_prefix, sys.base_prefix, *site.PREFIXES],
    "executable": sys.executable,
    "path": sys.path,
    "site": [site.getsitepackages(), site.ENABLE_USER_SITE, sysconfig.get_path("purelib"), sysconfig.get_config_var("prefix")],
    "finders": [getattr(finder, "__name__", repr(finder)) for finder in sys.meta_path],
    "late": late.__file__,
    "mine": [mine.__file__, mine.TEXT],
    "version": importlib.metadata.version("heavy"),
    "data": open(os.path.join(os.path.dirname(heavy.__file__), "data")).read(),
    "ours": [name for name in ("psutil", "supervisor", "agents", "click") if name in sys.modules or importlib.util.find_spec(name)],
    "customized": "sitecustomize" in sys.modules,
}, indent=1).replace(tree + "/", "./").replace(tree, "."), tree)
"""
PYTHON = ".venv/bin/python"
COLD = (PYTHON, "-Xfrozen_modules=on", "tool.py")
"""An option without effect here, which the warm process leaves to a new interpreter."""


@pytest.fixture
def house(house: House) -> House:
    """Its repository has an environment with the package `heavy`, which takes its time, and one module of its own."""
    for name, text in {
        "vendored/heavy/__init__.py": "import os\nPID = os.getpid()\n",
        "vendored/heavy/late.py": "",
        "vendored/heavy/data": "data\n",
        "vendored/heavy-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: heavy\nVersion: 1.0\n",
        "vendored/sitecustomize.py": "",
        "src/mine.py": "TEXT = 'as committed'\n",
        "setup.sh": SETUP,
        "tool.py": TOOL,
        ".gitignore": ".venv/\n__pycache__/\n",
        "nightcrew.toml": '[snapshot.warm]\nkind = "memory"\nsetup = ["sh setup.sh"]\npreload = ["heavy"]\n',
    }.items():
        (house.repo / name).parent.mkdir(parents=True, exist_ok=True)
        (house.repo / name).write_text(text)
    commit(house, "README", "a repository\n")
    return house


def told(house: House, name: str, *command: str) -> tuple[dict[str, Any], Path]:
    """What a task that runs the tool found, with `.` for its worktree; and that."""
    if not states(house, "warm"):
        house.ok("snapshot", "create", "warm")
    house.ok("add", "-f", "--snapshot", "warm", "--id", name, "--", *command)
    text, _, tree = house.ok("logs", name).strip().rpartition(" ")
    return json.loads(text), Path(tree)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("sandbox", [2, 0])
def test_a_program_of_its_own_environment_is_forked_and_finds_what_it_finds_cold(house: House, sandbox: int) -> None:
    house.config.write_text(house.config.read_text().replace("sandbox = 0", f"sandbox = {sandbox}"))
    house.start_daemon()
    warm, where = told(house, "one", PYTHON, "tool.py")
    cold, other = told(house, "two", *COLD)
    assert (warm.pop("warm"), cold.pop("warm")) == (True, False)
    assert where == Path(str(house.task("one").worktree)) != other
    assert warm == cold
    assert (warm["executable"], warm["path"][-1], warm["ours"]) == (f"./{PYTHON}", "./src", [])
    assert warm["late"] == f"./{PACKAGES}/heavy/late.py"
    script, _ = told(house, "three", ".venv/bin/tool", "a word")
    assert script["warm"] and script["path"] == ["./.venv/bin", *cold["path"][1:]]


def test_newer_commits_bring_their_own_modules_and_a_changed_environment_is_started_cold(house: House) -> None:
    house.start_daemon()
    house.ok("snapshot", "create", "warm")
    commit(house, "src/mine.py", "TEXT = 'changed since'\n")
    warm, _ = told(house, "one", PYTHON, "tool.py")
    assert warm["warm"] and warm["mine"] == ["./src/mine.py", "changed since"]
    (house.repo / PACKAGES).mkdir(parents=True)
    (house.repo / PACKAGES / "more.py").touch()
    git(house.repo, "add", "-f", f"{PACKAGES}/more.py")
    git(house.repo, "commit", "-q", "-m", "vendored")
    cold, _ = told(house, "two", PYTHON, "tool.py")
    assert not cold["warm"] and states(house, "warm") == ["ready"]


def test_modules_of_the_repository_are_not_preloaded(house: House) -> None:
    house.start_daemon()
    commit(house, "nightcrew.toml", '[snapshot.warm]\nkind = "memory"\nsetup = ["sh setup.sh"]\npreload = ["heavy", "mine"]\n')
    done = house.run("snapshot", "create", "warm")
    assert done.returncode != 0 and "cannot be preloaded mine: " in done.stderr, done.stderr
    assert "the repository's own modules each agent imports by itself" in done.stderr
    assert states(house, "warm") == ["failed"]
