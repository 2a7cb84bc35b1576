"""`nightcrew review`."""

from __future__ import annotations

import os
import sqlite3
from typing import TYPE_CHECKING, Any

import click

from supervisor.cli import common
from supervisor.cli.names import done_name
from supervisor.core.errors import NotFound, UsageError
from supervisor.host.paths import Home, home

if TYPE_CHECKING:
    from supervisor.faces.review import Review
    from supervisor.ledger.queries import TaskView


@click.command()
@click.argument("name", required=False, shell_complete=done_name)
@click.option("--comment", nargs=2, metavar="FILE:LINE TEXT", help="Keep a comment to a line, or to FILE:LINE-LINE.")
@click.option("--drop", type=int, metavar="N", help="Remove a comment that was not sent.")
@click.option("--edit", is_flag=True, help="Write comments in $EDITOR, below the lines that they are about.")
@click.option("--send", is_flag=True, help="Give the comments to the agent as its next prompt.")
@click.option("-m", "--more", default="", metavar="TEXT", help="With --send: words beside the comments. With --reject: why.")
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
    acts = [act for act in ("comment", "drop", "edit", "send", "verdict", "undo") if options[act] not in (None, False, ())]
    if len(acts) > 1:
        raise UsageError("one thing at a time", why=f"not {' and '.join(f'--{act}' for act in acts)}")
    if options["more"] and acts not in (["send"], ["verdict"]):
        raise UsageError("-m goes with --send or --reject", hint="nightcrew review --help")
    review = _gathered(db, where, view)
    if not acts:
        return _show(review, stat=options["stat"], as_json=as_json)
    return _act(acts[0], where, db, review, options, as_json=as_json)


def _gathered(db: sqlite3.Connection, where: Home, view: TaskView) -> Review:
    from supervisor.daemon import results
    from supervisor.faces import review

    repository, tip = results.seen(db, view)
    return review.gather(db, where, view, repository, tip)


def _show(review: Review, *, stat: bool, as_json: bool) -> int:
    from supervisor.cli import colored_diff
    from supervisor.faces import review as text

    if as_json:
        common.print_json(**text.shape(review))
        return 0
    color = common.use_color()
    shown = [*colored_diff.styled(text.head(review), color=color), *text.stat(review)]
    shown += [] if stat else colored_diff.lines(review.diffs, color=color)
    if common.can_redraw():
        click.echo_via_pager("\n".join(shown) + "\n", color=color)
        return 0
    for line in shown:
        click.echo(line)
    return 0


def _act(what: str, where: Home, db: sqlite3.Connection, review: Review, options: dict[str, Any], *, as_json: bool) -> int:
    from supervisor.cli import reviewing

    task = review.view
    match what:
        case "comment":
            said = reviewing.comment(where, review, *options["comment"])
        case "drop":
            common.ask(where, "review", {"op": "drop", "task": task.id, "number": options["drop"]})
            said = {"dropped": options["drop"]}
        case "edit":
            said = reviewing.edit(where, review)
        case "send":
            said = reviewing.send(where, db, review, options["more"], os.environ)
        case "verdict":
            said = reviewing.decide(where, review, options["verdict"], options["more"], options["at"])
        case _:
            answer = common.ask(where, "review", {"op": "undo", "task": task.id, "epoch": task.epoch})
            if not answer["was"]:
                raise NotFound("no verdict", on=task.id, hint=f"nightcrew review {task.id}")
            said = {"undone": True}
    if as_json:
        common.print_json(task=task.id, **said)
    else:
        common.say("; ".join(f"{key}: {value}" for key, value in said.items() if value not in (None, "")))
    return 0


def _listed(where: Home, *, as_json: bool) -> int:
    """Results that are done, not merged, and without a verdict on what they are now."""
    from supervisor.cli import reviewing

    rows = list(reviewing.waiting(where))
    if as_json:
        common.print_json(results=rows)
        return 0
    for row in rows:
        common.show("  ".join(filter(None, (row["task"], row["size"], row["gate"], row["flags"], row["verdict"], row["title"]))))
    common.say(f"{len(rows)} result{'s' if len(rows) != 1 else ''} to look at" + ("; nightcrew review NAME" if rows else ""))
    return 0
