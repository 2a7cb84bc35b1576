"""A command for each item: its words with the item put in, no shell. `{file}` `{line}` `{item}` are the item, `{index}` is its number from
0, and of a JSON object `{name}` is what it has under that name. The item also comes on stdin.

The result is the last line of stdout when that is JSON, else all of stdout as text.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from agents.mapper import leftovers
from agents.mapper.executors import RESULT_MAX, TIMEOUT_S, Item, Result, done, failed

LOOK_S = 1.0
TAIL = 4096
READ, PIPE_MAX = 2**16, 2**20
"""Bytes of one read, and the most that a pipe holds unless root made it larger."""
_PLACE = re.compile(r"\{([A-Za-z_][A-Za-z0-9_.-]*)\}")
_WHOLE = ("file", "line", "item")


def make(what: Mapping[str, Any], environ: Mapping[str, str]) -> Command:
    """`what`: `argv`, `form` (file, line or jsonl), `timeout_s`."""
    return Command(tuple(map(str, what["argv"])), str(what.get("form", "line")), float(what.get("timeout_s") or TIMEOUT_S), dict(environ))


@dataclass(slots=True)
class Command:
    """See the module."""

    argv: tuple[str, ...]
    form: str
    timeout_s: float
    environ: dict[str, str]

    def begin(self) -> None:
        """Nothing is kept between items."""

    def end(self) -> None:
        """Nothing is left."""

    def run(self, item: Item, still: Callable[[], None]) -> Result:
        """See `Executor`."""
        try:
            words = filled(self.argv, values(item, self.form))
            child = _Child(words, item.text, self.environ)
        except (OSError, ValueError) as error:
            return failed(f"it cannot be started: {error}")
        return child.outcome(self.timeout_s, still)


def values(item: Item, form: str) -> dict[str, str]:
    """By placeholder. A path that begins with `-` is given as `./-`, so that no command takes it for an option."""
    text = f"./{item.text}" if form == "file" and item.text.startswith("-") else item.text
    found = {"index": str(item.index), **dict.fromkeys(_WHOLE, text)}
    if form != "jsonl":
        return found
    shape = json.loads(item.text)
    fields = {str(name): value if isinstance(value, str) else json.dumps(value) for name, value in shape.items()}
    return {**fields, **{name: text for name, text in found.items() if name not in fields}}


def filled(argv: tuple[str, ...], known: Mapping[str, str]) -> list[str]:
    """The words, each placeholder that is known put in once; others stay as they are, since braces mean something to many commands."""
    return [_PLACE.sub(lambda found: known.get(found[1], found[0]), word) for word in argv]


class _Child:
    """One command that runs, in a process group of its own."""

    def __init__(self, words: list[str], text: str, environ: Mapping[str, str]) -> None:
        given = os.memfd_create("item", os.MFD_CLOEXEC)
        try:
            os.write(given, os.fsencode(f"{text}\n"))
            os.lseek(given, 0, os.SEEK_SET)
            self._process = subprocess.Popen(
                words, stdin=given, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environ, start_new_session=True, bufsize=0
            )
        finally:
            os.close(given)
        self._out, self._err = bytearray(), bytearray()
        self._too_much = False

    def outcome(self, timeout_s: float, still: Callable[[], None]) -> Result:
        """Wait for it, and end what it started."""
        deadline = time.monotonic() + timeout_s
        try:
            in_time = self._read(deadline, still) and self._wait(deadline, still)
        finally:
            self._kill()
        if self._too_much:
            return failed(f"it printed more than {RESULT_MAX} bytes")
        if not in_time:
            return failed(f"it took longer than {timeout_s:g} s")
        return self._judged()

    def _read(self, deadline: float, still: Callable[[], None]) -> bool:
        """Until both streams end. False when time or room ran out."""
        with selectors.DefaultSelector() as ready:
            for stream, kept in ((self._process.stdout, self._out), (self._process.stderr, self._err)):
                ready.register(stream, selectors.EVENT_READ, kept)  # type: ignore[arg-type]  # both are pipes
            while ready.get_map():
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                found = ready.select(min(LOOK_S, left))
                if not found and self._process.poll() is not None:
                    return self._drain(ready)
                if not found:
                    still()
                for key, _ in found:
                    if not self._take(key):
                        ready.unregister(key.fileobj)
                    if self._too_much:
                        return False
        return True

    def _drain(self, ready: selectors.BaseSelector) -> bool:
        """Take what the command wrote before it ended: it may have done so since the last look. What it started may hold the pipes open
        and go on writing, so no more is read than a pipe holds. False when there is too much."""
        for key in list(ready.get_map().values()):
            os.set_blocking(key.fd, False)
            with contextlib.suppress(BlockingIOError):
                for _ in range(PIPE_MAX // READ):
                    if self._too_much or not self._take(key):
                        break
        return not self._too_much

    def _take(self, key: selectors.SelectorKey) -> bool:
        """Keep the next piece of a stream; False at its end."""
        piece = os.read(key.fd, READ)
        key.data.extend(piece)
        self._too_much = len(self._out) > RESULT_MAX
        del self._err[:-TAIL]
        return bool(piece)

    def _wait(self, deadline: float, still: Callable[[], None]) -> bool:
        while (left := deadline - time.monotonic()) > 0:
            try:
                self._process.wait(min(LOOK_S, left))
            except subprocess.TimeoutExpired:
                still()
            else:
                return True
        return False

    def _kill(self) -> None:
        """And all that it started, also when it has ended itself: nothing of an item is there when the next one begins."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()
        leftovers.end()

    def _judged(self) -> Result:
        code = self._process.returncode
        if code == 0:
            return result(bytes(self._out))
        said = self._err.decode("utf-8", "backslashreplace").strip().splitlines()[-1:]
        sys.stderr.write(f"{self._err.decode('utf-8', 'backslashreplace')}\n" if self._err else "")
        how = f"killed by signal {-code}" if code < 0 else f"exit code {code}"
        return failed(": ".join([how, *said]))


def result(out: bytes) -> Result:
    """What stdout came to."""
    text = out.decode("utf-8", "backslashreplace")
    last = text.rstrip().rpartition("\n")[2]
    try:
        return done(json.loads(last))
    except (ValueError, RecursionError):
        return done(text.rstrip("\n"))
