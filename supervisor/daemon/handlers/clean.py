"""Remove worktrees whose work is safe; say why the rest stays."""

from __future__ import annotations

import contextlib
from dataclasses import asdict
from typing import Any

from supervisor.daemon.cleaning import Cleaning
from supervisor.daemon.loop import Loop


async def handle(loop: Loop, args: dict[str, Any]) -> dict[str, Any]:
    """`attempts`: pairs of a task's full id and an epoch; whoever has many asks for some at a time. `remove`: act, or only look. `ignored`:
    also those that hold ignored files. `discard`: also what is only on a rescue ref. `forget`:
    drop rescue refs that hold nothing beside the base.

    Returns `removable` (removed, when asked to) and `kept`, each item with `attempt`, `path`, `why` and `commits`: those that no branch of
    the person's has in its history (`commit`, `subject`, `state`, `by`). One whose worktree is removed already is in neither.
    """
    wanted = {(str(task), int(epoch)) for task, epoch in args["attempts"]}
    how = Cleaning(
        remove=bool(args["remove"]), ignored=bool(args["ignored"]), discard=bool(args["discard"]), forget=bool(args.get("forget"))
    )
    async with loop.jobs.cleaning if how.remove else contextlib.nullcontext():
        rows = [row for row in loop.ledger.worktrees({task for task, _ in wanted}) if (row.task, row.epoch) in wanted]
        decided = await loop.jobs.clean(rows, how)
    answer: dict[str, Any] = {"removable": [], "kept": []}
    for row, each in zip(rows, decided, strict=True):
        item = {
            "attempt": f"{row.task}:{row.epoch}",
            "path": row.worktree,
            "why": each.why,
            "commits": [asdict(one) for one in each.commits],
        }
        answer["kept" if each.stays else "removable"].append(item)
    return answer
