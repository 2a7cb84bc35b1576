"""The audit log: who was refused, which keys came and went, who stopped what. Each record is chained to the one before, so that a record
that was changed, left out, added or cut off is found. Pure; `supervisor.host.audit` reads and writes.

    {"seq": 7, "at": "2026-11-21T10:00:00.000Z", "who": "gateway", "event": "token refused", "data": {...}, "prev": "<hex>", "mac": "<hex>"}

`mac` is HMAC-SHA256, by a key that is derived from nightcrew's own secret, over all the rest; `prev` is the `mac` of the record before.
Whoever has the secret can forge the whole; an agent in a sandbox has no way to it. The head (a file of its own) says how far the log goes,
so that a tail that was cut off is missed. Who puts back an older log *and* its older head is not found out.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

FIRST = "0" * 64
"""`prev` of the first record."""


@dataclass(frozen=True, slots=True)
class Head:
    """How far a log goes: the number and the mac of its last record."""

    seq: int = 0
    mac: str = FIRST


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a look at a log found. `line` (1 is the first) and `why` name the first thing that is wrong; `why` empty: nothing is."""

    records: int
    line: int = 0
    why: str = ""


def record(secret: bytes, head: Head, at: str, who: str, event: str, data: Mapping[str, Any]) -> tuple[bytes, Head]:
    """The next line of a log that ends at `head`, and the head after it."""
    shape = {"seq": head.seq + 1, "at": at, "who": who, "event": event, "data": dict(data), "prev": head.mac}
    mac = _mac(secret, shape)
    return json.dumps({**shape, "mac": mac}, ensure_ascii=True).encode() + b"\n", Head(head.seq + 1, mac)


def head_of(secret: bytes, line: bytes) -> Head | None:
    """The head after this line alone is trusted; None when the line is no whole record of ours."""
    shape = _shape(line)
    if shape is None or not hmac.compare_digest(str(shape.get("mac")), _mac(secret, {k: v for k, v in shape.items() if k != "mac"})):
        return None
    return Head(int(shape["seq"]), str(shape["mac"]))


def write_head(secret: bytes, head: Head) -> bytes:
    """The bytes of the head's file."""
    return f"{head.seq} {head.mac} {_sign(secret, f'head {head.seq} {head.mac}')}\n".encode()


def read_head(secret: bytes, text: str) -> Head | None:
    """What `write_head` wrote; None for anything else."""
    match text.split():
        case [seq, mac, signature] if seq.isdigit() and hmac.compare_digest(signature, _sign(secret, f"head {int(seq)} {mac}")):
            return Head(int(seq), mac)
    return None


def verify(secret: bytes, lines: Iterable[bytes], head: Head | None) -> Verdict:
    """Whether the log is whole. `head` None: there is no head, which is right for an empty log only.

    Records after the head are right too: a crash can come between the record and the head. A last line without its end was never
    acknowledged, and is passed over when the head is reached before it.
    """
    last, count = Head(), 0
    passed = head is not None and head == last
    for count, line in enumerate(lines, 1):
        found = head_of(secret, line)
        if found is None:
            if passed and not line.endswith(b"\n"):
                return Verdict(count - 1)
            return Verdict(count - 1, count, "it is no record of ours, or was changed")
        if found.seq != last.seq + 1 or (_shape(line) or {}).get("prev") != last.mac:
            return Verdict(count - 1, count, f"it does not follow the record before: {found.seq} after {last.seq}")
        last = found
        passed = passed or last == head
    if head is None:
        return Verdict(count) if count == 0 else Verdict(count, count, "there is no valid head, so what came after it cannot be known")
    if not passed:
        return Verdict(count, count + 1, f"the log ends at record {last.seq}, its head says {head.seq}: the rest was cut off")
    return Verdict(count)


def _shape(line: bytes) -> dict[str, Any] | None:
    try:
        shape = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return shape if isinstance(shape, dict) and isinstance(shape.get("seq"), int) else None


def _mac(secret: bytes, shape: Mapping[str, Any]) -> str:
    return _sign(secret, json.dumps(shape, sort_keys=True, ensure_ascii=True))


def _sign(secret: bytes, text: str) -> str:
    key = hmac.new(secret, b"audit", hashlib.sha256).digest()
    return hmac.new(key, text.encode("utf-8", "surrogateescape"), hashlib.sha256).hexdigest()
