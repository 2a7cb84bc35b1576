"""Refs read without git: the person's, as the `packed-refs` of an attempt's own repository, and those of one task.

Reading 2,000 loose refs costs as much as starting an agent. So what a directory of refs holds is remembered by the directory's time of
change: every writer of a ref renames a file into it. A directory that changed within the last second is read again next time, since its
time may not tell two changes apart.

nightcrew's own refs are left out: there are as many as tasks ever ran, and no agent needs them but the branches that its task names.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from supervisor.host.untrusted_fs import Folder, folder
from supervisor.kernel.errors import Refused
from supervisor.kernel.records import branch_name
from worktrees.registration import is_unusual

if TYPE_CHECKING:
    from worktrees.repository import Repository

_OURS = branch_name("").partition("/")[0]
_LEFT_OUT = frozenset({f"refs/{_OURS}", f"refs/heads/{_OURS}", "refs/stash", "refs/bisect", "refs/worktree", "refs/rewritten"})
"""The last four belong to the person's own checkout."""
_PACKED_MAX = 256 * 2**20
"""Bytes: some 3 million refs."""
_SEARCHED_MAX = 2**20
"""Bytes: git, which knows that the lines are sorted, takes 1.5 ms for any number of refs; we take that for 20,000 and ten times it for
200,000."""
_REF_MAX = 4096
_SETTLED_NS = 10**9
_OID = re.compile(rb"(?:[0-9a-f]{40}|[0-9a-f]{64})\n?")
_LINE = re.compile(rb"^([0-9a-f]{40,64}) (refs/\S+)\n(\^[0-9a-f]{40,64}\n)?", re.MULTILINE)
_PLAIN_NAME = re.compile(r"[\w-]+(?:\.[\w-]+)*", re.ASCII)
"""Of a file that is surely a ref for git; it passes over `.NAME` and `NAME.lock`."""
_HEADER = b"# pack-refs with: sorted \n"
"""Not `peeled`: for what was loose nobody says what a tag leads to, and git looks for itself."""


@dataclass(frozen=True, slots=True)
class Refs:
    """What git would say of the refs of a repository."""

    packed: bytes
    """A whole `packed-refs`."""
    symbolic: tuple[tuple[str, bytes], ...]
    """Full names of refs that name another ref, and the text of their files."""


@dataclass(frozen=True, slots=True)
class _Directory:
    """What a directory of refs held when it was read."""

    stamp: tuple[int, int]
    settled: bool
    """It had not changed for a while then, so the stamp tells every later change."""
    folders: tuple[str, ...]
    files: Mapping[str, bytes]


@dataclass(slots=True)
class _Known:
    """What was read of one repository."""

    directories: dict[str, _Directory] = field(default_factory=dict)
    packed_stamp: tuple[int, ...] = ()
    packed: Mapping[bytes, bytes] = field(default_factory=dict)
    loose: Mapping[str, bytes] = field(default_factory=dict)
    refs: Refs = Refs(b"", ())


_known: dict[Path, _Known] = {}
_lock = threading.Lock()


def take(repo: Repository, also: Iterable[str] = ()) -> Refs:
    """The refs of `repo` but nightcrew's own, of which only the branches `also` (short names) are taken.

    No process unless the refs are kept in an unusual way or `also` names one. Raises OSError, Refused when there are too many, ToolFailed.
    """
    ours = _asked(repo, also)
    if is_unusual(repo):
        return _with(_by_git(repo), ours)
    with _lock:
        known = _known.setdefault(repo.common_dir, _Known())
        loose = dict(_loose(repo.common_dir / "refs", known))
        if _packed_changed(repo.common_dir, known) or loose != known.loose:
            known.loose, known.refs = loose, _merged(known.packed, loose)
        return _with(known.refs, ours)


def below(repo: Repository, *tops: str) -> dict[str, str]:
    """Every ref below the directories `tops` (full names, without an end), and the object that it names. One process where they are kept in
    an unusual way, or where something lies there that is not as git writes it: git says what it makes of that. Raises as `Git.run`."""
    with contextlib.suppress(OSError, ValueError):
        if not is_unusual(repo):
            loose = {name: oid for top in tops for name, oid in _loose_below(repo.common_dir, top, len(repo.head))}
            return {**_packed_below(repo.common_dir, tops), **loose}  # in this order a ref that is packed meanwhile is in one of them
    answer = repo.run("for-each-ref", "--format=%(refname) %(objectname)", *tops)
    return dict(line.split(" ") for line in answer.text.splitlines())


def _loose_below(common: Path, top: str, size: int) -> Iterator[tuple[str, str]]:
    """Raises OSError, and ValueError for what is not as git writes it."""
    todo = [top]
    while todo:
        name = todo.pop()
        with contextlib.ExitStack() as stack:
            try:
                here = stack.enter_context(folder(common, name))
            except FileNotFoundError:
                continue
            for inner in here.names():
                if inner.startswith(".") or inner.endswith(".lock"):
                    continue
                seen = here.look(inner)
                if seen is None or not _PLAIN_NAME.fullmatch(inner):
                    raise ValueError(inner)
                if stat.S_ISDIR(seen.st_mode):
                    todo.append(f"{name}/{inner}")
                    continue
                text = here.read(inner, _REF_MAX, linked=True) or b""
                if not _OID.fullmatch(text) or len(text.strip()) != size or not text.strip(b"0\n"):
                    raise ValueError(inner)
                yield f"{name}/{inner}", text.strip().decode()


