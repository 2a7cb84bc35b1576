"""What several verbs share: where the state is, how names and output are handled."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import sqlite3
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from supervisor.client import protocol
from supervisor.host.paths import Home
from supervisor.kernel.errors import NightcrewError, NotFound, UsageError, one_line
from supervisor.kernel.states import CHOICE
from supervisor.server import gateway_report, lock
from supervisor.store import archive, queries, sqlite


def say(text: str) -> None:
    """Print on stderr: stdout is for data."""
    click.echo(f"nightcrew: {text}", err=True)


def say_left(live: int) -> None:
    """Say that the supervisor has left, and that `live` agents go on."""
    going = f"; {live} agent{'s go' if live != 1 else ' goes'} on; next: nightcrew status, or nightcrew up -d" if live else ""
    say(f"the supervisor left{going}")


def print_json(**shape: Any) -> None:
    """One object with `"schema": 1`."""
    click.echo(indented({"schema": 1, **shape}))


def indented(value: Any, line: str = "\n") -> str:
    """Return the same as `json.dumps(value, indent=2)`, much faster: json's encoder in C does not indent, so it is given the flat parts.
    `line`: a line break with the indentation of the value."""
    inner = f"{line}  "
    if isinstance(value, dict) and value:
        return f"{{{inner}{f',{inner}'.join(_members(value, inner))}{line}}}"
    if isinstance(value, list | tuple) and value:
        return f"[{inner}{f',{inner}'.join(indented(one, inner) for one in value)}{line}]"
    return json.dumps(value)


def _members(shape: dict[Any, Any], inner: str) -> Iterator[str]:
    """The members of an object; those without members of their own several at a time."""
    flat: dict[Any, Any] = {}
    for key, one in shape.items():
        if not isinstance(one, dict | list | tuple) or not one:
            flat[key] = one
            continue
        if flat:
            yield _flat(inner)(flat)[1:-1]
            flat = {}
        yield f"{json.dumps({key: 0})[1:-4]}: {indented(one, inner)}"
    if flat:
        yield _flat(inner)(flat)[1:-1]


@functools.lru_cache(maxsize=32)
def _flat(inner: str) -> Callable[[Any], str]:
    return json.JSONEncoder(separators=(f",{inner}", ": ")).encode


def use_color() -> bool:
    """Whether stdout may be coloured: a terminal, no NO_COLOR, not TERM=dumb; FORCE_COLOR overrides."""
    if os.environ.get("FORCE_COLOR"):
        return True
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def can_redraw() -> bool:
    """Whether stdout is a terminal on which a picture can be drawn over the one before."""
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def show(line: str) -> None:
    """A line of data that may hold colours; click by itself would take them out again under FORCE_COLOR."""
    click.echo(line, color=use_color())


def width() -> int:
    """Columns of the terminal; wide when there is none, so that nothing is cut from a pipe."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else 10_000


def ledger(where: Home, of: str = "") -> sqlite3.Connection:
    """The ledger for looking; the archive when that has what the full id `of` of a task or run names. Raises NotFound when nothing was
    ever run here."""
    if not where.ledger.exists():
        raise NotFound("no tasks", on=str(where.root), why="nothing was ever run here", hint="nightcrew run PLAN")
    return archive.reader(where.ledger, where.archive, of.partition("/")[0]) if of else sqlite.connect_readonly(where.ledger)


def holding(where: Home, name: str) -> sqlite3.Connection:
    """The ledger, or the archive when what a person means by `name` is there alone. Raises NotFound when neither has it."""
    return ledger(where, _matched(where, name)[0])


def _matched(where: Home, name: str) -> list[str]:
    """Full ids of tasks, looked for in the archive when the ledger has none."""
    try:
        with contextlib.closing(ledger(where)) as db:
            return _match(db, name)
    except NotFound:
        with contextlib.suppress(NotFound), contextlib.closing(archive.connect(where.archive)) as kept:
            return _match(kept, name)
        raise


