"""The simulated provider's own books: token buckets, counted tokens and statistics."""

from __future__ import annotations

import hashlib
import json
import math
import random
import re
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from nightcrew.plugins.sim.dialects import BYTES_PER_TOKEN, Ask, Failure, Gauge
from nightcrew.plugins.sim.faults import Fault
from nightcrew.plugins.sim.settings import SimSettings
from supervisor.gateway.admission.types import Usage
from supervisor.host.clock import Clock
from supervisor.kernel.gateway_settings import Limits

# Buckets
# -------
# The provider's own account: continuously refilled token buckets, pure and in virtual time.
#
# This is the other side of the limit. It shares no code with the gateway's admission, so that neither can hide a mistake of the
# other.


class Bucket:
    """Holds up to `capacity`, gains `per_minute / 60` a second. Below zero it is in debt, and grants nothing until that is paid."""

    __slots__ = ("_at", "_level", "capacity", "per_minute")

    def __init__(self, per_minute: float, capacity: float, now: float) -> None:
        self.per_minute = per_minute
        self.capacity = capacity
        self._level = capacity
        self._at = now

    def level(self, now: float) -> float:
        """What it holds at `now`. A clock that went back adds nothing."""
        gained = max(0.0, now - self._at) * self.per_minute / 60
        self._level = min(self.capacity, self._level + gained)
        self._at = max(self._at, now)
        return self._level

    def wait_s(self, amount: float, now: float) -> float:
        """Seconds until it holds `amount`, or is full when that is less; 0 when it does now."""
        lacking = min(amount, self.capacity) - self.level(now)
        return max(0.0, lacking) * 60 / self.per_minute

    def full_in_s(self, now: float) -> float:
        """Seconds until it is full."""
        return self.wait_s(self.capacity, now)

    def draw(self, amount: float, now: float) -> None:
        """Take `amount`, which may be more than it holds; a negative one gives back, never above the capacity."""
        self._level = min(self.capacity, self.level(now) - amount)

    def change(self, per_minute: float, capacity: float, now: float) -> None:
        """Another limit from now on; what is above the new capacity is lost."""
        self.level(now)  # what was gained until now was gained at the old rate
        self.per_minute, self.capacity = per_minute, capacity


@dataclass(frozen=True, slots=True)
class Short:
    """A request does not fit: which dimension holds it back longest, and for how many seconds."""

    dimension: str
    wait_s: float


class Meter:
    """The buckets of one key and model class. Dimensions are `requests`, `input`, `output`, `tokens`; only limited ones exist."""

    def __init__(self, limits: Limits, burst_s: float, now: float) -> None:
        self._burst_s = burst_s
        self.buckets: dict[str, Bucket] = {name: Bucket(limit, self._capacity(limit), now) for name, limit in limits.known().items()}

    def _capacity(self, limit: float) -> float:
        return limit / 60 * self._burst_s

    def ask(self, cost: Mapping[str, float], now: float) -> Short | None:
        """Draw `cost` from every limited dimension and give None, or draw nothing and say what is short."""
        wanted = {name: amount for name, amount in cost.items() if name in self.buckets and amount > 0}
        shortage = [Short(name, wait) for name, amount in wanted.items() if (wait := self.buckets[name].wait_s(amount, now)) > 0]
        if shortage:
            return max(shortage, key=lambda short: short.wait_s)
        for name, amount in wanted.items():
            self.buckets[name].draw(amount, now)
        return None

    def charge(self, cost: Mapping[str, float], now: float) -> None:
        """Draw what was used already, whether it fits or not."""
        for name, amount in cost.items():
            if name in self.buckets:
                self.buckets[name].draw(amount, now)

    def change(self, limits: Limits, now: float) -> None:
        """Other limits from now on. Dimensions that were not limited begin full; those that are no longer named are not limited."""
        wanted = limits.known()
        self.buckets = {name: bucket for name, bucket in self.buckets.items() if name in wanted}
        for name, limit in wanted.items():
            if name in self.buckets:
                self.buckets[name].change(limit, self._capacity(limit), now)
            else:
                self.buckets[name] = Bucket(limit, self._capacity(limit), now)


class Window:
    """A subscription's window: opens with the first use after it closed, and is spent when its tokens are."""

    def __init__(self, name: str, tokens: float, seconds: float) -> None:
        self.name = name
        self._tokens = tokens
        self._seconds = seconds
        self._used = 0.0
        self._opened: float | None = None

    def use(self, tokens: float, now: float) -> None:
        """Count `tokens`."""
        if self.resets_in_s(now) == 0:
            self._opened, self._used = now, 0.0
        self._used += tokens

    def resets_in_s(self, now: float) -> float:
        """Seconds until it closes; 0 when it is not open."""
        return 0.0 if self._opened is None else max(0.0, self._opened + self._seconds - now)

    def utilization(self, now: float) -> float:
        """The part that is used, 0 to 1 and above."""
        return self._used / self._tokens if self.resets_in_s(now) > 0 else 0.0


