"""The settings file as it is now: what the gateway and new agents are told follows it, and what needs a restart is named."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

from supervisor.config import gateway, taking_up, user
from supervisor.core.errors import ConfigError
from supervisor.core.gateway.settings import GatewaySettings
from supervisor.gateway import process_lock
from supervisor.host.paths import Home

STILL_S = 0.2
"""A file is read once it has not changed for this long: an editor may truncate it before it writes."""

_Stamp = tuple[tuple[str, int, int, int], ...]


class Models:
    """One supervisor's view of the settings. May be asked from any thread."""

    def __init__(self, home: Home, file: Path) -> None:
        """Raises ConfigError as every file does."""
        self.home = home
        self.file = file.absolute()
        self.alert: Callable[[str], None] = lambda _: None
        """Is told, from the thread that asks, of a file that cannot be read any more, and of changes that need a restart."""
        self._lock = threading.Lock()
        self._stamp = self._look()
        self.at_start = user.read(self.file)
        self._newest = self.at_start
        self._settings = gateway.settings(self.at_start, home.keys)
        self.version = 0
        """Grows whenever the settings or a key may have changed."""

    def now(self, *, at_once: bool = False) -> GatewaySettings:
        """Return the gateway's settings; if the file became unreadable, those of before. Costs a few `stat` while nothing changed.

        `at_once`: do not wait until the file has stood still for STILL_S; for a person who says that the file is ready.
        """
        with self._lock:
            stamp = self._look()
            if stamp != self._stamp and (at_once or _stands_still(stamp)):
                self._stamp = stamp
                self._read()
            return self._settings

    def outdated(self) -> list[str]:
        """Return a sentence for each process that must be restarted to take up what changed, and for each key that nothing uses."""
        found = [taking_up.words(keys)] if (keys := taking_up.restart_needed(self.at_start, self._newest)) else []
        record, port = process_lock.read(self.home), self._settings.port
        found += self._unused()
        return [*found, *([taking_up.PORT_WORDS] if port and record is not None and port != record.port else [])]

    def _unused(self) -> list[str]:
        """Name each kept key that no upstream of the file can use. Without any upstream in the file all kept keys are used."""
        apis = {upstream.api for upstream in self._settings.upstreams}
        kept = [api for api in gateway.HOMES if api not in apis and (self.home.keys / f"{api}.key").is_file()] if apis else []
        why = f"{self.file} names upstreams, and none for"
        return [f"no agent uses {self.home.keys / f'{api}.key'}: {why} {api}; add [upstream.{api}]" for api in kept]

    def _read(self) -> None:
        try:
            newest = user.read(self.file)
        except ConfigError as error:
            self.alert(f"the settings cannot be read; new agents get those of before: {error.line()}")
            return
        self._newest, self._settings = newest, gateway.settings(newest, self.home.keys)
        self.version += 1
        for sentence in self.outdated():
            self.alert(sentence)

    def _look(self) -> _Stamp:
        """Changes when the settings file or a key may have changed."""
        try:
            keys = sorted(self.home.keys.iterdir())
        except OSError:
            keys = []
        return tuple(map(_stamp, (self.file, self.home.keys, *keys)))


def _stamp(path: Path) -> tuple[str, int, int, int]:
    try:
        found = path.stat()
    except OSError:
        return (str(path), 0, 0, 0)
    return (str(path), found.st_mtime_ns, found.st_size, found.st_ino)


def _stands_still(stamp: _Stamp) -> bool:
    """Return whether the files last changed some time ago. A time in the future comes from another clock and does not count as a change."""
    return not 0 <= time.time_ns() - max(each[1] for each in stamp) < STILL_S * 1e9
