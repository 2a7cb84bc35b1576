"""The keys of one task: shapes, bounds, and what each waits for."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, Field, PlainValidator, create_model, field_validator, model_validator

from supervisor.config.toml import MAX_INT, Class, Command, Duration, Glob, OptionValue, Shown, Size, Strict, duration, into, variable
from supervisor.kernel import spec
from supervisor.kernel.leases import GLOBS_MAX
from supervisor.kernel.night import Window
from supervisor.kernel.path_globs import WHERE, kind_of, normalised
from supervisor.kernel.snapshots import LOCK_FILES, SnapshotSpec
from supervisor.kernel.spec import ABSOLUTE_FROM, By, Key, TaskSpec
from supervisor.kernel.states import CANDIDATES_MAX, JUDGE_ROUNDS, candidate_name, judge_name

# After
# -----
# The key `after` of a task: what must have happened before it starts.


NOTES_MAX = 100


class AfterModel(Strict):
    """`after`: which tasks, how they must have ended, and which notes must be there."""

    all: list[str] = Field(default_factory=list)
    any: list[str] = Field(default_factory=list)
    on: Literal["done", "finished"] = "done"
    memory: Annotated[list[str], Field(max_length=NOTES_MAX)] = Field(default_factory=list)

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        """A list is short for `{ all = [...] }`."""
        if isinstance(value, list):
            return {"all": value}
        if not isinstance(value, dict):
            raise ValueError(  # noqa: TRY004 - pydantic reports ValueError, and lets TypeError through
                'give a list of ids, or { all = ["a", "b"], any = ["c", "d"], on = "finished", memory = "semantic/plan.md" }'
            )
        return value

    @field_validator("memory", mode="before")
    @classmethod
    def _one(cls, value: Any) -> Any:
        """One path is short for a list of it."""
        return [value] if isinstance(value, str) else value

    @field_validator("memory")
    @classmethod
    def _paths(cls, value: list[str]) -> list[str]:
        for path in value:
            if kind_of(path) is None:
                raise ValueError(f"{path!r} is not a path of the memory: {WHERE}")
        return value


# Best of
# -------
# The keys `best_of`, `candidates`, `decide` and `judge` of a task: one table of a plan that is several tasks.


READERS = {"builtin": ["read", "grep", "glob"]}
"""Tools of a judge, by its kind: those that read. One that can work without any has none."""
ID_MAX = 64 - len(judge_name("", JUDGE_ROUNDS[-1]))
"""Characters of the id of a task that has candidates: theirs are longer."""
RUBRIC = "Which of them does best what was asked: correct, complete, tested, and no more than that?"
"""What a judge goes by that was told nothing else."""


M = TypeVar("M", bound=BaseModel)


class CandidateModel(Strict):
    """What one candidate has that the task does not say."""

    kind: str | None = None
    model: OptionValue | None = None
    command: Command | None = None
    params: dict[str, str | int | float | bool] | None = None
    steps_max: Annotated[int, Field(ge=1, le=100_000)] | None = None
    timeout: Annotated[Duration, Field(gt=0, le=30 * 86400)] | None = None
    cost_max: Annotated[float, Field(gt=0, le=1e9)] | None = None

    @property
    def said(self) -> dict[str, Any]:
        """What it says."""
        return {name: getattr(self, name) for name in self.model_fields_set}


class JudgeModel(Strict):
    """Who compares the candidates."""

    kind: str = "shell"
    model: OptionValue | None = None
    command: Command | None = None
    rubric: str | None = None
    rubric_file: str | None = None
    timeout: Annotated[Duration, Field(gt=0, le=86400)] | None = None
    cost_max: Annotated[float, Field(gt=0, le=1e9)] | None = None

    @model_validator(mode="after")
    def _fits(self) -> JudgeModel:
        if self.rubric is not None and self.rubric_file is not None:
            raise ValueError("give rubric or rubric_file, not both")
        return self


class BestOfKeys(Strict):
    """Those keys of a task."""

    best_of: Annotated[int, Field(ge=2, le=CANDIDATES_MAX)] | None = None
    candidates: Annotated[list[CandidateModel], Field(min_length=2, max_length=CANDIDATES_MAX)] | None = None
    decide: Literal["person", "gate"] | None = None
    judge: JudgeModel | None = None

    @property
    def is_group(self) -> bool:
        """Whether the task is several."""
        return self.best_of is not None or self.candidates is not None

    @property
    def each(self) -> list[CandidateModel]:
        """What each candidate says of itself."""
        return self.candidates if self.candidates is not None else [CandidateModel()] * (self.best_of or 1)

    def misfit(self, name: str, *, gate: bool, interactive: bool) -> tuple[str, str] | None:
        """The key that is wrong and why, of the task `name`; None when all fits."""
        if not self.is_group:
            wrong = next((key for key in ("decide", "judge") if getattr(self, key) is not None), "")
            return (wrong, f"{wrong} is for a task with candidates: give best_of or candidates too") if wrong else None
        if self.best_of is not None and self.candidates is not None and self.best_of != len(self.candidates):
            return "best_of", f"it says {self.best_of} and candidates has {len(self.candidates)}; leave best_of out"
        if len(name) > ID_MAX:
            return "id", f"the id of a task with candidates has at most {ID_MAX} characters: theirs are longer"
        if self.decide == "gate" and not gate:
            return "decide", "gate is for a task that has a gate: give gate too, or leave the choice to a person"
        return ("best_of", "candidates work by themselves: leave interactive out") if interactive else None


def tasks(
    keys: BestOfKeys, name: str, candidate: Callable[[int, CandidateModel], TaskSpec], judge: Callable[[JudgeModel], TaskSpec]
) -> list[TaskSpec]:
    """The tasks that the table `name` is: its candidates, their judges, and last the group. `candidate` and `judge` make one of them,
    whose names are given here."""
    made = [candidate(number, one) for number, one in enumerate(keys.each)]
    ids = tuple(candidate_name(name, number) for number in range(1, len(made) + 1))
    candidates = [
        replace(one, name=own, title=f"{one.title} ({number} of {len(ids)})", candidate_of=name)
        for number, (own, one) in enumerate(zip(ids, made, strict=True), start=1)
    ]
    judges = [_judge_of(judge(keys.judge), name, number, made[0], ids) for number in JUDGE_ROUNDS] if keys.judge is not None else []
    return [*candidates, *judges, _group(keys, name, made[0], ids, judges)]


def _judge_of(made: TaskSpec, name: str, number: int, whole: TaskSpec, ids: tuple[str, ...]) -> TaskSpec:
    title = f"judges {name} ({number} of {len(JUDGE_ROUNDS)})"
    return replace(
        made, name=judge_name(name, number), title=title, after=ids, after_on="finished", candidates=ids, judge_round=number,
        priority=whole.priority, task_class=whole.task_class, submitter=whole.submitter,
    )  # fmt: skip


def _group(keys: BestOfKeys, name: str, whole: TaskSpec, ids: tuple[str, ...], judges: Sequence[TaskSpec]) -> TaskSpec:
    return TaskSpec(
        name=name, title=whole.title, kind="shell", argv=(), after=(*ids, *(one.name for one in judges)), after_on="finished",
        candidates=ids, decide=keys.decide or "person", priority=whole.priority, task_class=whole.task_class, submitter=whole.submitter,
    )  # fmt: skip


def judge_task(make: type[M], judge: JudgeModel, rubric: str | None, *, sandbox: int | None) -> M:
    """A judge as the task that it is: without a tool that asks first, and in a sandbox unless the task itself has none."""
    agent: dict[str, Any] = {} if judge.command is not None else {"allow": READERS.get(judge.kind, [])}
    said = {key: getattr(judge, key) for key in ("kind", "model", "command", "timeout", "cost_max")}
    return make(prompt=rubric or RUBRIC, sandbox=1 if sandbox is None else sandbox, **agent, **said)


def names(keys: BestOfKeys, name: str) -> Mapping[str, str]:
    """The ids that the table `name` needs beside its own, each with what it is."""
    if not keys.is_group:
        return {}
    found = {candidate_name(name, number): "a candidate" for number in range(1, len(keys.each) + 1)}
    judges = {judge_name(name, number): "a judge" for number in JUDGE_ROUNDS} if keys.judge is not None else {}
    return found | judges


# Moments
# -------
# Moments as people write them in a plan or in config.toml: a duration, a time of day, a date with a time, a window of the day.


_TIME = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)")


def moment(value: Any, now: datetime | None = None) -> Any:
    """A duration in seconds, counted from the submission, or seconds since 1970: of a TOML date with time, and of `"06:30"`, the next time
    that the clock of this machine shows it. Text that is neither raises ValueError."""
    if isinstance(value, datetime):
        return _absolute(value)
    if isinstance(value, str) and (found := _TIME.fullmatch(value.strip())):
        return _absolute(_next(int(found[1]), int(found[2]), (now or datetime.now().astimezone()).timestamp()))
    try:
        return duration(value)
    except ValueError:
        raise ValueError('give a duration such as "2h", a time of day such as "06:30", or a date with a time') from None


def _next(hour: int, minute: int, now: float) -> datetime:
    """The next local time of day after `now`, seconds since 1970. A day on which the clocks are set back may have it twice, and on one on
    which they are set forward it is past once the clock shows more."""
    shown = datetime.fromtimestamp(now)
    today = shown.replace(hour=hour, minute=minute, second=0, microsecond=0, fold=0)
    again = today.replace(fold=1)
    if today.timestamp() > now and today > shown.replace(fold=0):
        return today
    return again if again.timestamp() > now and again.timestamp() > today.timestamp() else today + timedelta(days=1)


def _absolute(at: datetime) -> float:
    """Without a time zone it is this machine's; a time that the clocks skip means the one an hour later, one that comes twice the first."""
    if not ABSOLUTE_FROM <= (seconds := at.timestamp()) < 10**11:
        raise ValueError("give a date between 2001 and 5138")
    return seconds


