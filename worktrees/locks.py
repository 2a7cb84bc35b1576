"""The lock of each repository, and locks that a killed git left."""

from __future__ import annotations

import contextlib
import hashlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from supervisor.host import files, processes
from supervisor.host.untrusted_fs import folder
from supervisor.kernel.errors import HostError, TimedOut
from supervisor.kernel.format import duration

# Repository lock
# ---------------
# The one lock of each repository: whoever changes its refs or its list of worktrees holds it, against threads and other processes.


LOCK_S = 300.0
"""How long it is waited for. Who holds it runs verbs with deadlines of their own, and each that does nothing is stopped after seconds."""
_SAY_S = 5.0
"""After so long a person is told who is waited for."""


class _Lock:
    """One repository's, within this process."""

    __slots__ = ("free", "thread")

    def __init__(self) -> None:
        self.free = threading.Lock()
        self.thread = 0
        """Who holds it, or held it last."""


class RepositoryLocks:
    """Of one process; every method may be called from several threads at once. The files are in `folder`, one for each repository.
    `running` is by thread what its git does now."""

    def __init__(self, folder: Path, running: Mapping[int, str]) -> None:
        self._folder, self._running = folder, running
        self._locks: dict[Path, _Lock] = {}

    @contextlib.contextmanager
    def hold(self, common_dir: Path, say: Callable[[str], None]) -> Iterator[None]:
        """Hold that of a repository. After some seconds `say` is told who holds it. Raises TimedOut, which names that too; it never goes
        on without."""
        deadline = time.monotonic() + LOCK_S
        with contextlib.ExitStack() as stack:
            mine = self._locks.setdefault(common_dir, _Lock())
            if not mine.free.acquire(timeout=min(_SAY_S, LOCK_S)):
                say(f"the repository {common_dir} is locked: {self._holder(mine.thread)}")
                if not mine.free.acquire(timeout=max(0.0, deadline - time.monotonic())):
                    raise _timeout(common_dir, self._holder(mine.thread))
            stack.callback(mine.free.release)
            mine.thread = threading.get_ident()
            name = hashlib.sha256(os.fsencode(common_dir)).hexdigest()[:12]
            file = stack.enter_context((self._folder / f"git-{name}").open("a+"))
            while not files.try_lock(file.fileno()):
                if time.monotonic() > deadline:
                    raise _timeout(common_dir, f"by another nightcrew, pid {_written_pid(file)}")
                time.sleep(0.005)  # only another process is waited for here
            with contextlib.suppress(OSError):  # a full disk: who waits will not be told the pid
                file.truncate(0)
                os.write(file.fileno(), f"{os.getpid()}\n".encode())
            yield

    def _holder(self, thread: int) -> str:
        return f"by a thread that runs {self._running.get(thread, 'no git at this moment')}"


def _written_pid(file: TextIO) -> str:
    """What its holder wrote into a lock's file."""
    file.seek(0)
    text = file.read(20).strip()
    return text if text.isdigit() else "unknown"


def _timeout(common_dir: Path, holder: str) -> TimedOut:
    return TimedOut("the repository stayed locked", on=str(common_dir), why=f"held for {duration(LOCK_S)} {holder}", hint="retry")


# Stale lock
# ----------
# The lock of an index that a killed git left: git itself never removes one.


OLD_S = 60.0
"""No git of a person's that still writes an index takes so long; one that waits for an editor lives, and is seen."""


def remove(git_dir: Path, checkout: Path) -> bool:
    """Remove `index.lock` of `git_dir` where it is nobody's: older than OLD_S, open in no process, and no git at work in the checkout.
    Whether it was removed."""
    lock = git_dir / "index.lock"
    with contextlib.suppress(OSError), folder(git_dir) as here:
        before = here.look(lock.name)
        if before is None or time.time() - before.st_mtime < OLD_S or _in_use(lock, checkout):
            return False
        again = here.look(lock.name)
        if again is None or (again.st_ino, again.st_mtime_ns) != (before.st_ino, before.st_mtime_ns):
            return False  # a git has it by now
        here.remove(lock.name)
        return True
    return False


def _in_use(lock: Path, checkout: Path) -> bool:
    users = processes.occupied()
    at_work = [who.pid for place in (checkout, lock.parent) for who in users(place)]
    return bool(users(lock)) or any(Path(processes.command(pid).partition(" ")[0]).name == "git" for pid in at_work)


# Mount namespace
# ---------------
# A mount namespace that shows what this process does not see: an overlay that an ordinary user mounted.
#
# The namespaces are held by handles, not by a process: nothing has to live for them, and they end with their last handle, also when this
# process is killed. git is started in them by `nsenter`; this process reaches the files through a handle of their top.


MS_RDONLY = 0x1
HELPER = Path(__file__).parent / "overlay_helper.py"


@dataclass(frozen=True, slots=True)
class MountNamespace:
    """Open handles, valid within `entered`."""

    user: int
    mount: int
    top: int
    path: Path
    """Where the overlay is mounted in there."""

    @property
    def handles(self) -> tuple[int, ...]:
        """What a process started by `command` must inherit."""
        return (self.user, self.mount)

    @property
    def command(self) -> tuple[str, ...]:
        """What to put before an argv so that it runs in there."""
        return ("nsenter", f"--user=/proc/self/fd/{self.user}", f"--mount=/proc/self/fd/{self.mount}", "--preserve-credentials", "--")

    def refused(self) -> str | None:
        """Why no program can be started in there; None when one can."""
        try:
            done = subprocess.run([*self.command, "true"], pass_fds=self.handles, capture_output=True, text=True, check=False)
        except OSError as error:
            return f"nsenter (package util-linux): {error.strerror}"
        return f"nsenter: {done.stderr.strip()}" if done.returncode else None

    def reach(self, path: Path) -> Path:
        """The path by which this process reaches `path`, which lies at or below the mount. Raises ValueError for others."""
        return Path(f"/proc/self/fd/{self.top}") / path.relative_to(self.path)


@contextlib.contextmanager
def entered(path: Path, options: str, *, readonly: bool) -> Iterator[MountNamespace]:
    """An overlay with mount(2)'s `options` at `path`, in namespaces of its own. Raises HostError when the kernel refuses: it
    says at which step."""
    argv = [sys.executable, "-I", "-S", str(HELPER), str(path), options, str(MS_RDONLY if readonly else 0)]
    with contextlib.ExitStack() as stack:
        with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, close_fds=True) as helper:
            try:
                _await(helper, path)
                inside = MountNamespace(
                    user=_opened(stack, f"/proc/{helper.pid}/ns/user", os.O_RDONLY),
                    mount=_opened(stack, f"/proc/{helper.pid}/ns/mnt", os.O_RDONLY),
                    top=_opened(stack, f"/proc/{helper.pid}/root{path}", os.O_PATH | os.O_DIRECTORY),
                    path=path,
                )
            finally:
                helper.kill()  # it has nothing left to do
        yield inside


def _await(helper: subprocess.Popen[bytes], path: Path) -> None:
    assert helper.stdout is not None  # noqa: S101 - for the types: it is a pipe
    said = helper.stdout.readline().decode().strip()
    if said == "ok":
        return
    number, _, step = said.partition(" ")
    why = f"{step}: {os.strerror(int(number))}" if number.isdigit() else "its helper died"
    raise HostError("the files could not be mounted for this user", on=str(path), why=why, kept="both layers", hint="nightcrew doctor")


def _opened(stack: contextlib.ExitStack, path: str, flags: int) -> int:
    handle = os.open(path, flags | os.O_CLOEXEC)
    stack.callback(os.close, handle)
    return handle
