"""The Python files of a checkout: which there are, which are this shard's, and what is in them.

Python files are the regular files `*.py` that git tracks. Their names come from a stranger: they are bytes, are never a pattern, an option
or part of a shell command, and are opened without following a link or leaving the checkout.
"""

from __future__ import annotations

import heapq
import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from agents.analysts.commands import Command, run
from supervisor.core.analysis.types import Shard
from supervisor.host.foreign import folder

MAX_BYTES = 1_000_000
"""Larger files are data rather than code, and are not parsed: dense ones take 400 bytes of memory a byte. The largest file of Django has
375,226 bytes, of SymPy 446,778."""

_REGULAR = (b"100644", b"100755")
_EACH = 256
"""Bytes that a file counts beside its own when shards are balanced, so that empty files are spread as well."""


@dataclass(frozen=True, slots=True)
class Source:
    """One Python file."""

    name: bytes
    """From the top of the repository."""
    size: int

    @property
    def shown(self) -> str:
        """The name as text; bytes that are not UTF-8 become `\\xff`."""
        return self.name.decode("utf-8", "backslashreplace")

    @property
    def too_large(self) -> bool:
        """Whether nobody looks into it."""
        return self.size > MAX_BYTES

    @property
    def is_test(self) -> bool:
        """Whether it belongs to the tests, by its name alone."""
        *directories, file = self.name.split(b"/")
        named = file.startswith(b"test_") or file.endswith(b"_test.py") or file in (b"conftest.py", b"test.py", b"tests.py")
        return named or b"test" in directories or b"tests" in directories


def find(root: Path, timeout_s: float) -> list[Source]:
    """Every Python file of the checkout at `root`, by name. One that is listed but is no plain file there is left out.

    Raises ToolMissing or ToolFailed when git cannot list them.
    """
    environ = {name: text for name, text in os.environ.items() if not name.startswith("GIT_")}
    argv = ("git", "--no-pager", "--no-optional-locks", "-c", "core.fsmonitor=false", "ls-files", "-z", "-s")
    hardened = {**environ, "GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": "", "GIT_TERMINAL_PROMPT": "0"}
    listing = run(Command("git", argv, timeout_s, hardened), root)
    sized = ((name, _size(root, name)) for name in tracked(listing))
    return [Source(name, size) for name, size in sized if size is not None]


def tracked(listing: bytes) -> list[bytes]:
    """The names of Python files in the answer of `git ls-files -z -s`, sorted, each once (a conflict lists a file up to three times)."""
    names = set()
    for entry in listing.split(b"\0"):
        facts, _, name = entry.partition(b"\t")
        if name.endswith(b".py") and facts.startswith(_REGULAR):
            names.add(name)
    return sorted(names)


def shard(sources: Iterable[Source], part: Shard) -> list[Source]:
    """This part of `sources`, by name. Over all parts of `part.of` every file comes exactly once, and the parts are about equally large."""
    parts = [(0, index) for index in range(1, part.of + 1)]
    mine = []
    for source in sorted(sources, key=lambda each: (-each.size, each.name)):
        weight, index = parts[0]
        heapq.heapreplace(parts, (weight + source.size + _EACH, index))
        if index == part.index:
            mine.append(source)
    return sorted(mine, key=lambda each: each.name)


def content(root: Path, source: Source) -> bytes | None:
    """What is in it; None when it is no plain file of ours within the checkout, or not any more."""
    above, _, name = os.fsdecode(source.name).rpartition("/")
    try:
        with folder(root, above) as here:
            data = here.read(name, MAX_BYTES + 1)
    except OSError:
        return None
    return data if data is None or len(data) <= MAX_BYTES else None


def lines(data: bytes) -> int:
    """How many lines an editor shows."""
    return data.count(b"\n") + (bool(data) and not data.endswith(b"\n"))


def _size(root: Path, name: bytes) -> int | None:
    try:
        state = os.lstat(os.path.join(os.fsencode(root), name))  # noqa: PTH118  # names are bytes
    except OSError:
        return None
    return state.st_size if stat.S_ISREG(state.st_mode) else None
