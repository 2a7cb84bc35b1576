"""Look at the files that nightcrew keeps on this machine."""

from __future__ import annotations

import contextlib
import os
import shlex
import sqlite3
import stat
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path

from agents.kinds import kinds
from memory.watching import Hints, Watching
from supervisor.client import protocol
from supervisor.config import project, user
from supervisor.doctor import crew
from supervisor.doctor.examine import Check, CheckContext, Finding, existing, fail, ok, unknown, warn
from supervisor.gateway import lifecycle
from supervisor.gateway.account.schema import ACCOUNT
from supervisor.host import cores, files, scratch, secrets
from supervisor.host.audit_log import Audit
from supervisor.host.clock import SystemClock
from supervisor.host.paths import Home
from supervisor.host.scratch import locked_directory
from supervisor.kernel.errors import ConfigError, HostError, NightcrewError, NotFound, ToolMissing
from supervisor.kernel.format import size
from supervisor.kernel.states import End
from supervisor.server.attempts.worktree_records import facts
from supervisor.server.lock import DaemonLock
from supervisor.snapshots import rows as snapshots_rows
from supervisor.store import conversations, queries, rows, sqlite
from supervisor.store.backups import Report, recover
from supervisor.store.sqlite import LEDGER
from worktrees import environments
from worktrees.environments import environment_path
from worktrees.git import Git
from worktrees.repository import discover

# File events
# -----------
# Whether changes in the memories of projects are seen at once.


WHY = "what you or an agent writes into a memory by hand is seen every 2 s, not at once"


def check(context: CheckContext) -> Finding:
    """Watch a directory for a moment, as the supervisor does."""
    place = existing(context.home.root)
    kind = scratch.file_system(place)
    if scratch.changes_elsewhere(kind):
        return warn(f"{kind} tells nobody what others change", WHY, "NIGHTCREW_HOME names a directory on a local disk")
    watching = Watching(Hints(lambda: None), recursive=False)
    try:
        why = watching.follow(place)
    finally:
        watching.close()
    if why:
        return warn(why, WHY, "sysctl fs.inotify shows the limits; max_user_instances and max_user_watches can be raised")
    return ok("changes of memories are seen at once")


# State
# -----
# What nightcrew keeps on this machine, and the files that people write for it.


NETWORK = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "lustre", "fuse.sshfs", "fuse.s3fs", "fuse.rclone", "ncpfs"}
)
VOLATILE = frozenset({"tmpfs", "ramfs"})
MIB = 2**20
INODES = 10_000


def directory(context: CheckContext) -> Finding:
    """The state directory and the directory of its sockets: ours, private, writable."""
    for path in dict.fromkeys((context.home.root, context.home.run_dir)):
        found = _directory(path)
        if found is not None:
            return found
    if not context.home.root.exists():
        return ok(f"{context.home.root}  (not made yet)")
    return ok(str(context.home.root))


def _directory(path: Path) -> Finding | None:
    """What is wrong with one of them."""
    why = "nightcrew keeps its ledger, its sockets and the agents' worktrees there"
    try:
        found = path.lstat()
    except FileNotFoundError:
        near = existing(path)
        if os.access(near, os.W_OK | os.X_OK):
            return None
        return fail(f"{path} cannot be made: {near} is not writable", why, "NIGHTCREW_HOME names another place")
    except OSError as error:
        return fail(f"{path}: {error.strerror}", why, f"ls -ld {shlex.quote(str(path))}")
    if not stat.S_ISDIR(found.st_mode):
        return fail(f"{path} is not a directory but a link or a file", why, f"move it away: mv {shlex.quote(str(path))}{{,.old}}")
    if found.st_uid != os.geteuid():
        return fail(f"{path} belongs to uid {found.st_uid}", why, f"sudo chown -R {os.geteuid()} {shlex.quote(str(path))}")
    mode, fix = stat.S_IMODE(found.st_mode), f"chmod 0700 {shlex.quote(str(path))}"
    if mode & 0o700 != 0o700:
        return fail(f"{path} has mode {mode:04o}", why, fix, _chmod(path))
    if not os.access(path, os.W_OK | os.X_OK):
        return fail(f"{path} is not writable", why, "mount it for writing, or NIGHTCREW_HOME names another place")
    if mode != 0o700:
        return warn(f"{path} has mode {mode:04o}", "others may look at what agents do", fix, _chmod(path))
    return None


def _chmod(path: Path) -> Callable[[], str]:
    def mend() -> str:
        files.private_dir(path)  # by its handle, and only when it is a directory of ours
        return f"{path} is 0700"

    return mend


