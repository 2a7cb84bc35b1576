"""`logs`, `report` and `diff`: look at what a task printed and changed."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import click

from supervisor.client import common, terminal
from supervisor.client.resolving import any_name, run_id
from supervisor.client.terminal import CHUNK, Tail
from supervisor.host import untrusted_fs
from supervisor.host.paths import Home, home
from supervisor.kernel.errors import NotFound
from supervisor.kernel.states import TaskState
from supervisor.store import queries, rows
from supervisor.store.queries import TaskView
from supervisor.views.status import ATTENDED

# Logs
# ----
# `nightcrew logs`.


LOOK_S = 0.1
SCREEN_MAX = 2**22


@click.command()
@click.argument("name", shell_complete=any_name)
@click.option("-f", "--follow", is_flag=True, help="Go on until the task has ended. Ctrl-C only stops looking.")
@click.option("--attempt", type=click.IntRange(min=1), help="An earlier attempt (default: the newest).")
@click.option("--stream", type=click.Choice(["stdout", "stderr", "both", "gate"]), help="Only this output, instead of a transcript.")
@click.option("--raw", is_flag=True, help="Its output byte for byte, also on a terminal, which the agent can steer then.")
@click.option("--transcript", "as_transcript", is_flag=True, help="The transcript, or say why there is none.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object; with -f or --transcript a line for each piece.")
def command(name: str, follow: bool, attempt: int | None, stream: str | None, raw: bool, as_transcript: bool, as_json: bool) -> None:
    """Show what an agent said and did: its prompt, its words, and a line for each call of a tool.

    For a command, and with --stream or --raw for any task, show the output: stdout on stdout, stderr on stderr. For an agent in its own
    interface whose conversation cannot be read, show its screen. A file or a pipe gets output byte for byte. On a terminal colours
    survive, and what would steer the terminal is shown as escapes.

    \b
    nightcrew logs -f discounts
    nightcrew logs --raw discounts
    nightcrew logs --stream gate lint
    """
    where = home()
    view = common.task_named(where, name)
    epoch = attempt or view.epoch
    if not 1 <= epoch <= view.epoch:
        if not follow:
            why = f"its attempts are numbered 1 to {view.epoch}" if view.epoch else "it has not started"
            raise NotFound("no log of", on=view.id, why=why, hint=f"nightcrew status {view.id}")
        epoch = 1
    directory = where.attempt(view.id, epoch)
    if view.final and not any((directory / f"{kind}.log").exists() for kind in ("stdout", "stderr")):
        common.say(f"there are no logs of {view.id}: its logs were removed, or it never came so far; nightcrew status {view.id}")
    if as_transcript or not (raw or stream or as_json or _is_plain(view, directory)):
        from supervisor.client import transcript

        kept = transcript.kept(where, view) if view.interactive and epoch == view.epoch else None
        if kept is not None or as_transcript or transcript.readable(view, Tail(directory / "stdout.log").read(CHUNK)):
            log = Tail(directory / "stdout.log") if kept is None else Tail(kept, directory if kept.is_relative_to(directory) else None)
            pieces = _pieces(log, view.id, epoch if follow else None)
            transcript.show(view, pieces, as_json=as_json, prompt=_prompt(view.id))
            if not as_transcript:
                Tail(directory / "stderr.log").show()
            return
    streams = ("stdout", "stderr") if stream in (None, "both") else (stream,)
    tails = [Tail(directory / f"{kind}.log") for kind in streams]
    if as_json and not follow:
        common.print_json(task=view.id, epoch=epoch, **{tail.stream: _text(tail.read()) for tail in tails})
        return
    shown = sum([_show(tail, as_json, raw) for tail in tails])
    while follow:
        ended = _ended(view.id, epoch)
        shown += sum([_show(tail, as_json, raw) for tail in tails])
        if ended:
            break
        time.sleep(LOOK_S)
    if not shown and not as_json and stream != "gate":
        if screen := untrusted_fs.read_plain(directory / "screen.txt", SCREEN_MAX):
            click.echo(_text(screen), nl=False)
        elif epoch == view.epoch:
            _show_pane(where, view)


def _is_plain(view: queries.TaskView, directory: Path) -> bool:
    """Return whether the task runs a command whose output is no stream of JSON; its log needs no parser."""
    return view.kind in ("shell", ATTENDED) and not Tail(directory / "stdout.log").read(1).startswith(b"{")


def _prompt(task: str) -> str:
    """Return the prompt of a task; empty when it has none."""
    with contextlib.closing(common.ledger(home(), task)) as db:
        return rows.launch(db, task).spec.prompt or ""


def _show_pane(where: Home, view: queries.TaskView) -> None:
    """Print the current screen of an agent in its own interface."""
    from supervisor.client.crew import PageReader
    from supervisor.kernel.ansi import plain
    from supervisor.views.crew import Page

    shown = PageReader(where).page(view, Page.SCREEN, "") if view.pane_id and view.state is TaskState.RUNNING else None
    for line in shown.lines if shown is not None else ():
        common.show(plain(line))


def _pieces(tail: Tail, task: str, followed: int | None) -> Iterator[bytes]:
    """What there is of a log, and then what comes until the attempt `followed` has ended."""
    while True:
        ended = followed is None or _ended(task, followed)  # asked before the last look
        while data := tail.read(CHUNK):
            yield data
        if ended:
            return
        time.sleep(LOOK_S)


def _show(tail: Tail, as_json: bool, raw: bool) -> int:
    """Print what is new; its size in bytes."""
    if not as_json:
        return tail.show(raw=raw)
    shown = 0
    while data := tail.read(CHUNK):
        shown += len(data)
        click.echo(json.dumps({"schema": 1, "stream": tail.stream, "text": _text(data)}))
    return shown


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _ended(task: str, epoch: int) -> bool:
    with contextlib.closing(common.ledger(home(), task)) as db:
        view = queries.one(db, task)
    return view.epoch > epoch or (view.epoch == epoch and view.end is not None) or (view.final and view.epoch < epoch)


# Report
# ------
# `nightcrew report [RUN]`.


@click.command()
@click.argument("run", required=False, shell_complete=run_id)
@common.output_option
@click.option("--open/--no-open", "opened", default=None, help="Open it in a browser (default: on a graphical desktop).")
@common.json_option
def command_report(run: str | None, output: Path | None, opened: bool | None, as_json: bool) -> int:
    """Write the report of a run as it stands: report.html, report.md, report.json. Without RUN the newest one of this repository.

    \b
    nightcrew report
    nightcrew report 1121-k3f9 --open
    nightcrew report --json | jq .summary.health
    """
    from supervisor.cli import reporting

    where = home()
    report = reporting.build(where, reporting.run_named(where, run))
    reporting.show(reporting.publish(where, report, output), as_json=as_json, opened=opened)
    return 0


# Diff
# ----
# `nightcrew diff`.


@click.command()
@click.argument("name", shell_complete=any_name)
@click.argument("other", required=False, shell_complete=any_name)
@click.option("--stat", is_flag=True, help="Only which files, and how much.")
@click.option("--raw", is_flag=True, help="Byte for byte also on a terminal, which the agent can steer then.")
@common.json_option
def command_diff(name: str, other: str | None, stat: bool, raw: bool, as_json: bool) -> None:
    """Show what a task changed, from its base to the tip of its branch. While it runs: what it has committed so far.

    Byte for byte as git prints it, into a file or a pipe. On a terminal what would steer it is shown as escapes.

    With OTHER: from the result of the first to that of the second, of two candidates or any two tasks of one repository.

    \b
    nightcrew diff lint
    nightcrew diff api-1 api-3
    nightcrew diff --stat 1121-k3f9/lint
    """
    from supervisor.results import taking

    where = home()
    view = common.task_named(where, name)
    if other is not None:
        _between(view, common.task_named(where, other), stat=stat, raw=raw, as_json=as_json)
        return
    db = common.ledger(where, view.id)
    text = taking.diff(db, view, stat=stat)
    for line in taking.left_out(db, view, taking.repository_of(where, view)):
        common.say(line)
    if as_json:
        common.print_json(task=view.id, base=view.base_oid, branch=view.branch, diff=_readable(text))
        return
    _write(text, raw=raw)


def _between(view: TaskView, other: TaskView, *, stat: bool, raw: bool, as_json: bool) -> None:
    from supervisor.results import taking

    where = home()
    first = taking.result(common.ledger(where, view.id), view)
    second = taking.result(common.ledger(where, other.id), other)
    text = taking.between(first, second, stat=stat)
    if as_json:
        pair = [{"task": one.task, "base": one.base, "commit": one.tip} for one in (first, second)]
        common.print_json(**{"from": pair[0], "to": pair[1], "diff": _readable(text)})
        return
    if first.base != second.base:
        common.say(f"they began at different commits, and this holds what is between those, too; each alone: nightcrew diff {first.task}")
    _write(text, raw=raw)


def _readable(text: str) -> str:
    return os.fsencode(text).decode("utf-8", "replace")


def _write(text: str, *, raw: bool) -> None:
    out = terminal.raw_bytes(sys.stdout) if raw else sys.stdout.buffer
    out.write(os.fsencode(text))  # git's very bytes, whatever the encoding
    out.flush()
