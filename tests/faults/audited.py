"""`nightcrew`, noting each Python call that takes a path below a directory: [python, "-I", "-B", audited.py, NOTES, DIRECTORY, WORDS…].

One JSON line a call: when (wall seconds), the event, its paths below DIRECTORY, and the lines of ours that made it. Attempts of tier 2 get
bubblewrap where it works, so that one crew has both executors.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from typing import Any

OURS = ("/supervisor/", "/agents/", "/worktrees/")
EVENTS = frozenset(
    {
        "open", "os.chdir", "os.chmod", "os.chown", "os.exec", "os.link", "os.listdir", "os.mkdir", "os.posix_spawn", "os.remove",
        "os.rename", "os.rmdir", "os.scandir", "os.setxattr", "os.symlink", "os.truncate", "os.utime", "shutil.rmtree",
    }
)  # fmt: skip
_DESCRIPTORS = "/proc/self/fd/"


def install(notes: str, directory: str) -> None:
    """From now on, in this process and its forks."""
    handle = os.open(notes, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    below = directory + "/"

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if event not in EVENTS:
            return
        texts = [os.fsdecode(arg) for arg in args[:2] if isinstance(arg, str | bytes | os.PathLike)]
        paths = [text for text in texts if text.startswith((below, _DESCRIPTORS))]
        if paths:
            frames = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in traceback.extract_stack(limit=24)]
            ours = [frame for frame in frames if any(room in frame for room in OURS) and "/tests/" not in frame]
            note = {"at": time.time(), "event": event, "paths": paths, "frames": ours[-3:]}
            os.write(handle, json.dumps(note).encode() + b"\n")

    sys.addaudithook(hook)


def use_both_executors() -> None:
    """The order of choice is the only thing that is changed."""
    from supervisor.sandbox import executors
    from supervisor.sandbox.executors import Executor
    from supervisor.sandbox.policy import Tier

    usual = executors.Support.executor

    def executor(self: executors.Support, tier: Tier) -> Executor | None:
        return Executor.BUBBLEWRAP if tier is Tier.OFFLINE and tier in self.works[Executor.BUBBLEWRAP] else usual(self, tier)

    executors.Support.executor = executor  # type: ignore[method-assign]  # this process is the test's


if __name__ == "__main__":
    from supervisor.cli.main import main

    install(*sys.argv[1:3])
    use_both_executors()
    main(sys.argv[3:])
