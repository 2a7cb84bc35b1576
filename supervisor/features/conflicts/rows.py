"""What is known of how the results of a project stand to each other, in a file.

The supervisor alone writes it; commands that look take from it what they need not find out. It may be lost: then everything is compared
once more.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from supervisor.features.conflicts import rules as conflicts_rules
from supervisor.features.conflicts.rules import Matrix, Side, Told, Verdict
from supervisor.host import files, untrusted_fs
from supervisor.kernel.errors import NightcrewError

SCHEMA = 1
_BYTES_MAX = 16 * 2**20


@dataclass(frozen=True, slots=True)
class Book:
    """What the file has."""

    matrix: Matrix = field(default_factory=lambda: Matrix("", "", ()))
    told: Told = frozenset()


def load(path: Path) -> Book:
    """What is known; nothing where there is no file, or one that cannot be read."""
    try:
        data = untrusted_fs.read_plain(path, _BYTES_MAX)
        return _read(json.loads(data)) if data else Book()
    except (NightcrewError, OSError, ValueError, LookupError, TypeError, AttributeError):
        return Book()


def save(path: Path, book: Book) -> None:
    """Write it, whole or not at all. Raises DiskFull, HostError."""
    matrix = book.matrix
    tips = sorted({tip for one in matrix.known for tip in one})
    number = {tip: place for place, tip in enumerate(tips)}
    rows = [[number[one], number[two], *_row(verdict)] for (one, two), verdict in matrix.known.items()]
    shape = {
        "schema": SCHEMA, "base": matrix.base, "on": matrix.on, "left_out": matrix.left_out, "merged": matrix.merged,
        "sides": [[side.task, side.tip, side.living] for side in matrix.sides],
        "tips": tips, "pairs": rows, "told": sorted(book.told),
    }  # fmt: skip
    files.private_dir(path.parent.parent)
    files.private_dir(path.parent)
    files.atomic_write(path, json.dumps(shape, separators=(",", ":")).encode(), durable=False)


def _row(verdict: Verdict) -> list[Any]:
    """Nothing of a clean merge, which most are."""
    return [] if verdict == conflicts_rules.CLEAN else [list(verdict.files), verdict.more, verdict.why]


def _read(shape: Mapping[str, Any]) -> Book:
    if shape["schema"] != SCHEMA:
        return Book()
    sides = tuple(Side(str(task), str(tip), living is True) for task, tip, living in shape["sides"])
    tips = [str(tip) for tip in shape["tips"]]
    known = {conflicts_rules.pair(tips[one], tips[two]): _verdict(*row) for one, two, *row in shape["pairs"]}
    told = frozenset((str(one), str(two), str(name)) for one, two, name in shape["told"])
    merged = tuple(map(str, shape["merged"]))
    return Book(Matrix(str(shape["base"]), str(shape["on"]), sides, known, int(shape["left_out"]), merged), told)


def _verdict(names: list[str] | None = None, more: int = 0, why: str = "") -> Verdict:
    return Verdict(tuple(map(str, names or ())), int(more), str(why))
