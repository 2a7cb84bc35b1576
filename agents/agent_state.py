"""How an agent is, from what several sources say. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum, StrEnum
from typing import Any

from supervisor.kernel.errors import one_line
from supervisor.kernel.format import age

# Status
# ------
# How an agent is, from what several sources say of it: pure, and it can explain itself.
#
# Sources have ranks (1 is the surest). No source is believed beyond what it can know:
#
# - **process**: the kernel and our own records. An end, a pause or that nothing runs yet is final; that something runs counts only
# while nobody says more. - **protocol**, **hook**, **session file**: the agent's own words. The newest holds, whichever channel it
# came by, because each misses something: no hook tells of Esc or of a refused permission, and the session file is written a moment
# after a hook (measured with Claude Code 2.1). At the same moment the lower rank holds. - **gateway**: what its requests do. A
# request under way means that an agent which said nothing, or said that it was idle before, works; one that is held back or refused
# upstream means `rate_limited`. It says nothing of an agent that waits for a person: a session's side requests go on meanwhile. -
# **title**, **screen**, **silence**: they may say that a person should look. A dialog on the screen counts for more where it would
# not be seen otherwise: while nothing else is known of a start it blocks that, and an agent that rests waits for an answer. They
# never say that an agent is idle or done.
#
# Absence is no evidence: what was said last holds, with its age, until a source that knows says otherwise. Nothing at all is
# `unknown`.


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


# Hints
# -----
# What a terminal's title and its silence hint at: reasons to look, and never more. Both are an agent's own doing: anything that
# runs in a pane sets its title. Pure.


SILENT_S = 600.0
"""Nothing printed for so many seconds is worth a look of who works: tools and thinking are often silent for minutes."""
TITLE_MAX = 80
"""Characters of a title that are looked at."""
_ASKS = "[ ! ] Action Required"
"""How Codex 0.169.0 begins its title while it waits for a person."""
_RESTS = "✳ "
"""How Claude Code 2.1.329 begins its title while it does not work: at a prompt and in a dialog."""


def title(text: str, now: float) -> Evidence | None:
    """What the title of a pane hints at; None for one that is no agent's. `now`: wall-clock seconds."""
    shown = one_line(text[:TITLE_MAX])
    if text.startswith(_ASKS):
        return Evidence(Source.TITLE, AgentState.WAITING_PERMISSION, now, f"its title says: {shown}")
    if text.startswith(_RESTS):
        return Evidence(Source.TITLE, AgentState.IDLE, now, f"its title says that it rests: {shown}")
    spins = "\u2800" <= text[:1] <= "\u28ff" and text[1:2] == " "
    return Evidence(Source.TITLE, AgentState.WORKING, now, f"its title says that it works: {shown}") if spins else None


def silence(printed: float, now: float) -> Evidence | None:
    """What it means that nothing was printed since `printed`; None while that is not long ago."""
    if not printed or now - printed < SILENT_S:
        return None
    return Evidence(Source.SILENCE, AgentState.UNKNOWN, printed, f"it has printed nothing for {age(now - printed)}")


# Hooks
# -----
# What the hooks of an agent's command line say of its state: events of Claude Code (2.1) and Codex (0.169), in their order, to
# evidence.
#
# Neither end of an activity is enough alone: a permission that was asked for holds until its own tool has run or was refused,
# whatever other tools begin meanwhile, and a refusal by a person or Esc fires no hook in Claude Code (its session file tells).
# Events of subagents move the state only where they ask a person. Names that are not known here say nothing.
#
# Everything in an event is the agent's own text and may be forged or of any shape.


Said = tuple[AgentState, str]
DETAIL_MAX = 200
"""Characters of what is asked that are kept."""
_PENDING_MAX = 64
_ASKING_TOOLS = frozenset({"AskUserQuestion"})
"""Tools that wait for a person's answer by being called."""
_TOOL_ENDED = frozenset({"PostToolUse", "PostToolUseFailure", "PermissionDenied"})
_TURN = frozenset({"UserPromptSubmit", "Interrupt", "SessionStart"})
"""Events that end whatever was asked before."""
_NOTIFIED = {
    "permission_prompt": AgentState.WAITING_PERMISSION,
    "elicitation_dialog": AgentState.WAITING_INPUT,
    "idle_prompt": AgentState.IDLE,
}


@dataclass(frozen=True, slots=True)
class Heard:
    """What the hooks of one session have said so far."""

    evidence: Evidence | None = None
    pending: tuple[tuple[str, str], ...] = ()
    """Permissions asked for and not settled, oldest first: a digest of the tool with its input, and what a person reads, at most DETAIL_MAX
    characters."""


def hear(before: Heard, event: Mapping[str, Any], at: float, sequence: int) -> Heard:
    """What is known after `event`, a hook's input, which came at `at` (wall-clock seconds) as the `sequence`th. Raises nothing."""
    name, session = _text(event, "hook_event_name"), _text(event, "session_id")
    after = _settled(before, event, name)
    found = _state(after, event, name)
    if found is None:
        return after
    state, detail = found
    return replace(after, evidence=Evidence(Source.HOOK, state, at, one_line(detail)[:DETAIL_MAX], session, sequence))


