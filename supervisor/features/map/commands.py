"""`nightcrew map`."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click
from click.core import ParameterSource
from rich.console import Group
from rich.live import Live
from rich.text import Text

from supervisor.client import common, terminal
from supervisor.client.resolving import kind_name, snapshot_name
from supervisor.features.map.open_map import Item
from supervisor.features.map.prompts import MAX_TOKENS, NAMES, PromptTerms, check_fields, fields
from supervisor.host.paths import home, settings_file
from supervisor.kernel.errors import ConfigError, NotFound, Refused, ToolFailed, UsageError, one_line
from supervisor.kernel.format import age, duration, many
from supervisor.kernel.states import TaskClass
from supervisor.views import status
from worktrees.repository import File, Repository, files, resolve

if TYPE_CHECKING:
    from supervisor.client.submit import Workplace
    from supervisor.kernel.gateway_settings import GatewaySettings
    from supervisor.kernel.spec import TaskSpec


# Prompts
# -------
# `nightcrew map --prompt`: what is typed for it, read and checked before anything runs.


F = TypeVar("F", bound=Callable[..., Any])
TEMPLATE_MAX = 2**20
"""Bytes."""
AT_ONCE = 8
"""Calls of one worker under way: the gateway holds what a limit cannot take now, so more do no harm and fewer may leave it unused."""
GROUP = 1000
"""Items of one worker that asks in batches."""
NOT_THE_WORK = ("timeout_s", "at_once", "asks", "each", "group")
"""Keys of what is done with an item that change how and not what: with others the map is the same."""
LEFT_SHOWN = 10
WORKER = "map-prompt"
"""Kind of the workers that ask models themselves."""
_OPTIONS = (
    click.option("--prompt", metavar="TEXT|@FILE", help="Ask a model about each item: {content} is a file's text. With --kind: an agent."),
    click.option("--schema", type=click.Path(path_type=Path, dir_okay=False), help="JSON schema that each answer must match."),
    click.option("--model", help="The model (default: the gateway's usual one, or the agent's own choice)."),
    click.option("--max-tokens", type=click.IntRange(1), default=MAX_TOKENS, show_default=True, help="Of one answer."),
    click.option("--kind", shell_complete=kind_name, help="An agent of this kind works on each shard, in a worktree of its own."),
    click.option("--shard", type=click.IntRange(1), default=1, show_default=True, help="Items of each agent's task."),
    click.option("--plan", is_flag=True, help="First an agent splits the items by meaning into parts that do not touch each other."),
    click.option("--economy", is_flag=True, help="Ask in batches, at half the price: an answer may take an hour, at most a day."),
    click.option("--merge", is_flag=True, help="Bring what the items changed into one branch, in their order."),
)


def options(function: F) -> F:
    """Those of `nightcrew map` that prompts, plans and merges have."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def refuse(asked: MapAsked) -> None:
    """Raises UsageError for what does not go together."""
    if asked.prompt is not None and asked.network is False:
        raise UsageError("not with --prompt", on="--network no", why="no model can be asked without a network")
    if asked.prompt is None:
        for name in ("schema", "model"):
            if getattr(asked, name) is not None:
                raise UsageError("not without --prompt", on=f"--{name}", why="there is no model to be asked")
        if asked.kind is not None and not asked.plan:
            raise UsageError("not without --prompt", on="--kind", why="a command needs no agent, except to split the work: --plan")
    elif asked.kind is None and asked.merge:
        raise UsageError("nothing to merge", why="a model that is asked changes no file", hint="add --kind for agents that do")
    if asked.economy and (asked.prompt is None or asked.by_agents):
        raise UsageError("only for prompts without --kind", on="--economy", why="a batch holds single calls of a model")
    if asked.economy and asked.plan:
        raise UsageError("not with --plan", on="--economy", why="a batch has items of any meaning")
    if asked.shard > 1 and not asked.by_agents:
        raise UsageError("not without --kind", on="--shard", why="workers choose their shards themselves")


def template(text: str) -> str:
    """What --prompt names. Raises ConfigError for a file that cannot be used."""
    if not text.startswith("@"):
        return text.encode("utf-8", "backslashreplace").decode()
    path = Path(text[1:])
    try:
        with path.open("rb") as file:
            data = file.read(TEMPLATE_MAX + 1)
        if len(data) > TEMPLATE_MAX:
            raise ValueError(f"it is larger than {TEMPLATE_MAX} bytes")
        return data.decode()
    except (OSError, ValueError) as error:
        raise ConfigError("cannot read the prompt", on=str(path), why=str(error)) from None


