"""S04: of every file that nightcrew writes anew outside of SQLite the old content stays when the disk is full. They go through one door,
`files.atomic_write`, and whoever writes by other means makes a file that was not there, or adds to one."""

from __future__ import annotations

import ast
import contextlib
import json
import resource
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from agents import trust
from agents.kinds import to_run
from nightcrew.plugins.builtin import tools
from nightcrew.plugins.builtin.tools import Given, Place, ToolError
from supervisor.gateway import lifecycle
from supervisor.host import audit_log, files
from supervisor.host.audit_log import Audit
from supervisor.host.clock import SystemClock
from supervisor.host.paths import Home
from supervisor.kernel.errors import HostError
from supervisor.server import prices
from supervisor.views.report import pages

ROOT = Path(__file__).parents[2]
SECRET = b"s" * 32

REWRITTEN = {
    "nightcrew/plugins/builtin/tools.py": "what the built-in agent edits",
    "agents/tmux.py": "a text on its way into a pane",
    "agents/trust.py": "settings of Claude Code and Codex",
    "agents/zygote/lifecycle.py": "who a warm process is",
    "supervisor/cli/setup.py": "nightcrew.toml",
    "supervisor/cli/reporting.py": "benchmark_results.json",
    "supervisor/views/document.py": "report and night: .html, .md, .json",
    "supervisor/views/web/serving.py": "web.json",
    "supervisor/server/attempts/observe.py": "hooks.json",
    "supervisor/server/attempts/collect.py": "result.json, diff.patch, screen.txt",
    "supervisor/server/attempts/sending.py": "texts that were sent",
    "supervisor/server/attempts/isolation.py": "policy",
    "supervisor/server/attempts/launch.py": "prompt.md, after.json, mcp.json, begin, launch.spec",
    "supervisor/server/lock.py": "daemon.lock",
    "supervisor/server/attempts/pausing.py": "paused",
    "supervisor/server/prices.py": "prices.json",
    "supervisor/features/quotas/service.py": "quotas.json",
    "supervisor/gateway/lifecycle.py": "gateway.json",
    "supervisor/host/audit_log.py": "audit.head",
    "supervisor/host/secrets.py": "secret, keys",
}
"""Who rewrites what, by the door."""
OTHERS = {
    "agents/agent_client/__init__.py": "a draft with a name of its own, compiled",
    "agents/hook_client/__init__.py": "the same",
    "supervisor/host/cgroups.py": "switches of the kernel's",
    "worktrees/repository.py": "copies of a commit's attributes, in a directory that is removed",
    "worktrees/backends.py": "in a copy or a layer that is being made, and probes",
    "supervisor/results/trial_merges.py": "copies of a commit's attributes, in a directory that is removed",
    "worktrees/tree_merge.py": "copies of three versions, in a directory that is removed",
    "worktrees/private_repository.py": "in a repository that is being made",
    "worktrees/registration.py": "in a worktree that is being made",
    "worktrees/collect_helper.py": "in a repository that is being made",
    "worktrees/templates.py": "beside a template that is being made",
    "agents/printing.py": "the handle of its stdout",
    "supervisor/features/map/worker/worker.py": "an agent's own file of results, in its out/",
    "agents/runner/child.py": "a switch of the kernel's",
    "agents/runner/loop.py": "a log, from its beginning, once for an attempt, and a draft of exit.json",
    "agents/zygote/lifecycle.py": "a log, from its beginning",
    "supervisor/snapshots/service.py": "the log of a set-up, from its beginning",
    "supervisor/features/map/open_map.py": "a draft with a name of its own, renamed when it is whole",
    "nightcrew/plugins/otel/__main__.py": "a lock, which has no content",
    "supervisor/gateway/replay.py": "a draft of a tape",
    "supervisor/host/files.py": "the door",
    "supervisor/sandbox/homes.py": "a copy for an attempt that has not begun; logins go by the door",
    "supervisor/host/untrusted_fs.py": "a new file, by its handle",
    "supervisor/features/night/service.py": "the log of a helper, from its beginning",
    "supervisor/sandbox/exec_step.py": "a switch of the kernel's",
    "worktrees/pack_import.py": "a draft",
    "supervisor/features/engines/programs.py": "a draft of a file of weights, renamed when it is whole",
}
"""Who writes without it, and why nothing of a person's can be lost there."""


