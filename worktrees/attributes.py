"""Which attributes files have, by the `.gitattributes` of the person's checkout or of a commit. Nothing that they name is run."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from supervisor.core.errors import one_line
from supervisor.host.scratch import locked_directory
from worktrees.git import BULK_S, Place
from worktrees.repository import Repository

FILE = ".gitattributes"
_BUILT_IN = frozenset({"unspecified", "set", "unset"})
_MERGES = frozenset({"text", "binary", "union"})


@dataclass(frozen=True, slots=True)
class Source:
    """Where git finds the attributes, beside the person's own ones (`info/attributes`, `core.attributesFile`)."""

    place: Place
    env: Mapping[str, str] = field(default_factory=dict)


@contextlib.contextmanager
def of_commit(repo: Repository, commit: str) -> Iterator[Source]:
    """Those of a commit, whatever is checked out and whatever was changed there since: a tree of its `.gitattributes` alone. git below 2.41
    can read them from nowhere else. Raises as `Git.run`."""
    with locked_directory(repo.git.scratch(), "nightcrew.") as scratch:
        top = scratch / "top"
        top.mkdir()
        _write(repo, commit, top)
        yield Source(Place(repo.common_dir, repo.common_dir, top), {"GIT_INDEX_FILE": str(scratch / "index")})


def drivers(repo: Repository, paths: Iterable[str], *names: str, source: Source | None = None) -> Iterator[tuple[str, str, str]]:
    """Path, attribute and value of each file for which one of these attributes names something of its own: a filter, a merge driver. By
    default as the person's checkout says."""
    asked = "".join(f"{path}\0" for path in paths)
    if not asked:
        return
    there = source or Source(repo.checkout)
    argv = ("check-attr", "-z", "--stdin", *names)
    said = repo.git.run(there.place, *argv, stdin=os.fsencode(asked), env=there.env, deadline_s=BULK_S).text.split("\0")
    for path, name, value in zip(said[::3], said[1::3], said[2::3], strict=False):
        if value not in _BUILT_IN and not (name == "merge" and value in _MERGES):
            yield path, name, value


def drivers_in(repo: Repository, commit: str, *names: str) -> set[tuple[str, str, str]]:
    """The same of all files of a commit, by its own `.gitattributes`."""
    with of_commit(repo, commit) as source:
        return set(drivers(repo, [path for _, path in _files(repo, commit)], *names, source=source))


def listed(found: Iterable[tuple[str, str, str]]) -> str:
    """What `drivers` found, for people: `filter=lfs, merge=po`."""
    return ", ".join(sorted({one_line(f"{name}={value}") for _, name, value in found}))


def _write(repo: Repository, commit: str, top: Path) -> None:
    found = [one for one in _files(repo, commit) if one[1].endswith(FILE)]
    files = {path: facts.split(" ")[2] for facts, path in found if facts.startswith("100") and _is_fit(path)}
    for path, data in zip(files, _blobs(repo, files.values()), strict=True):
        (top / path).parent.mkdir(parents=True, exist_ok=True)
        (top / path).write_bytes(data)


def _files(repo: Repository, commit: str) -> list[tuple[str, str]]:
    """Of every file of a commit what `ls-tree` says of it, and its path."""
    rows = repo.git.run(repo.store, "ls-tree", "-r", "-z", "--full-tree", commit, deadline_s=BULK_S).text.split("\0")[:-1]
    return [(facts, path) for facts, _, path in (row.partition("\t") for row in rows)]


def _is_fit(path: str) -> bool:
    """A stranger may have written the tree."""
    *above, name = path.split("/")
    return name == FILE and not any(part in ("", ".", "..") or part.lower() == ".git" for part in above)


def _blobs(repo: Repository, oids: Iterable[str]) -> Iterator[bytes]:
    asked = "".join(f"{oid}\n" for oid in oids)
    if not asked:
        return
    rest = repo.git.run(repo.store, "cat-file", "--batch", stdin=asked.encode(), deadline_s=BULK_S).out
    while rest:
        head, _, rest = rest.partition(b"\n")
        size = int(head.split(b" ")[2])
        yield rest[:size]
        rest = rest[size + 1 :]
