"""The warm processes that memory snapshots are, and those of our own kinds: started when first needed, found again after a restart.

A zygote outlives its supervisor, as the gateway does. Attempts that it forked need it no more: when it dies, the next one is started.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
from collections.abc import Callable, Collection
from pathlib import Path

from agents import zygote
from agents.kinds import kinds
from agents.zygote import Child, Place, Wanted
from supervisor.host import files
from supervisor.host.clock import Clock
from supervisor.host.paths import Home
from supervisor.kernel.errors import NightcrewError

TRUST_S = 0.5
"""A zygote that lives and answered less long ago is not asked again: 50 agents that start at once would queue for its word. One that hangs
since then costs those starts the client's patience, and then they start cold; an upgrade is noticed so much later."""


class Zygotes:
    """The zygotes of one home. Methods may be called from several threads, and block until the zygote is ready: a second or two."""

    def __init__(self, home: Home, clock: Clock, say: Callable[[str], None] = lambda _: None) -> None:
        """`say` is told what a person should see."""
        self._home = home
        self._clock = clock
        self._answered: dict[str, tuple[tuple[zygote.Record | None, Wanted], float]] = {}
        self._locks: dict[str, threading.Lock] = {}
        self._children: list[Child] = []
        self._client: list[Path | None] = []
        self._guard = threading.Lock()
        self._say = say

    def ready(self, name: str, wanted: Wanted) -> Place:
        """Where the zygote `name` listens. One that preloads something else, runs another program than ours (after an upgrade), or does
        not answer is replaced. Raises Refused in its own words, TimedOut."""
        place = place_of(self._home, name)
        with self._lock(name):
            self._reap()
            found = zygote.find(place)
            before, asked_at = self._answered.get(name, (None, 0.0))
            if (found, wanted) == before and self._clock.monotonic() - asked_at < TRUST_S:
                return place
            if found is not None and _fits(found, wanted) and zygote.answers(place):
                self._answered[name] = (found, wanted), self._clock.monotonic()
                return place
            zygote.stop(place)
            child = zygote.start(place, wanted, os.environ)
            self._children.append(child)
        return place

    def warm_or_cold(self, name: str, wanted: Wanted) -> Place | None:
        """As `ready`; None, said once, when there can be none: the attempt then starts cold."""
        try:
            return self.ready(name, wanted)
        except NightcrewError as error:
            self._say(f"tasks of {name} start cold: {error.line()}")
            return None

    def stop(self, name: str) -> None:
        """End one, if it runs; what it forked goes on."""
        with self._lock(name):
            zygote.stop(place_of(self._home, name))
            self._answered.pop(name, None)
            self._reap()

    def keep(self, names: Collection[str]) -> None:
        """End those of snapshots that are not among `names`: what a crash left. Those of kinds stay."""
        kept = {place_of(self._home, name).socket for name in (*names, *(f"kind {kind}" for kind in kinds()))}
        for lock in _directory(self._home).glob("*.z.lock"):
            place = Place(lock.with_suffix(""))
            if place.socket not in kept:
                zygote.stop(place)

    def pane(self, place: Place, directory: Path) -> list[str]:
        """The command of an attempt's pane."""
        return zygote.pane_argv(place, directory, self._client_program())

    def _client_program(self) -> Path | None:
        """Compiled once a home where there is a compiler."""
        with self._guard:
            if not self._client:
                built = None
                with contextlib.suppress(OSError):
                    built = zygote.build_client(files.private_dir(self._home.bin))
                self._client.append(built)
            return self._client[0]

    def _lock(self, name: str) -> threading.Lock:
        with self._guard:
            return self._locks.setdefault(name, threading.Lock())

    def _reap(self) -> None:
        self._children = [child for child in self._children if child.process.poll() is None]


def place_of(home: Home, name: str) -> Place:
    """Where the zygote `name` is. Its socket's name is short: a path of the kernel's holds 107 bytes."""
    return Place(_directory(home) / f"{hashlib.sha256(name.encode()).hexdigest()[:12]}.z")


def _fits(found: zygote.Record, wanted: Wanted) -> bool:
    """Asked about the program as it is now, since an attempt that starts cold runs that too, even where the supervisor is older."""
    return (found.preload, found.path, found.program) == (wanted.preload, wanted.path, zygote.program())


def stop_all(home: Home) -> None:
    """End every zygote of this home; what they forked goes on."""
    for socket in _directory(home).glob("*.z"):
        zygote.stop(Place(socket))


def _directory(home: Home) -> Path:
    return home.run_dir / "z"
