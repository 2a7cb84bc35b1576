"""The supervisor, the tmux server, and what attempts may have left behind.

The checks look at what is alive first and at the ledger last. An attempt is committed before anything of it starts, so what was alive and
has no row is a leftover. Without a ledger that can be read nothing counts as a leftover.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from agents.tmux import PaneView, listings
from agents.tmux import server_process as tmux_process
from agents.tmux.closing import close_sessions
from supervisor import __version__
from supervisor.core import identity, records
from supervisor.core.errors import NightcrewError, NotRunning, TimedOut, ToolFailed
from supervisor.daemon import lock, protocol
from supervisor.daemon.observation import ATTEMPT_OPTION, HOME_OPTION
from supervisor.doctor import gateway
from supervisor.doctor.check_context import CheckContext
from supervisor.doctor.examine import Check
from supervisor.doctor.finding import Finding, fail, ok, unknown, warn
from supervisor.host.sandbox import probing, syscalls
from supervisor.ledger import queries, store
from worktrees.backends.mounts import mounts
from worktrees.environment import Environment, environment_path
from worktrees.git import Git
from worktrees.layers import beside
from worktrees.registration import read_link
from worktrees.removal import forget
from worktrees.repository import discover

SHOWN = 3
"""Names in one line; the rest is a number."""
RESTART = "nightcrew down && nightcrew up -d"


@dataclass(frozen=True, slots=True)
class Row:
    """What the ledger knows of an attempt."""

    task: str
    epoch: int
    project: str
    root: str
    released: bool
    worktree: str | None
    admin_dir: str | None
    branch: str | None
    base_oid: str | None
    removed: bool

    @property
    def name(self) -> str:
        return records.attempt_name(self.task, self.epoch)


_ROWS = """
    SELECT a.task, a.epoch, t.project, p.root, a.state = 'released' AS released, a.worktree, a.admin_dir, a.branch, a.base_oid,
           a.removed IS NOT NULL AS removed
    FROM attempt a JOIN task t ON t.id = a.task JOIN project p ON p.id = t.project
"""


def _rows(context: CheckContext) -> list[Row]:
    """Every attempt. Raises LedgerError also when there is no ledger: then nothing counts as a leftover."""
    with contextlib.closing(store.connect_readonly(context.home.ledger)) as db:
        return [Row(**dict(row)) for row in db.execute(_ROWS)]


def _unfinished(context: CheckContext) -> int:
    if not context.home.ledger.exists():
        return 0
    with contextlib.closing(store.connect_readonly(context.home.ledger)) as db:
        return queries.unfinished_counts(db).total()


def supervisor(context: CheckContext) -> Finding:
    """Who holds the lock, whether it answers, and of which version it is."""
    pid = lock.holder(context.home.lock)
    if pid is None:
        return _nobody(context)
    try:
        answer = protocol.call(context.home.daemon_socket, "ping", {}, timeout_s=context.tool_s)
    except (NotRunning, TimedOut, OSError):
        why = "it holds the lock, so no other can start; nothing new starts and nothing is finished meanwhile; agents go on"
        if _state(context, pid) == "T":
            return fail(f"pid {pid} is stopped", why, f"kill -CONT {pid}")
        return fail(f"pid {pid} does not answer", why, f"kill {pid}, or kill -9 {pid}, then nightcrew up -d: it adopts every agent")
    if answer.get("version") != __version__:
        seen = f"pid {pid} is version {answer.get('version')}, this command {__version__}"
        return warn(seen, "it takes no work from a command of another version", f"{RESTART}: agents go on")
    alerts = len(answer.get("alerts", ()))
    shown = f"; {alerts} alert{'s' if alerts != 1 else ''}: nightcrew attach supervisor" if alerts else ""
    return ok(f"pid {pid}, {answer.get('slots')} slots{shown}")


def _nobody(context: CheckContext) -> Finding:
    try:
        waiting = _unfinished(context)
    except (NightcrewError, sqlite3.Error):
        waiting = 0  # the check of the ledger says what is wrong with it
    if waiting:
        return warn(f"none runs; unfinished tasks: {waiting:,}", "agents that live go on, nothing new starts", "nightcrew up -d")
    return ok("none runs; one starts with the next nightcrew run")


def _state(context: CheckContext, pid: int) -> str:
    """The kernel's letter for a process; empty when it is gone."""
    fields = (context.read(context.proc / str(pid) / "stat") or "").rpartition(")")[2].split()
    return fields[0] if fields else ""


