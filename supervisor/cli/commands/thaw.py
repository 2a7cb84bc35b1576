"""`nightcrew thaw`."""

from __future__ import annotations

import click

from supervisor.cli import common
from supervisor.core.errors import Refused
from supervisor.host import audit
from supervisor.host.paths import home


@click.command()
def command() -> None:
    """Let everything go on that nightcrew stop-all stopped: agents where they stood still. What a person paused stays paused.

    \b
    nightcrew thaw
    """
    sentinel = home().sentinel
    try:
        if sentinel.is_dir() and not sentinel.is_symlink():  # somebody made it by hand
            sentinel.rmdir()
        else:
            sentinel.unlink()
    except FileNotFoundError:
        raise Refused("nothing to thaw", why="nothing is stopped", hint="nightcrew status") from None
    except OSError as error:
        raise Refused("cannot thaw", on=str(sentinel), why=error.strerror or str(error), kept="everything stays stopped") from None
    common.say("everything goes on")
    if said := audit.by_person(home(), "thawed", {}):
        common.say(said)
