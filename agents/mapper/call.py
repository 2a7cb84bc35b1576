"""A Python function for each item, called in a process that is forked for each shard: what one shard leaves in memory, the next one does
not see. The function's module is imported once, before the first fork; modules are looked for in the worktree first.

It is given the path, the line, or the object, and what it returns must be something that JSON can hold. What it prints goes to stderr.
"""

from __future__ import annotations

import importlib
import json
import os
import select
import signal
import struct
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from agents.mapper import leftovers
from agents.mapper.executors import RESULT_MAX, TIMEOUT_S, Item, Result, done, failed
from supervisor.core.errors import UsageError

LOOK_S = 1.0
_HEAD = struct.Struct("<?I")
_ITEM = struct.Struct("<QI")


def make(what: Mapping[str, Any], environ: Mapping[str, str]) -> Call:
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
    _child: _Child | None = field(default=None, init=False)

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
        return failed(how if answer else f"it took longer than {self.timeout_s:g} s")

    def _ended(self, child: _Child) -> str:
        self._child = None
        how = child.end()
        leftovers.end()
        return how


@dataclass(slots=True)
class _Child:
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


def _fork(function: Callable[[Any], Any], form: str) -> _Child:
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
    return _Child(pid, their_questions, their_answers)


def _serve(function: Callable[[Any], Any], form: str, questions: int, answers: int) -> NoReturn:
    """The child: items in, results out, until its worker closes the pipe."""
    try:
        os.setsid()
        leftovers.watch()
        while (head := _read(questions, _ITEM.size)) is not None:
            _, size = _ITEM.unpack(head)
            text = os.fsdecode(_read(questions, size) or b"")
            result = _called(function, json.loads(text) if form == "jsonl" else text)
            leftovers.end()
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