def what(asked: MapAsked, form: str) -> dict[str, Any]:
    """What is done with each item. Raises UsageError for a field that items do not have, ConfigError for a file."""
    from supervisor.features.map import prompts

    text = template(asked.prompt or "")
    known = (*NAMES, "index", *(["content"] if form == "file" and not asked.by_agents else []))
    if asked.by_agents and "content" in fields(text):
        raise UsageError("no such field", on="{content}", why="an agent has the files in its worktree", hint="say {file}")
    check_fields(text, known, open_ended=form == "jsonl")
    slots = 0 if asked.by_agents else _engine_slots(refuse_without_gateway(), asked)
    if slots and asked.economy:
        raise UsageError("no batches", on="--economy", why="an inference engine answers this model, and engines have none")
    schema = prompts.load(asked.schema) if asked.schema is not None else None
    terms = PromptTerms(text, schema, asked.model or "", asked.max_tokens)
    common = {"form": form, "terms": terms.to_shape(), "asks": asked.retries + 1}
    if asked.by_agents:
        return {"executor": "agents", "kind": asked.kind, "each": asked.shard, **common}
    return {"executor": "prompt", "at_once": slots or AT_ONCE, **common, **({"group": GROUP} if asked.economy else {})}


def merge_lines(merge: dict[str, Any] | None) -> Iterator[str]:
    """What a person is told of the merge."""
    if merge is None:
        return
    if merge["why"]:
        yield f"not merged: {merge['why']}"
        return
    if not merge["merged"]:
        yield "nothing was merged" if merge["left"] else "nothing to merge: no item changed a file"
    else:
        yield f"{many(merge['merged'], 'edit')} merged into the branch {merge['branch']}"
    for left in merge["left"][:LEFT_SHOWN]:
        files = f" in {', '.join(one_line(file) for file in left['files'][:3])}" if left["files"] else ""
        yield f"left out: {one_line(left['item'])}: {left['why']}{files}" + (
            f"; git diff {merge['branch']}...{left['ref']}" if left["ref"] else ""
        )
    if len(merge["left"]) > LEFT_SHOWN:
        yield f"and {len(merge['left']) - LEFT_SHOWN} more, see the summary"


def refuse_without_gateway() -> GatewaySettings:
    """Return the gateway's settings. Raises Refused when no model can be asked."""
    from supervisor.config import user

    settings = user.load_gateway(settings_file(), home().keys)
    if not settings.upstreams:
        hint = "ANTHROPIC_API_KEY=... nightcrew up -d"
        raise Refused("no model can be asked", why="the gateway has no upstream and no key", hint=hint)
    return settings


def _engine_slots(settings: GatewaySettings, asked: MapAsked) -> int:
    """Return how many requests the engine serves at once to which the gateway leads the map's model; 0 where it leads to none. One worker
    alone keeps all of them busy: the others may have no items left."""
    if not any(one.engine for one in settings.upstreams):
        return 0
    from agents.conversation import DEFAULT_MODEL
    from supervisor.gateway import engines
    from supervisor.gateway.admission.types import Agent
    from supervisor.gateway.proxy.forward import way
    from supervisor.kernel.gateway_settings import Api

    agent = Agent("", 0, TaskClass(asked.task_class))
    names = {one.name for one in settings.upstreams}
    to = way(settings, Api.ANTHROPIC, asked.model or DEFAULT_MODEL, names, agent, "trivial").upstreams
    engine = next((one.engine for one in settings.upstreams if one.engine and one.name in to), None)
    if engine is None:
        return 0
    record = engines.read(home(), engine.name)
    return (record and record.slots) or engine.slots


# Sources
# -------
# Where the items of a map come from: files of a commit, lines, objects of a JSONL file, or what a command prints.


ITEMS_MAX = 5_000_000


@dataclass(frozen=True, slots=True)
class Source:
    """A workload."""

    form: str
    """`file`, `line` or `jsonl`."""
    words: dict[str, Any]
    """What was asked for: with what is done to an item it names the map."""
    items: list[Item]


def plain_files(repo: Repository, commit: str) -> dict[str, File]:
    """The plain files of `commit`, in git's order, with their sizes. Raises ToolFailed."""
    return {path: file for path, file in files(repo, commit, sizes=True).items() if file.mode.startswith("100")}