# Counting
# --------
# How the simulated provider counts: tokens by size, models by class, and the prefix cache.


CACHE_TTL_S = 300.0
LOOK_BACK = 20
"""Blocks before a breakpoint that are searched for an older one (Anthropic's documentation of prompt caching)."""

_CLAUDE = re.compile(r"claude-(?:(?P<family>[a-z]+)-(?P<major>\d+)|(?P<old>\d+)(?:-\d+)?-(?P<old_family>[a-z]+))")


def tokens_of(size: int) -> int:
    """Tokens of `size` bytes, at least 1."""
    return max(1, math.ceil(size / BYTES_PER_TOKEN))


def model_class(model: str) -> str:
    """Models that share a limit: all Opus 4.x are `opus-4`; another provider's model is a class of its own."""
    found = _CLAUDE.match(model)
    if found is None:
        return model
    return f"{found['family'] or found['old_family']}-{found['major'] or found['old']}"


class PrefixCache:
    """What was cached for one key and model: prefixes that end at a `cache_control` block, each for a while after its last use."""

    def __init__(self, ttl_s: float, min_tokens: int) -> None:
        self._ttl_s = ttl_s
        self._min_tokens = min_tokens
        self._until: dict[bytes, float] = {}
        self._before: dict[bytes, float] = {}

    def undo(self) -> None:
        """The request that was counted last was refused: it wrote nothing."""
        self._until = self._before

    def count(self, body: Mapping[str, Any], total: int, now: float) -> Usage:
        """Split `total` input tokens of a Messages body into what was read from the cache, written to it, and neither."""
        prefixes = _scaled_counting(list(_prefixes(body)), total)
        breakpoints = [place for place, (_, _, marked) in enumerate(prefixes) if marked]
        self._before = self._until
        self._until = {digest: until for digest, until in self._until.items() if until > now}
        read = self._longest_known(prefixes, breakpoints, now)
        written = 0
        for place in breakpoints:
            digest, tokens, _ = prefixes[place]
            if tokens >= self._min_tokens:
                self._until[digest] = now + self._ttl_s
                written = max(written, tokens - read)
        return Usage(input=total - read - written, cache_read=read, cache_write=written)

    def _longest_known(self, prefixes: list[tuple[bytes, int, bool]], breakpoints: list[int], now: float) -> int:
        """Tokens of the longest prefix that is known, and use it."""
        for place in reversed(breakpoints):
            for digest, tokens, _ in reversed(prefixes[max(0, place - LOOK_BACK) : place + 1]):
                if digest in self._until:
                    self._until[digest] = now + self._ttl_s
                    return tokens
        return 0


def _prefixes(body: Mapping[str, Any]) -> Iterator[tuple[bytes, int, bool]]:
    """(digest of everything up to here, its bytes, whether a breakpoint is here) for every block, in the provider's order."""
    running, size = hashlib.sha256(), 0
    for owner, block in _blocks(body):
        marked = isinstance(block, dict) and "cache_control" in block
        bare = {name: value for name, value in block.items() if name != "cache_control"} if isinstance(block, dict) else block
        data = json.dumps([owner, bare], ensure_ascii=False).encode(errors="surrogatepass")
        running.update(data)
        size += len(data)
        yield running.digest(), size, marked


