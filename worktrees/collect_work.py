"""Take an attempt's work out of its worktree."""

from __future__ import annotations

import array
import contextlib
import json
import os
import re
import select
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any

from supervisor.host import files, untrusted_fs
from supervisor.host.failpoint import failpoint
from supervisor.host.scratch import locked_directory
from supervisor.host.untrusted_fs import folder, open_plain
from supervisor.kernel.errors import DiskFull, HostError, NotFound, Refused, ToolFailed, ToolHung, from_wire, last_line, one_line
from supervisor.kernel.format import listed
from supervisor.sandbox import executors
from supervisor.sandbox import policy as sandbox
from supervisor.sandbox.executors import Executor
from supervisor.sandbox.policy import Network, Policy, Tier
from worktrees import changes as blocking_files
from worktrees import commit_work, git, pack_import, private_repository, repository
from worktrees.backends import UserOverlay
from worktrees.changes import observe
from worktrees.commit_work import Secured
from worktrees.environments import Environment, has_successor, shown
from worktrees.git import BULK_S, config_text, wrap_os_errors
from worktrees.private_repository import beside
from worktrees.repository import Update
from worktrees.templates import read

# Helper process
# --------------
# Starts the helper that works in a sandbox: forked from a warm process where our own namespaces make the sandbox, else as a new program.
#
# What the helper imports costs more time than what it does. So the first one starts a process that imports everything once, has one thread
# and no secret, and waits: for each request it forks, and the fork enters the sandbox (`supervisor.sandbox.namespaces`). It ends when
# the process that uses it has ended, and everything that it forked ends with it.


_HELPER = (sys.executable, "-I", "-S", str(Path(__file__).parent / "collect_helper.py"))
_ANSWER_S = 20.0
"""The warm process forks within milliseconds, its first time after importing; one that takes longer is replaced."""
_END_S = 10.0
_WORDS_MAX = 2**17
"""Bytes of orders in one datagram; the kernel takes 200 kB."""


@dataclass(frozen=True, slots=True)
class Helper:
    """A helper at work, by handles of this process."""

    stdin: int
    stdout: int
    stderr: int
    pid: int
    """Of its outermost process, which is not reaped before the end."""


