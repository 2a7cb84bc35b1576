"""A task's journal in plain words, every event that the ledger writes."""

from __future__ import annotations

import time
from typing import Any

import pytest

from supervisor.views import status

AT = time.mktime((2026, 11, 21, 6, 59, 34, 0, 0, -1))


@pytest.mark.parametrize(
    ("event", "epoch", "data", "said"),
    [
        ("ready", None, {}, "ready"),
        ("skipped", None, {"reason": "r/a is failed"}, "skipped; r/a is failed"),
        ("start", 2, {"cause": "lost: its runner died"}, "attempt 2 starts; lost: its runner died"),
        ("begin", 1, {}, "attempt 1: its command begins, with the others"),
        ("stopping", 1, {"why": "cancelled"}, "attempt 1 is being stopped; cancelled"),
        ("tree gone", 1, {"end": "done", "cause": ""}, "attempt 1: no process is left, its work is being secured"),
        ("end failed", 1, {"cause": "exit code 7", "task": "ready"}, "attempt 1 ended: failed; exit code 7; the task is ready"),
        ("end done", 1, {"cause": "", "task": "done"}, "attempt 1 ended: done; the task is done"),
        ("retry", None, {"cause": "retry asked; was failed"}, "a person asked for it again"),
        ("worktree removed", 1, {"path": "/x"}, "attempt 1: worktree removed; path /x"),
        ("of a later\nversion", 3, {"n": 4}, "attempt 3: of a later\\nversion; n 4"),
    ],
)
def test_history(event: str, epoch: int | None, data: dict[str, Any], said: str) -> None:
    assert status.history({"at": AT, "event": event, "epoch": epoch, "data": data}) == f"2026-11-21 06:59:34  {said}"
