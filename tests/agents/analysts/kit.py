"""Checkouts for analysts to look at, and analysts as the processes that they are."""

from __future__ import annotations

import ast
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from nightcrew.plugins.analyze.sources import Module, parse
from supervisor.results import findings
from supervisor.results.findings import Facts, Finding
from tests.support import git, wait_until


def checkout(path: Path, files: Mapping[str, str | bytes]) -> Path:
    """A repository in which git tracks `files`; names may hold surrogate escapes for bytes that are not UTF-8."""
    path.mkdir(parents=True)
    git(path, "init", "-q")
    for name, content in files.items():
        write(path / name, content)
    git(path, "add", "-A", "-f")
    return path


def write(file: Path, content: str | bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content if isinstance(content, bytes) else content.encode())


def environment(perspective: str, extra: Mapping[str, str]) -> dict[str, str]:
    kept = {name: text for name, text in os.environ.items() if not name.startswith(("ANALYST", "GIT_", "PYTHON"))}
    return {**kept, "ANALYST": perspective, **extra}


def run(path: Path, perspective: str, **extra: str) -> subprocess.CompletedProcess[bytes]:
    """One analyst in the checkout `path`."""
    return subprocess.run(
        [sys.executable, "-I", "-m", "nightcrew.plugins.analyze"],
        cwd=path,
        env=environment(perspective, extra),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=120,
        check=False,
    )


def look(path: Path, perspective: str, **extra: str) -> Facts:
    """What it finds, after checking that its stdout is one line and nothing else."""
    done = run(path, perspective, **extra)
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    assert done.stdout.count(b"\n") == 1
    assert done.stdout.endswith(b"\n")
    return findings.read(json.loads(done.stdout))


def assert_gone(pid: int) -> None:
    """It ends soon, since it got its KILL (a zombie has ended); when it does not, the test fails and leaves nothing behind."""
    try:
        wait_until(lambda: _state(pid) in {"", "Z"}, f"the end of process {pid}", 10)
    except AssertionError:
        os.kill(pid, signal.SIGKILL)
        raise


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def brief(findings: tuple[Finding, ...]) -> list[tuple[str, str, int, str]]:
    return [(str(item.severity), item.file, item.line, item.code) for item in findings]


def module(text: str, file: str = "a.py", *, is_test: bool = False) -> Module:
    """`text` as an analyst sees it."""
    tree = parse(text.encode())
    assert isinstance(tree, ast.Module), tree
    return Module(file, text.count("\n"), is_test, tree)
