"""Test what the kernel reports of terminals."""

from __future__ import annotations

import contextlib
import os
import pty
from collections.abc import Iterator

import pytest

from supervisor.host import processes, procfs
from tests.support import wait_until

PROGRAM = ("sh", "-c", "sleep 600; :")
"""The shell and its child are one process group, which has the terminal."""


def has_child(started: tuple[int, int]) -> bool:
    return "sleep" in [processes.name(seen.pid) for seen in procfs.descendants(started[0])]


@contextlib.contextmanager
def programs(count: int) -> Iterator[list[tuple[str, int]]]:
    """As many programs with a terminal of their own: its path, and the pid of its leader."""
    started: list[tuple[int, int]] = []
    try:
        for _ in range(count):
            pid, handle = pty.fork()
            if pid == 0:
                os.execvp(PROGRAM[0], PROGRAM)  # noqa: S606 - in a forked child
            started.append((pid, handle))
        wait_until(lambda: all(map(has_child, started)), "them to run")
        yield [(os.readlink(f"/proc/{pid}/fd/0"), pid) for pid, _ in started]
    finally:
        for pid, handle in started:
            for seen in procfs.descendants(pid):
                procfs.send(seen, 9)
            os.kill(pid, 9)
            os.close(handle)
            os.waitpid(pid, 0)


def test_many_terminals_are_looked_at_by_one_read_of_proc_and_one_without_any(monkeypatch: pytest.MonkeyPatch) -> None:
    reads, table = 0, procfs.table

    def counted() -> dict[int, procfs.Seen]:
        nonlocal reads
        reads += 1
        return table()

    with programs(4) as started:
        monkeypatch.setattr(procfs, "table", counted)
        together = processes.groups()
        shared = [processes.look(path, pid, together) for path, pid in started]
        assert reads == 1
        assert [processes.look(path, pid) for path, pid in started] == shared
        assert reads == 1
        for (_, pid), seen in zip(started, shared, strict=True):
            assert seen is not None and seen.foreground == tuple(sorted([pid, *(child.pid for child in procfs.descendants(pid))]))
        assert len({seen.foreground for seen in shared if seen is not None}) == len(started)
