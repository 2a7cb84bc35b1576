"""Where a headless agent's output goes: a log of bounded size, and the pane, at a pace that tmux can follow.

Neither may ever slow the agent down or make it fail. What does not fit is left out, counted and marked.
"""

import os

TAIL = 2**20  # bytes of the end kept when a log is cut: enough for the last result line, which holds the longest answer of a model
_MARKERS = 128  # bytes set aside for our own lines, so that a log stays inside its quota
_PACE = 1_000_000  # bytes a second; eight unpaced panes of `yes` took 61 % of a core of the tmux server
_BURST = 64 * 1024


class Log:
    """One capped log file: its beginning, then `[nightcrew: truncated N bytes]`, then its last MiB.

    A full disk costs the bytes of that time and nothing more: every later write tries again and marks the gap first.
    """

    __slots__ = ("_cut", "_gap", "_handle", "_name", "_room", "_size", "_tail", "_tail_max", "lost")

    def __init__(self, name: str, limit: int) -> None:
        self._name = name
        self._handle = -1
        self._size = 0
        self._tail_max = min(TAIL, limit // 2)
        self._room = max(limit - self._tail_max - _MARKERS, 0)
        self._tail = bytearray()
        self._cut = 0
        self._gap = 0
        self.lost = 0
        """Bytes left out so far, by the cap or by a full disk."""
        self._put(b"")

    def add(self, data: bytes) -> None:
        head = data[: self._room]
        if head:
            self._append(head)
            self._room -= len(head)
        rest = data[len(head) :]
        if rest:
            self._tail += rest
            over = max(len(self._tail) - self._tail_max, 0)
            self._cut += over
            self.lost += over
            del self._tail[:over]

    def close(self) -> None:
        """Write what was held back and make the file durable, so that no exit record can outlive the output it is judged by."""
        if self._cut:
            self._append(b"\n[nightcrew: truncated %d bytes]\n" % self._cut)
        self._append(self._tail)
        self._mark_gap()
        if self._handle >= 0:
            try:
                os.ftruncate(self._handle, self._size)  # drop a marker that was only half written
                os.fsync(self._handle)
            except OSError:
                pass  # the same full or broken disk: what is lost is counted already
            os.close(self._handle)

    def _append(self, data: bytes | bytearray) -> None:
        written = self._put(data) if self._mark_gap() else 0
        self._size += written
        self._gap += len(data) - written
        self.lost += len(data) - written

    def _mark_gap(self) -> bool:
        """Whether the file is ready for more: a gap before it has been marked, or there is none."""
        if self._gap:
            marker = b"\n[nightcrew: %d bytes lost, no space to write them]\n" % self._gap
            if self._put(marker) < len(marker):
                return False
            self._size += len(marker)
            self._gap = 0
        return True

    def _put(self, data: bytes | bytearray) -> int:
        """Write at the end that we know of and say how much arrived; what a failed marker left there is written over."""
        try:
            if self._handle < 0:
                self._handle = os.open(self._name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            return os.pwrite(self._handle, data, self._size)
        except OSError:
            return 0


class Pane:
    """The terminal of the pane: a view for people. It is never waited for, and a pane that is gone is no error."""

    __slots__ = ("_at", "_buffer", "_credit", "_handle", "_skipped")

    def __init__(self, terminal: int, now: float) -> None:
        self._buffer = b""
        self._skipped = 0
        self._credit = float(_BURST)
        self._at = now
        self._handle = _reopen(terminal)

    @property
    def waiting(self) -> bool:
        return bool(self._buffer or self._skipped)

    def show(self, data: bytes) -> None:
        if self._handle < 0:
            return
        if len(self._buffer) + len(data) > _BURST:
            self._skipped += len(data)
            return
        self._note_skipped()
        self._buffer += data

    def _note_skipped(self) -> None:
        """CAN and the reset end whatever escape sequence or colour the missing part had begun."""
        if self._skipped:
            self._buffer += b"\x18\x1b[0m\n[nightcrew: %d bytes not shown here, see the logs]\n" % self._skipped
            self._skipped = 0

    def flush(self, now: float) -> bool:
        """Pass on what the pace allows at `now` (monotonic seconds) and the terminal takes at once; whether that was anything."""
        if not self._buffer:
            self._note_skipped()
        self._credit = min(_BURST, self._credit + (now - self._at) * _PACE)
        self._at = now
        ready = self._buffer[: int(self._credit)]
        if not ready:
            return False
        try:
            written = os.write(self._handle, ready)
        except BlockingIOError:
            return False
        except OSError:  # EIO: the session is closed
            self._handle = -1
            self._buffer = b""
            self._skipped = 0
            return False
        self._credit -= written
        self._buffer = self._buffer[written:]
        return True


def _reopen(terminal: int) -> int:
    """A non-blocking handle of our own on the terminal: O_NONBLOCK on the given one would change it for every process that holds it."""
    try:
        return os.open(os.ttyname(terminal), os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return -1
