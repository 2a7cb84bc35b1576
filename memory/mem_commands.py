"""`nightcrew mem` and its subverbs."""

from __future__ import annotations

import contextlib
import gzip
import io
import itertools
import json
import os
import sys
import tarfile
import time
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import click

from memory import local, reports
from memory import local as door
from memory.rescan import Deep
from supervisor.client import common
from supervisor.client.resolving import NEWEST, any_name
from supervisor.host import untrusted_fs
from supervisor.host.paths import home
from supervisor.kernel.ansi import escaped
from supervisor.kernel.errors import NotFound, Refused, TimedOut, UsageError, one_line
from supervisor.kernel.format import duration, many, rfc3339
from supervisor.kernel.path_globs import CORE_MAX, NOTE_MAX, Kind, kind_of

# Crew
# ----
# `nightcrew mem wait`, `leases` and `graph`.


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
        found = local.ask("mem", "wait", {**args, "timeout_s": piece}, timeout_s=piece + LATE_S)
        if not found["timed_out"]:
            break
        if ends_at is not None and time.monotonic() >= ends_at:
            raise TimedOut("nothing changed", on=glob, why=f"in {duration(timeout)}")
        args["since"] = found["number"]
    if as_json:
        common.print_json(**found)
        return
    for change in found["changes"]:
        click.echo(local.change(change, time.time()))


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
        ended = local.ask("lease", "release", {"fences": list(fences), "why": why or "by nightcrew mem leases"})
        if as_json:
            common.print_json(**ended)
        for one in [] if as_json else ended["released"]:
            click.echo(one_line(f"{one['task']} no longer has {one['glob']}"))
        return
    found = local.ask("lease", "ls", {})
    if as_json:
        common.print_json(**found)
        return
    wide = min(32, max((len(one_line(one["glob"])) for one in found["leases"]), default=0))
    for one in found["leases"]:
        click.echo(local.lease(one, wide, time.time()))
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

    found = local.ask("mem", "graph", {})
    if as_json:
        common.print_json(**found)
    elif as_dot:
        click.echo(reports.dot(found))
    else:
        for line in reports.wait_graph_lines(found, time.time()):
            click.echo(line)
        if not found["waits"]:
            common.say("nobody waits")


# Archive
# -------
# A memory as one file, to move it to another machine: how it is written, and how one that may hold anything is read.
#
#     provenance.json     who wrote each file last, when, and what its version is
#     memory/PATH         each file
#
# Nothing in a file that comes from elsewhere is believed: everything is looked at before anything is written, members are regular
# files at paths at which a note may lie, and neither their number nor their size can fill this machine's memory.


PROVENANCE = "provenance.json"
PREFIX = "memory/"
TOTAL_MAX = 256 * 2**20
"""Bytes of all of it, once it is unpacked."""
FILES_MAX = 20_000
DAY_MAX = 16 * 2**20
"""Bytes of the episodes of one day."""


@dataclass(frozen=True, slots=True)
class Member:
    """One file."""

    path: str
    text: str
    at: float
    """When it was last changed."""


@dataclass(frozen=True, slots=True)
class Archive:
    """A whole memory."""

    members: tuple[Member, ...]
    provenance: Mapping[str, Any] = field(default_factory=dict)


def write(archive: Archive, into: IO[bytes]) -> None:
    """The same archive gives the same bytes."""
    with gzip.GzipFile(filename="", mode="wb", fileobj=into, mtime=0) as packed, tarfile.open(fileobj=packed, mode="w|") as tar:
        told = json.dumps(archive.provenance, indent=2, sort_keys=True).encode()
        for name, data, at in ((PROVENANCE, told, 0.0), *((PREFIX + one.path, one.text.encode(), one.at) for one in archive.members)):
            info = tarfile.TarInfo(name)
            info.size, info.mtime, info.mode = len(data), int(at), 0o600
            tar.addfile(info, io.BytesIO(data))


def read(stream: IO[bytes], name: str) -> Archive:
    """All of it, checked. Raises Refused, with the member, for what `write` would never have written."""
    try:
        source: Any = _Bounded(gzip.GzipFile(fileobj=stream), name)
        with tarfile.open(fileobj=source, mode="r|") as tar:
            return _read_archive(tar, name)
    except (tarfile.TarError, OSError, EOFError, zlib.error, ValueError, OverflowError) as error:
        raise _no(name, f"it cannot be read: {error}") from None


def _read_archive(tar: tarfile.TarFile, name: str) -> Archive:
    found: dict[str, Member] = {}
    provenance: Mapping[str, Any] = {}
    for info in tar:
        if len(found) >= FILES_MAX:
            raise _no(name, f"it has more than {FILES_MAX} files")
        if not info.isreg() or info.issparse():
            raise _no(info.name, "it is no regular file")
        path = info.name.removeprefix(PREFIX)
        most = NOTE_MAX * 64 if info.name == PROVENANCE else _most(info.name, path)
        if info.size > most:
            raise _no(info.name, f"it has {info.size} bytes, at most {most} are taken")
        text = _text_archive(tar, info)
        if info.name == PROVENANCE:
            provenance = _object(text)
        elif path in found:
            raise _no(info.name, "it is there twice")
        else:
            found[path] = Member(path, text, float(info.mtime))
    return Archive(tuple(found.values()), provenance)


