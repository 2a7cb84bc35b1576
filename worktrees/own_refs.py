"""Reads, in the sandbox, what refs and logs of an attempt's own repository name beside the work branch.

The refs that were there at the start lie in `packed-refs` and have no log. So what the agent's git made since is in files of its own; only
where it packed its refs is that list read too.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from supervisor.host.foreign import Folder, entries, folder

_FILE_MAX = 2**20
"""Bytes at the end of a log: some 6,000 entries."""
_PACKED_MAX = 2**28
_FILES_MAX = 20_000
_OID = re.compile(rb"\b(?:[0-9a-f]{64}|[0-9a-f]{40})\b")
_LINE = re.compile(rb"^([0-9a-f]{40,64}) (refs/\S+)$", re.MULTILINE)
_FETCHED, _TAGS = "refs/remotes", "refs/tags"


@dataclass(frozen=True, slots=True)
class OwnRefs:
    """Names of objects, each once."""

    names: tuple[str, ...]
    tags: tuple[str, ...]
    fetched: tuple[str, ...]
    """Where branches of remotes stand."""


def read(common: Path, packed_at_start: str) -> OwnRefs:
    """What is named in the repository at `common`; `packed_at_start` as `private_repository` says. At most 20,000 files are opened."""
    found: dict[str, dict[str, None]] = {"": {}, _TAGS: {}, _FETCHED: {}}
    for name, oid in itertools.chain(_loose(common), _packed(common, packed_at_start)):
        kind = next((area for area in (_TAGS, _FETCHED) if name.startswith(f"{area}/")), "")
        found[kind].setdefault(oid)
    return OwnRefs(tuple(found[""]), tuple(found[_TAGS]), tuple(found[_FETCHED]))


def unlock(common: Path) -> None:
    """Remove the lock files that a killed git left in the repository at `common`. Only when nobody works there: its agent has ended."""
    for name, here, file in itertools.chain(*(_files(common, area) for area in ("refs", "worktrees"))):
        if name.endswith(".lock"):
            with contextlib.suppress(OSError):
                here.remove(file)
    with folder(common) as here:
        for file in here.names():
            if file.endswith(".lock"):
                with contextlib.suppress(OSError):
                    here.remove(file)


def _loose(common: Path) -> Iterator[tuple[str, str]]:
    """Refs, then the entries of logs, the newest of each first, then the HEADs of worktrees that the agent added."""
    files = itertools.chain(_files(common, "refs"), _files(common, "logs"), _files(common, "worktrees"))
    for name, here, file in itertools.islice(files, _FILES_MAX):
        if name.startswith("worktrees/") and file != "HEAD":
            continue
        for oid in reversed(_OID.findall(here.read(file, _FILE_MAX, linked=True, tail=True) or b"")):
            yield name.removeprefix("logs/"), oid.decode()


def _files(common: Path, area: str) -> Iterator[tuple[str, Folder, str]]:
    with contextlib.suppress(OSError):
        for below, here, entry in entries(common, area):
            if not entry.is_dir(follow_symlinks=False):
                yield f"{below}/{entry.name}", here, entry.name


def _packed(common: Path, at_start: str) -> Iterator[tuple[str, str]]:
    with folder(common) as here:
        data = here.read("packed-refs", _PACKED_MAX, linked=True) or b""
    if hashlib.sha256(data).hexdigest() != at_start:
        yield from ((name.decode("utf-8", "replace"), oid.decode()) for oid, name in _LINE.findall(data))
