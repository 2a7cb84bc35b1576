"""`nightcrew diff`."""

from __future__ import annotations

import os
import sys

import click

from supervisor.cli import common, terminal
from supervisor.cli.names import any_name
from supervisor.host.paths import home
from supervisor.ledger.queries import TaskView


@click.command()
@click.argument("name", shell_complete=any_name)
@click.argument("other", required=False, shell_complete=any_name)
@click.option("--stat", is_flag=True, help="Only which files, and how much.")
@click.option("--raw", is_flag=True, help="Byte for byte also on a terminal, which the agent can steer then.")
@common.json_option
def command(name: str, other: str | None, stat: bool, raw: bool, as_json: bool) -> None:
    """Show what a task changed, from its base to the tip of its branch. While it runs: what it has committed so far.

    Byte for byte as git prints it, into a file or a pipe. On a terminal what would steer it is shown as escapes.

    With OTHER: from the result of the first to that of the second, of two candidates or any two tasks of one repository.

    \b
    nightcrew diff lint
    nightcrew diff api-1 api-3
    nightcrew diff --stat 1121-k3f9/lint
    """
    from supervisor.daemon import offers, results

    where = home()
    view = common.task_named(where, name)
    if other is not None:
        _between(view, common.task_named(where, other), stat=stat, raw=raw, as_json=as_json)
        return
    db = common.ledger(where, view.id)
    text = results.diff(db, view, stat=stat)
    for line in offers.left_out(db, view, results.repository_of(where, view)):
        common.say(line)
    if as_json:
        common.print_json(task=view.id, base=view.base_oid, branch=view.branch, diff=_readable(text))
        return
    _write(text, raw=raw)


def _between(view: TaskView, other: TaskView, *, stat: bool, raw: bool, as_json: bool) -> None:
    from supervisor.daemon import results

    where = home()
    first = results.result(common.ledger(where, view.id), view)
    second = results.result(common.ledger(where, other.id), other)
    text = results.between(first, second, stat=stat)
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