def _match(db: sqlite3.Connection, name: str) -> list[str]:
    return queries.match_tasks(db, typed(name), queries.project_at(db, str(Path.cwd())))


def tasks_meant(where: Home, name: str) -> list[str]:
    """Full ids of the tasks that a name may mean, for what only looks: archived ones too. Raises as `task_names.match_tasks`."""
    return _matched(where, name)


def tasks_named(where: Home, names: tuple[str, ...]) -> list[str]:
    """Full task ids, in order and once each, for what changes something. Raises Refused for what is archived."""
    found = list(dict.fromkeys(task for name in names for task in _matched(where, name)))
    _refuse_archived(where, found)
    return found


def _refuse_archived(where: Home, tasks: Iterable[str]) -> None:
    for run, task in {task.partition("/")[0]: task for task in tasks}.items():
        if archive.has(where.archive, run):
            raise archive.archived(task)


def names_or_all(where: Home, names: tuple[str, ...], every: Callable[[sqlite3.Connection], list[str]], *, everything: bool) -> list[str]:
    """Full task ids: those that were named, or `every` one. Raises UsageError for both and for neither."""
    if everything == bool(names):
        raise UsageError("which tasks?", why="give names of tasks or runs, or --all")
    return every(ledger(where)) if everything else tasks_named(where, names)


def task_named(where: Home, name: str, *, archived: bool = True) -> queries.TaskView:
    """The one task that a name means; not `archived`, one that something can still be done with: else Refused is raised."""
    with contextlib.closing(holding(where, name)) as db:
        found = queries.match_task(db, typed(name), queries.project_at(db, str(Path.cwd())))
        if not archived:
            _refuse_archived(where, [found])
        return queries.one(db, found)


def typed(name: str) -> str:
    """The name that a person typed, which may hold any bytes. Raises NotFound for one that no task can have: SQLite takes only UTF-8."""
    if not name.isprintable():
        raise NotFound("no task or run is called", on=name, hint="nightcrew status --all")
    return name


def ask(where: Home, verb: str, args: object, *, timeout_s: float | None = 60.0) -> dict[str, Any]:
    """The answer of the supervisor, which is started when none runs; that is said."""
    from supervisor.client import protocol, start

    start.ensure_running(where, settings_file(), say)
    return protocol.call(where.daemon_socket, verb, args, timeout_s=timeout_s)


def ask_about(where: Home, verb: str, names: tuple[str, ...]) -> dict[str, Any]:
    """The same, of the tasks that were named."""
    return ask(where, verb, {"tasks": tasks_named(where, names)})


def print_names(names: Iterable[str], answer: dict[str, Any], *, as_json: bool) -> None:
    """The names, one a line, or `answer` as JSON."""
    if as_json:
        print_json(**answer)
    else:
        for name in names:
            click.echo(name)


DELIVERY_S = 240.0
"""A text before it and this one may each be confirmed after one and a half minutes (`agents.typing_rules.CONFIRM_S`), or not at all."""


def answered(answer: dict[str, Any]) -> str:
    """What became of an answer to an agent's question, as the supervisor told it."""
    did = "allowed" if answer["allowed"] else "denied"
    return f"{did}: {answer['what'] or answer['task']}" + ("" if answer["gone"] else "; its dialog is still there")


HEAR_S = 2.0
NEEDS_S = 1.0
"""Seconds that a supervisor which does not answer may hold a look at the crew up."""
"""Between two questions to the supervisor, which looks at its gateway as often."""


