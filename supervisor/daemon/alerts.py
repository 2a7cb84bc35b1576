"""What a person should see of the supervisor, in its terminal, in `ping` and in the live view."""

from __future__ import annotations

import contextlib
import re
import sys

_FREE = re.compile(r"\d+ bytes free")
KEPT = 20


class Alerts:
    """The newest ones, the last said at the end."""

    def __init__(self) -> None:
        self.newest: list[str] = []

    def say(self, text: str) -> None:
        """Once while it stays the same but for how much is free on a full disk."""
        if _FREE.sub("", text) not in [_FREE.sub("", said) for said in self.newest[-3:]]:
            self.newest.append(text)
            del self.newest[:-KEPT]
            with contextlib.suppress(OSError):  # the terminal may be gone; the alert is kept
                print(f"nightcrew: {text}", file=sys.stderr, flush=True)
