"""`nightcrew doctor`, as typed: on a good machine, on a broken one, and on a terminal."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.terminal import Terminal
from tests.support import House

ROOT = Path(__file__).resolve().parents[2]
Opener = Callable[..., Terminal]


def checks(text: str) -> dict[str, dict[str, str]]:
    shape = json.loads(text)
    assert shape["schema"] == 1
    return {one["name"]: one for one in shape["checks"]}


def test_here_nothing_fails(house: House) -> None:
    done = house.run("doctor")
    assert done.returncode == 0, done.stdout
    assert "  ✓ git " in done.stdout and "\x1b" not in done.stdout
    assert done.stderr.startswith("nightcrew: ")
    assert not house.home.root.exists(), "looking makes nothing"


def test_json(house: House) -> None:
    shape = json.loads(house.ok("doctor", "--json"))
    assert set(shape) == {"schema", "checks", "counts", "mended"}
    assert sum(shape["counts"].values()) == len(shape["checks"]) == len({(one["group"], one["name"]) for one in shape["checks"]})
    assert all(one["why"] and one["fix"] for one in shape["checks"] if one["state"] in ("warn", "fail"))


def test_it_works_when_everything_else_is_broken(house: House, tmp_path: Path) -> None:
    house.home.root.mkdir(mode=0o700)
    house.home.ledger.write_bytes(b"no ledger at all" * 1000)
    house.config.write_text("slots = nothing\n")
    (house.repo / ".git" / "HEAD").write_text("broken\n")
    empty = tmp_path / "empty"
    empty.mkdir()
    done = house.run("doctor", "--json", env={"PATH": str(empty)})
    assert done.returncode == 1 and "Traceback" not in done.stderr
    found = checks(done.stdout)
    assert {name for name, one in found.items() if one["state"] == "fail"} == {"tmux", "git", "ledger", "settings"}
    assert found["repository"]["state"] == "unknown"


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_state_that_cannot_be_written(house: House) -> None:
    house.home.root.mkdir(mode=0o700)
    house.home.root.chmod(0o500)
    try:
        done = house.run("doctor", "--json")
        assert done.returncode == 1 and checks(done.stdout)["directory"]["state"] == "fail"
        assert checks(house.run("doctor", "--json", "--fix").stdout)["directory"]["state"] == "ok"
    finally:
        house.home.root.chmod(0o700)


def test_a_stranger_in_our_environment_is_a_finding_and_not_the_end(house: House, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    for name in ("supervisor", "agents", "memory", "worktrees"):
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
    (tree / "supervisor-4.2.5.dist-info").mkdir()
    program = f"import sys; sys.path.insert(0, {str(tree)!r}); from supervisor.cli.main import main; main(sys.argv[1:])"

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-I", "-c", program, *words]
        return subprocess.run(argv, env=house.env, cwd=house.repo, capture_output=True, text=True, check=False)

    refused = run("status")
    assert refused.returncode == 2 and "supervisor-4.2.5.dist-info" in refused.stderr
    done = run("doctor", "--json")
    found = checks(done.stdout)
    assert done.returncode == 1 and {name for name, one in found.items() if one["state"] == "fail"} == {"nightcrew"}
    assert "supervisor-4.2.5.dist-info" in found["nightcrew"]["seen"]


def test_fix_mends_what_is_safe_and_says_so(house: House) -> None:
    house.start_daemon()
    house.ok("add", "-f", "--id", "work", "echo new > file")
    worktree = house.task("work").worktree
    assert worktree is not None
    house.ok("down")
    shutil.rmtree(worktree)
    house.home.root.chmod(0o755)
    done = house.run("doctor")
    assert "next: nightcrew doctor --fix mends 2 of them" in done.stderr
    done = house.run("doctor", "--fix")
    assert done.returncode == 0 and "directory: " in done.stderr and "worktrees: git forgot " in done.stderr
    assert stat.S_IMODE(house.home.root.stat().st_mode) == 0o700
    again = house.run("doctor", "--fix")
    assert "git forgot" not in again.stderr and "mends" not in again.stderr


def test_a_person_reads_it_at_80_columns(terminal: Opener) -> None:
    window = terminal(columns=80, rows=80)
    window.nightcrew("doctor")
    screen = window.sees("left with 0")
    assert all(len(line) <= 80 for line in screen.splitlines())
    assert "Software" in screen and "✓ git" in screen
    assert "\x1b[32m✓" in window.screen(styles=True)


@pytest.mark.in_turns
@pytest.mark.parametrize("env", [{"NO_COLOR": "1"}, {"TERM": "dumb"}], ids=str)
def test_without_colours(terminal: Opener, env: dict[str, str]) -> None:
    window = terminal(columns=80, rows=80)
    window.nightcrew("doctor", env=env)
    window.sees("left with 0")
    assert "\x1b[32m✓" not in window.screen(styles=True)
