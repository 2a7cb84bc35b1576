"""`nightcrew service install`, `remove` and `status`."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Mapping
from typing import Any

import click

from supervisor.client import common
from supervisor.host import autostart, files, processes
from supervisor.host.autostart import Entry
from supervisor.host.paths import Home, home
from supervisor.kernel.errors import NightcrewError, NotFound, UsageError, one_line
from supervisor.server import lock


@click.group(name="service")
def command() -> None:
    """Have the supervisor started at login and after a crash; docs/night.md says what that can do where.

    \b
    nightcrew service install
    """


@command.command(name="install")
@click.option("--by", type=click.Choice(["systemd", "cron"]), help="What starts it (default: systemd where its user manager answers).")
@click.option("-y", "--yes", is_flag=True, help="Do not ask; needed where there is no terminal.")
def command_install(by: str | None, yes: bool) -> None:
    """Show what is written, ask, and write it: a user unit of systemd, or a line of your crontab.

    A supervisor that runs now goes on and is not watched: nightcrew down, then what is said at the end.

    \b
    nightcrew service install
    """
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
    install(where, entry, os.environ)
    now = f"systemctl --user start {entry.starts}" if entry.units else "at the next boot of this machine"
    common.say(f"installed; it starts by itself from now on, and now: {now}")


@command.command(name="remove")
def command_remove() -> None:
    """Remove what `install` wrote. A supervisor that runs goes on.

    \b
    nightcrew service remove
    """
    remove(home())
    common.say("the supervisor is not started by itself any more; one that runs goes on")


@command.command(name="status")
@common.json_option
def command_status(as_json: bool) -> None:
    """Show what starts the supervisor, whether that is as it was written, and whether the one that runs is watched by it.

    \b
    nightcrew service status
    """
    shape = status(home())
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


@command.command(name="run", hidden=True)
def command_run() -> None:
    """Become the supervisor, with the environment of the shell that installed it: what the unit or the cron line starts.

    \b
    nightcrew service run
    """
    where = home()
    env = environment(where)
    if env is None:
        raise NotFound("the service is not installed", on=str(where.root), hint="nightcrew service install")
    argv = [sys.executable, "-I", "-m", "supervisor.cli.main", "up", "--home", str(where.root)]
    os.execve(sys.executable, argv, {**os.environ, **env, WATCHED: "1"})  # noqa: S606 - ourselves


# The service
# -----------


WATCHED = "NIGHTCREW_SERVICE"
"""Set in the environment of a supervisor that is started again when it dies."""


def install(home: Home, entry: Entry, environ: Mapping[str, str]) -> None:
    """Write it, and the environment in which the supervisor is to start. An older entry of the other way is removed first."""
    files.private_dir(home.root)
    with contextlib.suppress(NotFound):
        if _read(home)["by"] != entry.by:
            remove(home)
    record = {"schema": 1, "by": entry.by, "env": autostart.consented(environ)}
    files.atomic_write(home.root / "service.json", json.dumps(record, indent=2).encode() + b"\n")
    try:
        autostart.write(home, entry)
    except (NightcrewError, OSError):
        (home.root / "service.json").unlink()
        raise


def remove(home: Home) -> None:
    """Raises NotFound when it is not installed, Refused for a unit that is not ours."""
    autostart.remove(home, autostart.supervisor(home, str(_read(home)["by"])))
    (home.root / "service.json").unlink()


def environment(home: Home) -> dict[str, str] | None:
    """What the supervisor is to start with; None when it is not installed."""
    with contextlib.suppress(NotFound):
        return {str(name): str(text) for name, text in _read(home)["env"].items()}
    return None


def status(home: Home) -> dict[str, Any]:
    """`installed`, `by`, `wrong` (words; empty: it is as it was written), `supervisor` (pid or null) and whether that is `watched`."""
    try:
        by = str(_read(home)["by"])
    except NotFound:
        by = ""
    pid = lock.holder(home.lock)
    return {
        "installed": bool(by),
        "by": by or None,
        "wrong": _wrong(home, by) if by else "",
        "supervisor": pid,
        "watched": pid is not None and bool(processes.variable(pid, WATCHED)),
    }


def _wrong(home: Home, by: str) -> str:
    try:
        return autostart.wrong(autostart.supervisor(home, by))
    except NightcrewError as error:
        return error.line()


def _read(home: Home) -> dict[str, Any]:
    try:
        shape = json.loads((home.root / "service.json").read_bytes())
        if shape["by"] in (autostart.SYSTEMD, autostart.CRON) and isinstance(shape["env"], dict):
            return dict(shape)
    except (OSError, ValueError, KeyError, TypeError):
        pass
    raise NotFound("the service is not installed", on=str(home.root), hint="nightcrew service install")
