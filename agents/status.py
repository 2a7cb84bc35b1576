"""How an agent is, from what several sources say of it: pure, and it can explain itself.

Sources have ranks (1 is the surest). No source is believed beyond what it can know:

- **process**: the kernel and our own records. An end, a pause or that nothing runs yet is final; that something runs counts only while
  nobody says more.
- **protocol**, **hook**, **session file**: the agent's own words. The newest holds, whichever channel it came by, because each misses
  something: no hook tells of Esc or of a refused permission, and the session file is written a moment after a hook (measured with Claude
  Code 2.1). At the same moment the lower rank holds.
- **gateway**: what its requests do. A request under way means that an agent which said nothing, or said that it was idle before, works;
  one that is held back or refused upstream means `rate_limited`. It says nothing of an agent that waits for a person: a session's side
  requests go on meanwhile.
- **title**, **screen**, **silence**: they may say that a person should look. A dialog on the screen counts for more where it would not
  be seen otherwise: while nothing else is known of a start it blocks that, and an agent that rests waits for an answer. They never say
  that an agent is idle or done.

Absence is no evidence: what was said last holds, with its age, until a source that knows says otherwise. Nothing at all is `unknown`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum, StrEnum


class AgentState(StrEnum):
    """How an agent is at this moment."""

    QUEUED = "queued"
    STARTING = "starting"
    """Its process runs; it has not said that it is ready."""
    BLOCKED_STARTUP = "blocked_startup"
    """A dialog (trust, login, update) keeps it from starting."""
    WORKING = "working"
    WAITING_PERMISSION = "waiting_permission"
    WAITING_INPUT = "waiting_input"
    """It asked a person something."""
    RATE_LIMITED = "rate_limited"
    """Its request waits for tokens, or the provider refuses it for now."""
    IDLE = "idle"
    """Its turn ended; it can take the next prompt."""
    INTERRUPTED = "interrupted"
    """A person ended its turn; it can take the next prompt."""
    PAUSED = "paused"
    DONE = "done"
    FAILED = "failed"
    CRASHED = "crashed"
    STOPPED = "stopped"
    UNKNOWN = "unknown"


class Source(IntEnum):
    """Where evidence comes from; the number is its rank."""

    PROCESS = 1
    PROTOCOL = 2
    GATEWAY = 3
    HOOK = 4
    SESSION_FILE = 5
    TITLE = 6
    SCREEN = 7
    SILENCE = 8


NEEDS_PERSON = frozenset({AgentState.BLOCKED_STARTUP, AgentState.WAITING_PERMISSION, AgentState.WAITING_INPUT})
ENDED = frozenset({AgentState.DONE, AgentState.FAILED, AgentState.CRASHED, AgentState.STOPPED})
_PROCESS_DECIDES = ENDED | {AgentState.QUEUED, AgentState.PAUSED}
_OWN_WORDS = (Source.PROTOCOL, Source.HOOK, Source.SESSION_FILE)
_REST = frozenset({AgentState.IDLE, AgentState.UNKNOWN})
RESTS = frozenset({AgentState.IDLE, AgentState.INTERRUPTED})
"""It waits for a prompt."""
_QUIET = RESTS | {AgentState.STARTING}


@dataclass(frozen=True, slots=True)
class Evidence:
    """One thing that one source says."""

    source: Source
    state: AgentState
    at: float
    """Wall-clock seconds: since when it has been so, in the source's own words, or when we saw it."""
    detail: str = ""
    """What is asked, refused or seen: untrusted text of one line."""
    session: str = ""
    """The agent's own session; empty where the source knows of none."""
    sequence: int = 0
    """Orders what one source says at one moment."""


@dataclass(frozen=True, slots=True)
class Considered:
    """One piece of evidence and what became of it."""

    evidence: Evidence
    why: str


@dataclass(frozen=True, slots=True)
class Status:
    """What follows from the evidence."""

    state: AgentState
    since: float
    rule: str
    """Which rule decided, in words."""
    detail: str = ""
    look: str = ""
    """Why a person should look, from sources that decide nothing; empty: no reason."""
    considered: tuple[Considered, ...] = ()
    """All evidence, the deciding piece first, then by rank and age."""

    @property
    def needs_person(self) -> bool:
        """Whether nothing goes on before a person acts."""
        return self.state in NEEDS_PERSON


