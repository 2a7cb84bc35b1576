"""What the account writes of each request, and what that costs."""

from __future__ import annotations

import contextlib
import fnmatch
import hashlib
import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from supervisor.gateway.admission.types import LaneKey, PoolKey, Usage
from supervisor.kernel.states import TaskClass

# Rows
# ----
# The account's rows. One row is one sending of one request: a request that an upstream refused and that is sent again has two.


REFUSED = "refused"
"""End of a sending that the upstream did not serve (429, 529, 5xx, no answer); the client saw none of it."""
CRASHED = "crashed"
"""End of a sending that was open when the gateway died."""
BATCH = "batch:"
"""How the `body_key` of a batch's row begins: it took nothing of a limit a minute."""
PAST, ELSEWHERE = f"{BATCH}past", "past the gateway"
"""`body_key` of what an attempt took past the gateway by its own account, a row for each charge; and its upstream, account and flag."""
KEPT = "kept answer"
"""End, upstream and account of a request that a kept answer answered: it took nothing, and what that saved is its bound."""
NEVER_SENT = "never sent"
"""End of a sending whose client left before the first byte went out."""


class OpenRow(NamedTuple):
    """A request that is about to be sent. `bound` is the most that it can take, `expected` what requests like it took: that is charged when
    the gateway dies before it learns more."""

    agent: str
    """The task's id."""
    epoch: int
    model: str
    """As it is sent."""
    lane: LaneKey
    upstream: str
    account: str
    task_class: TaskClass
    at: float
    """Wall-clock seconds."""
    queued_ms: float
    """From its arrival to this sending."""
    attempt_no: int
    """As `commands.Send.attempt`: 1, and one more for each retry."""
    bound: Usage
    expected: Usage
    bound_usd: float | None = None
    session: str = ""
    body_key: str = ""
    """What tells one agent's bodies apart."""
    asked: str = ""
    """The model as the client asked for it."""
    work: str = ""
    """The weight of its work, and the reason; empty where no route asks for it."""
    work_why: str = ""

    @property
    def pool(self) -> PoolKey:
        """Whose limit it counts against."""
        return PoolKey(self.account, self.lane)

    @property
    def same(self) -> tuple[str, str, str]:
        """Equal for a request and its client's retry."""
        return self.agent, self.model, self.body_key

    @property
    def run(self) -> str:
        """The run of its task."""
        return self.agent.partition("/")[0]


class SettledRow(NamedTuple):
    """What became of it. A row that is `estimated` has a `usage` that is never below what was seen. `cost_usd` None: the model has no known
    price."""

    end: str
    """One of `types.End`, or REFUSED, or NEVER_SENT."""
    usage: Usage
    status: int | None = None
    """The upstream's; None when no response line came."""
    cost_usd: float | None = None
    counted_usd: float | None = None
    """What the caps on dollars count instead of `cost_usd`; None: nothing else."""
    estimated: bool = False
    first_byte_ms: float | None = None
    """From the arrival to the first byte for the client; None when there was none."""
    total_ms: float | None = None
    """From the arrival to the end."""
    retries: int = 0
    """How often this request was sent before."""
    breaker: str = ""
    """State of the pool's breaker when it ended."""
    flags: tuple[str, ...] = ()
    """What was odd: `partial`, `usage missing`, `usage larger than the bound` and whatever the reader of the answer says."""
    body: bytes = b""
    """As the client sent it; only its digest is kept."""
    prompt_at: tuple[tuple[str, int, int], ...] = ()
    """`requests.Asked.prompt_at` of the body."""
    recorded: bool = False
    """The body is recorded."""
    output_sha256: str | None = None
    """Of the answer's body as the client got it; None: it got none."""
    engine_s: float = 0.0
    """From the sending to the end, where an engine served it."""
    kv_bytes: int = 0
    """What its prompt and its answer took of the engine's memory in the end; 0: nobody knows."""


@dataclass(frozen=True, slots=True)
class TurnedAwayRow:
    """A request that we answered ourselves, so that no upstream saw it (or saw it last)."""

    agent: str
    epoch: int
    lane: LaneKey
    status: int
    """429, 402 or 503."""
    why: str
    waited_ms: float
    at: float


@dataclass(frozen=True, slots=True)
class RecordingRow:
    """Where the bodies of one sending are kept. `file` is relative to the recordings' directory."""

    row_id: int
    run: str
    endpoint: str
    """Method, path and query as the upstream got them."""
    body_sha256: str
    """Of the body as the client sent it."""
    status: int
    file: str
    at: float


