"""Files that a person or a process changes on the disk are seen, recorded, and wake whoever waits for them."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from watchdog.observers.api import BaseObserver

from memory import rescan
from memory.rescan import Rescan
from memory.service import desk, mail, notes
from memory.service.desk import Pace
from memory.watching import Watching
from supervisor.host import scratch
from supervisor.host.paths import Home
from supervisor.kernel.crew import Crew, Task, note
from supervisor.kernel.errors import Refused, UsageError
from supervisor.kernel.events import NoteAppeared
from tests.server.memory.kit import PROJECT, Kit, eventually, memory_desk

pytestmark = pytest.mark.asyncio
PLAN = "semantic/plan.md"


def deaf(monkeypatch: pytest.MonkeyPatch) -> None:
    """Directories are watched, and no event ever comes."""
    monkeypatch.setattr(Watching, "follow", lambda *_: "")
    monkeypatch.setattr(Watching, "follows", lambda *_: True)


def known(kit: Kit) -> set[str]:
    """The files that the versions know, read beside the supervisor's thread."""
    book = kit.home.project(PROJECT) / "memory.db"
    if not book.exists():
        return set()
    with contextlib.closing(sqlite3.connect(f"file:{book}?mode=ro", uri=True)) as db:
        return {path for (path,) in db.execute("SELECT path FROM known WHERE version <> ''")}


def on_disk(kit: Kit) -> set[str]:
    return {str(path.relative_to(kit.memory)) for path in kit.memory.rglob("*") if path.is_file()}


async def test_a_persons_write_wakes_who_waits_and_is_journalled(tmp_path: Path) -> None:
    async with memory_desk(tmp_path) as kit:
        await kit.followed()
        waiting = asyncio.create_task(kit.mem("wait", glob="semantic/*.md"))
        await eventually(lambda: kit.desk.waiting, "the request")
        kit.write("procedural/other.md", "no\n")
        kit.write(PLAN, "begin\n")
        answer = await asyncio.wait_for(waiting, 40)
        [change] = answer["changes"]
        assert (change["path"], change["author"], change["action"]) == (PLAN, "unknown", "found")
        assert (answer["number"], answer["timed_out"], answer["polls"]) == (change["number"], False, "")
        await eventually(kit.journal, "the journal")
    data = [json.loads(data) for event, data in kit.journals if event == "memory changed"]
    assert {one["path"] for line in data for one in line["changes"]} == {"procedural/other.md", PLAN}


async def test_mail_that_a_person_puts_by_hand_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mail, "SCAN_EVERY", 1)
    async with memory_desk(tmp_path) as kit:
        new = kit.desk.layout(PROJECT).mailbox("person") / "new"
        new.mkdir(parents=True)
        await kit.followed()
        kit.loop.ready = True
        for number, text in enumerate(("one", "two", "three"), 1):
            (new / f"{text}.md").write_text(text)
            await eventually(lambda number=number: len(kit.desk.mail.unread("person")) == number, text)  # type: ignore[misc]  # lambdas have defaults
        assert {mail.subject for mail in kit.desk.mail.unread("person")} == {"one", "two", "three"}


async def test_what_is_written_slowly_is_taken_when_it_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mail, "SCAN_EVERY", 1)
    monkeypatch.setattr(rescan, "STILL_NS", 10**18)
    monkeypatch.setattr(mail, "EMPTY_S", 1e9)
    async with memory_desk(tmp_path) as kit:
        new = kit.desk.layout(PROJECT).mailbox("person") / "new"
        new.mkdir(parents=True)
        await kit.followed()
        kit.loop.ready = True
        kit.write(PLAN, "")
        with (new / "slow.md").open("w") as letter, (kit.memory / PLAN).open("w") as plan:
            for number, piece in enumerate(("subject\n", "text\n")):
                for file in (letter, plan):
                    file.write(piece)
                    file.flush()
                (new / f"other{number}.md").write_text("x")
                kit.write(f"semantic/other{number}.md", "x")
                await eventually(lambda number=number: len(kit.desk.mail.unread("person")) == number + 1, "the other mail")  # type: ignore[misc]
                await eventually(lambda number=number: f"semantic/other{number}.md" in known(kit), "the other note")  # type: ignore[misc]
            assert PLAN not in known(kit)
        await eventually(lambda: "subject" in {one.subject for one in kit.desk.mail.unread("person")}, "the mail")
        await eventually(lambda: PLAN in known(kit), "the note")
        assert [change["size"] for change in (await kit.mem("log", path=PLAN))["changes"]] == [len("subject\ntext\n")]


