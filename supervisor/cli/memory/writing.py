"""`nightcrew mem put`, `rm`, `restore`, `prune`, and what a person decides about what agents wrote."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

import click

from memory.layout import NOTE_MAX
from supervisor.cli import common
from supervisor.cli.memory import door, printing
from supervisor.cli.memory.completing import archived_path, note_path, waiting_path
from supervisor.core.errors import NotFound, UsageError, one_line

_path = click.argument("path", shell_complete=note_path)


@click.command()
@_path
@click.argument("files", metavar="[FILE | -]", type=click.Path(), nargs=-1)
@click.option("--text", metavar="TEXT", help="The text itself.")
@click.option("--if-version", metavar="V", help="Only if the file is still this version; else both are kept.")
@common.json_option
def put(path: str, files: tuple[str, ...], text: str | None, if_version: str | None, as_json: bool) -> int:
    """Write FILE, TEXT, or what comes by stdin, to PATH. Prints its version; where it was kept aside as a conflict the exit code is 6.

    \b
    nightcrew mem put semantic/build.md notes.md
    nightcrew mem put semantic/port.md --text "The server takes port 8080."
    echo '{"text": "the mirror was down"}' | nightcrew mem put episodic
    """
    if len(files) + (text is not None) > 1:
        raise UsageError("more than one text", on=" ".join(files), why="a note is one file or one text", hint=_how(path))
    text = text if text is not None else _text(path, files[0] if files else "-")
    if path.rstrip("/") == "episodic":
        return _append(text, as_json)
    return _written(door.ask("mem", "put", {"path": path, "text": text, "if_version": if_version}), as_json)


def _how(path: str) -> str:
    """What to type instead."""
    return f"nightcrew mem put {path} FILE with the name of a file; --text TEXT gives a text, - stdin"


def _text(path: str, file: str) -> str:
    if file == "-":
        data = sys.stdin.buffer.read(NOTE_MAX + 1)
    else:
        try:
            with click.open_file(os.fspath(file), "rb") as opened:
                data = opened.read(NOTE_MAX + 1)
        except OSError as error:
            kept, hint = f"{path} as it is", _how(path)
            raise NotFound("cannot read", on=file, why=error.strerror or str(error), kept=kept, hint=hint) from None
    if len(data) > NOTE_MAX:
        raise UsageError("it is too long", on=file, why=f"at most {NOTE_MAX} bytes", hint="one fact a file")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise UsageError(
            "it is not text", on=file, why="notes are UTF-8", hint=f"iconv -t UTF-8 {file} | nightcrew mem put {path} -"
        ) from None


def _append(text: str, as_json: bool) -> int:
    found = door.ask("mem", "append", {"text": text})
    if as_json:
        common.print_json(**found)
    else:
        click.echo(one_line(str(found["path"])))
    return 0


def _written(found: dict[str, Any], as_json: bool) -> int:
    if as_json:
        common.print_json(**found)
    else:
        click.echo(one_line(str(found["version"])))
    if found.get("quarantined"):
        common.say(f"{one_line(found['path'])} waits for a person: nightcrew mem approve {one_line(found['path'])}")
    if found.get("conflict"):
        common.say(f"{_why_beside(str(found['path']))}: what you wrote is kept as {one_line(found['conflict'])}")
        return 6
    return 0


def _why_beside(path: str) -> str:
    there = [one["path"] for one in door.ask("mem", "ls", {"prefix": path}, reads=True)["entries"]]
    return "it had changed meanwhile" if path in there else "nothing is there"


@click.command()
@_path
@common.json_option
def rm(path: str, as_json: bool) -> None:
    """Move a file to the archive; mem restore brings it back.

    \b
    nightcrew mem rm semantic/old.md
    """
    found = door.ask("mem", "rm", {"path": path})
    if as_json:
        common.print_json(**found)
    else:
        click.echo(one_line(path))


@click.command()
@click.argument("path", shell_complete=archived_path)
@click.option("--version", help="A version that mem log names (default: what the archive has).")
@common.json_option
def restore(path: str, version: str | None, as_json: bool) -> int:
    """Bring a file back from the archive, or as it was at an older version.

    \b
    nightcrew mem restore semantic/old.md
    nightcrew mem restore core.md --version 3f2a9c0011d4e5f6
    """
    return _written(door.ask("mem", "restore", {"path": path, "version": version}), as_json)


@click.command()
@click.option("-y", "--yes", is_flag=True, help="Do it; without it, only what would go is shown.")
@common.json_option
def prune(yes: bool, as_json: bool) -> None:
    """Show what would go to the archive and why: expired, superseded, about files that are gone, unread, beyond a budget.

    \b
    nightcrew mem prune
    nightcrew mem prune --yes
    """
    found = door.ask("mem", "prune", {"dry": not yes})
    if as_json:
        common.print_json(**found)
        return
    for one in found["pruned"]:
        click.echo(f"{one_line(one['path'])}  {one_line(one['why'])}")
    for one in found["kept"]:
        common.say(f"kept {one_line(one['path'])}: {one_line(one['why'])}")
    for remark in found["remarks"]:
        common.say(one_line(remark))
    if found["pruned"] and not yes:
        common.say("nothing was moved; next: nightcrew mem prune --yes")
    if not found["pruned"]:
        common.say("nothing to prune")


@click.command()
@common.json_option
def quarantine(as_json: bool) -> None:
    """List what agents wrote that no other agent reads before you approve it.

    \b
    nightcrew mem quarantine
    """
    found = door.ask("mem", "quarantine", {}, reads=True)
    if as_json:
        common.print_json(**found)
        return
    if found["entries"]:
        click.echo(printing.entries(found["entries"], time.time()))
    if not found["entries"]:
        common.say("nothing waits for you")


@click.command()
@click.argument("path", shell_complete=waiting_path)
@click.option("--version", metavar="V", help="The version that is meant (default: the one that mem show showed last).")
@click.option("--reject", is_flag=True, help="Move it to the archive instead.")
@common.json_option
def approve(path: str, version: str | None, reject: bool, as_json: bool) -> int:
    """Let others read what waits for you under PATH; see it first with mem show quarantine/PATH. What its agent changed since is refused.

    \b
    nightcrew mem approve procedural/release.md
    nightcrew mem approve procedural/release.md --reject
    """
    found = door.ask("mem", "reject" if reject else "approve", {"path": path, "version": version})
    if not reject:
        return _written(found, as_json)
    if as_json:
        common.print_json(**found)
    else:
        printing.text(path)
    return 0
