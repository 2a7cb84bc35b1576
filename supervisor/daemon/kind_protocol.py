"""What a kind of agent promises beyond its exit status, and what its own words add to it."""

from __future__ import annotations

from pathlib import Path

from agents.kinds import Kind
from supervisor.core import result
from supervisor.core.errors import one_line
from supervisor.core.states import End
from supervisor.host import foreign

OUTPUT_MAX = 2**20
WORDS_MAX = 200


def judge(kind: Kind, directory: Path, end: End, cause: str) -> tuple[End, str]:
    """The end of an attempt whose records are in `directory`, given what its exit record says. A kind that promises one line of JSON fails
    without it, and when it fails its last words on stderr are the reason: it speaks for people there."""
    if kind.output != "one json line":
        return end, cause
    if end is End.FAILED:
        words = one_line(foreign.last_line(directory / "stderr.log"))[:WORDS_MAX]
        return end, f"{cause}: {words}" if words else cause
    breach = result.not_one_json_line(foreign.read_plain(directory / "stdout.log", OUTPUT_MAX) or b"") if end is End.DONE else ""
    return (End.FAILED, breach) if breach else (end, cause)
