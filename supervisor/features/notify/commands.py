"""`nightcrew notify test` and `status`."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from supervisor.client import common
from supervisor.host.paths import home
from supervisor.kernel.errors import ConfigError, Refused, ToolFailed, one_line
from supervisor.kernel.format import duration

if TYPE_CHECKING:
    from supervisor.features.notify.rules import Receiver

_NONE = "config.toml names no receiver"
_HOW = 'write [notify] urls = ["env:NAME"] into it, docs/notify.md'


@click.group(name="notify")
def command() -> None:
    """Messages to you: an agent needs you, a task failed, no model is served, a cap is near, the night is over.

    \b
    nightcrew notify test
    """


@command.command()
@common.json_option
def test(as_json: bool) -> int:
    """Send a message to every receiver of config.toml, now, whatever the hour.

    The supervisor sends it, with the settings and the environment that it has. Where none runs it is sent from your shell, whose
    environment a supervisor gets that you start here.

    \b
    nightcrew notify test
    """
    from supervisor.config import user
    from supervisor.features.notify.rules import DESKTOP

    terms, here = user.load_notify(common.settings_file()), user.load_notify_here(common.settings_file())
    receivers = (*terms.receivers, *(one for one in here.receivers if one.name == DESKTOP))
    answers, by = _tried(receivers)
    if set(answers) != {one.name for one in receivers}:
        raise Refused("config.toml has changed since the supervisor read it", on=by, hint="nightcrew down && nightcrew up -d")
    if not receivers:
        raise ConfigError(
            "nobody to tell in", on=str(common.settings_file()), why="it names no receiver; bell and tmux need none", hint=_HOW
        )
    failed = {name: why for name, why in answers.items() if why}
    if as_json:
        common.print_json(by=by, receivers=[{"name": name, "taken": not why, "why": why} for name, why in answers.items()])
    else:
        for name, why in answers.items():
            click.echo(f"{one_line(name)}  {one_line(why) or 'taken'}")
        common.say(f"sent by {by}")
    if failed:
        raise ToolFailed("a message was not taken by", on=", ".join(failed), why=next(iter(failed.values())), hint="docs/notify.md")
    return 0


def _tried(receivers: Sequence[Receiver]) -> tuple[dict[str, str], str]:
    """Why each receiver has not taken a message, empty when it has; and who sent it, with whose environment."""
    import asyncio

    from supervisor.client import start
    from supervisor.features.notify import post
    from supervisor.server import lock

    pid = lock.holder(home().lock)
    if pid is not None:
        answers = start.ask(home(), "notify_test", {}, timeout_s=post.POST_S + 10)["answers"]
        return {str(name): str(why) for name, why in answers.items()}, f"the supervisor (pid {pid})"
    return asyncio.run(post.try_out(receivers, os.environ)), "this shell, as no supervisor runs"


@command.command()
@common.json_option
def status(as_json: bool) -> None:
    """Show who is told of what, what waits, and what is under way.

    \b
    nightcrew notify status
    """
    from supervisor.config import user
    from supervisor.features.notify import service as notify_service
    from supervisor.features.notify.rules import Known

    terms, known = user.load_notify(common.settings_file()), notify_service.kept(home().notices) or Known()
    here = user.load_notify_here(common.settings_file())
    shape: dict[str, Any] = {
        "here": {"by": list(here.names), "on": sorted(here.on), "told": (notify_service.kept(home().notices_here) or Known()).last},
        "receivers": list(terms.names),
        "on": sorted(terms.on),
        "urgent": sorted(terms.urgent),
        "quiet_hours": str(terms.quiet) if terms.quiet else None,
        "text": terms.text,
        "waiting": [{"kind": str(group.kind), "count": group.count, "since": group.since} for group in known.groups],
        "under_way": [
            {"title": one.title, "left": list(one.left), "tries": one.tries, "next_try": one.next_at or None} for one in known.outbox
        ],
        "sent": known.last - len(known.outbox),
    }
    if as_json:
        common.print_json(**shape)
        return
    _print_here(shape)
    if not terms.receivers:
        common.say(f"{_NONE}; next: {_HOW}")
    else:
        _print(shape)


def _print_here(shape: dict[str, Any]) -> None:
    here = shape["here"]
    said = f"{', '.join(here['by'])}, of {', '.join(here['on'])}" if here["by"] else "nothing"
    click.echo(f"here        {said}; told {here['told']} times")
    if shape["quiet_hours"]:
        click.echo(f"quiet       {shape['quiet_hours']}, but for {', '.join(shape['urgent']) or 'nothing'}")


def _print(shape: dict[str, Any]) -> None:
    click.echo(f"receivers   {one_line(', '.join(shape['receivers']))}")
    click.echo(f"told of     {', '.join(shape['on'])}" + ("" if shape["text"] else " (no titles, no questions)"))
    for one in shape["waiting"]:
        click.echo(f"waits       {one['count']} {one['kind']}, for {duration(max(0.0, time.time() - one['since']))}")
    for one in shape["under_way"]:
        again = f", again in {duration(one['next_try'] - time.time())}" if one["next_try"] else ""
        click.echo(f"under way   {one_line(one['title'])}: tried {one['tries']} times{again}; left: {one_line(', '.join(one['left']))}")
    click.echo(f"sent        {shape['sent']} messages")
