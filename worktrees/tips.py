"""Finds the commits that an attempt made or had, and those among them that no rescue ref of its task holds yet.

A commit that was amended, reset or rebased away is on no branch. What remembers it are files that the agent's own git wrote: the logs of
HEAD and of the work branch, the worktree's own refs, the state of a rebase or a merge; and the same of worktrees that the agent added
inside its own, since they go with it. The agent can write anything there. So they are read
by handle, without following a link, the newest entries first and up to a bound; and a name counts only when the repository has a commit of
that name, with its whole history, which the base does not hold.

A commit of somebody else that an agent writes into its own log is kept like its own: that harms nobody, and no evidence tells them apart.
"""

from __future__ import annotations

import itertools
import os
import re
import stat
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from supervisor.core.errors import ToolFailed, ToolHung
from supervisor.core.sandbox import SHARED_OBJECTS
from supervisor.host.foreign import Folder, folder
from worktrees import own_refs, ref_snapshot, refs, registration
from worktrees.environment import Environment, has_successor
from worktrees.git import BULK_S

KEPT_MAX = 50
"""Tips that are taken when an attempt ends, the newest of them; its removal takes the rest. A commit of ours has no more parents."""
KEPT_AT_REMOVAL = 10_000
"""Tips that are taken at once when its worktree goes."""
_LOG_MAX = 4 * 2**20
"""Bytes at the end of a log: some 25,000 entries."""
_SEEN_MAX = 10_000
"""Names of one log that git is asked about."""
_OWN_REFS_MAX = 1000
_TRIES = 60
"""Walks of git to find the names that it cannot walk from: 4 of them among 10,000, more among fewer."""
_SHOWN = 10
_STATE_FILES = (
    "HEAD", "ORIG_HEAD", "MERGE_HEAD", "MERGE_AUTOSTASH", "CHERRY_PICK_HEAD", "REVERT_HEAD", "REBASE_HEAD", "sequencer/head",
    "rebase-merge/orig-head", "rebase-merge/onto", "rebase-merge/stopped-sha", "rebase-merge/autostash",
    "rebase-apply/orig-head", "rebase-apply/autostash",
)  # fmt: skip
_OID = re.compile(rb"\b(?:[0-9a-f]{64}|[0-9a-f]{40})\b")


@dataclass(frozen=True, slots=True)
class Unkept:
    """Commits that the base, what the caller knows and the task's rescue refs do not reach, and that no other one of them reaches."""

    tips: tuple[str, ...] = ()
    """At most as many as were asked for, the newest first."""
    left_out: int = 0
    """How many more there are; those that git could not read count too, and a log that is too long counts as one."""
    notes: tuple[str, ...] = ()
    """One line each: what was left out."""


def refs_of(env: Environment) -> dict[str, str]:
    """Every ref of the task, by its full name: its work branch and what lies beside it, its rescue refs of all attempts."""
    return ref_snapshot.below(env.repo, env.branch_ref.rpartition("/")[0], env.rescue_ref.rpartition("/")[0])


def unkept(env: Environment, found: Mapping[str, str], known: Iterable[str], most: int = KEPT_MAX) -> Unkept:
    """What a rescue ref must take besides `known` (commits); `found` is what `refs_of` gave. No process when there is nothing to ask.

    A branch that a later attempt took over is not asked. Raises ToolHung. What git cannot read is left out and said.
    """
    notes: list[str] = []
    rescued = {oid for ref, oid in found.items() if not ref.startswith(f"{refs.HEADS}/")}
    settled = {env.base, *known, *rescued, "0" * len(env.base)}
    branches = [] if has_successor(env) else [oid for ref, oid in found.items() if ref.startswith(f"{refs.HEADS}/")]
    reached = [f"^{oid}" for oid in sorted({env.base, *known, *rescued})]
    others = _others(env, settled, reached) if env.alone is not None else ()
    seen = [oid for oid in dict.fromkeys([*branches, *remembered(env, notes), *others]) if oid not in settled]
    heads, unread = _heads(env, seen, reached)
    if unread:
        notes.append(f"{len(unread)} commits could not be read and are on no rescue ref: {_named(unread)}")
    if more := heads[most:]:
        notes.append(f"{len(more)} older commits that only its logs remember are on no rescue ref yet: {_named(more)}")
    return Unkept(tuple(heads[:most]), len(notes) and max(1, len(unread) + len(more)), tuple(notes))


