"""Counting what files take: real ones, holes, links, and what vanishes meanwhile."""

from __future__ import annotations

import os
import subprocess
import threading
from pathlib import Path

import pytest

from supervisor.host import usage
from supervisor.host.usage import Watch, used
from tests.support import small_disk

MIB = 2**20


def write(path: Path, size: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(os.urandom(size))
    with path.open("rb") as file:
        os.fsync(file.fileno())  # blocks are given out when they are written
    return path


def test_it_counts_as_du_does(tmp_path: Path) -> None:
    write(tmp_path / "a/b/c", MIB)
    write(tmp_path / "a/d", 5000)
    os.link(tmp_path / "a/d", tmp_path / "again")
    (tmp_path / "link").symlink_to("/usr")
    with (tmp_path / "holes").open("wb") as file:
        file.truncate(2**40)
    du = subprocess.run(["du", "-s", "-B1", str(tmp_path)], capture_output=True, text=True, check=True)
    found = used([tmp_path])
    assert found.bytes == int(du.stdout.split()[0])
    assert (found.entries, found.complete) == (8, True)


def test_a_file_of_many_names_counts_once_over_all_directories(tmp_path: Path) -> None:
    write(tmp_path / "one/file", MIB)
    (tmp_path / "two").mkdir()
    os.link(tmp_path / "one/file", tmp_path / "two/file")
    both = used([tmp_path / "one", tmp_path / "two"]).bytes
    assert both - used([tmp_path / "one"]).bytes < MIB


def test_what_is_not_there_or_closed_counts_nothing(tmp_path: Path) -> None:
    assert used([tmp_path / "none", tmp_path / "none/deeper"]) == usage.DiskUsed(0, 0, True)
    file = write(tmp_path / "file", MIB)
    assert used([file]).bytes >= MIB
    closed = tmp_path / "closed"
    write(closed / "file", MIB)
    closed.chmod(0)
    try:
        assert (used([closed]).bytes < MIB) == (os.geteuid() != 0)
    finally:
        closed.chmod(0o700)


def test_what_is_mounted_below_is_somebody_elses(tmp_path: Path) -> None:
    with small_disk(tmp_path / "mounted", "size=4m") as place:
        write(place / "big", 3 * MIB)
        assert used([tmp_path]).bytes < MIB
        assert used([place]).bytes >= 3 * MIB


def test_a_count_has_an_end(tmp_path: Path) -> None:
    for number in range(50):
        (tmp_path / str(number)).touch()
    found = used([tmp_path], max_entries=20)
    assert (found.entries, found.complete) == (20, False)
    assert used([tmp_path], max_entries=51).complete


def test_files_may_come_and_go_meanwhile(tmp_path: Path) -> None:
    over = threading.Event()

    def churn() -> None:
        while not over.is_set():
            for number in range(50):
                (tmp_path / f"d{number}").mkdir()
                (tmp_path / f"d{number}/x").touch()
            for number in range(50):
                (tmp_path / f"d{number}/x").unlink()
                (tmp_path / f"d{number}").rmdir()

    thread = threading.Thread(target=churn)
    thread.start()
    try:
        assert all(used([tmp_path]).complete for _ in range(50))
    finally:
        over.set()
        thread.join()


def test_a_watch_counts_only_when_the_answer_can_have_changed_enough(tmp_path: Path) -> None:
    with small_disk(tmp_path / "own", "size=40m") as place:
        write(place / "a", MIB)
        watch = Watch([place, place / "never"], limit=10 * MIB, every_s=60.0)
        first = watch.look(0.0)
        assert MIB <= first.bytes < 2 * MIB
        write(place / "b", 4 * MIB)
        assert watch.look(1.0) is first, "it cannot be past the limit yet"
        write(place / "c", 6 * MIB)
        past = watch.look(2.0)
        assert past.bytes > 10 * MIB, "now it can, and is"
        (place / "c").unlink()
        assert watch.look(3.0).bytes < 10 * MIB, "past the limit it counts each time"


def test_a_watch_counts_now_and_then_whatever_the_free_space_says(tmp_path: Path) -> None:
    with small_disk(tmp_path / "own", "size=40m") as place:
        write(tmp_path / "own/others", 20 * MIB)
        (place / "ours").mkdir()
        watch = Watch([place / "ours"], limit=10 * MIB, every_s=60.0)
        first = watch.look(0.0)
        (place / "others").unlink()
        write(place / "ours/a", 15 * MIB)
        assert watch.look(59.0) is first, "somebody freed more than we wrote"
        assert watch.look(60.0).bytes > 10 * MIB


@pytest.mark.parametrize("limit", [0, 1])
def test_a_tiny_limit_is_passed_at_once(tmp_path: Path, limit: int) -> None:
    write(tmp_path / "a", MIB)
    assert Watch([tmp_path], limit).look(0.0).bytes > limit
