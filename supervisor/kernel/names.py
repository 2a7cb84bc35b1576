"""Names of runs, tasks, attempts, branches and refs, identities of processes, blocks of ports, and ids of traces."""

from __future__ import annotations

import difflib
import functools
import hashlib
import re
import unicodedata
from collections.abc import Callable, Collection
from dataclasses import dataclass

# Names
# -----
# Run ids and slugs that nightcrew makes, and the name that a person may have meant. User text never becomes a tmux, git or file
# name.


RUN_ALPHABET = "23456789abcdefghjkmnpqrstvwxyz"
"""No 0/o, 1/l/i, u: a run id is read aloud and typed."""

MAX_SLUG = 26
"""`<run:9>_<slug>_<epoch:<=10>` then stays within tmux names of 48 characters."""


def run_id(month: int, day: int, draw: int) -> str:
    """`MMDD-xxxx`: sorts by day within a year, and 30^4 values a day. `draw` is any non-negative random integer."""
    letters = []
    for _ in range(4):
        draw, index = divmod(draw, len(RUN_ALPHABET))
        letters.append(RUN_ALPHABET[index])
    return f"{month:02d}{day:02d}-{''.join(letters)}"


def slug(text: str, taken: Collection[str]) -> str:
    """A name of `[a-z0-9_-]`, 1 to MAX_SLUG characters, that starts with a letter or digit and is not in `taken`.

    `a.b`, `a:b` and `A b` all want `a-b`; the first gets it and the others `a-b-2`, `a-b-3`.
    """
    plain = unicodedata.normalize("NFKD", text[:200]).encode("ascii", "ignore").decode().lower()
    stem = re.sub(r"[^a-z0-9_]+", "-", plain).strip("-_")[:MAX_SLUG].rstrip("-_") or "task"
    return stem if stem not in taken else _numbered(stem, taken)


def _numbered(stem: str, taken: Collection[str]) -> str:
    """A free `stem-N`. By doubling and halving: counting up took minutes for a plan of thousands of ids with one long beginning."""

    def name(count: int) -> str:
        suffix = f"-{count}"
        return stem[: MAX_SLUG - len(suffix)].rstrip("-_") + suffix

    last_taken, free = 1, 2
    while name(free) in taken:
        last_taken, free = free, 2 * free
    while free - last_taken > 1:
        middle = (last_taken + free) // 2
        last_taken, free = (middle, free) if name(middle) in taken else (last_taken, middle)
    return name(free)


def nearest(word: str, known: Collection[str]) -> str:
    """`did you mean X?`, or the known names as far as a person would read them."""
    close = difflib.get_close_matches(word, known, n=1)
    if close:
        return f"did you mean {close[0]}?"
    return f"known: {', '.join(sorted(known)[:20])}{', ...' if len(known) > 20 else ''}"


# Identity
# --------
# What tells a process from every other one, and an attempt's processes from all others.


TAG_VARIABLE = "NIGHTCREW_TAG"
"""Environment variable that every process of an attempt inherits; its value is `tag(home, task, epoch)`."""


@dataclass(frozen=True, slots=True)
class Identity:
    """One process, for ever: a pid alone is reused, a pid with its kernel start ticks and boot is not."""

    pid: int
    ticks: int
    """Field 22 of /proc/PID/stat: clock ticks after boot."""
    boot_id: str


def mark(tag_text: str) -> int:
    """A number in 2^40..2^62 for RLIMIT_LOCKS, which Linux keeps and inherits but has not enforced since 2.4.

    It is inherited across fork, exec, setsid and `env -i`, so it finds the daemons that shed the environment tag.
    """
    span = 2**62 - 2**40
    return 2**40 + int.from_bytes(hashlib.sha256(tag_text.encode()).digest()[:8], "big") % span


# Ports
# -----
# A block of ports for each agent, so that two agents that start the same server do not meet.
#
# The blocks lie below what systems hand out by themselves (from 32768 on Linux, 49152 on macOS) and above what common servers ask
# for.


FIRST = 20_000
SIZE = 10
"""Ports of one block: a web server, its debugger, a database, a cache, and some to spare."""
BLOCKS = 1000


