"""The person's settings, config.toml; each key and when a change of it takes effect."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, field_validator, model_validator

from supervisor.config import gateway
from supervisor.config.gateway import GatewayKeys
from supervisor.config.kinds import Choices
from supervisor.config.task_keys import MIN_MEMORY, WindowOfDay, moment
from supervisor.config.toml import (
    MAX_INT,
    Class,
    Duration,
    Size,
    Strict,
    TaskSize,
    Variable,
    duration,
    inner_model,
    into,
    line_of,
    parse,
    read_text,
)
from supervisor.features.notify.rules import HERE, Receiver, Terms
from supervisor.features.notify.rules import Kind as RulesKind
from supervisor.kernel import capacity
from supervisor.kernel.capacity import Growth
from supervisor.kernel.errors import ConfigError
from supervisor.kernel.gateway_settings import GatewaySettings
from supervisor.kernel.kind import Kind, Rule
from supervisor.kernel.names import nearest
from supervisor.kernel.night import NightDefaults, Window
from supervisor.kernel.pressure import Limits
from supervisor.kernel.retention import Keep, Limit
from supervisor.kernel.settings import MemoryTerms, Settings
from supervisor.kernel.spec import Size as TaskGets
from supervisor.kernel.telemetry import Terms as TelemetryTerms

# Notify
# ------
# `[notify]` of the user's file: where messages go, which, and when. A repository's own file cannot say it: an address is a secret.


_TERMS = Terms()
_ENV = re.compile(r"env:[A-Za-z_][A-Za-z0-9_]*")
_FILE = re.compile(r"file:[^\x00]+")
_ADDRESS = re.compile(r"[a-z0-9]+://\S+", re.IGNORECASE)
What = Literal["needs_person", "failed", "breaker_open", "cap_near", "night_done"]

Channel = Literal["bell", "tmux", "desktop"]


class NotifyModel(Strict):
    """`[notify]`."""

    here: list[Channel] = Field(default_factory=lambda: list[Channel](("bell", "tmux")))
    here_on: list[What] | None = None
    urls: Annotated[list[Annotated[str, Field(max_length=4000)]], Field(max_length=20)] = Field(default_factory=list)
    on: list[What] | None = None
    urgent: list[What] | None = None
    quiet_hours: WindowOfDay | None = None
    text: bool = _TERMS.text

    @field_validator("urls")
    @classmethod
    def _urls(cls, value: list[str]) -> list[str]:
        for number, url in enumerate(value):
            if not any(form.fullmatch(url) for form in (_ENV, _FILE, _ADDRESS)) or url.lower().startswith(("env://", "file://")):
                raise ValueError(f'number {number + 1} is none of "env:NAME", "file:PATH" and an address of apprise such as "ntfy://TOPIC"')
        if len(set(value)) < len(value):
            raise ValueError("an address stands there twice")
        return value

    def terms(self, quiet: Window | None = None) -> Terms:
        """As the core knows them. `quiet`: the hours that hold where none are set here."""
        return Terms(
            receivers=tuple(_receiver(number, url) for number, url in enumerate(self.urls)),
            on=_TERMS.on if self.on is None else frozenset(map(RulesKind, self.on)),
            urgent=_TERMS.urgent if self.urgent is None else frozenset(map(RulesKind, self.urgent)),
            quiet=self.quiet_hours or quiet,
            text=self.text,
        )

    def terms_here(self, quiet: Window | None = None) -> Terms:
        """The same of what is told on this machine."""
        on = self.on if self.here_on is None else self.here_on
        return replace(
            self.terms(quiet),
            receivers=tuple(Receiver(name, name) for name in dict.fromkeys(self.here)),
            on=_TERMS.on if on is None else frozenset(map(RulesKind, on)),
            pace=HERE,
        )


def _receiver(number: int, url: str) -> Receiver:
    named = _ENV.fullmatch(url) or _FILE.fullmatch(url)
    return Receiver(url if named else f"urls[{number}]", url)


# Telemetry
# ---------
# `[telemetry]` of the user's file: where spans go. A repository's own file cannot say it: what is sent tells of all repositories.


_TELEMETRY_TERMS = TelemetryTerms()
_ENDPOINT = re.compile(r"https?://[^\s/@?#]+(/[^\s?#]*)?")
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_SOURCE = re.compile(r"env:[A-Za-z_][A-Za-z0-9_]*|file:[^\x00]+")
PATH = "/v1/traces"


class TelemetryModel(Strict):
    """`[telemetry]`."""

    endpoint: Annotated[str, Field(max_length=2000)] = ""
    headers: Annotated[dict[str, Annotated[str, Field(max_length=4000)]], Field(max_length=20)] = Field(default_factory=dict)
    content: bool = _TELEMETRY_TERMS.content
    sample: Annotated[float, Field(ge=0, le=1)] = _TELEMETRY_TERMS.sample

    @field_validator("endpoint")
    @classmethod
    def _is_url(cls, value: str) -> str:
        if value and not _ENDPOINT.fullmatch(value):
            raise ValueError('give the address of a receiver of OTLP over HTTP, without user and query: "http://127.0.0.1:4318"')
        return value

    @field_validator("headers")
    @classmethod
    def _from_outside(cls, value: dict[str, str]) -> dict[str, str]:
        for name, source in value.items():
            if not _HEADER.fullmatch(name):
                raise ValueError(f"{name!r} is no name of a header")
            if not _SOURCE.fullmatch(source):
                raise ValueError(f'{name} is neither "env:NAME" nor "file:PATH": a secret does not belong into this file')
        return value

    def terms(self) -> TelemetryTerms:
        """As the core knows them; an endpoint without a path gets that of the protocol."""
        bare = self.endpoint.count("/") == 2 or (self.endpoint.endswith("/") and self.endpoint.count("/") == 3)
        endpoint = f"{self.endpoint.rstrip('/')}{PATH}" if self.endpoint and bare else self.endpoint
        return into(TelemetryTerms, self, endpoint=endpoint)


# User
# ----
# The user's settings: `$XDG_CONFIG_HOME/nightcrew/config.toml`. Every key is optional; docs/settings.md describes each.


_FIELD = Settings()


class LimitsModel(Strict):
    """`[limits]`: what each agent may use."""

    log_max: Annotated[Size, Field(ge=4096)] = _FIELD.log_max
    memory_max: Annotated[Size, Field(ge=0)] = _FIELD.memory_max
    file_max: Annotated[Size, Field(ge=0)] = _FIELD.file_max
    open_files: Annotated[int, Field(ge=0, le=MAX_INT)] = _FIELD.open_files
    memory_warn: Annotated[float, Field(ge=0, le=1)] = _FIELD.memory_warn
    memory_restart: Annotated[float, Field(ge=0, le=1)] = _FIELD.memory_restart
    disk_free_min: Annotated[Size, Field(ge=0)] = _FIELD.disk_free_min


class CoresModel(Strict):
    """`[cores]`: how agents share the processors."""

    reserve: Annotated[int, Field(ge=0, le=4096)] | None = None
    lanes: Annotated[int, Field(ge=0, le=4096)] = _FIELD.lanes
    per_lane: Annotated[int, Field(ge=0, le=1000)] = _FIELD.per_lane


def _depth_or_wait(value: Any) -> Any:
    """A number of tasks, or a duration as text; with whether it is the second."""
    number = duration(value)
    if isinstance(number, bool) or not isinstance(number, float) or not 0 <= number <= 365 * 86400:
        raise ValueError('give a number of waiting tasks, or how long they wait: "5m"')
    return number, isinstance(value, str)


DepthOrWait = Annotated[tuple[float, bool], BeforeValidator(_depth_or_wait)]


class QueueModel(Strict):
    """`[queue]`: in which order tasks start, how many at once, and when none do."""

    ageing: Annotated[Duration, Field(ge=1, le=365 * 86400)] = _FIELD.ageing_s
    weights: dict[str, Annotated[float, Field(gt=0, le=1000)]] = Field(default_factory=dict)
    grow_above: DepthOrWait = (0.0, False)
    shrink_below: DepthOrWait = (0.0, False)
    preempt_within: Annotated[Duration, Field(ge=0, le=600)] = _FIELD.preempt_within_s
    park_after: Annotated[Duration, Field(ge=0, le=365 * 86400)] = _FIELD.park_after_s
    load_max: Annotated[float, Field(ge=0, le=100_000)] = _FIELD.admission.load_max
    waiting_max: Annotated[int, Field(ge=1, le=10_000_000)] = _FIELD.admission.waiting_max

    @model_validator(mode="after")
    def _one_measure(self) -> QueueModel:
        (above, wait), (below, also_wait) = self.grow_above, self.shrink_below
        if above and below and wait is not also_wait:
            raise ValueError("grow_above and shrink_below are both numbers of tasks, or both durations")
        if below > above:
            raise ValueError("shrink_below is above grow_above: the crew would grow and shrink at once")
        return self

    def growth(self) -> Growth:
        """As the core knows it."""
        return Growth(self.grow_above[0], self.shrink_below[0], seconds=self.grow_above[1])


class BatchModel(Strict):
    """`[batch]`: when batch tasks start."""

    window: WindowOfDay | None = None
    when_idle: bool = _FIELD.batch_when_idle


_NIGHT = NightDefaults()


def _until(value: str) -> str:
    moment(value)
    return value


class NightModel(Strict):
    """`[night]`: the terms of a night that does not say them itself, and what holds in every night."""

    until: Annotated[str, AfterValidator(_until)] | None = None
    grace: Annotated[Duration, Field(ge=0, le=86400)] = _NIGHT.grace_s
    cost_max: Annotated[float, Field(gt=0, le=1e9)] | None = None
    parallel: Annotated[int, Field(ge=1, le=1000)] | None = None
    on_cap: Literal["drain", "stop"] = "drain"
    inhibit_sleep: bool = _NIGHT.inhibit_sleep
    ask_max: Annotated[int, Field(ge=1, le=1000)] = _NIGHT.ask_max
    quiet_hours: WindowOfDay | None = None


class LeadModel(Strict):
    """`[lead]`: who sums an analysis up in prose."""

    model: Annotated[str, Field(max_length=128)] = _FIELD.lead_model


class AgentsModel(Strict):
    """`[agents]`: what `nightcrew start` starts."""

    kind: Annotated[str, Field(min_length=1, max_length=64)] = _FIELD.agent_kind


class SizeModel(Strict):
    """One `[size.NAME]`: what a task of that size gets that does not say so itself."""

    cores: Annotated[int, Field(ge=1, le=4096)] | None = None
    memory_max: Annotated[Size, Field(ge=MIN_MEMORY)] | None = None
    model: dict[str, Annotated[str, Field(min_length=1, max_length=1000)]] = Field(default_factory=dict)


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


class LimitModel(Strict):
    """One sort of thing in `[keep]`: by age, by size, or both."""

    age: Annotated[Duration, Field(ge=3600, le=3650 * 86400)] | None = None
    size: Annotated[Size, Field(ge=2**20)] | None = None


class KeepModel(Strict):
    """`[keep]`: what of the past goes, and when."""

    results: LimitModel | None = None
    logs: LimitModel | None = None
    recordings: LimitModel | None = None
    history: LimitModel | None = None

    def keep(self, account_s: float) -> Keep:
        """As the core knows it; recordings stay as long as the account's rows, `account_s`, where nothing else is said."""
        given = {name: into(Limit, found) for name in type(self).model_fields if (found := getattr(self, name)) is not None}
        return Keep(**{"recordings": Limit(account_s), **given})


