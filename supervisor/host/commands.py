"""Run a command in a process group of its own, so that nothing of it is left when whoever runs it is stopped."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

_STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run(
    argv: Sequence[str], directory: Path, env: Mapping[str, str] | None = None, timeout_s: float | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Run it to its end; for the main thread. When this is interrupted, or `timeout_s` are over, its whole group is killed first.

    Raises OSError when it cannot be started, and subprocess.TimeoutExpired.
    """
    process = None
    try:
        with _signals_deferred():  # a stop inside Popen would leave a child that nobody knows
            process = subprocess.Popen(
                argv,
                cwd=directory,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                process_group=0,
            )
        out, err = process.communicate(timeout=timeout_s)
    except BaseException:  # its own children would go on
        if process is not None:
            _end_group(process)
        raise
    return subprocess.CompletedProcess(argv, process.returncode, out, err)


@contextlib.contextmanager
def _signals_deferred() -> Iterator[None]:
    """Handle signals that stop this process when the block is over."""
    came: list[int] = []
    try:
        with contextlib.ExitStack() as stack:
            for stop in _STOPS:
                before = signal.getsignal(stop)
                if callable(before):  # the others end us at once, or are ignored by the command as well
                    stack.callback(signal.signal, stop, before)
                    signal.signal(stop, lambda number, _: came.append(number))
            yield
    finally:
        for number in came[:1]:
            signal.raise_signal(number)


def _end_group(process: subprocess.Popen[bytes]) -> None:
    if process.returncode is None:  # not reaped, so the number is still its own
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    with contextlib.suppress(ProcessLookupError):
        while True:
            os.killpg(process.pid, 0)
            time.sleep(0.005)
