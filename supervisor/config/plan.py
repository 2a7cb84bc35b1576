"""The plan file: `nightcrew run plan.toml`.

    title = "nightly chores"          # optional
    base = "main"                     # optional: where worktrees start; default HEAD

    [defaults]                        # optional: any task key but id, title, after and what to run
    timeout = "30m"

    [[tasks]]
    id = "lint"
    command = "ruff check ."
    after = ["format"]

Every key is described in docs/plan.md. Only keys that are implemented are accepted.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, field_validator, model_validator

from supervisor.config import choosing, kind_keys, plan_checks
from supervisor.config.after import AfterModel
from supervisor.config.choosing import Choices, Chooser
from supervisor.config.locate import line_of
from supervisor.config.moments import Moment
from supervisor.config.network import Network, written
from supervisor.config.reading import (
    MAX_INT,
    Class,
    Command,
    Duration,
    Glob,
    Once,
    OptionValue,
    Shown,
    Size,
    Strict,
    TaskSize,
    parse,
    read_text,
    variable,
)
from supervisor.config.snapshots import MIN_MEMORY, check_name
from supervisor.core.errors import ConfigError, UsageError
from supervisor.core.gates import TIMEOUT_S
from supervisor.core.kind import Kind
from supervisor.core.leases import GLOBS_MAX
from supervisor.core.names import nearest
from supervisor.core.spec import RunSpec, TaskSpec
from supervisor.core.states import TaskClass

MAX_TASKS = 20_000
TITLE_MAX = 100
"""Characters of a prompt that are its task's title when it has none."""
MIN_DISK = 2**20
"""Less than this and git could not even fill the worktree of a small repository."""
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


Scalar = str | int | float | bool


