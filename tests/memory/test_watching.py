"""What the observer says of real directories."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from watchdog.observers.api import BaseObserver
from watchdog.observers.inotify import InotifyEmitter
from watchdog.observers.inotify_c import InotifyFD

from memory import watching
from memory.watching import Hints, Taken, Watching
from tests.support import wait_until


class Watched:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.woken: list[None] = []
        self.hints = Hints(lambda: self.woken.append(None))
        self.watching = Watching(self.hints)
        self.seen = Taken()

    def take(self) -> Taken:
        """All hints so far."""
        new = self.hints.take()
        for root, paths in new.paths.items():
            self.seen.paths.setdefault(root, set()).update(paths)
        self.seen.all_of |= new.all_of
        self.seen.gone |= new.gone
        self.seen.lost |= new.lost
        return self.seen

    def told_of(self, *paths: str) -> bool:
        return set(paths) <= self.take().paths.get(self.root, set())


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    (root := tmp_path / "memory").mkdir()
    made = Watched(root)
    yield made
    made.watching.close()


def test_a_change_of_any_kind_is_a_hint(watched: Watched) -> None:
    root = watched.root
    (root / "old.md").write_text("x")
    (root / "moved.md").write_text("x")
    assert watched.watching.follow(root) == ""
    (root / "new.md").write_text("x")
    (root / "old.md").unlink()
    (root / "moved.md").rename(root / "there.md")
    (root / ".new.draft").write_text("x")
    (root / ".new.draft").rename(root / "replaced.md")
    (root / "semantic").mkdir()
    (root / "semantic" / "deep.md").write_text("x")
    wait_until(lambda: watched.told_of("new.md", "old.md", "moved.md", "there.md", "replaced.md", "semantic/deep.md"), "all six")
    assert not any(path.startswith(".") for path in watched.seen.paths[root])
    assert watched.woken


def test_who_only_reads_says_nothing(watched: Watched) -> None:
    (watched.root / "a.md").write_text("x")
    watched.watching.follow(watched.root)
    (watched.root / "a.md").read_text()
    os.listdir(watched.root)
    (watched.root / "z.md").write_text("x")
    wait_until(lambda: watched.told_of("z.md"), "the file after it")
    assert watched.seen.paths[watched.root] == {"z.md"}


def test_a_directory_that_moves_or_goes_is_looked_at_whole(watched: Watched, tmp_path: Path) -> None:
    (watched.root / "semantic").mkdir()
    watched.watching.follow(watched.root)
    (watched.root / "semantic").rename(tmp_path / "away")
    wait_until(lambda: watched.root in watched.take().all_of, "the hint")


def test_a_directory_that_is_removed_is_said_although_another_is_there(watched: Watched) -> None:
    watched.watching.follow(watched.root)
    watched.root.rmdir()
    watched.root.mkdir()
    wait_until(lambda: watched.root in watched.take().gone, "the hint")


def test_many_files_are_one_hint(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "HINTS_MAX", 10)
    watched.watching.follow(watched.root)
    for number in range(30):
        (watched.root / f"n{number}.md").write_text("x")
    wait_until(lambda: watched.root in watched.take().all_of, "the hint")
    assert len(watched.seen.paths.get(watched.root, ())) <= 11


def test_events_that_the_kernel_dropped_are_said(watched: Watched) -> None:
    """Its reader is kept from reading while more happens than the queue holds."""
    watched.watching.follow(watched.root)
    queue_max = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    if queue_max > 50_000:
        pytest.skip(f"the queue holds {queue_max} events here")
    reader: Any = watched.watching._observer._inotify_fd  # type: ignore[union-attr]  # nothing public holds it up
    with reader._lock:
        for _ in range(queue_max // 2 + 2 * 2048):
            (watched.root / "a.md").touch()
            (watched.root / "a.md").unlink()
    wait_until(lambda: watched.take().lost, "the loss")
    (watched.root / "semantic").mkdir()
    after = watched.root / "semantic" / "after.md"
    wait_until(lambda: after.write_text("x") and watched.told_of("semantic/after.md"), "events to come again")


def test_no_handle_left_is_a_reason_and_no_failure(watched: Watched) -> None:
    free = os.dup(0)
    os.close(free)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
    try:
        why = watched.watching.follow(watched.root)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert why == "inotify instance limit reached"
    assert watched.watching.follow(watched.root) == ""


def test_no_watch_left_is_a_reason_for_the_top_and_none_for_what_is_below(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    (watched.root / "semantic").mkdir()
    add, refused = InotifyFD._get_or_create_watch, [b"semantic"]

    def scarce(self: InotifyFD, path: bytes, *rest: Any) -> Any:
        if path.endswith(refused[0]):
            raise OSError(errno.ENOSPC, "inotify watch limit reached")
        return add(self, path, *rest)

    monkeypatch.setattr(InotifyFD, "_get_or_create_watch", scarce)
    assert watched.watching.follow(watched.root) == ""
    refused[0] = b"memory"
    assert watched.watching.follow(watched.root) == "inotify watch limit reached"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize(("where", "name"), [(InotifyEmitter, "queue_events"), (BaseObserver, "dispatch_events")])
def test_the_end_of_a_thread_is_seen_and_watching_begins_anew(
    watched: Watched, monkeypatch: pytest.MonkeyPatch, where: type, name: str
) -> None:
    def broken(*_: Any) -> None:
        raise KeyError("broken")

    before = len(os.listdir("/proc/self/fd"))
    watched.watching.follow(watched.root)
    assert watched.watching.follows(watched.root)
    with monkeypatch.context() as patch:
        patch.setattr(where, name, broken)
        wait_until(lambda: (watched.root / "a.md").write_text("x") and not watched.watching.follows(watched.root), "the end")
    assert watched.watching.follow(watched.root) == "" and watched.watching.follows(watched.root)
    (watched.root / "z.md").write_text("x")
    wait_until(lambda: watched.told_of("z.md"), "events to come again")
    watched.watching.close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_all_threads_and_handles_are_given_back(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    made = Watched(tmp_path)
    made.watching.follow(tmp_path)
    assert len(os.listdir("/proc/self/fd")) > before
    made.watching.close()
    assert len(os.listdir("/proc/self/fd")) == before