class Forks:
    """The warm process. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._line: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def fork(self, words: Sequence[str], handles: Sequence[int]) -> tuple[int, int] | None:
        """Start a helper with these three handles in the sandbox of these orders; its pid and a pidfd; None without a warm process."""
        data = b"\0".join(map(os.fsencode, words))
        if len(data) > _WORDS_MAX:
            return None
        with self._lock:
            for _ in range(2):  # somebody may have ended the first
                with contextlib.suppress(OSError):
                    line = self._line or self._start()
                    line.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", handles))])
                    if (started := _received(line)) is not None:
                        return started
                self._forget()
        return None

    def _start(self) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            argv, number = [*_HELPER, "serve", str(theirs.fileno())], theirs.fileno()
            self._process = subprocess.Popen(
                argv, pass_fds=(number,), stdin=subprocess.DEVNULL, cwd="/", env=_variables(), start_new_session=True
            )
        ours.settimeout(_ANSWER_S)
        self._line = ours
        return ours

    def _forget(self) -> None:
        if self._line is not None:
            self._line.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._line, self._process = None, None


_forks = Forks()


@contextlib.contextmanager
def start(policy: Policy, executor: Executor) -> Iterator[Helper]:
    """Yield a helper in the sandbox of `policy`, whose `tmp` is a `locked_directory` of this process. It ends with the `with`, and with
    this process. Raises Refused, OSError."""
    with contextlib.ExitStack() as stack:
        with contextlib.ExitStack() as theirs:
            child_in, stdin = _pipe(theirs, stack)
            stdout, child_out = _pipe(stack, theirs)
            stderr, child_err = _pipe(stack, theirs)
            pid = _started(policy, executor, (child_in, child_out, child_err), stack)
        yield Helper(stdin, stdout, stderr, pid)


def _started(policy: Policy, executor: Executor, handles: tuple[int, int, int], stack: contextlib.ExitStack) -> int:
    """Start a helper, and return its pid. `stack` ends it, and everything in its sandbox ends a moment later."""
    started = _forks.fork(executors.words(policy), handles) if executor is Executor.NAMESPACES else None
    if started is not None:
        pid, pidfd = started
        stack.callback(os.close, pidfd)
        stack.callback(_end, pidfd)
        return pid
    stdin, stdout, stderr = handles
    argv = [*executors.argv(policy, executor), *_HELPER]
    group, env = stack.enter_context(executors.guarded(Path(policy.tmp), _variables()))
    process = subprocess.Popen(argv, stdin=stdin, stdout=stdout, stderr=stderr, cwd="/", env=env, process_group=group)
    stack.callback(process.wait)
    stack.callback(process.kill)
    return process.pid


def _end(pidfd: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    select.select([pidfd], [], [], _END_S)


def _received(line: socket.socket) -> tuple[int, int] | None:
    """The pid, and the pidfd, that the warm process answers with; None when it has ended."""
    pid, handles, _, _ = socket.recv_fds(line, 16, 1)
    return (int(pid), handles[0]) if handles else None


def _pipe(reading: contextlib.ExitStack, writing: contextlib.ExitStack) -> tuple[int, int]:
    """Its ends, each of which its stack closes."""
    ends = os.pipe()
    reading.callback(os.close, ends[0])
    writing.callback(os.close, ends[1])
    return ends


def _variables() -> dict[str, str]:
    return {"PATH": os.environ.get("PATH", os.defpath), "HOME": "/nonexistent", "LC_ALL": "C"}


# Inspection
# ----------
# What would be lost with a worktree: looked for where its agent worked, judged by `removal`.


SHOWN = 10
"""Paths listed in one reason."""


class Why(StrEnum):
    """Why a worktree is kept."""

    MISSING = "missing"
    FOREIGN = "not ours"
    UNKNOWN = "could not be inspected"
    LOCKED = "locked"
    ALIVE = "processes inside"
    DIRTY = "uncommitted changes"
    UNTRACKED = "untracked files"
    IGNORED = "ignored files"
    NESTED = "repositories inside"
    UNMERGED = "commits not on any other branch"
    UNKEPT = "commits on no ref"


HARD = frozenset({Why.MISSING, Why.FOREIGN, Why.UNKNOWN, Why.LOCKED, Why.ALIVE})
"""Reasons that no `discard` overrides."""


@dataclass(frozen=True, slots=True)
class Reason:
    """`detail` is one line for people; `paths` holds at most `SHOWN` of `count`."""

    why: Why
    detail: str = ""
    paths: tuple[str, ...] = ()
    count: int = 0

    def __str__(self) -> str:
        names = listed(self.paths, more=max(0, self.count - len(self.paths)))
        return ": ".join(part for part in (self.why.value, self.detail, names) if part)


@dataclass(frozen=True, slots=True)
class Origin:
    """What the files of a worktree were made from, when that is a template."""

    lower: Path
    """The template's tree."""
    extras: frozenset[str]
    """What git ignores there, as `Template.extras`."""


@dataclass(frozen=True, slots=True)
class Look:
    """What was seen in a worktree."""

    head: str | None
    """Commit that HEAD stands on."""
    branch: str | None
    """Full name of the ref that HEAD is on."""
    tip: str | None
    """Commit of the work branch, where HEAD is not on it: in the repository that its agent worked in."""
    reasons: tuple[Reason, ...]
    """What would be gone with the files."""
    is_untouched: bool
    """HEAD stands on the base, and its logs remember nothing that is on no ref."""