class Shared(Strict):
    """Keys that `[defaults]` may give for every task."""

    kind: str = "shell"
    params: dict[str, Scalar] = Field(default_factory=dict)
    priority: Annotated[int, Field(ge=0, le=100)] = 50
    task_class: Annotated[Class, Field(alias="class")] = "normal"
    timeout: Annotated[Duration, Field(gt=0, le=30 * 86400)] | None = None
    retries: Annotated[int, Field(ge=0, le=100)] = 0
    cores: Annotated[int, Field(ge=1, le=4096)] | list[Annotated[int, Field(ge=0, le=4095)]] | None = None
    weight: Annotated[float, Field(gt=0, le=1000)] = 1.0
    tpm_max: Annotated[int, Field(ge=1, le=10**12)] | None = None
    cost_max: Annotated[float, Field(gt=0, le=1e9)] | None = None
    tokens_max: Annotated[int, Field(ge=1, le=10**12)] | None = None
    snapshot: str = ""
    sandbox: Annotated[int, Field(ge=0, le=2)] | None = None
    network: Network = True
    gpus: bool | Annotated[list[Annotated[int, Field(ge=0, le=255)]], Field(min_length=1, max_length=256)] = True
    memory_max: Annotated[Size, Field(ge=MIN_MEMORY)] | None = None
    disk_max: Annotated[Size, Field(ge=MIN_DISK)] | None = None
    processes_max: Annotated[int, Field(ge=1, le=2**22)] | None = None
    cpu_max: Annotated[Duration, Field(ge=1, le=365 * 86400)] | None = None
    model: OptionValue | None = None
    steps_max: Annotated[int, Field(ge=1, le=100_000)] | None = None
    allow: Annotated[list[OptionValue], Field(max_length=200)] | None = None
    interactive: bool = False
    on_loss: Literal["resume", "restart"] | None = None
    same_path: bool | None = None
    size: TaskSize | Literal["auto"] | None = None
    tags: Annotated[list[Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,31}$")]], Field(max_length=32)] = Field(default_factory=list)
    children_max: Annotated[int, Field(ge=1, le=1000)] | None = None
    depth_max: Annotated[int, Field(ge=1, le=5)] | None = None
    gate: Command | None = None
    gate_timeout: Annotated[Duration, Field(gt=0, le=86400)] | None = None

    @field_validator("snapshot")
    @classmethod
    def _snapshot(cls, value: str) -> str:
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


class PlanShared(Shared):
    """Keys that a plan's `[defaults]` may give for every task, and a project's may not: they are about one submission."""

    submitter: Annotated[Shown, Field(max_length=200)] = ""
    not_after: Moment | None = None
    deadline: Moment | None = None
    preempt: bool = False


class TaskModel(PlanShared):
    """One `[[tasks]]` table."""

    id: str | None = None
    title: str | None = None
    command: Command | None = None
    prompt: str | None = None
    prompt_file: str | None = None
    after: AfterModel = Field(default_factory=lambda: AfterModel(all=[]))
    continue_from: str | None = None
    together: Annotated[str, Field(max_length=64)] = ""
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


class PlanModel(Strict):
    """The whole file."""

    title: str | None = None
    base: str | None = None
    defaults: PlanShared = Field(default_factory=PlanShared)
    tasks: Annotated[list[TaskModel], Field(min_length=1, max_length=MAX_TASKS)]

    @model_validator(mode="before")
    @classmethod
    def _spread_defaults(cls, shape: Any) -> Any:
        """Give each task what `[defaults]` says and it does not."""
        if not isinstance(shape, dict) or not isinstance(shape.get("defaults"), dict) or not isinstance(shape.get("tasks"), list):
            return shape
        try:
            PlanShared.model_validate(shape["defaults"])
        except ValidationError:
            return shape  # the field `defaults` then fails by itself, and the error names its own line
        tasks = [{**shape["defaults"], **task} if isinstance(task, dict) else task for task in shape["tasks"]]
        return {**shape, "tasks": tasks}


def load(
    path: Path,
    kinds: Mapping[str, Kind],
    defaults: Shared | None = None,
    base: str | None = None,
    snapshots: Collection[str] | None = None,
    choices: Choices = choosing.NONE,
    files: Once | None = None,
) -> RunSpec:
    """Read and check a plan file, which is as `files` has it, and so is each `prompt_file`. `kinds` are the kinds of agent that exist.
    `defaults` and `base` are the project's own, for what the plan does not say; of `defaults` only the keys that were set count.
    `snapshots` are the names that there are; None: any may be one. `choices` are the user's.

    Raises ConfigError with `file:line`, the key, and what is allowed or nearest.
    """
    files = files or Once()
    text = read_text(path, files=files)
    model = parse(text, PlanModel, str(path))
    first_use = {_name(task, index): index for index, task in reversed(list(enumerate(model.tasks)))}
    given = [choosing.given(task, model.defaults) for task in model.tasks]
    start = next((given for given in (model.base, base) if given is not None), "HEAD")
    chooser = Chooser(choices, start, path.parent, files)
    assigned = [chooser.choose(choosing.inherit(task, defaults)) for task in model.tasks]
    model = model.model_copy(update={"tasks": [task for task, _ in assigned]})
    at = _Place(path, text, files)
    made = [replace(_task(model, index, first_use, at, kinds, given[index]), assigned=by) for index, (_, by) in enumerate(assigned)]
    own_path = {_name(task, index) for index, task in enumerate(model.tasks) if task.same_path is not None}
    tasks = kind_keys.at_one_path(made, own_path)
    plan_checks.no_cycle(tasks, text, path)
    if snapshots is not None:
        plan_checks.known_snapshots(tasks, snapshots, text, path)
    title = model.title if model.title is not None else path.stem
    return RunSpec(title=title, tasks=tasks, base=start)


def single(
    words: tuple[str, ...],
    kinds: Mapping[str, Kind],
    options: Mapping[str, Any],
    defaults: Shared | None = None,
    base: str | None = None,
    choices: Choices = choosing.NONE,
) -> RunSpec:
    """The run of one task, as `nightcrew add` makes it. `options` are the command's, named as there; None means not given.
    `defaults`, `base` and `choices` as for `load`.

    Raises UsageError for whatever a plan would refuse too.
    """
    given = {("class" if key == "task_class" else key): value for key, value in options.items() if value is not None and key != "name"}
    name = str(given.get("kind", defaults.kind if defaults is not None else "shell"))
    if name not in kinds:
        raise UsageError("bad value", on="--kind", why=f"{name!r} is not a kind of agent; {nearest(name, kinds)}")
    kind = kinds[name]
    if kind.program and not kind.is_agent:
        raise UsageError("bad value", on="--kind", why=f"a task of kind {name} brings its own command; write it into a plan")
    start = base if base is not None else "HEAD"
    asked = choosing.inherit(_typed({**given, **_what(kind, words), "id": options["name"]}), defaults)
    task, by = Chooser(choices, start, Path()).choose(asked)
    if contradiction(task):
        raise UsageError("bad value", on="--sandbox", why=contradiction(task))
    prompt = _prompt(task, Path(), Once(), lambda key, why: UsageError("bad value", on=key, why=why))
    if misfit := kind_keys.misfit(kind, kind_keys.Asked(given, task.command is not None, prompt, task.interactive)):
        raise UsageError(misfit.what, on=misfit.key, why=misfit.why)
    said = prompt or "" if kind.is_agent else " ".join(words)
    title = task.title if task.title is not None else _first_line(said) if kind.is_agent else said
    title = title.encode("utf-8", "backslashreplace").decode()  # arguments may be any bytes, a title is text
    spec = replace(_spec(task, str(task.id), title, prompt, kind), assigned=by)
    return RunSpec(title=title, tasks=(spec,), base=start)


def _what(kind: Kind, words: tuple[str, ...]) -> dict[str, Any]:
    """The words of a command line as the keys that they mean."""
    if not kind.is_agent:
        return {"command": words[0] if len(words) == 1 else list(words)}
    return {"prompt": " ".join(words).encode("utf-8", "backslashreplace").decode()} if words else {}


def _typed(shape: dict[str, Any]) -> TaskModel:
    try:
        return TaskModel.model_validate(shape)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise UsageError("bad value", on=str((*first["loc"], "")[0]), why=first["msg"].removeprefix("Value error, ")) from None


def _first_line(prompt: str) -> str:
    """What stands for a prompt where there is little room."""
    return next((line.strip()[:TITLE_MAX] for line in prompt.splitlines() if line.strip()), "")


def contradiction(task: TaskModel | TaskSpec) -> str:
    """Why two keys of a task exclude each other, wherever each was given; empty when they do not."""
    if task.same_path and task.sandbox == 0:
        return "same_path = true needs a sandbox, and sandbox = 0 is none"
    if task.network is not True and task.sandbox in (0, 1):
        limit = f"network = {written(task.network)}"
        return f"{limit} needs tier 2, and sandbox = {task.sandbox} is below it; leave sandbox out, or say network = true"
    return ""


def _name(task: TaskModel, index: int) -> str:
    return task.id if task.id is not None else f"task-{index + 1}"


@dataclass(frozen=True, slots=True)
class _Place:
    """A plan that is read: where it lies, its text, and the files that it names."""

    path: Path
    text: str
    files: Once


def _task(model: PlanModel, index: int, first_use: Mapping[str, int], at: _Place, kinds: Mapping[str, Kind], given: set[str]) -> TaskSpec:
    task = model.tasks[index]
    name = _name(task, index)

    def wrong(key: str, why: str, what: str = "bad value") -> ConfigError:
        return ConfigError(what, on=f"{at.path}:{line_of(at.text, ['tasks', index, key])} tasks.{key}", why=why)

    if first_use[name] != index:
        raise wrong("id", f"{name!r} is already the id of another task")
    if task.kind not in kinds:
        raise wrong("kind", f"{task.kind!r} is not a kind of agent; {nearest(task.kind, kinds)}")
    kind, prompt = kinds[task.kind], _prompt(task, at.path, at.files, wrong)
    if misfit := kind_keys.misfit(kind, kind_keys.Asked(given, task.command is not None, prompt, task.interactive)):
        raise wrong(misfit.key, misfit.why, misfit.what)
    if contradiction(task):
        raise wrong("sandbox", contradiction(task))
    for need in (*task.after.all, *task.after.any):
        if need in task.after.all and need in task.after.any:
            raise wrong("after", f"{need!r} stands in all and in any; leave it out of any")
        if need not in first_use:
            raise wrong("after", f"no task has the id {need!r}; {nearest(need, first_use)}")
    if parent := task.continue_from:
        theirs = model.tasks[first_use[parent]].kind if parent in first_use else None
        if why := kind_keys.no_parent(parent, theirs, task.kind, first_use):
            raise wrong("continue_from", why)
    return _spec(task, name, task.title if task.title is not None else name, prompt, kind)


_OF_AGENTS = {"model", "steps_max", "allow", "interactive", "on_loss", "continue_from", "same_path", "tags", "depth_max"}
_GATE = {"gate", "gate_timeout"}
_DIFFERENT = {
    "id", "title", "command", "params", "prompt", "prompt_file", "after", "task_class", "timeout", "cores", "gpus", "cost_max", "paths",
    *_GATE, *_OF_AGENTS,
}  # fmt: skip
"""Keys whose value in a plan is not the value in a `TaskSpec`; a key that was not given is its default there."""


def _spec(task: TaskModel, name: str, title: str, prompt: str | None, kind: Kind) -> TaskSpec:
    command = task.command or (() if kind.is_agent else kind.program)
    said = {"timeout_s": task.timeout, "steps_max": task.steps_max, "cost_max": task.cost_max}
    return TaskSpec(
        **task.model_dump(exclude=_DIFFERENT, exclude_none=True),
        **kind_keys.values(kind, task.model, task.allow, task.interactive),
        **kind_keys.bounds(kind, said, bounded=not (task.interactive or task.children_max)),
        name=name,
        title=title,
        argv=_argv(command),
        gate=_argv(task.gate or ()),
        gate_timeout_s=(task.gate_timeout or TIMEOUT_S) if task.gate else 0.0,
        params={key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in task.params.items()},
        prompt=prompt,
        after=tuple(dict.fromkeys((*task.after.all, *task.after.any, *filter(None, [task.continue_from])))),
        after_memory=tuple(dict.fromkeys(task.after.memory)),
        after_any=tuple(dict.fromkeys(need for need in task.after.any if need != task.continue_from)),
        continue_from=task.continue_from or "",
        on_loss=(task.on_loss or "") if kind.resume else "",
        same_path=bool(task.same_path) and kind.is_agent,
        after_on=task.after.on,
        task_class=TaskClass(task.task_class),
        tags=tuple(dict.fromkeys(task.tags)),
        paths=tuple(sorted(set(task.paths))),
        cores=tuple(task.cores) if isinstance(task.cores, list) else task.cores or 0,
        gpus=tuple(sorted(set(task.gpus))) if isinstance(task.gpus, list) else task.gpus,
        depth_max=task.depth_max or (1 if task.children_max else 0),
    )


def _argv(command: str | Sequence[str]) -> tuple[str, ...]:
    return ("/bin/sh", "-c", command) if isinstance(command, str) else tuple(command)


def _prompt(task: TaskModel, path: Path, files: Once, wrong: Any) -> str | None:
    if task.prompt_file is None:
        return task.prompt
    file = path.parent / task.prompt_file
    try:
        return read_text(file, files=files)
    except ConfigError as error:
        raise wrong("prompt_file", f"{file}: {error.why}") from None
