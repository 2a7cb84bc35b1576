"""A person at a terminal: a real tmux of their own, in which commands are typed and whose screen is read."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.support import House, wait_until
from tests.warm import NIGHTCREW

COMMAND = [*NIGHTCREW]
_SIZE = ("COLUMNS", "LINES")
"""A worker of pytest has them of a terminal that is not there, and programs believe them more than the real one."""


class Terminal:
    """One window of a private tmux server that has nothing to do with nightcrew's."""

    def __init__(self, socket: Path, house: House, columns: int = 110, rows: int = 30) -> None:
        self._argv = ["tmux", "-u", "-f", "/dev/null", "-S", str(socket)]
        known = {name: text for name, text in house.env.items() if name not in _SIZE}
        self._env = {**known, "TERM": "screen-256color", "LC_ALL": "C.UTF-8"}
        self._tmux("new-session", "-d", "-x", str(columns), "-y", str(rows), "-c", str(house.repo), "sh")

    def _tmux(self, *words: str) -> str:
        return subprocess.run([*self._argv, *words], env=self._env, capture_output=True, text=True, check=True).stdout

    def nightcrew(self, *words: str, env: Mapping[str, str] | None = None) -> None:
        """Clear the screen and start `nightcrew WORDS`."""
        self._tmux("send-keys", "-R")  # at once: what was there before is not read as what comes
        variables = " ".join(f"{name}={shlex.quote(text)}" for name, text in (env or {}).items())
        self._tmux("send-keys", "-l", f'clear; {variables} {shlex.join([*COMMAND, *words])}; echo "left with $?"')
        self._tmux("send-keys", "Enter")

    def press(self, *keys: str) -> None:
        """Keys by tmux's names: `C-c`, `Enter`, `C-b`."""
        self._tmux("send-keys", *keys)

    def type(self, text: str) -> None:
        """Text as it is, then Enter."""
        self._tmux("send-keys", "-l", text)
        self._tmux("send-keys", "Enter")

    def screen(self, *, styles: bool = False) -> str:
        """What a person sees now."""
        return self._tmux("capture-pane", "-p", *(["-e"] if styles else []))

    def title(self) -> str:
        """What its programs call it."""
        return self._tmux("display-message", "-p", "#{pane_title}").strip()

    def rang(self) -> bool:
        """Whether its bell rang."""
        return self._tmux("display-message", "-p", "#{window_bell_flag}").strip() == "1"

    def clipboard(self) -> str:
        """What its programs put there."""
        return self._tmux("list-buffers", "-F", "#{buffer_sample}").strip()

    def sees(self, text: str, timeout_s: float = 90) -> str:
        """Wait until `text` is on the screen; the screen."""
        seen = ""

        def there() -> bool:
            nonlocal seen
            seen = self.screen()
            return text in seen

        try:
            wait_until(there, repr(text), timeout_s)
        except AssertionError as error:
            raise AssertionError(f"{error}; on the screen:\n{seen}") from None
        return seen

    def hang_up(self) -> None:
        """Close the window, as a person does with the mouse."""
        self._tmux("kill-server")

    def close(self) -> None:
        """End the private server."""
        subprocess.run([*self._argv, "kill-server"], env={"PATH": os.environ["PATH"]}, capture_output=True, check=False)