def test_every_file_that_is_rewritten_goes_through_the_door() -> None:
    by_door, by_others = set(), set()
    for top in ("nightcrew", "supervisor", "agents", "memory", "worktrees"):
        for file in (ROOT / top).rglob("*.py"):
            name = str(file.relative_to(ROOT))
            if name.startswith("nightcrew/plugins/bench/"):
                continue
            calls = [node for node in ast.walk(ast.parse(file.read_bytes())) if isinstance(node, ast.Call)]
            if any(_called(call) == "atomic_write" or _handed_on(call) for call in calls):
                by_door.add(name)
            if any(_writes(call) for call in calls):
                by_others.add(name)
    assert REWRITTEN.keys() <= by_door
    assert by_others == OTHERS.keys(), "why may it not go through files.atomic_write?"


def _called(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else call.func.id if isinstance(call.func, ast.Name) else ""


def _handed_on(call: ast.Call) -> bool:
    return any(isinstance(given, ast.Attribute) and given.attr == "atomic_write" for given in call.args)


def _writes(call: ast.Call) -> bool:
    """Whether it writes a file from its beginning. (`x` and O_EXCL make a new one.)"""
    if _called(call) in ("write_text", "write_bytes"):
        return True
    words = [word.value for word in ast.walk(call) if isinstance(word, ast.Constant) and isinstance(word.value, str)]
    if _called(call) in ("open", "fdopen") and any(word in ("w", "wb", "w+", "r+", "r+b") for word in words):
        return True
    return _called(call) == "open" and any(isinstance(node, ast.Attribute) and node.attr == "O_TRUNC" for node in ast.walk(call))


@contextlib.contextmanager
def full() -> Iterator[None]:
    """A disk that takes 16 bytes of a file and no more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (16, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def trusted(place: Path) -> tuple[Path, Callable[[], object]]:
    known, home = to_run("claude").trust, {"HOME": str(place)}
    assert known is not None
    file = trust.look(known, place / "repo", home).path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"theirs": "x" * 100}))
    return file, lambda: trust.write(known, trust.look(known, place / "repo", home))


def edited(place: Path) -> tuple[Path, Callable[[], object]]:
    file = place / "notes.md"
    file.write_text("remember this\n" * 10)
    return file, lambda: tools.write(Given({"path": "notes.md", "content": "y" * 1000}), Place(place))


def known_gateway(place: Path) -> tuple[Path, Callable[[], object]]:
    home = Home(place)
    lifecycle.write_record(home, lifecycle.record_of(1, (), SystemClock()))
    return home.gateway_record, lambda: lifecycle.write_record(home, lifecycle.record_of(2, (), SystemClock()))


def priced(place: Path) -> tuple[Path, Callable[[], object]]:
    file = place / "prices.json"
    file.write_text("{}")
    return file, lambda: prices.write(file, datetime.now(UTC))


def reported(place: Path) -> tuple[Path, Callable[[], object]]:
    shape = json.loads((ROOT / "tests" / "data" / "report" / "ordinary.json").read_text())
    pages.write(shape, place / "runs")
    return place / "runs" / "report.json", lambda: pages.write({**shape, "more": 1}, place / "runs")


@pytest.mark.parametrize("rewritten", [trusted, edited, known_gateway, priced, reported])
def test_on_a_full_disk_the_old_content_stays(tmp_path: Path, rewritten: Callable[[Path], tuple[Path, Callable[[], object]]]) -> None:
    file, again = rewritten(tmp_path)
    before, beside = file.read_bytes(), sorted(file.parent.iterdir())
    with full(), pytest.raises((HostError, ToolError)):
        again()
    assert file.read_bytes() == before and sorted(file.parent.iterdir()) == beside
    again()
    assert file.read_bytes() != before


def test_the_audit_log_goes_on_after_a_full_disk(tmp_path: Path) -> None:
    """It is added to, and its head is rewritten."""
    home = Home(files.private_dir(tmp_path / "home"))
    log = Audit(home.audit, SECRET, SystemClock(), "person")
    log.note("merged", {"task": "one"})
    before = home.audit.with_suffix(".head").read_bytes()
    with full(), pytest.raises(HostError):
        log.note("merged", {"task": "two"})
    assert home.audit.with_suffix(".head").read_bytes() == before
    assert (audit_log.verify(home.audit, SECRET).why, audit_log.verify(home.audit, SECRET).records) == ("", 1)
    log.note("merged", {"task": "three"})
    assert (audit_log.verify(home.audit, SECRET).why, audit_log.verify(home.audit, SECRET).records) == ("", 2)