def _most(name: str, path: str) -> int:
    kind = kind_of(path) if name.startswith(PREFIX) else None
    if kind is None:
        raise _no(name, "no file of a memory is called so")
    return {Kind.CORE: CORE_MAX, Kind.EPISODIC: DAY_MAX}.get(kind, NOTE_MAX)


def _text_archive(tar: tarfile.TarFile, info: tarfile.TarInfo) -> str:
    opened = tar.extractfile(info)
    data = opened.read() if opened is not None else b""
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise _no(info.name, "it is not text") from None


def _object(text: str) -> Mapping[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise _no(PROVENANCE, "it is not JSON") from None
    return found if isinstance(found, dict) else {}


def _no(on: str, why: str) -> Refused:
    return Refused("not imported", on=on[:200], why=why, kept="the memory as it was")


class _Bounded:
    """A stream that ends in Refused: a small file can unpack to one of any size, and so can the name of a member."""

    def __init__(self, source: Any, name: str) -> None:
        self._source, self._name, self._left = source, name, TOTAL_MAX

    def read(self, size: int = -1) -> bytes:
        data: bytes = self._source.read(min(size, self._left + 1) if size >= 0 else self._left + 1)
        self._left -= len(data)
        if self._left < 0:
            raise _no(self._name, f"it has more than {TOTAL_MAX} bytes")
        return data


# Moving
# ------
# `nightcrew mem export` and `import`.


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
        write(found, sys.stdout.buffer)
    else:
        _write(found, Path(file))
    paths = [one.path for one in found.members]
    if as_json and file != "-":
        common.print_json(file=file, files=paths)
    else:
        common.say(f"{many(len(paths), 'file')} exported")


def _write(found: Archive, file: Path) -> None:
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        with draft.open("xb") as opened:
            os.fchmod(opened.fileno(), 0o600)
            write(found, opened)
        draft.replace(file)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise NotFound("cannot write", on=str(file), why=error.strerror or str(error)) from None


def _collected() -> Archive:
    """From the files themselves: an answer of the supervisor has no more than a screen needs."""
    from memory import local

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
        return read(sys.stdin.buffer, "stdin")
    try:
        with Path(file).open("rb") as opened:
            return read(opened, file)
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
    common.say(f"{many(len(shape['imported']), 'file')} imported, {len(shape['same'])} were here, {many(conflicts, 'conflict')}")
    return 6 if shape["conflicts"] else 0


# Completing
# ----------
# Completion of the paths of a memory: by the files that are there, so no supervisor is asked.


ENTRIES_MAX = 20_000
"""Looks of one completion, 50 ms: the next key does not wait."""


def note_path(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:  # noqa: ARG001 - click's signature
    """One whose name no note can have is not offered: it could drive the terminal."""
    return _below(local.memory_files(), incomplete)


def waiting_path(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:  # noqa: ARG001 - click's signature
    """As `note_path`, of what waits for a person."""
    return _beside("quarantine", incomplete)


def archived_path(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:  # noqa: ARG001 - click's signature
    """As `note_path`, of what was removed; and of what is there, since an older version of that can be restored."""
    return sorted({*_beside("archive", incomplete), *_below(local.memory_files(), incomplete)})[:NEWEST]


def _beside(folder: str, incomplete: str) -> list[str]:
    files = local.memory_files()
    return _below(files.parent / folder, incomplete) if files is not None and not local.is_agent() else []


def _below(top: Path | None, incomplete: str) -> list[str]:
    paths = (path for path in _files(top) if kind_of(path) and path.startswith(incomplete)) if top is not None else iter(())
    return sorted(itertools.islice(paths, NEWEST))


def _files(top: Path) -> Iterator[str]:
    """Every name below a directory that an agent may write, through the door for such: nothing is opened but directories, no link is
    followed, and a tree of any size costs no more than ENTRIES_MAX looks."""
    with (
        contextlib.suppress(OSError),
        contextlib.closing(untrusted_fs.entries(top.parent, top.name, leave_out=Deep.below(top.name))) as entries,
    ):
        for folder, _, entry in itertools.islice(entries, ENTRIES_MAX):
            if not entry.is_dir(follow_symlinks=False):  # what is no file can be removed by its name
                yield f"{folder}/{entry.name}".partition("/")[2]


# Reading
# -------
# `nightcrew mem ls`, `show`, `search`, `brief` and `log`.


@click.command()
@click.argument("prefix", required=False, shell_complete=note_path)
@common.json_option
def ls(prefix: str | None, as_json: bool) -> None:
    """List the files, or those below PREFIX, such as semantic.

    \b
    nightcrew mem ls
    nightcrew mem ls procedural --json
    """
    found = local.ask("mem", "ls", {"prefix": prefix}, reads=True)
    if as_json:
        common.print_json(**found)
    elif not found["entries"]:
        below = f"nothing below {one_line(prefix)}; next: nightcrew mem ls" if prefix else ""
        common.say(below or "nothing is known yet; next: nightcrew mem put semantic/NAME.md")
    else:
        click.echo(local.entries(found["entries"], time.time()))
    if not as_json:
        local.left_out(found)
        where = local.memory_files() or (None if local.is_agent() else home().memory(local.project()))
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
    found = local.ask("mem", "show", {"path": path, "version": version}, reads=True)
    if as_json:
        common.print_json(**found)
    else:
        local.text(found["text"])
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
    found = local.ask("mem", "search", {"query": " ".join(words), "paths": list(paths), "limit": number})
    if as_json:
        common.print_json(**found)
        return
    for hit in found["hits"]:
        click.echo(local.hit(hit))
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
    named = common.task_named(home(), task).id if task and not local.is_agent() else task
    found = local.ask("mem", "brief", {"task": named})
    if as_json:
        common.print_json(**found)
        return
    local.text("\n\n".join(filter(None, (found["prefix"], found["rest"]))))
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
    found = local.ask("mem", "log", {"path": path, "limit": number, "patch": patch, "before": before}, reads=True)
    while len(found["changes"]) < number and found.get("before"):  # an answer has fewer with patches
        rest = {"path": path, "limit": number - len(found["changes"]), "patch": patch, "before": found["before"]}
        more = local.ask("mem", "log", rest, reads=True)
        found = {"changes": found["changes"] + more["changes"], "before": more.get("before")}
    if as_json:
        common.print_json(**found)
        return
    if path is not None and not found["changes"]:
        _say_none(path)
    for change in found["changes"]:
        click.echo(local.change(change, time.time()))
        if patch:
            _indented(change)
    if not found["changes"]:
        common.say("nothing was changed")
    if found.get("before"):
        again = " ".join(filter(None, ("nightcrew mem log", "-p" if patch else "", one_line(path or ""), f"--before {found['before']}")))
        common.say(f"there are older ones; next: {again}")


def _say_none(path: str) -> None:
    there = [one["path"] for one in local.ask("mem", "ls", {"prefix": path}, reads=True)["entries"]]
    if path not in there:
        raise NotFound("nothing is there, and nothing was", on=path, hint="nightcrew mem ls")
    common.say(f"no change of {one_line(path)} was seen yet")


def _indented(change: dict[str, Any]) -> None:
    for line in str(change.get("patch") or "").split("\n"):
        click.echo(f"    {escaped(line)}".rstrip())


# Writing
# -------
# `nightcrew mem put`, `rm`, `restore`, `prune`, and what a person decides about what agents wrote.


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
    return _written(local.ask("mem", "put", {"path": path, "text": text, "if_version": if_version}), as_json)


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
    found = local.ask("mem", "append", {"text": text})
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
    there = [one["path"] for one in local.ask("mem", "ls", {"prefix": path}, reads=True)["entries"]]
    return "it had changed meanwhile" if path in there else "nothing is there"


@click.command()
@_path
@common.json_option
def rm(path: str, as_json: bool) -> None:
    """Move a file to the archive; mem restore brings it back.

    \b
    nightcrew mem rm semantic/old.md
    """
    found = local.ask("mem", "rm", {"path": path})
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
    return _written(local.ask("mem", "restore", {"path": path, "version": version}), as_json)


@click.command()
@click.option("-y", "--yes", is_flag=True, help="Do it; without it, only what would go is shown.")
@common.json_option
def prune(yes: bool, as_json: bool) -> None:
    """Show what would go to the archive and why: expired, superseded, about files that are gone, unread, beyond a budget.

    \b
    nightcrew mem prune
    nightcrew mem prune --yes
    """
    found = local.ask("mem", "prune", {"dry": not yes})
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
    found = local.ask("mem", "quarantine", {}, reads=True)
    if as_json:
        common.print_json(**found)
        return
    if found["entries"]:
        click.echo(local.entries(found["entries"], time.time()))
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
    found = local.ask("mem", "reject" if reject else "approve", {"path": path, "version": version})
    if not reject:
        return _written(found, as_json)
    if as_json:
        common.print_json(**found)
    else:
        local.text(path)
    return 0


# Mem
# ---
# `nightcrew mem` and its subverbs, which are in `memory.mem_commands`.


@click.group(name="mem")
def command() -> None:
    """What the agents of this repository know together: files that you can read and edit; docs/memory.md.

    \b
    nightcrew mem ls
    nightcrew mem search flaky payment tests
    """


for _verb in (ls, show, search, log, brief):
    command.add_command(_verb)
for _verb in (put, rm, restore, prune, quarantine, approve):
    command.add_command(_verb)
for _verb in (wait, leases, graph, export, import_):
    command.add_command(_verb)
