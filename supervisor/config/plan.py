"""The plan file: tasks, what each waits for, and moments as people write them."""

from __future__ import annotations

import graphlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError, model_validator

from supervisor.config import kinds as choosing
from supervisor.config import kinds as kind_keys
from supervisor.config import task_keys
from supervisor.config.kinds import Choices, Chooser
from supervisor.config.task_keys import BestOfKeys, CandidateModel, JudgeModel, PlanShared, Shared, TaskModel, contradiction
from supervisor.config.toml import Once, Strict, line_of, parse, read_text
from supervisor.kernel.errors import ConfigError, UsageError
from supervisor.kernel.kind import Kind
from supervisor.kernel.names import nearest
from supervisor.kernel.retry import TIMEOUT_S
from supervisor.kernel.spec import RunSpec, TaskSpec
from supervisor.kernel.states import TaskClass

# Plan checks
# -----------
# What must hold between the tasks of a plan; errors name the file's line.


def known_snapshots(tasks: Sequence[TaskSpec], tables: Sequence[int], snapshots: Collection[str], text: str, path: Path) -> None:
    """Raises ConfigError for a snapshot that is none of `snapshots`. `tables`: the number of each task's table."""
    for index, task in zip(tables, tasks, strict=True):
        if task.snapshot and task.snapshot not in snapshots:
            known = nearest(task.snapshot, snapshots) if snapshots else "there is none; describe it as [snapshot.NAME] in nightcrew.toml"
            on = f"{path}:{line_of(text, ['tasks', index, 'snapshot'])} tasks.snapshot"
            raise ConfigError("bad value", on=on, why=f"{task.snapshot!r} is not a snapshot; {known}")


def no_cycle(tasks: Sequence[TaskSpec], tables: Sequence[int], text: str, path: Path) -> None:
    """Raises ConfigError when tasks wait for each other. `tables`: the number of each task's table."""
    try:
        graphlib.TopologicalSorter({task.name: task.after for task in tasks}).prepare()
    except graphlib.CycleError as error:
        ring = [str(name) for name in reversed(error.args[1])]
        index = next(number for number, task in zip(tables, tasks, strict=True) if task.name == ring[0])
        on = f"{path}:{line_of(text, ['tasks', index, 'after'])} tasks.after"
        shown = ring if len(ring) <= 12 else [*ring[:10], f"({len(ring) - 11} more)", ring[-1]]
        raise ConfigError("bad value", on=on, why=f"the tasks wait for each other: {' -> '.join(shown)}") from None


# Plan
# ----
# The plan file: `nightcrew run plan.toml`.
#
#     title = "nightly chores"          # optional
#     base = "main"                     # optional: where worktrees start; default HEAD
#
#     [defaults]                        # optional: any task key but id, title, after and what to run
#     timeout = "30m"
#
#     [[tasks]]
#     id = "lint"
#     command = "ruff check ."
#     after = ["format"]
#
# Every key is described in docs/plan.md. Only keys that are implemented are accepted.


MAX_TASKS = 20_000
TITLE_MAX = 100
"""Characters of a prompt that are its task's title when it has none."""


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
    first_use = {name: index for index, task in reversed(list(enumerate(model.tasks))) for name in _names(task, index)}
    given = [choosing.given(task, model.defaults) for task in model.tasks]
    start = next((given for given in (model.base, base) if given is not None), "HEAD")
    chooser = Chooser(choices, start, path.parent, files)
    assigned = [chooser.choose(choosing.inherit(task, defaults)) for task in model.tasks]
    model = model.model_copy(update={"tasks": [task for task, _ in assigned]})
    at = _Place(path, text, files, kinds, first_use)
    found = [(index, replace(one, assigned=by)) for index, (_, by) in enumerate(assigned) for one in _tasks(model, index, at, given[index])]
    if len(found) > MAX_TASKS:
        raise ConfigError("bad value", on=f"{path}:1 tasks", why=f"with candidates {len(found)}; a plan has at most {MAX_TASKS}")
    own_path = {name for index, task in enumerate(model.tasks) if task.same_path is not None for name in _names(task, index)}
    tasks, tables = kind_keys.at_one_path([one for _, one in found], own_path), [index for index, _ in found]
    no_cycle(tasks, tables, text, path)
    if snapshots is not None:
        known_snapshots(tasks, tables, snapshots, text, path)
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
    given = {("class" if key == "task_class" else key): value for key, value in options.items() if value is not None}
    name = str(given.get("kind", defaults.kind if defaults is not None else "shell"))
    if name not in kinds:
        raise UsageError("bad value", on="--kind", why=f"{name!r} is not a kind of agent; {nearest(name, kinds)}")
    kind = kinds[name]
    if kind.program and not kind.is_agent:
        raise UsageError("bad value", on="--kind", why=f"a task of kind {name} brings its own command; write it into a plan")
    start = base if base is not None else "HEAD"
    asked = choosing.inherit(_typed({**_what(kind, words), **given}), defaults)
    task, by = Chooser(choices, start, Path()).choose(asked)
    if contradiction(task):
        raise UsageError("bad value", on="--sandbox", why=contradiction(task))
    prompt = _prompt(task, Path(), Once(), lambda key, why: UsageError("bad value", on=key, why=why))
    if misfit := kind_keys.misfit(kind, kind_keys.Asked(given, task.command is not None, prompt, task.interactive)):
        raise UsageError(misfit.what, on=misfit.key, why=misfit.why)
    said = prompt or "" if kind.is_agent else " ".join(words)
    title = task.title if task.title is not None else _first_line(said) if kind.is_agent else said
    title = title.encode("utf-8", "backslashreplace").decode()  # arguments may be any bytes, a title is text
    if wrong := task.misfit(str(task.id), gate=task.gate is not None, interactive=task.interactive):
        raise UsageError("bad value", on=wrong[0], why=wrong[1])
    spec = replace(_spec(task, str(task.id), title, prompt, kind), assigned=by)
    specs = task_keys.tasks(task, spec.name, lambda *_: spec, _no_judge) if task.is_group else [spec]
    return RunSpec(title=title, tasks=tuple(specs), base=start)


