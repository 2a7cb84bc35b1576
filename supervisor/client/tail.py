"""What is added to a log, piece by piece: `logs`, and the making of a snapshot."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from supervisor.client import terminal
from supervisor.host import untrusted_fs

CHUNK = 65536


class Tail:
    """Reads what is new in one log."""

    def __init__(self, path: Path, below: Path | None = None) -> None:
        """`below`: a directory under which an agent can replace directories by links; see `foreign.open_plain`."""
        self.stream = path.stem
        """`stdout`, `stderr` or `gate`, as the logs of an attempt are called."""
        self._path, self._below = path, below
        self._at = 0

    def read(self, limit: int = -1) -> bytes:
        """The next bytes, at most `limit`; none when there are none yet."""
        try:
            with untrusted_fs.open_plain(self._path, self._below) as file:
                left = max(0, os.fstat(file.fileno()).st_size - self._at)
                file.seek(self._at)
                data = file.read(left if limit < 0 else min(limit, left))
        except OSError:  # there is none yet, or an agent without a sandbox put something else there
            return b""
        self._at += len(data)
        return data

    def show(self, *, raw: bool = False) -> int:
        """Print what is new, a log called `stdout` or `gate` on stdout and any other on stderr; return how many bytes that were. With `raw`
        a terminal gets them byte for byte, as a file or a pipe always does."""
        shown = 0
        stream = sys.stdout if self.stream in ("stdout", "gate") else sys.stderr
        out = terminal.raw_bytes(stream) if raw else stream.buffer
        while data := self.read(CHUNK):
            shown += len(data)
            out.write(data)
            out.flush()
        return shown