def all_kept(env: Environment) -> bool:
    """Whether nothing that its logs remember would go with them. No process where they remember nothing but the base. Raises ToolHung."""
    notes: list[str] = []
    if env.alone is None and set(remembered(env, notes)) <= {env.base, "0" * len(env.base)} and not notes:
        return True
    return unkept(env, refs_of(env), ()) == Unkept()


def _others(env: Environment, settled: Container[str], reached: Sequence[str]) -> list[str]:
    """Commits that the agent's other branches, tags, stashes, notes and worktrees name, and that the person's repository does not have.
    What it fetched is not its work: tags on fetched branches are left out with them. No process when there is nothing of the kind."""
    own = own_refs.read(env.repo.common_dir, env.alone.packed if env.alone is not None else "")
    work = _commits(env, [oid for oid in own.names if oid not in settled])
    tags = _commits(env, [oid for oid in own.tags if oid not in settled])
    fetched = [f"^{oid}" for oid in _commits(env, own.fetched)[0]] if tags[0] else []
    heads, unread = _heads(env, tags[0], [*reached, *fetched])
    return [*itertools.chain.from_iterable(work), *heads, *unread, *tags[1]]


def _commits(env: Environment, names: Sequence[str]) -> tuple[list[str], list[str]]:
    """What of `names` leads to a commit that is not among the person's objects, and the names that git cannot read."""
    git, store, argv = env.repo.git, env.repo.store, ("cat-file", "--batch-check=%(objectname) %(objecttype)")

    def ask(part: list[str]) -> Iterable[str]:
        asked = "".join(f"{name}^{{commit}}\n" for name in part).encode()
        rows = git.run(store, *argv, stdin=asked).text.splitlines()
        return [row.removesuffix(" commit") for row in rows if row.endswith(" commit")]

    found, unread = _by_halves(names[:_SEEN_MAX], ask)
    theirs = {"GIT_OBJECT_DIRECTORY": str(env.repo.common_dir / SHARED_OBJECTS)}
    rows = git.run(store, *argv, stdin="\n".join([*found, ""]).encode(), env=theirs).text.splitlines() if found else []
    return [oid for oid, row in zip(found, rows, strict=True) if row.endswith(" missing")], unread


def _by_halves(names: Sequence[str], ask: Callable[[list[str]], Iterable[str]]) -> tuple[list[str], list[str]]:
    """What `ask` gives for all of `names`, each once, and the names for which git fails; halves find these. Raises ToolHung."""
    found: dict[str, None] = {}
    todo, unread = [list(names)] if names else [], list[str]()
    for _ in range(_TRIES):
        if not todo:
            break
        part = todo.pop()
        try:
            found |= dict.fromkeys(ask(part))
        except ToolHung:
            raise
        except ToolFailed:
            middle = len(part) // 2
            if middle:
                todo += [part[middle:], part[:middle]]
            else:
                unread += part
    return list(found), [*unread, *itertools.chain.from_iterable(todo)]


def _heads(env: Environment, seen: list[str], settled: list[str]) -> tuple[list[str], list[str]]:
    """The commits in `seen` that no other one of them reaches, in order; and those that git cannot walk from."""
    heads, unread = _by_halves(seen, lambda part: _walked(env, part, settled))
    known = set(heads)
    return [oid for oid in seen if oid in known], unread


