"""What was done, as the audit log shows it: who decided what of which attempt, and why. Pure.

The rows of the ledger's journal and the records of the audit log both are an event with some data; here they become one shape. Whoever
journals something new gives it an event whose first words are below, and its reason as `why`, `cause` or `reason`.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_KINDS = {
    "start": ("start", "begin"),
    "end": ("end", "tree gone", "done", "failed", "cancelled", "expired", "skipped", "quarantined"),
    "kill": ("stopping",),
    "retry": ("retry", "begun anew"),
    "pause": ("paused", "resumed", "parked", "set aside", "suspended", "stopped all", "thawed"),
    "admission": ("admission", "submitted", "added by an agent", "add refused", "waiting", "ready"),
    "key": ("key", "keys"),
    "token": ("token",),
    "permission": ("permission",),
    "tools": ("tool calls",),
    "merge": ("merged", "conflict", "train"),
    "review": ("review", "reviewed"),
    "push": ("push", "pushed", "pull request"),
    "refusal": ("refused", "night refused"),
    "message": ("send", "notified"),
    "conversation": ("conversation",),
    "environment": ("snapshot", "worktree", "limits"),
    "state": ("ledger recovered", "account recovered", "account pruned", "archived", "kept no longer"),
    "machine": ("machine slept", "machine rebooted", "clock jumped"),
    "trouble": ("tampering", "alert", "rows unproven"),
}
_REASONS = ("why", "cause", "reason", "what", "question")


@dataclass(frozen=True, slots=True)
class Recorded:
    """One thing that was done. `kind` is a word of `kinds`, "other" for an event that none of them names."""

    kind: str
    task: str | None
    epoch: int | None
    decision: str
    reason: str
    data: Mapping[str, Any]


def recorded(event: str, task: str | None, epoch: int | None, data: Mapping[str, Any]) -> Recorded:
    """An event of the journal or of the audit log. One of the audit log names its attempt in its data."""
    if task is None and isinstance(data.get("task"), str):
        task, epoch = data["task"], data.get("epoch")
    reason = next((str(data[name]) for name in _REASONS if data.get(name)), "")
    return Recorded(_kind(event), task, epoch, event, reason, data)


def kinds() -> list[str]:
    """Every word that `Recorded.kind` may be."""
    return [*_KINDS, "other"]


def _kind(event: str) -> str:
    found = (kind for kind, begins in _KINDS.items() if any(event == word or event.startswith(f"{word} ") for word in begins))
    return next(found, "other")


@functools.lru_cache(maxsize=1024)
def trace_id(name: str) -> str:
    """The trace id of a run, of its tasks, of their attempts and of their model calls: 32 hex digits, as W3C Trace Context wants them.
    `name`: the full id of the run or of one of its tasks.

    Derived from the run's id, which the ledger gives once: so the gateway, which knows a request's task by its token, need not ask.
    """
    return hashlib.sha256(f"nightcrew run {name.partition('/')[0]}".encode()).hexdigest()[:32]
