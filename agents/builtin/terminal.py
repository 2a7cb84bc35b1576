"""The person at the terminal, if there is one."""

from __future__ import annotations

import asyncio
import contextlib
import os

LINE_MAX = 2**16


class Terminal:
    """Where lines are read from: standard input when it is a terminal, else the pane that the process runs in."""

    def __init__(self) -> None:
        self.attended = os.isatty(0)
        """A person sits at standard input and leads the conversation."""
        self._handle: int | None = 0 if self.attended else None
        if self._handle is None:
            with contextlib.suppress(OSError):  # no terminal at all, or a sandbox has cut it off
                self._handle = os.open("/dev/tty", os.O_RDONLY | os.O_CLOEXEC)

    def __bool__(self) -> bool:
        """Whether anybody can be asked."""
        return self._handle is not None

    async def line(self) -> str | None:
        """The next line that the person types, without its end; None when there are no more. May be cancelled."""
        if self._handle is None:
            return None
        loop, handle = asyncio.get_running_loop(), self._handle
        ready: asyncio.Future[None] = loop.create_future()
        loop.add_reader(handle, _mark, ready)
        try:
            await ready
        finally:
            loop.remove_reader(handle)
        try:
            raw = os.read(handle, LINE_MAX)  # a terminal is readable once there is a whole line
        except OSError:  # it hung up
            raw = b""
        return raw.decode("utf-8", "replace").strip() if raw else None


def _mark(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)
