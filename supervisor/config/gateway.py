"""The gateway's part of the user's file: `[gateway]`, `[upstream.NAME]`, `[[route]]`, `[quota.NAME]`, `[prices.MODEL]`. docs/settings.md
describes each key.

There is no key for the address to listen at: the gateway holds your keys, so it is on 127.0.0.1 and nowhere else.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import SplitResult, urlsplit

from pydantic import Field, ValidationInfo, field_validator, model_validator

from supervisor.config.toml import Class, Duration, Size, Strict, TaskSize, Work, into, line_of
from supervisor.kernel.engines import Engine, EngineKind, Option, option_refusal
from supervisor.kernel.errors import ConfigError
from supervisor.kernel.gateway_settings import AnswerCache, Api, GatewaySettings, KeySource, Limits, Policy, Quota, Route, Upstream
from supervisor.kernel.names import nearest

HOMES = {
    Api.ANTHROPIC: "https://api.anthropic.com",
    Api.OPENAI: "https://api.openai.com",
    Api.GEMINI: "https://generativelanguage.googleapis.com",
}
"""Where each API lives when an upstream names no `url`."""
_PREFIX = {Api.ANTHROPIC: "/v1", Api.OPENAI: "/v1", Api.GEMINI: "/v1beta"}
"""What every path of the API begins with: people write it into base URLs or leave it out, and both must mean the same."""
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}")
_RATE = re.compile(r"(\d+(?:\.\d+)?)\s*/\s*(s|sec|second|m|min|minute|h|hour|d|day)")
_PERIODS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_POLICY = Policy()

PerMinute = Annotated[float, Field(gt=0, le=1e12)]
Dollars = Annotated[float, Field(gt=0, le=1e9)]


class LimitsModel(Strict):
    """Limits a minute, as the provider's console shows them. What is left out is learned, or is no limit."""

    rpm: PerMinute | None = None
    itpm: PerMinute | None = None
    otpm: PerMinute | None = None
    tpm: PerMinute | None = None


