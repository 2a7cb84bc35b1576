"""What the tests share: a private house to live in, waiting for conditions, and a reaper for what is left."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from agents import tmux_control
from agents.tmux import ServerGone, Tmux
from supervisor import __version__
from supervisor.gateway import lifecycle
from supervisor.host import procfs, scratch, unix_sockets
from supervisor.host.paths import ATTEMPT, FAR, SET_UP, Home
from supervisor.kernel import codec
from supervisor.kernel.errors import NightcrewError
from supervisor.server import gateway_process, lock
from supervisor.server.attempts import zygotes
from supervisor.store import queries, sqlite
from tests import warm

GIT_IDENTITY = {
    "GIT_AUTHOR_NAME": "A. Developer",
    "GIT_AUTHOR_EMAIL": "dev@example.invalid",
    "GIT_COMMITTER_NAME": "A. Developer",
    "GIT_COMMITTER_EMAIL": "dev@example.invalid",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
}


_REST_S = 0.3


def wait_until(condition: Callable[[], object], what: str, timeout_s: float = 150.0, every_s: float = 0.02) -> None:
    """Poll until `condition` is true; fail naming `what`. The time limit only ends a test that is broken.

    What takes long is looked at less often: after a quarter of the time so far, but at least `every_s` and at most three times that; and
    after a fortieth of that time, or as long as two looks took, up to `_REST_S`: a look may be a command, and what is waited for needs the
    processor too.

    A condition that cannot be looked at yet (a file that is not there or is half written, a key or a row that is missing) is not true yet;
    its last error is shown when the time is over.
    """
    began = time.monotonic()
    deadline = began + timeout_s
    while True:
        looked = time.monotonic()
        trouble = ""
        try:
            if condition():
                return
        except (OSError, LookupError, json.JSONDecodeError) as error:
            trouble = f" (its last error: {error!r})"
        now = time.monotonic()
        assert now < deadline, f"waited {timeout_s:.0f} s in vain for: {what}{trouble}"
        time.sleep(max(min(max(every_s, (now - began) / 4), 3 * every_s), min(max(2 * (now - looked), (now - began) / 40), _REST_S)))


def git(where: Path, *args: str) -> str:
    """Plain git, as a person would run it, but that a commit does not look whether there is much to pack."""
    done = subprocess.run(
        ["git", "-C", str(where), "-c", "maintenance.auto=false", *args],
        env={**os.environ, **GIT_IDENTITY},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def make_repository(path: Path, files: Mapping[str, str] | None = None) -> Path:
    """A repository with one commit, which is the same each time for the same files."""

    def make(place: Path) -> None:
        place.mkdir()
        git(place, "init", "-q", "-b", "main")
        for sample in (place / ".git" / "hooks").glob("*.sample"):  # half of its files: each copy would have them
            sample.unlink()
        for name, text in (files or {"README": "hello\n"}).items():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_text(text)
        git(place, "add", "-A")
        git(place, "commit", "-q", "-m", "first")

    return copied(repr(files), make, path)


_patterns: dict[str, Path] = {}


def copied(name: str, make: Callable[[Path], None], path: Path) -> Path:
    """A copy at `path` of the repository that `make` made in this process for this name: a third of what git takes to make it."""
    if name not in _patterns:
        place = Path(tempfile.mkdtemp(prefix="nightcrew-pattern-"))
        atexit.register(_remove, place, os.getpid())
        make(place / "repository")
        _patterns[name] = place / "repository"
    shutil.copytree(_patterns[name], path, symlinks=True)
    git(path, "update-index", "-q", "--refresh")  # it knows files by their inode: what only compares that would call all of them changed
    return path


def _remove(place: Path, owner: int) -> None:
    if os.getpid() == owner:  # and no fork of it
        shutil.rmtree(place, ignore_errors=True)


class House:
    """One private supervisor: its state, a repository, the command line, and the daemon as a child of the test."""

    def __init__(self, root: Path, repo: Path) -> None:
        self.home = Home(root / "home")
        self.repo = repo
        self.config = root / "config.toml"
        self.config.write_text('grace = "1s"\nsandbox = 0\n[limits]\ndisk_free_min = 0\n')
        self._daemons: list[subprocess.Popen[bytes]] = []
        self._log = root / "daemon.out"

    @property
    def env(self) -> dict[str, str]:
        """What the commands see: no variable of the test's own supervisor, git or provider leaks in."""
        not_ours = ("NIGHTCREW_", "GIT_", "TMUX", "ANTHROPIC_", "OPENAI_", "GEMINI_")
        kept = {name: text for name, text in os.environ.items() if not name.startswith(not_ours)}
        return {**kept, "NIGHTCREW_HOME": str(self.home.root), "NIGHTCREW_CONFIG": str(self.config)}

    def run(
        self, *args: str, cwd: Path | None = None, env: Mapping[str, str] | None = None, timeout_s: float = 120
    ) -> subprocess.CompletedProcess[str]:
        """`nightcrew ARGS` in the repository."""
        return warm.run(args, cwd or self.repo, {**self.env, **(env or {})}, timeout_s)

    def ok(self, *args: str, **options: object) -> str:
        """`run`, which must succeed; its stdout."""
        done = self.run(*args, **options)  # type: ignore[arg-type]  # passed through
        assert done.returncode == 0, (
            f"nightcrew {' '.join(args)} -> {done.returncode}\n{done.stdout}\n{done.stderr}\n{self.daemon_output()}"
        )
        return done.stdout

    def begin(self, *args: str, said: Path | None = None) -> warm.Process:
        """`nightcrew ARGS`, which goes on; the test waits for it. `said`: a file that gets what it says on both its streams."""
        with (said or Path(os.devnull)).open("wb") as out:
            return warm.start(args, self.repo, self.env, out.fileno(), out.fileno())

    def start_daemon(
        self,
        *,
        die_at: str = "",
        wait: bool = True,
        env: Mapping[str, str] | None = None,
        words: Sequence[str] = ("up",),
        first: str = "",
    ) -> subprocess.Popen[bytes]:
        """The supervisor in the foreground, as this test's child. `first`: Python that is run in it before it begins."""
        environment = {**self.env, **({"NIGHTCREW_DIE_AT": die_at} if die_at else {}), **(env or {})}
        with self._log.open("ab") as log:
            daemon = warm.start(words, self.repo, environment, log.fileno(), log.fileno(), session=True, first=first)
        self._daemons.append(daemon)
        if wait:
            wait_until(lambda: daemon.poll() is not None or self.ready(), "the daemon to be ready")
        return daemon

    def ready(self) -> bool:
        """Whether a supervisor answers and has recovered."""
        from supervisor.client import protocol
        from supervisor.kernel.errors import NightcrewError

        try:
            return bool(protocol.call(self.home.daemon_socket, "ping", {}, timeout_s=5)["ready"])
        except (NightcrewError, OSError):
            return False

    def daemon_output(self) -> str:
        """What the daemons of this house said."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def account(self) -> str:
        """What the daemons said last, and how each task is and why."""
        try:
            known = [f"{view.id} {view.state} epoch {view.epoch}: {view.reason}; {view.end_cause}" for view in self.tasks()[:50]]
        except (NightcrewError, sqlite3.Error) as error:  # a test may have damaged it on purpose
            known = [f"no ledger can be read: {error}"]
        return "\n".join((self.daemon_output()[-8000:], *known))

    def plan(self, text: str, name: str = "plan.toml") -> str:
        """Write a plan file; its path."""
        path = self.home.root.parent / name
        path.write_text(text)
        return str(path)

    def tasks(self) -> list[queries.TaskView]:
        """Every task that the ledger holds."""
        db = sqlite.connect_readonly(self.home.ledger)
        try:
            return [view for run in reversed(queries.runs(db, 1000)) for view in queries.of_run(db, run.id)]
        finally:
            db.close()

    def task(self, name: str) -> queries.TaskView:
        """The newest task of that name."""
        return next(view for view in reversed(self.tasks()) if view.name == name)

    def state(self, name: str) -> str:
        """Its state, `none` before there is such a task."""
        return (
            next((str(view.state) for view in reversed(self.tasks()) if view.name == name), "none") if self.home.ledger.exists() else "none"
        )

    def wait_final(self, timeout_s: float = 150) -> None:
        """Until every task has ended."""
        try:
            wait_until(lambda: all(view.final for view in self.tasks()), "every task to end", timeout_s, every_s=0.1)
        except AssertionError as error:
            error.add_note(f"{self.run('status').stdout}\n{self.daemon_output()}")
            raise

    def tmux_pid(self) -> int | None:
        """Our tmux server."""
        with Tmux(self.home.tmux_socket) as tmux:
            return tmux.server_pid()

    def gateway(self) -> lifecycle.Record | None:
        """The gateway that lives now."""
        return gateway_process.running(self.home)

    def sessions(self) -> set[str]:
        """Attempts that have a session now."""
        with Tmux(self.home.tmux_socket) as tmux:
            try:
                return {pane.tags["attempt"] for pane in tmux.panes() if "attempt" in pane.tags}
            except ServerGone:
                return set()

    def tagged(self) -> list[int]:
        """Every process that carries this house's tag."""
        return tagged_processes(self.home)

    def reap(self) -> None:
        """End, by id, whatever this house still has."""
        for daemon in self._daemons:
            _end(daemon.pid, daemon)
        if (pid := lock.holder(self.home.lock)) is not None:
            _end(pid)
        for gateway in gateway_process.all_of(self.home):  # also one that has written no record yet
            _end(gateway.pid)
        if (server := tmux_control.server_pid(self.home.tmux_socket)) is not None:  # also one in another network namespace
            _end(server)
        for listener in unix_sockets.listeners(self.home.tmux_socket):  # also one whose socket was removed
            _end(listener.pid)
        zygotes.stop_all(self.home)
        for left in self.tagged():
            _end(left)
        for place in mounted_below(self.home.root):
            subprocess.run(["umount", "-l", place], check=True)
        remove_far_sockets(self.home)


