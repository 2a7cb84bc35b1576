"""What nightcrew keeps on this machine, and the files that people write for it."""

from __future__ import annotations

import contextlib
import os
import shlex
import sqlite3
import stat
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from agents.kinds import kinds
from supervisor.config import project, user
from supervisor.core.errors import ConfigError, HostError, NightcrewError, NotFound, ToolMissing
from supervisor.daemon import protocol
from supervisor.doctor import file_events, gateway
from supervisor.doctor.check_context import CheckContext, existing
from supervisor.doctor.examine import Check
from supervisor.doctor.finding import Finding, fail, ok, unknown, warn
from supervisor.host import cores, files
from supervisor.host import disk as host_disk
from supervisor.host.scratch import locked_directory
from supervisor.ledger import store

NETWORK = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "lustre", "fuse.sshfs", "fuse.s3fs", "fuse.rclone", "ncpfs"}
)
VOLATILE = frozenset({"tmpfs", "ramfs"})
MIB = 2**20
WALK_S = 2.0
"""Sizing the worktrees ends after this long; what was seen until then is their least size."""
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
    """Free space, against what stops the crew and against what its worktrees take."""
    space = os.statvfs(existing(context.home.root))
    free, least = space.f_bavail * space.f_frsize, context.settings.disk_free_min
    count, size = _worktrees(context.home.worktrees)
    seen = f"{_size(free)} free" + (f"; worktrees: {count:,}, {_size(size)}" if count else "")
    fix = "nightcrew clean shows what can go"
    if free < least:
        return fail(seen, f"below {_size(least)} (limits.disk_free_min) nothing new starts", fix)
    if space.f_files and space.f_favail < INODES:
        return warn(f"{seen}, {space.f_favail:,} inodes", "a worktree takes an inode a file", fix)
    need = least + (size // count if count else 0) * context.slots
    if free < need:
        return warn(seen, f"{context.slots} more worktrees of that size and limits.disk_free_min need {_size(need)}", fix)
    return ok(seen)


def _worktrees(root: Path) -> tuple[int, int]:
    """How many worktrees lie there and how many bytes they take, as far as they could be looked at in WALK_S."""
    return len(list(root.glob("[!.]*/*/[!.]*"))), host_disk.used([root], max_seconds=WALK_S).bytes


def _size(count: int) -> str:
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count // MIB} MiB"


def ledger(context: CheckContext) -> Finding:
    """Whether the one durable truth is whole."""
    path = context.home.ledger
    why = "without it nothing new is accepted; branches, worktrees and running agents are untouched"
    try:
        with contextlib.closing(store.connect_readonly(path)) as db:
            found = str(db.execute("PRAGMA quick_check(1)").fetchone()[0])
            if found != "ok":
                with store.explained(path):
                    raise sqlite3.DatabaseError(found)
            version = int(db.execute("PRAGMA user_version").fetchone()[0])
            runs, tasks = (int(db.execute(f"SELECT count(*) FROM {table}").fetchone()[0]) for table in ("run", "task"))  # noqa: S608 - ours
    except NightcrewError as error:
        if error.what == "no ledger":
            return ok("not made yet: nothing was ever run here")
        return fail(f"{error.what}: {error.why}" if error.why else error.what, why, error.hint)
    return ok(f"whole, schema {version}; runs: {runs:,}, tasks: {tasks:,}, {_size(path.stat().st_size)}")


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


_RESTART = "nightcrew down && nightcrew up -d (agents go on)"


CHECKS: Mapping[str, Check] = {
    "directory": directory,
    "file system": file_system,
    "file events": file_events.check,
    "disk": disk,
    "ledger": ledger,
    "settings": settings,
    "keys": gateway.keys,
    "repository": repository,
}
