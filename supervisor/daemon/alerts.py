"""What a person should see of the supervisor, in its terminal, in `ping` and in the live view; and in a log for programs where one is asked
for."""

from __future__ import annotations

import contextlib
import re
import sys

from supervisor.core.log_lines import Level, Said
from supervisor.gateway.log import Log

_FREE = re.compile(r"\d+ bytes free")
KEPT = 20


class Alerts:
    """The newest ones, the last said at the end."""

    def __init__(self) -> None:
        self.newest: list[str] = []
        self.log: Log | None = None
        """Of JSON, as which what is no terminal gets them, too."""

    def say(self, said: Said) -> None:
        """Once while it stays the same but for how much is free on a full disk."""
        text = str(said)
        if _FREE.sub("", text) in [_FREE.sub("", before) for before in self.newest[-3:]]:
            return
        self.newest.append(text)
        del self.newest[:-KEPT]
        with contextlib.suppress(OSError):  # the terminal may be gone; the alert is kept
            self._print(said)
        if self.log is not None:
            self.log.say(said, Level.WARNING)

    def _print(self, said: Said) -> None:
        if self.log is None or sys.stderr.isatty():
            print(f"nightcrew: {said}", file=sys.stderr, flush=True)
        elif not self.log.is_at(2):
            print(self.log.shown(said, Level.WARNING), file=sys.stderr, flush=True)
