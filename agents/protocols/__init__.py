"""What headless agents print on stdout, read: one module a protocol, pure functions of bytes.

    read(protocol, stdout)        how a turn ended, in the agent's own words
    transcript(protocol, pieces)  who said and did what, piece by piece

Nothing here raises, whatever the bytes are: a line that cannot be read is left out. What comes back was written by an agent; it is bounded,
and it is for `one_line` before a person sees it. Names of protocols: `claude` (Claude Code's stream-json and json), `builtin` and
`qwen` (the same shape), `codex` (`codex exec --json`), `gemini` (Gemini CLI's stream-json).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from agents.protocols import claude, codex, gemini
from agents.protocols.lines import objects
from agents.protocols.outcome import Entry, Outcome, Usage

__all__ = ["PROTOCOLS", "Entry", "Outcome", "Usage", "read", "transcript"]

PROTOCOLS = {"claude": claude, "builtin": claude, "qwen": claude, "codex": codex, "gemini": gemini}


def read(protocol: str, stdout: bytes) -> Outcome | None:
    """How the turn ended. None: this protocol is not known, or not one line of it was printed."""
    known = PROTOCOLS.get(protocol)
    return known.outcome(objects([stdout])) if known is not None else None


def transcript(protocol: str, pieces: Iterable[bytes]) -> Iterator[Entry]:
    """What happened, in order, each as soon as the piece with its line has come. Nothing for a protocol that is not known."""
    known = PROTOCOLS.get(protocol)
    return known.entries(objects(pieces)) if known is not None else iter(())
