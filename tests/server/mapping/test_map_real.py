"""Maps over real source files: the output is what one process gives that goes through them."""

from __future__ import annotations

import ast
import contextlib
import json
import shutil
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

import pytest

from supervisor.client import protocol
from tests.support import House, git

ROOT = Path(__file__).parents[3]
MODULE = '''
import ast

def functions(path):
    """How many functions a file defines; null where it is no Python of ours."""
    with open(path, "rb") as file:
        data = file.read()
    try:
        return sum(isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) for node in ast.walk(ast.parse(data)))
    except (SyntaxError, ValueError):
        return None
'''
SDIST, MEMBERS = "ansible==10.7.0", 10_000
PART = "ansible-10.7.0/ansible_collections/community/**"


def functions(path: Path) -> int | None:
    try:
        return sum(isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) for node in ast.walk(ast.parse(path.read_bytes())))
    except (SyntaxError, ValueError):
        return None


def commit(house: House) -> None:
    (house.repo / "counting.py").write_text(MODULE)
    git(house.repo, "add", "-A", "-f")
    git(house.repo, "commit", "-q", "-m", "sources")


def tracked(house: House, suffix: str) -> list[str]:
    return [name for name in git(house.repo, "ls-files", "-z").split("\0") if name.endswith(suffix)]


def mapped(house: House, *words: str, agents: int) -> list[dict[str, Any]]:
    shared = ("--json", "--class", "interactive", "--agents", str(agents))
    summary = json.loads(house.ok("map", *shared, *words, timeout_s=3000))
    assert (summary["failed"], summary["missing"], summary["cleaned"]) == (0, 0, 0)
    return [json.loads(line) for line in Path(summary["out"]).read_text().splitlines()]


def test_our_own_sources(house: House) -> None:
    shutil.copytree(ROOT / "agents", house.repo / "agents")
    commit(house)
    house.start_daemon()
    lines = mapped(house, "--files", "agents/**/*.py", "--call", "counting:functions", agents=3)
    names = [name for name in tracked(house, ".py") if name.startswith("agents/")]
    assert [(line["item"], line["result"]) for line in lines] == [(name, functions(house.repo / name)) for name in names]


@pytest.fixture
def sdist(tmp_path: Path) -> Path:
    """A source distribution with at least 10,000 files, from the package index that pip is configured with; skipped where there is none."""
    argv = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:", "-d", str(tmp_path), SDIST]
    with contextlib.suppress(subprocess.TimeoutExpired):  # it has the file, and builds metadata that nobody asked for
        subprocess.run(argv, capture_output=True, timeout=120, check=False)
    found = list(tmp_path.glob("*.tar.gz"))
    if not found:
        pytest.skip("no package index answers")
    return found[0]


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_source_distribution_of_many_files(house: House, sdist: Path) -> None:
    with tarfile.open(sdist) as tar:
        tar.extractall(house.repo, filter="data")
    commit(house)
    house.start_daemon()
    words = ("--files", PART, "--", "wc", "-c", "{file}")
    began = time.monotonic()
    lines = mapped(house, *words, agents=8)
    print(f"{len(lines)} files in {time.monotonic() - began:.0f} s")
    assert len(lines) >= MEMBERS
    # A checkout has what attributes make of the commit's files, such as other line ends.
    git(house.repo.parent, "clone", "-q", str(house.repo), "fresh")
    fresh = house.repo.parent / "fresh"
    names = [name for name in tracked(house, "") if name.startswith(PART.removesuffix("**")) and not (fresh / name).is_symlink()]
    expected = [(name, f"{(fresh / name).stat().st_size} {name}") for name in names]
    assert [(line["item"], line["result"]) for line in lines] == expected
    assert mapped(house, *words, agents=8) == lines, "nothing is done again"
    lines = mapped(house, "--files", f"{PART}/*.py", "--call", "counting:functions", agents=8)
    assert [(line["item"], line["result"]) for line in lines] == [(name, functions(fresh / name)) for name in names if name.endswith(".py")]


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_200_000_lines_and_the_supervisor_answers_meanwhile(house: House, tmp_path: Path) -> None:
    work = tmp_path / "lines"
    work.write_text("".join(f"{number}\n" for number in range(200_000)))
    (house.repo / "one.py").write_text("def one(line):\n    return int(line)\n")
    commit(house)
    house.start_daemon()
    lines = mapped(house, "--lines", str(work), "--call", "one:one", agents=4)
    assert [line["result"] for line in lines] == list(range(200_000))
    ping = protocol.call(house.home.daemon_socket, "ping", {})
    print(f"steps of the loop: p99 {ping['tick_ms_p99']} ms of processor time")
