"""`nightcrew start PROMPT`."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from supervisor.cli import common, follow
from supervisor.cli.names import kind_name, snapshot_name
from supervisor.core.errors import NotFound, TimedOut, UsageError, one_line
from supervisor.core.kind import Kind, version
from supervisor.core.states import AttemptState
from supervisor.faces import status
from supervisor.host.paths import home
from supervisor.ledger import queries

if TYPE_CHECKING:
    from supervisor.ledger.queries import TaskView

SLOT_S = 30.0
"""An agent that has no pane after this long waits for a slot or for its snapshot: the person is not kept."""
LOOK_S = 0.05
VERSION_S = 10.0
"""Time limit for a program to print its version: command lines in Node take a second on a busy machine."""


@click.command()
@click.argument("prompt", required=False)
@click.option("--kind", shell_complete=kind_name, help="The kind of agent (default: `[agents] kind` of config.toml, claude).")
@click.option("--name", help="Its name, for the other verbs (default: its kind).")
@click.option("--model", help="What the agent calls the model that it is to use.")
@click.option("--base", help="Where its worktree starts (default: HEAD).")
@click.option("--snapshot", shell_complete=snapshot_name, help="Start from this snapshot; it is made when it is not there.")
@click.option("--sandbox", type=click.IntRange(0, 2), help="Isolation tier that it must have (default: 1 where that works).")
@click.option("--headless", is_flag=True, help="It works by itself; its own interface is not shown.")
@click.option("-C", "--repo", type=click.Path(path_type=Path), default=Path(), help="The repository to work on (default: here).")
@common.json_option
def command(prompt: str | None, kind: str | None, headless: bool, repo: Path, base: str | None, as_json: bool, **options: object) -> int:
    """Start an agent with PROMPT, in a worktree of its own, and go into its pane. Ctrl-b d leaves it; it goes on.

    PROMPT - is read from stdin. Without PROMPT your editor asks for it; what is saved empty starts an agent without one. Without a
    terminal, or with --headless or --json, the agent works by itself and its full name is printed.

    \b
    nightcrew start 'Find out why the tests are slow.'
    nightcrew start --kind codex --headless 'Add type hints, and commit.'
    nightcrew start --headless - < task.md
    """
    from agents.kinds import kinds
    from supervisor.daemon import submit

    attended = not headless and not as_json and prompt != "-" and sys.stdin.isatty() and sys.stdout.isatty()
    text = _prompt(prompt, attended)
    place = submit.workplace(repo)
    chosen = kind or place.settings.agent_kind
    own = {"kind": chosen, "name": options.pop("name") or chosen, "interactive": attended}
    attended_too = {"task_class": "interactive", "retries": 0} if attended else {}
    submission, notes = submit.of_prompt(text, {**options, **own, **attended_too}, place, base, os.environ)
    asked = _ask_version(kinds()[chosen])
    accepted = follow.hand_over(home(), submission, notes)
    if asked is not None and (older := _older(kinds()[chosen], asked)):
        common.say(older)
    if not attended:
        return follow.say_accepted(accepted, as_json=as_json)
    return _attach(accepted.tasks[0])


def _ask_version(kind: Kind) -> subprocess.Popen[str] | None:
    """Ask a kind's program which version it is, while the task is handed over; None for one of ours, and for one that cannot be asked."""
    program = shutil.which(kind.binary) if kind.version else None
    if program is None:
        return None
    quiet = subprocess.DEVNULL
    with contextlib.suppress(OSError):
        return subprocess.Popen([program, "--version"], stdin=quiet, stdout=subprocess.PIPE, stderr=quiet, text=True)
    return None


def _older(kind: Kind, asked: subprocess.Popen[str]) -> str:
    """Return what to say of a program that is older than what its kind was tried with; empty when it is not, or does not answer."""
    try:
        said, _ = asked.communicate(timeout=VERSION_S)
    except subprocess.TimeoutExpired:
        asked.kill()
        asked.communicate()
        return ""
    if not version(said) or version(said) >= version(kind.version):
        return ""
    found = one_line(said.strip().splitlines()[0])[:60]
    return (
        f"{kind.binary} is {found}, older than {kind.version}, with which nightcrew was tried: its dialogs may not be understood, and its "
        f"conversations may not go on; update it, then nightcrew kinds test {kind.name}"
    )


def _prompt(given: str | None, attended: bool) -> str | None:
    """What was typed; from stdin for `-`; else from the editor where there is a person. None: no prompt."""
    if given == "-":
        return sys.stdin.buffer.read().decode("utf-8", "replace")
    if given is not None:
        return given
    if not attended:
        raise UsageError("there is no prompt", why="and no terminal to ask at", hint="nightcrew start 'PROMPT', or - for stdin")
    written: str | None = click.edit()
    return (written or "").strip() or None


def _attach(task: str) -> int:
    """Into its pane as soon as there is one. Raises TimedOut when it has none for a while, NotFound when it ended before."""
    from supervisor.daemon import sessions

    view = _running(task)
    code = sessions.attach(home(), view.id, view.epoch)
    view = queries.one(common.ledger(home()), task)
    why = f" ({status.why(view)})" if status.why(view) else ""
    common.say(f"{view.id} is {view.state}{why}; nightcrew {'diff' if view.final else 'attach'} {view.name}")
    return code


def _running(task: str) -> TaskView:
    db = common.ledger(home())
    ends_at = time.monotonic() + SLOT_S
    while True:
        view = queries.one(db, task)
        if view.attempt_state == AttemptState.RUNNING:
            return view
        if view.final:
            raise NotFound("no live pane of", on=task, why=f"it is {view.state}: {status.why(view)}", hint=f"nightcrew logs {task}")
        if time.monotonic() > ends_at:
            why = f"it is {view.state}: {status.why(view)}" if status.why(view) else f"it is {view.state}"
            raise TimedOut("no pane yet of", on=task, why=why, kept="it starts by itself", hint=f"nightcrew attach {task}")
        time.sleep(LOOK_S)