def block(taken: Collection[int], is_free: Callable[[int], bool]) -> int | None:
    """First port of the lowest block that is not in `taken`, by first ports, and whose ports are all free; None when there is none."""
    starts = (FIRST + SIZE * number for number in range(BLOCKS))
    return next((start for start in starts if start not in taken and all(map(is_free, range(start, start + SIZE)))), None)


def variables(first: int | None) -> dict[str, str]:
    """What tells an agent of its block; nothing when it has none."""
    return {"NIGHTCREW_PORT": str(first), "NIGHTCREW_PORTS": shown(first)} if first is not None else {}


def shown(first: int) -> str:
    """A block in words, `20010-20019`."""
    return f"{first}-{first + SIZE - 1}"


# Traces
# ------
# Ids of W3C Trace Context. Each follows from the name of what it stands for, so that every process knows it without asking.


@functools.lru_cache(maxsize=1024)
def trace_id(name: str) -> str:
    """The trace id of a run, of its tasks, of their attempts and of their model calls: 32 hex digits, as W3C Trace Context wants them.
    `name`: the full id of the run or of one of its tasks.

    Derived from the run's id, which the ledger gives once: so the gateway, which knows a request's task by its token, need not ask.
    """
    return hashlib.sha256(f"nightcrew run {name.partition('/')[0]}".encode()).hexdigest()[:32]


def span_id(*words: object) -> str:
    """Of what these words name."""
    return hashlib.sha256(f"nightcrew span {' '.join(map(str, words))}".encode("utf-8", "backslashreplace")).hexdigest()[:16]


def attempt_span(task: str, epoch: int) -> str:
    """The id of the span of an attempt."""
    return span_id("attempt", f"{task}:{epoch}")


def traceparent(task: str, epoch: int) -> str:
    """Where an attempt stands, as W3C Trace Context has it in a header and OpenTelemetry in a variable."""
    return f"00-{trace_id(task)}-{attempt_span(task, epoch)}-01"


# Gates of trains
# ---------------
# Keys of the runs in which gates of trains run.


GATE_KEYS = "train/*/gate/*"
"""The keys that `gate_key` makes, as a pattern of SQLite's GLOB."""


def gate_key(train: str, number: int) -> str:
    """Return the key of the run in which a gate of a train runs. A run that is submitted twice with one key is one run."""
    return f"train/{train}/gate/{number}"


def train_of(key: str) -> str:
    """Return the train of a key that `gate_key` made."""
    return key.removeprefix("train/").partition("/gate/")[0]


# Names of attempts
# -----------------
# What an attempt, its session, its branch, its refs and its processes are called.


def attempt_name(task: str, epoch: int) -> str:
    """`<run>/<slug>:<epoch>`: how an attempt is written everywhere."""
    return f"{task}:{epoch}"


def branch_name(task: str) -> str:
    """The branch that holds a task's result. It ends in a leaf of its own so that its ref directory belongs to one task."""
    return f"nightcrew/{task}/work"


def rescue_ref(task: str, epoch: int) -> str:
    """The ref that keeps whatever an attempt left behind."""
    return f"refs/nightcrew/rescue/{task}/{epoch}"


def rejected_ref(task: str, epoch: int) -> str:
    """The ref that keeps a result that a person rejected."""
    return f"refs/nightcrew/rejected/{task}/{epoch}"


def merge_branch(name: str) -> str:
    """Short name of the branch that holds the merged edits of the map `name`."""
    return f"nightcrew/map/{name}"


def left_ref(name: str, position: int | str) -> str:
    """What keeps the edit of a map's item that could not be merged."""
    return f"refs/nightcrew/map/{name}/left/{position}"


def tips_ref(task: str, epoch: int) -> str:
    """The ref beside it that keeps the commits which are not part of what the attempt left as its result."""
    return f"{rescue_ref(task, epoch)}-tips"


def tag(home: str, task: str, epoch: int) -> str:
    """What marks every process of an attempt, unique over state directories: 16 hex digits of the home, then `task:epoch`."""
    return f"{hashlib.sha256(home.encode('utf-8', 'surrogateescape')).hexdigest()[:16]}:{attempt_name(task, epoch)}"
