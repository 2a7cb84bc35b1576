"""The account's rows, its file, and values that SQLite takes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

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
    output_sha256: str | None = None
    """Of the answer's body as the client got it; None: it got none."""


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
