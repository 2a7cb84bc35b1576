"""The user's settings: `$XDG_CONFIG_HOME/nightcrew/config.toml`. Every key is optional; docs/settings.md describes each."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from supervisor.config import gateway
from supervisor.config.gateway import GatewayKeys
from supervisor.config.locate import line_of
from supervisor.config.moments import WindowOfDay
from supervisor.config.places import path as path
from supervisor.config.reading import MAX_INT, Class, Duration, Size, Strict, TaskSize, parse, read_text
from supervisor.core.assign import Rule
from supervisor.core.errors import ConfigError
from supervisor.core.gateway.settings import GatewaySettings
from supervisor.core.kind import Kind
from supervisor.core.names import nearest
from supervisor.core.spec import Settings
from supervisor.core.task import TaskClass

_FIELD = Settings()


class LimitsModel(Strict):
    """`[limits]`: what each agent may use."""

    log_max: Annotated[Size, Field(ge=4096)] = _FIELD.log_max
    memory_max: Annotated[Size, Field(ge=0)] = _FIELD.memory_max
    file_max: Annotated[Size, Field(ge=0)] = _FIELD.file_max
    open_files: Annotated[int, Field(ge=0, le=MAX_INT)] = _FIELD.open_files
    disk_free_min: Annotated[Size, Field(ge=0)] = _FIELD.disk_free_min


class CoresModel(Strict):
    """`[cores]`: how agents share the processors."""

    reserve: Annotated[int, Field(ge=0, le=4096)] | None = None


class QueueModel(Strict):
    """`[queue]`: in which order tasks start."""

    ageing: Annotated[Duration, Field(ge=1, le=365 * 86400)] = _FIELD.ageing_s
    weights: dict[str, Annotated[float, Field(gt=0, le=1000)]] = Field(default_factory=dict)


class BatchModel(Strict):
    """`[batch]`: when batch tasks start."""

    window: WindowOfDay | None = None
    when_idle: bool = _FIELD.batch_when_idle


class LeadModel(Strict):
    """`[lead]`: who sums an analysis up in prose."""

    model: Annotated[str, Field(max_length=128)] = _FIELD.lead_model


class AgentsModel(Strict):
    """`[agents]`: what `nightcrew start` starts."""

    kind: Annotated[str, Field(min_length=1, max_length=64)] = _FIELD.agent_kind


class AssignModel(Strict):
    """One `[[assign]]`: which kind and model a task gets that does not say so."""

    task_class: Annotated[Class | None, Field(alias="class")] = None
    size: TaskSize | Literal[""] = ""
    tags: Annotated[list[Annotated[str, Field(min_length=1, max_length=32)]], Field(max_length=32)] = Field(default_factory=list)
    kind: Annotated[str, Field(max_length=64)] = ""
    model: Annotated[str, Field(max_length=1000)] = ""

    @model_validator(mode="after")
    def _gives(self) -> AssignModel:
        if not self.kind and not self.model:
            raise ValueError("it gives nothing: say kind, model or both")
        return self

    def rule(self, where: str) -> Rule:
        """As the core knows it."""
        task_class = TaskClass(self.task_class) if self.task_class else None
        return Rule(where, task_class, self.size, tuple(self.tags), self.kind, self.model)


class UserModel(GatewayKeys):
    """The whole file."""

    slots: Annotated[int, Field(ge=1, le=1000)] | None = None
    grace: Annotated[Duration, Field(ge=0, le=600)] = _FIELD.grace_s
    nice: Annotated[int, Field(ge=0, le=19)] = _FIELD.nice
    sandbox: Annotated[int, Field(ge=0, le=2)] | None = None
    shared_caches: bool = _FIELD.shared_caches
    pass_env: list[str] = Field(default_factory=list)
    limits: LimitsModel = Field(default_factory=LimitsModel)
    cores: CoresModel = Field(default_factory=CoresModel)
    queue: QueueModel = Field(default_factory=QueueModel)
    batch: BatchModel = Field(default_factory=BatchModel)
    lead: LeadModel = Field(default_factory=LeadModel)
    agents: AgentsModel = Field(default_factory=AgentsModel)
    assign: Annotated[list[AssignModel], Field(max_length=1000)] = Field(default_factory=list)


def _there(file: Path) -> bool:
    """Whether there is a file, readable or not: one that cannot be looked at must not mean the defaults."""
    try:
        file.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        pass
    return True


def load(file: Path, usable_cores: int) -> Settings:
    """The settings; a missing file means the defaults. By default there are two slots a core, at least eight.

    Raises ConfigError as every file does.
    """
    model = _read(file)
    return Settings(
        slots=model.slots if model.slots is not None else max(8, 2 * usable_cores),
        grace_s=model.grace,
        cores_reserve=model.cores.reserve,
        lead_model=model.lead.model,
        agent_kind=model.agents.kind,
        pass_env=tuple(model.pass_env),
        ageing_s=model.queue.ageing,
        weights=model.queue.weights,
        batch_window=model.batch.window,
        batch_when_idle=model.batch.when_idle,
        **model.limits.model_dump(),
        **model.model_dump(include={"nice", "sandbox", "shared_caches"}),
    )


def assignments(file: Path, kinds: Mapping[str, Kind]) -> tuple[Rule, ...]:
    """The `[[assign]]` rules of the same file, in its order. Raises ConfigError as every file does, and for a kind that is none of `kinds`
    or takes no prompt."""
    rules = []
    for index, model in enumerate(_read(file).assign):
        text = read_text(file)
        if model.kind and not (model.kind in kinds and kinds[model.kind].is_agent):
            agents = [name for name, kind in kinds.items() if kind.is_agent]
            on = f"{file}:{line_of(text, ['assign', index, 'kind'])} assign.kind"
            raise ConfigError("bad value", on=on, why=f"{model.kind!r} is not a kind of agent; {nearest(model.kind, agents)}")
        rules.append(model.rule(f"{file.name}:{line_of(text, ['assign', index])}"))
    return tuple(rules)


def load_gateway(file: Path, stored: Path | None = None) -> GatewaySettings:
    """The gateway's settings of the same file. `stored` is the directory of keys (`Home.keys`): without `[upstream]` tables every
    provider whose key is there is used. Raises ConfigError as every file does."""
    return gateway.settings(_read(file), stored)


def _read(file: Path) -> UserModel:
    if not _there(file):
        return UserModel()
    text = read_text(file, empty=True)
    model = parse(text, UserModel, str(file))
    gateway.check_routes(model, text, str(file))
    return model
