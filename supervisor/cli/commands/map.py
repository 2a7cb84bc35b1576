"""`nightcrew map`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from supervisor.cli import common
from supervisor.cli.isolation import network_option
from supervisor.cli.mapping import prompts
from supervisor.cli.names import snapshot_name
from supervisor.core.analysis.types import many
from supervisor.core.errors import NotFound, Refused, UsageError
from supervisor.core.states import TaskClass
from supervisor.host.paths import home

if TYPE_CHECKING:
    from supervisor.cli.mapping.sources import Blob, Source
    from supervisor.core.spec import TaskSpec
    from supervisor.daemon.submit import Workplace


@dataclass(frozen=True, slots=True)
class Asked:
    """The command line, as click read it."""

    words: tuple[str, ...]
    globs: tuple[str, ...]
    lines: str | None
    jsonl: str | None
    from_command: str | None
    call: str | None
    agents: int
    out: Path | None
    retries: int
    timeout: float
    name: str | None
    repo: Path
    base: str | None
    fresh: bool
    detach: bool
    dry_run: bool
    as_json: bool
    task_class: str
    snapshot: str | None
    sandbox: int | None
    network: bool | tuple[str, ...] | None
    more: prompts.Asked
    """Of prompts, plans and merges."""


@click.command(context_settings={"allow_interspersed_args": False})
@click.argument("words", nargs=-1, metavar="[--] CMD...", type=click.UNPROCESSED)
@click.option("--files", "globs", multiple=True, metavar="GLOB", help="Files of the commit, such as 'src/**/*.py'; may be repeated.")
@click.option("--lines", metavar="FILE", help="The lines of a file that are not empty; - is stdin.")
@click.option("--jsonl", metavar="FILE", help="The objects of a file, one a line; - is stdin.")
@click.option("--from-command", metavar="CMD", help="The lines that a shell command prints.")
@click.option("--call", metavar="MODULE:FUNCTION", help="Call this Python function of the repository with each item.")
@click.option("-n", "--agents", type=click.IntRange(1, 1000), default=8, show_default=True, help="How many workers.")
@click.option("-o", "--out", type=click.Path(path_type=Path, dir_okay=False), help="Where to write the results (default: with the map).")
@click.option("--retries", type=click.IntRange(0, 100), default=1, show_default=True, help="How often an item that failed is tried again.")
@click.option("--timeout", type=common.Duration(), default="10m", show_default=True, help='Of each item: "90s", "10m".')
@click.option("--name", help="What it is called (default: what is done).")
@click.option("-C", "--repo", type=click.Path(path_type=Path), default=Path(), help="The repository to work on (default: here).")
@click.option("--base", help="The commit to work on (default: the project's base, else HEAD).")
@click.option("--class", "task_class", type=click.Choice([str(item) for item in TaskClass]), default="batch", show_default=True)
@click.option("--snapshot", shell_complete=snapshot_name, help="Start the workers from this snapshot.")
@click.option("--sandbox", type=click.IntRange(0, 2), help="Isolation tier of the workers (default: 1 where that works).")
@network_option
@prompts.options
@click.option("--fresh", is_flag=True, help="Forget the results of before: do every item again.")
@click.option("-d", "--detach", is_flag=True, help="Do not follow it; the same command again does.")
@click.option("--dry-run", is_flag=True, help="Show what would be done and how long it takes, and do nothing.")
@common.json_option
def command(**typed: Any) -> int:
    """Do the same with every item of a workload, by many workers at once, and write the results in the order of the items.

    An item is put into the command where it says {file}, {line} or {item}; {index} is its number, and {name} what a JSON object has
    under that name. No shell is around it. The result is the last line of its output if that is JSON, else all of it as text.

    The same command again does only what is missing, failed or has changed. Ctrl-C only stops following. Exit code 1 when an item
    failed; the others are done all the same.

    \b
    nightcrew map --files 'src/**/*.py' --agents 50 -- wc -l {file}
    nightcrew map --lines urls.txt --call mytools.fetch:size --out out.jsonl
    """
    from supervisor.cli.mapping import following

    more = prompts.Asked(**{name: typed.pop(name) for name in prompts.Asked.__dataclass_fields__})
    asked = Asked(**typed, more=more)
    _refuse(asked)
    prepared = _prepared(asked)
    where = home()
    if asked.dry_run:
        return following.dry_run(where, prepared, as_json=asked.as_json)
    return following.run(where, prepared, detach=asked.detach, as_json=asked.as_json)


def _refuse(asked: Asked) -> None:
    sources = [bool(asked.globs), asked.lines is not None, asked.jsonl is not None, asked.from_command is not None]
    if sum(sources) != 1:
        raise UsageError("which items?", why="give one of --files, --lines, --jsonl and --from-command")
    if sum([bool(asked.words), asked.call is not None, asked.more.prompt is not None]) != 1:
        raise UsageError("what is to be done with them?", why="give a command behind --, --call or --prompt")
    prompts.refuse(asked.more, network=asked.network is not False)
    if asked.call and ":" not in asked.call:
        raise UsageError("not a function", on=asked.call, why="it is MODULE:FUNCTION")


def _prepared(asked: Asked) -> Any:
    """What will be handed over. Raises what finding the repository and the items raises."""
    from supervisor.cli.mapping import sources
    from supervisor.cli.mapping.following import Prepared
    from supervisor.daemon import submit
    from supervisor.daemon.mapping import book
    from worktrees.repository import resolve

    place = submit.workplace(asked.repo)
    base = asked.base if asked.base is not None else place.project.base or "HEAD"
    blobs = sources.tree(place.repository, resolve(place.repository, base))
    source = _source(asked, blobs)
    if not source.items:
        raise _nothing(asked, len(blobs), base)
    what = _what(asked, source)
    named = dict(sources.named_files(asked.words, blobs, asked.call or ""))
    definition = {**{name: value for name, value in what.items() if name not in prompts.NOT_THE_WORK}, "named": named}
    name = book.map_id(place.repository.project, source.words, definition)
    title = (asked.name or (asked.call or asked.more.prompt or " ".join(asked.words))[:200]).encode("utf-8", "backslashreplace").decode()
    if asked.more.plan:
        what = {**what, **_plan(asked, place, base, name, source)}
    about = {
        "title": title, "what": what, "source": source.words,
        "retries": asked.retries, "agents": asked.agents, "out": os.fspath(_target(asked.out)) if asked.out else "",
    }  # fmt: skip
    return Prepared(name, about, source.items, _submission(asked, place, base, name, title), asked.fresh, place.repository.notes)


def _nothing(asked: Asked, files: int, base: str) -> NotFound:
    """Return the error for a workload without items, which says what was looked at."""
    if asked.globs:
        why = f"none of the {files} plain files of {base} matches, by its path from the top of the repository"
        hint = f"git ls-tree -r --name-only {base}, or commit what is new"
        return NotFound("no file matches", on=" ".join(asked.globs), why=why, kept="nothing was started", hint=hint)
    on = next(filter(None, (asked.lines, asked.jsonl, asked.from_command)))
    return NotFound("no item in", on=on, why="it has no line that is not empty", kept="nothing was started")


def _plan(asked: Asked, place: Workplace, base: str, name: str, source: Source) -> dict[str, Any]:
    """The groups of the items: those that the map has, or those that an agent makes now; none in a dry run that finds none."""
    from supervisor.cli.mapping import planning

    known = {} if asked.fresh else planning.keys(home(), name, source.items)
    if known or asked.dry_run:
        return known
    said = asked.more.prompt or asked.call or " ".join(asked.words)
    key = None if asked.fresh else f"map-plan-{name}-{planning.digest(source.items)}"
    return planning.make(home(), place, planning.Plan(base, _agent(asked, place, base), source.items, said, key))


def _source(asked: Asked, blobs: list[Blob]) -> Source:
    from supervisor.cli.mapping import sources

    if asked.globs:
        return sources.of_files(blobs, asked.globs)
    if asked.lines is not None:
        return sources.of_lines(asked.lines)
    return sources.of_objects(asked.jsonl) if asked.jsonl is not None else sources.of_command(asked.from_command or "", asked.repo)


def _what(asked: Asked, source: Source) -> dict[str, Any]:
    merge = {"merge": True} if asked.more.merge else {}
    if asked.more.prompt is not None:
        return {**prompts.what(asked.more, source.form, asked.retries), **merge}
    common = {"form": source.form, "timeout_s": asked.timeout, **merge}
    if asked.call:
        return {"executor": "call", "call": asked.call, **common}
    return {"executor": "command", "argv": [os.fsdecode(os.fsencode(word)) for word in asked.words], **common}


def _target(path: Path) -> Path:
    """Where the results go, found out now whether they can. Raises Refused."""
    path = path.absolute()
    if path.is_dir() or not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        raise Refused("cannot write the results", on=str(path), why=f"{path.parent} is no directory that can be written")
    return path


def _agent(asked: Asked, place: Workplace, base: str) -> TaskSpec:
    """The task of an agent, but for its prompt. How long it may take is its kind's to say, unless the command does."""
    options = {name: getattr(asked, name) for name in ("task_class", "retries", "snapshot", "sandbox", "network")}
    said = click.get_current_context().get_parameter_source("timeout") is not ParameterSource.DEFAULT
    return prompts.agent(asked.more, place, base, {**options, "timeout": asked.timeout if said else None})


def _submission(asked: Asked, place: Workplace, base: str, name: str, title: str) -> Any:
    from agents.kinds import kinds
    from supervisor.core.spec import RunSpec, TaskSpec
    from supervisor.daemon import submit
    from supervisor.daemon.mapping.desk import MAP

    if asked.more.by_agents:
        return submit.submission(
            RunSpec(title=f"map: {title}", tasks=(_agent(asked, place, base),), base=base), place, None, None, os.environ
        )
    kind = prompts.WORKER if asked.more.prompt is not None else "map-worker"
    worker = TaskSpec(
        name="w",
        title=f"map {title}"[:200],
        kind=kind,
        argv=kinds()[kind].program,
        params={MAP: name},
        task_class=TaskClass(asked.task_class),
        retries=100,
        snapshot=asked.snapshot or "",
        sandbox=asked.sandbox,
        network=asked.network if asked.network is not None else True,
    )
    spec = RunSpec(title=f"map: {title} ({many(asked.agents, 'worker')})", tasks=(worker,), base=base)
    return submit.submission(spec, place, None, None, os.environ)
