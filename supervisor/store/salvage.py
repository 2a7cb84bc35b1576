"""Read what can still be read of a damaged SQLite file."""

from __future__ import annotations

import array
import contextlib
import math
import os
import sqlite3
import struct
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from supervisor.host.failpoint import failpoint
from supervisor.kernel.errors import LedgerError, NotFound
from supervisor.store import sqlite
from supervisor.store.sqlite import Book

# Pages
# -----
# The pages of a file of SQLite's and of the log beside it. Only reads; whatever the bytes are, nothing is raised but OSError.
#
# A frame of the log counts when its salt is the log's, and its checksum follows from the one that is stored in the frame before.
# SQLite takes the frames before the first damaged one only; here those after it count too, up to the last one that ends a commit.


MAGIC = b"SQLite format 3\0"
PAGE = 4096
"""SQLite's page size when nobody asks for another, and nobody here does: of a file whose header is damaged."""
_LOG_HEADER, _FRAME_HEADER = 32, 24
_LITTLE = 0x377F0682
_WORD = 0xFFFFFFFF

Sum = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Log:
    """What counts of a log."""

    frames: dict[int, tuple[int, int]]
    """Of each page its newest frame: where its bytes begin, and which frame it is (1 is the first)."""
    skipped: int
    """Damaged frames before the last one that counts: what was committed with them is lost, or is older than it was."""


