"""`nightcrew mem ls`, `show`, `search`, `brief` and `log`."""

from __future__ import annotations

import time
from typing import Any

import click

from supervisor.cli import common
from supervisor.cli.memory import door, printing
from supervisor.cli.memory.completing import note_path
from supervisor.cli.names import any_name
from supervisor.core.errors import NotFound, one_line
from supervisor.core.sequences import escaped
from supervisor.host.paths import home


@click.command()
@click.argument("prefix", required=False, shell_complete=note_path)
@common.json_option
def ls(prefix: str | None, as_json: bool) -> None:
    """List the files, or those below PREFIX, such as semantic.

    \b
    nightcrew mem ls
    nightcrew mem ls procedural --json
    """
    found = door.ask("mem", "ls", {"prefix": prefix}, reads=True)
    if as_json:
        common.print_json(**found)
    elif not found["entries"]:
        below = f"nothing below {one_line(prefix)}; next: nightcrew mem ls" if prefix else ""
        common.say(below or "nothing is known yet; next: nightcrew mem put semantic/NAME.md")
    else:
        click.echo(printing.entries(found["entries"], time.time()))
    if not as_json:
        printing.left_out(found)
        where = door.files() or (None if door.is_agent() else home().memory(door.project()))
        if where is not None:
            common.say(f"in {one_line(str(where))}")


@click.command()
@click.argument("path", shell_complete=note_path)
@click.option("--version", help="As it was then: a version that mem log names.")
@common.json_option
def show(path: str, version: str | None, as_json: bool) -> None:
    """Print a file. On a terminal what could drive it is shown as escapes.

    \b
    nightcrew mem show core.md
    nightcrew mem show semantic/build.md --json
    """
    found = door.ask("mem", "show", {"path": path, "version": version}, reads=True)
    if as_json:
        common.print_json(**found)
    else:
        printing.text(found["text"])
        for newer in found.get("superseded_by") or ():
            common.say(f"superseded by {one_line(str(newer))}")
    if path.startswith("quarantine/") and not as_json:
        common.say(f"version {one_line(found['version'])}; next: nightcrew mem approve {one_line(path.removeprefix('quarantine/'))}")


@click.command()
@click.argument("words", nargs=-1, required=True)
@click.option("-n", "--number", type=click.IntRange(1, 100), default=10, show_default=True, help="How many, the best first.")
@click.option("--path", "paths", multiple=True, metavar="FILE", help="Prefer notes about this file (can be given again).")
@common.json_option
def search(words: tuple[str, ...], number: int, paths: tuple[str, ...], as_json: bool) -> None:
    """Find notes by their words.

    \b
    nightcrew mem search flaky payment tests
    nightcrew mem search retry --path src/net.py --json
    """
    found = door.ask("mem", "search", {"query": " ".join(words), "paths": list(paths), "limit": number})
    if as_json:
        common.print_json(**found)
        return
    for hit in found["hits"]:
        click.echo(printing.hit(hit))
    if not found["hits"]:
        common.say("nothing found")


@click.command()
@click.argument("task", required=False, shell_complete=any_name)
@common.json_option
def brief(task: str | None, as_json: bool) -> None:
    """Print what TASK is told of the memory when it starts.

    \b
    nightcrew mem brief fix-login
    """
    named = common.task_named(home(), task).id if task and not door.is_agent() else task
    found = door.ask("mem", "brief", {"task": named})
    if as_json:
        common.print_json(**found)
        return
    printing.text("\n\n".join(filter(None, (found["prefix"], found["rest"]))))
    for used in found["prefixes"][:1]:
        if used["first_hit_ratio"] is not None:
            common.say(
                f"{used['first_hit_ratio']:.0%} of the first requests of {used['counted']} agents was read from the provider's cache"
            )
        common.say(f"{found['bytes']} of at most {found['bytes_max']} bytes")


@click.command()
@click.argument("path", required=False, shell_complete=note_path)
@click.option("-p", "--patch", is_flag=True, help="With what each change changed.")
@click.option("-n", "--number", type=click.IntRange(1, 1000), default=20, show_default=True, help="How many of the newest.")
@click.option("--before", type=click.IntRange(min=1), help="Those before this number of a change, which the last line of a log names.")
@common.json_option
def log(path: str | None, patch: bool, number: int, before: int | None, as_json: bool) -> None:
    """Show who changed what and when, the newest change first.

    \b
    nightcrew mem log
    nightcrew mem log -p core.md
    """
    found = door.ask("mem", "log", {"path": path, "limit": number, "patch": patch, "before": before}, reads=True)
    while len(found["changes"]) < number and found.get("before"):  # an answer has fewer with patches
        rest = {"path": path, "limit": number - len(found["changes"]), "patch": patch, "before": found["before"]}
        more = door.ask("mem", "log", rest, reads=True)
        found = {"changes": found["changes"] + more["changes"], "before": more.get("before")}
    if as_json:
        common.print_json(**found)
        return
    if path is not None and not found["changes"]:
        _say_none(path)
    for change in found["changes"]:
        click.echo(printing.change(change, time.time()))
        if patch:
            _indented(change)
    if not found["changes"]:
        common.say("nothing was changed")
    if found.get("before"):
        again = " ".join(filter(None, ("nightcrew mem log", "-p" if patch else "", one_line(path or ""), f"--before {found['before']}")))
        common.say(f"there are older ones; next: {again}")


def _say_none(path: str) -> None:
    there = [one["path"] for one in door.ask("mem", "ls", {"prefix": path}, reads=True)["entries"]]
    if path not in there:
        raise NotFound("nothing is there, and nothing was", on=path, hint="nightcrew mem ls")
    common.say(f"no change of {one_line(path)} was seen yet")


def _indented(change: dict[str, Any]) -> None:
    for line in str(change.get("patch") or "").split("\n"):
        click.echo(f"    {escaped(line)}".rstrip())
