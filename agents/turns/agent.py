"""The agent's process, as who drives it sees it: JSON lines in, JSON lines out, and the signals that we get, all in one queue."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import threading
from collections.abc import Sequence
from queue import SimpleQueue
from typing import IO, Any

LINE_MAX = 16 * 2**20
"""Bytes. What reads the lines leaves longer ones out (`agents.protocols`)."""
Event = bytes | signal.Signals | None
"""A line of the agent's, a signal to us, or None: it has closed its output, or has ended."""
_LAST_WORDS_S = 2.0
"""Seconds to read the rest of an agent's output after its end, if another process holds that open."""
_STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Agent:
    """One agent's process. Its stderr is ours. Raises OSError when it cannot be started."""

    def __init__(self, argv: Sequence[str], *, own_group: bool) -> None:
        """With `own_group` a Ctrl-C in the pane is not for it, but for us alone."""
        self._events: SimpleQueue[Event] = SimpleQueue()
        for number in _STOPS:
            signal.signal(number, lambda number, _: self._events.put(signal.Signals(number)))
        group = 0 if own_group else None
        self._process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=group)
        assert self._process.stdin is not None  # noqa: S101 - a pipe
        assert self._process.stdout is not None  # noqa: S101 - a pipe
        self._input: IO[bytes] = self._process.stdin
        reader = threading.Thread(target=self._read, args=(self._process.stdout,), daemon=True)
        reader.start()
        threading.Thread(target=self._await, args=(reader,), daemon=True).start()

    def _read(self, output: IO[bytes]) -> None:
        """A line that is too long comes in pieces, which are no JSON."""
        while line := output.readline(LINE_MAX):
            self._events.put(line)
        self._events.put(None)

    def _await(self, reader: threading.Thread) -> None:
        """Tell the end of an agent that left something behind which holds its output open."""
        self._process.wait()
        reader.join(_LAST_WORDS_S)
        self._events.put(None)

    def tell(self, shape: dict[str, Any]) -> None:
        """One line to the agent; nothing when it does not read any more, which its end will tell."""
        with contextlib.suppress(OSError, ValueError):
            self._input.write(json.dumps(shape, separators=(",", ":")).encode("ascii") + b"\n")
            self._input.flush()

    def no_more(self) -> None:
        """Close its input."""
        with contextlib.suppress(OSError):
            self._input.close()

    def next(self) -> Event:
        """What comes next; waits for it."""
        return self._events.get()

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()

    def ended(self) -> int:
        """Its exit status once it has ended; 128 + n for signal n."""
        code = self._process.wait()
        return code if code >= 0 else 128 - code


def whole(handle: int, data: bytes) -> None:
    """Write all of it; a reader that is gone is no error."""
    with contextlib.suppress(OSError):
        while data:
            data = data[os.write(handle, data) :]