# Values
# ------
# Values for the account's rows. Whatever a client or a provider said, SQLite takes it: one row that it refused would take down
# those that are committed with it. Members of enums and truth values are brought to plain ones: sqlite3 looks for an adapter of
# each that is not, which doubles a row's time.


_TEXT_MAX = 300
"""Characters of what a client says (a model's name, a session's): the rest is cut off."""
_NUMBER_MAX = 2**53


def text(said: str) -> str:
    """At most _TEXT_MAX characters of it, without what is no UTF-8."""
    return said[:_TEXT_MAX] if said.isascii() else said[:_TEXT_MAX].encode("utf-8", "backslashreplace").decode()


def number(value: float | None) -> float | None:
    """None also for what is no finite number."""
    return value if value is not None and math.isfinite(value) else None


def tokens(usage: Usage) -> tuple[int, int, int, int]:
    """In the order of the columns."""
    return _count(usage.input), _count(usage.output), _count(usage.cache_read), _count(usage.cache_write)


def hour(usage: Usage) -> int:
    """Of what was written to a cache, what is kept for an hour."""
    return _count(min(usage.cache_write_1h, usage.cache_write))


def _count(tokens: int) -> int:
    return min(max(0, tokens), _NUMBER_MAX)


class BodyDigest:
    """SHA-256 of a body as a parameter of a statement: the writer's thread digests it, and no stream waits for that."""

    def __init__(self, body: bytes, look: Callable[[], None]) -> None:
        """`look` is called on that thread too, once."""
        self._body, self._look, self._text = body, look, ""

    def __conform__(self, protocol: object) -> str:
        if not self._text:
            self._text = hashlib.sha256(self._body).hexdigest()
            with contextlib.suppress(Exception):  # what is seen of a prompt must not keep its row from being written
                self._look()
        return self._text


# Prices
# ------
# What tokens cost, by a table that the daemon writes and the user's own prices. A model that nobody knows has no price, which is not 0.
#
# The table (`prices.json`, written by `supervisor/server/prices.py`) is `{"schema": 1, "source", "written", "providers": [...]}`; a
# provider
# is `{"id", "match", "models": [{"id", "match", "rates": {kind: [[tokens, rate], ...]}}]}`. The first provider and in it the first model
# whose `match` fits is the one. `rate` is US dollars per million tokens, and counts for a request whose input is above `tokens`: providers
# take the higher rate for the whole of a long request. What is read from or written to a cache costs what input does when it has no
# rate, and
# what is written for an hour (`cache_write_1h`) what any write does.
#
# Not in it: searches and other things that are billed by the piece.


PRICES_SCHEMA = 1
BATCH_PART = 0.5
"""What a request costs in a batch, of what it costs alone, for every kind of token (Anthropic's price list)."""
PRICES_MAX_BYTES = 16 * 2**20
_KNOWN_MAX = 1000
"""Models whose price is kept at hand: names come from clients, and there is no end of them."""

Rates = Mapping[str, list[tuple[float, float]]]
"""Kind of token -> (above so many input tokens, US dollars per million), rising."""


