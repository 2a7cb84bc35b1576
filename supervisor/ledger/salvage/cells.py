"""The rows and the children of one page of a tree, as far as they make sense."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

from supervisor.ledger.salvage.pages import Pages

Value = int | float | str | bytes | None

TABLE_LEAF, TABLE_INNER, INDEX_LEAF, INDEX_INNER = 0x0D, 0x05, 0x0A, 0x02
LEAVES = (TABLE_LEAF, INDEX_LEAF)
INDEXES = (INDEX_LEAF, INDEX_INNER)


@dataclass(slots=True)
class Node:
    """One page of a tree. A row is (rowid, values); in an index, and in a table without rowids, the rowid is None."""

    kind: int
    rows: list[tuple[int | None, list[Value]]] = field(default_factory=list)
    children: list[int] = field(default_factory=list)
    broken: int = 0
    """Rows, or children, that cannot be read."""


class _Broken(Exception):
    """These bytes are no cell."""


def node(pages: Pages, number: int) -> Node | None:
    """What is on a page; None when it is no page of a tree."""
    data = pages.get(number)
    at = 100 if number == 1 else 0
    if data is None or data[at] not in (TABLE_LEAF, TABLE_INNER, INDEX_LEAF, INDEX_INNER):
        return None
    found = Node(data[at])
    (count,) = struct.unpack_from(">H", data, at + 3)
    pointers = at + (8 if found.kind in LEAVES else 12)
    if pointers + 2 * count > pages.usable:
        return None
    if found.kind not in LEAVES:
        found.children.append(struct.unpack_from(">I", data, at + 8)[0])
    for (pointer,) in struct.iter_unpack(">H", data[pointers : pointers + 2 * count]):
        try:
            _cell(pages, data, pointer, found)
        except (_Broken, IndexError, struct.error, UnicodeDecodeError):
            found.broken += 1
    return found


def _cell(pages: Pages, data: bytes, at: int, found: Node) -> None:
    if found.kind not in LEAVES:
        found.children.append(struct.unpack_from(">I", data, at)[0])
        at += 4
    if found.kind == TABLE_INNER:
        return
    length, at = _varint(data, at)
    rowid = None
    if found.kind == TABLE_LEAF:
        rowid, at = _varint(data, at)
        rowid -= (rowid >> 63) << 64
    found.rows.append((rowid, list(_record(_payload(pages, data, at, length, found.kind)))))


def _payload(pages: Pages, data: bytes, at: int, length: int, kind: int) -> bytes:
    """The bytes of a record, the end of which may lie on pages of its own."""
    usable = pages.usable
    most = usable - 35 if kind == TABLE_LEAF else (usable - 12) * 64 // 255 - 23
    if length <= most:
        return _exactly(data[at : at + length], length)
    if length > pages.count * usable:
        raise _Broken
    least = (usable - 12) * 32 // 255 - 23
    local = least + (length - least) % (usable - 4)
    local = local if local <= most else least
    parts = [_exactly(data[at : at + local], local)]
    (following,) = struct.unpack_from(">I", data, at + local)
    left = length - local
    while left > 0:
        more = pages.get(following)
        if more is None or following < 2:
            raise _Broken
        parts.append(more[4 : 4 + min(left, usable - 4)])
        left -= len(parts[-1])
        (following,) = struct.unpack_from(">I", more)
    return b"".join(parts)


def _exactly(data: bytes, length: int) -> bytes:
    if len(data) != length:
        raise _Broken
    return data


def _record(payload: bytes) -> Iterator[Value]:
    head, at = _varint(payload, 0)
    types = []
    while at < head:
        kind, at = _varint(payload, at)
        types.append(kind)
    if at != head or head + sum(map(_width, types)) != len(payload):
        raise _Broken
    for kind in types:
        width = _width(kind)
        yield _value(kind, payload[at : at + width])
        at += width


def _width(kind: int) -> int:
    if kind in (10, 11):
        raise _Broken
    return (kind - 12) // 2 if kind >= 12 else (0, 1, 2, 3, 4, 6, 8, 8, 0, 0)[kind]


def _value(kind: int, data: bytes) -> Value:
    if kind == 0:
        return None
    if kind >= 12:
        return data.decode() if kind % 2 else data
    if kind == 7:
        return float(struct.unpack(">d", data)[0])
    return kind - 8 if kind in (8, 9) else int.from_bytes(data, "big", signed=True)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A number of one to nine bytes, and where it ends. Raises IndexError beyond the data."""
    value = 0
    for index in range(8):
        byte = data[at + index]
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, at + index + 1
    return value << 8 | data[at + 8], at + 9