def window(value: Any) -> Any:
    """A window of the day from `"22:00-06:00"`. Raises ValueError."""
    begin, _, end = value.partition("-") if isinstance(value, str) else ("", "", "")
    times = [found and int(found[1]) * 60 + int(found[2]) for found in map(_TIME.fullmatch, (begin.strip(), end.strip()))]
    if times[0] is None or times[1] is None or times[0] == times[1]:
        raise ValueError('give the beginning and the end of it, such as "22:00-06:00"')
    return Window(times[0], times[1])


Moment = Annotated[float, BeforeValidator(moment), Field(gt=0)]
WindowOfDay = Annotated[Window, BeforeValidator(window)]


# Network
# -------
# What a task may connect to: `true`, `false`, or the hosts by name.


MAX_HOSTS = 100
_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")  # RFC 1123, 2.1, and RFC 1035, 2.3.4


def network(value: Any) -> bool | tuple[str, ...]:
    """True, False, or the names in a list, small and once each. Raises ValueError for anything else."""
    if isinstance(value, bool):
        return value
    if not isinstance(value, list | tuple) or not all(isinstance(name, str) for name in value):
        raise ValueError('give true, false, or a list of host names such as ["pypi.org", "*.pythonhosted.org"]')
    if not value:
        raise ValueError("a list names at least one host; false is no network at all, and true the whole")
    if len(value) > MAX_HOSTS:
        raise ValueError(f"a list names at most {MAX_HOSTS} hosts, and this one {len(value)}")
    return tuple(dict.fromkeys(map(_host, value)))