def of_files(found: Mapping[str, File], patterns: Sequence[str]) -> Source:
    """The files that any of `patterns` matches, by the content that the commit has."""
    forms = [re.compile(glob(pattern), re.DOTALL) for pattern in patterns]
    items = [Item(os.fsencode(name), file.oid, file.size) for name, file in found.items() if any(form.fullmatch(name) for form in forms)]
    return Source("file", {"form": "file", "files": list(patterns)}, items)


def glob(pattern: str) -> str:
    """A regular expression for a shell pattern: `*` and `?` match no `/`, `**/` any directories, `**` all that is left."""
    text, at = "", 0
    pattern = pattern.removeprefix("./")
    while at < len(pattern):
        if pattern.startswith("**/", at):
            text, at = f"{text}(?:[^/]+/)*", at + 3
        elif pattern.startswith("**", at):
            text, at = f"{text}.*", at + 2
        elif (found := re.compile(r"\[(!?)([^\]/]+)\]").match(pattern, at)) is not None:
            inside = found[2].replace("\\", "\\\\").replace("^", "\\^")
            text, at = f"{text}[{'^' if found[1] else ''}{inside}]", found.end()
        else:
            text, at = text + {"*": "[^/]*", "?": "[^/]"}.get(pattern[at], re.escape(pattern[at])), at + 1
    return text


def of_lines(path: str) -> Source:
    """The lines of a file that are not empty; `-` is stdin."""
    return Source("line", {"form": "line", "lines": _named(path)}, _lines(_read(path)))


def of_objects(path: str) -> Source:
    """The objects of a JSONL file. Raises UsageError for a line that is none."""
    items = [_object(path, number, line) for number, line in enumerate(_read(path).split(b"\n"), 1) if line.strip()]
    return Source("jsonl", {"form": "jsonl", "jsonl": _named(path)}, items)


def of_command(text: str, where: Path) -> Source:
    """The lines that a shell command prints. Raises ToolFailed when it fails."""
    done = subprocess.run(["/bin/sh", "-c", text], cwd=where, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=False)
    if done.returncode:
        raise ToolFailed("could not read the items from the command", on=text[:200], why=f"exit code {done.returncode}")
    return Source("line", {"form": "line", "command": text}, _lines(done.stdout))


def _lines(data: bytes) -> list[Item]:
    return [Item(line, digest(line), len(line)) for line in data.split(b"\n") if line]


def digest(data: bytes) -> str:
    """The key of a text."""
    return hashlib.sha256(data).hexdigest()[:32]


def _object(path: str, number: int, line: bytes) -> Item:
    try:
        shape = json.loads(line.decode("utf-8-sig"), parse_constant=_no_number)
        data = json.dumps(shape, allow_nan=False).encode()
    except UnicodeDecodeError:
        why = "it is no UTF-8"
    except json.JSONDecodeError as error:
        why = f"it is no JSON: {error.msg}, at character {error.pos + 1}"
    except RecursionError:
        why = "it is nested too deeply"
    except ValueError as error:
        why = str(error)
    else:
        why = "" if isinstance(shape, dict) else "it is no JSON object"
    if why:
        raise UsageError("cannot read", on=f"{path}:{number}", why=why)
    return Item(data, digest(data), len(data))


def _no_number(word: str) -> NoReturn:
    raise ValueError(f"{word} is no number of JSON")


def _named(path: str) -> str:
    return path if path == "-" else os.fspath(Path(path).resolve())


