"""`nightcrew mem export` and `import`."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import click

from memory.layout import Kind, kind_of
from supervisor.cli import common
from supervisor.cli.memory import archive, door
from supervisor.cli.memory.archive import Archive, Member
from supervisor.core.errors import NotFound, Refused, one_line
from supervisor.core.units import rfc3339
from supervisor.host.paths import home

_KEPT = ("version", "author", "epoch", "at", "action")
"""What is handed on of the newest change of a file."""


@click.command()
@click.argument("file", type=click.Path())
@common.json_option
def export(file: str, as_json: bool) -> None:
    """Write all files, and who wrote them, into one archive (tar, gzip): FILE, or - for stdout.

    \b
    nightcrew mem export shop-memory.tar.gz
    nightcrew mem export - | ssh other 'cd shop && nightcrew mem import -'
    """
    found = _collected()
    if file == "-":
        archive.write(found, sys.stdout.buffer)
    else:
        _write(found, Path(file))
    paths = [one.path for one in found.members]
    if as_json and file != "-":
        common.print_json(file=file, files=paths)
    else:
        common.say(f"{archive.files(paths)} exported")


def _write(found: Archive, file: Path) -> None:
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        with draft.open("xb") as opened:
            os.fchmod(opened.fileno(), 0o600)
            archive.write(found, opened)
        draft.replace(file)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise NotFound("cannot write", on=str(file), why=error.strerror or str(error)) from None


def _collected() -> Archive:
    """From the files themselves: an answer of the supervisor has no more than a screen needs."""
    from supervisor.cli.memory import local

    if door.is_agent():
        raise Refused("only a person may do that", on="nightcrew mem export", hint="the files are in $NIGHTCREW_MEMORY")
    where, project = home(), door.project()
    members, told = [], {}
    for path, text, mtime, newest in local.everything(where, project):
        members.append(Member(path, text, mtime))
        told[path] = {name: newest[name] for name in _KEPT} if newest else {}
    of = {"schema": 1, "of": door.of_project(where, project), "at": rfc3339(time.time())}
    return Archive(tuple(members), {**of, "files": told})


@click.command(name="import")
@click.argument("file", type=click.Path())
@common.json_option
def import_(file: str, as_json: bool) -> int:
    """Take the files of an archive into this repository's memory: FILE, or - for stdin. A file that is here already and is not the same
    stays, and the other one is kept beside it; the exit code is 6 then.

    \b
    nightcrew mem import shop-memory.tar.gz
    """
    found = _read(file)
    shape: dict[str, Any] = {"imported": [], "same": [], "conflicts": []}
    for one in found.members:
        _take(one, shape)
    return _say(shape, found, as_json)


def _read(file: str) -> Archive:
    if file == "-":
        return archive.read(sys.stdin.buffer, "stdin")
    try:
        with Path(file).open("rb") as opened:
            return archive.read(opened, file)
    except OSError as error:
        hint = "FILE is what nightcrew mem export FILE wrote, - is stdin"
        raise NotFound("cannot read", on=file, why=error.strerror or str(error), hint=hint) from None


def _take(one: Member, shape: dict[str, Any]) -> None:
    answer = door.ask("mem", "import", {"path": one.path, "text": one.text})
    if answer["conflict"]:
        shape["conflicts"].append({"path": one.path, "kept": answer["conflict"]})
    else:
        shape["same" if answer["same"] else "imported"].append(one.path)


def _say(shape: dict[str, Any], found: Archive, as_json: bool) -> int:
    if as_json:
        common.print_json(**shape, of=found.provenance.get("of"), at=found.provenance.get("at"))
    for one in shape["conflicts"]:
        common.say(f"{one['path']} is not the same here: the other one is kept as {one_line(one['kept'])}")
    conflicts = len(shape["conflicts"])
    told = [path for path in shape["imported"] if kind_of(path) in (Kind.CORE, Kind.PROCEDURAL)]
    if told:
        common.say(f"these tell agents what to do, so look at them: {', '.join(told)}")
    common.say(
        f"{archive.files(shape['imported'])} imported, {len(shape['same'])} were here, {conflicts} conflict{'s' if conflicts != 1 else ''}"
    )
    return 6 if shape["conflicts"] else 0
