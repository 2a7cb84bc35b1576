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
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, ValidationError, field_validator, model_validator

from supervisor.config import kind_keys, plan_checks
from supervisor.config.locate import line_of
from supervisor.config.moments import Moment
from supervisor.config.network import Network, written
from supervisor.config.reading import MAX_INT, Class, Duration, Size, Strict, TaskSize, parse, read_text
from supervisor.config.snapshots import MIN_MEMORY, check_name
from supervisor.core import assign
from supervisor.core.assign import Rule
from supervisor.core.errors import ConfigError, UsageError
from supervisor.core.kind import Kind
from supervisor.core.names import nearest
from supervisor.core.spec import RunSpec, TaskSpec
from supervisor.core.task import TaskClass

MAX_TASKS = 20_000
TITLE_MAX = 100
"""Characters of a prompt that are its task's title when it has none."""
MIN_DISK = 2**20
"""Less than this and git could not even fill the worktree of a small repository."""
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")


def _value(text: str) -> str:
    """Of an option of an agent's."""
    if not text.isprintable() or text[:1] in ("", "-", " "):
        raise ValueError("give one line that does not begin with '-' or a blank: it is the value of an option")
    return text


def _shown(text: str) -> str:
    if not text.isprintable():
        raise ValueError("give one line of printable text")
    return text


OptionValue = Annotated[str, Field(max_length=1000), AfterValidator(_value)]
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
    size: TaskSize | None = None
    tags: Annotated[list[Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,31}$")]], Field(max_length=32)] = Field(default_factory=list)

    @field_validator("snapshot")
    @classmethod
    def _snapshot(cls, value: str) -> str:
        return check_name(value) if value else value

    @field_validator("params")
    @classmethod
    def _params(cls, value: dict[str, Scalar]) -> dict[str, Scalar]:
        for name, text in value.items():
            if not _VARIABLE.fullmatch(name):
                raise ValueError(f"{name!r} cannot be the name of an environment variable")
            if name.startswith("NIGHTCREW_"):
                raise ValueError(f"{name}: names that begin with NIGHTCREW_ are nightcrew's own")
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


class AfterModel(Strict):
    """`after` as a table: which tasks, and how they must have ended."""

    all: list[str] = Field(default_factory=list)
    any: list[str] = Field(default_factory=list)
    on: Literal["done", "finished"] = "done"


class PlanShared(Shared):
    """Keys that a plan's `[defaults]` may give for every task, and a project's may not: they are about one submission."""

    submitter: Annotated[str, Field(max_length=200), AfterValidator(_shown)] = ""
    not_after: Moment | None = None
    deadline: Moment | None = None


class TaskModel(PlanShared):
    """One `[[tasks]]` table."""

    id: str | None = None
    title: str | None = None
    command: str | list[str] | None = None
    prompt: str | None = None
    prompt_file: str | None = None
    after: AfterModel = Field(default_factory=lambda: AfterModel(all=[]))
    continue_from: str | None = None
    together: Annotated[str, Field(max_length=64)] = ""

    @field_validator("after", mode="before")
    @classmethod
    def _after(cls, value: Any) -> Any:
        """A list is short for `{ all = [...] }`."""
        if isinstance(value, list):
            return {"all": value}
        if not isinstance(value, dict):
            raise ValueError(  # noqa: TRY004 - pydantic reports ValueError, and lets TypeError through
                'give a list of ids, or { all = ["a", "b"], any = ["c", "d"], on = "finished" }'
            )
        return value

    @field_validator("id")
    @classmethod
    def _id(cls, value: str | None) -> str | None:
        return value if value is None else check_id(value)

    @field_validator("command")
    @classmethod
    def _command(cls, value: str | list[str] | None) -> str | list[str] | None:
        if value is not None and (not value or not "".join(value).strip()):
            raise ValueError("a command must not be empty")
        if value is not None and any("\0" in part for part in value):
            raise ValueError("a command cannot hold a NUL character")
        return value

    @model_validator(mode="after")
    def _one_prompt(self) -> TaskModel:
        if self.prompt is not None and self.prompt_file is not None:
            raise ValueError("give prompt or prompt_file, not both")
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
    rules: Sequence[Rule] = (),
) -> RunSpec:
    """Read and check a plan file. `kinds` are the kinds of agent that exist.
    `defaults` and `base` are the project's own, for what the plan does not say; of `defaults` only the keys that were set count.
    `snapshots` are the names that there are; None: any may be one. `rules` are the user's `[[assign]]`.

    Raises ConfigError with `file:line`, the key, and what is allowed or nearest.
    """
    text = read_text(path)
    model = parse(text, PlanModel, str(path))
    first_use = {_name(task, index): index for index, task in reversed(list(enumerate(model.tasks)))}
    given = [_given(task, model.defaults) for task in model.tasks]
    assigned = [_assigned(_inherit(task, defaults), rules) for task in model.tasks]
    model = model.model_copy(update={"tasks": [task for task, _ in assigned]})
    made = [replace(_task(model, index, first_use, path, text, kinds, given[index]), assigned=by) for index, (_, by) in enumerate(assigned)]
    own_path = {_name(task, index) for index, task in enumerate(model.tasks) if task.same_path is not None}
    tasks = kind_keys.at_one_path(made, own_path)
    plan_checks.no_cycle(tasks, text, path)
    if snapshots is not None:
        plan_checks.known_snapshots(tasks, snapshots, text, path)
    title = model.title if model.title is not None else path.stem
    return RunSpec(title=title, tasks=tasks, base=next((given for given in (model.base, base) if given is not None), "HEAD"))


