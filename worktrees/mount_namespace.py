"""A mount namespace that shows what this process does not see: an overlay that an ordinary user mounted.

The namespaces are held by handles, not by a process: nothing has to live for them, and they end with their last handle, also when this
process is killed. git is started in them by `nsenter`; this process reaches the files through a handle of their top.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from supervisor.kernel.errors import HostError

MS_RDONLY = 0x1
HELPER = Path(__file__).parent / "backends" / "helper.py"


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