Network = Annotated[bool | tuple[str, ...], PlainValidator(network)]


def written(value: bool | tuple[str, ...]) -> str:
    """The value as a plan has it, a long list cut."""
    if isinstance(value, bool):
        return str(value).lower()
    return f'["{value[0]}"{", ..." if len(value) > 1 else ""}]'


def _host(name: str) -> str:
    """Raises ValueError for what the proxy could never let through: it resolves names, and refuses whatever leads into this machine or
    the networks around it."""
    labels = name.lower().removeprefix("*.").split(".")
    if len(name) > 253 or not all(map(_LABEL.fullmatch, labels)):
        raise ValueError(
            f"{name[:80]!r} is not the name of a host: write pypi.org, or *.pythonhosted.org for all below it "
            "(no http://, no port, no path; other than ASCII as xn--...)"
        )
    if labels[-1].isdigit():
        raise ValueError(f"{name!r} is an address: write the name of the host")
    if len(labels) < 2:
        raise ValueError(f"{name!r} is no host of the internet, and no other is let through")
    return name.lower()


# Snapshots
# ---------
# `[snapshot.NAME]` of the project file: what an environment is prepared with. docs/project.md describes each key.
#
# The tables arrive with a clone. Reading them runs nothing; what they may name is held inside the repository.


_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,30}[a-z0-9])?")
_MODULE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*")

MIN_MEMORY = 2**20
"""Less than this and no program starts, which would look like a failure of what it runs."""

