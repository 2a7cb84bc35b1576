"""What `nightcrew review` does beside showing: comments, the editor, sending, verdicts, and the list of what waits."""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from supervisor.cli import common, follow
from supervisor.core import records, reviews
from supervisor.core.errors import NotFound, Refused, UsageError, one_line
from supervisor.core.reviews import Comment, Verdict
from supervisor.core.states import TaskState
from supervisor.daemon import follow_up, results
from supervisor.faces import status
from supervisor.faces.review import Review
from supervisor.host.paths import Home
from supervisor.ledger import branches, queries
from supervisor.ledger import reviews as book
from worktrees import conflicts, refs
from worktrees.repository import Repository

LISTED_MAX = 200
FILE_MAX = 16 * 2**20
_FILE, _NUMBERED = re.compile(r"= (\d+) "), re.compile(r" {0,6}(\d{1,7}) [-+ ] ")
_HEAD = """# Write comments below the lines that they are about; each of their lines begins with a #.
# Lines that went have no number: write below one that has. Save and leave; without a comment nothing happens.
"""


def comment(where: Home, review: Review, place: str, text: str) -> dict[str, Any]:
    """Keep one comment. Raises UsageError, NotFound."""
    path, first, last = reviews.place(place)
    return {"comment": _keep(where, review, path, first, last, text)}


def _keep(where: Home, review: Review, path: str, first: int, last: int, text: str) -> int:
    words, lines = reviews.checked(text), _lines_of(review, path)
    made = {
        "op": "comment", "task": review.view.id, "tip": review.tip, "path": path, "first": first, "last": last,
        "quoted": reviews.quoted(lines, first, last), "text": words,
    }  # fmt: skip
    return int(common.ask(where, "review", made)["number"])


def _lines_of(review: Review, path: str) -> list[str]:
    """Of a file as the result has it. Raises NotFound."""
    repository = _repository(review)
    size = repository.git.run(repository.store, "cat-file", "-s", f"{review.tip}:{path}", accept=(0, 128)).text
    if not size.isdigit() or int(size) > FILE_MAX:
        why = "the result has no such file" if not size.isdigit() else "it is too large"
        raise NotFound("no lines to comment", on=path, why=why, hint=f"nightcrew review --stat {review.view.id}")
    data = repository.git.run(repository.store, "cat-file", "blob", f"{review.tip}:{path}").out
    return [line.replace("\0", "") for line in data.decode("utf-8", "replace").split("\n")]


def _repository(review: Review) -> Repository:
    from supervisor.host.paths import home

    return results.repository_of(home(), review.view)


def edit(where: Home, review: Review) -> dict[str, Any]:
    """Comments from the person's editor. Raises UsageError for one that stands below no line."""
    written = click.edit("".join(_sheet(review)), extension=".diff", require_save=True)
    found = list(_written(written or "", review))
    numbers = [_keep(where, review, path, line, line, text) for path, line, text in found]
    return {"comments": numbers} if numbers else {"comments": "none was written"}


def _sheet(review: Review) -> Iterator[str]:
    yield _HEAD
    for number, one in enumerate(review.diffs):
        yield f"\n= {number} {one_line(one.path)}\n"
        for hunk in one.hunks:
            yield "  ...\n"
            for _, new, sign, text in hunk.numbered():
                yield f"{new or '':>6} {sign} {one_line(text.expandtabs(4))}\n"


def _written(text: str, review: Review) -> Iterator[tuple[str, int, str]]:
    path, line = "", 0
    words: list[str] = []
    for row in [*text.removeprefix(_HEAD).splitlines(), ""]:
        if row.startswith("#"):
            words.append(row.removeprefix("#").strip())
            continue
        if any(words):
            if not path or not line:
                raise UsageError("a comment stands below no line", on=words[0], why="each is about the numbered line above it")
            yield path, line, "\n".join(words)
        words = []
        if file := _FILE.match(row):
            path, line = review.diffs[int(file.group(1))].path if int(file.group(1)) < len(review.diffs) else "", 0
        elif numbered := _NUMBERED.match(row):
            line = int(numbered.group(1))


