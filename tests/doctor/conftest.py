"""A machine of files: its /proc, /sys and /run, its programs and its user's directories."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from supervisor.doctor.examine import CheckContext
from supervisor.host.paths import Home
from supervisor.kernel.settings import Settings


@dataclass
class Machine:
    """One that is well; each test breaks one thing of it."""

    root: Path
    limits: dict[int, tuple[int, int]] = field(default_factory=dict)
    environ: dict[str, str] = field(default_factory=dict)
    slots: int = 8
    mounts: list[tuple[str, str, str, str]] = field(default_factory=lambda: [("/dev/sda1", "/", "ext4", "rw,relatime")])

    def file(self, path: str, text: str) -> Path:
        """Write a file of the kernel's."""
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def program(self, name: str, script: str) -> Path:
        """A program on its PATH, of shell."""
        file = self.file(f"bin/{name}", f"#!/bin/sh\n{script}\n")
        file.chmod(0o755)
        return file

    def process(self, pid: int, *, threads: int = 1, environ: str = "", state: str = "S") -> None:
        """A process of ours."""
        self.file(f"proc/{pid}/status", f"Name:\tx\nUid:\t{os.getuid()}\t0\t0\t0\nThreads:\t{threads}\n")
        self.file(f"proc/{pid}/environ", environ)
        self.file(f"proc/{pid}/stat", f"{pid} (x) y) {state} 1 1 1\n")

    def systemd(self, cgroup: str, **answers: str) -> None:
        """systemd as init, and what its tools say about a property or a unit."""
        (self.root / "run/systemd/system").mkdir(parents=True)
        self.file("proc/self/cgroup", f"0::{cgroup}\n")
        said = "\n".join(f"*{key}*) echo '{text}'; exit;;" for key, text in answers.items())
        for tool in ("systemctl", "loginctl"):
            self.program(tool, f'echo "$*" >> {self.root}/asked\ncase "$*" in\n{said}\n*) echo "no answer to $*"; exit 1;;\nesac')

    def place(self, settings: Settings | None = None, *, tool_s: float = 10.0, agent_s: float = 10.0) -> CheckContext:
        """To be looked at."""
        return CheckContext(
            home=Home(self.root / "state"),
            config=self.root / "config.toml",
            cwd=self.root,
            environ={"PATH": str(self.root / "bin"), **self.environ},
            proc=self.root / "proc",
            sys=self.root / "sys",
            run=self.root / "run",
            rlimit=lambda number: self.limits.get(number, (resource.RLIM_INFINITY, resource.RLIM_INFINITY)),
            mounts=lambda: self.mounts,
            tool_s=tool_s,
            agent_s=agent_s,
            settings=replace(settings or Settings(), slots=self.slots),
        )


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A machine that is well."""
    made = Machine(tmp_path / "machine")
    made.file("proc/self/cgroup", "0::/\n")
    made.file("sys/fs/cgroup/cgroup.controllers", "cpu memory pids\n")
    (made.root / "bin").mkdir()
    return made


@pytest.fixture
def unlocked() -> Iterator[Callable[[Path], Path]]:
    """Takes a directory's permissions away, until the test is over."""
    changed: list[Path] = []

    def close(path: Path) -> Path:
        path.chmod(0o500)
        changed.append(path)
        return path

    yield close
    for path in changed:
        path.chmod(0o700)