def branch_origin(env: Environment) -> Origin | None:
    """Raises nothing: a template that cannot be read explains no file."""
    if env.layers is None:
        return None
    try:
        return Origin(Path(env.layers.lower), frozenset(read(env.layers.template).extras))
    except (NotFound, HostError):
        return None


def look_for_losses(env: Environment, made_from: Origin | None, *, objects: bool = True) -> Look:
    """Of what `open_env` gave. Looks only, but sets aside what would make git wait; `objects` as in `blocking_files.disarm`. Raises
    ToolFailed, ToolHung, HostError."""
    blocking_files.disarm(env, objects=objects)
    changes = observe(env.repo.git, env.place, ignored=True)
    groups = {
        Why.DIRTY: (*changes.tracked, *changes.deleted, *changes.hidden),
        Why.UNTRACKED: changes.untracked,
        Why.IGNORED: tuple(path for path in changes.ignored if not _is_from(made_from, env.place.top, os.fsdecode(path))),
        Why.NESTED: changes.nested,
    }
    found = [Reason(why, paths=_shown_inspection(paths), count=len(paths)) for why, paths in groups.items() if paths]
    untouched = changes.head == env.base and not found and commit_work.all_kept(env)
    tip = None if changes.branch == env.branch_ref else commit_work.refs_of(env).get(env.branch_ref)
    return Look(changes.head, changes.branch, tip, (*found, *(Reason(Why.UNKNOWN, warning) for warning in changes.warnings)), untouched)


def _is_from(made_from: Origin | None, top: Path, name: str) -> bool:
    """Whether an ignored file came with the template. What was changed inside a directory of dependencies does not count as work."""
    if made_from is None or not {name, f"{name}/"} & made_from.extras:
        return False
    ours, theirs = top / name, made_from.lower / name
    if ours.is_symlink():
        return ours.readlink() in (theirs, theirs.readlink() if theirs.is_symlink() else theirs)
    if name.endswith("/"):
        return ours.is_dir()
    try:
        with open_plain(ours) as one, open_plain(theirs) as other:
            sizes = {os.fstat(file.fileno()).st_size for file in (one, other)}
            return len(sizes) == 1 and one.read() == other.read()
    except OSError:
        return False


def _shown_inspection(paths: Sequence[bytes]) -> tuple[str, ...]:
    return tuple(path.decode("utf-8", "backslashreplace") for path in sorted(paths)[:SHOWN])


# Securing
# --------
# An attempt's work comes out of its worktree, whoever it is that worked there.
#
# Without a sandbox the agent shared the person's repository, and `rescue` and `inspection` do the work here. A confined agent had a
# repository of its own: nothing outside opens what it wrote. A helper process in a sandbox like the agent's (`securing_helper`)
# does the same work there and hands over a line of JSON and a pack; the pack is taken as a git server takes a stranger's push
# (`intake`), and our refs move by compare-and-swap. Every step can be repeated: what was taken already is not sent again.


SECURE_S = 420.0
"""Seconds for the helper's answer, and for its pack: it stores leftover files for at most `storing.STORE_S`, beside looking at them. One
that does nothing is ended sooner, as a git is (`stall_detection`)."""
PUBLISH_S = 15.0
"""Seconds for showing what a living agent committed; others wait for their turn meanwhile. What takes longer comes at the end."""
_WHY = "nightcrew: work of an attempt"
_ASKED_MAX = 3
_FOLLOW_TRIES, _FOLLOW_PAUSE_S = 20, 0.05
"""For a lock of the person's own git, whose editor may ask for the status again and again. After that they see stale lines until the next
commit."""
"""Times that a helper is asked while a person's git collects."""
_ANSWER_MAX = 4 * 2**20
_NOTES_MAX, _TEXT_MAX = 200, 2000
_KINDS = ("DiskFull", "HostError", "NotFound", "Refused", "Tampered", "ToolFailed", "ToolHung")
_ROOMY = 4 * pack_import.FILE_MAX
"""Bytes. What an attempt left is stored once and packed once, and comes out in one pack."""
_OID = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