_MEMORY = MemoryTerms()


class MemoryModel(Strict):
    """`[memory]`: what agents know together, and how they keep out of each other's way."""

    brief: Annotated[Size, Field(ge=0, le=2**20)] = _MEMORY.brief
    trust: Literal["agents", "none"] = _MEMORY.trust.value
    approval: list[Literal["core", "semantic", "procedural", "episodic", "notes"]] = sorted(kind.value for kind in _MEMORY.approval)
    leases: Literal["warn", "strict", "off"] = _MEMORY.leases.value
    tools: bool = _MEMORY.tools
    meaning: bool = _MEMORY.meaning
    semantic_max: Annotated[Size, Field(ge=4096)] = _MEMORY.semantic_max
    episodic: Annotated[Duration, Field(ge=86400, le=3650 * 86400)] = _MEMORY.episodic_s
    unread: Annotated[Duration, Field(ge=86400, le=3650 * 86400)] = _MEMORY.unread_s
    tell_conflicts: bool = _MEMORY.tell_conflicts


class UserModel(GatewayKeys):
    """The whole file."""

    slots: Annotated[int, Field(ge=1, le=1000)] | None = None
    grace: Annotated[Duration, Field(ge=0, le=600)] = _FIELD.grace_s
    nice: Annotated[int, Field(ge=0, le=19)] = _FIELD.nice
    sandbox: Annotated[int, Field(ge=0, le=2)] | None = None
    shared_caches: bool = _FIELD.shared_caches
    pass_env: list[Variable] = Field(default_factory=list)
    log_format: Literal["text", "json"] = "text"
    limits: LimitsModel = Field(default_factory=LimitsModel)
    cores: CoresModel = Field(default_factory=CoresModel)
    queue: QueueModel = Field(default_factory=QueueModel)
    batch: BatchModel = Field(default_factory=BatchModel)
    night: NightModel = Field(default_factory=NightModel)
    lead: LeadModel = Field(default_factory=LeadModel)
    agents: AgentsModel = Field(default_factory=AgentsModel)
    keep: KeepModel = Field(default_factory=KeepModel)
    memory: MemoryModel = Field(default_factory=MemoryModel)
    notify: NotifyModel = Field(default_factory=NotifyModel)
    telemetry: TelemetryModel = Field(default_factory=TelemetryModel)
    size: dict[TaskSize, SizeModel] = Field(default_factory=dict)
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
    """The settings; a missing file means the defaults. Raises ConfigError as every file does."""
    return settings(read(file), usable_cores)