def permissions(before: Heard, after: Heard, name: str) -> list[tuple[str, str]]:
    """What the event `name`, which led from `before` to `after`, says of permissions: each as the history has it, and what was asked."""
    became = "granted" if name in ("PostToolUse", "PostToolUseFailure") else "denied" if name == "PermissionDenied" else "not granted"
    gone = [(f"permission {became}", shown) for tool, shown in before.pending if all(tool != other for other, _ in after.pending)]
    return gone + [("permission asked", shown) for tool, shown in after.pending if all(tool != other for other, _ in before.pending)]


def tool(name: str, event: Mapping[str, Any]) -> str:
    """The tool whose call this event begins; empty when it begins none."""
    return (_text(event, "tool_name") or "a tool")[:DETAIL_MAX] if name == "PreToolUse" else ""


def _settled(before: Heard, event: Mapping[str, Any], name: str) -> Heard:
    """With the permissions that are open after the event."""
    tool = _tool(event)
    if name == "PermissionRequest":
        kept = [one for one in before.pending if one[0] != tool]
        return replace(before, pending=(*kept, (tool, one_line(_shown(event))[:DETAIL_MAX]))[-_PENDING_MAX:])
    if name in _TOOL_ENDED:
        return replace(before, pending=tuple(one for one in before.pending if one[0] != tool))
    if name in _TURN or (name in ("Stop", "StopFailure") and not _is_subagents(event)):
        return before if _is_compaction(event, name) else replace(before, pending=())
    return before


def _state(now: Heard, event: Mapping[str, Any], name: str) -> Said | None:
    """The state that the event speaks of and what is asked; None when it speaks of none."""
    if name == "PermissionRequest" or (now.pending and name in (*_TOOL_ENDED, "PreToolUse")):
        return AgentState.WAITING_PERMISSION, now.pending[0][1]
    if _is_subagents(event) or _is_compaction(event, name) or name not in _SAYS:
        return None
    if name == "Notification" and now.pending:
        return None  # it repeats, seconds later and in general words, what was asked for
    return _SAYS[name](event)


def _works(_: Mapping[str, Any]) -> Said:
    return AgentState.WORKING, ""


def _tool_begins(event: Mapping[str, Any]) -> Said:
    asks = _text(event, "tool_name") in _ASKING_TOOLS
    return (AgentState.WAITING_INPUT, _shown(event)) if asks else _works(event)


def _turn_ends(event: Mapping[str, Any]) -> Said:
    tasks = event.get("background_tasks")
    return (AgentState.WORKING, f"{len(tasks)} background tasks") if isinstance(tasks, list) and tasks else (AgentState.IDLE, "")


def _turn_fails(event: Mapping[str, Any]) -> Said:
    return AgentState.IDLE, f"its turn failed: {_text(event, 'error') or 'for an unknown reason'}"


def _notifies(event: Mapping[str, Any]) -> Said | None:
    state = _NOTIFIED.get(_text(event, "notification_type"))
    return None if state is None else (state, _text(event, "message") if state is not AgentState.IDLE else "")


_SAYS: Mapping[str, Callable[[Mapping[str, Any]], Said | None]] = {
    "SessionStart": lambda _: (AgentState.IDLE, ""),
    "UserPromptSubmit": _works,
    "Interrupt": lambda _: (AgentState.INTERRUPTED, ""),
    "PreToolUse": _tool_begins,
    **dict.fromkeys(_TOOL_ENDED, _works),
    "Stop": _turn_ends,
    "StopFailure": _turn_fails,
    "Notification": _notifies,
    "Elicitation": lambda event: (AgentState.WAITING_INPUT, _text(event, "message")),
    "ElicitationResult": _works,
}


def _is_subagents(event: Mapping[str, Any]) -> bool:
    return bool(_text(event, "agent_id"))


def _is_compaction(event: Mapping[str, Any], name: str) -> bool:
    """A session starts again amid a turn when its context was compacted."""
    return name == "SessionStart" and _text(event, "source") == "compact"


def _tool(event: Mapping[str, Any]) -> str:
    """What tells one call of a tool from another: a permission names no call, only the tool and its input."""
    try:
        given = json.dumps(event.get("tool_input"), sort_keys=True, default=str)
    except (TypeError, ValueError, RecursionError):
        given = ""
    return hashlib.sha256(f"{_text(event, 'tool_name')} {given}".encode("utf-8", "replace")).hexdigest()[:32]


def _shown(event: Mapping[str, Any]) -> str:
    given = event.get("tool_input")
    words = [value for value in given.values() if isinstance(value, str)] if isinstance(given, dict) else []
    return f"{_text(event, 'tool_name') or 'a tool'}: {words[0]}" if words else _text(event, "tool_name") or "a tool"


def _text(event: Mapping[str, Any], key: str) -> str:
    value = event.get(key)
    return value if isinstance(value, str) else ""
