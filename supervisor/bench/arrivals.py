"""The agents of a benchmark: each says that it is up, then waits without using anything until it is let go.

Two FIFOs: one in which agents write their name as their first act, and one on which they wait for a line.
"""

from __future__ import annotations

import os
import shlex
import threading
import time
from collections.abc import Callable, Collection
from pathlib import Path
from types import TracebackType

from supervisor.core.errors import HostError, TimedOut

UP_S = 300.0
_LAST = b"\0"


class Arrivals:
    """A context that listens inside it."""

    def __init__(self, directory: Path) -> None:
        self._up, self._go = directory / "up", directory / "go"
        self._seen: dict[str, float] = {}
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._listen, name="arrivals")

    def __enter__(self) -> Arrivals:
        for path in (self._up, self._go):
            os.mkfifo(path, 0o600)
        # Both ends by us: nobody's open blocks, and no reader meets an end of file when the last writer leaves.
        self._up_fd = os.open(self._up, os.O_RDWR | os.O_CLOEXEC)
        self._go_fd = os.open(self._go, os.O_RDWR | os.O_CLOEXEC)
        self._reader.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        os.write(self._up_fd, _LAST)
        self._reader.join()
        os.close(self._up_fd)
        os.close(self._go_fd)

    def argv(self, name: str) -> tuple[str, ...]:
        """The agent `name`: a shell that writes its name, then waits in a read."""
        return ("sh", "-c", f"echo {shlex.quote(name)} >{shlex.quote(str(self._up))}; read line <{shlex.quote(str(self._go))}")

    def wait(self, names: Collection[str], trouble: Callable[[], str] = str) -> dict[str, float]:
        """Monotonic seconds at which the line of each of `names` was read.

        Raises HostError with what `trouble` says, asked once a second while some are missing, and TimedOut after 300 s of silence.
        """
        deadline = time.monotonic() + UP_S
        with self._changed:
            while not self._changed.wait_for(lambda: all(name in self._seen for name in names), 1.0):
                missing = [name for name in names if name not in self._seen]
                if why := trouble():
                    raise HostError("agents did not start", on=f"{len(missing)} of {len(names)}", why=why)
                if time.monotonic() > deadline:
                    raise TimedOut("agents did not start", on=f"{len(missing)} of {len(names)}", why=f"nothing of {missing[0]}")
            return {name: self._seen[name] for name in names}

    def let_go(self, count: int) -> None:
        """Let `count` waiting agents end."""
        os.write(self._go_fd, b"\n" * count)

    def _listen(self) -> None:
        held = b""
        while not held.endswith(_LAST):
            data = os.read(self._up_fd, 65536)
            now = time.monotonic()
            *lines, held = (held + data).split(b"\n")
            with self._changed:
                self._seen.update((line.decode(), now) for line in lines)
                self._changed.notify_all()