def settings(model: UserModel, usable_cores: int) -> Settings:
    """The supervisor's part of the file. By default the crew begins with two slots a core, at least eight."""
    queue, batch = model.queue, model.batch
    return into(
        Settings, model, model.limits, model.cores, queue,
        slots=model.slots if model.slots is not None else capacity.start(usable_cores), grows=model.slots is None, growth=queue.growth(),
        admission=into(Limits, queue), cores_reserve=model.cores.reserve, lead_model=model.lead.model, agent_kind=model.agents.kind,
        keep=model.keep.keep(model.gateway.keep), memory=into(MemoryTerms, model.memory), batch_window=batch.window,
        batch_when_idle=batch.when_idle, night=into(NightDefaults, model.night),
    )  # fmt: skip


def choices(file: Path, kinds: Mapping[str, Kind]) -> Choices:
    """The `[[assign]]` rules of the same file, in its order, and its `[size]` tables. Raises ConfigError as every file does, and for a kind
    that is none of `kinds` or takes no prompt."""
    model = read(file)
    for name, sized in model.size.items():
        for kind in sized.model:
            _agent(kind, kinds, file, ["size", name, "model"])
    return Choices(_rules(model, file, kinds), {name: into(TaskGets, sized, models=sized.model) for name, sized in model.size.items()})