def secure(env: Environment, message: str, trailers: Mapping[str, str] | None = None, *, always: bool = False) -> Secured:
    """As `commit_work.secure_here`, wherever the agent worked. Raises also HostError when no sandbox can be built where it had one. On
    a disk with hardly any room nothing is tried: what fails there costs room, and is not always told."""
    for place in (env.path.parent, env.repo.common_dir):
        if files.is_full(place):
            raise files.disk_full("no room to secure the work of an attempt", place, "the disk is full", kept="its files")
    text = commit_work.full_message(message, trailers or {})
    return _secure(env, text, onto_branch=True, always=always, most=commit_work.KEPT_MAX)


def snapshot(env: Environment, message: str) -> Secured:
    """As `secure(..., always=True)`, before a removal: branch, index and worktree stay as they are, and every tip gets on a rescue ref."""
    return _secure(env, commit_work.full_message(message, {}), onto_branch=False, always=True, most=commit_work.KEPT_AT_REMOVAL)


def set_apart(env: Environment, message: str, trailers: Mapping[str, str], before: Secured) -> tuple[str, ...]:
    """Keep what a gate changed, since the work was secured as `before` says, apart from that work; see `commit_work.set_apart`. Returns
    what is to be said of it. Where the agent did not leave HEAD on its branch, what the gate changed cannot be told from what the agent
    left beside the branch: all of it is on the rescue ref then, and the branch stays as it is. Raises as `secure`."""
    text = commit_work.full_message(message, trailers)
    if before.rescue != before.tip:
        return _secure(env, text, onto_branch=False, always=True, most=commit_work.KEPT_MAX).notes
    if env.private is None:
        return commit_work.set_apart(env, text, before.tip).notes
    return _secure_confined(env, {"verb": "secure", "message": text.decode(), "apart": before.tip}).notes


def parsed(shape: Mapping[str, Any]) -> Secured:
    """Read what was written of a `Secured`. Raises ToolFailed, LookupError, TypeError or ValueError for anything else."""
    return _secured(shape)


def look_at_work(env: Environment, *, objects: bool = True) -> Look:
    """As `inspection.look`, wherever the agent worked; of what `open_env` gave."""
    made_from = branch_origin(env)
    if env.private is None:
        return look_for_losses(env, made_from, objects=objects)
    origin = [str(made_from.lower), *sorted(made_from.extras)] if made_from is not None else []
    with _asked(env, {"verb": "look", "origin": origin, "known": {}}, SECURE_S) as (said, _):
        return _look(said)


def publish(env: Environment) -> str | None:
    """Let our work branch follow that of a confined agent, which may be at work. Returns the commit that it stands at then; None when it
    was left alone, because a person moved it or a later attempt has it. Raises ToolFailed, ToolHung, DiskFull, HostError."""
    found = commit_work.refs_of(env)
    ours = found.get(env.branch_ref)
    if ours is None or has_successor(env):
        return None
    known = _ours(env, found)
    with _asked(env, {"verb": "publish", "known": known, "stands": ours}, PUBLISH_S) as (said, helper):
        theirs = _refs(said, env)
        tip = theirs.get(env.branch_ref, ours)
        if tip == ours or said["was_there"] is not True:
            return ours if tip == ours else None
        if env.rescue_ref in commit_work.refs_of(env):  # its work is secured: what comes now is its gate's, which begins only after that
            return ours
        _take(env, helper, found, theirs, known, PUBLISH_S)
    _follow(env, tip)
    return tip


def _secure(env: Environment, message: bytes, *, onto_branch: bool, always: bool, most: int) -> Secured:
    if env.private is None:
        return commit_work.secure_here(env, message, onto_branch=onto_branch, always=always, most=most)
    request = {"verb": "secure", "message": message.decode(), "onto_branch": onto_branch, "always": always, "most": most}
    try:
        return _secure_confined(env, request)
    except Refused as error:
        if not _take_commits(env):
            raise
        kept = f"its commits are on {env.branch}; its files lie where they were"
        raise Refused(error.what, on=error.on, why=error.why, kept=kept, hint=error.hint) from error


