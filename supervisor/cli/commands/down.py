"""`nightcrew down`."""

from __future__ import annotations

import click

from supervisor.cli import common
from supervisor.core.errors import TimedOut
from supervisor.host.paths import home


@click.command()
@click.option("--now", is_flag=True, help="Do not wait for launches and finishes under way; the next supervisor finds them.")
def command(now: bool) -> None:
    """Stop the supervisor. Agents go on in their sessions; the next supervisor adopts them. To end agents: nightcrew kill.

    Without --now it first lets launches and finishes under way come to their end, for at most 30 s.

    \b
    nightcrew down
    """
    from supervisor.daemon import start

    where = home()
    pid = int(start.ask(where, "ping", {})["pid"])
    live = int(start.ask(where, "down", {"now": now})["live"])
    if not start.wait_until_gone(where, pid, 40.0):
        raise TimedOut("the supervisor did not leave", on=f"pid {pid}", why="40 s passed", hint="nightcrew down --now")
    start.stop_servers_when_empty(where)
    common.say_left(live)
