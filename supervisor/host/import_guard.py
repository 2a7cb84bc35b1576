"""Whether our packages are our own: `supervisor` and `agents` are import names of other distributions as well.

nightcrew lives in an environment of its own, so a clash means that something got in: a `.pth` file, or the process manager
`supervisor` or `openai-agents` installed beside it. Half of each would run, so the command line asks here first.
`nightcrew/__init__.py` looks after the two cases in which this file cannot be reached: PYTHONPATH, and a foreign `supervisor`.
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

from supervisor.kernel.errors import HostError

PACKAGES = ("supervisor", "agents", "memory", "worktrees")
_OTHERS = ("supervisor-", "openai_agents-")


def check_packages() -> None:
    """Do nothing when each of our packages comes from one directory and is alone there. Imports none of them.

    Raises HostError that names the path in the way and what to do about it.
    """
    home = Path(__file__).resolve().parents[2]
    for name in PACKAGES:
        spec = importlib.util.find_spec(name)
        origin = spec.origin if spec else None
        if origin is None or os.path.realpath(origin) != f"{home}/{name}/__init__.py":
            raise _clash(origin or name, f"Python takes the package {name} from there and not from {home}")
    for name in os.listdir(home):  # noqa: PTH208 - every command waits for this: a path for each file would be most of it
        if name.startswith(_OTHERS) and name.endswith(".dist-info"):
            raise _clash(str(home / name), "that distribution puts its files over nightcrew's")


def _clash(path: str, why: str) -> HostError:
    hint = "install nightcrew in an environment of its own (uv tool install, pipx, make setup)"
    return HostError("cannot start", on=path, why=why, kept="nothing was started", hint=hint)
