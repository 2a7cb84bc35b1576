"""A place of its own for a benchmark: a generated repository, and the end of every process that was started there."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from agents.tmux import Tmux
from supervisor.core.errors import HostError, ToolFailed
from supervisor.host import processes

FILES = 500
_WORDS = ("agent", "branch", "commit", "epoch", "fence", "hook", "journal", "kernel", "ledger", "merge", "pane", "queue", "runner", "tree")
_KILL_S = 10.0
_GIT_ENV = {
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    **{f"GIT_{who}_{what}": text for who in ("AUTHOR", "COMMITTER") for what, text in
       (("NAME", "bench"), ("EMAIL", "bench@example.invalid"), ("DATE", "2001-01-01T00:00:00Z"))},
}  # fmt: skip


def by_hand(argv: Sequence[str], cwd: Path) -> None:
    """Run a command as a script would, but with nobody's git configuration. Raises ToolFailed with its last words."""
    own = {name: text for name, text in os.environ.items() if not name.startswith(("GIT_", "TMUX"))}
    done = subprocess.run(argv, cwd=cwd, env=own | _GIT_ENV, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ToolFailed(f"{argv[0]} failed", on=" ".join(argv[1:3]), why=done.stderr.strip().rpartition("\n")[2])


def make_repository(path: Path, seed: int, files: int = FILES) -> int:
    """A repository of one commit, packed as a clone is; the same seed gives the same commit. Returns the bytes of its files."""
    draw = random.Random(seed)  # noqa: S311 - text to fill files with, not a secret
    size = 0
    for number in range(files):
        # Sizes as in a library of source code: most are a few kB, some are ten times that.
        lines = min(1000, int(draw.lognormvariate(4.3, 1.0)))
        text = "".join(" ".join(draw.choices(_WORDS, k=draw.randint(1, 14))) + "\n" for _ in range(lines))
        file = path / f"part{number % 25:02d}" / f"file{number:03d}.txt"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        size += len(text)
    for words in ("init -q -b main", "add -A", "commit -q -m files", "repack -a -d -q"):
        by_hand(["git", *words.split()], path)
    return size


def end_server(socket: Path) -> None:
    """End a tmux server and all that runs below it, each by its identity. Raises HostError for what will not end."""
    with Tmux(socket) as tmux:
        pid = tmux.server_pid()
    server = processes.identity(pid) if pid is not None else None
    if server is None:
        return
    deadline = time.monotonic() + _KILL_S
    # The server goes last: while it lives, whatever is left is found below it.
    while left := processes.tree(server) or ([server] if processes.alive(server) else []):
        if time.monotonic() > deadline:
            raise HostError("processes do not end", on=str([who.pid for who in left]), why=f"they outlived KILL for {_KILL_S:.0f} s")
        for who in left:
            processes.send(who, signal.SIGKILL)
        time.sleep(0.01)