class SupervisorWatch:
    """Prints each obstacle once: no supervisor, or trouble with the gateway."""

    def __init__(self, where: Home) -> None:
        self._where = where
        self._said: set[str] = set()
        self._hear_at = 0.0
        self._heard = gateway_report.Heard()

    def look(self) -> gateway_report.Heard:
        """Look whether a supervisor runs, and what it says; cheap enough for every turn of a loop."""
        if self._where.sentinel.exists():
            self._say("everything is stopped (nightcrew stop-all); next: nightcrew thaw")
        if lock.holder(self._where.lock) is None:
            self._heard = gateway_report.Heard()
            self._say("no supervisor is running: agents that live go on, nothing new starts; next: nightcrew up -d")
        elif time.monotonic() >= self._hear_at:
            self._heard = gateway_report.hear(self._where)
            self._hear_at = time.monotonic() + HEAR_S
            for trouble in self._heard.troubles:
                self._say(f"the gateway: {one_line(trouble)}")
        return self._heard

    def _say(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            say(text)


def who_needs(where: Home) -> list[dict[str, Any]]:
    """The agents that wait for a person, longest first (`task`, `state`, `detail`, `since`); none when no supervisor answers."""
    return [one for one in needs(where).asked if one["state"] != CHOICE]


@dataclass(frozen=True, slots=True)
class Needs:
    """What the supervisor says of who needs a person."""

    asked: list[dict[str, Any]] = field(default_factory=list)
    """The agents that wait for a person, and the groups of candidates of which one is to choose (`state` is CHOICE), longest first: `task`,
    `state`, `detail`, `since`."""
    states: dict[str, str] = field(default_factory=dict)
    """By task, how each agent is that has said so itself."""
    told: int | None = None
    """How often it has rung the bell; None: it does not answer."""
    line: str = ""
    """What it said the last time."""


def needs(where: Home, *, watches: bool = False) -> Needs:
    """Return what needs a person; empty if no supervisor answers. Pass `watches` from a view that keeps asking, and rings the bell when the
    supervisor does."""
    try:
        found = protocol.call(where.daemon_socket, "needs", {"watches": watches}, timeout_s=NEEDS_S)
    except NightcrewError:
        return Needs()
    asked = sorted([*found["agents"], *found.get("choices", ())], key=lambda one: one["since"])
    told = found.get("told", {})
    return Needs(asked, found.get("states", {}), told.get("number"), str(told.get("line", "")))


def settings_file() -> Path:
    """The user's configuration file, whether or not it exists."""
    from supervisor.host import paths

    return paths.settings_file()


TEXT_MAX = 8 * 2**20
"""Bytes: four times the longest that is tested."""


def typable(data: bytes) -> str:
    """As it will be typed. Raises UsageError when it is too long, and when nothing of it can be typed."""
    from agents.tmux import typed_text

    if len(data) > TEXT_MAX:
        raise UsageError("the text is too long", why=f"at most {TEXT_MAX} bytes", hint="put it into a file of its worktree")
    given = data.decode("utf-8", "replace")
    text = typed_text(given)
    if given and not text:
        raise UsageError("nothing of the text can be typed", why="it holds only control characters and line ends")
    return text


class _Network(click.ParamType["bool | tuple[str, ...]"]):
    """A plan's `network`: `yes`, `no`, or names of hosts, separated by commas."""

    name = "network"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> bool | tuple[str, ...]:
        from supervisor.config.task_keys import network

        text = str(value).strip()
        if text in ("yes", "no"):
            return text == "yes"
        names = [name.strip() for name in text.split(",") if name.strip()]
        if not names:
            self.fail("say yes, no, or which hosts", param, ctx)
        try:
            return network(names)
        except ValueError as error:
            self.fail(str(error), param, ctx)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG002 - click's signature
        return [CompletionItem(word) for word in ("yes", "no") if word.startswith(incomplete)]


network_option = click.option(
    "--network",
    type=_Network(),
    metavar="yes|no|HOST,...",
    help="What it can connect to: all, nothing, or the models and these hosts (default: yes).",
)


class Duration(click.ParamType[float]):
    """Seconds from `90`, `1.5`, `90s`, `10m`, `2h`, `1d`; the same for every verb."""

    name = "duration"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        from supervisor.config.toml import duration

        text = str(value).strip()
        try:
            return float(duration(f"{text}s" if text[-1:].isdigit() else text))
        except ValueError as error:
            self.fail(str(error), param, ctx)


output_option = click.option(
    "-o", "--output", type=click.Path(path_type=Path, file_okay=False), help="Where to write the report (default: with the run's records)."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
