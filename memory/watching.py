"""What may have changed below some directories, as the kernel says it: hints, of which a re-scan makes the truth.

One observer for all directories. Its threads only put paths into `Hints`; whoever takes them reads the files. An event that says no more
than that somebody opened a file, or closed one that was not written, is filtered out in the kernel.

The kernel's queue holds 16,384 events and then drops them. watchdog (7.1) rebuilds its watches after that and tells its handlers nothing,
so its reader of the queue is overridden here: `Hints.lost` says that everything has to be looked at. The same reader learns that there are
no more watches for a directory further down, which watchdog passes over in silence. An error ends a thread of watchdog without a word, and
with it all events of one directory or of all: `Hints.ended` says so, and who takes that begins anew.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from watchdog.events import (
    DirCreatedEvent,
    DirDeletedEvent,
    DirMovedEvent,
    FileClosedEvent,
    FileCreatedEvent,
    FileDeletedEvent,
    FileModifiedEvent,
    FileMovedEvent,
    FileSystemEvent,
    FileSystemEventHandler,
)
from watchdog.observers.api import BaseObserver, ObservedWatch

KINDS: list[type[FileSystemEvent]] = [
    FileCreatedEvent, FileModifiedEvent, FileClosedEvent, FileMovedEvent, FileDeletedEvent, DirCreatedEvent, DirMovedEvent, DirDeletedEvent,
]  # fmt: skip
HINTS_MAX = 2_000
"""Paths of one directory that wait to be looked at; with more a walk through all of it costs less."""
_EXHAUSTED = (errno.ENOSPC, errno.EMFILE, errno.ENFILE, errno.ENOMEM)
logging.getLogger("watchdog").addHandler(logging.NullHandler())  # what it would say on our terminal, `Hints` says


@dataclass(slots=True)
class Taken:
    """The hints since the last time, by directory."""

    paths: dict[Path, set[str]] = field(default_factory=dict)
    """Relative paths of files."""
    all_of: set[Path] = field(default_factory=set)
    """Directories in which anything may have changed."""
    gone: set[Path] = field(default_factory=set)
    """Directories that were removed, and are watched no more, even where another is there by now."""
    lost: bool = False
    """In every one of them: the kernel dropped events."""
    exhausted: bool = False
    """Somewhere below is a directory that could not be watched: the limits of this machine are reached."""
    ended: str = ""
    """Why events come no more, of some directory or of all."""


class Hints:
    """From the threads of the observer to whoever takes them. `wake` is called on one of those threads, once until they are taken."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._lock = threading.Lock()
        self._taken = Taken()
        self._woken = False

    def path(self, root: Path, path: str) -> None:
        """A file may have changed."""
        with self._lock:
            if root in self._taken.all_of:
                return
            paths = self._taken.paths.setdefault(root, set())
            paths.add(path)
            if len(paths) > HINTS_MAX:
                self._all(root)
        self._say()

    def everything(self, root: Path) -> None:
        """Anything below `root` may have changed."""
        with self._lock:
            self._all(root)
        self._say()

    def gone(self, root: Path) -> None:
        """`root` itself was removed."""
        with self._lock:
            self._taken.gone.add(root)
            self._all(root)
        self._say()

    def lost(self) -> None:
        """Events were dropped."""
        with self._lock:
            self._taken.lost = True
        self._say()

    def exhausted(self) -> None:
        """A directory could not be watched."""
        with self._lock:
            self._taken.exhausted = True
        self._say()

    def ended(self, why: str) -> None:
        """No more events come."""
        with self._lock:
            self._taken.ended = why
        self._say()

    def take(self) -> Taken:
        """All of them; from now on there are none."""
        with self._lock:
            taken, self._taken, self._woken = self._taken, Taken(), False
        return taken

    def _all(self, root: Path) -> None:
        self._taken.paths.pop(root, None)
        self._taken.all_of.add(root)

    def _say(self) -> None:
        with self._lock:
            woken, self._woken = self._woken, True
        if not woken:
            self._wake()


