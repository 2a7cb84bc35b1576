"""The one door through which a command writes to a person's terminal.

Names of files, titles, logs, diffs and reasons are a stranger's text, and any printer may be handed one. So the streams are guarded, not
the printers: on a terminal, everything written to `sys.stdout` and `sys.stderr` passes `sequences.for_terminal`, which leaves line feeds,
tabs and colours. Files and pipes get all bytes as they are. Code that draws a screen of ours uses `live`, `draw` or `console`, `--raw` uses
`raw_bytes`, and nothing else gets past the guard: `tests/cli/test_terminal.py` finds every other way out.
"""

from __future__ import annotations

import atexit
import codecs
import contextlib
import io
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TextIO, cast

from supervisor.kernel.ansi import escaped, for_terminal

if TYPE_CHECKING:
    from rich.console import Console

_UNFINISHED = re.compile(r"(?:\x1b(?:\[[0-9;:]{0,40})?|\r)\Z")


class _GuardedBytes(io.RawIOBase):
    """Bytes for a terminal: escaped like text. A character or a colour that comes in two pieces is waited for."""

    def __init__(self, stream: GuardedStream) -> None:
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
        self._held = ""
        atexit.register(self.finish)

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        text = self._held + self._decoder.decode(bytes(data))
        unfinished = _UNFINISHED.search(text)
        self._held = unfinished[0] if unfinished else ""
        self._stream.write(text[: len(text) - len(self._held)])
        return len(data)

    def flush(self) -> None:
        if not self.closed:
            self._stream.flush()

    def finish(self) -> None:
        """Write what was waited for in vain."""
        left, self._held = self._held + self._decoder.decode(b"", final=True), ""
        if left and not self._stream.closed:
            self._stream.write(left)


class GuardedStream(io.TextIOWrapper):
    """A terminal, in place of `sys.stdout` or `sys.stderr`."""

    def __init__(self, stream: io.TextIOWrapper) -> None:
        super().__init__(stream.buffer, stream.encoding, "backslashreplace", line_buffering=True)
        self.bare = stream
        """The stream itself, for what steers the terminal on purpose; it also owns the file."""
        self._guarded: _GuardedBytes | None = None

    @property
    def buffer(self) -> BinaryIO:
        self._guarded = self._guarded or _GuardedBytes(self)
        return cast("BinaryIO", self._guarded)

    def write(self, text: str, /) -> int:
        super().write(for_terminal(text))
        return len(text)

    def __del__(self) -> None:
        """Leave the file open: it belongs to `bare`."""


def guard() -> None:
    """Let everything that this process prints pass here. A terminal that is not UTF-8 is shown `\\u25cf`, not a traceback."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if not isinstance(stream, io.TextIOWrapper) or isinstance(stream, GuardedStream):
            continue
        stream.reconfigure(errors="backslashreplace")
        if stream.isatty():
            stream.flush()
            setattr(sys, name, GuardedStream(stream))


def _bare(stream: TextIO) -> TextIO:
    if not isinstance(stream, GuardedStream):
        return stream
    stream.flush()
    return stream.bare


def draw(frame: str) -> None:
    """Show lines at the top of the terminal on stdout, in place of what is there, without waiting for anything."""
    out = _bare(sys.stdout)
    out.write("\x1b[H" + for_terminal(frame).replace("\n", "\x1b[K\n") + "\x1b[K\x1b[J")
    out.flush()


@contextlib.contextmanager
def live(*, screen: bool = False) -> Iterator[Callable[[str], None]]:
    """Give a function that shows lines in place of those before: on stderr where the cursor is, or with `screen` on the whole of stdout's
    terminal, which is as it was afterwards."""
    from rich.live import Live
    from rich.text import Text

    with Live(console=console(sys.stdout if screen else sys.stderr), screen=screen, auto_refresh=False) as shown:
        yield lambda frame: shown.update(Text.from_ansi(for_terminal(frame), no_wrap=True, overflow="ellipsis"), refresh=True)


def raw_bytes(stream: TextIO) -> BinaryIO:
    """Return the stream below the guard, which passes bytes unchanged, for a person who asked for `--raw`."""
    return _bare(stream).buffer


def console(stream: TextIO | None = None) -> Console:
    """Return a console of rich, on stderr if no other stream is given. It may move the cursor; the texts that it is given may not."""
    from rich.console import Console
    from rich.segment import Segment

    class Guarded(Console):
        def _render_buffer(self, buffer: Iterable[Segment]) -> str:
            return super()._render_buffer(one if one.control else one._replace(text=escaped(one.text)) for one in buffer)

    return Guarded(file=_bare(stream or sys.stderr), highlight=False, markup=False, emoji=False)


# Logs
# ----


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
        from supervisor.host import untrusted_fs  # a start has no time for it

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
        out = raw_bytes(stream) if raw else stream.buffer
        while data := self.read(CHUNK):
            shown += len(data)
            out.write(data)
            out.flush()
        return shown
