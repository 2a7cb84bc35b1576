"""The pages of a file of SQLite's and of the log beside it. Only reads; whatever the bytes are, nothing is raised but OSError.

A frame of the log counts when its salt is the log's, and its checksum follows from the one that is stored in the frame before. SQLite takes
the frames before the first damaged one only; here those after it count too, up to the last one that ends a commit.
"""

from __future__ import annotations

import array
import struct
import sys
from dataclasses import dataclass
from pathlib import Path

MAGIC = b"SQLite format 3\0"
PAGE = 4096
"""SQLite's page size when nobody asks for another, and nobody here does: of a file whose header is damaged."""
_LOG_HEADER, _FRAME_HEADER = 32, 24
_LITTLE = 0x377F0682
_WORD = 0xFFFFFFFF

Sum = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Log:
    """What counts of a log."""

    frames: dict[int, tuple[int, int]]
    """Of each page its newest frame: where its bytes begin, and which frame it is (1 is the first)."""
    skipped: int
    """Damaged frames before the last one that counts: what was committed with them is lost, or is older than it was."""


class Pages:
    """Reads page by page; at most one page is held. Close it."""

    def __init__(self, path: Path, log: Path | None) -> None:
        """The file may be absent, and so may its log. Raises OSError."""
        self._file = path.open("rb") if path.exists() else None
        self._log_file = log.open("rb") if log is not None else None
        first = self._file.read(100) if self._file is not None else b""
        head = self._log_file.read(_LOG_HEADER) if self._log_file is not None else b""
        self.size = _page_size(first, head)
        self.log = _read_log(log.read_bytes(), self.size) if log is not None else Log({}, 0)
        length = path.stat().st_size if self._file is not None else 0
        self.count = max([-(-length // self.size), *self.log.frames])
        self.header = (self.get(1) or b"")[:100]

    @property
    def usable(self) -> int:
        """Bytes of a page without those that are reserved at its end, which in our files are none."""
        return self.size

    def get(self, number: int) -> bytes | None:
        """A page's bytes (1 is the first); None when there is no such page, or not all of it."""
        frame = self.log.frames.get(number)
        if frame is not None and self._log_file is not None:
            self._log_file.seek(frame[0])
            return self._log_file.read(self.size)
        if self._file is None or not 1 <= number <= self.count:
            return None
        self._file.seek((number - 1) * self.size)
        data = self._file.read(self.size)
        return data if len(data) == self.size else None

    def age(self, number: int) -> int:
        """Of two copies of a row the one on the page with the higher number is newer."""
        return self.log.frames.get(number, (0, 0))[1]

    def free(self) -> frozenset[int]:
        """The pages of SQLite's list of free ones, which may hold old copies of rows; empty when the list makes no sense."""
        if len(self.header) < 100:
            return frozenset()
        trunk, total = struct.unpack_from(">II", self.header, 32)
        found: set[int] = set()
        while trunk:
            data = self.get(trunk)
            if data is None or trunk in found or len(found) > total:
                return frozenset()
            following, count = struct.unpack_from(">II", data)
            if count > self.usable // 4 - 2:
                return frozenset()
            found.update((trunk, *struct.unpack_from(f">{count}I", data, 8)))
            trunk = following
        return frozenset(found) if len(found) == total else frozenset()

    def close(self) -> None:
        """Give both files back."""
        for file in (self._file, self._log_file):
            if file is not None:
                file.close()


def _page_size(first: bytes, log: bytes) -> int:
    found = []
    if first.startswith(MAGIC):
        (size,) = struct.unpack_from(">H", first, 16)
        found.append(65536 if size == 1 else size)
    if len(log) == _LOG_HEADER:
        found.append(struct.unpack_from(">I", log, 8)[0])
    return next((size for size in found if 512 <= size <= 65536 and size & (size - 1) == 0), PAGE)


def _read_log(data: bytes, size: int) -> Log:
    if len(data) < _LOG_HEADER + _FRAME_HEADER + size:
        return Log({}, 0)
    magic, _, _, _, *salt, sum_0, sum_1 = struct.unpack_from(">8I", data)
    little = magic != _LITTLE + 1  # also when the header is damaged
    before: Sum | None = (sum_0, sum_1)
    if magic & ~1 != _LITTLE or _sum(data[:24], (0, 0), little=little) != before:
        salt, before = list(struct.unpack_from(">II", data, _LOG_HEADER + 8)), None  # the first frame cannot be checked, and counts
    frames: dict[int, tuple[int, int]] = {}
    since: dict[int, tuple[int, int]] = {}  # the last commit
    damaged = skipped = 0
    for index, at in enumerate(range(_LOG_HEADER, len(data) - size - _FRAME_HEADER + 1, _FRAME_HEADER + size), 1):
        page, ends_commit, *own_salt, sum_0, sum_1 = struct.unpack_from(">6I", data, at)
        body = at + _FRAME_HEADER
        whole = own_salt == salt and (
            before is None
            or _sum(data[body : body + size], _sum(data[at : at + 8], before, little=little), little=little) == (sum_0, sum_1)
        )
        before = (sum_0, sum_1)
        if not whole or page == 0:
            damaged += 1
            continue
        since[page] = (body, index)
        if ends_commit:
            frames.update(since)
            since.clear()
            skipped = damaged
    return Log(frames, skipped)


def _sum(data: bytes, before: Sum, *, little: bool) -> Sum:
    """SQLite's checksum of whole pairs of words, going on from `before`."""
    words = array.array("I", data)
    if little != (sys.byteorder == "little"):
        words.byteswap()
    one, two = before
    for first, second in zip(words[::2], words[1::2], strict=True):
        one = (one + first + two) & _WORD
        two = (two + second + one) & _WORD
    return one, two
