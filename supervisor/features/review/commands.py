"""`nightcrew review`."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from supervisor.client import common, follow, follow_up, reading
from supervisor.client.resolving import done_name
from supervisor.host import files
from supervisor.host.failpoint import failpoint
from supervisor.host.paths import Home, home
from supervisor.kernel import names
from supervisor.kernel.ansi import for_terminal
from supervisor.kernel.errors import NightcrewError, NotFound, Refused, UsageError, one_line
from supervisor.kernel.format import many
from supervisor.kernel.gate_files import FileDiff
from supervisor.kernel.states import TaskState
from supervisor.results import conflicts, reviews, taking, trial_merges, verdicts
from supervisor.results.reviews import Review
from supervisor.results.verdicts import Comment, Verdict
from supervisor.store import journal, queries
from supervisor.views import status
from worktrees.repository import move

if TYPE_CHECKING:
    from supervisor.store.queries import TaskView


LOOK_S = 5.0
"""For comparing the result with the others."""


@click.command()
@click.argument("name", required=False, shell_complete=done_name)
@click.option("--comment", nargs=2, metavar="FILE:LINE TEXT", help="Keep a comment to a line, or to FILE:LINE-LINE.")
@click.option("--drop", type=int, metavar="N", help="Remove a comment that was not sent.")
@click.option("--edit", is_flag=True, help="Write comments in $EDITOR, below the lines that they are about.")
@click.option("--send", is_flag=True, help="Give the comments to the agent as its next prompt.")
@click.option("-m", "--more", default="", metavar="TEXT", help="With --send: words beside the comments. With --accept and --reject: why.")
@click.option("--accept", "verdict", flag_value="accepted", help="Note that it may be merged.")
@click.option("--reject", "verdict", flag_value="rejected", help="Note that it may not; it is kept on a ref.")
@click.option("--at", metavar="COMMIT", help="With --accept and --reject: only when the result is this commit.")
@click.option("--undo", is_flag=True, help="Take the verdict back.")
@click.option("--stat", is_flag=True, help="Without the lines of the files.")
@common.json_option
def command(name: str | None, as_json: bool, **options: Any) -> int:
    """Look at a result before it is merged: what weakens its gate first, then its gate, conflicts, last words, comments, and the diff.

    Without NAME: the results that wait for a verdict. Comments wait until they are sent: a living agent gets them as its next prompt,
    one that has ended goes on in a task of its own, with its work.

    \b
    nightcrew review lint
    nightcrew review lint --comment src/a.py:12 'What if it is empty?'
    nightcrew review lint --send -m 'Add a test for each.'
    nightcrew review lint --accept
    """
    where = home()
    if name is None:
        return _listed(where, as_json=as_json)
    db = common.ledger(where)
    view = common.task_named(where, name, archived=False)
    acts = [act for act in ("comment", "drop", "edit", "send", "verdict", "undo") if options[act] is not None and options[act] is not False]
    if len(acts) > 1:
        raise UsageError("one thing at a time", why=f"not {' and '.join(f'--{act}' for act in acts)}")
    if options["more"] and acts not in (["send"], ["verdict"]):
        raise UsageError("-m goes with --send, --accept or --reject", hint="nightcrew review --help")
    if options["at"] and acts != ["verdict"]:
        raise UsageError("--at goes with --accept or --reject", hint="nightcrew review --help")
    if not acts:
        return _show(_gathered(db, where, view), stat=options["stat"], as_json=as_json)
    said = _act(acts[0], where, db, view, options)
    if as_json:
        common.print_json(task=view.id, **said)
    else:
        common.say(_done(acts[0], view.id, said))
    return 0


def _gathered(db: sqlite3.Connection, where: Home, view: TaskView) -> Review:
    repository, tip = taking.seen(db, view)
    made = reviews.gather(db, view, repository, tip, reading.last_matrix(where, db, view.project, LOOK_S, view.id))
    return replace(made, left_out=taking.left_out(db, view, repository))


def _show(review: Review, *, stat: bool, as_json: bool) -> int:
    from supervisor.views import diff_lines

    if as_json:
        common.print_json(**reviews.shape(review))
        return 0
    color = common.use_color()
    diff = () if stat else diff_lines.lines(review.diffs, reviews.beside(review), color=color)
    shown = itertools.chain(diff_lines.styled(reviews.head(review), color=color), reviews.stat(review), diff)
    if common.can_redraw():
        os.environ.setdefault("LESS", "FRX")  # as git does: what fits on the screen is printed, and stays there
        click.echo_via_pager((for_terminal(f"{line}\n") for line in shown), color=color)
        return 0
    for line in shown:
        common.show(line)
    return 0


def _act(what: str, where: Home, db: sqlite3.Connection, view: TaskView, options: dict[str, Any]) -> dict[str, Any]:

    if what in ("comment", "edit"):
        refuse_without_reader(db, view)
    if what == "drop":
        return drop(where, view.id, options["drop"])
    if what == "undo":
        return undo(where, view.id, view.epoch)
    review = _gathered(db, where, view)
    match what:
        case "comment":
            return comment(where, review, *options["comment"])
        case "edit":
            return edit(where, review)
        case "send":
            return send(where, db, review, options["more"], os.environ)
        case _:
            return decide(where, review, options["verdict"], options["more"], options["at"])


def _done(what: str, task: str, said: dict[str, Any]) -> str:
    """What became of an act, and the next command."""
    match what:
        case "verdict":
            kept = f"; kept on {said['ref']}" if said["ref"] else f"; next: nightcrew take {task}"
            return f"{task} is {said['verdict']} at {said['commit'][:12]}{kept}"
        case "undo":
            return f"{task} has no verdict any more; next: nightcrew review {task}"
        case "drop":
            return f"comment {said['dropped']} of {task} is removed"
        case "send":
            state = f" ({said['state']})" if said.get("state") else ""
            return f"{_counted(said['sent'])} sent to {said['to']}{state}; next: nightcrew status {said['to']}"
    numbers = said["comments"] if what == "edit" else [said["comment"]]
    if not isinstance(numbers, list):
        return "no comment was written"
    return f"comment {', '.join(map(str, numbers))} of {task}, not sent yet; next: nightcrew review {task} --send"


def _counted(number: int) -> str:
    return many(number, "comment")


def _listed(where: Home, *, as_json: bool) -> int:
    """Results that are done, not merged, and without a verdict on what they are now."""

    rows = list(waiting(where))
    if as_json:
        common.print_json(results=rows)
        return 0
    for row in rows:
        weak = "may weaken its gate" if row["weakens_gate"] else ""
        words = (row["task"], row["size"], row["gate"], weak, row["conflicts"], row["verdict"], row["title"])
        common.show("  ".join(filter(None, words)))
    common.say(f"{many(len(rows), 'result')} to look at" + ("; nightcrew review NAME" if rows else ""))
    return 0


# Review sheet
# ------------
# The difference of a result as a text in which a person writes comments below lines, and what was written. Pure.


_FILE, _NUMBERED = re.compile(r"= (\d{1,7}) "), re.compile(r" {0,6}(\d{1,7}) [-+ ] ")
_HEAD = (
    "# Write comments below the lines that they are about; each of their lines begins with a #.",
    "# Lines that went have no number: write below one that has. Save and leave; without a comment nothing happens.",
)


def sheet(diffs: Sequence[FileDiff]) -> str:
    """Every file with its hunks; no line of it begins with a # but those of the head."""
    return "\n".join([*_HEAD, *(row for number, one in enumerate(diffs) for row in _file(number, one)), ""])