def _blocks(body: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    yield from (("tools", tool) for tool in _listed(body.get("tools")))
    yield from (("system", block) for block in _listed(body.get("system")))
    for message in _listed(body.get("messages")):
        if isinstance(message, dict):
            yield from ((str(message.get("role")), block) for block in _listed(message.get("content")))


def _listed(value: object) -> list[object]:
    if isinstance(value, list):
        return value
    return [] if value is None else [value]


def _scaled_counting(prefixes: list[tuple[bytes, int, bool]], total: int) -> list[tuple[bytes, int, bool]]:
    """The same with tokens for bytes, so that the whole body has `total`."""
    size = prefixes[-1][1] if prefixes else 1
    return [(digest, round(total * upto / size), marked) for digest, upto, marked in prefixes]


# Stats
# -----
# What the simulated provider can tell about what it was asked: the tests' evidence. Keys appear only as digests.


SECRET_HEADERS = frozenset({"authorization", "x-api-key", "x-goog-api-key", "cookie", "proxy-authorization"})


def label(secret: str) -> str:
    """How a key is named in the statistics: the first 12 hex digits of its SHA-256; empty for none."""
    return hashlib.sha256(secret.encode(errors="surrogateescape")).hexdigest()[:12] if secret else ""


@dataclass(slots=True)
class Tally:
    """One key and model class. `asked` = answered + cancelled + cut + all refused + what runs now."""

    asked: int = 0
    answered: int = 0
    """To the last byte."""
    cancelled: int = 0
    """The client went away before that."""
    cut: int = 0
    """A fault ended it."""
    refused: dict[str, int] = field(default_factory=dict)
    """By reason: `limit:requests`, `limit:input`, `limit:5h`, ... by a bucket or window; `fault:529`, ... on request; `key`; `invalid`."""
    reported: dict[str, int] = field(default_factory=dict)
    """Tokens by kind, as said in final usages that were sent."""
    used: dict[str, int] = field(default_factory=dict)
    """Tokens by kind that were really taken, broken off requests included."""

    def add(self, other: Tally) -> None:
        """Add another one."""
        for name in ("asked", "answered", "cancelled", "cut"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in ("refused", "reported", "used"):
            _add(getattr(self, name), getattr(other, name))


def _add(sums: dict[str, int], more: Mapping[str, int]) -> None:
    for name, number in more.items():
        sums[name] = sums.get(name, 0) + number


def add_usage(sums: dict[str, int], usage: Usage) -> None:
    """Sum up by kind."""
    _add(sums, asdict(usage))


@dataclass(slots=True)
class Entry:
    """One request as it arrived; secrets in headers are replaced by `label`s."""

    number: int
    at: float
    """Monotonic seconds of this machine."""
    method: str
    path: str
    """With its query, less a `key`."""
    api: str
    model: str
    stream: bool
    key: str
    headers: list[tuple[str, str]]
    body_sha256: str
    body_bytes: int
    outcome: str = "running"
    """`running`, `answered`, `cancelled`, `cut`, or the reason of a refusal."""
    sent_sha256: str = ""
    """Of the body of an answer that was begun, as it was written."""
    usage: Usage | None = None
    """The final usage that was sent."""


class Stats:
    """Everything that is counted."""

    def __init__(self, keep_last: int) -> None:
        self._numbers = 0
        self.tallies: dict[tuple[str, str], Tally] = {}
        self.last: deque[Entry] = deque(maxlen=keep_last)
        self.streams = 0
        """That are being written now."""
        self.held: Counter[str] = Counter()
        """Answers that wait for a name to be released."""

    def number(self) -> int:
        """The next request's."""
        self._numbers += 1
        return self._numbers

    def tally(self, key: str, model_class: str) -> Tally:
        """That of one key's label and model class."""
        return self.tallies.setdefault((key, model_class), Tally())

    def to_json(self, connections: int, faults: list[int], accounts: list[dict[str, Any]]) -> dict[str, object]:
        """`tallies` is a list of Tally's fields with `key` and `model_class`. `at` is this moment, in monotonic seconds of the machine."""
        tallies = [{"key": key, "model_class": name, **asdict(tally)} for (key, name), tally in self.tallies.items()]
        return {
            "at": time.monotonic(),
            "requests": self._numbers,
            "connections": connections,
            "streams": self.streams,
            "held": {name: number for name, number in self.held.items() if number},
            "faults_done": faults,
            "tallies": tallies,
            "accounts": accounts,
            "last": [asdict(entry) for entry in self.last],
        }


def without_secrets(headers: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Names in lower case, in the order that they came."""
    return [(name.lower(), _safe(name.lower(), text)) for name, text in headers]


def _safe(name: str, text: str) -> str:
    if name not in SECRET_HEADERS:
        return text
    scheme, _, rest = text.rpartition(" ")
    return f"{scheme} {label(rest)}".strip()


def safe_path(path: str, query: Mapping[str, str]) -> str:
    """The path with its query; a key in it is replaced by its label."""
    shown = "&".join(f"{name}={label(text) if name == 'key' else text}" for name, text in query.items())
    return f"{path}?{shown}" if shown else path


# Account
# -------
# What the provider holds against every key: buckets, subscription windows and the prompt cache. It decides who is served.


OAUTH = "sk-ant-oat"


class Served:
    """A request that is being served: its input is charged, with one token of output; the rest of its output is charged as it is
    produced."""

    def __init__(self, usage: Usage, meter: Meter, windows: list[Window]) -> None:
        self.usage = usage
        """What it will have taken when it ends by itself."""
        self.produced = 0
        self._meter, self._windows, self._reserved = meter, windows, 1

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
    """All of them, made as they are first met."""

    def __init__(self, settings: SimSettings, clock: Clock, rng: random.Random) -> None:
        self._settings = settings
        self._clock = clock
        self._rng = rng
        self._meters: dict[Place, Meter] = {}
        self._caches: dict[tuple[str, str], PrefixCache] = {}
        self._windows: dict[str, list[Window]] = {}

    def now(self) -> float:
        """The provider's time."""
        return self._clock.monotonic()

    def count(self, ask: Ask, key: str, size: int, fault: Fault) -> Usage:
        """What a request will take: input by size and cache, output by its script or by chance."""
        total = fault.input_tokens if fault.input_tokens is not None else tokens_of(size)
        return replace(self._cache(key, ask.model).count(ask.body, total, self.now()), output=self._output(ask, fault))

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

    def place(self, key: str, model: str) -> Place:
        """The pool that a request draws from."""
        return Place(key, model_class(model))

    def admit(self, place: Place, ask: Ask, usage: Usage) -> Served | Failure:
        """Charge the input and serve it, or charge nothing, keep nothing in the cache, and say why not."""
        served = self._admit(place, usage)
        if isinstance(served, Failure) and (cache := self._caches.get((place.key, ask.model))) is not None:
            cache.undo()
        return served

    def _admit(self, place: Place, usage: Usage) -> Served | Failure:
        now, meter, windows = self.now(), self._meter(place), self._windows_of(place.key)
        for window in windows:
            if window.utilization(now) >= 1:
                return Failure(429, "You have reached your usage limit", dimension=window.name, wait_s=window.resets_in_s(now))
        limited = usage.limited_input
        # Output is not known yet, but when none is left nothing is served: its first token is always asked for.
        short = meter.ask({"requests": 1, "input": limited, "output": 1, "tokens": limited + 1}, now)
        if short is not None:
            return _refusal(short.dimension, meter.buckets[short.dimension].per_minute, short.wait_s)
        for window in windows:
            window.use(limited, now)
        return Served(usage, meter, windows)

    def gauges(self, place: Place) -> dict[str, Gauge]:
        """The buckets as the headers show them."""
        now, buckets = self.now(), self._meter(place).buckets
        return {name: Gauge(bucket.per_minute, bucket.level(now), bucket.full_in_s(now)) for name, bucket in buckets.items()}

    def told(self) -> list[dict[str, Any]]:
        """For `/sim/stats`, of every place the exact account of its buckets, as JSON has it; see docs/gateway.md."""
        now = self.now()
        return [
            {
                "key": label(place.key),
                "model_class": place.model_class,
                "buckets": {name: _told(bucket, now) for name, bucket in meter.buckets.items()},
            }
            for place, meter in self._meters.items()
        ]

    def window_headers(self, key: str) -> dict[str, str]:
        """Utilisation and reset (seconds since 1970) of a subscription's windows; empty for other keys."""
        now, headers = self.now(), {}
        for window in self._windows_of(key):
            used, prefix = window.utilization(now), f"anthropic-ratelimit-unified-{window.name}"
            headers[f"{prefix}-status"] = "rejected" if used >= 1 else "allowed_warning" if used >= 0.8 else "allowed"
            headers[f"{prefix}-utilization"] = f"{used:.4g}"
            headers[f"{prefix}-reset"] = str(math.ceil(self._clock.wall() + window.resets_in_s(now)))
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

    def _meter(self, place: Place) -> Meter:
        settings, now = self._settings, self.now()
        if place not in self._meters:
            limits = settings.classes.get(place.model_class, settings.limits)
            self._meters[place] = Meter(limits, settings.burst_s, now)
        return self._meters[place]

    def _cache(self, key: str, model: str) -> PrefixCache:
        return self._caches.setdefault((key, model), PrefixCache(CACHE_TTL_S, self._settings.cache_min_tokens))

    def _windows_of(self, key: str) -> list[Window]:
        if not key.startswith(OAUTH):
            return []
        made = [Window(limit.name, limit.tokens, limit.seconds) for limit in self._settings.windows]
        return self._windows.setdefault(key, made)


def _told(bucket: Bucket, now: float) -> dict[str, float]:
    return {"per_minute": bucket.per_minute, "capacity": bucket.capacity, "level": bucket.level(now)}


def _refusal(dimension: str, limit: float, wait_s: float) -> Failure:
    named = {"requests": "requests", "input": "input tokens", "output": "output tokens", "tokens": "tokens"}[dimension]
    words = f"This request would exceed the rate limit of {limit:,.0f} {named} per minute."
    return Failure(429, words, dimension=dimension, limit=limit, wait_s=wait_s)