def file_system(context: CheckContext) -> Finding:
    """What the state lies on."""
    path = os.path.realpath(existing(context.home.root))
    around = [mount for mount in context.mounts() if f"{path}/".startswith(f"{mount[1].rstrip('/')}/")]
    if not around:
        return unknown("the kernel does not say")
    _, point, kind, said = max(reversed(around), key=lambda mount: len(mount[1]))  # the newest hides the others at its point
    options = said.split(",")
    seen = f"{kind} on {point}"
    move = "NIGHTCREW_HOME names a directory on a local disk"
    if kind in NETWORK:
        return warn(seen, "the ledger's locks and its log need a local disk: SQLite may lose data on this one", move)
    if kind in VOLATILE:
        return warn(seen, "everything there is gone after a reboot: tasks, worktrees, what is not merged", move)
    if "noexec" in options:
        return warn(f"{seen}, noexec", "agents cannot run programs from their worktrees", move)
    return ok(seen)


def disk(context: CheckContext) -> Finding:
    """Free space, against what stops the crew."""
    space = os.statvfs(existing(context.home.root))
    free, least = space.f_bavail * space.f_frsize, context.settings.disk_free_min
    seen, fix = f"{size(free)} free", "nightcrew clean shows what can go"
    if free < least:
        return fail(seen, f"below {size(least)} (limits.disk_free_min) nothing new starts", fix)
    if space.f_files and space.f_favail < INODES:
        return warn(f"{seen}, {space.f_favail:,} inodes", "a worktree takes an inode a file", fix)
    return ok(seen)


def ledger(context: CheckContext) -> Finding:
    """Whether the one durable truth is whole."""
    path = context.home.ledger
    why = "without it nothing new is accepted; branches, worktrees and running agents are untouched"
    try:
        with contextlib.closing(sqlite.connect_readonly(path)) as db:
            found = str(db.execute("PRAGMA quick_check(1)").fetchone()[0])
            if found != "ok":
                with sqlite.explained(path):
                    raise sqlite3.DatabaseError(found)
            version = int(db.execute("PRAGMA user_version").fetchone()[0])
            runs, tasks = (int(db.execute(f"SELECT count(*) FROM {table}").fetchone()[0]) for table in ("run", "task"))  # noqa: S608 - ours
    except NightcrewError as error:
        if error.what == "no ledger":
            return ok("not made yet: nothing was ever run here")
        return fail(f"{error.what}: {error.why}" if error.why else error.what, why, error.hint)
    return ok(f"whole, schema {version}; runs: {runs:,}, tasks: {tasks:,}, {size(path.stat().st_size)}")


def settings(context: CheckContext) -> Finding:
    """The user's settings file."""
    try:
        user.load(context.config, len(cores.usable()))
    except ConfigError as error:
        return fail(f"{error.on}: {error.why}", "no supervisor starts with it", "mend the line")
    with contextlib.suppress(NightcrewError):
        if outdated := protocol.call(context.home.daemon_socket, "ping", {"settings": True}, timeout_s=context.tool_s).get("outdated"):
            return warn("; ".join(sentence.partition(";")[0] for sentence in outdated), "what runs has the values of before", _RESTART)
    return ok(str(context.config) if context.config.exists() else f"none, so the defaults hold ({context.config})")


def repository(context: CheckContext) -> Finding:
    """The repository around the current directory, and its project file."""
    from worktrees.git import Git
    from worktrees.repository import discover, main_root

    with locked_directory(Path(tempfile.gettempdir()), "nightcrew-doctor-") as scratch:  # the state directory may be what is broken
        try:
            found = discover(Git(scratch / "git"), context.cwd)
        except (NotFound, ToolMissing) as error:
            return ok("not in a repository") if isinstance(error, NotFound) else unknown("cannot look without git")
        except (NightcrewError, HostError) as error:
            return warn(f"{error.what}: {error.why}" if error.why else error.what, "nothing can be run in it as it is", error.hint)
    try:
        said = project.load(main_root(found), kinds())
    except ConfigError as error:
        return fail(f"{error.on}: {error.why}", "nothing is run in this repository until it is right", "mend the line")
    file = said.file.name if said.file else f"no {project.NAME}: nightcrew init writes one"
    return ok("; ".join([f"{found.root}  ({file})", *found.notes]))


LOST = "its row was lost with the damaged ledger"
_RESTART = "nightcrew down && nightcrew up -d (agents go on)"


CHECKS: Mapping[str, Check] = {
    "directory": directory,
    "file system": file_system,
    "file events": check,
    "disk": disk,
    "ledger": ledger,
    "settings": settings,
    "keys": crew.keys,
    "repository": repository,
}


# Recovery
# --------
# `nightcrew doctor --recover-ledger` and `--recover-account`: a whole file from its newest copy and its journal.


