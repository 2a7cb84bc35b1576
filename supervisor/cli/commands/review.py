"""`nightcrew review`."""

from __future__ import annotations

import itertools
import os
import sqlite3
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from supervisor.cli import common, looking
from supervisor.cli.names import done_name
from supervisor.core.errors import UsageError
from supervisor.core.sequences import for_terminal
from supervisor.host.paths import Home, home

if TYPE_CHECKING:
    from supervisor.faces.review import Review
    from supervisor.ledger.queries import TaskView

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
    from supervisor.daemon import offers, results
    from supervisor.faces import review

    repository, tip = results.seen(db, view)
    made = review.gather(db, view, repository, tip, looking.last_matrix(where, db, view.project, LOOK_S, view.id))
    return replace(made, left_out=offers.left_out(db, view, repository))


def _show(review: Review, *, stat: bool, as_json: bool) -> int:
    from supervisor.cli import colored_diff
    from supervisor.faces import review as text

    if as_json:
        common.print_json(**text.shape(review))
        return 0
    color = common.use_color()
    diff = () if stat else colored_diff.lines(review.diffs, text.beside(review), color=color)
    shown = itertools.chain(colored_diff.styled(text.head(review), color=color), text.stat(review), diff)
    if common.can_redraw():
        os.environ.setdefault("LESS", "FRX")  # as git does: what fits on the screen is printed, and stays there
        click.echo_via_pager((for_terminal(f"{line}\n") for line in shown), color=color)
        return 0
    for line in shown:
        common.show(line)
    return 0


def _act(what: str, where: Home, db: sqlite3.Connection, view: TaskView, options: dict[str, Any]) -> dict[str, Any]:
    from supervisor.cli import reviewing

    if what in ("comment", "edit"):
        reviewing.refuse_without_reader(db, view)
    if what == "drop":
        return reviewing.drop(where, view.id, options["drop"])
    if what == "undo":
        return reviewing.undo(where, view.id, view.epoch)
    review = _gathered(db, where, view)
    match what:
        case "comment":
            return reviewing.comment(where, review, *options["comment"])
        case "edit":
            return reviewing.edit(where, review)
        case "send":
            return reviewing.send(where, db, review, options["more"], os.environ)
        case _:
            return reviewing.decide(where, review, options["verdict"], options["more"], options["at"])


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
    return f"{number} comment{'s' if number != 1 else ''}"


def _listed(where: Home, *, as_json: bool) -> int:
    """Results that are done, not merged, and without a verdict on what they are now."""
    from supervisor.cli import reviewing

    rows = list(reviewing.waiting(where))
    if as_json:
        common.print_json(results=rows)
        return 0
    for row in rows:
        weak = "may weaken its gate" if row["weakens_gate"] else ""
        words = (row["task"], row["size"], row["gate"], weak, row["conflicts"], row["verdict"], row["title"])
        common.show("  ".join(filter(None, words)))
    common.say(f"{len(rows)} result{'s' if len(rows) != 1 else ''} to look at" + ("; nightcrew review NAME" if rows else ""))
    return 0
