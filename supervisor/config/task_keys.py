"""The keys of one task, as a plan and a project file have them: shapes, and what each may be. What depends on a kind is in `kind_keys`."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from supervisor.config.after import AfterModel
from supervisor.config.best_of import BestOfKeys
from supervisor.config.moments import Moment
from supervisor.config.network import Network, written
from supervisor.config.reading import (
    MAX_INT,
    Class,
    Command,
    Duration,
    Glob,
    OptionValue,
    Shown,
    Size,
    Strict,
    TaskSize,
    variable,
)
from supervisor.config.snapshots import MIN_MEMORY, check_name
from supervisor.core.leases import GLOBS_MAX
from supervisor.core.spec import TaskSpec

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


class TaskModel(PlanShared, BestOfKeys):
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


def contradiction(task: TaskModel | TaskSpec) -> str:
    """Why two keys of a task exclude each other, wherever each was given; empty when they do not."""
    if task.same_path and task.sandbox == 0:
        return "same_path = true needs a sandbox, and sandbox = 0 is none"
    if task.network is not True and task.sandbox in (0, 1):
        limit = f"network = {written(task.network)}"
        return f"{limit} needs tier 2, and sandbox = {task.sandbox} is below it; leave sandbox out, or say network = true"
    return ""