def fuse(evidence: Sequence[Evidence], session: str = "") -> Status:
    """The status of an agent whose own session is `session`; empty: it is not known yet, and no session is left out.

    Of one source only the newest counts. The order of `evidence` does not matter.
    """
    others = [piece for piece in evidence if session and piece.session not in ("", session)]
    newest = _newest([piece for piece in evidence if piece not in others])
    decided, rule = _decide(newest)
    state = decided.state if decided is not None else AgentState.UNKNOWN
    hints = [newest[source] for source in (Source.TITLE, Source.SCREEN, Source.SILENCE) if source in newest]
    look = "; ".join(piece.detail or f"{piece.source.name.lower()} says {piece.state}" for piece in hints if _contradicts(piece, state))
    return Status(
        state,
        decided.at if decided is not None else 0.0,
        rule,
        _detail(decided, newest) if decided is not None else "",
        look if state not in ENDED else "",
        _explained(evidence, others, newest, decided),
    )


def _newest(evidence: Sequence[Evidence]) -> dict[Source, Evidence]:
    found: dict[Source, Evidence] = {}
    for piece in evidence:
        before = found.get(piece.source)
        if before is None or (piece.at, piece.sequence, piece.state) > (before.at, before.sequence, before.state):
            found[piece.source] = piece
    return found


def _decide(newest: dict[Source, Evidence]) -> tuple[Evidence | None, str]:
    process, gateway = newest.get(Source.PROCESS), newest.get(Source.GATEWAY)
    if process is not None and process.state in _PROCESS_DECIDES:
        return process, "the process decides"
    words = [newest[source] for source in _OWN_WORDS if source in newest]
    said = max(words, key=lambda piece: (piece.at, -piece.source), default=None)
    if gateway is not None and _gateway_decides(gateway, said):
        return gateway, "its requests tell more than its last word"
    screen = newest.get(Source.SCREEN)
    if said is not None and said.state in RESTS and screen is not None and screen.state is AgentState.WAITING_INPUT:
        return screen, "it rests, and its screen shows a dialog"
    if said is not None:
        return said, "the agent's newest word"
    if screen is not None and screen.state is AgentState.BLOCKED_STARTUP:
        return screen, "it has said nothing, and its screen shows a known dialog"
    if process is not None and process.state is not AgentState.UNKNOWN:
        return process, "nothing is known but its process"
    return None, "nobody who can know has said anything"


def _gateway_decides(gateway: Evidence, said: Evidence | None) -> bool:
    if said is None:
        return True
    if gateway.state is AgentState.RATE_LIMITED:
        return said.state is AgentState.WORKING or (said.state in _QUIET and gateway.at > said.at)
    return gateway.state is AgentState.WORKING and said.state in _QUIET and gateway.at > said.at


def _detail(decided: Evidence, newest: dict[Source, Evidence]) -> str:
    """What is asked, in the words of the surest that says the same: a hook names the tool, the session file only that a person is asked."""
    same = [newest[source] for source in _OWN_WORDS if source in newest and newest[source].state is decided.state]
    return next((piece.detail for piece in same if piece.detail and decided.source in _OWN_WORDS), decided.detail)


def _contradicts(hint: Evidence, state: AgentState) -> bool:
    """One that asks a person contradicts any other state; rest and silence contradict work alone."""
    return hint.state is not state and (hint.state in NEEDS_PERSON or (state is AgentState.WORKING and hint.state in _REST))


def _explained(
    evidence: Sequence[Evidence], others: Sequence[Evidence], newest: dict[Source, Evidence], decided: Evidence | None
) -> tuple[Considered, ...]:
    def why(piece: Evidence) -> str:
        if piece is decided:
            return "decides"
        if piece in others:
            return "another session's"
        if newest[piece.source] is not piece:
            return "older than another of its source"
        return "is overruled" if piece.source < Source.TITLE else "only a hint"

    ordered = sorted(evidence, key=lambda piece: (piece is not decided, piece.source, -piece.at, -piece.sequence))
    return tuple(Considered(piece, why(piece)) for piece in ordered)
