"""The program of a worker. Exit 0: its map needs it no more. Any other status says on stderr why it cannot go on."""

from __future__ import annotations

import os
import sys

from agents import printing

if __name__ == "__main__":
    printing.claim()  # nothing that a function prints is a result

    from supervisor.features.map.worker import worker
    from supervisor.kernel.errors import NightcrewError

    try:
        worker.work(os.environ)
    except NightcrewError as error:
        print(error.line(), file=sys.stderr)
        sys.exit(error.exit_code)