def _take_commits(env: Environment) -> bool:
    """Once all that was left together was refused: at least what its agent committed. Whether that was taken."""
    found = commit_work.refs_of(env)
    known, stands = _whole(env, _ours(env, found)), found.get(env.branch_ref)
    if stands is None or has_successor(env):
        return False
    try:
        with shown(env), _asked(env, {"verb": "commits", "known": known, "stands": stands}, SECURE_S) as (said, helper):
            theirs = _refs(said, env)
            if env.branch_ref not in theirs or env.rescue_ref in found or not said["was_there"]:
                return False
            _take(env, helper, found, theirs, known, SECURE_S)
    except (ToolFailed, Refused):
        return False
    return True


def _secure_confined(env: Environment, request: Mapping[str, Any]) -> Secured:
    """Asked anew when a person's git collected, meanwhile, what the helper was told that we have, or saw among our objects."""
    for number in range(1, _ASKED_MAX + 1):
        found = commit_work.refs_of(env)
        known = _whole(env, _ours(env, found))
        try:
            return _asked_and_taken(env, {**request, "all": number > 1}, found, known)
        except (Refused, ToolFailed) as error:
            is_collected = isinstance(error, pack_import.Incomplete) or _whole(env, known) != known
            if number == _ASKED_MAX or not is_collected:
                raise
    raise AssertionError("the last round returns or raises")


def _asked_and_taken(env: Environment, request: Mapping[str, Any], found: Mapping[str, str], known: Mapping[str, str]) -> Secured:
    stands = found.get(env.branch_ref)
    with shown(env), _asked(env, {**request, "known": known, "stands": stands}, SECURE_S) as (said, helper):
        secured, theirs = _secured(said), _refs(said, env)
        failpoint("securing.answered")
        if stands is None or has_successor(env) or not said["was_there"]:
            theirs.pop(env.branch_ref, None)
        _take(env, helper, found, theirs, known, SECURE_S)
    failpoint("securing.taken")
    tip = theirs.get(env.branch_ref)
    if tip is not None:
        if tip != env.base:
            _follow(env, tip)
        return secured
    return replace(secured, notes=(*secured.notes, f"{env.branch} was moved or removed outside: the attempt's work is on {env.rescue_ref}"))


def _take(
    env: Environment, helper: Helper, found: Mapping[str, str], theirs: Mapping[str, str], known: Mapping[str, str], deadline_s: float
) -> None:
    """Let our refs stand where theirs do, with what the helper's pack holds beside what `known` refs reach."""
    had = {env.base, *known.values()}
    updates = [Update(ref, oid, found.get(ref, "")) for ref, oid in theirs.items() if found.get(ref) != oid or oid not in had]
    if not updates:
        return
    if all(update.new in had for update in updates):
        repository.move_all(env.repo, updates, _WHY)
    else:
        watch = git.StallDetector(helper.pid)
        pack_import.take(env.repo, helper.stdout, updates, sorted(had), _WHY, deadline_s=deadline_s, is_still=watch.look)


def _whole(env: Environment, ours: Mapping[str, str]) -> dict[str, str]:
    """Those of `ours` whose whole history is there. A prune that had looked at the refs before they moved may have taken some of it."""
    whole = {ref: oid for ref, oid in ours.items() if oid == env.base}
    todo = [dict(ours)] if len(whole) < len(ours) else []
    while todo:
        part = todo.pop()
        asked = "\n".join([*part.values(), f"^{env.base}", ""]).encode()
        try:
            env.repo.run("rev-list", "--objects", "--quiet", "--stdin", stdin=asked, deadline_s=BULK_S)
            whole |= part
        except ToolHung:
            raise
        except ToolFailed:
            todo += [{ref: oid} for ref, oid in part.items()] if len(part) > 1 else []
    return whole