def _no_judge(judge: JudgeModel) -> TaskSpec:
    raise UsageError("bad value", on="--judge", why=f"a plan names a judge ({judge.kind}), a command line does not")


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


def _names(task: TaskModel, index: int) -> list[str]:
    """All ids of a table."""
    name = _name(task, index)
    return [name, *task_keys.names(task, name)]


def _name(task: TaskModel, index: int) -> str:
    return task.id if task.id is not None else f"task-{index + 1}"


@dataclass(frozen=True, slots=True)
class _Place:
    """A plan that is read: where it lies, its text, and the files that it names."""

    path: Path
    text: str
    files: Once
    kinds: Mapping[str, Kind]
    first_use: Mapping[str, int]
    """The table of each id."""

    def wrong(self, where: Sequence[str | int], why: str, what: str = "bad value") -> ConfigError:
        """`where`: the table's number, and the keys in it."""
        key = ".".join(str(part) for part in where[1:] if isinstance(part, str))
        return ConfigError(what, on=f"{self.path}:{line_of(self.text, ['tasks', *where])} tasks.{key}", why=why)


def _tasks(model: PlanModel, index: int, at: _Place, given: set[str]) -> list[TaskSpec]:
    """What one table is: a task, or its candidates, their judges and their group."""
    task = model.tasks[index]
    name = _name(task, index)
    for one, what in ((name, ""), *task_keys.names(task, name).items()):
        if at.first_use[one] != index:
            raise at.wrong([index, "id"], f"{one!r}{f', {what} of it,' if what else ''} is already the id of another task")
    if misfit := task.misfit(name, gate=task.gate is not None, interactive=task.interactive):
        raise at.wrong([index, misfit[0]], misfit[1])
    if not task.is_group:
        return [_task(model, task, index, at, given)]
    return task_keys.tasks(
        task, name,
        lambda number, one: _task(model, _candidate(task, one), index, at, _given(task, one, given), ("candidates", number)),
        lambda judge: _task(model, _judge(task, judge, at, index), index, at, set(), ("judge",)),
    )  # fmt: skip


_OF_ONE_KIND = ("model", "allow")
"""Another kind has other models, and other names for its tools."""


def _candidate(task: TaskModel, one: CandidateModel) -> TaskModel:
    """The task as one candidate has it."""
    return task.model_copy(update={**(dict.fromkeys(_OF_ONE_KIND) if _is_other(task, one) else {}), **one.said})


def _given(task: TaskModel, one: CandidateModel, given: set[str]) -> set[str]:
    """The keys that a candidate has, of which `given` are the task's own."""
    return given.difference(_OF_ONE_KIND if _is_other(task, one) else ()) | one.model_fields_set


def _is_other(task: TaskModel, one: CandidateModel) -> bool:
    return one.kind is not None and one.kind != task.kind


def _judge(task: TaskModel, judge: JudgeModel, at: _Place, index: int) -> TaskModel:
    """One that judges is told its rubric, and has no tool that asks first."""
    rubric = judge.rubric
    if judge.rubric_file is not None:
        try:
            rubric = read_text(at.path.parent / judge.rubric_file, files=at.files)
        except ConfigError as error:
            raise at.wrong([index, "judge", "rubric_file"], f"{judge.rubric_file}: {error.why}") from None
    return task_keys.judge_task(TaskModel, judge, rubric, sandbox=task.sandbox)


def _task(model: PlanModel, task: TaskModel, index: int, at: _Place, given: set[str], inside: tuple[str | int, ...] = ()) -> TaskSpec:
    """`inside`: where in its table the candidate is that it is."""
    name, first_use, kinds = _name(task, index), at.first_use, at.kinds

    def wrong(key: str, why: str, what: str = "bad value") -> ConfigError:
        own = inside and (inside == ("judge",) or key not in model.tasks[index].model_fields_set)
        return at.wrong([index, *inside, key] if own else [index, key], why, what)

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
    if (parent := task.continue_from) and parent in first_use and model.tasks[first_use[parent]].is_group:
        raise wrong("continue_from", f"{parent} is one of several that try the same; let the task come after them, and read the result")
    if parent:
        theirs = model.tasks[first_use[parent]].kind if parent in first_use else None
        if why := kind_keys.no_parent(parent, theirs, task.kind, first_use):
            raise wrong("continue_from", why)
    return _spec(task, name, task.title if task.title is not None else _first_line(prompt or "") or name, prompt, kind)


_OF_AGENTS = {"model", "steps_max", "allow", "interactive", "on_loss", "continue_from", "same_path", "tags", "depth_max"}
_GATE = {"gate", "gate_timeout"}
_DIFFERENT = {
    *BestOfKeys.model_fields,
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