class UpstreamModel(LimitsModel):
    """`[upstream.NAME]`: an account at a server that speaks one of the three APIs."""

    api: Literal["anthropic", "openai", "gemini"]
    key: str = "file"
    url: str | None = None
    key_file: str | None = None
    key_command: Annotated[list[str], Field(min_length=1, max_length=64)] | None = None
    account: Annotated[str, Field(max_length=64)] = ""
    models: Annotated[list[Annotated[str, Field(min_length=1, max_length=200)]], Field(min_length=1, max_length=200)] = Field(
        default_factory=lambda: ["*"]
    )
    classes: dict[str, LimitsModel] = Field(default_factory=dict)
    learn: bool = True
    burst: Annotated[Duration, Field(gt=0, le=3600)] = 60.0
    reserve_max_tokens: bool = False
    cached_counts: bool | None = None

    @field_validator("key")
    @classmethod
    def _key(cls, value: str) -> str:
        if value not in ("file", "none", "client"):
            raise ValueError(
                'keys do not stand here but in keys/NAME.key of the state directory (mode 600); give "file", "none" or "client"'
            )
        return value

    @field_validator("url")
    @classmethod
    def _url(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is not None and _base(value).scheme == "http" and info.data.get("key") != "none" and not _is_loopback(value):
            raise ValueError('a key does not travel over plain http to another machine; use https, or key = "none"')
        return value

    @model_validator(mode="after")
    def _fits(self) -> UpstreamModel:
        if sum((self.key != "file", self.key_file is not None, self.key_command is not None)) > 1:
            raise ValueError('give one of key = "none" or "client", key_file, key_command')
        return self

    def upstream(self, name: str) -> Upstream:
        """As the core knows it."""
        api = Api(self.api)
        return into(
            Upstream,
            self,
            name=name,
            url=(self.url or HOMES[api]).rstrip("/").removesuffix(_PREFIX[api]),
            key=KeySource("command", argv=tuple(self.key_command)) if self.key_command else KeySource(self.key, self.key_file or ""),
            limits=into(Limits, self),
            classes={model_class: into(Limits, limits) for model_class, limits in self.classes.items()},
            cached_counts=api is not Api.ANTHROPIC if self.cached_counts is None else self.cached_counts,
        )


class EngineModel(Strict):
    """`[engine.NAME]`: an inference engine that serves a model on this machine, or a running server that is adopted."""

    kind: Literal["llamacpp", "vllm", "sglang", "adopted"] = "llamacpp"
    model: Annotated[str, Field(max_length=4000)] = ""
    url: Annotated[str, Field(max_length=2000)] = ""
    models: Annotated[list[Annotated[str, Field(min_length=1, max_length=200)]], Field(max_length=200)] = Field(default_factory=list)
    slots: Annotated[int, Field(ge=1, le=4096)] = 4
    context: Annotated[int, Field(ge=256, le=10_000_000)] = 8192
    idle: Annotated[Duration, Field(ge=0, le=30 * 86400)] = 900.0
    options: dict[str, Option] = Field(default_factory=dict)

    @field_validator("options")
    @classmethod
    def _options(cls, value: dict[str, Option]) -> dict[str, Option]:
        for name, text in value.items():
            if why := option_refusal(name, text):
                raise ValueError(f"{name!r}: {why}")
        return value

    @model_validator(mode="after")
    def _fits(self) -> EngineModel:
        if self.kind == "adopted":
            _base(self.url)
        elif not self.model or self.model.startswith("-") or self.url:
            raise ValueError("an engine that nightcrew starts has a model (a file, or package:NAME) and no url")
        return self

    def engine(self, name: str) -> Engine:
        """Return it as the core knows it. Agents ask for a model by one of `models`, else by the engine's name."""
        url, models = self.url.rstrip("/").removesuffix("/v1"), tuple(self.models) or (name,)
        return into(Engine, self, name=name, kind=EngineKind(self.kind), url=url, models=models, idle_s=self.idle)


class RouteModel(Strict):
    """One `[[route]]`: which upstream serves a model, and under which name."""

    model: Annotated[str, Field(min_length=1, max_length=200)]
    upstream: str = ""
    as_model: Annotated[str, Field(alias="as", max_length=200)] = ""
    task_class: Annotated[Class | None, Field(alias="class")] = None
    size: TaskSize | Literal[""] = ""
    work: Work = ""
    fallback: Annotated[str, Field(max_length=200)] = ""

    @model_validator(mode="after")
    def _fits(self) -> RouteModel:
        if self.fallback and self.task_class not in (None, "batch"):
            raise ValueError('only batch tasks are answered by a fallback; say class = "batch", or leave class or fallback out')
        if self.fallback and self.fallback in (self.model, self.as_model):
            raise ValueError("a fallback is another model")
        return self


class QuotaModel(Strict):
    """`[quota.NAME]`: a hard ceiling on something else than tokens."""

    rate: str
    burst: Annotated[float, Field(ge=1, le=1e6)] = 1.0

    @field_validator("rate")
    @classmethod
    def _rate(cls, value: str) -> str:
        if not (found := _RATE.fullmatch(value.strip())) or not 0 < float(found[1]) <= 1e9:
            raise ValueError('a rate is such as "60/min", "5/s", "1000/h" or "200/day"')
        return value

    def quota(self, name: str) -> Quota:
        """As the core knows it."""
        found = _RATE.fullmatch(self.rate.strip())
        assert found is not None  # noqa: S101 - checked above; mypy cannot know
        return Quota(name, float(found[1]), _PERIODS[found[2][0]], self.burst)


class PriceModel(Strict):
    """`[prices."MODEL"]`: US dollars for a million tokens."""

    input: Annotated[float, Field(ge=0, le=1e6)]
    output: Annotated[float, Field(ge=0, le=1e6)]
    cache_read: Annotated[float, Field(ge=0, le=1e6)] | None = None
    cache_write: Annotated[float, Field(ge=0, le=1e6)] | None = None
    cache_write_1h: Annotated[float, Field(ge=0, le=1e6)] | None = None


class GatewayModel(Strict):
    """`[gateway]`."""

    port: Annotated[int, Field(ge=0, le=65535)] = 0
    hold: Annotated[Duration, Field(ge=1, le=86400)] = _POLICY.hold_s
    patient_hold: Annotated[Duration, Field(ge=1, le=86400)] = _POLICY.patient_hold_s
    queue_max: Annotated[int, Field(ge=1, le=100_000)] = _POLICY.queue_max
    headroom: Annotated[float, Field(ge=0, le=0.5)] = _POLICY.headroom
    batch_share: Annotated[float, Field(ge=0, le=0.5)] = _POLICY.batch_share
    margin: Annotated[float, Field(ge=0.5, le=1)] = _POLICY.margin
    cost_per_night: Dollars | None = None
    fallback_at: Annotated[float, Field(gt=0, le=1)] = _POLICY.fallback_at
    record: bool = False
    keep: Annotated[Duration, Field(ge=3600, le=3650 * 86400)] = 30 * 86400.0


class CacheModel(Strict):
    """`[cache]`: the same request is answered by the same answer."""

    scope: Literal["project"] = "project"
    ttl: Annotated[Duration, Field(gt=0, le=3650 * 86400)] = 86400.0
    max: Annotated[Size, Field(ge=2**20)] = 10**9
    answer_max: Annotated[Size, Field(ge=1024, le=64 * 2**20)] = 4 * 2**20


class GatewayKeys(Strict):
    """The top-level keys of the user's file that are the gateway's."""

    gateway: GatewayModel = Field(default_factory=GatewayModel)
    upstream: dict[str, UpstreamModel] = Field(default_factory=dict)
    engine: dict[str, EngineModel] = Field(default_factory=dict)
    route: Annotated[list[RouteModel], Field(max_length=1000)] = Field(default_factory=list)
    quota: dict[str, QuotaModel] = Field(default_factory=dict)
    cache: CacheModel | None = None
    prices: dict[str, PriceModel] = Field(default_factory=dict)

    @field_validator("upstream", "engine", "quota", mode="before")
    @classmethod
    def _names(cls, value: Any) -> Any:
        for name in value if isinstance(value, dict) else ():
            if not _NAME.fullmatch(name):
                raise ValueError(f"{name!r}: a name has 1 to 32 lower-case letters, digits, '_' or '-', and starts with a letter or digit")
        return value


def check_routes(keys: GatewayKeys, text: str, name: str) -> None:
    """Raises ConfigError for a route to an upstream that the file (`text`, called `name`) does not describe."""
    for index, route in enumerate(keys.route):
        if route.upstream and route.upstream not in keys.upstream and route.upstream not in keys.engine:
            on = f"{name}:{line_of(text, ['route', index, 'upstream'])} route.upstream"
            raise ConfigError("bad value", on=on, why=f"there is no [upstream.{route.upstream}]; {nearest(route.upstream, keys.upstream)}")


def settings(keys: GatewayKeys, stored: Path | None) -> GatewaySettings:
    """As the core knows them. When the file names no upstream, each provider whose key lies in `stored` (`anthropic.key`, `openai.key`,
    `gemini.key`: `nightcrew up` puts them there) is one, at its own address."""
    upstreams = [model.upstream(name) for name, model in keys.upstream.items()]
    if not upstreams and stored is not None:
        upstreams = [Upstream(str(api), api, url) for api, url in HOMES.items() if (stored / f"{api}.key").is_file()]
    prices: dict[str, Mapping[str, float]] = {}
    for name, model in keys.engine.items():
        engine = model.engine(name)
        upstreams += _upstreams_of(engine)
        prices |= {served: {"input": 0.0, "output": 0.0} for served in engine.models}  # caps on cost hold for it
    gateway = keys.gateway
    return GatewaySettings(
        upstreams=tuple(upstreams),
        routes=tuple(into(Route, route) for route in keys.route),
        quotas=tuple(model.quota(name) for name, model in keys.quota.items()),
        policy=into(Policy, gateway),
        cache=into(AnswerCache, keys.cache) if keys.cache else None,
        keep_days=gateway.keep / 86400,
        port=gateway.port,
        record=gateway.record,
        prices=prices | {model: price.model_dump(exclude_none=True) for model, price in keys.prices.items()},
    )


def _upstreams_of(engine: Engine) -> Iterator[Upstream]:
    """Yield an engine's upstreams, one for each API that it speaks. They share one account, which is the engine's slots."""
    key = KeySource("none")
    for api in (Api.OPENAI, Api.ANTHROPIC):
        name = f"{engine.name}.{api}"
        yield Upstream(name, api, url="", key=key, account=engine.name, models=engine.models, learn=False, engine=engine)


def _base(url: str) -> SplitResult:
    """Return the parts of a base URL. Raises ValueError for what is none."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment or parts.username:
        raise ValueError('a url is such as "https://api.example.com/v1": http or https, a host, no password and no query')
    _ = parts.port  # raises ValueError for what is no port
    return parts


def _is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