def send(where: Home, db: sqlite3.Connection, review: Review, more: str, environ: Mapping[str, str]) -> dict[str, Any]:
    """Give what waits to the agent, once. Raises Refused for a task that takes no prompt, UsageError when there is nothing to say."""
    view = review.view
    waiting = [one for one in review.comments if one.sent is None]
    if not waiting and not more.strip():
        raise UsageError("there is nothing to send", why="no comment waits", hint=f"nightcrew review {view.id} --comment FILE:LINE TEXT")
    follow_up.refuse_without_prompt(db, view)
    text, numbers = reviews.prompt(view.id, waiting, more), [one.number for one in waiting]
    if not view.final:
        answer = common.ask(where, "review", {"op": "send", "task": view.id, "numbers": numbers, "text": text})
        return {"sent": len(numbers), "to": view.id, "state": answer["delivery"]["state"]}
    made = follow_up.submission(db, view, text, _key(view.id, waiting, text), environ)
    accepted = follow.hand_over(where, made, ())
    common.ask(where, "review", {"op": "sent", "task": view.id, "numbers": numbers, "to": accepted.tasks[0]})
    return {"sent": len(numbers), "to": accepted.tasks[0]}


def _key(task: str, waiting: list[Comment], text: str) -> str:
    """Comments are sent once, also by a command that was killed in between; the same words without one may be said again."""
    if not waiting:
        return reviews.key(task, f"{text}\0{os.urandom(8).hex()}")
    return reviews.key(task, f"{text}\0{waiting[0].number}")


def decide(where: Home, review: Review, verdict: str, why: str, at: str | None) -> dict[str, Any]:
    """Keep a verdict on the result as it was shown. Raises Refused when it is another commit by now, or not done."""
    view = review.view
    if at and not review.tip.startswith(at):
        hint = f"nightcrew review {view.id}"
        raise Refused("not decided", on=view.id, why=f"its result is {review.tip[:12]} by now", kept="its verdict as it was", hint=hint)
    if not view.final:
        raise Refused(
            "not decided", on=view.id, why=f"it is {view.state}", hint=f"nightcrew review {view.id} --send, or nightcrew wait {view.id}"
        )
    ref = ""
    if verdict == Verdict.REJECTED:
        ref = records.rejected_ref(view.id, view.epoch)
        _keep_on(_repository(review), ref, review.tip)
    args = {"op": "decide", "task": view.id, "epoch": view.epoch, "verdict": verdict, "tip": review.tip, "why": why.strip(), "ref": ref}
    common.ask(where, "review", args)
    return {"verdict": verdict, "commit": review.tip, "ref": ref or None}


def _keep_on(repository: Repository, ref: str, tip: str) -> None:
    with repository.git.lock(repository.common_dir):
        old = refs.over_all(repository, "for-each-ref", "--format=%(objectname)", ref).text
        if old != tip:
            refs.move(repository, ref, tip, old, "nightcrew: rejected")


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
    for one in found:
        view, tip = views.get(one.task), stands.tips.get(one.name)
        if view is None or tip is None or one.name in stands.merged or view.state is not TaskState.DONE:
            continue
        decision = decided.get(one.task)
        if decision is not None and decision.holds(tip):
            continue
        result = view.result or {}
        gate = result.get("gate")
        yield {
            "task": view.id,
            "title": status.cut(one_line(view.title), 60),
            "commit": tip,
            "size": "{files} files +{plus} -{minus}".format(**(result.get("diff") or {"files": 0, "plus": 0, "minus": 0})),
            "gate": "" if gate is None else "gate passed" if gate["passed"] else "gate failed",
            "verdict": "" if decision is None else f"{decision.verdict} before it changed",
            "flags": "",
        }