def server(context: CheckContext) -> Finding:
    """Whether our tmux server answers. Asked by a plain command: a control client is a risk for it (docs/decisions/0006)."""
    pid = tmux_process.server_pid(context.home.tmux_socket)
    if pid is None:
        return ok("none runs")
    panes = _panes(context)
    if isinstance(panes, str):
        fix = f"kill -CONT {pid}" if _state(context, pid) == "T" else f"kill {pid}: it ends every pane, and lost attempts run again"
        return fail(f"pid {pid} does not answer: {panes}", "no agent starts or ends, and nobody can attach", fix)
    agents = sum(1 for pane in panes if ATTEMPT_OPTION in pane.tags)
    return ok(f"pid {pid}, {agents} agent{'s' if agents != 1 else ''}")


def _panes(context: CheckContext) -> list[PaneView] | str:
    """Every pane of our server; or why not."""
    said = context.ask(*_tmux(context), "list-panes", "-a", "-F", listings.FORMAT)
    if said.code == 0:
        return listings.parse_panes(said.text.splitlines())
    return [] if said.text == tmux_process.NO_SESSION or "no server running" in said.text else said.text


def _tmux(context: CheckContext) -> tuple[str, ...]:
    return ("tmux", "-u", "-f", "/dev/null", "-N", "-S", os.fspath(context.home.tmux_socket))


def sessions(context: CheckContext) -> Finding:
    """Sessions of ours whose attempt is over."""
    try:
        pid = tmux_process.server_pid(context.home.tmux_socket)
    except ToolFailed as error:
        return unknown(f"{error.what}: {error.why}")
    if pid is None:
        return ok("none")
    panes = _panes(context)
    if isinstance(panes, str):
        return unknown("tmux does not answer")
    tagged = {pane.tags[ATTEMPT_OPTION]: pane.session_id for pane in panes if pane.tags.get(HOME_OPTION) == _tag_home(context)}
    live = {row.name for row in _rows(context) if not row.released}
    stale = {name: session for name, session in tagged.items() if name not in live}
    if not stale:
        return ok(f"{len(tagged)}, each with its attempt" if tagged else "none")
    why = "their attempts are over, and whatever runs in them is watched by nobody"
    if lock.holder(context.home.lock) is not None:
        return warn(f"left over: {_some(stale)}", why, f"{RESTART}: it closes them as it starts")
    return warn(f"left over: {_some(stale)}", why, "nightcrew up -d closes them as it starts", lambda: _close(context, stale))


def _close(context: CheckContext, stale: Mapping[str, str]) -> str:
    if lock.holder(context.home.lock) is not None:
        raise ToolFailed("a supervisor has started meanwhile", kept="the sessions, which it looks after")
    close_sessions(context.home.tmux_socket, set(stale.values()), context.which("tmux") or "tmux")
    return f"closed {_some(stale)}"


def worktrees(context: CheckContext) -> Finding:
    """Worktrees that git knows and that are gone, and directories that no attempt knows."""
    root = Path(os.path.realpath(context.home.worktrees))
    lying = set(root.glob("[!.]*/*/*"))
    if not context.home.ledger.exists() and not lying:
        return ok("none")
    rows = _rows(context)
    gone = [row for row in rows if _is_gone(row)]
    known = {environment_path(root / row.project, row.task, row.epoch) for row in rows if not row.removed}
    strays = [mount.path for mount in mounts(root) if mount.path not in known]
    orphans = sorted(path for path in lying - known - set(map(beside, known)) if path.is_dir())
    if gone:
        why = "git believes that they are there, and keeps their branches taken"
        names = {row.name: "" for row in gone}
        return warn(f"removed by hand: {_some(names)}", why, "nightcrew doctor --fix makes git forget them", lambda: _forget(context, gone))
    if strays:
        names = {str(path.relative_to(root)): "" for path in strays}
        why = "no attempt knows them, and what they show cannot be removed"
        return warn(f"mounted: {_some(names)}", why, "nightcrew doctor --fix unmounts them", lambda: _unmount(strays))
    if orphans:
        names = {str(path.relative_to(root)): "" for path in orphans}
        fix = f"look into {root / next(iter(names))}; what you do not need, remove by git worktree remove"
        return warn(f"no attempt knows {_some(names)}", "they take space, and nightcrew removes nothing that it does not know", fix)
    return ok(f"{len(lying & known)}, each with its attempt")


