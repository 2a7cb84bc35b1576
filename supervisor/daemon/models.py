"""The gateway's settings as the user's file has them now: what a new agent is told must fit the gateway, which can be told to read them
again (`nightcrew gateway reload`)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from supervisor.config import user
from supervisor.core.errors import ConfigError
from supervisor.core.gateway.settings import GatewaySettings
from supervisor.host.paths import Home

_Stamp = tuple[tuple[int, int, int], ...]


class Models:
    """One supervisor's view of them. May be asked from any thread."""

    def __init__(self, home: Home, file: Path) -> None:
        """Raises ConfigError as every file does."""
        self.home = home
        self.file = file.absolute()
        self.alert: Callable[[str], None] = lambda _: None
        """Is told, from the thread that asks, of a file that cannot be read any more."""
        self._lock = threading.Lock()
        self._stamp = self._look()
        self._settings = user.load_gateway(self.file, home.keys)
        self._follows = bool(self._settings.upstreams)
        """A supervisor that started without a gateway stays without: nobody would start the one that agents are sent to."""

    def now(self) -> GatewaySettings:
        """The settings; of a file that became unreadable, those of before. Costs two `stat` while nothing changed."""
        if not self._follows:
            return self._settings
        with self._lock:
            stamp = self._look()
            if stamp != self._stamp:
                self._stamp = stamp
                try:
                    self._settings = user.load_gateway(self.file, self.home.keys)
                except ConfigError as error:
                    self.alert(f"the settings cannot be read; new agents get those of before: {error.line()}")
            return self._settings

    def _look(self) -> _Stamp:
        """Changes when the settings file or key directory may have changed."""
        return tuple(map(_stamp, (self.file, self.home.keys)))


def _stamp(path: Path) -> tuple[int, int, int]:
    try:
        found = path.stat()
    except OSError:
        return (0, 0, 0)
    return (found.st_mtime_ns, found.st_size, found.st_ino)
