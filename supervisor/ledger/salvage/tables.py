"""The rows of each table of a damaged file.

Who knows where a table's tree begins reads along the tree. Where that ends at a damaged page, the pages that no tree reaches are looked at
too: their rows tell by their shape whose they are. A page whose rows fit more than one table or index is left alone, and so is
one of SQLite's list of free pages. A row that is found twice counts once: the one of a tree before one of a lost page, then the newer one.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from supervisor.ledger.salvage import cells
from supervisor.ledger.salvage.cells import Node, Value
from supervisor.ledger.salvage.pages import Pages

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
        node = cells.node(self._pages, number)
        if node is None or (node.kind in cells.INDEXES) != shape.in_index:
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
            node = cells.node(self._pages, number)
            shape = self._whose(node) if node is not None and node.rows else None
            if node is not None and shape is not None and shape.name in damaged:
                self._take(node, number, shape, self.found[shape.name], lost=True)

    def _whose(self, node: Node) -> Shape | None:
        """The one table that the rows of a lost page fit."""
        fitting = [
            shape
            for shape in (*self._tables, *self._indexes, _MASTER)
            if shape.in_index == (node.kind in cells.INDEXES) and _mostly(shape, node)
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
