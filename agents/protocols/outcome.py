"""What the parsers hand back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens as the agent counted them. `input` is what was neither read from a cache nor written to one."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input + other.input,
            self.output + other.output,
            self.cache_read + other.cache_read,
            self.cache_write + other.cache_write,
        )


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an agent's work ended, as it says itself."""

    ended: bool = False
    """The protocol said that the turn ended, well or not."""
    is_error: bool = False
    reason: str = ""
    """Why it is an error, on one line; empty when it is none."""
    denials: tuple[str, ...] = ()
    """Tools that it was not allowed to use, with what it wanted of them: a line each, at most DENIALS_MAX."""
    message: str = ""
    """Its last message, at most MESSAGE_MAX characters."""
    structured: Any | None = None
    """What it gave for the schema that it was asked to fill."""
    steps: int | None = None
    """Its own count of turns; None where the protocol has none."""
    usage: Usage | None = None
    cost_usd: float | None = None
    session: str = ""
    """By which its conversation is resumed."""
    began: bool = False
    """It said that it has a conversation to work in."""
    models: tuple[str, ...] = ()
    transcript: str = ""
    """Where it says that it keeps its conversation. A path in an agent's words: for people, never opened by us."""
    spent: str = ""
    """That it gave up because a limit of its account is spent, in its own words; empty: it did not."""
    resets_at: float = 0.0
    """When that limit opens again, in seconds since 1970; 0: its protocol does not say it but in words."""
    unfinished: tuple[str, ...] = ()
    """What it had in the background and did not wait for."""


What = Literal["start", "message", "tool", "outcome", "denied", "retry", "error", "end"]


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing that happened."""

    kind: What
    """`message` somebody spoke · `tool` a call · `outcome` of a call · `denied` a call that was not allowed · `retry` of a request
    that the provider refused · `end` of a turn."""
    who: str
    """`agent`, `user`, `system`; of an agent inside the agent, `agent/TOOL-ID`."""
    text: str = ""
    """At most TEXT_MAX characters."""
    tool: str = ""
    call: str = ""
    """The id that joins a call and its outcome."""
    ok: bool | None = None
    """Of an outcome or an end: whether it went well."""


MESSAGE_MAX = 8_000
TEXT_MAX = 64_000
LINE_MAX = 200
DENIALS_MAX = 20
SMALL_MAX = 20
"""Of models, and of what runs in the background."""
