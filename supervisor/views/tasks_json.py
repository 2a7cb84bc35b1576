"""Tasks and runs as the JSON that `--json` prints, schema 1: times are RFC 3339 UTC, what is unknown is null."""

from __future__ import annotations

from typing import Any

from supervisor.kernel.format import rfc3339
from supervisor.kernel.names import trace_id
from supervisor.store.queries import RunView, TaskView


def task(view: TaskView) -> dict[str, Any]:
    """One task with its newest attempt."""
    return {
        "id": view.id,
        "run": view.run,
        "name": view.name,
        "title": view.title,
        "project": view.project,
        "state": str(view.state),
        "reason": view.reason,
        "class": view.task_class,
        "priority": view.priority,
        "epoch": view.epoch,
        "submitted": rfc3339(view.submitted),
        "started": rfc3339(view.started or view.created),
        "ended": rfc3339(view.ended),
        "end": view.end,
        "cause": view.end_cause or "",
        "branch": view.branch,
        "worktree": view.worktree,
        "environment": view.environment or None,
        "assigned": view.assigned or None,
        "snapshot": view.snapshot,
        "backend": view.backend,
        "tier": view.tier,
        "port": view.port,
        "paused": {"until": view.paused, "for": view.paused_for or None} if view.paused else None,
        "trace": trace_id(view.id),
        "parent": f"{view.parent}:{view.parent_epoch}" if view.parent else None,
        "account": view.account,
        "memory_expected": view.memory_expected,
        "result": view.result,
    }


def run(view: RunView) -> dict[str, Any]:
    """One run and its tasks' states."""
    return {
        "id": view.id,
        "title": view.title,
        "project": view.project,
        "root": view.root,
        "base": view.base,
        "base_oid": view.base_oid,
        "submitted": rfc3339(view.created),
        "counts": view.counts,
    }