async def test_nothing_is_missed_between_two_calls(tmp_path: Path) -> None:
    async with memory_desk(tmp_path) as kit:
        await kit.followed()
        before = await kit.mem("wait", glob="**", timeout_s=0)
        assert before["timed_out"]
        kit.write(PLAN, "one\n")
        kit.write("semantic/other.md", "one\n")
        await eventually(lambda: len(known(kit)) == 2, "both")
        first = await kit.mem("wait", glob=PLAN, since=before["number"])
        assert [change["path"] for change in first["changes"]] == [PLAN]
        again = await kit.mem("wait", glob=PLAN, since=first["number"], timeout_s=0)
        assert again["timed_out"]


async def test_an_answer_is_bounded_and_the_next_one_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notes, "ANSWER_MAX", 3)
    monkeypatch.setattr(notes, "PAGE", 2)
    async with memory_desk(tmp_path) as kit:
        await kit.followed()
        for number in range(7):
            kit.write(f"semantic/n{number}.md", "x")
        await eventually(lambda: len(known(kit)) == 7, "all")
        seen, since = [], 0
        while not (answer := await kit.mem("wait", glob="semantic/*", since=since, timeout_s=0))["timed_out"]:
            assert len(answer["changes"]) <= 3
            seen += [change["path"] for change in answer["changes"]]
            since = answer["number"]
    assert sorted(seen) == [f"semantic/n{number}.md" for number in range(7)]


@pytest.mark.parametrize(
    "args",
    [
        {},
        {"glob": 7},
        {"glob": "/etc"},
        {"glob": "**", "timeout_s": 601},
        {"glob": "**", "timeout_s": float("nan")},
        {"glob": "**", "since": True},
        {"glob": "**", "since": -1},
    ],
)
async def test_a_request_that_is_none_is_refused(tmp_path: Path, args: dict[str, Any]) -> None:
    async with memory_desk(tmp_path) as kit:
        with pytest.raises(UsageError):
            await kit.mem("wait", **args)
        with pytest.raises(UsageError):
            await kit.mem("no such thing")


async def test_an_author_has_so_many_requests_at_most(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notes, "WAITERS_MAX", 1)
    async with memory_desk(tmp_path) as kit:
        hearing = len(kit.desk._who_hears)
        one = asyncio.create_task(kit.mem("wait", "r/a", glob="**"))
        await eventually(lambda: kit.desk.waiting["r/a"], "the first")
        with pytest.raises(Refused):
            await kit.mem("wait", "r/a", glob="**")
        assert (await kit.mem("wait", "r/b", glob="**", timeout_s=0))["timed_out"]
        one.cancel()
        await asyncio.wait([one])
        assert not kit.desk.waiting
        assert len(kit.desk._who_hears) == hearing


async def test_the_walk_finds_what_no_event_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deaf(monkeypatch)
    async with memory_desk(tmp_path, Pace(rescan=0.2)) as kit:
        await kit.followed()
        kit.write(PLAN, "one\n")
        assert (await kit.mem("wait", glob=PLAN, since=0, timeout_s=40))["changes"][0]["path"] == PLAN
        (kit.memory / PLAN).unlink()
        await eventually(lambda: known(kit) == set(), "its end")


