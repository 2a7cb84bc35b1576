"""Named places at which a test can kill this process, so that recovery is tried at every step and not only at lucky moments.

`NIGHTCREW_DIE_AT=name` makes the process kill itself with SIGKILL the first time that it passes `failpoint(name)`;
`NIGHTCREW_DIE_AT=name:3` the third time. Unset, a failpoint is one dictionary look-up.
"""

from __future__ import annotations

import os
import signal

_passed: dict[str, int] = {}


def failpoint(name: str) -> None:
    """Die here if the environment says so."""
    wanted = os.environ.get("NIGHTCREW_DIE_AT")
    if wanted is None:
        return
    at, _, count = wanted.partition(":")
    if at == name:
        _passed[name] = _passed.get(name, 0) + 1
        if _passed[name] == int(count or 1):
            os.kill(os.getpid(), signal.SIGKILL)
