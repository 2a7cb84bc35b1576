"""Moves refs that an agent could have written: each is checked without git first, then moved by git alone.

In an ordinary repository a ref is a file, and so is its log. An agent that may write both can put in their place a name of another ref,
which git would move instead, a link, to which git would append, or a pipe, for which git would wait. So before git reads or moves such a
ref, whatever is neither a plain file nor a directory on the way to it is set aside (`supervisor.host.untrusted_fs`); git then sees a ref
that does not exist, or the one that was packed. And every update says `--no-deref`.

A repository that keeps its refs elsewhere (reftable) has no such files; a link of the person's above `refs/heads` is followed.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import stat
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from supervisor.host import untrusted_fs
from supervisor.host.untrusted_fs import Folder, folder
from supervisor.kernel.errors import Refused, ToolFailed, ToolHung, one_line
from supervisor.kernel.records import branch_name
from worktrees.git import QUICK_S, Answer, wrap_os_errors
from worktrees.repository import Repository

HEADS = "refs/heads"
STALE_S = 5.0
_OURS = branch_name("").partition("/")[0]
_OID = re.compile(rb"(?:[0-9a-f]{40}|[0-9a-f]{64})\n?")
_ENTRIES_MAX = 100_000
"""Looked at in one go. Whoever has more made them to be in the way; git's deadline ends what that costs."""


@dataclass(frozen=True, slots=True)
class Update:
    """One ref's move, as compare and swap."""

    ref: str
    """Full name."""
    new: str
    """"" deletes it."""
    old: str
    """What it must stand at; "" means that it must not exist."""


def move(repo: Repository, ref: str, to: str, expected: str, why: str) -> None:
    """`move_all` of one ref."""
    move_all(repo, [Update(ref, to, expected)], why)


def move_all(repo: Repository, updates: Sequence[Update], why: str) -> None:
    """Move every ref or none, in one transaction of git's. `why` is for their logs; refs that go have none.

    A git that is killed in the middle may have moved some of several: whoever tries again reads them first.
    Raises ToolFailed, HostError, DiskFull; Refused when something else than a branch is in the place of one that is the person's.
    """
    for update in updates:
        if is_persons(update.ref):
            _refuse_unfit(repo, update.ref)
        else:
            clear(repo, update.ref)
        if not update.new:
            forget_asides(repo, update.ref)
    with repo.git.moving(repo.common_dir, [(update.ref, update.new) for update in updates]):
        _transact(repo, updates, [_command(repo, update) for update in updates], why)


def is_persons(ref: str) -> bool:
    """Whether it is a branch of the person's, where nothing is ours to set aside."""
    return ref.startswith(f"{HEADS}/") and not ref.startswith(f"{HEADS}/{_OURS}/")


def _refuse_unfit(repo: Repository, ref: str) -> None:
    name = ref.removeprefix(f"{HEADS}/")
    for area in (HEADS, f"logs/{HEADS}"):
        with contextlib.suppress(FileNotFoundError, PermissionError):
            if found := _in_the_way(repo.common_dir / area, name, is_ref=area == HEADS):
                above, step, what = found
                place = one_line("/".join(filter(None, (area, above, step))))
                hint = f"ls -l {shlex.quote(str(repo.common_dir / area / above / step))}"
                raise Refused("the branch was not moved", on=name, why=f"{place} is {what}", kept="everything as it was", hint=hint)


def compare_all(repo: Repository, updates: Sequence[Update]) -> None:
    """Raises ToolFailed unless each ref stands at its `old` now."""
    _transact(repo, updates, [f"verify {update.ref}\0{update.old or _zero(repo)}\0" for update in updates])


def _command(repo: Repository, update: Update) -> str:
    old = update.old or _zero(repo)
    return f"update {update.ref}\0{update.new}\0{old}\0" if update.new else f"delete {update.ref}\0{old}\0"


def _zero(repo: Repository) -> str:
    """git's word for no object. An empty word would compare with nothing."""
    return "0" * len(repo.head)


def _unlocked(repo: Repository, ref: str) -> bool:
    """Whether a lock stood on one of our own refs and stands there no more: a git that was killed leaves it for ever. Nobody but us moves
    these refs, for milliseconds; so a lock that has stood for STALE_S is nobody's."""
    above, _, name = ref.rpartition("/")
    if not ref.startswith((f"{HEADS}/{_OURS}/", f"refs/{_OURS}/")):
        return False
    with contextlib.suppress(OSError), folder(repo.common_dir, above) as here:
        lock = f"{name}.lock"
        if (seen := here.look(lock)) is None:
            return False
        while seen is not None and (young := STALE_S - (time.time() - seen.st_mtime)) > 0:
            time.sleep(min(young, STALE_S))  # for the lock's age
            seen = here.look(lock)
        here.remove(lock)
        return True
    return False


def _transact(repo: Repository, updates: Sequence[Update], commands: Sequence[str], why: str = "") -> None:
    try:
        _update_ref(repo, commands, why)
    except ToolHung:
        raise
    except ToolFailed:
        unlocked = [update.ref for update in updates if _unlocked(repo, update.ref)]
        if not unlocked:
            raise
        _update_ref(repo, commands, why)


def _update_ref(repo: Repository, commands: Sequence[str], why: str) -> None:
    said = ("-m", why) if why else ()
    repo.run("update-ref", "--no-deref", *said, "--stdin", "-z", stdin=os.fsencode("".join(commands)))


