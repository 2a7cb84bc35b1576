"""The real Claude Code, as `make clients` installs it, before a simulated provider: it uses no account and no network."""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from agents.status import Source
from supervisor.bench.status.living import evidence
from supervisor.bench.supervised_run import SupervisedRun, until
from supervisor.core.errors import ToolFailed
from supervisor.core.spec import TaskSpec
from supervisor.daemon import protocol
from supervisor.host import files

MODEL = "claude-opus-5-5"
LOOK_S = 0.02
"""Between two looks at what its session file says. A turn here takes ten times as long."""


def binary() -> Path | None:
    """The one on PATH, or else the one of `make clients`."""
    base = os.environ.get("NIGHTCREW_CLIENTS") or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "nightcrew/clients")
    own = Path(base, "node_modules", ".bin", "claude")
    found = shutil.which("claude") or (own if own.exists() else None)
    return Path(found) if found is not None else None


def variables(binary: Path, home: Path, repo: Path) -> dict[str, str]:
    """For a task: a PATH with it, and a home in which it has seen its first screens and trusts `repo`; made when it is not there."""
    files.private_dir(files.private_dir(home) / ".claude")
    seen = {"hasCompletedOnboarding": True, "theme": "dark", "projects": {str(repo): {"hasTrustDialogAccepted": True}}}
    (home / ".claude.json").write_text(json.dumps(seen))
    return {"HOME": str(home), "PATH": f"{binary.parent}:{os.environ['PATH']}"}


def supervised(root: Path, slots: int, binary: Path, url: str) -> SupervisedRun:
    """A supervisor whose agents reach the provider at `url` through a gateway that was told nothing of its limits."""
    upstream = f'[upstream.sim]\napi = "anthropic"\nurl = "{url}"\nkey = "none"\n'
    return SupervisedRun(root, slots, f"{binary.parent}:{os.environ['PATH']}", upstream)


class Talking:
    """One that owns its pane and waits for a prompt."""

    def __init__(self, run: SupervisedRun, repo: Path, own: Mapping[str, str]) -> None:
        """`own`: its `variables`."""
        self._run = run
        task = TaskSpec("talking", "", "claude", (), own, prompt="Begin.", model=MODEL, interactive=True)
        made = run.submit(run.repository(repo), [task])
        self._task = f"{made}/talking"
        until(lambda: all(view.attempt_state == "running" for view in run.views(made)), "the supervisor to have seen its runner")
        until(self._is_idle, "Claude Code to end its first turn")

    def delivery_s(self, samples: int) -> list[float]:
        """Seconds that the supervisor takes for one text each, from being asked until Claude Code has confirmed it."""
        found = []
        for number in range(samples):
            began = time.monotonic()
            self._send(f"Prompt {number}.")
            found.append(time.monotonic() - began)
            until(self._is_idle, "the turn to end")
        return found

    def poll_s(self, samples: int) -> list[float]:
        """Seconds from the moment that Claude Code's session file names as that of a change until the supervisor says the new state by that
        file alone; two changes a turn."""
        found: list[float] = []
        for number in range(samples // 2):
            seen = {self._by_file()[1]}
            typist = threading.Thread(target=self._send, args=(f"Look {number}.",))
            typist.start()
            while typist.is_alive() or not self._is_idle():
                state, at = self._by_file()
                if at not in seen and state:
                    found.append(time.time() - at)
                seen.add(at)
                time.sleep(LOOK_S)
            typist.join()
        return found

    def _send(self, text: str) -> None:
        wanted = {"tasks": [self._task], "text": text, "now": True, "some": False}
        (one,) = protocol.call(self._run.home.daemon_socket, "send", wanted, timeout_s=30.0)["deliveries"]
        if one["state"] != "confirmed":
            raise ToolFailed("a text was not confirmed", on=self._task, why=one["why"])

    def _by_file(self) -> tuple[str, float]:
        said = [piece for piece in evidence(self._run, self._task) if piece["source"] == Source.SESSION_FILE]
        return (said[0]["state"], said[0]["at"]) if said else ("", 0.0)

    def _is_idle(self) -> bool:
        """By its hooks and its file."""
        said = evidence(self._run, self._task)
        return len(said) > 1 and all(piece["state"] == "idle" for piece in said)
