"""`nightcrew top`."""

from __future__ import annotations

import sys

import click

from supervisor.cli import common
from supervisor.core.errors import UsageError
from supervisor.host.paths import home


@click.command()
def command() -> None:
    """Run the crew from one screen: who needs you, what they do, what can be taken; a key for each verb, ? shows them.

    Alone on a terminal, `nightcrew` does the same once there is a crew.

    \b
    nightcrew top
    """
    if not (common.can_redraw() and sys.stdin.isatty()):
        why = "TERM=dumb cannot move its cursor" if sys.stdout.isatty() and sys.stdin.isatty() else "stdin or stdout is not one"
        raise UsageError("top needs a terminal", why=why, hint="nightcrew status")
    from supervisor.cli.crew.acting import VerbActs
    from supervisor.cli.crew.reading import Lookout
    from supervisor.cli.main import VERBS
    from supervisor.faces.top.app import TopApp

    where = home()
    TopApp(Lookout(where), VerbActs(where, VERBS)).run()