SnapshotsCommand = Annotated[str, Field(min_length=1, max_length=10_000)]
Pattern = Annotated[str, Field(min_length=1, max_length=1000)]
Module = Annotated[str, Field(max_length=200)]


class SnapshotModel(Strict):
    """One `[snapshot.NAME]` table."""

    kind: Literal["filesystem", "memory"] = "filesystem"
    setup: Annotated[list[SnapshotsCommand], Field(max_length=100)] = Field(default_factory=list)
    verify: Annotated[list[SnapshotsCommand], Field(max_length=100)] = Field(default_factory=list)
    preload: Annotated[list[Module], Field(max_length=1000)] = Field(default_factory=list)
    copy_: Annotated[list[Pattern], Field(max_length=1000, alias="copy")] = Field(default_factory=list)
    lock_files: Annotated[list[Pattern], Field(max_length=1000)] = Field(default_factory=lambda: list(LOCK_FILES))
    memory_max: Annotated[Size, Field(ge=MIN_MEMORY)] | None = None
    processes_max: Annotated[int, Field(ge=1, le=2**22)] | None = None
    cores: Annotated[int, Field(ge=1, le=4096)] | None = None

    @field_validator("setup", "verify")
    @classmethod
    def _commands(cls, value: list[str]) -> list[str]:
        return [check_command(command) for command in value]

    @field_validator("preload")
    @classmethod
    def _modules(cls, value: list[str]) -> list[str]:
        for name in value:
            if not _MODULE.fullmatch(name):
                raise ValueError(f'{name!r} is no module; preload holds dotted names such as "os.path"')
        return list(dict.fromkeys(value))

    @field_validator("copy_", "lock_files")
    @classmethod
    def _inside(cls, value: list[str]) -> list[str]:
        for pattern in value:
            check_inside(pattern)
            normalised(pattern)
        return list(dict.fromkeys(value))

    @model_validator(mode="after")
    def _something_to_keep(self) -> SnapshotModel:
        if self.preload and self.kind != "memory":
            raise ValueError('preload needs kind = "memory": files remember no imported modules')
        if self.kind == "memory" and not self.preload:
            raise ValueError('kind = "memory" needs preload: the modules that its process imports')
        if not (self.setup or self.preload or self.copy_):
            raise ValueError("a snapshot needs setup, preload or copy; without them it would be a plain worktree")
        return self


def check_name(name: str) -> str:
    """`name`, when a snapshot can have it: it becomes part of paths, ids and command lines. Raises ValueError."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name[:80]!r} cannot be the name of a snapshot: 1 to 32 of a-z, 0-9 and '-', not at either end")
    return name


def check_command(command: str) -> str:
    """`command`, when a shell can be given it. Raises ValueError."""
    if not command.strip() or "\0" in command:
        raise ValueError("a command must not be empty, and cannot hold a NUL character")
    return command


def check_inside(pattern: str) -> str:
    """`pattern`, when all it can match lies in the repository and is not git's own. Raises ValueError."""
    parts = PurePosixPath(pattern).parts
    if not pattern.isprintable():
        raise ValueError("a pattern has no line breaks and no control characters")
    if pattern.startswith(("/", "~")) or ".." in parts:
        raise ValueError(f"{pattern!r} leads out of the repository; give a path or pattern below its root")
    if any(part.casefold() == ".git" for part in parts):  # what a wildcard matches there, whoever copies leaves out
        raise ValueError(f"{pattern!r}: git's own files cannot be named")
    return pattern


def to_spec(name: str, table: SnapshotModel) -> SnapshotSpec:
    """The table in the words of the core."""
    return into(SnapshotSpec, table, name=name, copy=table.copy_)


# Task keys
# ---------
# The keys of one task, as a plan and a project file have them: shapes, and what each may be. What depends on a kind is in
# `kind_keys`.


_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")

Scalar = str | int | float | bool


def value_of(key: Key) -> Any:
    """The type of a key's value, with its bounds, as a file has it; None: it is not given."""
    bounds: dict[str, Any] = {**key.bounds}
    kind: Any = {"s": Duration, "B": Size, "moment": Moment}.get(key.unit, key.type)
    if key.choices:
        kind = Literal[key.choices]
    if key.type is str and key.most is not None:
        return Annotated[kind, Field(max_length=int(key.most))] | None
    return Annotated[kind, Field(**bounds)] | None if bounds else kind | None