def clear(repo: Repository, ref: str) -> list[str]:
    """Set aside what is in the place of the branch `ref` and of its log, on the way to them and beside them. Returns a line for each."""
    name = ref.removeprefix(f"{HEADS}/")
    if name == ref:
        return []  # not a branch: no agent in a sandbox can write there
    found = []
    for area in (HEADS, f"logs/{HEADS}"):
        top = repo.common_dir / area
        with contextlib.suppress(FileNotFoundError, PermissionError):  # closed to us, closed to git
            found += [f"{area}/{line}" for line in _clear_way(top, name, is_ref=area == HEADS)]
            if "/" in name:
                found += [f"{area}/{line}" for line in _clear_beside(top, name.rpartition("/")[0])]
    return found


def set_aside(repo: Repository, ref: str, what: str) -> str:
    """Take a branch out of git's sight that names no commit; a line for the result. Raises OSError."""
    above, _, name = ref.removeprefix(f"{HEADS}/").rpartition("/")
    with contextlib.suppress(FileNotFoundError, NotADirectoryError), folder(repo.common_dir / HEADS, above) as here:
        return f"{HEADS}/{_said(here, above, name, what)}"
    return f"{ref} was {what}"  # packed: it stays


def _clear_way(top: Path, name: str, *, is_ref: bool) -> list[str]:
    """At most one: what lies below it is out of the way with it."""
    found = _in_the_way(top, name, is_ref=is_ref)
    if found is None:
        return []
    above, step, what = found
    with folder(top, above) as here:
        return [_said(here, above, step, what)]


def _in_the_way(top: Path, name: str, *, is_ref: bool) -> tuple[str, str, str] | None:
    """What git must not meet on the way to `name`: the directory and the name of it, and what it is."""
    steps = name.split("/")
    for depth, step in enumerate(steps):
        above = "/".join(steps[:depth])
        with folder(top, above) as here:
            seen = here.look(step)
            if seen is None:
                return None
            what = _unfit(here, step, seen, is_ref=is_ref) if depth == len(steps) - 1 else _special(seen)
        if what:
            return above, step, what
        if not stat.S_ISDIR(seen.st_mode):
            return None
    return None


def _special(seen: os.stat_result) -> str:
    return "" if stat.S_ISDIR(seen.st_mode) or stat.S_ISREG(seen.st_mode) else untrusted_fs.kind(seen)


def _unfit(here: Folder, name: str, seen: os.stat_result, *, is_ref: bool) -> str:
    """Why git must not see the ref, or the log, that is there; a directory is its own to judge."""
    if not stat.S_ISREG(seen.st_mode):
        return _special(seen)
    if is_ref:  # git replaces it, so a second name is no way to another file
        return "" if _OID.fullmatch(here.read(name, 128, linked=True) or b"") else "no commit's name"
    return "" if seen.st_nlink == 1 else "a file with another name elsewhere"


def _clear_beside(top: Path, directory: str) -> list[str]:
    """What lies below the directory of the task's refs and is no plain file: the person's git would open it to list all refs."""
    found = []
    for below in _folders(top, directory):
        with contextlib.suppress(OSError), folder(top, below) as here:  # what we cannot open git cannot either
            for name in here.names():
                seen = here.look(name)
                if seen is not None and not name.startswith(".") and (what := _special(seen)):  # git passes over those with a dot
                    found.append(_said(here, below, name, what))
    return found


def _folders(top: Path, directory: str) -> list[str]:
    """`directory` and the directories below it, outer ones first."""
    found, looked = [directory], 0
    for below in found:
        with contextlib.suppress(OSError), folder(top, below) as here:
            names = here.names()
            looked += len(names)
            if looked < _ENTRIES_MAX:
                found += [f"{below}/{name}" for name in names if (seen := here.look(name)) is not None and stat.S_ISDIR(seen.st_mode)]
    return found


def _said(here: Folder, below: str, name: str, what: str) -> str:
    return one_line(f"{below}/{name} was {what}: it is now {here.set_aside(name)}")


def forget_asides(repo: Repository, ref: str) -> None:
    """Remove what `clear` set aside beside `ref` and its log, and the directories that are empty then. For a branch that goes."""
    directory = ref.removeprefix(f"{HEADS}/").rpartition("/")[0]
    for area in (HEADS, f"logs/{HEADS}"):
        for below in reversed(_folders(repo.common_dir / area, directory)):
            with contextlib.suppress(OSError), folder(repo.common_dir / area, below) as here:
                for name in here.names():
                    with contextlib.suppress(OSError):  # a directory that holds something
                        here.remove(name) if name.startswith(".") else here.remove_empty(name)


def over_all(repo: Repository, *argv: str, stdin: bytes = b"", deadline_s: float = QUICK_S) -> Answer:
    """Run a verb that reads every ref, or the HEAD of every worktree with the branch that it names. A neighbour which still runs may have
    put a pipe there: when git hangs, such things are set aside, and it is asked once more. Raises as `Git.run`."""
    try:
        return repo.run(*argv, stdin=stdin, deadline_s=deadline_s)
    except ToolHung:
        with wrap_os_errors(repo.common_dir):
            _clear_beside(repo.common_dir / HEADS, branch_name("").partition("/")[0])
            _clear_heads(repo.common_dir / "worktrees")
        return repo.run(*argv, stdin=stdin, deadline_s=deadline_s)


def _clear_heads(place: Path) -> None:
    with contextlib.suppress(FileNotFoundError), folder(place) as here:
        for name in here.names():
            if untrusted_fs.may_wait(here.leads_to(f"{name}/HEAD")):
                with folder(place, name) as admin:
                    admin.set_aside("HEAD")
