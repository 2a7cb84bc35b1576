"""The gateway's process: hardened before it holds a key, alone in its home, on the same port as the one before it.

`python -m supervisor.gateway --home H --config C`.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from supervisor.gateway import lifecycle
from supervisor.gateway.lifecycle import Reading, clean_environment, harden
from supervisor.host import files
from supervisor.host.paths import Home
from supervisor.kernel.errors import NightcrewError


def main(args: Sequence[str]) -> int:
    """Run until SIGTERM, SIGINT or a stop. Returns the exit code; what kept it from starting is said on stderr."""
    _without_other_environment()
    parser = argparse.ArgumentParser(prog="supervisor.gateway")
    parser.add_argument("--home", type=Path, required=True, help="the state directory")
    parser.add_argument("--config", type=Path, required=True, help="the user's settings")
    given = parser.parse_args(args)
    home, config = Home(given.home.absolute()), given.config
    try:
        complaints = harden()
        files.private_dir(home.root)
        files.private_dir(home.run_dir)
        handle = lifecycle.lock(home)
        reading = Reading(config, home.keys)
        from supervisor.gateway.proxy import gateway  # late: it takes as long as the reading, which goes on meanwhile

        gateway.run(home, config, reading, complaints)
        os.close(handle)
    except NightcrewError as error:
        print(f"nightcrew gateway: {error.line()}", file=sys.stderr)
        return error.exit_code
    return 0


def _without_other_environment() -> None:
    """Begin again, as the same process, without the variables that are none of its business: a provider's key may be among them."""
    kept = clean_environment(os.environ)
    if kept is not None:
        os.execve(sys.executable, sys.orig_argv, kept)  # noqa: S606 - ourselves, with the same arguments


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
