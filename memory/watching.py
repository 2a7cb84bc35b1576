"""What may have changed below some directories, as the kernel says it: hints, of which a re-scan makes the truth.

One observer for all directories. Its threads only put paths into `Hints`; whoever takes them reads the files. An event that says no more
than that somebody opened a file, or closed one that was not written, is filtered out in the kernel.

The kernel's queue holds 16,384 events and then drops them. watchdog rebuilds its watches after that and logs a warning, and so it does for
other trouble: any warning of its is the hint `lost`, that everything has to be looked at. What it passes over in silence, such as a
directory further down for which no watch is left, is found by the re-scan.
"""

from __future__ import annotations

import errno
import logging
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

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
from watchdog.observers import Observer
from watchdog.observers.api import BaseObserver, ObservedWatch

KINDS: list[type[FileSystemEvent]] = [
    FileCreatedEvent, FileModifiedEvent, FileClosedEvent, FileMovedEvent, FileDeletedEvent, DirCreatedEvent, DirMovedEvent, DirDeletedEvent,
]  # fmt: skip
HINTS_MAX = 2_000
"""Paths of one directory that wait to be looked at; with more a walk through all of it costs less."""
_EXHAUSTED = (errno.ENOSPC, errno.EMFILE, errno.ENFILE, errno.ENOMEM)
_LOGGER = logging.getLogger("watchdog")
_LOGGER.addHandler(logging.NullHandler())  # what it would say on our terminal, `Hints` says


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
        """Events may have been dropped."""
        with self._lock:
            self._taken.lost = True
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


class _Warnings(logging.Handler):
    """Takes what watchdog warns of."""

    def __init__(self, hints: Hints) -> None:
        super().__init__(logging.WARNING)
        self._hints = hints

    def emit(self, record: logging.LogRecord) -> None:  # noqa: ARG002 - whatever it says
        self._hints.lost()


class Watching:
    """The observer. Its methods belong to one thread. `close` ends its threads."""

    def __init__(self, hints: Hints, *, recursive: bool = True) -> None:
        """Not `recursive`: what lies in directories further down does not count."""
        self._hints, self._recursive = hints, recursive
        self._warnings = _Warnings(hints)
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

    def follows(self, root: Path) -> bool:
        """Whether events of a directory come: it is watched, and no thread of the observer has ended with an error."""
        watch = self._watches.get(root)
        if watch is None or self._observer is None or not self._observer.is_alive():
            return False
        return any(emitter.watch == watch and emitter.is_alive() for emitter in self._observer.emitters)

    def drop(self, root: Path) -> None:
        """Watch it no more."""
        if self._observer is not None and (watch := self._watches.pop(root, None)) is not None:
            self._observer.unschedule(watch)

    def close(self) -> None:
        """End all of it. What is followed afterwards has new threads."""
        if self._observer is not None:
            _LOGGER.removeHandler(self._warnings)
            self._observer.stop()
            self._observer.join()
        self._observer = None
        self._watches.clear()

    def _running(self) -> BaseObserver:
        if self._observer is not None and not self._observer.is_alive():
            self.close()
        if self._observer is None:
            observer = Observer()
            observer.start()
            self._observer = observer
            _LOGGER.addHandler(self._warnings)
        return self._observer
