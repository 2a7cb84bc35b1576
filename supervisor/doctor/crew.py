"""Look at the supervisor, its gateway and what attempts may have left."""

from __future__ import annotations

import contextlib
import os
import shlex
import sqlite3
import stat
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from agents import tmux_control
from agents.tmux import close_sessions
from agents.tmux_control import PaneView
from supervisor import __version__
from supervisor.client import protocol
from supervisor.config import user
from supervisor.config.toml import Once
from supervisor.doctor.examine import Check, CheckContext, Finding, fail, ok, unknown, warn
from supervisor.features.night import install as night_install
from supervisor.features.night import view as night_view
from supervisor.gateway import pages
from supervisor.host import autostart, secrets
from supervisor.kernel import names
from supervisor.kernel.errors import ConfigError, NightcrewError, NotFound, NotRunning, Refused, TimedOut, ToolFailed
from supervisor.kernel.format import listed, many
from supervisor.kernel.gateway_settings import GatewaySettings
from supervisor.sandbox import exec_step, executors
from supervisor.server import gateway, gateway_process, lock
from supervisor.server.attempts.observe import ATTEMPT_OPTION, HOME_OPTION
from supervisor.store import queries, sqlite
from worktrees.backends import mounts
from worktrees.environments import Environment, environment_path
from worktrees.git import Git
from worktrees.private_repository import beside
from worktrees.registration import read_link
from worktrees.removal import forget
from worktrees.repository import discover

# Gateway
# -------
# The gateway, and the files that hold keys. No keyring's program is run: it might ask its user for a password.


def process(context: CheckContext) -> Finding:
    """Whether a gateway runs when there should be one, answers, and can use every upstream."""
    settings = _settings(context)
    if settings is None:
        return unknown("the settings cannot be read")
    if not settings.upstreams:
        return ok("none is needed: no upstream is configured, so agents reach their providers by themselves")
    found = gateway_process.running(context.home)
    if found is None:
        return _nobody_gateway(context)
    seen = f"pid {found.identity.pid}, 127.0.0.1:{found.port}"
    try:
        status = pages.ask(context.home, pages.STATUS, timeout_s=context.tool_s)
    except NightcrewError as error:
        return fail(f"{seen}: {error.line()}", "agents wait for a model", f"kill -9 {found.identity.pid}: the supervisor starts another")
    return _usable(context, settings, status, seen) or ok(
        f"{seen}; upstreams: {', '.join(upstream.name for upstream in settings.upstreams)}"
    )


def _usable(context: CheckContext, settings: GatewaySettings, status: dict[str, Any], seen: str) -> Finding | None:
    """The worst of what keeps agents from an upstream, or None. What others there are stands in `nightcrew gateway status`."""
    if refused := gateway.refused(status, settings):
        names = ", ".join(upstream.name for upstream in refused)
        step = gateway.next_step(context.home, refused[0])
        return fail(f"{seen}: the key of {names} is refused", "nothing is sent there with a key that is wrong", step)
    for upstream in settings.upstreams:
        if lines := [line for line in status["problems"] if f"upstream {upstream.name}:" in line]:
            return warn(f"{seen}: {lines[0]}", "requests for it are refused", gateway.next_step(context.home, upstream))
    if problems := gateway.standing(context.home, status, settings):
        return warn(f"{seen}: {problems[0]}", "it does less than it should", "nightcrew gateway status")
    if silent := list(gateway.unserved(status).values()):
        return warn(
            f"{seen}: {silent[0]}", "requests wait until it does", "see whether the provider can be reached: nightcrew gateway status"
        )
    return None


def _nobody_gateway(context: CheckContext) -> Finding:
    if lock.holder(context.home.lock) is None:
        return ok("none runs; the supervisor starts one")
    words = gateway_process.last_words(context.home)
    why = f"nothing new starts without it; it said: {words}" if words else "nothing new starts without it"
    return fail("none runs, although the supervisor does", why, f"tail {shlex.quote(str(context.home.gateway_log))}")


def keys(context: CheckContext) -> Finding:
    """Whether the files that hold secrets can be read by their owner alone, and whether every upstream's is there."""
    settings = _settings(context)
    wanted = dict(_key_files(context, settings)) if settings is not None else {}
    own = {context.home.secret, context.home.metrics_token}
    files = {*own, *context.home.keys.glob("*.key"), *wanted}
    for path in sorted(files):
        try:
            secrets.key(path)
        except NotFound:
            if path in wanted:
                why = f"the upstream {wanted[path]} cannot be used without its key"
                return fail(f"no file {path}", why, f"put the key into {path} (mode 600), then {gateway.RELOAD}")
        except Refused as error:
            fix = error.hint or f"look at it: ls -l {shlex.quote(str(path))}"
            return fail(f"{path}: {error.why}", "it is not used like that; whoever could read it may have", fix, _closer(path))
    held = sum(path.exists() for path in files - own)
    if not held:
        return ok("none of a provider is kept here")
    return ok("the key of 1 provider, which only you can read" if held == 1 else f"the keys of {held} providers, which only you can read")


def _key_files(context: CheckContext, settings: GatewaySettings) -> Iterable[tuple[Path, str]]:
    for upstream in settings.upstreams:
        if upstream.key.kind == "file":
            value = upstream.key.value
            yield Path(value).expanduser() if value else context.home.keys / f"{upstream.name}.key", upstream.name


