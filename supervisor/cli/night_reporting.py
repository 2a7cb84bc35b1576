"""Making a morning report: what the books say, what git says of the branches, and where it is written."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from supervisor.cli import common
from supervisor.core.errors import NightcrewError, one_line
from supervisor.core.gates import GATE
from supervisor.faces.night import model, shape, write
from supervisor.faces.night.facts import Night, Task
from supervisor.faces.night.found import DIFF_BYTES, DIFFS_BYTES, Diff, Found
from supervisor.host import files, foreign
from supervisor.host.paths import Home
from supervisor.ledger import queries
from worktrees import conflicts
from worktrees.git import Git
from worktrees.repository import discover

SHOWN_NEEDS = 5
PRINTED_TASKS, PRINTED_LINES, PRINTED_BYTES = 100, 8, 2000
"""The end of what tasks printed that did not end well: of so many, so many lines, of so many bytes."""
_ROOM_MIN = 1024
_LIVE_BYTES = 2**20
"""Of the change of a task that still runs; it is computed anew for each report."""


def build(where: Home, run: str, against: str | None) -> dict[str, Any]:
    """The report of a run (see `faces.night.shape`). `against`: what it is compared with instead of the night before. Git, and a supervisor
    that does not answer, are trouble that it tells of; raises only where the ledger cannot be read."""
    night = model.read(where, run)
    if night.ended is None:
        ours = {task.id for task in night.tasks}
        night = replace(night, asks={one["task"]: one for one in common.who_needs(where) if one["task"] in ours})
    other = against or night.before
    return shape.of(night, look(where, night), model.read(where, other) if other and other != run else None)


def look(where: Home, night: Night) -> Found:
    """What git says of the run's branches; when it cannot say it, that is told."""
    beside = Found(diffs=_diffs(where, night), printed=_printed(where, night))
    try:
        files.private_dir(where.root)
        return _branches(where, night, beside)
    except (NightcrewError, OSError) as error:
        why = error.line() if isinstance(error, NightcrewError) else one_line(str(error))
        return replace(beside, trouble=f"what the branches hold: {why}")


def _branches(where: Home, night: Night, beside: Found) -> Found:
    repository = discover(Git(where.root / "git"), Path(night.root))
    owners = {task.work.branch: task.id for task in night.tasks if task.ready and task.work is not None}
    found = conflicts.look(repository, owners, night.base_oid)
    others: dict[str, dict[str, tuple[str, ...]]] = {}
    for (one, two), names in found.with_others.items():
        others.setdefault(owners[one], {})[owners[two]] = names
        others.setdefault(owners[two], {})[owners[one]] = names
    return replace(
        beside,
        on=repository.branch or repository.head[:12],
        gone=frozenset(owners[branch] for branch in found.gone),
        taken=frozenset(owners[branch] for branch in found.merged),
        with_base={owners[branch]: names for branch, names in found.with_head.items()},
        with_others=others,
        not_tried=found.not_tried,
    )


def _printed(where: Home, night: Night) -> dict[str, str]:
    """The last lines of what said why: of the gate, of its errors, or of all that a task printed."""
    return {task.id: said for task in night.unwell[:PRINTED_TASKS] if (said := _last_lines(where, task))}


def _last_lines(where: Home, task: Task) -> str:
    directory = where.attempt(task.id, task.attempts[-1].epoch)
    names = ("gate.log",) if GATE in task.attempts[-1].why else ("stderr.log", "stdout.log")
    for name in names:
        with contextlib.suppress(NightcrewError):  # what cannot be read is not what the night rests on
            said = (foreign.read_plain(directory / name, PRINTED_BYTES, tail=True) or b"").decode("utf-8", "replace")
            if lines := [line for line in said.splitlines() if line.strip()][-PRINTED_LINES:]:
                return "\n".join(lines)
    return ""


def _diffs(where: Home, night: Night) -> dict[str, Diff]:
    """What the tasks changed that a person has to look at, as long as there is room."""
    found: dict[str, Diff] = {}
    room = DIFFS_BYTES
    for task in _looked_at(night):
        diff = _diff(where, task, min(DIFF_BYTES, room))
        if diff is not None:
            found[task.id] = diff
            room -= len(diff.text.encode("utf-8", "replace"))
    return found


def _looked_at(night: Night) -> Iterable[Task]:
    return (task for task in (*night.needing, *night.unwell) if task.attempts)


def _diff(where: Home, task: Task, room: int) -> Diff | None:
    command = f"`nightcrew diff {task.id}`"
    if room < _ROOM_MIN:
        return Diff("", f"This page has no room left for what it changed: {command}")
    file = where.attempt(task.id, task.attempts[-1].epoch) / "diff.patch"
    try:
        data = _live(where, task) if task.living else foreign.read_plain(file, room + 1)
    except NightcrewError as error:
        return Diff("", f"What it changed could not be read: {error.line()}")
    if data is None:  # of one that has ended: nothing, or too much for its records
        changed = task.living or (task.work is not None and task.work.commits > 0)
        return Diff("", f"What it changed is too large for this page: {command}") if changed else None
    text = data[:room].decode("utf-8", "replace")
    return Diff(text, f"The first {room // 1024} KiB; all of it: {command}" if len(data) > room else "") if data else None


def _live(where: Home, task: Task) -> bytes | None:
    """Of a task that still runs: what it has committed by now; None when that is too large."""
    from supervisor.daemon import results

    db: sqlite3.Connection = common.ledger(where)
    return results.patch(db, queries.one(db, task.id), _LIVE_BYTES)


def publish(where: Home, report: Mapping[str, Any], form: str | None, out: Path | None) -> Path | None:
    """Write it: all three forms with the records of the run, and its essence on stdout; or one `form` into `out`, or on stdout. Returns the
    page, when one was written."""
    if form is None:
        page = write.write(report, where.root / "runs" / report["run"]["id"])
        for line in _essence(report):
            click.echo(line)
        click.echo(f"report: {page}")
        return page
    text = write.FORMATS[form](report)
    if out is None:
        click.echo(text, nl=False)
        return None
    files.atomic_write(out.absolute(), text.encode())
    click.echo(f"report: {out}")
    return out.absolute() if form == "html" else None


def _essence(report: Mapping[str, Any]) -> list[str]:
    """What a person must know who sees nothing but the terminal."""
    found, needs = report["verdict"], report["needs"]
    lines = [f"{found['sign']} {found['word']}: {found['sentence']}", *filter(None, [found["why"]])]
    lines += [f"needs you: {one['name']}: {one['question']}" for one in needs[:SHOWN_NEEDS]]
    lines += [f"needs you: {len(needs) - SHOWN_NEEDS} more"] if len(needs) > SHOWN_NEEDS else []
    return [one_line(line) for line in lines]