def _is_gone(row: Row) -> bool:
    """Whether git still has a record of a worktree that somebody removed, and whose files lie in no layer either. The record's name alone
    is no evidence: git gives it to the next worktree, of another task, once it is free."""
    if row.removed or not row.worktree or not row.admin_dir:
        return False
    if os.path.lexists(row.worktree) or os.path.lexists(beside(Path(row.worktree))):
        return False
    return read_link(Path(row.admin_dir) / "gitdir") == os.fsencode(row.worktree) + b"/.git\n"


def _forget(context: CheckContext, gone: list[Row]) -> str:
    """Not `git worktree prune`: it would also forget a person's own, on a disk that is not plugged in today."""
    git = Git(context.home.root / "git")
    for row in gone:
        env = Environment(
            discover(git, Path(row.root)),
            row.task,
            row.epoch,
            Path(str(row.worktree)),
            Path(str(row.admin_dir)),
            str(row.branch),
            str(row.base_oid),
        )
        forget(env)
    return f"git forgot {_some({row.name: '' for row in gone})}; commits and branches stay"


def _unmount(strays: list[Path]) -> str:
    for path in reversed(strays):
        syscalls.unmount(path, lazy=True)
    return f"unmounted {len(strays)}; their files stay where they lie"


def leftovers(context: CheckContext) -> Finding:
    """Name processes of attempts that are over, and of sandboxes that a killed supervisor started for itself."""
    if probes := [seen.pid for seen in probing.left()]:
        return warn(
            f"a sandbox of a killed supervisor: {len(probes)} of its processes still run",
            "they wait for ever",
            f"nightcrew up -d ends them; or: kill -9 {' '.join(map(str, sorted(probes)))}",
        )
    if not context.home.ledger.exists():
        return ok("none")
    found = _tagged(context)
    live = {row.name for row in _rows(context) if not row.released}
    still = _tagged(context)  # one that ended between the two looks is no leftover
    left = {pid: name for pid, name in found.items() if name not in live and still.get(pid) == name}
    if not left:
        return ok(f"{len(found)} processes, each with its attempt" if found else "none")
    pids = " ".join(map(str, sorted(left)))
    names = dict.fromkeys(left.values(), "")
    return warn(
        f"{_some(names)}: {len(left)} still run",
        "nobody watches them, and they may still write",
        f"look at them, then kill them: kill {pids}",
    )


def _tagged(context: CheckContext) -> dict[int, str]:
    """Every process with the tag of this state directory, and its attempt's name."""
    prefix = f"\0{identity.TAG_VARIABLE}={_tag_home(context)}:".encode()
    found = {}
    for entry in context.proc.iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                _, here, rest = (b"\0" + (entry / "environ").read_bytes()).partition(prefix)
                if here and _state(context, int(entry.name)) not in ("", "Z", "X"):
                    found[int(entry.name)] = rest.split(b"\0")[0].decode("utf-8", "replace")
    return found


def _tag_home(context: CheckContext) -> str:
    return records.tag(str(context.home.root), "", 0).partition(":")[0]


def _some(names: Mapping[str, str]) -> str:
    listed = sorted(names)
    return ", ".join(listed[:SHOWN]) + (f" and {len(listed) - SHOWN} more" if len(listed) > SHOWN else "")


CHECKS: Mapping[str, Check] = {
    "supervisor": supervisor,
    "gateway": gateway.process,
    "tmux server": server,
    "sessions": sessions,
    "worktrees": worktrees,
    "leftovers": leftovers,
}