class Pages:
    """Reads page by page; at most one page is held. Close it."""

    def __init__(self, path: Path, log: Path | None) -> None:
        """The file may be absent, and so may its log. Raises OSError."""
        self._file = path.open("rb") if path.exists() else None
        self._log_file = log.open("rb") if log is not None else None
        first = self._file.read(100) if self._file is not None else b""
        head = self._log_file.read(_LOG_HEADER) if self._log_file is not None else b""
        self.size = _page_size(first, head)
        self.log = _read_log(log.read_bytes(), self.size) if log is not None else Log({}, 0)
        length = path.stat().st_size if self._file is not None else 0
        self.count = max([-(-length // self.size), *self.log.frames])
        self.header = (self.get(1) or b"")[:100]

    @property
    def usable(self) -> int:
        """Bytes of a page without those that are reserved at its end, which in our files are none."""
        return self.size

    def get(self, number: int) -> bytes | None:
        """A page's bytes (1 is the first); None when there is no such page, or not all of it."""
        frame = self.log.frames.get(number)
        if frame is not None and self._log_file is not None:
            self._log_file.seek(frame[0])
            return self._log_file.read(self.size)
        if self._file is None or not 1 <= number <= self.count:
            return None
        self._file.seek((number - 1) * self.size)
        data = self._file.read(self.size)
        return data if len(data) == self.size else None

    def age(self, number: int) -> int:
        """Of two copies of a row the one on the page with the higher number is newer."""
        return self.log.frames.get(number, (0, 0))[1]

    def free(self) -> frozenset[int]:
        """The pages of SQLite's list of free ones, which may hold old copies of rows; empty when the list makes no sense."""
        if len(self.header) < 100:
            return frozenset()
        trunk, total = struct.unpack_from(">II", self.header, 32)
        found: set[int] = set()
        while trunk:
            data = self.get(trunk)
            if data is None or trunk in found or len(found) > total:
                return frozenset()
            following, count = struct.unpack_from(">II", data)
            if count > self.usable // 4 - 2:
                return frozenset()
            found.update((trunk, *struct.unpack_from(f">{count}I", data, 8)))
            trunk = following
        return frozenset(found) if len(found) == total else frozenset()

    def close(self) -> None:
        """Give both files back."""
        for file in (self._file, self._log_file):
            if file is not None:
                file.close()


def _page_size(first: bytes, log: bytes) -> int:
    found = []
    if first.startswith(MAGIC):
        (size,) = struct.unpack_from(">H", first, 16)
        found.append(65536 if size == 1 else size)
    if len(log) == _LOG_HEADER:
        found.append(struct.unpack_from(">I", log, 8)[0])
    return next((size for size in found if 512 <= size <= 65536 and size & (size - 1) == 0), PAGE)


def _read_log(data: bytes, size: int) -> Log:
    if len(data) < _LOG_HEADER + _FRAME_HEADER + size:
        return Log({}, 0)
    magic, _, _, _, *salt, sum_0, sum_1 = struct.unpack_from(">8I", data)
    little = magic != _LITTLE + 1  # also when the header is damaged
    before: Sum | None = (sum_0, sum_1)
    if magic & ~1 != _LITTLE or _sum(data[:24], (0, 0), little=little) != before:
        salt, before = list(struct.unpack_from(">II", data, _LOG_HEADER + 8)), None  # the first frame cannot be checked, and counts
    frames: dict[int, tuple[int, int]] = {}
    since: dict[int, tuple[int, int]] = {}  # the last commit
    damaged = skipped = 0
    for index, at in enumerate(range(_LOG_HEADER, len(data) - size - _FRAME_HEADER + 1, _FRAME_HEADER + size), 1):
        page, ends_commit, *own_salt, sum_0, sum_1 = struct.unpack_from(">6I", data, at)
        body = at + _FRAME_HEADER
        whole = own_salt == salt and (
            before is None
            or _sum(data[body : body + size], _sum(data[at : at + 8], before, little=little), little=little) == (sum_0, sum_1)
        )
        before = (sum_0, sum_1)
        if not whole or page == 0:
            damaged += 1
            continue
        since[page] = (body, index)
        if ends_commit:
            frames.update(since)
            since.clear()
            skipped = damaged
    return Log(frames, skipped)


def _sum(data: bytes, before: Sum, *, little: bool) -> Sum:
    """SQLite's checksum of whole pairs of words, going on from `before`."""
    words = array.array("I", data)
    if little != (sys.byteorder == "little"):
        words.byteswap()
    one, two = before
    for first, second in zip(words[::2], words[1::2], strict=True):
        one = (one + first + two) & _WORD
        two = (two + second + one) & _WORD
    return one, two


# Cells
# -----
# The rows and the children of one page of a tree, as far as they make sense.


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


def node_cells(pages: Pages, number: int) -> Node | None:
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


# Tables
# ------
# The rows of each table of a damaged file.
#
# Who knows where a table's tree begins reads along the tree. Where that ends at a damaged page, the pages that no tree reaches are
# looked at too: their rows tell by their shape whose they are. A page whose rows fit more than one table or index is left alone,
# and so is one of SQLite's list of free pages. A row that is found twice counts once: the one of a tree before one of a lost page,
# then the newer one.


Row = tuple[int | None, tuple[Value, ...]]
_TYPES: dict[str, tuple[type, ...]] = {"INTEGER": (int,), "REAL": (int, float), "TEXT": (str,)}
_LARGEST = 1e12
"""Beyond it no number of ours is: seconds since 1970, milliseconds, dollars."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column as it stands in a record."""

    name: str
    types: tuple[type, ...]
    null: bool
    absent: bool
    """A row that is older than the column may end before it."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What the rows of a table, or of an index, look like."""

    name: str
    columns: tuple[Column, ...]
    """In the order of the record."""
    in_index: bool
    """Its rows lie in the pages of an index: it is one, or a table without rowids."""
    alias: int | None = None
    """The column that is the rowid, and null in the record."""
    key: tuple[int, ...] = ()
    """The columns of a table's primary key; without any the rowid tells rows apart."""

    def fits(self, values: list[Value]) -> bool:
        """Whether a row can be one of this table's."""
        if len(values) > len(self.columns) or not all(column.absent for column in self.columns[len(values) :]):
            return False
        return all(
            isinstance(value, column.types) if value is not None else column.null
            for value, column in zip(values, self.columns, strict=False)
        )


@dataclass(slots=True)
class Found:
    """What could be read of one table."""

    rows: dict[object, Row] = field(default_factory=dict)
    damaged: int = 0
    """Pages of its tree that cannot be read, or are gone."""
    broken: int = 0
    """Rows on the other pages that cannot be read, or are no rows of this table."""
    ranks: dict[object, tuple[bool, int]] = field(default_factory=dict)

    @property
    def whole(self) -> bool:
        return not self.damaged and not self.broken


_MASTER = Shape(
    "sqlite_schema",
    (
        *(Column(name, (str,), null=False, absent=False) for name in ("type", "name", "tbl_name")),
        Column("rootpage", (int,), null=False, absent=False),
        Column("sql", (str,), null=True, absent=False),
    ),
    in_index=False,
)


def shapes(db: sqlite3.Connection) -> tuple[list[Shape], list[Shape]]:
    """The tables and the indexes of a whole file."""
    listed = db.execute("SELECT type, name, tbl_name FROM sqlite_schema WHERE type IN ('table', 'index') ORDER BY rowid").fetchall()
    tables = [_table(db, str(name)) for kind, name, _ in listed if kind == "table"]
    by_name = {shape.name: shape for shape in tables}
    return tables, [_index(db, str(name), by_name[str(of)]) for kind, name, of in listed if kind == "index"]


def _table(db: sqlite3.Connection, name: str) -> Shape:
    columns = db.execute('SELECT name, type, "notnull", dflt_value, pk FROM pragma_table_info(?) ORDER BY cid', (name,)).fetchall()
    without_rowid = bool(db.execute("SELECT wr FROM pragma_table_list WHERE name = ?", (name,)).fetchone()[0])
    keys = sorted((pk, index) for index, (*_, pk) in enumerate(columns) if pk)
    alias = None if without_rowid or len(keys) != 1 or columns[keys[0][1]][1] != "INTEGER" else keys[0][1]
    order = [index for _, index in keys] if without_rowid else []
    order += [index for index in range(len(columns)) if index not in order]
    made = tuple(_column(columns[index], is_alias=index == alias) for index in order)
    return Shape(name, made, without_rowid, alias, tuple(order.index(index) for _, index in keys))


def _column(row: tuple[str, str, int, object, int], *, is_alias: bool) -> Column:
    name, kind, not_null, default, pk = row
    null = is_alias or not (not_null or pk)
    return Column(name, _TYPES[kind], null, not is_alias and (null or default is not None))


def _index(db: sqlite3.Connection, name: str, table: Shape) -> Shape:
    by_name = {column.name: column for column in table.columns}
    parts = [part for (part,) in db.execute("SELECT name FROM pragma_index_xinfo(?) ORDER BY seqno", (name,))]
    rowid = Column("rowid", (int,), null=False, absent=False)
    alias = table.columns[table.alias].name if table.alias is not None else None
    return Shape(name, tuple(rowid if part is None or part == alias else by_name[part] for part in parts), in_index=True)


class Reader:
    """Reads all tables of one file."""

    def __init__(self, pages: Pages, tables: Iterable[Shape], indexes: Iterable[Shape]) -> None:
        self._pages = pages
        self._tables = list(tables)
        self._indexes = list(indexes)
        self._claimed: set[int] = set()
        self.found = {shape.name: Found() for shape in self._tables}

    def read(self) -> dict[str, Found]:
        """What there is, by table."""
        master = Found()
        self._walk(1, _MASTER, master)
        roots = {str(values[1]): int(str(values[3])) for _, values in master.rows.values()}
        for shape in self._tables:
            if shape.name in roots:
                self._walk(roots[shape.name], shape, self.found[shape.name])
            else:
                self.found[shape.name].damaged += 1
        if not all(found.whole for found in self.found.values()):
            for shape in self._indexes:
                self._walk(roots.get(shape.name, 0), shape, Found())
            self._read_lost_pages()
        return self.found

    def _walk(self, root: int, shape: Shape, found: Found) -> None:
        ahead = [root]
        while ahead:
            number = ahead.pop()
            node = self._node(number, shape)
            if node is None or number in self._claimed:
                found.damaged += 1
                continue
            self._claimed.add(number)
            found.broken += node.broken
            ahead += node.children
            self._take(node, number, shape, found, lost=False)

    def _node(self, number: int, shape: Shape) -> Node | None:
        """A page of the tree of `shape`; None for one of another tree, to which a damaged number can lead."""
        node = node_cells(self._pages, number)
        if node is None or (node.kind in INDEXES) != shape.in_index:
            return None
        return node if not node.rows or _mostly(shape, node) else None

    def _take(self, node: Node, number: int, shape: Shape, found: Found, *, lost: bool) -> None:
        rank = (not lost, self._pages.age(number))
        for rowid, values in node.rows:
            if not shape.fits(values):
                found.broken += 1
                continue
            row = (rowid, tuple(_adapted(shape, rowid, values)))
            key: object = tuple(row[1][index] for index in shape.key) or rowid
            if key not in found.rows or rank > found.ranks[key]:
                found.rows[key], found.ranks[key] = row, rank

    def _read_lost_pages(self) -> None:
        free = self._pages.free()
        damaged = {shape.name for shape in self._tables if not self.found[shape.name].whole}
        for number in range(2, self._pages.count + 1):
            if number in self._claimed or number in free:
                continue
            node = node_cells(self._pages, number)
            shape = self._whose(node) if node is not None and node.rows else None
            if node is not None and shape is not None and shape.name in damaged:
                self._take(node, number, shape, self.found[shape.name], lost=True)

    def _whose(self, node: Node) -> Shape | None:
        """The one table that the rows of a lost page fit."""
        fitting = [
            shape for shape in (*self._tables, *self._indexes, _MASTER) if shape.in_index == (node.kind in INDEXES) and _mostly(shape, node)
        ]
        return fitting[0] if len(fitting) == 1 and fitting[0] in self._tables else None


def _mostly(shape: Shape, node: Node) -> bool:
    return 2 * sum(shape.fits(values) for _, values in node.rows) > len(node.rows)


def _adapted(shape: Shape, rowid: int | None, values: list[Value]) -> Iterator[Value]:
    """A row as it goes into a new table: the rowid in its column, and no number that no clock or meter shows."""
    for index, value in enumerate(values):
        if index == shape.alias:
            yield rowid
        elif isinstance(value, float) and not (math.isfinite(value) and abs(value) < _LARGEST):
            yield 0.0
        else:
            yield value


# Recover
# -------
# A whole file in place of a damaged one; the damaged one is kept beside it, with its log.


_BESIDE = ("-wal", "-shm")
_IMPLAUSIBLE = 100
"""Versions ahead of ours: no newer program, but a damaged number."""


@dataclass(slots=True)
class Report:
    """What came of it."""

    kept: Path | None = None
    """The damaged file, with `-wal` and `-shm` after its name for those that were beside it. None: nothing is damaged, nothing was done."""
    saved: dict[str, int] = field(default_factory=dict)
    """Rows of each table that were read."""
    lost: list[str] = field(default_factory=list)
    """What could not be read, and what had to be changed or made up so that the rest agrees; a line each. Empty: nothing."""


def recover(
    path: Path, book: Book, stamp: str, mend: Callable[[sqlite3.Connection], list[str]], check: Callable[[sqlite3.Connection], object]
) -> Report:
    """Put a whole file in place of the damaged one at `path`, which is kept under its name with `.damaged-` and `stamp`.

    `mend` makes the rows agree and says what it did; `check` raises when a program could not use the file. Nobody else may have the
    file open for writing. It can be repeated after a kill at any moment. Raises NotFound when there is no file, and LedgerError when it is
    of a newer version or nothing whole can be made; then all is as it was.
    """
    with sqlite.explained(path, book):
        before = _interrupted(path)
        log = next((one for one in (_log(before), _log(path)) if one is not None and one.exists() and one.stat().st_size), None)
        if not path.exists() and log is None:
            raise NotFound(f"no {book.name.removeprefix('the ')}", on=str(path), why=book.absent, hint=book.first)
        report = Report()
        with contextlib.closing(Pages(path, log)) as pages:
            if before is None and _is_whole(path, book, pages):
                return report
            _refuse_newer(pages, path, book)
            kept = before or _free_name(path, stamp)
            sqlite.make(path, book, lambda db: _fill(db, pages, report, (mend, check), (path, book)), lambda: _keep(path, kept))
        report.kept = kept
        return report


def _log(path: Path | None) -> Path | None:
    return None if path is None else path.with_name(f"{path.name}-wal")


def _is_whole(path: Path, book: Book, pages: Pages) -> bool:
    if pages.log.skipped:
        return False
    try:
        with contextlib.closing(sqlite.connect_readonly(path, book=book)) as db:
            return [row[0] for row in db.execute("PRAGMA integrity_check").fetchall()] == ["ok"] and not _dangling(db)
    except LedgerError as error:
        if error.what in (f"{book.name} is damaged", f"{book.name} refused"):
            return False
        raise


def _dangling(db: sqlite3.Connection) -> bool:
    return db.execute("PRAGMA foreign_key_check").fetchone() is not None


def _refuse_newer(pages: Pages, path: Path, book: Book) -> None:
    """Columns that we do not know would be lost."""
    version = int.from_bytes(pages.header[60:64], "big")
    if pages.header.startswith(MAGIC) and book.schema < version <= book.schema + _IMPLAUSIBLE:
        raise sqlite.newer(path, version, book)


def _fill(
    db: sqlite3.Connection,
    pages: Pages,
    report: Report,
    ours: tuple[Callable[[sqlite3.Connection], list[str]], Callable[[sqlite3.Connection], object]],
    of: tuple[Path, Book],
) -> None:
    tables, indexes = shapes(db)
    db.execute("PRAGMA foreign_keys=OFF")
    found = Reader(pages, tables, indexes).read()
    mend, check = ours
    with sqlite.transaction(db, of[0], book=of[1]):
        for shape in tables:
            report.saved[shape.name] = _insert(db, shape, found[shape.name])
        if not any(report.saved.values()):
            raise _hopeless(of, "not one row of it can be read")
        report.lost = [*_damage(pages, found), *mend(db)]
        check(db)
    if [row[0] for row in db.execute("PRAGMA integrity_check").fetchall()] != ["ok"] or _dangling(db):
        raise _hopeless(of, "what can be read of it does not agree")


def _hopeless(of: tuple[Path, Book], why: str) -> LedgerError:
    path, book = of
    hint = f"keep it elsewhere and begin with a new one: mkdir {path.name}.lost && mv {path.name}* {path.name}.lost, in {path.parent}"
    return LedgerError(f"cannot recover {book.name}", on=str(path), why=why, kept=f"the file as it was; {book.untouched}", hint=hint)


def _insert(db: sqlite3.Connection, shape: Shape, found: Found) -> int:
    """Write the rows; the better one first where two have one unique value. Returns how many were taken."""
    has_rowid = not shape.in_index and shape.alias is None
    taken = 0
    for key in sorted(found.rows, key=lambda key: found.ranks[key], reverse=True):
        rowid, values = found.rows[key]
        names = [column.name for column in shape.columns[: len(values)]]
        row = ((rowid, *values), ["rowid", *names]) if has_rowid else (values, names)
        marks, listed = ", ".join("?" * len(row[1])), ", ".join(row[1])
        taken += db.execute(f"INSERT OR IGNORE INTO {shape.name} ({listed}) VALUES ({marks})", row[0]).rowcount  # noqa: S608 - our own schema
    found.broken += len(found.rows) - taken
    return taken


def _damage(pages: Pages, found: dict[str, Found]) -> list[str]:
    said = [f"the log: {pages.log.skipped} damaged pieces; what they changed is lost, or is as it was before"] if pages.log.skipped else []
    for name, table in found.items():
        if table.damaged:
            said.append(
                f"table {name}: pages of it that are damaged, gone or not to be found: {table.damaged}, and maybe others below them"
            )
        if table.broken:
            said.append(f"table {name}: rows that cannot be read, or stood there twice: {table.broken}")
    return said


def _keep(path: Path, kept: Path) -> None:
    """Give the damaged file a second name, and take its log away from where the new file would look for one. Whoever finds both names of
    one file knows that this was interrupted; and at no moment is there none, for which a supervisor would make an empty one."""
    path.touch()  # it may be gone, and only its log be left
    if not kept.exists():
        os.link(path, kept)
        _sync(path.parent)
    failpoint("recover.kept")
    for suffix in _BESIDE:
        beside = path.with_name(path.name + suffix)
        if beside.exists():
            beside.rename(kept.with_name(kept.name + suffix))
    _sync(path.parent)
    failpoint("recover.moved")


def _sync(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _free_name(path: Path, stamp: str) -> Path:
    names = [path.with_name(f"{path.name}.damaged-{stamp}{more}") for more in ("", *(f"-{number}" for number in range(2, 100)))]
    return next(name for name in names if not any(name.with_name(name.name + suffix).exists() for suffix in ("", *_BESIDE)))


def _interrupted(path: Path) -> Path | None:
    """The other name of the file at `path`, when a recovery was killed before the new one was in place."""
    with contextlib.suppress(OSError):
        opened = sqlite.file_identity(path)
        return next((other for other in path.parent.glob(f"{path.name}.damaged-*") if sqlite.file_identity(other) == opened), None)
    return None
