"""The file of a map: what old versions wrote, what a new workload keeps, and what a worker may write beside it."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import sqlite3
from pathlib import Path

import pytest

from supervisor.features.map import open_map
from supervisor.features.map.open_map import Item, OpenMap, Told
from supervisor.features.map.rules import Outcome
from supervisor.host.paths import Home
from supervisor.kernel.errors import DiskFull, LedgerError, Refused
from tests import support

DATA = Path(__file__).parents[2] / "data"
NAME = "0123456789ab"
A, B = ("1123-abcd/w1", 1), ("1123-abcd/w2", 1)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


def begun(home: Home, *items: Item, fresh: bool = False, **about: object) -> OpenMap:
    incoming = open_map.prepare(home, NAME, items)
    open_map.connect(open_map.file(home, NAME)).close()
    one = OpenMap(home, NAME, 0.0)
    row = {"title": "t", "what": "{}", "source": "{}", "retries": 0, "agents": 1, "out": "", "began": 1.0, **about}
    one.take_over(incoming, row, 0.0, fresh=fresh)
    assert not incoming.exists()
    return one


def do(one: OpenMap, home: Home, key: tuple[str, int] = A, *, ok: bool = True) -> None:
    """Everything that waits."""
    done = 0
    while items := (answer := one.next(key, 0.0, done)).get("items"):
        done = answer["shard"]
        wrote(home, key, done, *({"p": item["p"], "ok": ok, "text": json.dumps(item["i"]) if ok else "no", "ms": 1} for item in items))


def wrote(home: Home, key: tuple[str, int], number: int, *lines: object) -> None:
    place = home.attempt(*key) / "out"
    place.mkdir(parents=True, exist_ok=True)
    (place / open_map.name(number)).write_bytes(
        b"".join(line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n" for line in lines)
    )


@pytest.mark.parametrize("number", range(1, open_map.BOOK.schema + 1))
def test_what_old_versions_wrote_goes_on(home: Home, number: int) -> None:
    path = open_map.file(home, NAME)
    path.parent.mkdir(parents=True)
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.executescript((DATA / f"map-{number}.sql").read_text())
        db.execute("PRAGMA journal_mode=WAL")
    with contextlib.closing(OpenMap(home, NAME, 0.0)) as one:
        assert one.counts == {"total": 4, "done": 1, "failed": 1, "waiting": 2}
        assert one.board.leases[B].positions == [1] and list(one.board.suspects) == [2] and one.board.tries == {2: 1}
        one.gone(B, "killed", charged=False)
        do(one, home)
        assert one.board.left == 0


def test_a_new_workload_keeps_what_is_the_same(home: Home) -> None:
    old = [Item(b"a", "1", 1), Item(b"a", "1", 1), Item(b"b", "2", 1), Item(b"c", "3", 1)]
    with contextlib.closing(begun(home, *old)) as one:
        do(one, home)
    new = [Item(b"c", "changed", 1), Item(b"a", "1", 1), Item(b"new", "4", 1), Item(b"b", "2", 1)]
    with contextlib.closing(begun(home, *new)) as one:
        assert one.counts == {"total": 4, "done": 2, "failed": 0, "waiting": 2} and list(one.board.waiting) == [0, 2]
    with contextlib.closing(begun(home, *new, fresh=True)) as one:
        assert one.counts["waiting"] == 4


def test_what_failed_is_tried_anew_and_nothing_to_do_keeps_the_figures(home: Home) -> None:
    with contextlib.closing(begun(home, Item(b"a", "1", 1))) as one:
        do(one, home, ok=False)
        assert one.counts["failed"] == 1
    with contextlib.closing(begun(home, Item(b"a", "1", 1), began=5.0)) as one:
        assert one.counts["waiting"] == 1
        do(one, home)
        one.finish(9.0)
    with contextlib.closing(begun(home, Item(b"a", "1", 1), began=70.0)) as one:
        assert (one.about["began"], one.about["ended"], one.board.left) == (5.0, 9.0, 0)


def test_an_answer_that_was_lost_is_given_again(home: Home) -> None:
    with contextlib.closing(begun(home, *(Item(b"%d" % n, "", 1) for n in range(9)))) as one:
        first = one.next(A, 0.0, first=True)
        assert one.next(A, 0.0, first=True) == first
        wrote(home, A, first["shard"], *({"p": item["p"], "ok": True, "text": "1", "ms": 1} for item in first["items"]))
        second = one.next(A, 0.0, first["shard"])
        assert one.next(A, 0.0, first["shard"]) == second and second["shard"] != first["shard"]


def test_after_a_restart_leases_hold_and_late_answers_of_others_do_not_count(home: Home) -> None:
    with contextlib.closing(begun(home, *(Item(b"%d" % n, "", 1) for n in range(4)))) as one:
        mine = one.next(A, 0.0)
    with contextlib.closing(OpenMap(home, NAME, 0.0)) as one:
        assert one.next(A, 0.0)["items"] == mine["items"]
        wrote(home, B, 77, {"p": 0, "ok": True, "text": "1", "ms": 1})
        one.next(B, 0.0, 77)
        assert one.counts["done"] == 0


def test_worker_keeps_nothing_in_a_map_that_is_not_asked_for_in_batches(home: Home) -> None:
    with contextlib.closing(begun(home, Item(b"a", "1", 1))) as one, pytest.raises(Refused):
        one.keep(A, "", {"batch": "b1"})


def test_a_map_that_is_not_there(home: Home) -> None:
    with pytest.raises(LedgerError):
        OpenMap(home, NAME, 0.0)


def test_the_output_is_whole_or_not_there(home: Home, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    out.write_text("before")
    with contextlib.closing(begun(home, Item(b"\xff", "1", 1), Item(b"b", "1", 1), out=str(out))) as one:
        do(one, home)

        def broken(text: bytes) -> bytes:
            raise OSError(errno.ENOSPC, "No space left on device")

        with pytest.raises(DiskFull):
            open_map.stream(out, map(broken, [b"line"]))
        assert out.read_text() == "before" and [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
        one.finish(2.0)
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [(line["item"], line["result"]) for line in lines] == [("\udcff", "\udcff"), ("b", "b")]


def test_a_file_that_a_person_named_stays_while_items_are_missing(home: Home, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    out.write_text("before")
    with contextlib.closing(begun(home, Item(b"a", "1", 1), out=str(out))) as one:
        one.finish(2.0, "cannot import")
        assert out.read_text() == "before" and (open_map.directory(home, one.name) / open_map.RESULTS).read_bytes() == b""
        do(one, home)
        one.finish(3.0)
    assert json.loads(out.read_text())["item"] == "a"


@pytest.mark.parametrize(
    ("data", "read"),
    [
        (b"", Told()),
        (b'{"p": 1}\n{"p": 1, "ok": true, "text": "[1]", "ms": 2}\n{"p": 2}\n', Told((Outcome(1, True, "[1]", 2),), 2)),
        (b'{"p": 1, "ok": false, "text": "no", "ms": -5}\n', Told((Outcome(1, False, "no", 0),))),
        (b'{"p": 1, "ok": true, "text": "1", "ms": 0}\n{"p": 1, "ok": true, "text": "2", "ms": 0}', Told((Outcome(1, True, "1", 0),))),
        (b'{"p": 1, "ok": true, "text": "not json", "ms": 0}', Told()),
        (b'{"p": 1, "ok": true, "text": "\\udcff", "ms": 0}', Told()),
        (b'{"p": "1"}\n[1]\nnull\n17\n\xff\xfe\n{"p": 1, "ok": true}\n{"p": 1, "ok": tr', Told()),
        (b"[" * 100_000, Told()),
        (b'{"p": 3, "ok": true, "text": "\\"' + b"x" * 2**20 + b'\\"", "ms": 0}', Told()),
        (b'{"p": true, "ok": true, "text": "1", "ms": 1e400}', Told()),
    ],
)
def test_what_a_worker_may_have_written(data: bytes, read: Told) -> None:
    assert open_map.told(data) == read


def test_a_file_of_results_that_is_a_trap(home: Home, tmp_path: Path) -> None:
    place = home.attempt(*A) / "out"
    place.mkdir(parents=True)
    (tmp_path / "secret").write_text('{"p": 0, "ok": true, "text": "1", "ms": 1}\n')
    (place / open_map.name(1)).symlink_to(tmp_path / "secret")
    os.mkfifo(place / open_map.name(2))
    assert open_map.read(home, A, 1) == open_map.read(home, A, 2) == open_map.read(home, A, 3) == Told()


@pytest.mark.root
def test_a_full_disk_changes_nothing_and_is_waited_for(tmp_path: Path) -> None:
    with support.small_disk(tmp_path / "small", "size=2m,mode=0755") as place:
        home = Home(place / "home")
        with contextlib.closing(begun(home, *(Item(b"%d" % n, "", 1) for n in range(50)))) as one:
            given = one.next(A, 0.0)
            lines = ({"p": item["p"], "ok": True, "text": json.dumps("x" * 300_000), "ms": 1} for item in given["items"][:2])
            wrote(home, A, given["shard"], *lines)
            free = os.statvfs(place).f_bavail * os.statvfs(place).f_frsize
            filler = place / "filler"
            with filler.open("wb") as file:
                os.posix_fallocate(file.fileno(), 0, free - 20_000)
            with pytest.raises(DiskFull):
                one.next(A, 0.0, given["shard"])
        filler.unlink()
        with contextlib.closing(OpenMap(home, NAME, 0.0)) as one:
            assert one.counts["done"] == 0 and one.board.left == 50, "as it was"
            one.next(A, 0.0, given["shard"])
            assert one.counts["done"] == 2 < len(given["items"])
