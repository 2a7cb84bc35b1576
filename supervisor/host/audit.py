"""The door to the audit log, `audit.jsonl` and its head `audit.head`. Several processes write it; a lock makes them take turns."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from supervisor.core import audit
from supervisor.core.audit import Head, Verdict
from supervisor.core.errors import NotFound, ToolFailed
from supervisor.core.result import rfc3339
from supervisor.host import files, foreign
from supervisor.host.clock import Clock

_TAIL = 64 * 1024
"""Bytes of the longest record that is found again from the end; longer data is cut before it is written."""
_LONGEST = 4096
"""Characters of one value."""


class Audit:
    """Appends records. Safe to use from several threads and processes."""

    def __init__(self, path: Path, secret: bytes, clock: Clock, who: str) -> None:
        self._path = path
        self._secret = secret
        self._clock = clock
        self._who = who

    def note(self, event: str, data: Mapping[str, Any]) -> None:
        """Add a record; it is on the disk when this returns. No secret belongs into `data`. Raises DiskFull or ToolFailed."""
        short = {name: value[:_LONGEST] if isinstance(value, str) else value for name, value in data.items()}
        with _locked(self._path) as handle:
            head, end = self._end(handle)
            line, after = audit.record(self._secret, head, str(rfc3339(self._clock.wall())), self._who, event, short)
            try:
                os.ftruncate(handle, end)  # a line that a crash cut short was never acknowledged
                os.pwrite(handle, line, end)
                os.fsync(handle)
            except OSError as error:
                raise files.write_error(self._path, error) from error
            files.atomic_write(_head_path(self._path), audit.write_head(self._secret, after))

    def _end(self, handle: int) -> tuple[Head, int]:
        """The head to go on from, and where the last whole line ends. What was tampered with is left as it is, and the gap stays in the
        chain for `verify` to show: after a tail that was cut off, the head's file is still further than the log."""
        size = os.fstat(handle).st_size
        tail = os.pread(handle, _TAIL, max(0, size - _TAIL))
        whole = tail[: tail.rfind(b"\n") + 1]
        end = size - (len(tail) - len(whole))
        last = whole.rstrip(b"\n").rpartition(b"\n")[2]
        in_log = audit.head_of(self._secret, last) or Head()
        return max(in_log, read_head(self._path, self._secret) or Head(), key=lambda head: head.seq), end


def verify(path: Path, secret: bytes) -> Verdict:
    """Whether the log is whole and nobody changed it. Raises NotFound when there is none, and no head that would say there was one."""
    head = read_head(path, secret)
    if not path.exists():
        if _head_path(path).exists():
            return Verdict(0, 1, "the log is gone, its head is not")
        raise NotFound("there is no audit log", on=str(path), hint="nightcrew up -d")
    with path.open("rb") as file:
        return audit.verify(secret, file, head)


def read_head(path: Path, secret: bytes) -> Head | None:
    """The head of the log at `path`; None when there is no valid one."""
    data = foreign.read_plain(_head_path(path), 1024)
    return audit.read_head(secret, data.decode("utf-8", "replace")) if data is not None else None


def _head_path(path: Path) -> Path:
    return path.with_suffix(".head")


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[int]:
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise ToolFailed("cannot open the audit log", on=str(path), why=error.strerror or str(error)) from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield handle
    finally:
        os.close(handle)
