"""What the provider holds against every key: buckets, subscription windows and the prompt cache. It decides who is served."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, replace
from typing import Any

from supervisor.core.gateway.settings import Limits
from supervisor.core.gateway.types import Usage
from supervisor.gateway.sim.buckets import Bucket, Meter, Window
from supervisor.gateway.sim.counting import PrefixCache, model_class, tokens_of
from supervisor.gateway.sim.dialects import Ask, Failure, Gauge
from supervisor.gateway.sim.faults import Fault
from supervisor.gateway.sim.outside_use import OutsideUse
from supervisor.gateway.sim.settings import SimSettings
from supervisor.gateway.sim.stats import label
from supervisor.host.clock import Clock

OAUTH = "sk-ant-oat"


class Served:
    """A request that is being served: its input is charged, its output is charged as it is produced, and the rest at the end."""

    def __init__(self, usage: Usage, meter: Meter, windows: list[Window], reserved: int) -> None:
        self.usage = usage
        """What it will have taken when it ends by itself."""
        self.produced = 0
        self._meter = meter
        self._windows = windows
        self._reserved = reserved

    @property
    def used(self) -> Usage:
        """What it took until now."""
        return replace(self.usage, output=self.produced)

    def produce(self, tokens: int, now: float) -> None:
        """Output was produced; what was reserved for it is used first."""
        self.produced += tokens
        beyond = max(0, tokens - self._reserved)
        self._reserved -= tokens - beyond
        self._meter.charge({"output": beyond, "tokens": beyond}, now)
        for window in self._windows:
            window.use(tokens, now)

    def end(self, now: float) -> None:
        """It is over, or was broken off: what is still reserved is given back."""
        self._meter.charge({"output": -self._reserved, "tokens": -self._reserved}, now)
        self._reserved = 0


@dataclass(frozen=True, slots=True)
class Place:
    """Where a request is counted: a key and a model class."""

    key: str
    model_class: str


class Accounts:
    """All of them, made as they are first met. Times in here are seconds of the provider's own, faster clock."""

    def __init__(self, settings: SimSettings, clock: Clock, rng: random.Random) -> None:
        self._settings = settings
        self._clock = clock
        self._rng = rng
        self._meters: dict[Place, Meter] = {}
        self._caches: dict[tuple[str, str], PrefixCache] = {}
        self._windows: dict[str, list[Window]] = {}

    def now(self) -> float:
        """The provider's time."""
        return self._clock.monotonic() * self._settings.speed

    def count(self, ask: Ask, key: str, size: int, fault: Fault) -> Usage:
        """What a request will take: input by size and cache, output by its script or by chance."""
        settings = self._settings
        total = fault.input_tokens if fault.input_tokens is not None else tokens_of(size)
        if fault.cached_tokens is not None:
            split = Usage(total - fault.cached_tokens, cache_read=fault.cached_tokens)
        elif settings.cached_share is not None:
            read = int(total * settings.cached_share)
            split = Usage(total - read, cache_read=read)
        else:
            split = self._cache(key, ask.model).count(ask.body, total, self.now())
        return replace(split, output=self._output(ask, fault))

    def _output(self, ask: Ask, fault: Fault) -> int:
        if fault.output_tokens is not None:
            return fault.output_tokens
        said = fault.text or ("" if not fault.tool else str(fault.tool_input))
        wanted = tokens_of(len(said.encode())) if said else self._drawn()
        return wanted if ask.max_tokens is None else min(wanted, ask.max_tokens)

    def _drawn(self) -> int:
        mean, spread = self._settings.output_mean, self._settings.output_spread
        # The mean of a log-normal is exp(mu + sigma^2 / 2).
        return max(1, round(self._rng.lognormvariate(math.log(mean) - spread**2 / 2, spread)))

    def place(self, key: str, model: str, usage: Usage) -> Place:
        """The pool that a request draws from."""
        name = model_class(model)
        long = usage.total - usage.output > self._settings.long_context
        return Place(key, f"{name}/long" if long else name)

    def admit(self, place: Place, ask: Ask, usage: Usage) -> Served | Failure:
        """Charge the input and serve it, or charge nothing, keep nothing in the cache, and say why not."""
        served = self._admit(place, ask, usage)
        if isinstance(served, Failure) and (cache := self._caches.get((place.key, ask.model))) is not None:
            cache.undo()
        return served

    def _admit(self, place: Place, ask: Ask, usage: Usage) -> Served | Failure:
        now, meter, windows = self.now(), self._meter(place), self._windows_of(place.key)
        for window in windows:
            if window.utilization(now) >= 1:
                return Failure(429, "You have reached your usage limit", dimension=window.name, wait_s=self._real(window.resets_in_s(now)))
        limited = usage.total - usage.output if self._settings.cached_counts else usage.limited_input
        # Output is not known yet, but when none is left nothing is served: its first token is always asked for.
        reserved = max(1, ask.max_tokens or usage.output) if self._settings.reserve_max_tokens else 1
        short = meter.ask({"requests": 1, "input": limited, "output": reserved, "tokens": limited + reserved}, now)
        if short is not None:
            return _refusal(short.dimension, self.gauges(place)[short.dimension].limit, self._real(short.wait_s))
        for window in windows:
            window.use(limited, now)
        return Served(usage, meter, windows, reserved)

    def gauges(self, place: Place) -> dict[str, Gauge]:
        """The buckets as the headers show them: levels as they are, rates and times by the machine's clock."""
        now = self.now()
        return {
            name: Gauge(bucket.per_minute * self._settings.speed, bucket.level(now), self._real(bucket.full_in_s(now)))
            for name, bucket in self._meter(place).buckets.items()
        }

    def told(self) -> list[dict[str, Any]]:
        """For `/sim/stats`, of every place the exact account of its buckets, as JSON has it; see docs/gateway.md."""
        now = self.now()
        for meter in self._meters.values():
            meter.catch_up(now)
        return [
            {
                "key": label(place.key),
                "model_class": place.model_class,
                "buckets": {name: _told(bucket, now, self._settings.speed) for name, bucket in meter.buckets.items()},
            }
            for place, meter in self._meters.items()
        ]

    def places(self) -> tuple[Place, ...]:
        """All that were met, in that order."""
        return tuple(self._meters)

    def window_headers(self, key: str) -> dict[str, str]:
        """Utilisation and reset (seconds since 1970) of a subscription's windows; empty for other keys."""
        now, headers = self.now(), {}
        for window in self._windows_of(key):
            used, prefix = window.utilization(now), f"anthropic-ratelimit-unified-{window.name}"
            headers[f"{prefix}-status"] = "rejected" if used >= 1 else "allowed_warning" if used >= 0.8 else "allowed"
            headers[f"{prefix}-utilization"] = f"{used:.4g}"
            headers[f"{prefix}-reset"] = str(math.ceil(self._clock.wall() + self._real(window.resets_in_s(now))))
        if headers:
            rejected = "rejected" in headers.values()
            headers["anthropic-ratelimit-unified-status"] = "rejected" if rejected else "allowed"
            headers["anthropic-ratelimit-unified-fallback-percentage"] = "0.5"
        return headers

    def change(self, limits: Limits, class_name: str = "") -> None:
        """Other limits from now on: for every key, and for one model class or (empty) for all that were met."""
        for place, meter in self._meters.items():
            if class_name in ("", place.model_class):
                meter.change(limits, self.now())
        classes = {**self._settings.classes, class_name: limits} if class_name else {}
        self._settings = replace(self._settings, classes=classes, limits=self._settings.limits if class_name else limits)

    def scale(self, factor: float, class_name: str = "") -> None:
        """All limits so many times as high from now on. Raises ValueError for a factor that is no positive number."""
        if not 0 < factor < math.inf:
            raise ValueError(f"times = {factor!r}: a positive number is required")
        settings = self._settings
        known = {**settings.classes, **({class_name: settings.classes.get(class_name, settings.limits)} if class_name else {})}
        classes = {name: _scaled(limits, factor) if class_name in ("", name) else limits for name, limits in known.items()}
        self._settings = replace(settings, classes=classes, limits=settings.limits if class_name else _scaled(settings.limits, factor))
        for place, meter in self._meters.items():
            meter.change(classes.get(place.model_class, self._settings.limits), self.now())

    def _real(self, seconds: float) -> float:
        return seconds / self._settings.speed

    def _meter(self, place: Place) -> Meter:
        settings, now = self._settings, self.now()
        if place not in self._meters:
            limits = settings.classes.get(place.model_class, settings.limits)
            outside = self._outside(place, now) if settings.steal else None
            self._meters[place] = Meter(limits, settings.burst_s, now, oversize=settings.oversize, outside=outside)
        self._meters[place].catch_up(now)
        return self._meters[place]

    def _outside(self, place: Place, now: float) -> OutsideUse:
        """A source of chance of its own, so that what others do does not depend on how many requests came before."""
        settings = self._settings
        rng = random.Random(f"{settings.seed} {place.key} {place.model_class}")  # noqa: S311 - bites of tokens, no secret
        return OutsideUse(settings.steal, now + settings.steal_from_s, rng)

    def _cache(self, key: str, model: str) -> PrefixCache:
        return self._caches.setdefault((key, model), PrefixCache(self._settings.cache_ttl_s, self._settings.cache_min_tokens))

    def _windows_of(self, key: str) -> list[Window]:
        if not key.startswith(OAUTH):
            return []
        made = [Window(limit.name, limit.tokens, limit.seconds) for limit in self._settings.windows]
        return self._windows.setdefault(key, made)


def _scaled(limits: Limits, factor: float) -> Limits:
    return Limits(*(None if limit is None else limit * factor for limit in (limits.rpm, limits.itpm, limits.otpm, limits.tpm)))


def _told(bucket: Bucket, now: float, speed: float) -> dict[str, float]:
    return {
        "per_minute": bucket.per_minute * speed,
        "capacity": bucket.capacity,
        "level": bucket.level(now),
        "offered": bucket.offered,
        "drawn": bucket.drawn,
        "outside": bucket.outside,
    }


def _refusal(dimension: str, limit: float, wait_s: float) -> Failure:
    named = {"requests": "requests", "input": "input tokens", "output": "output tokens", "tokens": "tokens"}[dimension]
    words = f"This request would exceed the rate limit of {limit:,.0f} {named} per minute."
    return Failure(429, words, dimension=dimension, limit=limit, wait_s=None if math.isinf(wait_s) else wait_s)