def ledger_recovery(home: Home) -> Report:
    """Recover the ledger. Raises Refused while a supervisor lives, NotFound when there is no ledger, LedgerError when nothing whole can be
    made of it; then nothing was changed."""
    if not home.root.is_dir():
        raise NotFound("no ledger", on=str(home.ledger), why=LEDGER.absent, hint=LEDGER.first)
    with closing(DaemonLock(home.lock)):
        return _noted(home, "ledger", recover(home.ledger, LEDGER, _stamp(), lambda db: _mend(db, home), _check))


def account(home: Home) -> Report:
    """Recover the gateway's account. Raises Refused while a gateway lives, else as `ledger`."""
    if not home.gateway_account.parent.is_dir():
        raise NotFound("no account", on=str(home.gateway_account), why=ACCOUNT.absent, hint=ACCOUNT.first)
    handle = lifecycle.lock(home)
    try:
        return _noted(home, "account", recover(home.gateway_account, ACCOUNT, _stamp(), lambda _: [], lambda _: None))
    finally:
        os.close(handle)


def _mend(db: sqlite3.Connection, home: Home) -> list[str]:
    """Bring the rows up to what the records on disk prove, where transactions are missing. Returns a line for each change."""
    return [*_find_attempts(db, home), *_find_worktrees(db, home), *_revoke_tokens(db)]


def _find_attempts(db: sqlite3.Connection, home: Home) -> list[str]:
    """Add a row for each attempt that left records and has none. The next supervisor looks for the newest one as after a crash."""
    said = []
    for task, epoch in db.execute("SELECT id, epoch FROM task").fetchall():
        newest = _newest_record(home, task, epoch)
        for number in range(epoch + 1, newest + 1):
            state, end = ("launching", None) if number == newest else ("ended", End.LOST)
            values = (task, number, state, end, LOST)
            db.execute("INSERT INTO attempt (task, epoch, state, end, cause, created) VALUES (?, ?, ?, ?, ?, 0)", values)
            said.append(f"attempt {task}:{number}: {LOST}; its records are in {home.attempt(task, number)}")
        if newest > epoch:
            db.execute("UPDATE task SET state = 'running', epoch = ?, reason = '' WHERE id = ?", (newest, task))
    return said


def _newest_record(home: Home, task: str, epoch: int) -> int:
    while home.attempt(task, epoch + 1).is_dir():
        epoch += 1
    return epoch


def _revoke_tokens(db: sqlite3.Connection) -> list[str]:
    """Revoke every access token: the transaction that revoked one may be missing."""
    gone = db.execute("UPDATE access_token SET revoked = created WHERE revoked IS NULL RETURNING id, name, user").fetchall()
    return [f"token {name} of {user} ({number}): revoked, since nobody knows whether it still held" for number, name, user in gone]


def _check(db: sqlite3.Connection) -> None:
    """Raises what a supervisor, or `status`, would meet in this ledger."""
    queries.unfinished(db)
    for (run,) in db.execute("SELECT id FROM run").fetchall():
        queries.of_run(db, str(run))
        queries.outcomes(db, str(run))
    for (task,) in db.execute("SELECT id FROM task").fetchall():
        rows.launch(db, str(task))
    rows.attempts(db, "")
    snapshots_rows.every(db)
    conversations.pending(db)


def _stamp() -> str:
    return time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())


def _noted(home: Home, name: str, report: Report) -> Report:
    if report.kept is not None:
        said = {"kept": str(report.kept), "saved": sum(report.saved.values()), "lost": "; ".join(report.lost)}
        Audit(home.audit, secrets.own(home.secret), SystemClock(), "doctor").note(f"{name} recovered", said)
    return report


def _find_worktrees(db: sqlite3.Connection, home: Home) -> list[str]:
    """Where attempts worked whose rows were lost: by the same look that a supervisor takes for what a killed one did not write down."""
    said = []
    unknown = db.execute("""SELECT a.task, a.epoch, r.base_oid, p.id AS project, p.root FROM attempt a JOIN task t ON t.id = a.task
                            JOIN run r ON r.id = t.run JOIN project p ON p.id = t.project
                            WHERE a.worktree IS NULL AND a.removed IS NULL AND a.end IS NOT NULL""").fetchall()
    for task, epoch, base, project_id, root in unknown:
        place = home.worktrees / project_id
        if not environment_path(place, task, epoch).is_dir():
            continue
        try:
            made = environments.left(discover(Git(home.root / "git"), Path(root)), task, epoch, base, place)
        except NightcrewError as error:
            said.append(f"attempt {task}:{epoch}: its worktree lies below {place} and could not be looked at: {error.line()}")
            continue
        if made is not None:
            known = facts(made)
            names = ", ".join(f"{name} = ?" for name in known)
            db.execute(f"UPDATE attempt SET {names} WHERE task = ? AND epoch = ?", (*known.values(), task, epoch))  # noqa: S608 - our own names
    return said