def _read(path: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    except OSError as error:
        raise UsageError("cannot read", on=path, why=error.strerror or str(error)) from None


def named_files(words: Iterable[str], found: Mapping[str, File], call: str) -> dict[str, str]:
    """The tracked files that a definition names, each with its content: a word that is a path, and the module of `call`. A change there is
    another map."""
    module = call.partition(":")[0].replace(".", "/")
    asked = {*words, *(name for root in ("", "src/") for name in (f"{root}{module}.py", f"{root}{module}/__init__.py") if module)}
    asked = {os.path.normpath(word) for word in asked if word}
    return {name: file.oid for name, file in found.items() if name in asked}


@dataclass(frozen=True, slots=True)
class MapAsked:
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
    repeatable: bool
    prompt: str | None
    schema: Path | None
    model: str | None
    max_tokens: int
    kind: str | None
    shard: int
    plan: bool
    economy: bool
    merge: bool

    @property
    def by_agents(self) -> bool:
        """Whether agents work on the items."""
        return self.prompt is not None and self.kind is not None


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
@common.network_option
@click.option("--repeatable", is_flag=True, help="A kept answer to the same request is as good as a new one.")
@options
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
    from supervisor.features.map import following

    asked = MapAsked(**typed)
    _refuse(asked)
    prepared = _prepared(asked)
    where = home()
    if asked.dry_run:
        return following.dry_run(where, prepared, as_json=asked.as_json)
    return following.run(where, prepared, detach=asked.detach, as_json=asked.as_json)


def _refuse(asked: MapAsked) -> None:
    sources = [bool(asked.globs), asked.lines is not None, asked.jsonl is not None, asked.from_command is not None]
    if sum(sources) != 1:
        raise UsageError("which items?", why="give one of --files, --lines, --jsonl and --from-command")
    if sum([bool(asked.words), asked.call is not None, asked.prompt is not None]) != 1:
        raise UsageError("what is to be done with them?", why="give a command behind --, --call or --prompt")
    refuse(asked)
    if asked.call and ":" not in asked.call:
        raise UsageError("not a function", on=asked.call, why="it is MODULE:FUNCTION")


def _prepared(asked: MapAsked) -> Any:
    """What will be handed over. Raises what finding the repository and the items raises."""

    from supervisor.client import submit
    from supervisor.features.map import open_map
    from supervisor.features.map.following import Prepared

    place = submit.workplace(asked.repo)
    base = asked.base if asked.base is not None else place.project.base or "HEAD"
    found = plain_files(place.repository, resolve(place.repository, base))
    source = _source(asked, found)
    if not source.items:
        raise _nothing(asked, len(found), base)
    what = _what(asked, source)
    named = named_files(asked.words, found, asked.call or "")
    definition = {**{name: value for name, value in what.items() if name not in NOT_THE_WORK}, "named": named}
    name = open_map.map_id(place.repository.project, source.words, definition)
    title = (asked.name or (asked.call or asked.prompt or " ".join(asked.words))[:200]).encode("utf-8", "backslashreplace").decode()
    if asked.plan:
        what = {**what, **_plan(asked, place, base, name, source)}
    about = {
        "title": title, "what": what, "source": source.words,
        "retries": asked.retries, "agents": asked.agents, "out": os.fspath(_target(asked.out)) if asked.out else "",
    }  # fmt: skip
    return Prepared(name, about, source.items, _submission(asked, place, base, name, title), asked.fresh, place.repository.notes)


def _nothing(asked: MapAsked, files: int, base: str) -> NotFound:
    """Return the error for a workload without items, which says what was looked at."""
    if asked.globs:
        why = f"none of the {files} plain files of {base} matches, by its path from the top of the repository"
        hint = f"git ls-tree -r --name-only {base}, or commit what is new"
        return NotFound("no file matches", on=" ".join(asked.globs), why=why, kept="nothing was started", hint=hint)
    on = next(filter(None, (asked.lines, asked.jsonl, asked.from_command)))
    return NotFound("no item in", on=on, why="it has no line that is not empty", kept="nothing was started")


def _plan(asked: MapAsked, place: Workplace, base: str, name: str, source: Source) -> dict[str, Any]:
    """The groups of the items: those that the map has, or those that an agent makes now; none in a dry run that finds none."""
    from supervisor.features.map import following

    known = {} if asked.fresh else following.keys(home(), name, source.items)
    if known or asked.dry_run:
        return known
    said = asked.prompt or asked.call or " ".join(asked.words)
    key = None if asked.fresh else f"map-plan-{name}-{following.digest(source.items)}"
    return following.make(home(), place, following.Plan(base, _agent(asked, place, base), source.items, said, key))


def _source(asked: MapAsked, found: Mapping[str, File]) -> Source:
    if asked.globs:
        return of_files(found, asked.globs)
    if asked.lines is not None:
        return of_lines(asked.lines)
    return of_objects(asked.jsonl) if asked.jsonl is not None else of_command(asked.from_command or "", asked.repo)


def _what(asked: MapAsked, source: Source) -> dict[str, Any]:
    merge = {"merge": True} if asked.merge else {}
    if asked.prompt is not None:
        return {**what(asked, source.form), **merge}
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


def _agent(asked: MapAsked, place: Workplace, base: str) -> TaskSpec:
    """The task that each shard becomes, or the one that plans, but for its prompt. How long it may take is its kind's to say, unless the
    command does. Raises UsageError for a kind that takes no prompt, ToolMissing."""
    from supervisor.client import submit

    options = {name: getattr(asked, name) for name in ("task_class", "retries", "snapshot", "sandbox", "network", "repeatable")}
    said = click.get_current_context().get_parameter_source("timeout") is not ParameterSource.DEFAULT
    typed = {
        "kind": asked.kind or place.settings.agent_kind, "model": asked.model if asked.by_agents else None, "id": "s",
        **options, "timeout": asked.timeout if said else None,
    }  # fmt: skip
    submission, _ = submit.of_prompt("(the prompt of a shard)", typed, place, base, os.environ)
    return submission.spec.tasks[0]


def _submission(asked: MapAsked, place: Workplace, base: str, name: str, title: str) -> Any:
    from agents.kinds import kinds
    from supervisor.client import submit
    from supervisor.features.map.service import MAP
    from supervisor.kernel.spec import RunSpec, TaskSpec

    if asked.by_agents:
        return submit.submission(
            RunSpec(title=f"map: {title}", tasks=(_agent(asked, place, base),), base=base), place, None, None, os.environ
        )
    kind = WORKER if asked.prompt is not None else "map-worker"
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
        repeatable=asked.repeatable,
        network=asked.network if asked.network is not None else True,
    )
    spec = RunSpec(title=f"map: {title} ({many(asked.agents, 'worker')})", tasks=(worker,), base=base)
    return submit.submission(spec, place, None, None, os.environ)


