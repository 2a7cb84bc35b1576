"""Read and parse the Python files of a checkout."""

from __future__ import annotations

import ast
import contextlib
import gc
import heapq
import os
import stat
import subprocess
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from supervisor.host import processes
from supervisor.host.untrusted_fs import folder
from supervisor.kernel.errors import ToolFailed, ToolMissing, last_line
from supervisor.kernel.format import duration
from supervisor.results.findings import Shard

# Commands
# --------
# The commands that analysts run: a deadline for each, and nothing of it left behind.


@dataclass(frozen=True, slots=True)
class Command:
    """What to run, and how long it may take."""

    name: str
    """For people: `git`, `bandit`."""
    argv: Sequence[str]
    timeout_s: float
    env: Mapping[str, str] | None = None
    codes: tuple[int, ...] = (0,)
    """Exit codes that mean it worked."""


def run(command: Command, directory: Path) -> bytes:
    """Return its stdout. Raises ToolMissing, or ToolFailed with its last word on stderr or because it took too long."""
    try:
        done = processes.run(command.argv, directory, command.env, command.timeout_s)
    except subprocess.TimeoutExpired as late:
        raise ToolFailed(f"{command.name} was stopped", why=f"no answer in {duration(command.timeout_s)}") from late
    except (FileNotFoundError, PermissionError) as error:
        raise ToolMissing(f"{command.name} cannot be started", on=command.argv[0], why=error.strerror or "") from error
    if done.returncode not in command.codes:
        why = last_line(done.stderr.decode("utf-8", "replace")) or f"exit status {done.returncode}"
        raise ToolFailed(f"{command.name} failed", why=why)
    return done.stdout


# Sources
# -------
# The Python files of a checkout: which there are, which are this shard's, and what is in them.
#
# Python files are the regular files `*.py` that git tracks. Their names come from a stranger: they are bytes, are never a pattern,
# an option or part of a shell command, and are opened without following a link or leaving the checkout.


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


# Parsing
# -------
# A file's bytes as a syntax tree, whatever the bytes are.


@dataclass(frozen=True, slots=True)
class Module:
    """One Python file that could be parsed."""

    file: str
    lines: int
    is_test: bool
    tree: ast.Module


@dataclass(frozen=True, slots=True)
class Unparsable:
    """Why there is no tree, and in which line (0: no certain one)."""

    why: str
    line: int = 0


def parse(data: bytes) -> ast.Module | Unparsable:
    """Decoded as Python does it (PEP 263: byte order mark, coding cookie, else UTF-8)."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about invalid escapes and the like, said while parsing
            return ast.parse(data)
    except SyntaxError as error:
        return Unparsable(error.msg or "invalid syntax", max(0, error.lineno or 0))
    except (RecursionError, MemoryError):  # the parser's words for its own limits, not for the machine's
        return Unparsable("it is nested too deeply")
    except ValueError as error:  # null bytes, before Python 3.11.4
        return Unparsable(str(error))


@contextlib.contextmanager
def without_cycles() -> Iterator[None]:
    """Switch the cycle collector off: trees have no cycles, and looking for some takes a quarter of the time."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


@contextlib.contextmanager
def deep(limit: int = 50_000) -> Iterator[None]:
    """Allow visitors to go as deep as a tree can be. Not while parsing: there the same limit guards the stack of the C code."""
    was = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, was))
    try:
        yield
    finally:
        sys.setrecursionlimit(was)
