"""A memory as one file, to move it to another machine: how it is written, and how one that may hold anything is read.

    provenance.json     who wrote each file last, when, and what its version is
    memory/PATH         each file

Nothing in a file that comes from elsewhere is believed: everything is looked at before anything is written, members are regular files
at paths at which a note may lie, and neither their number nor their size can fill this machine's memory.
"""

from __future__ import annotations

import gzip
import io
import json
import tarfile
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import IO, Any

from memory.layout import CORE_MAX, NOTE_MAX, Kind, kind_of
from supervisor.core.errors import Refused

PROVENANCE = "provenance.json"
PREFIX = "memory/"
TOTAL_MAX = 256 * 2**20
"""Bytes of all of it, once it is unpacked."""
FILES_MAX = 20_000
DAY_MAX = 16 * 2**20
"""Bytes of the episodes of one day."""
_GZIP = b"\x1f\x8b"


@dataclass(frozen=True, slots=True)
class Member:
    """One file."""

    path: str
    text: str
    at: float
    """When it was last changed."""


@dataclass(frozen=True, slots=True)
class Archive:
    """A whole memory."""

    members: tuple[Member, ...]
    provenance: Mapping[str, Any] = field(default_factory=dict)


def write(archive: Archive, into: IO[bytes]) -> None:
    """The same archive gives the same bytes."""
    with gzip.GzipFile(filename="", mode="wb", fileobj=into, mtime=0) as packed, tarfile.open(fileobj=packed, mode="w|") as tar:
        told = json.dumps(archive.provenance, indent=2, sort_keys=True).encode()
        for name, data, at in ((PROVENANCE, told, 0.0), *((PREFIX + one.path, one.text.encode(), one.at) for one in archive.members)):
            info = tarfile.TarInfo(name)
            info.size, info.mtime, info.mode = len(data), int(at), 0o600
            tar.addfile(info, io.BytesIO(data))


def read(stream: IO[bytes], name: str) -> Archive:
    """All of it, checked. Raises Refused, with the member, for what `write` would never have written."""
    try:
        first = stream.read(2)
        plain: Any = _Joined(first, stream)
        source: Any = _Bounded(gzip.GzipFile(fileobj=plain) if first == _GZIP else plain, name)
        with tarfile.open(fileobj=source, mode="r|") as tar:
            return _read(tar, name)
    except (tarfile.TarError, OSError, EOFError, zlib.error, ValueError, OverflowError) as error:
        raise _no(name, f"it cannot be read: {error}") from None


def _read(tar: tarfile.TarFile, name: str) -> Archive:
    found: dict[str, Member] = {}
    provenance: Mapping[str, Any] = {}
    for info in tar:
        if len(found) >= FILES_MAX:
            raise _no(name, f"it has more than {FILES_MAX} files")
        if not info.isreg() or info.issparse():
            raise _no(info.name, "it is no regular file")
        path = info.name.removeprefix(PREFIX)
        most = NOTE_MAX * 64 if info.name == PROVENANCE else _most(info.name, path)
        if info.size > most:
            raise _no(info.name, f"it has {info.size} bytes, at most {most} are taken")
        text = _text(tar, info)
        if info.name == PROVENANCE:
            provenance = _object(text)
        elif path in found:
            raise _no(info.name, "it is there twice")
        else:
            found[path] = Member(path, text, float(info.mtime))
    return Archive(tuple(found.values()), provenance)


def _most(name: str, path: str) -> int:
    kind = kind_of(path) if name.startswith(PREFIX) else None
    if kind is None:
        raise _no(name, "no file of a memory is called so")
    return {Kind.CORE: CORE_MAX, Kind.EPISODIC: DAY_MAX}.get(kind, NOTE_MAX)


def _text(tar: tarfile.TarFile, info: tarfile.TarInfo) -> str:
    opened = tar.extractfile(info)
    data = opened.read() if opened is not None else b""
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise _no(info.name, "it is not text") from None


def _object(text: str) -> Mapping[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise _no(PROVENANCE, "it is not JSON") from None
    return found if isinstance(found, dict) else {}


def _no(on: str, why: str) -> Refused:
    return Refused("not imported", on=on[:200], why=why, kept="the memory as it was")


class _Joined:
    """A stream of which the beginning was read already."""

    def __init__(self, first: bytes, rest: IO[bytes]) -> None:
        self._first, self._rest = first, rest

    def read(self, size: int = -1) -> bytes:  # as tarfile and gzip ask for it
        if not self._first:
            return self._rest.read(size)
        given, self._first = (self._first, b"") if size < 0 else (self._first[:size], self._first[size:])
        return given


class _Bounded:
    """A stream that ends in Refused: a small file can unpack to one of any size, and so can the name of a member."""

    def __init__(self, source: Any, name: str) -> None:
        self._source, self._name, self._left = source, name, TOTAL_MAX

    def read(self, size: int = -1) -> bytes:
        data: bytes = self._source.read(min(size, self._left + 1) if size >= 0 else self._left + 1)
        self._left -= len(data)
        if self._left < 0:
            raise _no(self._name, f"it has more than {TOTAL_MAX} bytes")
        return data


def files(paths: Iterable[str]) -> str:
    """How many, for a person."""
    count = len(list(paths))
    return f"{count} file{'s' if count != 1 else ''}"