# Picture
# -------
# The live picture of a map, on stderr: progress, throughput, what is left, and a line for each worker.


WORKERS = 10
"""Lines of workers; the others are counted."""
SILENT_S = 5.0
BAR = 60
"""Columns."""
_SMOOTH_S = 20.0


class Picture:
    """A context; `live` says whether it draws. Where it does not, `line` is for who says something now and then."""

    def __init__(self) -> None:
        console = terminal.console()
        self.live = sys.stderr.isatty() and not console.is_dumb_terminal
        self._live = Live(console=console, auto_refresh=False, transient=True) if self.live else None
        self._seen: list[tuple[float, int]] = []

    def __enter__(self) -> Picture:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, found: dict[str, Any]) -> None:
        """Draw how it stands."""
        now, ended = time.monotonic(), worked_through(found)
        self._seen = [one for one in self._seen if now - one[0] < _SMOOTH_S] + [(now, ended)]
        if self._live is not None:
            self._live.update(drawn(found, self._rate()), refresh=True)

    def _rate(self) -> float:
        """Items a second, lately; 0 also where what dead workers had done must be done again."""
        (since, before), (now, ended) = self._seen[0], self._seen[-1]
        return max(0.0, (ended - before) / (now - since)) if now - since > 1.0 else 0.0


def worked_through(found: dict[str, Any]) -> int:
    """Items that have ended, with those of shards under way: a shard may take a minute."""
    return int(found["done"] + found["failed"] + sum(one["at"] for one in found["workers"]))


def drawn(found: dict[str, Any], rate: float) -> Group:
    """The picture of one look."""
    ended = worked_through(found)
    left = found["total"] - ended
    eta = f", {age(left / rate)} left" if rate and left else ""
    pace = f"{rate:.1f} items a second{eta}" if rate else "no item has ended lately"
    workers = sorted(found["workers"], key=lambda one: -max(SILENT_S, one["silent_s"]))  # the others keep their places
    lines = [Text(_worker(one), style="yellow" if one["silent_s"] > SILENT_S else "dim") for one in workers[:WORKERS]]
    more = [Text(f"  … and {len(workers) - WORKERS} more", style="dim")] if len(workers) > WORKERS else []
    idle = f", {found['idle']} idle" if found["idle"] else ""
    heading = f"{one_line(found['title'])}: {ended} of {found['total']}, {found['failed']} failed; {len(workers)} at work{idle}"
    return Group(Text(heading, style="bold", no_wrap=True), _bar(ended, found["total"]), Text(pace), *lines, *more)


def _bar(ended: int, total: int) -> Text:
    """How much of it has ended."""
    full = BAR * ended // max(1, total)
    return Text.assemble(("━" * full, "green"), ("─" * (BAR - full), "dim"))


def _worker(one: dict[str, Any]) -> str:
    silent = f", silent for {duration(one['silent_s'])}" if one["silent_s"] > SILENT_S else ""
    return f"  {one['task']}  item {min(one['at'] + 1, one['items'])} of {one['items']} of its shard{silent}"


def line(found: dict[str, Any]) -> str:
    """The same in a line."""
    return f"{worked_through(found)} of {found['total']} items, {found['failed']} failed; {len(found['workers'])} workers at work"


def shown(value: object) -> str:
    """An item or a reason on one line, whatever is in it."""
    return status.cut(one_line(str(value)), 200)
