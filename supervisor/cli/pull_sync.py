"""What `nightcrew pr sync` does: reviews, comments and failed checks of a pull request become the next prompt of its agent, each once."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import click

from supervisor.cli import common, follow, pull_order, pulling
from supervisor.core import pull_remarks, pull_requests, remotes
from supervisor.core.errors import NotFound, Refused
from supervisor.core.forges import PAGE, PAGES_MAX, Found, Listed
from supervisor.core.pull_remarks import Remark, Round
from supervisor.core.pull_requests import PullRequest
from supervisor.core.reviews import key
from supervisor.daemon import follow_up
from supervisor.gateway.redact import Redactor
from supervisor.host import forge_tools
from supervisor.host.failpoint import failpoint
from supervisor.host.forge_tools import ForgeTool
from supervisor.host.paths import Home
from supervisor.ledger import pull_requests as book
from supervisor.ledger import queries


def sync(where: Home, name: str, options: Mapping[str, Any], environ: Mapping[str, str]) -> dict[str, Any]:
    """Ask the host, and give the agent what is new; what `--json` prints. Raises NotFound, Refused, and as the doors."""
    most = pull_requests.rounds(options["rounds"])
    known = pulling.known_of(where, common.task_named(where, name, archived=False))
    view = common.task_named(where, known.task, archived=False)
    door = _door(where, known, options["tool"], environ)
    found = pulling.find(door, known.branch, known.number)
    if found is None:
        raise NotFound("the host knows no pull request", on=known.branch, kept="everything", hint=f"nightcrew pr {view.id}")
    pulling.note(where, known.id, view, door.forge.tool, found)
    failpoint("pr.heard")
    with contextlib.closing(common.ledger(where)) as db:
        asked = pull_remarks.chosen(_remarks(door, found), book.known_remarks(db, known.id), everyone=options["everyone"])
    text = pull_remarks.prompt(view.id, found.link, asked) if asked.remarks else ""
    said = _shape(found, view.id, asked)
    _say_left_out(asked)
    if options["dry_run"] or not asked.remarks:
        common.say(f"{len(asked.remarks)} new of {found.link}" if asked.remarks else f"nothing new of {found.link}")
        if text and not options["json"]:
            click.echo(text)
        return {**said, "to": None, "text": text or None}
    pull_requests.refuse_ended(found.state, found.link)
    _refuse_rounds(known, most)
    to = _hand_over(where, view, known, asked, text, environ)
    failpoint("pr.handed")
    common.say(f"{len(asked.remarks)} given to {to}; then: nightcrew pr {to}")
    return {**said, "to": to, "text": text}


def _door(where: Home, known: PullRequest, asked: str | None, environ: Mapping[str, str]) -> ForgeTool:
    url = remotes.parse(known.remote)
    tool = pull_order.tool_for(where, url, asked or (known.tool if known.number else None), environ)
    door = forge_tools.door(tool, url, environ, where)
    if door is None:
        why = "neither gh nor glab knows that host"
        raise Refused("cannot ask the host", on=known.remote, why=why, kept="everything", hint="install gh or glab, and log in; or --with")
    return door


def _remarks(door: ForgeTool, found: Found) -> list[Remark]:
    clean = Redactor().clean
    listed = door.forge.remarks({one.kind: _all(door, one) for one in door.forge.lists(found)})
    return [pull_remarks.cleaned(one, clean) for one in listed]


def _all(door: ForgeTool, one: Listed) -> list[Any]:
    """Of a list the first PAGES_MAX pages."""
    entries: list[Any] = []
    for number in range(1, PAGES_MAX + 1):
        answer = door.call(one.page(number))
        page = answer.get(one.within) if one.within and isinstance(answer, dict) else answer
        if not isinstance(page, list):
            break
        entries += page
        if len(page) < PAGE:
            return entries
    common.say(f"only the first {len(entries)} entries of {one.kind} were read")
    return entries


def _say_left_out(asked: Round) -> None:
    if asked.outsiders:
        common.say(f"{asked.outsiders} left out, by people who may not write to that repository; --everyone takes them too")
    if asked.later:
        common.say(f"{asked.later} more are for the next round")


def _refuse_rounds(known: PullRequest, most: int) -> None:
    if known.rounds >= most:
        why = f"its agent was given what came back {known.rounds} times by now"
        hint = f"nightcrew pr sync {known.task} --dry-run, look yourself; or --rounds {known.rounds + 1}"
        raise Refused("not sent", on=known.link or known.branch, why=why, kept="all of it", hint=hint)


def _hand_over(where: Home, view: queries.TaskView, known: PullRequest, asked: Round, text: str, environ: Mapping[str, str]) -> str:
    """The task whose agent has it."""
    keys = [one.key for one in asked.remarks]
    with contextlib.closing(common.ledger(where)) as db:
        follow_up.refuse_without_prompt(db, view.id)
        typed = common.typable(text.encode("utf-8", "replace"))
        if not view.final:
            common.ask(where, "pr", {"op": "send", "pull": known.id, "task": view.id, "keys": keys, "text": typed})
            return view.id
        made = follow_up.submission(db, view, typed, key(view.id, "\0".join(keys)), environ)
    return follow.hand_over(where, follow_up.answering(made, known.id, keys), ()).tasks[0]


def _shape(found: Found, task: str, asked: Round) -> dict[str, Any]:
    return {
        "task": task, "link": found.link, "state": found.state, "draft": found.draft, "later": asked.later, "outsiders": asked.outsiders,
        "remarks": [{"key": one.key, "kind": one.kind, "author": one.author, "place": one.place or None, "link": one.link, "text": one.text,
                     "insider": one.insider} for one in asked.remarks],
    }  # fmt: skip