def _ours(env: Environment, found: Mapping[str, str]) -> dict[str, str]:
    """The task's refs that nobody but us and the person moves."""
    return {ref: oid for ref, oid in found.items() if ref == env.branch_ref or not ref.startswith(f"{repository.HEADS}/")}


def _follow(env: Environment, tip: str) -> None:
    """Let the index of the worktree's registration stand at `tip`, so that `git status` by hand is true there. Its files are not opened."""
    index = env.admin_dir / "index"
    if not index.is_file():
        return
    for _ in range(_FOLLOW_TRIES):
        try:
            env.repo.git.run(replace(env.repo.store, git_dir=env.admin_dir), "read-tree", "-i", "-m", tip)
        except ToolFailed as error:
            if "index.lock" not in error.line():
                return
            time.sleep(_FOLLOW_PAUSE_S)
        else:
            return


# The helper ---------------------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _asked(env: Environment, request: Mapping[str, Any], deadline_s: float) -> Iterator[tuple[dict[str, Any], Helper]]:
    """What a helper answers, and the helper, whose stdout gives its pack within the `with`. Raises what the helper met, by its kind."""
    until = time.monotonic() + deadline_s
    body = json.dumps({**request, **_place(env)}).encode() + b"\n"
    with wrap_os_errors(beside(env.path)), locked_directory(beside(env.path), "securing.") as scratch:
        policy, executor = _sandbox(env, request, str(scratch))
        with start(policy, executor) as helper:
            with contextlib.suppress(BrokenPipeError):  # then it has something to say
                _write(helper, body)
            yield _said(env, helper, until), helper


def _place(env: Environment) -> dict[str, Any]:
    return {
        "task": env.task, "epoch": env.epoch, "path": str(env.path), "admin": env.admin_dir.name, "branch": env.branch, "base": env.base,
        "common": str(env.repo.common_dir), "root": str(env.repo.root), "project": env.repo.project, "personal": _personal(env),
        "packed": private_repository.packed_at_start(env.path),
    }  # fmt: skip


def _personal(env: Environment) -> str:
    """Return the person's own settings for the helper, which has another HOME. It sees the files that they name by their real paths."""
    git = env.repo.git
    return git.personal + config_text(f"{key}\n{path}" for key, path in git.personal_files().items())


def _sandbox(env: Environment, request: Mapping[str, Any], scratch: str) -> tuple[Policy, Executor]:
    """That of the helper: the worktree and the attempt's repository are writable, and nothing else of the agent's is."""
    path, common, own = str(env.path), str(env.repo.common_dir), env.private
    layered = env.layers is not None and env.layers.backend == UserOverlay.name and request["verb"] != "publish"
    executor, network = _executor(layered=layered)
    origin = request.get("origin", ())[:1]
    policy = Policy(
        writable=(path,) if env.path.is_dir() else (),
        readable=(*executors.program(), *private_repository.borrowed(env.repo), *map(str, env.repo.git.personal_files().values())),
        hidden=(str(env.repo.git.scratch().parent),),
        tmp=scratch,
        private=((common, str(own)),),
        shown=(
            *sandbox.repository_shown(common, str(own), env.admin_dir.name, path, partial(_can_be_shown, own)),
            *((name, name) for name in origin),
        ),
        overlay=(path, env.layers.options(user=True)) if layered and env.layers is not None else None,
        network=network,
    )
    return policy, executor


def _can_be_shown(own: Path | None, path: str) -> bool:
    """Whether it is there; in the attempt's own repository only where no link of its agent's leads there."""
    if own is None or not Path(path).is_relative_to(own):
        return os.path.exists(path)  # noqa: PTH110 - the policy speaks text
    below, _, name = str(Path(path).relative_to(own)).rpartition("/")
    with contextlib.suppress(OSError), folder(own, below) as here:
        seen = here.look(name)
        return seen is not None and stat.S_ISREG(seen.st_mode)
    return False


