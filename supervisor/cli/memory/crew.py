"""`nightcrew mem wait`, `leases` and `graph`."""

from __future__ import annotations

import time
from typing import Any

import click

from supervisor.cli import common
from supervisor.cli.memory import door, printing
from supervisor.core.errors import TimedOut, one_line
from supervisor.faces import wait_graph

PIECE_S = 300.0
"""Of one request; a longer wait asks again and misses nothing."""
LATE_S = 30.0


@click.command()
@click.argument("glob")
@click.option("--timeout", type=common.Duration(), help="Give up after this long, with exit code 124.")
@click.option("--since", type=click.IntRange(min=0), help="See what changed after this number of an answer, too (--json: number).")
@common.json_option
def wait(glob: str, timeout: float | None, since: int | None, as_json: bool) -> None:
    """Wait until a file changes whose path matches GLOB, and print what changed.

    \b
    nightcrew mem wait 'semantic/*' --timeout 10m
    nightcrew mem wait 'semantic/*' --since 41 --json
    """
    ends_at = time.monotonic() + timeout if timeout is not None else None
    args: dict[str, Any] = {"glob": glob, **({"since": since} if since is not None else {})}
    while True:
        piece = PIECE_S if ends_at is None else max(0.0, min(PIECE_S, ends_at - time.monotonic()))
        found = door.ask("mem", "wait", {**args, "timeout_s": piece}, timeout_s=piece + LATE_S)
        if not found["timed_out"]:
            break
        if ends_at is not None and time.monotonic() >= ends_at:
            raise TimedOut("nothing changed", on=glob, why=f"in {timeout:.0f} s")
        args["since"] = found["number"]
    if as_json:
        common.print_json(**found)
        return
    for change in found["changes"]:
        click.echo(printing.change(change, time.time()))


@click.command()
@click.option("--end", "fences", type=click.IntRange(min=1), multiple=True, help="Take this lease from its holder, by its number.")
@click.option("--why", default="", help="Why, for the history of its holder.")
@common.json_option
def leases(fences: tuple[int, ...], why: str, as_json: bool) -> None:
    """List who has which files to itself, and until when; or take a lease from its holder, who does not get it again.

    \b
    nightcrew mem leases
    nightcrew mem leases --end 7 --why 'the others wait for it'
    """
    if fences:
        ended = door.ask("lease", "release", {"fences": list(fences), "why": why or "by nightcrew mem leases"})
        if as_json:
            common.print_json(**ended)
        for one in [] if as_json else ended["released"]:
            click.echo(one_line(f"{one['task']} no longer has {one['glob']}"))
        return
    found = door.ask("lease", "ls", {})
    if as_json:
        common.print_json(**found)
        return
    wide = min(32, max((len(one_line(one["glob"])) for one in found["leases"]), default=0))
    for one in found["leases"]:
        click.echo(printing.lease(one, wide, time.time()))
    if not found["leases"]:
        common.say("nobody has a lease")


@click.command()
@click.option("--dot", "as_dot", is_flag=True, help="As graphviz draws it: nightcrew mem graph --dot | dot -Tsvg.")
@common.json_option
def graph(as_dot: bool, as_json: bool) -> None:
    """Draw who waits for whom now. Nobody waits in a circle: a wait that would close one is refused.

    \b
    nightcrew mem graph
    nightcrew mem graph --dot | dot -Tsvg > waits.svg
    """

    found = door.ask("mem", "graph", {})
    if as_json:
        common.print_json(**found)
    elif as_dot:
        click.echo(wait_graph.dot(found))
    else:
        for line in wait_graph.lines(found, time.time()):
            click.echo(line)
        if not found["waits"]:
            common.say("nobody waits")
