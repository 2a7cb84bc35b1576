"""The chain of the audit log, and lines of our logs for programs. Pure."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from supervisor.kernel.errors import NightcrewError, one_line
from supervisor.kernel.format import rfc3339
from supervisor.kernel.names import trace_id

# Audit
# -----
# The audit log: who was refused, which keys came and went, and digests that prove the ledger's journal and the account
# (`core.anchors`). Each record is chained to the one before, so that a record that was changed, left out, added or cut off is
# found. Pure; `supervisor.host.audit_log` reads and writes.
#
# {"seq": 7, "at": "2026-11-21T10:00:00.000Z", "who": "gateway", "event": "token refused", "data": {...}, "prev": "<hex>", "mac":
# "<hex>"}
#
# `mac` is HMAC-SHA256, by a key that is derived from nightcrew's own secret, over the line's bytes before it and a closing brace;
# `prev` is the `mac` of the record before. Whoever has the secret can forge the whole; an agent in a sandbox has no way to it. The
# head (a file of its own) says how far the log goes, so that a tail that was cut off is missed. Who puts back an older log *and*
# its older head is found out only by the rows that it does not prove any more (`supervisor.features.audit.views`).


FIRST = "0" * 64
"""`prev` of the first record."""
_LINE = re.compile(rb'(\{.*), "mac": "([0-9a-f]{64})"\}\n?')


@dataclass(frozen=True, slots=True)
class Head:
    """How far a log goes: the number and the mac of its last record."""

    seq: int = 0
    mac: str = FIRST


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a look at a log, and at the rows that it proves, found. `line` (1 is the first) and `why` name the first thing that is wrong;
    `why` empty: nothing is."""

    records: int
    line: int = 0
    why: str = ""
    table: str = ""
    """Where the log itself is whole: the table with a row that is not as it was when `line` anchored it."""
    row: int = 0
    proven: Mapping[str, int] = field(default_factory=dict)
    """How many rows of each table are as they were when they were anchored."""
    newer: Mapping[str, int] = field(default_factory=dict)
    """How many of each came after its last anchor: nothing proves them yet."""
    warnings: tuple[str, ...] = ()
    """What a supervisor found wrong before and made good for the future only."""


def record(secret: bytes, head: Head, at: str, who: str, event: str, data: Mapping[str, Any]) -> tuple[bytes, Head]:
    """The next line of a log that ends at `head`, and the head after it."""
    shape = {"seq": head.seq + 1, "at": at, "who": who, "event": event, "data": dict(data), "prev": head.mac}
    text = json.dumps(shape, ensure_ascii=True).encode()
    mac = _sign(secret, text)
    return text[:-1] + f', "mac": "{mac}"}}\n'.encode(), Head(head.seq + 1, mac)


def head_of(secret: bytes, line: bytes) -> Head | None:
    """The head after this line alone is trusted; None when the line is no whole record of ours."""
    shape = trusted(secret, line)
    return Head(int(shape["seq"]), str(shape["mac"])) if shape is not None else None


def write_head(secret: bytes, head: Head) -> bytes:
    """The bytes of the head's file."""
    return f"{head.seq} {head.mac} {_sign(secret, f'head {head.seq} {head.mac}'.encode())}\n".encode()


def read_head(secret: bytes, text: str) -> Head | None:
    """What `write_head` wrote; None for anything else."""
    match text.split():
        case [seq, mac, _] if seq.isascii() and seq.isdigit():
            head = Head(int(seq), mac)
            return head if hmac.compare_digest(write_head(secret, head), text.encode()) else None
    return None


def trusted(secret: bytes, line: bytes) -> Mapping[str, Any] | None:
    """A record by its line; None when it is not byte for byte one that we wrote, of which the last newline alone may be missing. Its place
    in the chain is not looked at."""
    found = _LINE.fullmatch(line)
    if found is None or not hmac.compare_digest(found[2], _sign(secret, found[1] + b"}").encode()):
        return None
    shape: Mapping[str, Any] = json.loads(line)
    return shape


def verify(
    secret: bytes, lines: Iterable[bytes], head: Head | None, seen: Callable[[int, Mapping[str, Any]], None] = lambda _, __: None
) -> Verdict:
    """Whether the log is whole. `head` None: there is no head, which is right for an empty log only. `seen` gets each record with the
    number of its line, in order, up to the first that is wrong.

    Records after the head are right too: a crash can come between the record and the head. A last line without its end was never
    acknowledged, and is passed over when the head is reached before it.
    """
    last, count = Head(), 0
    passed = head is not None and head == last
    for count, line in enumerate(lines, 1):
        shape = trusted(secret, line)
        if shape is None:
            if passed and not line.endswith(b"\n"):
                return Verdict(count - 1)
            return Verdict(count - 1, count, "it is no record of ours, or was changed")
        if shape["seq"] != last.seq + 1 or shape["prev"] != last.mac:
            return Verdict(count - 1, count, f"it does not follow the record before: {shape['seq']} after {last.seq}")
        last = Head(shape["seq"], shape["mac"])
        seen(count, shape)
        passed = passed or last == head
    if head is None:
        return Verdict(count) if count == 0 else Verdict(count, count, "there is no valid head, so what came after it cannot be known")
    if not passed:
        return Verdict(count, count + 1, f"the log ends at record {last.seq}, its head says {head.seq}: the rest was cut off")
    return Verdict(count)


def _sign(secret: bytes, data: bytes) -> str:
    key = hmac.new(secret, b"audit", hashlib.sha256).digest()
    return hmac.new(key, data, hashlib.sha256).hexdigest()


# Log lines
# ---------
# A line of our own logs as one JSON object, for programs that collect logs. Pure.


VARIABLE = "NIGHTCREW_LOG_FORMAT"
"""Has the form for a process that another one of ours starts."""
_NAMED = re.compile(r"(?<![\w/-])(\d{4}-[a-z0-9]{4,})/([a-z0-9][a-z0-9_-]*)(?::(\d{1,9}))?(?![\w/])")


class LogFormat(StrEnum):
    """How the supervisor and the gateway write their logs."""

    TEXT = "text"
    JSON = "json"


def log_format(environ: Mapping[str, str]) -> LogFormat:
    """Return the form that an environment asks for; text by default."""
    return LogFormat.JSON if environ.get(VARIABLE) == LogFormat.JSON else LogFormat.TEXT


class Level(StrEnum):
    """How bad it is."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


Said = str | NightcrewError
"""What a log is told."""


def level_of(said: Said) -> Level:
    """How bad it is when nobody says."""
    return Level.WARNING if isinstance(said, NightcrewError) else Level.INFO


def line(at: float, level: Level, logger: str, said: Said, more: str = "") -> str:
    """`time` (RFC 3339, UTC), `level`, `logger`, `message`; of an error also its class and its five parts (`error`); and of the first
    attempt or task that the message names its `run`, `task`, `epoch` and `trace`. One line of ASCII, without the line feed. `more` is
    added to the message."""
    message = one_line(f"{said}{more}")
    shape: dict[str, object] = {"time": rfc3339(at), "level": str(level), "logger": logger, "message": message}
    if isinstance(said, NightcrewError):
        shape["error"] = {"class" if name == "error" else name: one_line(text) for name, text in said.to_wire().items()}
    if (named := _NAMED.search(message)) is not None:
        run, name, epoch = named.groups()
        shape |= {"run": run, "task": f"{run}/{name}", "epoch": int(epoch) if epoch else None, "trace": trace_id(run)}
    return json.dumps(shape)
