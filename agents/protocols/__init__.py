"""What headless agents print on stdout, read: one module a protocol, pure functions of bytes.

    read(protocol, stdout)        how a turn ended, in the agent's own words
    transcript(protocol, pieces)  who said and did what, piece by piece
    follow(protocol, before, more)  how the agent is while it runs
    tools(protocol, pieces)       which tools it called, and when, where its lines have times
    Recorded.add(protocol, pieces)  its tokens, by the file in which its program keeps the session

Nothing here raises, whatever the bytes are: a line that cannot be read is left out. What comes back was written by an agent; it is bounded,
and it is for `one_line` before a person sees it. Names of protocols: `claude` (Claude Code's stream-json and json), `builtin`,
`acp` (as `agents.turns` prints it) and `qwen` (nearly the same), `codex` (`codex exec --json`), `gemini` (Gemini CLI's stream-json),
`opencode` (`opencode run --format json`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from agents.protocols import claude, codex, gemini, opencode, qwen
from agents.protocols.lines import Clock, Entry, Live, Outcome, Usage, What, after, calls, objects, text
from agents.protocols.recorded import READERS, Recorded
from supervisor.features.trace.rules import ToolCall

__all__ = [
    "HEAD",
    "PROTOCOLS",
    "READERS",
    "Entry",
    "Live",
    "Outcome",
    "Recorded",
    "Usage",
    "What",
    "follow",
    "latest",
    "read",
    "recognised",
    "tools",
    "transcript",
]

HEAD = 2**18
"""Bytes within which a stream shows which of them it is."""
PROTOCOLS = {"claude": claude, "builtin": claude, "acp": claude, "qwen": qwen, "codex": codex, "gemini": gemini, "opencode": opencode}


def read(protocol: str, stdout: bytes) -> Outcome | None:
    """How the turn ended. None: this protocol is not known, or not one line of it was printed."""
    known = PROTOCOLS.get(protocol)
    return known.outcome(objects([stdout])) if known is not None else None


def follow(protocol: str, before: Live, lines: bytes) -> Live:
    """What is known once it has printed these whole lines as well."""
    known = PROTOCOLS.get(protocol)
    if known is not None:
        for one in objects([lines]):
            before = after(before, one, known.entries([one]))
    return before


def recognised(stdout: bytes) -> str:
    """Which protocol a stream that begins so follows; empty for none of them."""
    first = next((text(one, "type") for one in objects([stdout])), "")
    return {"system": "claude", "result": "claude", "thread.started": "codex", "init": "gemini", "step_start": "opencode"}.get(first, "")


def latest(tail: bytes) -> str:
    """What an agent said or did last, by the end of its stdout, in a line or more; empty when that is none of these streams."""
    spoken = ("message", "tool", "error")
    shapes = list(objects([tail]))
    found = [[one for one in known.entries(shapes) if one.kind in spoken] for known in (claude, codex, gemini, opencode)]
    told = max(found, key=len)
    return f"{told[-1].tool} {told[-1].text}".strip() if told else ""


def transcript(protocol: str, pieces: Iterable[bytes]) -> Iterator[Entry]:
    """What happened, in order, each as soon as the piece with its line has come. Nothing for a protocol that is not known."""
    known = PROTOCOLS.get(protocol)
    return known.entries(objects(pieces)) if known is not None else iter(())


def tools(protocol: str, pieces: Iterable[bytes]) -> Iterator[ToolCall]:
    """The calls of tools, as the pieces come: none of a protocol whose lines have no times (`codex`)."""
    known, clock = PROTOCOLS.get(protocol), Clock()
    return calls(clock, known.entries(clock.watch(objects(pieces)))) if known is not None else iter(())