def _packed_below(common: Path, tops: Iterable[str]) -> dict[str, str]:
    """Raises ValueError where a directory of `tops` is a ref itself, or the list is too long."""
    with folder(common) as here:
        data = here.read("packed-refs", _SEARCHED_MAX + 1, linked=True) if here.look("packed-refs") is not None else b""
    if data is None or len(data) > _SEARCHED_MAX:
        raise ValueError("packed-refs")
    found = {}
    for top in map(os.fsencode, tops):
        if b" " + top + b"\n" in data:
            raise ValueError(top)
        at = data.find(b" " + top + b"/")
        while at >= 0:
            oid, name = data[data.rfind(b"\n", 0, at) + 1 : at], data[at + 1 : data.index(b"\n", at)]
            found[os.fsdecode(name)] = oid.decode()
            at = data.find(b" " + top + b"/", at + 1)
    return found


def _asked(repo: Repository, also: Iterable[str]) -> dict[bytes, bytes]:
    names = [f"refs/heads/{name}" for name in also]
    if not names:
        return {}
    rows = repo.run("for-each-ref", "--format=%(objectname) %(refname)", *names).out.splitlines()
    return {name: oid for oid, _, name in (row.partition(b" ") for row in rows)}


def _by_git(repo: Repository) -> Refs:
    rows = repo.run("for-each-ref", "--format=%(objectname) %(refname) %(symref)").out.splitlines()
    parts = [row.split(b" ") for row in rows]
    taken = [part for part in parts if len(part) == 3 and not _is_left_out(os.fsdecode(part[1]))]
    symbolic = tuple((os.fsdecode(name), b"ref: " + target + b"\n") for _, name, target in taken if target)
    return Refs(_text({name: oid for oid, name, target in taken if not target}, {}), symbolic)


def _with(refs: Refs, ours: Mapping[bytes, bytes]) -> Refs:
    if not ours:
        return refs
    lines = _LINE.findall(refs.packed)
    oids, peeled = {name: oid for oid, name, _ in lines}, {name: after for _, name, after in lines}
    return Refs(_text({**oids, **ours}, peeled), refs.symbolic)


def _merged(packed: Mapping[bytes, bytes], loose: Mapping[str, bytes]) -> Refs:
    """`packed`: what follows a name in its line and the next one. A loose ref hides a packed one."""
    plain = {os.fsencode(name): text.strip() for name, text in loose.items() if _OID.fullmatch(text)}
    symbolic = tuple((name, text) for name, text in loose.items() if text.startswith(b"ref: refs/"))
    hidden = {os.fsencode(name) for name in loose}
    kept = {name: line for name, line in packed.items() if name not in hidden}
    oids = {**{name: line.split(b"\n", 1)[0] for name, line in kept.items()}, **plain}
    return Refs(_text(oids, {name: line.split(b"\n", 1)[1] for name, line in kept.items()}), symbolic)


def _text(oids: Mapping[bytes, bytes], peeled: Mapping[bytes, bytes]) -> bytes:
    """A `packed-refs` file: one line for each name, sorted as bytes, and below it what a tag leads to, where that is known."""
    return _HEADER + b"".join(oids[name] + b" " + name + b"\n" + peeled.get(name, b"") for name in sorted(oids))


def _packed_changed(common: Path, known: _Known) -> bool:
    with folder(common) as here:
        seen = here.look("packed-refs")
        stamp = (seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns) if seen is not None else ()
        if stamp == known.packed_stamp:
            return False
        data = b"" if seen is None else here.read("packed-refs", _PACKED_MAX + 1, linked=True) or b""
    if len(data) > _PACKED_MAX:
        raise Refused("the repository has too many refs", on=str(common / "packed-refs"), why=f"more than {_PACKED_MAX} bytes")
    lines = {name: oid + b"\n" + peeled for oid, name, peeled in _LINE.findall(data) if not _is_left_out(os.fsdecode(name))}
    known.packed_stamp, changed = stamp, lines != known.packed
    known.packed = lines
    return changed


def _loose(refs: Path, known: _Known) -> Iterator[tuple[str, bytes]]:
    todo, seen = ["refs"], set()
    while todo:
        name = todo.pop()
        with contextlib.suppress(FileNotFoundError, NotADirectoryError), folder(refs, name[len("refs/") :]) as here:
            listed = _listed(here, known.directories.get(name))
            known.directories[name] = listed
            seen.add(name)
            todo += [f"{name}/{inner}" for inner in listed.folders if not _is_left_out(f"{name}/{inner}")]
            yield from ((f"{name}/{file}", text) for file, text in listed.files.items() if not _is_left_out(f"{name}/{file}"))
    for gone in known.directories.keys() - seen:
        del known.directories[gone]


def _listed(here: Folder, before: _Directory | None) -> _Directory:
    now = os.fstat(here.handle)
    stamp = (now.st_ino, now.st_mtime_ns)
    if before is not None and before.settled and before.stamp == stamp:
        return before
    settled = time.time_ns() - now.st_mtime_ns > _SETTLED_NS
    folders, files = [], {}
    with os.scandir(here.handle) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry.name)
            elif not entry.name.endswith(".lock") and not entry.name.startswith("."):
                files[entry.name] = here.read(entry.name, _REF_MAX, linked=True) or b""
    return _Directory(stamp, settled, tuple(folders), files)


def _is_left_out(name: str) -> bool:
    return name in _LEFT_OUT or any(name.startswith(f"{ref}/") for ref in _LEFT_OUT)
