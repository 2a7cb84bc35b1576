"""Conflicts between results, in lines of text and as JSON."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from supervisor.features.conflicts import rows as conflicts_rows
from supervisor.features.conflicts.rules import NAMED, Conflict, Matrix
from supervisor.host.paths import Home
from supervisor.kernel.errors import one_line
from supervisor.kernel.format import listed, many
from supervisor.kernel.states import TaskState
from supervisor.store.queries import TaskView


def shape(matrix: Matrix, only: Collection[str] = ()) -> dict[str, Any]:
    """As `--json` has it; `only`: what concerns one of these tasks."""
    found = named(matrix, only)
    return {
        "base": {"commit": matrix.base, "branch": matrix.on},
        "results": [{"task": side.task, "commit": side.tip, "living": side.living} for side in matrix.sides],
        "conflicts": [_shape(one) for one in found if not one.verdict.why],
        "unknown": [{"task": one.one, "with": one.two or None, "why": one.verdict.why} for one in found if one.verdict.why],
        "merged": list(matrix.merged),
        "not_compared": matrix.missing(),
        "left_out": matrix.left_out,
    }


def _shape(one: Conflict) -> dict[str, Any]:
    files = [os.fsencode(name).decode("utf-8", "replace") for name in one.verdict.files]
    return {"task": one.one, "with": one.two or None, "files": files, "more": one.verdict.more}


def known(where: Home, project: str) -> Matrix:
    """How the results of a project stand to each other, as the supervisor found it last: for whoever shows it and starts no git."""
    return conflicts_rows.load(where.conflicts(project)).matrix


def of_tasks(matrix: Matrix, tasks: Collection[str]) -> dict[str, Any] | None:
    """As a report of these tasks has it; None where none of them has anything to merge."""
    if not tasks or not set(tasks) & {side.task for side in matrix.sides}:
        return None
    found = shape(matrix, tasks)
    return {key: found[key] for key in ("base", "conflicts", "unknown", "not_compared")}


def sentence(found: Mapping[str, Any]) -> str:
    """Of `of_tasks`, all but the lists."""
    count, unknown, missing = len(found["conflicts"]), len(found["unknown"]), found["not_compared"]
    said = f"Each result was merged on trial into {found['base']['branch']} and with the others, without touching anything: "
    said += many(count, "conflict") if count else "no conflict"
    said += f"; {unknown} could not be compared" if unknown else ""
    return f"{said}{f'; {missing} not compared yet' if missing else ''}."


def files_of(row: Mapping[str, Any]) -> str:
    """Of a row of `of_tasks`, for people; the names are a stranger's."""
    return listed([one_line(name) for name in row["files"]], NAMED, row["more"])


def of_task(found: Mapping[str, Any] | None, task: str) -> list[str]:
    """Of `of_tasks`, with whom one of them conflicts: `main in src/a.py`."""
    rows = found["conflicts"] if found else ()
    on = found["base"]["branch"] if found else ""
    return [
        f"{row['with'] or on if row['task'] == task else row['task']} in {files_of(row)}"
        for row in rows
        if task in (row["task"], row["with"])
    ]


def named(matrix: Matrix, only: Collection[str]) -> list[Conflict]:
    """The conflicts that concern one of these tasks; all of them where none is named."""
    return [one for one in matrix.conflicts() if not only or not set(only).isdisjoint(one.tasks)]


def lines(matrix: Matrix, only: Collection[str] = ()) -> Iterator[str]:
    """`1121-k3f9/lint  1121-k3f9/api  src/a.py`, one of each conflict; the person's branch has its own name."""
    found = named(matrix, only)
    rows = [(one_line(one.one), one_line(one.two or matrix.on), _said(one)) for one in found]
    left, right = (max((len(row[place]) for row in rows), default=0) for place in (0, 1))
    yield from (f"{one:<{left}}  {two:<{right}}  {said}" for one, two, said in rows)


def _said(one: Conflict) -> str:
    return f"not known: {one_line(one.verdict.why)}" if one.verdict.why else one.files()


def summary(matrix: Matrix) -> str:
    """`12 results and main: 3 conflicts`, and what is not in that."""
    found = matrix.conflicts()
    known, unknown = [one for one in found if not one.verdict.why], [one for one in found if one.verdict.why]
    count = len(matrix.sides)
    said = f"{many(count, 'result')} and {one_line(matrix.on)}: "
    said += many(len(known), "conflict") if known else "no conflict"
    rest = {
        f"{len(unknown)} could not be compared": unknown,
        f"{matrix.missing()} not compared yet": matrix.missing(),
        f"{matrix.left_out} older results left out": matrix.left_out,
        f"{len(matrix.merged)} {'has' if len(matrix.merged) == 1 else 'have'} nothing that {one_line(matrix.on)} lacks": matrix.merged,
    }
    return "; ".join([said, *(words for words, holds in rest.items() if holds)])


def beside(found: Iterable[Conflict], on: str) -> dict[str, str]:
    """Of each task with whom its work conflicts, in few words: `conflicts with lint in src/a.py`."""
    by_task: dict[str, list[str]] = {}
    for one in found:
        for task, other in ((one.one, one.two or on), (one.two, one.one)):
            if task and not one.verdict.why:
                by_task.setdefault(task, []).append(f"{_short(other, task)} in {one.files(1)}")
    return {task: f"conflicts with {words[0]}" + (f", {len(words) - 1} others" if words[1:] else "") for task, words in by_task.items()}


def of_one(matrix: Matrix, task: str) -> list[str]:
    """With whom the work of a task conflicts, and where: `with lint in src/a.py`."""
    found = [one for one in matrix.conflicts() if task in one.tasks and not one.verdict.why]
    return [f"with {one_line(next((other for other in one.tasks if other != task), matrix.on))} in {one.files()}" for one in found]


def of_living(where: Home, views: Sequence[TaskView]) -> dict[str, str]:
    """`beside` for those that run, or for the only one, as the supervisor found it last: it keeps that up to date while somebody works."""
    running = [view for view in views if view.state is TaskState.RUNNING or len(views) == 1]
    words: dict[str, str] = {}
    for project in {view.project for view in running}:
        matrix = known(where, project)
        words |= beside(matrix.conflicts(), matrix.on)
    return {view.id: words[view.id] for view in running if view.id in words}


def _short(other: str, task: str) -> str:
    """Without the run where that is the same."""
    run = task.partition("/")[0]
    return one_line(other.removeprefix(f"{run}/"))
