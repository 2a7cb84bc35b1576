"""Writes `map-1.sql`, a map's file of schema 1 as text, that every later version must be able to load.

    python -m tests.data.make_map_sample > tests/data/map-1.sql

It was run once, by the version that introduced the schema, and its output is never written again: that is its use.
"""

from __future__ import annotations

import contextlib
import sqlite3
import sys
import tempfile
from pathlib import Path

from supervisor.features.map import open_map
from supervisor.features.map.open_map import Item, OpenMap
from supervisor.features.map.rules import Judged, Outcome, Spent
from supervisor.host.paths import Home

ITEMS = (Item(b"a.py", "1" * 40, 10), Item(b"\xff.py", "2" * 40, 20), Item(b"c.py", "3" * 40, 5), Item(b"d.py", "4" * 40, 5))


def write(home: Home, name: str) -> None:
    """A map that was interrupted: an item done, one failed, one leased, one tried once."""
    path = open_map.file(home, name)
    incoming = open_map.prepare(home, name, ITEMS)
    open_map.connect(path).close()
    with contextlib.closing(OpenMap(home, name, 0.0)) as one:
        about = {"title": "wc", "what": "{}", "source": '{"form": "file"}', "retries": 1, "agents": 2, "out": "", "began": 1.0}
        one.take_over(incoming, about, 0.0, fresh=False)
        one.begun("1123-abcd")
        lease = one.board.give(("1123-abcd/w1", 1), 0.0)
        assert lease is not None
        judged = one.board.settle(("1123-abcd/w1", 1), lease.number, [Outcome(0, ok=True, text="[1]", ms=3)], Spent(1.0, 0.1))
        one.board.give(("1123-abcd/w2", 1), 0.0)
        with open_map.transaction(one.db, path):
            one._write([*judged, Judged(3, "failed", 2, 0, "exit code 1", 4), Judged(2, "waiting", 1, 1, "no", 2)])


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        place = Home(Path(directory))
        write(place, "0123456789ab")
        with contextlib.closing(sqlite3.connect(open_map.file(place, "0123456789ab"))) as db:
            sys.stdout.write("PRAGMA user_version=1;\n" + "\n".join(line for line in db.iterdump()) + "\n")
