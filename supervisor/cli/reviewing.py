"""What `nightcrew review` does beside showing: comments, the editor, sending, verdicts, and the list of what waits."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from supervisor.cli import common, follow, review_sheet
from supervisor.core import records, reviews
from supervisor.core.errors import NightcrewError, NotFound, Refused, UsageError, one_line
from supervisor.core.reviews import Comment, Verdict
from supervisor.core.states import TaskState
from supervisor.daemon import follow_up, offers, results
from supervisor.faces import conflicts as conflict_lines
from supervisor.faces import review as face
from supervisor.faces import status
from supervisor.faces.review import Review
from supervisor.host import files
from supervisor.host.failpoint import failpoint
from supervisor.host.paths import Home
from supervisor.ledger import branches, queries
from supervisor.ledger import reviews as book
from worktrees import conflicts, refs

LISTED_MAX = 200
LOOKED_THROUGH = 30
"""Of those, the newest: their differences are looked through for what weakens a gate, 30 ms each."""
FILE_MAX = 16 * 2**20


def refuse_without_reader(db: sqlite3.Connection, view: queries.TaskView) -> None:
    """Raises Refused for a task whose comments nobody could be sent: before anything is written for it."""
    follow_up.refuse_without_prompt(db, view.id)


def comment(where: Home, review: Review, place: str, text: str) -> dict[str, Any]:
    """Keep one comment. Raises UsageError, NotFound."""
    path, first, last = reviews.place(place)
    return {"comment": _keep(where, review, [_made(review, path, first, last, text)])[0]}


def _keep(where: Home, review: Review, made: Sequence[Mapping[str, Any]]) -> list[int]:
    """All of them or none."""
    numbers: list[int] = common.ask(where, "review", {"op": "comment", "task": review.view.id, "comments": list(made)})["numbers"]
    return numbers


def _made(review: Review, path: str, first: int, last: int, text: str) -> dict[str, Any]:
    words, file = reviews.checked(text), _file_named(review, path)
    quoted = reviews.quoted(_lines_of(review, file), first, last)
    return {"tip": review.tip, "path": reviews.named(file), "first": first, "last": last, "quoted": quoted, "text": words}


def _file_named(review: Review, path: str) -> str:
    """A file of the result: as it is called, or as it is shown."""
    shown = {name: one.path for one in review.diffs for name in (one_line(one.path), reviews.named(one.path), one.path)}
    return shown.get(path, path)


def _lines_of(review: Review, path: str) -> list[str]:
    """Of a file as the result has it. Raises NotFound."""
    git, store, name = review.repository.git, review.repository.store, f"{review.tip}:{path}"
    facts = git.run(store, "cat-file", "--batch-check=%(objecttype) %(objectsize)", stdin=os.fsencode(f"{name}\n")).text.split()
    is_file = len(facts) == 2 and facts[0] == "blob" and "\n" not in path
    if not is_file or int(facts[1]) > FILE_MAX:
        why = "it is too large" if is_file else "the result has no such file"
        raise NotFound("no lines to comment", on=path, why=why, hint=f"nightcrew review --stat {review.view.id}")
    data = git.run(store, "cat-file", "blob", name).out
    lines = data.decode("utf-8", "replace").replace("\0", "").split("\n")
    return lines if lines[-1] else lines[:-1]


def edit(where: Home, review: Review) -> dict[str, Any]:
    """Comments from the person's editor. What was written stays in its file until all of it is kept, and is opened again then. Raises
    UsageError for a comment that stands below no line."""
    whole = review_sheet.sheet(review.diffs)
    file = _sheet_file(where, review)
    if not file.exists():
        files.atomic_write(file, whole.encode())
    click.edit(filename=str(file))
    try:
        found = review_sheet.written(file.read_text(encoding="utf-8", errors="replace"), review.diffs)
        numbers = _keep(where, review, [_made(review, path, line, line, text) for path, line, text in found]) if found else []
    except NightcrewError as error:
        again = f"nightcrew review {review.view.id} --edit opens it again"
        raise UsageError(error.what, on=error.on, why=error.why, kept=f"what you wrote, in {file}", hint=again) from error
    file.unlink(missing_ok=True)
    return {"comments": numbers or "none was written"}


def _sheet_file(where: Home, review: Review) -> Path:
    name = f"{review.view.id.replace('/', '-')}.{review.tip[:12]}.diff"
    return files.private_dir(where.root / "reviews") / name


def send(where: Home, db: sqlite3.Connection, review: Review, more: str, environ: Mapping[str, str]) -> dict[str, Any]:
    """Give what waits to the agent, once. Raises Refused for a task that takes no prompt, and when a comment was sent meanwhile; UsageError
    when there is nothing to say."""
    view = review.view
    waiting = [one for one in review.comments if one.sent is None]
    if not waiting and not more.strip():
        raise UsageError("there is nothing to send", why="no comment waits", hint=f"nightcrew review {view.id} --comment FILE:LINE TEXT")
    follow_up.refuse_without_prompt(db, view.id)
    text, numbers = common.typable(reviews.prompt(view.id, waiting, more).encode("utf-8", "replace")), [one.number for one in waiting]
    if not view.final:
        answer = common.ask(where, "review", {"op": "send", "task": view.id, "numbers": numbers, "text": text})
        return {"sent": len(numbers), "to": view.id, "state": answer["delivery"]["state"]}
    made = follow_up.submission(db, view, text, _key(view.id, waiting, text), environ)
    accepted = follow.hand_over(where, follow_up.reviewed(made, view.id, numbers), ())
    return {"sent": len(numbers), "to": accepted.tasks[0]}


def _key(task: str, waiting: list[Comment], text: str) -> str:
    """Two commands that send the same comments make one run; the same words without one may be said again."""
    return reviews.key(task, f"{text}\0{waiting[0].number if waiting else os.urandom(8).hex()}")


def decide(where: Home, review: Review, verdict: str, why: str, at: str | None) -> dict[str, Any]:
    """Keep a verdict on the result as it was shown. Raises Refused when it is another commit by now, or its task has not ended."""
    view = review.view
    if at and not review.tip.startswith(at.lower()):
        hint = f"nightcrew review {view.id}"
        raise Refused("not decided", on=view.id, why=f"its result is {review.tip[:12]} by now", kept="its verdict as it was", hint=hint)
    if not view.final:
        offers.refuse_unfit(view, "not decided")
    ref, words = "", reviews.checked(why) if why.strip() else ""
    if verdict == Verdict.REJECTED:
        ref = records.rejected_ref(view.id, view.epoch)
        _keep_on(review, ref)
        failpoint("review.kept")
    args = {"op": "decide", "task": view.id, "epoch": view.epoch, "verdict": verdict, "tip": review.tip, "why": words, "ref": ref}
    common.ask(where, "review", args)
    return {"verdict": verdict, "commit": review.tip, "ref": ref or None}


def _keep_on(review: Review, ref: str) -> None:
    repository = review.repository
    with repository.git.lock(repository.common_dir):
        old = refs.over_all(repository, "for-each-ref", "--format=%(objectname)", ref).text
        if old != review.tip:
            refs.move(repository, ref, review.tip, old, "nightcrew: rejected")


def undo(where: Home, task: str, epoch: int) -> dict[str, Any]:
    """Take a verdict back. Raises NotFound when there is none."""
    if not common.ask(where, "review", {"op": "undo", "task": task, "epoch": epoch})["was"]:
        raise NotFound("no verdict", on=task, hint=f"nightcrew review {task}")
    return {"undone": True}


def drop(where: Home, task: str, number: int) -> dict[str, Any]:
    """Remove a comment that waits. Raises NotFound when there is none."""
    common.ask(where, "review", {"op": "drop", "task": task, "number": number})
    return {"dropped": number}


def waiting(where: Home) -> Iterator[dict[str, Any]]:
    """Results of this repository that are done, hold what the checkout lacks, and have no verdict on what they are now; newest first."""
    with contextlib.closing(common.ledger(where)) as db:
        project = queries.project_at(db, str(Path.cwd()))
        found, _ = branches.of_project(db, project, LISTED_MAX)
        views = {one.task: queries.one(db, one.task) for one in found if not one.living}
        if not views:
            return
        decided = book.decisions(db, list(views))
        repository = results.repository_of(where, next(iter(views.values())))
        stands = conflicts.standing(repository, [one.name for one in found])
        matrix = conflict_lines.known(where, next(iter(views.values())).project)
        beside = conflict_lines.beside(matrix.conflicts(), matrix.on)
        looked = 0
        for one in found:
            view, tip, decision = views.get(one.task), stands.tips.get(one.name), decided.get(one.task)
            if view is None or tip is None or one.name in stands.merged or view.state is not TaskState.DONE:
                continue
            if decision is not None and decision.holds(tip):
                continue
            looked += 1
            row = {**_row(view), "commit": tip, "weakens_gate": None, "conflicts": beside.get(view.id, "")}
            if looked <= LOOKED_THROUGH:
                row["size"], row["weakens_gate"] = face.looked_through(db, view, repository, stands.head, tip)
            yield {**row, "verdict": "" if decision is None else f"{decision.verdict} before it changed"}


def _row(view: queries.TaskView) -> dict[str, Any]:
    result = view.result or {}
    gate = result.get("gate")
    return {
        "task": view.id,
        "title": status.cut(one_line(view.title), 60),
        "size": "{files} files +{plus} -{minus}".format(**(result.get("diff") or {"files": 0, "plus": 0, "minus": 0})),
        "gate": "" if gate is None else "gate passed" if gate["passed"] else "gate failed",
    }