async def test_a_directory_that_was_removed_and_made_again_is_watched(tmp_path: Path) -> None:
    """R06: without a walk, which would hide that no event comes."""
    async with memory_desk(tmp_path, Pace(rescan=1e6, roots=0.05)) as kit:
        await kit.followed()
        kit.write(PLAN, "one\n")
        await eventually(lambda: known(kit) == {PLAN}, "the note")
        shutil.rmtree(kit.memory)
        await eventually(lambda: known(kit) == set(), "all to be gone")
        kit.write("semantic/new.md", "two\n")
        await eventually(lambda: known(kit) == {"semantic/new.md"}, "the new one")
        roots, soon = kit.desk.watch._roots.values(), kit.loop.clock.monotonic() + 1e5
        await eventually(lambda: all(root.walk is None and root.scan_at > soon for root in roots), "the walks that its end led to")
        walks = kit.desk.watch.walks
        kit.write("semantic/newer.md", "three\n")
        await eventually(lambda: "semantic/newer.md" in known(kit), "events to come again")
        assert kit.desk.watch.walks == walks


async def test_a_directory_that_is_made_while_one_is_walked_through_is_walked_through_too(tmp_path: Path) -> None:
    async with memory_desk(tmp_path, Pace(rescan=1e6, roots=0.01)) as kit:
        await kit.followed()
        root = kit.desk.watch._roots[kit.memory]
        ended = threading.Event()
        root.walk = _until(ended)
        shutil.rmtree(kit.memory)
        await eventually(lambda: root.identity is None, "it to be gone")
        kit.write(PLAN, "one\n")
        await eventually(lambda: root.identity is not None, "the new one")
        ended.set()
        await eventually(lambda: known(kit) == {PLAN}, "what it had from the beginning")


def _until(event: threading.Event) -> Iterator[list[str]]:
    """A walk that finds nothing and is under way until then."""
    while not event.is_set():
        yield []


async def test_a_new_directory_with_the_inode_of_the_old_one_is_watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(desk, "_directory", lambda path: (1, 1) if path.is_dir() else None)
    async with memory_desk(tmp_path, Pace(rescan=1e6, roots=1e6)) as kit:
        await kit.followed()
        shutil.rmtree(kit.memory)
        kit.memory.mkdir()
        kit.write(PLAN, "one\n")
        await eventually(lambda: known(kit) == {PLAN}, "the note")
        roots, soon = kit.desk.watch._roots.values(), kit.loop.clock.monotonic() + 1e5
        await eventually(lambda: all(root.walk is None and root.scan_at > soon for root in roots), "the walks that its end led to")
        kit.write("semantic/newer.md", "two\n")
        await eventually(lambda: "semantic/newer.md" in known(kit), "events to come again")


async def test_a_directory_that_another_takes_the_place_of_is_watched(tmp_path: Path) -> None:
    async with memory_desk(tmp_path, Pace(rescan=1e6, roots=0.05)) as kit:
        await kit.followed()
        kit.write(PLAN, "one\n")
        await eventually(lambda: known(kit) == {PLAN}, "the note")
        (tmp_path / "other" / "semantic").mkdir(parents=True)
        (tmp_path / "other" / "semantic" / "theirs.md").write_text("x")
        kit.memory.rename(tmp_path / "before")
        (tmp_path / "other").rename(kit.memory)
        await eventually(lambda: known(kit) == {"semantic/theirs.md"}, "the other one's notes")
        kit.write("semantic/more.md", "three\n")
        await eventually(lambda: "semantic/more.md" in known(kit), "events to come from it")