def single(
    words: tuple[str, ...],
    kinds: Mapping[str, Kind],
    options: Mapping[str, Any],
    defaults: Shared | None = None,
    base: str | None = None,
    rules: Sequence[Rule] = (),
) -> RunSpec:
    """The run of one task, as `nightcrew add` makes it. `options` are the command's, named as there; None means not given.
    `defaults`, `base` and `rules` as for `load`.

    Raises UsageError for whatever a plan would refuse too.
    """
    given = {("class" if key == "task_class" else key): value for key, value in options.items() if value is not None and key != "name"}
    name = str(given.get("kind", defaults.kind if defaults is not None else "shell"))
    if name not in kinds:
        raise UsageError("bad value", on="--kind", why=f"{name!r} is not a kind of agent; {nearest(name, kinds)}")
    kind = kinds[name]
    if kind.program and not kind.is_agent:
        raise UsageError("bad value", on="--kind", why=f"a task of kind {name} brings its own command; write it into a plan")
    task, by = _assigned(_inherit(_typed({**given, **_what(kind, words), "id": options["name"]}), defaults), rules)
    if contradiction(task):
        raise UsageError("bad value", on="--sandbox", why=contradiction(task))
    prompt = _prompt(task, Path(), lambda key, why: UsageError("bad value", on=key, why=why))
    if misfit := kind_keys.misfit(kind, kind_keys.Asked(given, task.command is not None, prompt, task.interactive)):
        raise UsageError(misfit.what, on=misfit.key, why=misfit.why)
    said = prompt or "" if kind.is_agent else " ".join(words)
    title = task.title if task.title is not None else _first_line(said) if kind.is_agent else said
    title = title.encode("utf-8", "backslashreplace").decode()  # arguments may be any bytes, a title is text
    spec = replace(_spec(task, str(task.id), title, prompt, kind), assigned=by)
    return RunSpec(title=title, tasks=(spec,), base=base if base is not None else "HEAD")


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


def _given(task: TaskModel, defaults: Shared) -> set[str]:
    """The keys that the task itself has, and does not share with `[defaults]`."""
    shared = {key for key in defaults.model_fields_set if getattr(defaults, key) == getattr(task, key)}
    return task.model_fields_set - shared