class Prices:
    """The prices of models, by the table as `refresh` last found it: what a request costs is reckoned without a look at the disk."""

    def __init__(self, path: Path, own: Mapping[str, Mapping[str, float]]) -> None:
        """`own` are the user's prices, see `GatewaySettings.prices`: they go before the table. Never raises."""
        self._path = path
        self._own: dict[str, Rates] = {model: {kind: [(0.0, rate)] for kind, rate in rates.items()} for model, rates in own.items()}
        self._seen: tuple[int, int, int] | None = None
        self._providers: list[dict[str, Any]] = []
        self._known: dict[str, Rates | None] = {}
        self.trouble = ""
        """Why the table cannot be used; empty when it can."""

    @classmethod
    def load(cls, path: Path, own: Mapping[str, Mapping[str, float]]) -> Prices:
        """The prices, the table read."""
        prices = cls(path, own)
        prices.refresh()
        return prices

    def cost(self, model: str, usage: Usage) -> float | None:
        """US dollars; None when the model's price is not known."""
        rates = self._rates(model)
        if rates is None:
            return None
        total_input = usage.limited_input + usage.cache_read
        hour, short = usage.cache_write_1h, usage.cache_write - usage.cache_write_1h
        new, cached = (("input", usage.input), ("output", usage.output)), (("cache_read", usage.cache_read), ("cache_write", short))
        kinds = (*new, *cached, ("cache_write_1h", hour))
        return sum(_rate(rates, kind, total_input) * tokens for kind, tokens in kinds if tokens) / 1e6

    def rates(self, model: str) -> dict[str, float] | None:
        """US dollars for a million tokens of each kind, in a request without long input; None when the price is not known."""
        rates = self._rates(model)
        return None if rates is None else {kind: _rate(rates, kind, 0) for kind in ("input", "output", "cache_read")}

    def bound(self, model: str, input_tokens: int, output_tokens: int) -> float | None:
        """The most that so many tokens can cost, however much of the input is written to a cache; None when the price is not known."""
        rates = self._rates(model)
        if rates is None:
            return None
        dearest = max(_dearest(rates, kind, input_tokens) for kind in ("input", "cache_write", "cache_write_1h"))
        return (dearest * input_tokens + _dearest(rates, "output", input_tokens) * output_tokens) / 1e6

    def refresh(self) -> None:
        """Read the table if it is not the one that was read last; one that cannot be read leaves the prices as they were. The gateway does
        this every second: a first table is written while it starts."""
        try:
            state = self._path.stat()
            seen = state.st_ino, state.st_mtime_ns, state.st_size
            if seen == self._seen:
                return
            self._seen = seen
            self._providers = _read(self._path, state.st_size)
            self._known.clear()
            self.trouble = ""
        except (OSError, ValueError) as error:
            self.trouble = str(error)

    def _rates(self, model: str) -> Rates | None:
        try:
            return self._known[model]
        except KeyError:
            if len(self._known) >= _KNOWN_MAX:
                self._known.clear()
            rates = self._known[model] = self._find(model)
            return rates

    def _find(self, model: str) -> Rates | None:
        if model in self._own:
            return self._own[model]
        for pattern, rates in self._own.items():
            if fnmatch.fnmatchcase(model, pattern):
                return rates
        name = model.lower()
        for provider in self._providers:
            if matches(provider["match"], name):
                found = next((known["rates"] for known in provider["models"] if matches(known["match"], name)), None)
                return found or None
        return None


def _rate(rates: Rates, kind: str, total_input: float) -> float:
    steps = _of(rates, kind)
    return next((rate for above, rate in reversed(steps) if total_input > above), steps[0][1])


def _dearest(rates: Rates, kind: str, total_input: float) -> float:
    return max(rate for above, rate in _of(rates, kind) if above <= total_input)


def _of(rates: Rates, kind: str) -> list[tuple[float, float]]:
    """Models without a rate for output put none out."""
    if kind == "cache_write_1h" and kind not in rates:
        kind = "cache_write"
    return rates.get(kind) or (rates.get("input") if kind != "output" else None) or [(0.0, 0.0)]


_TESTS: dict[str, Callable[[str, str], bool]] = {
    "equals": lambda text, name: name == text.lower(),
    "starts_with": lambda text, name: name.startswith(text.lower()),
    "ends_with": lambda text, name: name.endswith(text.lower()),
    "contains": lambda text, name: text.lower() in name,
    "regex": lambda text, name: re.search(text, name) is not None,
}


def matches(rule: Mapping[str, Any], name: str) -> bool:
    """Whether a model's name, in lower case, fits a rule of the table: `{"or": [rules]}`, `{"and": [rules]}` or one of `_TESTS`."""
    ((how, what),) = rule.items()
    match how:
        case "or":
            return any(matches(one, name) for one in what)
        case "and":
            return all(matches(one, name) for one in what)
        case _:
            return _TESTS[how](what, name)


def _read(path: Path, size: int) -> list[dict[str, Any]]:
    """The providers of a table. Raises OSError and ValueError: the whole of it is checked here, so that no request meets its mistakes."""
    if size > PRICES_MAX_BYTES:
        raise ValueError(f"{path} is larger than {PRICES_MAX_BYTES} bytes")
    table = json.loads(path.read_bytes())
    if not isinstance(table, dict) or table.get("schema") != PRICES_SCHEMA:
        raise ValueError(f"{path} is no price table of schema {PRICES_SCHEMA}")
    try:
        for provider in table["providers"]:
            matches(provider["match"], "a model")
            for model in provider["models"]:
                matches(model["match"], "a model")
                model["rates"] = {kind: _steps(steps) for kind, steps in model["rates"].items()}
    except (KeyError, TypeError, AttributeError, re.error) as error:
        raise ValueError(f"{path} is no price table: {error!r}") from None
    providers: list[dict[str, Any]] = table["providers"]
    return providers


def _steps(steps: list[tuple[float, float]]) -> list[tuple[float, float]]:
    checked = [(float(above), float(rate)) for above, rate in steps]
    if not checked or checked[0][0] != 0 or checked != sorted(checked) or any(rate < 0 for _, rate in checked):
        raise ValueError(f"no rates: {steps}")
    return checked
