"""`nightcrew service install`, `remove` and `status`."""

from __future__ import annotations

import os
import sys
from typing import Any

import click

from supervisor.client import common
from supervisor.host.paths import home
from supervisor.kernel.errors import NotFound, UsageError, one_line


@click.group(name="service")
def command() -> None:
    """Have the supervisor started at login and after a crash; docs/night.md says what that can do where.

    \b
    nightcrew service install
    """


@command.command()
@click.option("--by", type=click.Choice(["systemd", "cron"]), help="What starts it (default: systemd where its user manager answers).")
@click.option("-y", "--yes", is_flag=True, help="Do not ask; needed where there is no terminal.")
def install(by: str | None, yes: bool) -> None:
    """Show what is written, ask, and write it: a user unit of systemd, or a line of your crontab.

    A supervisor that runs now goes on and is not watched: nightcrew down, then what is said at the end.

    \b
    nightcrew service install
    """
    from supervisor.features.service import service as service_service
    from supervisor.host import autostart

    where = home()
    chosen, why = autostart.chosen(by or "")
    entry = autostart.supervisor(where, chosen)
    common.say("this is written:")
    for line in entry.shown():
        click.echo(f"  {one_line(line)}", err=True)
    for line in autostart.remarks(chosen, why):
        common.say(line)
    if not yes:
        if not sys.stdin.isatty():
            raise UsageError("nobody can be asked", why="stdin is not a terminal", hint="--yes writes it without a question")
        click.confirm("nightcrew: install it?", abort=True, err=True)
    service_service.install(where, entry, os.environ)
    now = f"systemctl --user start {entry.starts}" if entry.units else "at the next boot of this machine"
    common.say(f"installed; it starts by itself from now on, and now: {now}")


@command.command()
def remove() -> None:
    """Remove what `install` wrote. A supervisor that runs goes on.

    \b
    nightcrew service remove
    """
    from supervisor.features.service import service as service_service

    service_service.remove(home())
    common.say("the supervisor is not started by itself any more; one that runs goes on")


@command.command()
@common.json_option
def status(as_json: bool) -> None:
    """Show what starts the supervisor, whether that is as it was written, and whether the one that runs is watched by it.

    \b
    nightcrew service status
    """
    from supervisor.features.service import service as service_service

    shape = service_service.status(home())
    if as_json:
        common.print_json(**shape)
        return
    for line in _lines(shape):
        common.show(one_line(line))


def _lines(shape: dict[str, Any]) -> list[str]:
    starts = f"starts by {shape['by']}" + (f", but {shape['wrong']}" if shape["wrong"] else "")
    pid = shape["supervisor"]
    watched = "started again after a crash" if shape["watched"] else "started by hand: not started again after a crash"
    return [
        starts if shape["installed"] else "not installed: the supervisor starts with the next nightcrew run; nightcrew service install",
        f"supervisor {pid}, {watched}" if pid else "no supervisor runs",
    ]


@command.command(hidden=True)
def run() -> None:
    """Become the supervisor, with the environment of the shell that installed it: what the unit or the cron line starts.

    \b
    nightcrew service run
    """
    from supervisor.features.service import service as service_service

    where = home()
    env = service_service.environment(where)
    if env is None:
        raise NotFound("the service is not installed", on=str(where.root), hint="nightcrew service install")
    argv = [sys.executable, "-I", "-m", "supervisor.cli.main", "up", "--home", str(where.root)]
    os.execve(sys.executable, argv, {**os.environ, **env, service_service.WATCHED: "1"})  # noqa: S606 - ourselves
