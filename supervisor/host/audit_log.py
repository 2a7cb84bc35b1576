"""Append to the audit log, `audit.jsonl` with its head `audit.head`, and verify it. Several processes write it, in turns by a lock."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from supervisor.host import files, secrets, untrusted_fs
from supervisor.host.clock import Clock, SystemClock
from supervisor.host.paths import Home
from supervisor.kernel import audit
from supervisor.kernel.audit import Head, Verdict
from supervisor.kernel.errors import HostError, NotFound, ToolFailed
from supervisor.kernel.format import rfc3339

_TAIL = 64 * 1024
"""Bytes of the longest record that is found again from the end; longer data is cut before it is written."""
_LONGEST = 4096
"""Characters of one value."""
_EVENT = re.compile(rb'"event": "([^"\\]*)"')
"""Quick, so that a long log is not parsed whole."""


class Audit:
    """Appends records. Safe to use from several threads and processes."""

    def __init__(self, path: Path, secret: bytes, clock: Clock, who: str) -> None:
        self._path = path
        self._secret = secret
        self._clock = clock
        self._who = who

    def note(self, event: str, data: Mapping[str, Any]) -> None:
        """Add a record; it is on the disk when this returns. No secret belongs into `data`. Raises DiskFull or ToolFailed."""
        self.note_all([(event, data)])

    def note_all(self, events: Iterable[tuple[str, Mapping[str, Any]]]) -> None:
        """The same of several, which cost as much as one."""
        with _locked(self._path) as handle:
            head, end, lines = self._end(handle)
            at = str(rfc3339(self._clock.wall()))
            for event, data in events:
                line, head = audit.record(self._secret, head, at, self._who, event, _short(data))
                lines += line
            try:
                os.ftruncate(handle, end)  # a line that a crash cut short was never acknowledged
                _write_all(handle, lines, end)
                os.fsync(handle)
            except OSError as error:
                raise files.write_error(self._path, error) from error
            files.atomic_write(_head_path(self._path), audit.write_head(self._secret, head))

    def _end(self, handle: int) -> tuple[Head, int, bytes]:
        """The head to go on from, where the last whole record ends, and the newline that it lacks. What was tampered with
        is left as it is, and the gap stays in the chain for `verify` to show: after a tail that was cut off, the head's file is
        further than the log."""
        size = os.fstat(handle).st_size
        tail = os.pread(handle, _TAIL, max(0, size - _TAIL))
        whole, begun = tail[: tail.rfind(b"\n") + 1], tail[tail.rfind(b"\n") + 1 :]
        if begun and audit.head_of(self._secret, begun) is not None:
            whole, newline = tail, b"\n"
        else:
            newline = b""
        end = size - (len(tail) - len(whole))
        last = whole.rstrip(b"\n").rpartition(b"\n")[2]
        in_log = audit.head_of(self._secret, last) or Head()
        return max(in_log, read_head(self._path, self._secret) or Head(), key=lambda head: head.seq), end, newline


def by_person(home: Home, event: str, data: Mapping[str, Any]) -> str:
    """Note what a person's command did by itself, without the supervisor. What to tell them where that failed, since it is done: empty when
    it did not."""
    try:
        Audit(home.audit, secrets.own(home.secret), SystemClock(), "person").note(event, data)
    except HostError as error:
        return f"the audit log does not have it: {error.line()}"
    return ""


def _short(data: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value[:_LONGEST] if isinstance(value, str) else value for name, value in data.items()}


def _write_all(handle: int, data: bytes, at: int) -> None:
    """A disk that becomes full takes a part of it, and says so at the next try only."""
    while data:
        written = os.pwrite(handle, data, at)
        data, at = data[written:], at + written


def events(path: Path, secret: bytes, which: Callable[[str], bool]) -> Iterator[Mapping[str, Any]]:
    """Those records of ours whose event is asked for, in order; where they stand in the chain is not looked at. Nothing when there is no
    log. Raises ToolFailed when it cannot be read."""
    if not path.exists():
        return
    with _opened(path) as file:
        for line in file:
            name = _EVENT.search(line)
            if name is not None and which(name[1].decode()) and (shape := audit.trusted(secret, line)) is not None:
                yield shape


def verify(path: Path, secret: bytes, seen: Callable[[int, Mapping[str, Any]], None] = lambda _, __: None) -> Verdict:
    """Whether the log is whole and nobody changed it; `seen` as in `audit.verify`. Raises NotFound when there is none, and no head that
    would say there was one, and ToolFailed when it cannot be read."""
    head = read_head(path, secret)
    if not path.exists():
        if _head_path(path).exists():
            return Verdict(0, 1, "the log is gone, its head is not")
        raise NotFound("there is no audit log", on=str(path), hint="nightcrew up -d")
    with _opened(path) as file:
        return audit.verify(secret, file, head, seen)


def _opened(path: Path) -> BinaryIO:
    try:
        return untrusted_fs.open_plain(path)
    except OSError as error:
        raise _unopened(path, error.strerror or str(error)) from error


def _unopened(path: Path, why: str) -> ToolFailed:
    return ToolFailed("cannot open the audit log", on=str(path), why=why)


def read_head(path: Path, secret: bytes) -> Head | None:
    """The head of the log at `path`; None when there is no valid one."""
    data = untrusted_fs.read_plain(_head_path(path), 1024)
    return audit.read_head(secret, data.decode("utf-8", "replace")) if data is not None else None


def _head_path(path: Path) -> Path:
    return path.with_suffix(".head")


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[int]:
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise _unopened(path, error.strerror or str(error)) from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield handle
    finally:
        os.close(handle)