async def test_without_watches_it_polls_says_so_and_tries_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    follow = Watching.follow
    monkeypatch.setattr(Watching, "follow", lambda *_: "inotify instance limit reached")
    async with memory_desk(tmp_path, Pace(rescan=0.5, poll=0.05, roots=0.05)) as kit:
        await kit.followed()
        kit.write(PLAN, "one\n")
        answer = await kit.mem("wait", glob=PLAN, since=0)
        assert (answer["changes"][0]["path"], answer["polls"]) == (PLAN, "inotify instance limit reached")
        assert any("is looked at every" in text and "inotify instance limit reached" in text for text in kit.loop.alerts.newest)
        monkeypatch.setattr(Watching, "follow", follow)
        await eventually(lambda: not kit.desk.watch.why_polled(PROJECT), "the watch")
        assert any("is watched again" in text for text in kit.loop.alerts.newest)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
async def test_when_watching_ends_all_is_looked_at_and_it_begins_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise KeyError("broken")

    async with memory_desk(tmp_path, Pace(rescan=1e6, roots=0.05)) as kit:
        await kit.followed()
        with monkeypatch.context() as patch:
            patch.setattr(BaseObserver, "dispatch_events", broken)
            kit.write(PLAN, "one\n")
            await eventually(lambda: known(kit) == {PLAN}, "the note")
        kit.write("semantic/other.md", "two\n")
        await eventually(lambda: "semantic/other.md" in known(kit), "events to come again")


async def test_a_file_system_of_others_is_polled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scratch, "file_system", lambda *_: "nfs4")
    async with memory_desk(tmp_path, Pace(poll=0.05)) as kit:
        await kit.followed()
        assert kit.desk.watch.why_polled(PROJECT).startswith("nfs4 ")
        kit.write(PLAN, "one\n")
        await eventually(lambda: known(kit) == {PLAN}, "the note")


async def test_a_failed_look_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with memory_desk(tmp_path, Pace(poll=0.05)) as kit:
        await kit.followed()
        store = await kit.desk.of(PROJECT, lambda store: store)
        found_all, failures = store.found_all, [OSError(errno.ENOSPC, "no space left"), OSError(errno.EMFILE, "too many open files")]

        def failing(paths: Any) -> Any:
            if failures and paths:
                raise failures.pop()
            return found_all(paths)

        monkeypatch.setattr(store, "found_all", failing)
        kit.write(PLAN, "one\n")
        await eventually(lambda: known(kit) == {PLAN}, "the note")
        assert not failures
        assert any("too many open files" in text for text in kit.loop.alerts.newest)


STORM = """
import pathlib, sys
root, first, count = pathlib.Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
for number in range(first, first + count):
    (root / f"n{number}.md").write_text(f"note {number}")
    if number % 7 == 0:
        (root / f"n{number}.md").unlink()
"""


