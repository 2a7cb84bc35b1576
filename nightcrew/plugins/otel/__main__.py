"""The exporter's process: `python -m nightcrew.plugins.otel --home HOME --config FILE`, started by the supervisor.

It ends when its standard input does, as it does with the supervisor, after one more look; what it says on standard output is for people.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import sys
import threading
import time
from pathlib import Path

from nightcrew.plugins.otel.export import Exporter, headers
from supervisor.config import user
from supervisor.host import files
from supervisor.host.paths import Home
from supervisor.kernel.errors import NightcrewError

LOCK_S = 10.0
"""An exporter whose supervisor died takes one more look, at most."""


def main() -> None:
    """Run until the supervisor goes."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--config", type=Path, required=True)
    asked = parser.parse_args()
    os.nice(10)
    over = threading.Event()
    threading.Thread(target=_wait_for_the_end, args=(over,), daemon=True).start()
    try:
        _run(Home(asked.home), asked.config, over)
    except NightcrewError as error:
        _say(error.line())
        sys.exit(1)


def _run(home: Home, config: Path, over: threading.Event) -> None:
    from nightcrew.plugins.otel.export import Post  # which imports OpenTelemetry

    terms = user.load_telemetry(config)
    post = Post(terms.endpoint, headers(terms, dict(os.environ)), content=terms.content)
    with home.telemetry_lock.open("wb") as held:
        deadline = time.monotonic() + LOCK_S
        while not files.try_lock(held.fileno()):
            if time.monotonic() > deadline:
                raise NightcrewError("spans are not sent", why="another exporter of the same state runs", on=str(home.telemetry_lock))
            time.sleep(0.05)
        fcntl.fcntl(held, fcntl.F_SETFD, fcntl.FD_CLOEXEC)
        exporter = Exporter(home, terms, post, time.time, _say)
        while not over.is_set():
            over.wait(exporter.step())
        exporter.step()


def _say(text: str) -> None:
    try:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()
    except OSError:  # the supervisor is gone; what it says is in no record anyway
        pass


def _wait_for_the_end(over: threading.Event) -> None:
    while os.read(0, 4096):
        pass
    over.set()


if __name__ == "__main__":
    main()
