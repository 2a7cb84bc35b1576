"""A command or a Python function for each item."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import re
import select
import selectors
import signal
import struct
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from supervisor.features.map.worker import worker
from supervisor.features.map.worker.worker import RESULT_MAX, TIMEOUT_S, Item, Result, done, failed
from supervisor.kernel.errors import UsageError
from supervisor.kernel.format import duration

# Command
# -------
# A command for each item: its words with the item put in, no shell. `{file}` `{line}` `{item}` are the item, `{index}` is its
# number from 0, and of a JSON object `{name}` is what it has under that name. The item also comes on stdin.
#
# The result is the last line of stdout when that is JSON, else all of stdout as text.


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
            return failed(f"it took longer than {duration(timeout_s)}")
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
        worker.end()

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


# Call
# ----
# A Python function for each item, called in a process that is forked for each shard: what one shard leaves in memory, the next one
# does not see. The function's module is imported once, before the first fork; modules are looked for in the worktree first.
#
# It is given the path, the line, or the object, and what it returns must be something that JSON can hold. What it prints goes to
# stderr.


_HEAD = struct.Struct("<?I")
_ITEM = struct.Struct("<QI")


def make_call(what: Mapping[str, Any], environ: Mapping[str, str]) -> Call:
    """`what`: `call` (module:function), `form`, `timeout_s`. Raises UsageError when there is no such function."""
    sys.dont_write_bytecode = True  # the worktree stays as it is
    sys.path[:0] = [str(Path.cwd()), *filter(None, environ.get("PYTHONPATH", "").split(os.pathsep))]
    module, _, name = str(what["call"]).partition(":")
    try:
        function = importlib.import_module(module)
        for part in name.split("."):
            function = getattr(function, part)
    except BaseException as error:
        traceback.print_exc()
        raise UsageError("cannot import", on=str(what["call"]), why=f"{type(error).__name__}: {error}") from error
    if not callable(function):
        raise UsageError("cannot call", on=str(what["call"]), why="it is no function")
    return Call(function, str(what.get("form", "line")), float(what.get("timeout_s") or TIMEOUT_S))


@dataclass(slots=True)
class Call:
    """See the module."""

    function: Callable[[Any], Any]
    form: str
    timeout_s: float
    _child: _CallChild | None = field(default=None, init=False)

    def begin(self) -> None:
        """See `Executor`; the child is forked with the first item."""

    def end(self) -> None:
        """End it, and what it started."""
        if self._child is not None:
            self._ended(self._child)

    def run(self, item: Item, still: Callable[[], None]) -> Result:
        """See `Executor`. One that died or took too long is replaced for the next item."""
        if self._child is None:
            self._child = _fork(self.function, self.form)
        answer = self._child.ask(item, time.monotonic() + self.timeout_s, still)
        if isinstance(answer, Result):
            return answer
        how = self._ended(self._child)
        return failed(how if answer else f"it took longer than {duration(self.timeout_s)}")

    def _ended(self, child: _CallChild) -> str:
        self._child = None
        how = child.end()
        worker.end()
        return how


@dataclass(slots=True)
class _CallChild:
    """A fork that works on items. `pid` leads a process group."""

    pid: int
    questions: int
    answers: int

    def ask(self, item: Item, deadline: float, still: Callable[[], None]) -> Result | bool:
        """Its result; True when the child has died, False when the time ran out."""
        text = os.fsencode(item.text)
        try:
            _write(self.questions, _ITEM.pack(item.index, len(text)) + text)
        except BrokenPipeError:
            return True
        held = bytearray()
        while (left := deadline - time.monotonic()) > 0:
            if not select.select([self.answers], [], [], min(LOOK_S, left))[0]:
                still()
                continue
            piece = os.read(self.answers, 2**16)
            if not piece:
                return True
            held += piece
            if len(held) >= _HEAD.size:
                ok, size = _HEAD.unpack_from(held)
                if size > 4 * RESULT_MAX:
                    return failed("it wrote into the worker's pipe")
                if len(held) >= _HEAD.size + size:
                    return Result(ok, held[_HEAD.size :].decode("utf-8", "backslashreplace"))
        return False

    def end(self) -> str:
        """Kill it with its group, and say how it had ended by itself, if it had."""
        os.close(self.questions)
        os.close(self.answers)
        try:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid == 0 and not _dies(self.pid):
                os.killpg(self.pid, signal.SIGKILL)
                _, status = os.waitpid(self.pid, 0)
            else:
                status = status if pid else os.waitpid(self.pid, 0)[1]
                os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        code = os.waitstatus_to_exitcode(status)
        return f"it was killed by signal {-code}" if code < 0 else f"it ended its process with exit code {code}"


def _dies(pid: int) -> bool:
    """Whether a child that closed its pipe ends by itself in a moment: then it can say how."""
    ready = select.select([os.pidfd_open(pid)], [], [], 0.0)
    return bool(ready[0])


def _fork(function: Callable[[Any], Any], form: str) -> _CallChild:
    questions, their_questions = os.pipe()
    their_answers, answers = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        os.close(their_questions)
        os.close(their_answers)
        _serve(function, form, questions, answers)
    os.close(questions)
    os.close(answers)
    return _CallChild(pid, their_questions, their_answers)


def _serve(function: Callable[[Any], Any], form: str, questions: int, answers: int) -> NoReturn:
    """The child: items in, results out, until its worker closes the pipe."""
    try:
        os.setsid()
        worker.watch()
        while (head := _read(questions, _ITEM.size)) is not None:
            _, size = _ITEM.unpack(head)
            text = os.fsdecode(_read(questions, size) or b"")
            result = _called(function, json.loads(text) if form == "jsonl" else text)
            worker.end()
            data = result.text.encode("utf-8", "backslashreplace")
            _write(answers, _HEAD.pack(result.ok, len(data)) + data)
    except BaseException:  # noqa: BLE001 - a forked child: nothing may unwind into the worker's frames
        traceback.print_exc()
        os._exit(70)
    os._exit(0)


def _called(function: Callable[[Any], Any], given: Any) -> Result:
    try:
        return done(function(given))
    except BaseException as error:  # noqa: BLE001 - also SystemExit: it ends its item and no more
        traceback.print_exc()
        return failed(f"{type(error).__name__}: {error}")


def _read(handle: int, size: int) -> bytes | None:
    """Exactly so many bytes; None when the other side has closed."""
    held = bytearray()
    while len(held) < size:
        piece = os.read(handle, size - len(held))
        if not piece:
            return None
        held += piece
    return bytes(held)


def _write(handle: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(handle, left) :]