@pytest.mark.parametrize("count", [3_000, pytest.param(50_000, marks=pytest.mark.soak)])
async def test_a_storm_of_files_ends_with_what_is_on_the_disk(tmp_path: Path, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """L07: two processes, as fast as they can; more files than hints are kept, so that it is walked through meanwhile."""
    began = time.monotonic()
    async with memory_desk(tmp_path, Pace(rescan=30.0)) as kit:
        await kit.followed()
        (kit.memory / "semantic").mkdir()
        halves = [(0, count // 2), (count // 2, count - count // 2)]
        writers = [
            subprocess.Popen([sys.executable, "-c", STORM, kit.memory / "semantic", str(first), str(many)]) for first, many in halves
        ]
        await eventually(lambda: all(writer.poll() == 0 for writer in writers), "the writers", 600.0)
        expected = on_disk(kit)
        await eventually(lambda: len(known(kit)) == len(expected), "all of them", 600.0)
        assert known(kit) == expected
    lines = [json.loads(data) for event, data in kit.journals if event == "memory changed"]
    assert len(lines) <= (time.monotonic() - began) / desk.EVERY_S + 2
    assert sum(len(line["changes"]) + line.get("more", 0) for line in lines) >= len(expected)


async def test_what_was_recorded_as_it_was_left_is_in_the_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who had it recorded is ended before he can tell anybody."""
    recorded, is_left = threading.Event(), threading.Event()
    async with memory_desk(tmp_path) as kit:
        await kit.followed()
        with_store, end = kit.desk._with, desk._ended

        def slowly(*args: Any) -> Any:
            done = with_store(*args)
            recorded.set()
            assert is_left.wait(40)
            return done

        async def ended(tasks: Any) -> None:
            await end(tasks)
            is_left.set()

        monkeypatch.setattr(kit.desk, "_with", slowly)
        monkeypatch.setattr(desk, "_ended", ended)
        kit.write(PLAN, "begin\n")
        await eventually(recorded.is_set, "the record")
    [line] = [json.loads(data) for event, data in kit.journals if event == "memory changed"]
    assert [one["path"] for one in line["changes"]] == [PLAN]


async def test_projects_with_files_are_followed_from_the_start_and_others_are_not(tmp_path: Path) -> None:
    projects = tmp_path / "home" / "projects"
    (projects / PROJECT / "memory" / "semantic").mkdir(parents=True)
    (projects / PROJECT / "memory" / PLAN).write_text("x")
    (projects / "empty" / "memory").mkdir(parents=True)
    (projects / "a file").touch()
    async with memory_desk(tmp_path) as kit:
        await eventually(lambda: known(kit) == {PLAN}, "the note")
        assert {root.project for root in kit.desk.watch._roots.values()} == {PROJECT}


async def test_a_note_that_a_task_waits_for_is_told_once_it_holds_something(tmp_path: Path) -> None:
    async with memory_desk(tmp_path) as kit:
        there = note(PROJECT, PLAN)
        kit.loop.crew = Crew([Task("r/a", 1, after_notes=frozenset({there}))])
        kit.desk.awaited.look_for(there)
        kit.write("semantic/other.md", "x\n")
        kit.write(PLAN, "")
        await eventually(lambda: len(known(kit)) == 2, "both")
        assert kit.loop.offered == []
        kit.write(PLAN, "begin\n")
        await eventually(lambda: kit.loop.offered, "the event")
        assert kit.loop.offered == [NoteAppeared(there)]
        kit.loop.offered.clear()
        kit.desk.awaited.look_for(there)  # as after a restart
        await eventually(lambda: kit.loop.offered == [NoteAppeared(there)], "the event again")


async def test_a_wake_up_keeps_nobody_from_leaving(tmp_path: Path) -> None:
    """The cancellation and the wake-up come in one round of the loop."""
    async with memory_desk(tmp_path) as kit:
        alone = desk.MemoryWatch(kit.desk, kit.loop.clock, kit.loop.alert)
        alone.follow(PROJECT, Rescan(kit.home.project(PROJECT), "memory", lambda _: False, time.time_ns))
        task = asyncio.create_task(alone.run())
        await eventually(lambda: alone.walks and alone._wake._waiters, "it to rest")
        alone._wake.set()
        task.cancel()
        await asyncio.wait([task], timeout=20)
        assert task.cancelled()


async def test_a_project_whose_memory_is_a_link_has_no_files(tmp_path: Path) -> None:
    """What it leads to is not looked at, and a pipe in its place is not waited for."""
    home = Home(tmp_path / "home")
    for project, name in (("a" * 8, "memory"), ("b" * 8, "mail"), ("c" * 8, "mail")):
        (home.project(project) / name).mkdir(parents=True)
    (home.project("a" * 8) / "memory" / "core.md").touch()
    (home.project("b" * 8) / "mail" / "person").mkdir()
    home.project("d" * 8).mkdir()
    (home.project("d" * 8) / "memory").symlink_to(home.project("a" * 8) / "memory")
    os.mkfifo(home.project("d" * 8) / "mail")
    home.project("e" * 8).touch()
    assert desk._with_files(home) == ["a" * 8, "b" * 8]