def _executor(*, layered: bool) -> tuple[Executor, Network]:
    works = executors.known().works
    for tier, network in ((Tier.OFFLINE, Network.NONE), (Tier.FILES, Network.HOST)):
        for executor in (Executor.NAMESPACES, Executor.BUBBLEWRAP):
            if tier in works[executor] and not (layered and executor is Executor.BUBBLEWRAP):
                return executor, network
    raise HostError(
        "nobody can look at what a confined agent left",
        why="the sandbox that it worked in cannot be built any more",
        kept="its worktree and its repository",
        hint="nightcrew doctor",
    )


def _said(env: Environment, helper: Helper, until: float) -> dict[str, Any]:
    """The answer: its length in 10 digits, and so many bytes. What follows is the pack."""
    try:
        length = int(_read(helper, 10, until))
        answer = json.loads(_read(helper, min(length, _ANSWER_MAX), until))
        if isinstance(answer, dict) and "done" in answer:
            return dict(answer["done"])
        failed = {str(name): one_line(str(text)[:_TEXT_MAX]) for name, text in answer["failed"].items()}
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        why = _last_words(helper) or "its helper gave no answer"
        raise ToolFailed("the work of an attempt could not be secured", on=str(env.path), why=why, kept="its files") from error
    told = from_wire(failed) if failed.get("error") in _KINDS else ToolFailed(failed.get("what", "the helper failed"), on=str(env.path))
    if isinstance(told, DiskFull):  # on the disk of the worktree: `/tmp` in a sandbox lies there too
        kind = ToolFailed if _has_room(beside(env.path)) else DiskFull
        raise kind(told.what, on=str(env.path), why=told.why, kept=told.kept or "its files", hint=told.hint)
    raise told


def _has_room(place: Path) -> bool:
    """Whether no disk can be full there, whatever a helper says: git's words have names in them that an agent chose."""
    with contextlib.suppress(OSError), tempfile.TemporaryFile(dir=place) as file:
        file.write(bytes(files.HARDLY_ANY))  # a quota says no more beforehand
        file.flush()
        return files.free_bytes(place) > _ROOMY
    return False


def _write(helper: Helper, body: bytes) -> None:
    """All of it: a helper that reads nothing has ended, or `_said` meets its deadline; the pipe holds 64 kB, and a request is smaller."""
    os.set_blocking(helper.stdin, False)
    if os.write(helper.stdin, body) < len(body):
        raise ToolFailed("the helper reads nothing", why=f"a request of {len(body)} bytes")


def _read(helper: Helper, length: int, until: float) -> bytes:
    found, watch = bytearray(), git.StallDetector(helper.pid)
    while len(found) < length:
        if not select.select([helper.stdout], [], [], git.LOOK_S)[0]:
            late, is_still = time.monotonic() > until, watch.look()
            if late or is_still:
                why = "its helper did not answer in time" if late else git.STILL
                raise ToolHung("securing the work of an attempt was stopped", why=why, kept="its files")
            continue
        part = os.read(helper.stdout, length - len(found))
        if not part:
            break
        found += part
    return bytes(found)


def _last_words(helper: Helper) -> str:
    if not select.select([helper.stderr], [], [], 0)[0]:
        return ""
    return one_line(last_line(os.read(helper.stderr, _TEXT_MAX).decode("utf-8", "replace")))


# What it says is believed in its form only -----------------------------------------------------------------------------------------------


def _refs(said: Mapping[str, Any], env: Environment) -> dict[str, str]:
    refs = said.get("refs")
    ours = (env.branch_ref, env.rescue_ref, env.tips_ref)
    found = {name: str(refs[name]) for name in ours if name in refs} if isinstance(refs, dict) else {}
    return {name: oid for name, oid in found.items() if len(oid) == len(env.base) and _OID.fullmatch(oid)}


