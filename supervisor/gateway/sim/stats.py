"""What the simulated provider can tell about what it was asked: the tests' evidence. Keys appear only as digests."""

from __future__ import annotations

import hashlib
import time
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from supervisor.core.gateway.types import Usage

SECRET_HEADERS = frozenset({"authorization", "x-api-key", "x-goog-api-key", "cookie", "proxy-authorization"})


def label(secret: str) -> str:
    """How a key is named in the statistics: the first 12 hex digits of its SHA-256; empty for none."""
    return hashlib.sha256(secret.encode(errors="surrogateescape")).hexdigest()[:12] if secret else ""


@dataclass(slots=True)
class Tally:
    """One key and model class. `asked` = answered + cancelled + cut + all refused + what runs now."""

    asked: int = 0
    answered: int = 0
    """To the last byte."""
    cancelled: int = 0
    """The client went away before that."""
    cut: int = 0
    """A fault ended it."""
    refused: dict[str, int] = field(default_factory=dict)
    """By reason: `limit:requests`, `limit:input`, `limit:5h`, ... by a bucket or window; `fault:529`, ... on request; `key`; `invalid`."""
    reported: dict[str, int] = field(default_factory=dict)
    """Tokens by kind, as said in final usages that were sent."""
    used: dict[str, int] = field(default_factory=dict)
    """Tokens by kind that were really taken, broken off requests included."""


def add_usage(sums: dict[str, int], usage: Usage) -> None:
    """Sum up by kind."""
    for kind, tokens in asdict(usage).items():
        sums[kind] = sums.get(kind, 0) + tokens


@dataclass(slots=True)
class Entry:
    """One request as it arrived; secrets in headers are replaced by `label`s."""

    number: int
    at: float
    """Monotonic seconds of this machine."""
    method: str
    path: str
    """With its query, less a `key`."""
    api: str
    model: str
    stream: bool
    key: str
    headers: list[tuple[str, str]]
    body_sha256: str
    body_bytes: int
    outcome: str = "running"
    """`running`, `answered`, `cancelled`, `cut`, or the reason of a refusal."""
    sent_sha256: str = ""
    """Of the body of an answer that was begun, as it was written."""
    usage: Usage | None = None
    """The final usage that was sent."""


class Stats:
    """Everything that is counted."""

    def __init__(self, keep_last: int) -> None:
        self._numbers = 0
        self.tallies: dict[tuple[str, str], Tally] = {}
        self.last: deque[Entry] = deque(maxlen=keep_last)
        self.streams = 0
        """That are being written now."""
        self.held: Counter[str] = Counter()
        """Answers that wait for a name to be released."""

    def number(self) -> int:
        """The next request's."""
        self._numbers += 1
        return self._numbers

    def tally(self, key: str, model_class: str) -> Tally:
        """That of one key's label and model class."""
        return self.tallies.setdefault((key, model_class), Tally())

    def to_json(self, connections: int, faults: list[int], accounts: list[dict[str, Any]]) -> dict[str, object]:
        """`tallies` is a list of Tally's fields with `key` and `model_class`. `at` is this moment, in monotonic seconds of the machine."""
        tallies = [{"key": key, "model_class": name, **asdict(tally)} for (key, name), tally in self.tallies.items()]
        return {
            "at": time.monotonic(),
            "requests": self._numbers,
            "connections": connections,
            "streams": self.streams,
            "held": {name: number for name, number in self.held.items() if number},
            "faults_done": faults,
            "tallies": tallies,
            "accounts": accounts,
            "last": [asdict(entry) for entry in self.last],
        }


def without_secrets(headers: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Names in lower case, in the order that they came."""
    return [(name.lower(), _safe(name.lower(), text)) for name, text in headers]


def _safe(name: str, text: str) -> str:
    if name not in SECRET_HEADERS:
        return text
    scheme, _, rest = text.rpartition(" ")
    return f"{scheme} {label(rest)}".strip()


def safe_path(path: str, query: Mapping[str, str]) -> str:
    """The path with its query; a key in it is replaced by its label."""
    shown = "&".join(f"{name}={label(text) if name == 'key' else text}" for name, text in query.items())
    return f"{path}?{shown}" if shown else path
