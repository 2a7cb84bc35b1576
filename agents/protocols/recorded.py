"""Add up the tokens in the file in which an agent's program keeps its session, for an agent that owns its terminal. Pure.

Claude Code 2.1.329 writes `usage` with every line of an answer, the same for each line with the same `message.id`; answers of agents inside
it are in files of their own and are not counted. Codex 0.169.0 writes the sum of the session after each answer (`token_count`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from agents.protocols import claude, codex
from agents.protocols.lines import SMALL_MAX, Object, Outcome, Usage, inner, name_of, objects, seconds, text

MESSAGES_MAX = 100_000
"""Answers of one session that are told apart."""


@dataclass(slots=True)
class Recorded:
    """What the lines read until now say of the time from `since` (seconds since 1970) on. A session may be older than its attempt.
    A line that is read again counts once, and one that says less than before takes nothing back."""

    since: float
    answers: dict[str, Usage] = field(default_factory=dict)
    before: Usage = field(default_factory=Usage)
    total: Usage = field(default_factory=Usage)
    models: dict[str, None] = field(default_factory=dict)

    def add(self, protocol: str, pieces: Iterable[bytes]) -> None:
        """Read these whole lines as well."""
        for one in objects(pieces):
            READERS[protocol](self, one, seconds(one.get("timestamp")))

    def outcome(self) -> Outcome:
        """Return the tokens and the models, as an agent that works by itself reports them at its end."""
        used = Usage(*(max(0, getattr(self.total, kind) - getattr(self.before, kind)) for kind in _KINDS))
        return Outcome(usage=sum(self.answers.values(), used), models=tuple(self.models))

    def name_model(self, name: str) -> None:
        """Note a model that answered."""
        if name and len(self.models) < SMALL_MAX:
            self.models[name] = None


_KINDS = ("input", "output", "cache_read", "cache_write")


def _of_claude(recorded: Recorded, one: Object, at: float) -> None:
    message = inner(one, "message")
    name, usage = name_of(message, "id"), inner(message, "usage")
    if text(one, "type") != "assistant" or not name or not usage or at < recorded.since:
        return
    if name in recorded.answers or len(recorded.answers) < MESSAGES_MAX:
        recorded.answers[name] = _most(recorded.answers.get(name, Usage()), claude.usage_of(usage))
        recorded.name_model(name_of(message, "model"))


def _of_codex(recorded: Recorded, one: Object, at: float) -> None:
    payload = inner(one, "payload")
    if text(one, "type") == "turn_context" and at >= recorded.since:
        recorded.name_model(name_of(payload, "model"))
    total = inner(inner(payload, "info"), "total_token_usage") if text(payload, "type") == "token_count" else {}
    if total:
        recorded.total = _most(recorded.total, codex.usage_of(total))
        if at < recorded.since:
            recorded.before = _most(recorded.before, codex.usage_of(total))


def _most(one: Usage, other: Usage) -> Usage:
    return Usage(*(max(getattr(one, kind), getattr(other, kind)) for kind in _KINDS))


READERS: dict[str, Callable[[Recorded, Object, float], None]] = {"claude": _of_claude, "codex": _of_codex}
"""By protocol."""