def _inherit(task: TaskModel, defaults: Shared | None) -> TaskModel:
    """The task with those keys of `defaults` that neither it nor its plan's `[defaults]` sets."""
    if defaults is None:
        return task
    missing = defaults.model_fields_set - task.model_fields_set
    return task.model_copy(update={name: getattr(defaults, name) for name in missing})


def _assigned(task: TaskModel, rules: Sequence[Rule]) -> tuple[TaskModel, str]:
    """The task with what the rules give it, and which rule did. One that runs a command of its own takes neither kind nor model."""
    if task.command is not None or (task.prompt is None and task.prompt_file is None and not task.interactive):
        return task, ""
    kind, model = (getattr(task, key) if key in task.model_fields_set else "" for key in ("kind", "model"))
    given = assign.assign(rules, assign.Task(TaskClass(task.task_class), task.size or "", task.tags, kind, model or ""))
    new = {key: value for key, value in (("kind", given.kind), ("model", given.model)) if value}
    return task.model_copy(update=new), given.by


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


def _task(
    model: PlanModel, index: int, first_use: Mapping[str, int], path: Path, text: str, kinds: Mapping[str, Kind], given: set[str]
) -> TaskSpec:
    task = model.tasks[index]
    name = _name(task, index)

    def wrong(key: str, why: str, what: str = "bad value") -> ConfigError:
        return ConfigError(what, on=f"{path}:{line_of(text, ['tasks', index, key])} tasks.{key}", why=why)

    if first_use[name] != index:
        raise wrong("id", f"{name!r} is already the id of another task")
    if task.kind not in kinds:
        raise wrong("kind", f"{task.kind!r} is not a kind of agent; {nearest(task.kind, kinds)}")
    kind, prompt = kinds[task.kind], _prompt(task, path, wrong)
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


_OF_AGENTS = {"model", "steps_max", "allow", "interactive", "on_loss", "continue_from", "same_path", "tags"}
_DIFFERENT = {"id", "title", "command", "params", "prompt", "prompt_file", "after", "task_class", "timeout", "cores", "gpus", *_OF_AGENTS}
"""Keys whose value in a plan is not the value in a `TaskSpec`; a key that was not given is its default there."""


def _spec(task: TaskModel, name: str, title: str, prompt: str | None, kind: Kind) -> TaskSpec:
    command = task.command or (() if kind.is_agent else kind.program)
    return TaskSpec(
        **task.model_dump(exclude=_DIFFERENT, exclude_none=True),
        **kind_keys.values(kind, task.model, task.steps_max, task.allow, task.interactive),
        name=name,
        title=title,
        argv=("/bin/sh", "-c", command) if isinstance(command, str) else tuple(command),
        params={key: _text(value) for key, value in task.params.items()},
        prompt=prompt,
        after=tuple(dict.fromkeys((*task.after.all, *task.after.any, *filter(None, [task.continue_from])))),
        after_any=tuple(dict.fromkeys(need for need in task.after.any if need != task.continue_from)),
        continue_from=task.continue_from or "",
        on_loss=(task.on_loss or "") if kind.resume else "",
        same_path=bool(task.same_path) and kind.is_agent,
        after_on=task.after.on,
        task_class=TaskClass(task.task_class),
        timeout_s=task.timeout or 0.0,
        tags=tuple(dict.fromkeys(task.tags)),
        cores=tuple(task.cores) if isinstance(task.cores, list) else task.cores or 0,
        gpus=tuple(sorted(set(task.gpus))) if isinstance(task.gpus, list) else task.gpus,
    )


def _prompt(task: TaskModel, path: Path, wrong: Any) -> str | None:
    if task.prompt_file is None:
        return task.prompt
    file = path.parent / task.prompt_file
    try:
        return read_text(file)
    except ConfigError as error:
        raise wrong("prompt_file", f"{file}: {error.why}") from None


def _text(value: Scalar) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