def _closer(path: Path) -> Callable[[], str] | None:
    """Makes a plain file of ours private; None for anything else, and for one that is private already."""
    try:
        found = path.lstat()
    except OSError:
        return None
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or not found.st_mode & 0o077:
        return None

    def mend() -> str:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            os.fchmod(handle, 0o600)
        finally:
            os.close(handle)
        return f"{path} is 0600; if others use this machine, get a new key"

    return mend


def _settings(context: CheckContext) -> GatewaySettings | None:
    """None when they cannot be read: the check of the settings says why."""
    try:
        return user.load_gateway(context.config, context.home.keys)
    except ConfigError:
        return None


# Crew
# ----
# The supervisor, the tmux server, and what attempts may have left behind.
#
# The checks look at what is alive first and at the ledger last. An attempt is committed before anything of it starts, so what was
# alive and has no row is a leftover. Without a ledger that can be read nothing counts as a leftover.


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
        return names.attempt_name(self.task, self.epoch)


_ROWS = """
    SELECT a.task, a.epoch, t.project, p.root, a.state = 'released' AS released, a.worktree, a.admin_dir, a.branch, a.base_oid,
           a.removed IS NOT NULL AS removed
    FROM attempt a JOIN task t ON t.id = a.task JOIN project p ON p.id = t.project
"""


def _rows(context: CheckContext) -> list[Row]:
    """Every attempt. Raises LedgerError also when there is no ledger: then nothing counts as a leftover."""
    with contextlib.closing(sqlite.connect_readonly(context.home.ledger)) as db:
        return [Row(**dict(row)) for row in db.execute(_ROWS)]


def _unfinished(context: CheckContext) -> int:
    if not context.home.ledger.exists():
        return 0
    with contextlib.closing(sqlite.connect_readonly(context.home.ledger)) as db:
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
    shown = f"; {many(alerts, 'alert')}: nightcrew attach supervisor" if alerts else ""
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
    pid = tmux_control.server_pid(context.home.tmux_socket)
    if pid is None:
        return ok("none runs")
    panes = _panes(context)
    if isinstance(panes, str):
        fix = f"kill -CONT {pid}" if _state(context, pid) == "T" else f"kill {pid}: it ends every pane, and lost attempts run again"
        return fail(f"pid {pid} does not answer: {panes}", "no agent starts or ends, and nobody can attach", fix)
    agents = sum(1 for pane in panes if ATTEMPT_OPTION in pane.tags)
    return ok(f"pid {pid}, {many(agents, 'agent')}")


def _panes(context: CheckContext) -> list[PaneView] | str:
    """Every pane of our server; or why not."""
    said = context.ask(*_tmux(context), "list-panes", "-a", "-F", tmux_control.FORMAT)
    if said.code == 0:
        return tmux_control.parse_panes(said.text.splitlines())
    return [] if said.text == tmux_control.NO_SESSION or "no server running" in said.text else said.text


def _tmux(context: CheckContext) -> tuple[str, ...]:
    return ("tmux", "-u", "-f", "/dev/null", "-N", "-S", os.fspath(context.home.tmux_socket))


def sessions(context: CheckContext) -> Finding:
    """Sessions of ours whose attempt is over."""
    try:
        pid = tmux_control.server_pid(context.home.tmux_socket)
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
        exec_step.unmount(path, lazy=True)
    return f"unmounted {len(strays)}; their files stay where they lie"


def leftovers(context: CheckContext) -> Finding:
    """Name processes of attempts that are over, and of sandboxes that a killed supervisor started for itself."""
    if probes := [seen.pid for seen in executors.left()]:
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
    prefix = f"\0{names.TAG_VARIABLE}={_tag_home(context)}:".encode()
    found = {}
    for entry in context.proc.iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                _, here, rest = (b"\0" + (entry / "environ").read_bytes()).partition(prefix)
                if here and _state(context, int(entry.name)) not in ("", "Z", "X"):
                    found[int(entry.name)] = rest.split(b"\0")[0].decode("utf-8", "replace")
    return found


def _tag_home(context: CheckContext) -> str:
    return names.tag(str(context.home.root), "", 0).partition(":")[0]


def _some(names: Mapping[str, str]) -> str:
    return listed(sorted(names), SHOWN)


# Nights
# ------
# Installed nights, which start by themselves.


def nights(context: CheckContext) -> Finding:
    """Whether each installed night would start: what starts it, its consent, its plan, and what came of its newest start."""
    names = night_install.names(context.home)
    if not names:
        return ok("none is installed")
    found = {name: why for name in names if (why := _wrong(context, name))}
    for name, why in found.items():
        anew = f"nightcrew night install, anew; or nightcrew night uninstall {name}"
        return warn(f"{name}: {why}", "it does not start at night", autostart.START_CRON if why == autostart.NO_CRON else anew)
    late = night_view.not_started(context.home, datetime.now())
    if late:
        return warn(late[0], "its tasks did not run", "nightcrew night list")
    return ok(f"{len(names)}, each as it was installed")


def _wrong(context: CheckContext, name: str) -> str:
    try:
        consent = night_install.load(context.home, name)
        changed = night_install.changed(consent, Once())
        return f"changed since it was installed: {', '.join(changed)}" if changed else autostart.wrong(consent.entry(context.home))
    except NightcrewError as error:
        return error.line()


CHECKS: Mapping[str, Check] = {
    "supervisor": supervisor,
    "gateway": process,
    "tmux server": server,
    "sessions": sessions,
    "worktrees": worktrees,
    "leftovers": leftovers,
    "nights": nights,
}
