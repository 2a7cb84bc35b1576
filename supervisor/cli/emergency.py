"""`stop-all` and `thaw`."""

from __future__ import annotations

import os
import time

import click

from supervisor.client import common
from supervisor.host import audit_log, files
from supervisor.host.paths import Home, home
from supervisor.kernel.errors import NightcrewError, Refused, TimedOut
from supervisor.kernel.format import duration
from supervisor.kernel.states import LIVING
from supervisor.store import queries

# Stop all
# --------
# `nightcrew stop-all`.


WAIT_S = 5.0
"""A runner stops its agent within half a second; a machine that is very busy takes longer."""
_LOOK_S = 0.05
_RUNNERS = "stopped"
"""See `core.records`."""


@click.command("stop-all")
@common.json_option
def command_stop_all(as_json: bool) -> None:
    """Stop everything at once: agents stand still, no model is asked any more, and nothing starts, until nightcrew thaw.

    It needs no supervisor and holds over restarts of it, of the gateway and of the machine. Requests to models that are under way are cut.
    To end agents: nightcrew kill --all.

    \b
    nightcrew stop-all
    """
    where = home()
    _order(where)
    agents = _agents(where)
    moving = _moving(where, agents)
    if as_json:
        common.print_json(stopped=[task for task, _ in agents if task not in moving], moving=moving)
    else:
        common.say(f"everything is stopped: {len(agents) - len(moving)} agents stand still; next: nightcrew thaw")
    if said := audit_log.by_person(where, "stopped all", {"agents": len(agents), "moving": ", ".join(moving)}):
        common.say(said)
    if moving:
        raise TimedOut("not seen to stand still", on=", ".join(moving), why=f"{duration(WAIT_S)} passed", hint="nightcrew kill")


def _order(where: Home) -> None:
    """Write the sentinel: an empty file, which a full disk mostly still takes."""
    files.private_dir(where.root)
    where.sentinel.touch(mode=0o600)
    handle = os.open(where.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _agents(where: Home) -> list[tuple[str, int]]:
    """Task and epoch of each attempt whose runner has begun. A ledger that cannot be read keeps nothing from being stopped."""
    try:
        views = queries.unfinished(common.ledger(where))
    except NightcrewError as error:
        common.say(error.line())
        return []
    return [(view.id, view.epoch) for view in views if view.attempt_state in LIVING and _has_begun(where, view.id, view.epoch)]


def _has_begun(where: Home, task: str, epoch: int) -> bool:
    directory = where.attempt(task, epoch)
    return (directory / "started.json").exists() and not (directory / "exit.json").exists()


def _moving(where: Home, agents: list[tuple[str, int]]) -> list[str]:
    """Those that were not seen to stand still."""
    until, left = time.monotonic() + WAIT_S, agents
    while left and time.monotonic() < until:
        left = [(task, epoch) for task, epoch in left if _has_begun(where, task, epoch) and not _stands_still(where, task, epoch)]
        time.sleep(_LOOK_S if left else 0.0)
    return [task for task, _ in left]


def _stands_still(where: Home, task: str, epoch: int) -> bool:
    return (where.attempt(task, epoch) / _RUNNERS).exists()


# Thaw
# ----
# `nightcrew thaw`.


@click.command()
def command_thaw() -> None:
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
    if said := audit_log.by_person(home(), "thawed", {}):
        common.say(said)
