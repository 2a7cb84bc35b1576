"""Remove worktrees whose work is safe; say why the rest stays."""

from __future__ import annotations

from typing import Any

from supervisor.daemon.ending import Cleaning
from supervisor.daemon.loop import Loop
from supervisor.host.paths import Home


async def handle(loop: Loop, home: Home, args: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG001 - the shape of every handler
    """`tasks`: full ids, or None for all. `remove`: act, or only look. `ignored`: also those that hold ignored files.
    `discard`: also what is only on a rescue ref.

    Returns `removable` (removed, when asked to) and `kept`, each item with `attempt`, `path`, and `why` when kept.
    """
    wanted = None if args.get("tasks") is None else {str(name) for name in args["tasks"]}
    how = Cleaning(remove=bool(args["remove"]), ignored=bool(args["ignored"]), discard=bool(args["discard"]))
    answer: dict[str, Any] = {"removable": [], "kept": []}
    for row in loop.ledger.worktrees():
        if wanted is not None and row.task not in wanted:
            continue
        item = {"attempt": f"{row.task}:{row.epoch}", "path": row.worktree}
        why = await loop.jobs.clean(row, how)
        answer["kept" if why else "removable"].append({**item, "why": why} if why else item)
    return answer