def _secured(said: Mapping[str, Any]) -> Secured:
    shape = said["secured"]
    notes = tuple(one_line(str(note)[:_TEXT_MAX]) for note in shape["notes"][:_NOTES_MAX])
    numbers = {name: int(shape[name]) for name in ("commits", "files", "plus", "minus", "unkept")}
    tip, rescued = str(shape["tip"]), shape["rescue"]
    if not _OID.fullmatch(tip) or not (rescued is None or _OID.fullmatch(str(rescued))):
        raise ToolFailed("the work of an attempt could not be secured", why="its helper named no commit")
    refused = tuple(str(name)[:_TEXT_MAX] for name in shape["refused"][: pack_import.REFUSED_MAX])
    return Secured(tip=tip, rescue=rescued, notes=notes, refused=refused, **numbers)


def _look(said: Mapping[str, Any]) -> Look:
    reasons = tuple(
        Reason(
            Why(reason["why"]),
            one_line(str(reason["detail"])[:_TEXT_MAX]),
            tuple(str(path)[:_TEXT_MAX] for path in reason["paths"][:SHOWN]),
            int(reason["count"]),
        )
        for reason in said["reasons"]
    )
    head, tip = (said[name] if _OID.fullmatch(str(said[name])) else None for name in ("head", "tip"))
    return Look(head, str(said["branch"]) if said["branch"] is not None else None, tip, reasons, said["is_untouched"] is True)


# Refused names
# -------------
# Leftover files whose names git does not take, such as `git~1` or `.GIT `: copied beside an attempt's records, so that they outlive
# its worktree. An agent wrote them, and their names: both sides are used by handle, and nothing is followed.


PLACE = "left"
"""The directory beside the records."""
FILE_MAX = 16 * 2**20
"""Bytes of one such file."""
ALL_MAX = 64 * 2**20
"""Bytes of all of an attempt's."""
_SAID_MAX = 20


def keep(env: Environment, names: Sequence[str], records: Path) -> list[str]:
    """Copy the files `names` (below the top of the worktree) to `left/` in the directory `records`; calling again does so anew. A line
    for each of the first; what is no plain file, or too large, lies where it was. Raises DiskFull."""
    upper = env.layers.upper if env.layers is not None else ""
    top, room, said = Path(upper or env.path), ALL_MAX, []
    for name in names:
        try:
            size, why = _kept(top, name, records, min(room, FILE_MAX))
        except OSError as error:
            if files.is_no_space(error):
                raise files.disk_full("cannot keep a file that git does not take", records, error.strerror or str(error)) from error
            size, why = 0, error.strerror or str(error)
        room -= size
        is_now = f"not kept beside the records: {why}" if why else f"kept beside the records, as {PLACE}/{_shown(name)}"
        said.append(f"{_shown(name)} was not stored, since git takes no such name; it is {is_now}")
    more = len(said) - _SAID_MAX
    return [*said[:_SAID_MAX], f"{more} more like these"] if more > 0 else said


def _kept(top: Path, name: str, records: Path, limit: int) -> tuple[int, str]:
    """How many bytes were copied, or why none were. Raises OSError."""
    above, _, last = name.rpartition("/")
    with folder(top, above) as here:
        seen = here.look(last) if last not in ("", ".", "..") and "\0" not in name else None
        if seen is None or not stat.S_ISREG(seen.st_mode):
            return 0, "it is gone" if seen is None else f"it is {untrusted_fs.kind(seen)}"
        data = here.read(last, limit + 1) if seen.st_size <= limit else None
    if data is None or len(data) > limit:
        return 0, f"it has {seen.st_size} bytes or another name"
    with folder(records, f"{PLACE}/{above}".rstrip("/"), make=True) as there:
        there.replace(last, data)
    return len(data), ""


def _shown(name: str) -> str:
    return one_line(os.fsencode(name).decode("utf-8", "backslashreplace"))
