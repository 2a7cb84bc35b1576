"""What benchmarks share: a directory of their own, a generated repository, turns, and the end of every process that was started there."""

from __future__ import annotations

import contextlib
import os
import platform
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import psutil

from agents import zygote
from agents.tmux import Tmux
from supervisor.core.errors import HostError, ToolFailed, last_line
from supervisor.core.identity import Identity
from supervisor.host import cores, placement, processes
from supervisor.host.paths import Home
from worktrees import trees

T = TypeVar("T")

FILES = 500
_WORDS = ("agent", "branch", "commit", "epoch", "fence", "hook", "journal", "kernel", "ledger", "merge", "pane", "queue", "runner", "tree")
_KILL_S = 10.0
_STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
GIT_ENV = {
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    **{f"GIT_{who}_{what}": text for who in ("AUTHOR", "COMMITTER") for what, text in
       (("NAME", "bench"), ("EMAIL", "bench@example.invalid"), ("DATE", "2001-01-01T00:00:00Z"))},
}  # fmt: skip


def nightcrew(*words: str) -> list[str]:
    """The command that a person types, as a program of this very installation."""
    return [sys.executable, "-I", "-m", "supervisor.cli.main", *words]


def by_hand(argv: Sequence[str], cwd: Path) -> None:
    """Run a command as a script would, but with nobody's git configuration. Raises ToolFailed with its last words."""
    own = {name: text for name, text in os.environ.items() if not name.startswith(("GIT_", "TMUX"))}
    process = None
    try:
        with _signals_deferred():  # a stop inside Popen would leave a child that nobody knows
            process = subprocess.Popen(
                argv,
                cwd=cwd,
                env=own | GIT_ENV,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                process_group=0,
            )
        _, said = process.communicate()
    except BaseException:  # interrupted: git's own children would go on writing files
        if process is not None:
            _end_group(process)
        raise
    if process.returncode != 0:
        raise ToolFailed(f"{argv[0]} failed", on=" ".join(argv[1:3]), why=last_line(said))


@contextlib.contextmanager
def _signals_deferred() -> Iterator[None]:
    """Signals that end a benchmark are handled when the block is over. For the main thread."""
    came: list[int] = []
    try:
        with contextlib.ExitStack() as stack:
            for stop in _STOPS:
                before = signal.getsignal(stop)
                if callable(before):  # the others end us at once, or are ignored by the tool as well
                    stack.callback(signal.signal, stop, before)
                    signal.signal(stop, lambda number, _: came.append(number))
            yield
    finally:
        for number in came[:1]:
            signal.raise_signal(number)


def _end_group(process: subprocess.Popen[str]) -> None:
    if process.returncode is None:  # not reaped, so the number is still its own
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    with contextlib.suppress(ProcessLookupError):
        while True:
            os.killpg(process.pid, 0)
            time.sleep(0.005)


@contextlib.contextmanager
def private_place(under: Path | None) -> Iterator[Path]:
    """A private directory with a short path, since sockets lie in it."""
    root = Path(tempfile.mkdtemp(prefix="nightcrew-bench-", dir=under)).resolve()
    placement.spread(root)  # so that neither side works where somebody has just removed files
    try:
        yield root
    finally:
        trees.remove(root)  # also what a template write-protected, and nothing through a mount


def in_turns(ways: Mapping[str, Callable[[], T]], rounds: int, begin: Callable[[int], None] = lambda _: None) -> dict[str, list[T]]:
    """What each way gave, `rounds` times; `begin` is told the number of each round, from 1 on. The ways take turns, forwards and backwards,
    so that a slow minute of the machine hits all."""
    found: dict[str, list[T]] = {name: [] for name in ways}
    for number in range(1, rounds + 1):
        begin(number)
        for name in ways if number % 2 else reversed(list(ways)):
            found[name].append(ways[name]())
    return found


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
    commit_all(path)
    return size


def commit_all(path: Path) -> None:
    """Make the directory a repository of one commit with all its files, also those that it ignores, packed as a clone is."""
    for words in ("init -q -b main", "add -A -f", "commit -q -m files", "repack -a -d -q"):
        by_hand(["git", *words.split()], path)


def busy_s(process: psutil.Process | None) -> float:
    """Processor time so far; children do not count."""
    if process is None:
        return 0.0
    times = process.cpu_times()
    return float(times.user + times.system)


def machine() -> dict[str, Any]:
    """What was measured on."""
    return {
        "cores": len(cores.usable()),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "git": _version("git", "version"),
        "tmux": _version("tmux", "-V"),
        "load_1m": round(os.getloadavg()[0], 2),
    }


def _version(*argv: str) -> str:
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split()[-1]


def end_server(home: Home) -> None:
    """End the tmux server and the warm processes of `home` and all that runs below them, each by its identity. Raises HostError for what
    will not end."""
    with Tmux(home.tmux_socket) as tmux:
        pid = tmux.server_pid()
    server = processes.identity(pid) if pid is not None else None
    if server is not None:
        _end(server)
    for socket in (home.run_dir / "z").glob("*.z"):  # their agents are not below the server
        record = zygote.find(zygote.Place(socket))
        if record is not None:
            _end(record.identity)
    shutil.rmtree(home.run_dir, ignore_errors=True)  # not below `home` when that path is too long for a socket


def _end(server: Identity) -> None:
    held: list[Identity] = []
    # Frozen first: nobody can fork away from below the server while the others are ended.
    while new := [who for who in [server, *processes.tree(server)] if who not in held]:
        for who in new:
            processes.send(who, signal.SIGSTOP)
        held += new
    for who in held:
        processes.send(who, signal.SIGKILL)
    deadline = time.monotonic() + _KILL_S
    while left := [who.pid for who in held if processes.alive(who)]:
        if time.monotonic() > deadline:
            raise HostError("processes do not end", on=str(left), why=f"they outlived KILL for {_KILL_S:.0f} s")
        time.sleep(0.01)