class _Handler(FileSystemEventHandler):
    """Puts paths into the hints and does nothing else: all handlers share one thread."""

    def __init__(self, root: Path, hints: Hints) -> None:
        self._root, self._hints = root, hints
        self._prefix = f"{root}/"

    def on_any_event(self, event: FileSystemEvent) -> None:
        if isinstance(event, DirDeletedEvent) and os.fsdecode(event.src_path) == os.fspath(self._root):
            self._hints.gone(self._root)
            return
        if isinstance(event, DirMovedEvent | DirDeletedEvent):
            self._hints.everything(self._root)
            return
        if event.is_directory:
            return
        for path in {os.fsdecode(event.src_path), os.fsdecode(event.dest_path)}:
            below = path.removeprefix(self._prefix)
            if below != path and not below.startswith(".") and "/." not in below:
                self._hints.path(self._root, below)


class Watching:
    """The observer. Its methods belong to one thread. `close` ends its threads."""

    def __init__(self, hints: Hints, *, recursive: bool = True) -> None:
        """Not `recursive`: what lies in directories further down does not count."""
        self._hints, self._recursive = hints, recursive
        self._observer: BaseObserver | None = None
        self._watches: dict[Path, ObservedWatch] = {}

    def follow(self, root: Path) -> str:
        """Watch a directory that is there, with all below it, anew if it was watched. Returns why it cannot be watched; "" when it is."""
        self.drop(root)
        try:
            self._watches[root] = self._running().schedule(
                _Handler(root, self._hints), str(root), recursive=self._recursive, event_filter=KINDS
            )
        except OSError as error:
            if error.errno in _EXHAUSTED:
                return f"{error.strerror or error}"
            return f"it cannot be watched: {error.strerror or error}"
        return ""

    def drop(self, root: Path) -> None:
        """Watch it no more."""
        if self._observer is not None and (watch := self._watches.pop(root, None)) is not None:
            self._observer.unschedule(watch)

    def close(self) -> None:
        """End all of it. What is followed afterwards has new threads."""
        if self._observer is not None:
            self._observer.stop()
            self._observer.join()
        self._observer = None
        self._watches.clear()

    def _running(self) -> BaseObserver:
        if self._observer is None:
            observer = _observer(self._hints)
            observer.start()
            self._observer = observer
        return self._observer


@contextlib.contextmanager
def _noticed(hints: Hints) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # noqa: BLE001 - whatever it is, the thread ends here, and nobody else would hear of it
        hints.ended(f"watching ended: {type(error).__name__}: {error}")


def _observer(hints: Hints) -> BaseObserver:
    """Raises OSError."""
    if sys.platform != "linux":
        raise OSError(errno.ENOSYS, "events of files are read on Linux only")
    from watchdog.observers.inotify import InotifyEmitter
    from watchdog.observers.inotify_c import CallbackId, InotifyEvent, InotifyFD, Mask, WatchCallback, WatchDescriptor

    class Reader(InotifyFD):
        """Of the kernel's queue."""

        def run(self) -> None:
            with _noticed(hints):
                super().run()

        def handle_event(self, event: InotifyEvent) -> None:
            super().handle_event(event)
            if event.is_queue_overflow:
                hints.lost()

        def _add_callback(self, path: bytes, mask: Mask, callback: WatchCallback, id_: CallbackId) -> WatchDescriptor:
            # A directory that is made while the one above is being walked through is found by the walk and by its event: watchdog adds it
            # twice, and warns of that. Where warnings are errors the warning ends this thread.
            try:
                watch = self._get_or_create_watch(path, mask)
            except OSError as error:
                if error.errno in _EXHAUSTED:
                    hints.exhausted()
                raise
            watch.callbacks[id_] = callback
            return watch.wd

    class Emitter(InotifyEmitter):
        """Of one directory."""

        def run(self) -> None:
            with _noticed(hints):
                super().run()

    class Observer(BaseObserver):
        """As watchdog's own for Linux, with our reader."""

        def __init__(self) -> None:
            self._reader = Reader()
            self._reader.start()
            super().__init__(Emitter, inotify_fd=self._reader)

        def run(self) -> None:
            with _noticed(hints):
                super().run()

        def on_thread_stop(self) -> Any:
            super().on_thread_stop()
            self._reader.stop()
            self._reader.join()

    return Observer()
