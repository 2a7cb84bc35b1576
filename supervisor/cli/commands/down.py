"""`nightcrew down`."""

from __future__ import annotations

import click

from supervisor.cli import common
from supervisor.core.errors import NotRunning, Refused, TimedOut
from supervisor.host.paths import Home, home


@click.command()
@click.option("--now", is_flag=True, help="Do not wait for launches and finishes under way; the next supervisor finds them.")
def command(now: bool) -> None:
    """Stop the supervisor. Agents go on in their sessions; the next supervisor adopts them. To end agents: nightcrew kill.

    If a supervisor was killed, this ends the gateway and the tmux server that it left, unless an agent lives.

    Without --now it first lets launches and finishes under way come to their end, for at most 30 s.

    \b
    nightcrew down
    """
    from supervisor.daemon import start

    where = home()
    try:
        pid = int(start.ask(where, "ping", {})["pid"])
    except NotRunning as error:
        _without_supervisor(where, error)
        return
    live = int(start.ask(where, "down", {"now": now})["live"])
    if not start.wait_until_gone(where, pid, 40.0):
        raise TimedOut("the supervisor did not leave", on=f"pid {pid}", why="40 s passed", hint="nightcrew down --now")
    start.stop_servers_when_empty(where)
    common.say_left(live)


def _without_supervisor(where: Home, error: NotRunning) -> None:
    """End what a killed supervisor left. Raises `error` when there is nothing to end, or a supervisor runs after all."""
    from supervisor.daemon import start

    try:
        ended, agents = start.stop_what_was_left(where)
    except Refused:
        raise error from None
    if agents:
        raise NotRunning(
            error.what, kept=f"agents go on ({agents}), with the gateway and the tmux server", hint="nightcrew up -d adopts them"
        )
    if not ended:
        raise error
    common.say(f"no supervisor was running; ended what a killed one left: {', '.join(ended)}")
