"""Sending spans to an OpenTelemetry receiver: the terms, how far it has come, and what follows from an answer. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

BACKOFF_S, BACKOFF_MAX_S = 2.0, 300.0


@dataclass(frozen=True, slots=True)
class Terms:
    """`[telemetry]` of the user's settings."""

    endpoint: str = ""
    """Where spans go, with its path; empty: nowhere."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Each with where its text is: `env:NAME` or `file:PATH`."""
    content: bool = False
    """Also what people and agents wrote."""
    sample: float = 1.0
    """The part of the runs that is sent, 0 to 1."""

    def takes(self, trace: str) -> bool:
        """Whether a trace is sent: by its id, so all of it or nothing is."""
        return int(trace[-16:], 16) < self.sample * 2.0**64

    @property
    def variables(self) -> frozenset[str]:
        """The variables that headers are in."""
        pairs = (source.partition(":") for source in self.headers.values())
        return frozenset(name for kind, _, name in pairs if kind == "env")


@dataclass(frozen=True, slots=True)
class Cursor:
    """How far it has come: all up to there has been taken. What is beyond is sent again after a crash, with the same ids."""

    journal: int = 0
    """The newest row of the ledger's journal."""
    request: int = 0
    """The newest row of the account's requests."""
    open: tuple[int, ...] = ()
    """Rows up to there whose requests were under way."""
    away: int = 0
    """The newest row of those that we answered ourselves."""
    refused: int = 0
    """Spans that the receiver would not have, in all."""


def pause_s(failures: int) -> float:
    """How long to wait after so many failures in a row."""
    return min(BACKOFF_MAX_S, BACKOFF_S * 2.0 ** min(failures - 1, 20)) if failures else 0.0


def may_change(status: int | None) -> bool:
    """Whether the same spans may be taken another time, after this status; None: nobody answered. What says that the settings are off
    (401, 403, 404, 405, a redirection) may change, too: a person can mend them."""
    return status is None or status < 400 or status >= 500 or status in (401, 402, 403, 404, 405, 407, 408, 425, 429)
