"""Running a command: its output bounded while it comes, its process group ended with it, at its time limit, and when it is cancelled."""

from __future__ import annotations

import asyncio
import contextlib
import os
import selectors
import signal
import subprocess
import time
from concurrent.futures import Executor
from dataclasses import dataclass, field
from pathlib import Path

from agents.builtin.tools.given import OUTPUT_MAX, Given, ToolError

LIMIT_S, LIMIT_MAX_S = 120.0, 3600.0
GRACE_S = 2.0
"""Between TERM and KILL."""
_DRAIN_S = 0.5
"""How long the output is still read after the command's end: only what left its process group can hold it open."""
_CHUNK = 2**16


@dataclass(frozen=True, slots=True)
class Order:
    """Where a command runs, how it is ended, and the threads that wait for it."""

    cwd: Path
    grace_s: float
    threads: Executor


@dataclass(slots=True)
class Output:
    """The beginning and the end of what a command wrote: at most `head` and twice `tail` bytes are held."""

    head: int
    tail: int
    first: bytearray = field(default_factory=bytearray)
    last: bytearray = field(default_factory=bytearray)
    total: int = 0

    def add(self, data: bytes) -> None:
        """The next piece."""
        self.total += len(data)
        room = self.head - len(self.first)
        self.first += data[:room]
        self.last += data[room:] if room > 0 else data
        if len(self.last) > 2 * self.tail:
            del self.last[: -self.tail]

    def text(self) -> str:
        """What is shown. Bytes that are no UTF-8 become U+FFFD; a NUL says that it is no text."""
        last = self.last[-self.tail :]
        gap = self.total - len(self.first) - len(last)
        shown = [bytes(self.first)] if gap <= 0 else [bytes(self.first), f"\n[... {gap} bytes left out ...]\n".encode()]
        raw = b"".join([*shown, bytes(last)])
        if b"\0" in raw:
            return f"(binary output, {self.total} bytes)"
        return raw.decode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended. `status` is negative for a signal, as subprocess has it."""

    status: int
    output: Output
    timed_out: bool


async def bash(given: Given, order: Order) -> str:
    """The output of a command of the model's. Raises ToolError with it when it failed or ran into its limit."""
    limit_s = given.number("timeout_s", LIMIT_S, 0, LIMIT_MAX_S)
    ended = await run(["bash", "-c", given.text("command")], order, limit_s)
    text = ended.output.text()
    if ended.timed_out:
        raise ToolError(f"{text}\n[ended at its time limit of {limit_s:g} s, with everything that it started]".lstrip("\n"))
    if ended.status:
        how = f"exit status {ended.status}" if ended.status > 0 else f"killed by signal {-ended.status}"
        raise ToolError(f"{text.rstrip()}\n[{how}]".lstrip("\n"))
    return text


async def run(argv: list[str], order: Order, limit_s: float, keep: int = OUTPUT_MAX) -> Ended:
    """Run a command to its end and keep `keep` bytes of its output. Cancelled, it ends the command before it raises. Raises OSError when
    it cannot be started."""
    wake, stop = os.pipe()
    try:
        work = asyncio.get_running_loop().run_in_executor(order.threads, _run, argv, order, limit_s, (wake, keep))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            os.write(stop, b"x")
            with contextlib.suppress(OSError):
                await work
            raise
    finally:
        os.close(wake)
        os.close(stop)


def _run(argv: list[str], order: Order, limit_s: float, terms: tuple[int, int]) -> Ended:
    wake, keep = terms
    deadline = time.monotonic() + limit_s
    output = Output(head=keep * 2 // 3, tail=keep // 3)
    with contextlib.ExitStack() as opened:
        out = _opened(opened, argv, order)
        process, alive = out.process, out.alive
        watch = _Watch(out.output, alive, wake, output)
        ended = watch.until(deadline)
        if not ended:
            _signal(process.pid, signal.SIGTERM)
            watch.forget(wake)
            watch.until(time.monotonic() + order.grace_s)
        _signal(process.pid, signal.SIGKILL)  # not reaped yet, so its group's number is still its own
        watch.forget(alive)
        watch.until(time.monotonic() + _DRAIN_S)
        return Ended(process.wait(), output, timed_out=not ended)


@dataclass(frozen=True, slots=True)
class _Started:
    process: subprocess.Popen[bytes]
    output: int
    """Where its output is read, without waiting."""
    alive: int
    """Readable once it has ended; it is not reaped by that."""


def _opened(opened: contextlib.ExitStack, argv: list[str], order: Order) -> _Started:
    """Start it. Its handles, and whatever of it still lives, end with `opened`."""
    out, its = os.pipe()
    opened.callback(os.close, out)
    os.set_blocking(out, False)
    try:
        process = subprocess.Popen(
            argv, cwd=order.cwd, stdin=subprocess.DEVNULL, stdout=its, stderr=subprocess.STDOUT, start_new_session=True
        )
    finally:
        os.close(its)
    opened.callback(_end, process)
    alive = os.pidfd_open(process.pid)
    opened.callback(os.close, alive)
    return _Started(process, out, alive)


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.returncode is None:
        _signal(process.pid, signal.SIGKILL)
        process.wait()


class _Watch:
    """Waits for a command's output, its end, and the word to stop."""

    def __init__(self, out: int, alive: int, wake: int, output: Output) -> None:
        self._out = out
        self._alive = alive
        self._output = output
        self._selector = selectors.PollSelector()
        self._open = {out, alive, wake}
        for handle in self._open:
            self._selector.register(handle, selectors.EVENT_READ)

    def forget(self, handle: int) -> None:
        """Look at it no more."""
        if handle in self._open:
            self._selector.unregister(handle)
            self._open.remove(handle)

    def until(self, deadline: float) -> bool:
        """Read what comes until the command has ended, or when that is not looked at any more, until its output has. False when the
        deadline or the word to stop came first."""
        while self._open & {self._alive} or self._out in self._open:
            ready = {key.fd for key, _ in self._selector.select(max(0.0, deadline - time.monotonic()))}
            if self._out in ready and not self._read():
                self.forget(self._out)
            if self._alive in ready:
                return True
            if ready - {self._out} or time.monotonic() >= deadline:
                return False
        return True

    def _read(self) -> bool:
        """False at the end of the output."""
        try:
            data = os.read(self._out, _CHUNK)
        except BlockingIOError:
            return True
        self._output.add(data)
        return bool(data)


def _signal(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