def with_keys(
    chosen: Callable[[Key], object], value: Callable[[Key], Any] = value_of, unset: Callable[[Key], Any] = lambda key: key.unset
) -> Callable[[type[M]], type[M]]:
    """A model with every chosen key of a task that it does not describe itself."""

    def complete(base: type[M]) -> type[M]:
        known = base.model_fields.keys() | {field.alias for field in base.model_fields.values()}
        own = [key for key in spec.of(TaskSpec).values() if chosen(key) and key.name not in known]
        made: dict[str, Any] = {key.name: (value(key), unset(key)) for key in own}
        return create_model(base.__name__, __base__=base, __module__=base.__module__, __doc__=base.__doc__, **made)

    return complete


@with_keys(lambda key: key.by & By.PROJECT)
class Shared(Strict):
    """Keys that `[defaults]` may give for every task. Here stand those whose value is more than bounds; the others are in the schema."""

    kind: str = "shell"
    params: dict[str, Scalar] = Field(default_factory=dict)
    task_class: Annotated[Class, Field(alias="class")] = "normal"
    cores: Annotated[int, Field(ge=1, le=4096)] | list[Annotated[int, Field(ge=0, le=4095)]] | None = None
    network: Network = True
    gpus: bool | Annotated[list[Annotated[int, Field(ge=0, le=255)]], Field(min_length=1, max_length=256)] = True
    model: OptionValue | None = None
    allow: Annotated[list[OptionValue], Field(max_length=200)] | None = None
    same_path: bool | None = None
    tags: Annotated[list[Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,31}$")]], Field(max_length=32)] = Field(default_factory=list)
    gate: Command | None = None

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """The keys of the schema."""

    @field_validator("snapshot", check_fields=False)
    @classmethod
    def _snapshot(cls, value: str | None) -> str | None:
        return check_name(value) if value else value

    @field_validator("params")
    @classmethod
    def _params(cls, value: dict[str, Scalar]) -> dict[str, Scalar]:
        for name, text in value.items():
            variable(name)
            if isinstance(text, int) and abs(text) > MAX_INT:
                raise ValueError(f"{name}: the number is too large; write it as text")
            if "\0" in str(text):
                raise ValueError(f"{name} holds a NUL character, which no environment can carry")
        return value


def check_id(name: str) -> str:
    """`name`, when a task or an environment can have it. Raises ValueError."""
    if not _ID.fullmatch(name):
        raise ValueError("an id has 1 to 64 letters, digits, '.', '_' or '-' and starts with a letter or digit (any text may be the title)")
    return name


@with_keys(lambda key: key.by & By.PLAN)
class PlanShared(Shared):
    """Keys that a plan's `[defaults]` may give for every task, and a project's may not: they are about one submission."""

    submitter: Annotated[Shown, Field(max_length=200)] = ""


@with_keys(lambda _: True)
class TaskModel(PlanShared, BestOfKeys):
    """One `[[tasks]]` table."""

    id: str | None = None
    title: str | None = None
    command: Command | None = None
    prompt: str | None = None
    prompt_file: str | None = None
    after: AfterModel = Field(default_factory=lambda: AfterModel(all=[]))
    continue_from: str | None = None
    paths: Annotated[list[Glob], Field(max_length=GLOBS_MAX)] = Field(default_factory=list)

    @field_validator("id")
    @classmethod
    def _id(cls, value: str | None) -> str | None:
        return value if value is None else check_id(value)

    @model_validator(mode="after")
    def _fits(self) -> TaskModel:
        if self.prompt is not None and self.prompt_file is not None:
            raise ValueError("give prompt or prompt_file, not both")
        if self.depth_max is not None and self.children_max is None:
            raise ValueError("depth_max is for a task that may add others: give children_max too")
        if self.gate_timeout is not None and self.gate is None:
            raise ValueError("gate_timeout is for a task that has a gate: give gate too")
        return self


def contradiction(task: TaskModel | TaskSpec) -> str:
    """Why two keys of a task exclude each other, wherever each was given; empty when they do not."""
    if task.same_path and task.sandbox == 0:
        return "same_path = true needs a sandbox, and sandbox = 0 is none"
    if task.network is not True and task.sandbox in (0, 1):
        limit = f"network = {written(task.network)}"
        return f"{limit} needs tier 2, and sandbox = {task.sandbox} is below it; leave sandbox out, or say network = true"
    return ""
