"""The difference of two commits as files, hunks and lines. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Hunk:
    """Lines that lie together. Text whose bad bytes are replaced, without line breaks, else as the file has it."""

    old: int
    """Number of its first line in the older file."""
    new: int
    lines: tuple[tuple[str, str], ...]
    """Each with its sign: `-` gone, `+` come, a space for one that both have."""
    bare: frozenset[int] = frozenset()
    """Places in `lines` of those that end their file without a line end."""

    def numbered(self) -> Iterator[tuple[int | None, int | None, str, str]]:
        """Number in the older file, in the newer file, sign and text of each line."""
        old, new = self.old, self.new
        for sign, text in self.lines:
            yield (old if sign != "+" else None, new if sign != "-" else None, sign, text)
            old += sign != "+"
            new += sign != "-"


@dataclass(frozen=True, slots=True)
class FileDiff:
    """What became of one file. Names as `os.fsdecode` text; modes and oids as git writes them."""

    path: str
    """In the newer commit; of a file that is gone, where it was."""
    status: str
    """`A` added, `M` changed, `D` gone, `R` renamed, `C` copied, `T` another kind of file."""
    old_path: str = ""
    """Of one that was renamed."""
    old_mode: str = ""
    new_mode: str = ""
    old_oid: str = ""
    new_oid: str = ""
    hunks: tuple[Hunk, ...] = ()
    binary: bool = False
    cut: bool = False
    """It is larger than what was read: the lines are not all, or none."""

    def lines(self, sign: str) -> tuple[str, ...]:
        """Those with this sign."""
        return tuple(text for hunk in self.hunks for mark, text in hunk.lines if mark == sign)

    @property
    def crlf(self) -> bool:
        """Every line that is here ends with CR LF: it is how the file is written, and no line has to say it."""
        lines = [text for hunk in self.hunks for place, (_, text) in enumerate(hunk.lines) if place not in hunk.bare]
        return bool(lines) and all(text.endswith("\r") for text in lines)

    @property
    def what(self) -> str:
        """What is special about it, in a few words; empty: nothing."""
        kinds = {"120000": "symbolic link", "160000": "submodule"}
        return kinds.get(self.new_mode, kinds.get(self.old_mode, "")) or ("CRLF line ends" if self.crlf else "")

    @property
    def plus(self) -> int:
        """How many lines came."""
        return sum(mark == "+" for hunk in self.hunks for mark, _ in hunk.lines)

    @property
    def minus(self) -> int:
        """How many lines went."""
        return sum(mark == "-" for hunk in self.hunks for mark, _ in hunk.lines)
