"""How a forked process shows itself in /proc: there it has the command line and the environment of the process that it was forked from.

The daemon knows a runner by its command line and an agent's processes by the tag in their environment, so a fork has to show its own.
Linux keeps both in memory of the process, which it may overwrite but not enlarge: whoever is to be forked is started with room to spare
(`agents.zygote`). Elsewhere there is nothing to write to, and nothing is read either.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from supervisor.host.procfs import slurp


class Title:
    """The two areas of this process. A fork has them at the same addresses, so one look serves all forks."""

    __slots__ = ("_environment", "_words")

    def __init__(self) -> None:
        fields = slurp("/proc/self/stat").rpartition(b")")[2].split()
        start, end, env_start, env_end = map(int, fields[45:49]) if len(fields) >= 49 else (0, 0, 0, 0)  # fields 48 to 51 of proc(5)
        self._words = start, end - start
        self._environment = env_start, env_end - env_start

    def holds(self, words: Sequence[bytes]) -> bool:
        """Whether `words` fit whole; always where there is no place to show them."""
        return not self._words[0] or len(_joined(words)) <= self._words[1]

    def show(self, words: Sequence[bytes]) -> None:
        """Be shown with the command line `words`, cut to the room that there is."""
        _fill(*self._words, _joined(words))

    def show_environment(self, entries: Sequence[bytes]) -> None:
        """Be shown with the environment `entries`, `NAME=value`. `os.environ` must have been cleared: until then it lives in that place."""
        _fill(*self._environment, _joined(entries))


def _joined(words: Sequence[bytes]) -> bytes:
    return b"".join(word + b"\0" for word in words)


def _fill(start: int, size: int, data: bytes) -> None:
    """What is left of the area becomes NUL: with any other last byte the kernel shows the first word alone (proc(5), setproctitle)."""
    if start and size > 0:
        ctypes.memmove(start, data[: size - 1].ljust(size, b"\0"), size)