def _file(number: int, one: FileDiff) -> Iterator[str]:
    yield ""
    yield f"= {number} {one_line(one.path)}"
    end = "\r" if one.crlf else ""
    for hunk in one.hunks:
        yield "  ..."
        for _, new, sign, text in hunk.numbered():
            yield f"{new or '':>6} {sign} {one_line(text.removesuffix(end).expandtabs(4))}"


def written(text: str, diffs: Sequence[FileDiff]) -> list[tuple[str, int, str]]:
    """The file, the line and the words of each comment. Raises UsageError for one that stands below no line."""
    return list(_comments([row for row in text.splitlines() if row.rstrip() not in _HEAD], diffs))


def _comments(rows: Sequence[str], diffs: Sequence[FileDiff]) -> Iterator[tuple[str, int, str]]:
    path, line, words = "", 0, list[str]()
    for row in [*rows, ""]:
        if row.startswith("#"):
            words.append(row.removeprefix("#").removeprefix(" ").rstrip())
            continue
        if any(words):
            if not path or not line:
                first = next(filter(None, words))
                raise UsageError("a comment stands below no line", on=first, why="each is about the numbered line above it")
            yield path, line, "\n".join(words)
        words = []
        if file := _FILE.match(row):
            path, line = diffs[int(file.group(1))].path if int(file.group(1)) < len(diffs) else "", 0
        elif numbered := _NUMBERED.match(row):
            line = int(numbered.group(1))


# Reviewing
# ---------
# What `nightcrew review` does beside showing: comments, the editor, sending, verdicts, and the list of what waits.