def _walked(env: Environment, part: list[str], settled: list[str]) -> set[str]:
    argv = ("rev-list", "--ignore-missing", "--topo-order", "--parents", "--stdin")
    asked = "\n".join([*part, *settled, ""]).encode()
    lost = [line.split() for line in env.repo.git.run(env.repo.store, *argv, stdin=asked, deadline_s=BULK_S).text.splitlines()]
    inner = {parent for _, *parents in lost for parent in parents}
    return {oid for oid, *_ in lost if oid not in inner}


def remembered(env: Environment, notes: list[str]) -> Iterator[str]:
    """Names of objects, the newest of each source first. What is read is bounded; a line in `notes` says where that was not enough."""
    below = registration.inside(env.repo.common_dir, env.path)
    for each in (env, *(replace(env, admin_dir=admin) for admin in below.values())):
        yield from _of_worktree(each, notes)
    if not has_successor(env):
        yield from _logged(env, env.branch_ref, notes)


def _of_worktree(env: Environment, notes: list[str]) -> Iterator[str]:
    """Return what git's directory `env.admin_dir` for a worktree names."""
    size = len(env.base)
    for data in _own_refs(env):
        yield from _names(data, size)
    there = _own_files(env)
    for name in _STATE_FILES:
        if name.partition("/")[0] in there:
            yield from _names(_tail(env, name, notes), size)
    yield from _logged(env, "logs/HEAD", notes)


def _logged(env: Environment, name: str, notes: list[str]) -> Iterator[str]:
    names = dict.fromkeys(reversed(_names(_tail(env, name, notes), len(env.base))))
    if len(names) > _SEEN_MAX:
        notes.append(f"{name} names {len(names)} commits, of which the newest {_SEEN_MAX} were looked at")
    yield from itertools.islice(names, _SEEN_MAX)


def _own_files(env: Environment) -> list[str]:
    """What git's directory for the worktree holds."""
    try:
        with folder(env.admin_dir) as here:
            return here.names()
    except OSError:
        return []


def _names(data: bytes, size: int) -> list[str]:
    return [os.fsdecode(oid) for oid in _OID.findall(data) if len(oid) == size]


def _tail(env: Environment, name: str, notes: list[str]) -> bytes:
    """The end of a file of git's: of the worktree's own, or of a branch's log. Nothing when it is not there or cannot be opened so."""
    is_branch = name.startswith(f"{refs.HEADS}/")
    top, below = (env.repo.common_dir / "logs" / refs.HEADS, name.removeprefix(f"{refs.HEADS}/")) if is_branch else (env.admin_dir, name)
    above, _, last = below.rpartition("/")
    try:
        with folder(top, above) as here:
            seen = here.look(last)
            data = here.read(last, _LOG_MAX, linked=True, tail=True)
    except OSError:
        return b""
    if data is None and seen is not None:
        notes.append(f"{name} is no file: what it may remember was not looked at")
    if seen is not None and data is not None and seen.st_size > _LOG_MAX:
        notes.append(f"{name} is of {seen.st_size} bytes, of which the last {_LOG_MAX} were looked at")
    return data or b""


def _own_refs(env: Environment) -> Iterator[bytes]:
    """Refs that belong to this worktree alone, such as `refs/worktree/...` and `refs/bisect/...`; they go with it."""
    todo, looked = ["refs"], 0
    while todo:
        below = todo.pop()
        try:
            with folder(env.admin_dir, below) as here:
                names = here.names()[: max(0, _OWN_REFS_MAX - looked)]
                looked += len(names)
                kinds = {name: seen.st_mode for name in names if (seen := here.look(name)) is not None}
                todo += [f"{below}/{name}" for name, mode in kinds.items() if stat.S_ISDIR(mode)]
                yield from _files(here, (name for name, mode in kinds.items() if stat.S_ISREG(mode)))
        except OSError:
            continue


def _files(here: Folder, names: Iterable[str]) -> list[bytes]:
    return [here.read(name, 128, linked=True) or b"" for name in names]


def _named(oids: list[str]) -> str:
    more = f" and {len(oids) - _SHOWN} more" if len(oids) > _SHOWN else ""
    return ", ".join(oid[:12] for oid in oids[:_SHOWN]) + more