def remove_far_sockets(home: Home) -> None:
    """Remove sockets of a long path from `/tmp`, and temporary files of processes that were killed. No other code removes them."""
    for letter in (ATTEMPT, SET_UP):
        scratch.sweep(FAR, home.short_tmp_prefix(letter))
    if not home.run_dir.is_relative_to(home.root):
        shutil.rmtree(home.run_dir, ignore_errors=True)


def mounted_below(root: Path) -> list[str]:
    """Where something is mounted in `root`, the innermost first."""
    places = [line.split()[4].encode().decode("unicode_escape") for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    return sorted((place for place in places if place.startswith(f"{root}/")), key=len, reverse=True)


def tagged_processes(home: Home) -> list[int]:
    """Pids whose environment carries a tag of this home."""
    from supervisor.kernel import names

    prefix = f"{names.TAG_VARIABLE}={names.tag(str(home.root), '', 0).partition(':')[0]}:".encode()
    return [pid for pid in procfs.pids() if prefix in b"\0" + procfs.slurp(f"/proc/{pid}/environ")]


def signal_if_there(pid: int, number: signal.Signals = signal.SIGKILL) -> None:
    """Signal a process of the test that may end by itself at any moment."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _end(pid: int, child: subprocess.Popen[bytes] | None = None) -> None:
    signal_if_there(pid)
    if child is not None:
        child.wait()


def at_once(path: Path, requests: Sequence[tuple[str, object]], token: str = "", *, answers: bool = True) -> list[dict[str, Any]]:
    """Send all of these requests (verb, args) to a socket of the supervisor before any is answered; their answers, as they came over it.

    With `answers=False` every client leaves as soon as it has sent its request.
    """
    doors = []
    try:
        for _ in requests:
            doors.append(door := socket.socket(socket.AF_UNIX))
            door.settimeout(120)
            door.connect(str(path))
        for door, (verb, args) in zip(doors, requests, strict=True):
            shape = {"version": __version__, "verb": verb, "args": args, **({"token": token} if token else {})}
            door.sendall(codec.dumps(shape).encode() + b"\n")
        return [json.loads(door.makefile().readline()) for door in doors] if answers else []
    finally:
        for door in doors:
            door.close()


def shell_task(name: str, command: str | list[str], **keys: object) -> str:
    """One `[[tasks]]` table of a plan."""
    lines = [f"{key} = {_toml(value)}" for key, value in {"id": name, "command": command, **keys}.items()]
    return "[[tasks]]\n" + "\n".join(lines) + "\n"


def _toml(value: object) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(key)} = {_toml(inner)}" for key, inner in value.items()) + " }"
    # JSON's strings, numbers and lists are TOML's too, once DEL and lone surrogates are left out.
    return json.dumps(value)


def plan_of(tasks: Sequence[str]) -> str:
    """A plan file of these tables."""
    return "\n".join(tasks)


@contextlib.contextmanager
def small_disk(place: Path, options: str) -> Iterator[Path]:
    """A file system in memory of its own at `place`, by mount's `options` such as `size=2m`. Skips the test where that is not allowed."""
    import pytest

    if os.geteuid() != 0:
        pytest.skip("only root can mount a small file system")
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", place], capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"this root may not mount: {mounted.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", place], check=True)