def _agent(kind: str, kinds: Mapping[str, Kind], file: Path, where: list[str | int]) -> None:
    if not (kind in kinds and kinds[kind].is_agent):
        agents = [name for name, known in kinds.items() if known.is_agent]
        key = ".".join(word for word in where if isinstance(word, str))
        on = f"{file}:{line_of(read_text(file), where)} {key}"
        raise ConfigError("bad value", on=on, why=f"{kind!r} is not a kind of agent; {nearest(kind, agents)}")


def _rules(found: UserModel, file: Path, kinds: Mapping[str, Kind]) -> tuple[Rule, ...]:
    rules = []
    for index, model in enumerate(found.assign):
        text = read_text(file)
        if model.kind:
            _agent(model.kind, kinds, file, ["assign", index, "kind"])
        rules.append(into(Rule, model, where=f"{file.name}:{line_of(text, ['assign', index])}"))
    return tuple(rules)


def load_gateway(file: Path, stored: Path | None = None) -> GatewaySettings:
    """The gateway's settings of the same file. `stored` is the directory of keys (`Home.keys`): without `[upstream]` tables every
    provider whose key is there is used. Raises ConfigError as every file does."""
    return gateway.settings(read(file), stored)


def load_notify(file: Path) -> Terms:
    """Its `[notify]`; without quiet hours of their own, messages keep those of `[night]`. Raises ConfigError as every file does."""
    model = read(file)
    return model.notify.terms(model.night.quiet_hours)