LISTED_MAX = 200
LOOKED_THROUGH = 30
"""Of those, the newest: their differences are looked through for what weakens a gate, 30 ms each."""
FILE_MAX = 16 * 2**20


def refuse_without_reader(db: sqlite3.Connection, view: queries.TaskView) -> None:
    """Raises Refused for a task whose comments nobody could be sent: before anything is written for it."""
    follow_up.refuse_without_prompt(db, view.id)


def comment(where: Home, review: Review, place: str, text: str) -> dict[str, Any]:
    """Keep one comment. Raises UsageError, NotFound."""
    path, first, last = verdicts.place(place)
    return {"comment": _keep(where, review, [_made(review, path, first, last, text)])[0]}


def _keep(where: Home, review: Review, made: Sequence[Mapping[str, Any]]) -> list[int]:
    """All of them or none."""
    numbers: list[int] = common.ask(where, "review", {"op": "comment", "task": review.view.id, "comments": list(made)})["numbers"]
    return numbers


def _made(review: Review, path: str, first: int, last: int, text: str) -> dict[str, Any]:
    words, file = verdicts.checked(text), _file_named(review, path)
    quoted = verdicts.quoted(_lines_of(review, file), first, last)
    return {"tip": review.tip, "path": verdicts.named(file), "first": first, "last": last, "quoted": quoted, "text": words}


def _file_named(review: Review, path: str) -> str:
    """A file of the result: as it is called, or as it is shown."""
    shown = {name: one.path for one in review.diffs for name in (one_line(one.path), verdicts.named(one.path), one.path)}
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
    whole = sheet(review.diffs)
    file = _sheet_file(where, review)
    if not file.exists():
        files.atomic_write(file, whole.encode())
    click.edit(filename=str(file))
    try:
        found = written(file.read_text(encoding="utf-8", errors="replace"), review.diffs)
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
    text, numbers = common.typable(verdicts.prompt(view.id, waiting, more).encode("utf-8", "replace")), [one.number for one in waiting]
    if not view.final:
        answer = common.ask(where, "review", {"op": "send", "task": view.id, "numbers": numbers, "text": text})
        return {"sent": len(numbers), "to": view.id, "state": answer["delivery"]["state"]}
    made = follow_up.submission(db, view, text, _key(view.id, waiting, text), environ)
    accepted = follow.hand_over(where, follow_up.reviewed(made, view.id, numbers), ())
    return {"sent": len(numbers), "to": accepted.tasks[0]}


def _key(task: str, waiting: list[Comment], text: str) -> str:
    """Two commands that send the same comments make one run; the same words without one may be said again."""
    return verdicts.key(task, f"{text}\0{waiting[0].number if waiting else os.urandom(8).hex()}")


def decide(where: Home, review: Review, verdict: str, why: str, at: str | None) -> dict[str, Any]:
    """Keep a verdict on the result as it was shown. Raises Refused when it is another commit by now, or its task has not ended."""
    view = review.view
    if at and not review.tip.startswith(at.lower()):
        hint = f"nightcrew review {view.id}"
        raise Refused("not decided", on=view.id, why=f"its result is {review.tip[:12]} by now", kept="its verdict as it was", hint=hint)
    if not view.final:
        taking.refuse_unfit(view, "not decided")
    ref, words = "", verdicts.checked(why) if why.strip() else ""
    if verdict == Verdict.REJECTED:
        ref = names.rejected_ref(view.id, view.epoch)
        _keep_on(review, ref)
        failpoint("review.kept")
    args = {"op": "decide", "task": view.id, "epoch": view.epoch, "verdict": verdict, "tip": review.tip, "why": words, "ref": ref}
    common.ask(where, "review", args)
    return {"verdict": verdict, "commit": review.tip, "ref": ref or None}


def _keep_on(review: Review, ref: str) -> None:
    repository = review.repository
    with repository.git.lock(repository.common_dir):
        old = repository.commit(ref)
        if old != review.tip:
            move(repository, ref, review.tip, old, "nightcrew: rejected")


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
        found, _ = journal.of_project(db, project, LISTED_MAX)
        views = {one.task: queries.one(db, one.task) for one in found if not one.living}
        if not views:
            return
        decided = verdicts.decisions(db, list(views))
        repository = taking.repository_of(where, next(iter(views.values())))
        stands = trial_merges.standing(repository, [one.name for one in found])
        matrix = conflicts.known(where, next(iter(views.values())).project)
        beside = conflicts.beside(matrix.conflicts(), matrix.on)
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
                row["size"], row["weakens_gate"] = reviews.looked_through(db, view, repository, stands.head, tip)
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
