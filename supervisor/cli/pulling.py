"""What `nightcrew pr` does: the person's consent, the push, and the pull request.

Each step can be repeated: what is about to be pushed is in the ledger before it is pushed, and a pull request is looked for by its branch
before one is made. A command that was killed is given again, and goes on.
"""

from __future__ import annotations

import contextlib
import sqlite3
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from supervisor.cli import common, pull_order
from supervisor.cli.pull_order import Options, Order
from supervisor.core import forges, pull_body, pull_requests
from supervisor.core.errors import NeedsHuman, NotFound, Refused, one_line
from supervisor.core.forges import Found
from supervisor.core.pull_requests import PullRequest, State
from supervisor.daemon import offers, results
from supervisor.faces import conflicts
from supervisor.faces import review as review_face
from supervisor.host import files, forge_tools
from supervisor.host.failpoint import failpoint
from supervisor.host.forge_tools import ForgeTool
from supervisor.host.paths import Home
from supervisor.ledger import choices, queries, store
from supervisor.ledger import pull_requests as book
from worktrees import pushing
from worktrees.pushing import Pusher
from worktrees.repository import Repository

LISTED_MAX = 200


def push(where: Home, name: str, options: Options, environ: Mapping[str, str]) -> dict[str, Any]:
    """Push, and open or update the pull request; what `--json` prints. Raises Refused, NeedsHuman, and as the doors."""
    with contextlib.closing(common.ledger(where)) as db:
        view = common.task_named(where, name, archived=False)
        repository, tip = results.seen(db, view)
        review = review_face.gather(db, view, repository, tip, conflicts.known(where, view.project))
        pull_order.refuse(review, choices.standings(db, [view.id]).get(view.id), force=options.force)
        remote = pushing.remote_of(repository, options.base or repository.branch or "", options.remote)
        pusher = Pusher(repository, remote, environ, terminal=sys.stdin.isatty())
        target = pusher.target()
        order = pull_order.decide(db, review, target, options, lambda asked: pull_order.tool_for(where, target, asked, environ))
        for line in (*pull_order.lines(order), *offers.left_out(db, view, repository)):
            common.say(one_line(line))
        if options.dry_run:
            click.echo(f"{order.title}\n\n{order.body}", err=True)
            return order.shape(None, pushed=False)
        _consent(where, db, order, yes=options.yes)
    with _only_one(where, repository):
        return _carry_out(where, order, pusher, options, forge_tools.door(order.tool, order.target, environ, where))


def _consent(where: Home, db: sqlite3.Connection, order: Order, *, yes: bool) -> None:
    """Ask the person once for each URL whether to push there. Raises NeedsHuman off a terminal."""
    project, url = order.repository.project, order.target.plain
    if book.may_push(db, project, url):
        return
    if not yes:
        if not sys.stdin.isatty():
            hint = f"say --yes, once: nightcrew pr {order.task} --yes"
            raise NeedsHuman(
                "this would be the first push to", on=url, why="each address needs your consent once", kept="everything", hint=hint
            )
        click.confirm("Push there, now and later?", abort=True, err=True)
    common.ask(where, "pr", {"op": "consent", "project": project, "remote": url})


@contextlib.contextmanager
def _only_one(where: Home, repository: Repository) -> Iterator[None]:
    """One command at a time pushes from a repository. Raises Refused."""
    lock = files.private_dir(where.root / "git" / "locks") / f"push-{repository.project}"
    with lock.open("a") as file:
        if not files.try_lock(file.fileno()):
            why = "another nightcrew pr is under way there"
            raise Refused("not pushed", on=str(repository.root), why=why, kept="everything", hint="repeat the command when that has ended")
        yield


def _carry_out(where: Home, order: Order, pusher: Pusher, options: Options, door: ForgeTool | None) -> dict[str, Any]:
    with contextlib.closing(store.connect_readonly(where.ledger)) as db:  # as another command may have left it a moment ago
        known = book.at(db, order.target.plain, order.branch)
    found = find(door, order.branch, known.number if known is not None else 0) if door is not None else None
    if found is not None:
        pull_requests.refuse_ended(found.state, found.link)
    pull, pushed = _pushed(where, order, pusher, known)
    failpoint("pr.noted")
    found = _opened(door, order, found, options) if door is not None else None
    failpoint("pr.opened")
    note(where, pull, order.review.view, order.tool, found or _by_hand(order, options))
    if found is None:
        common.say("open the pull request there" if order.compare_url else "pushed; where its pull request is opened is not known")
    return order.shape(found, pushed=pushed)