def load_telemetry(file: Path) -> TelemetryTerms:
    """Its `[telemetry]`. Raises ConfigError as every file does."""
    return read(file).telemetry.terms()


def load_notify_here(file: Path) -> Terms:
    """The same of what is told on this machine."""
    model = read(file)
    return model.notify.terms_here(model.night.quiet_hours)


def read(file: Path) -> UserModel:
    """The whole file, checked; a missing file means the defaults. Raises ConfigError as every file does."""
    if not _there(file):
        return UserModel()
    text = read_text(file, empty=True)
    model = parse(text, UserModel, str(file))
    gateway.check_routes(model, text, str(file))
    return model


# Taking up
# ---------
# When a change of each setting takes effect: with a restart, unless the key stands here.


PORT = "gateway.port"
"""Held by the gateway from its start to its end, since agents that live send there."""
_LIVE = {
    *("pass_env", "agents", "lead", "assign", "size", "upstream", "engine", "route", "prices"),
    *(f"night.{key}" for key in ("until", "grace", "cost_max", "parallel", "on_cap")),
    *(f"gateway.{key}" for key in ("hold", "patient_hold", "queue_max", "headroom", "batch_share", "margin")),
    *(f"gateway.{key}" for key in ("cost_per_night", "fallback_at", "record")),
}
"""Keys, and whole tables."""


def _keys(model: type[BaseModel], before: str = "") -> Iterator[str]:
    """Every key that holds a value, dotted; the names of tables such as `[upstream.NAME]` are left out."""
    for name, field in model.model_fields.items():
        if (inner := inner_model(field.annotation)) is None:
            yield before + (field.alias or name)
        else:
            yield from _keys(inner, f"{before}{name}.")


_KEYS = frozenset(_keys(UserModel))
LIVE = frozenset(key for key in _KEYS if key in _LIVE or key.partition(".")[0] in _LIVE)
"""Read again by the next verb that needs them, or by the running supervisor and gateway within seconds."""
RESTART = _KEYS - LIVE - {PORT}
"""Held by the supervisor from its start to its end."""


def restart_needed(before: UserModel, after: UserModel) -> list[str]:
    """Return the keys of RESTART whose values differ, sorted."""
    return sorted(key for key in RESTART if _value(before, key.split(".")) != _value(after, key.split(".")))


def words(keys: Sequence[str]) -> str:
    """Say that these keys of RESTART changed, and what takes them up."""
    return f"{', '.join(keys)} changed since the supervisor started; to take it up: nightcrew down && nightcrew up -d (agents go on)"


PORT_WORDS = f"{PORT} changed; to take it up, once no agent lives: nightcrew down && nightcrew up -d"


def _value(found: object, path: Sequence[str]) -> object:
    """The value at a dotted key. A dictionary of tables gives a value for each name."""
    if not path or found is None:
        return found
    if isinstance(found, Mapping):
        return {name: _value(table, path) for name, table in found.items()}
    return _value(getattr(found, path[0]), path[1:])