def _pushed(where: Home, order: Order, pusher: Pusher, known: PullRequest | None) -> tuple[int, bool]:
    """Push what the remote lacks; the row of the pull request in the ledger, and whether anything was pushed."""
    there = pusher.tip(order.branch)
    lease = pull_requests.lease(known, order.branch, there, order.commit)
    facts = {"project": order.repository.project, "remote": order.target.plain, "branch": order.branch, "base": order.base}
    named = {"task": order.task, "epoch": order.review.view.epoch}
    pull = int(common.ask(where, "pr", {"op": "intend", **named, **facts, "commit": order.commit if lease is not None else ""})["pull"])
    failpoint("pr.intended")
    if lease is not None:
        for line in pusher.push(order.commit, order.branch, lease.expected).words:
            common.say(f"the remote says: {line}")
        failpoint("pr.pushed")
    if lease is not None or (known is not None and order.commit == known.intent != known.pushed):
        common.ask(where, "pr", {"op": "pushed", **named, "pull": pull, "commit": order.commit})
    return pull, lease is not None


def _by_hand(order: Order, options: Options) -> Found:
    return Found(0, order.compare_url, State.NONE, not options.ready, order.branch, order.base, order.commit, order.title, order.body)


def note(where: Home, pull: int, view: queries.TaskView, tool: pull_requests.Tool, found: Found) -> None:
    """Have the ledger know what the host says of a pull request."""
    facts = {"number": found.number, "link": found.link, "state": found.state, "draft": found.draft, "base": found.base}
    common.ask(where, "pr", {"op": "noted", "pull": pull, "task": view.id, "epoch": view.epoch, "tool": tool, **facts})


def find(door: ForgeTool, branch: str, number: int) -> Found | None:
    """The pull request of a branch, when there is one; `number`: the one that is known."""
    shapes = door.call(door.forge.search(branch))
    listed = [door.forge.read(one) for one in shapes] if isinstance(shapes, list) else []
    return forges.newest([one for one in listed if one.branch == branch], number)


def _opened(door: ForgeTool, order: Order, found: Found | None, options: Options) -> Found:
    """The pull request, made or brought up to date."""
    if found is None:
        try:
            return door.forge.read(door.call(door.forge.create(order.branch, order.base, order.title, order.body, draft=not options.ready)))
        except Refused:
            found = find(door, order.branch, 0)  # one was made meanwhile
            if found is None or found.state is not State.OPEN:
                raise
    body = pull_body.merged(found.body, order.body)
    if body is not None:
        door.call(door.forge.update(found, body))
    elif pull_body.BEGIN not in found.body:
        common.say("its description is left as it is: somebody took our part out of it")
    if options.ready and found.draft:
        door.call(door.forge.ready(found))
        found = find(door, order.branch, found.number) or found
    return found


def show(where: Home, name: str, *, as_json: bool) -> None:
    """What is known of the pull request of a task. Raises NotFound."""
    known = known_of(where, common.task_named(where, name))
    if as_json:
        common.print_json(**asdict(known))
    else:
        common.show(_line(known))


def known_of(where: Home, view: queries.TaskView) -> PullRequest:
    """The pull request of a task. Raises NotFound."""
    with contextlib.closing(common.ledger(where)) as db:
        known = book.of_task(db, view.id)
    if known is None:
        raise NotFound("no pull request", on=view.id, hint=f"nightcrew pr {view.id}")
    return known


def list_all(where: Home, *, as_json: bool) -> None:
    """Those of the repository around the person."""
    with contextlib.closing(common.ledger(where)) as db:
        found = book.of_project(db, queries.project_at(db, str(Path.cwd())), LISTED_MAX)
    if as_json:
        common.print_json(pull_requests=[asdict(one) for one in found])
        return
    for one in found:
        common.show(_line(one))
    common.say(f"{len(found)} pull request{'s' if len(found) != 1 else ''}, as they were known last; nightcrew pr sync NAME asks again")


def _line(known: PullRequest) -> str:
    state = str(known.state) or ("pushed" if known.pushed else "not pushed")
    if known.draft and known.state is State.OPEN:
        state = "draft"
    return one_line("  ".join((known.task, state, known.link or known.remote, f"{known.branch} -> {known.base}", known.pushed[:12] or "-")))
