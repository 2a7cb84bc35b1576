"""The installed command's first lines. This import name is ours alone, so it can speak when `supervisor` is somebody else's.

`nightcrew.client` is for programs that use the task API.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path


def main() -> None:
    """Run the command line with our own packages, whatever PYTHONPATH and the current directory hold.

    Exits 2 with one line when the environment itself holds another `supervisor`; `supervisor.host.import_guard` checks the rest.
    """
    if os.environ.get("PYTHONPATH") and not sys.flags.isolated:
        os.execv(sys.executable, [sys.executable, "-I", "-m", "nightcrew", *sys.argv[1:]])  # noqa: S606 - no shell is the point
    ours = Path(__file__).resolve().parent.parent
    spec = importlib.util.find_spec("supervisor")
    origin = spec.origin if spec else None
    if origin is None or Path(origin).resolve() != ours / "supervisor" / "__init__.py":
        sys.exit(_refuse(origin or "supervisor", ours))
    if sys.argv[1:] == ["statusline"]:  # a prompt waits for it
        from supervisor.cli.summary import main as command
    else:
        from supervisor.cli.main import main as command

    command()


def _refuse(origin: str, ours: Path) -> int:
    sys.stderr.write(
        f"nightcrew: cannot start {origin}: Python takes the package supervisor from there and not from {ours}; "
        "next: install nightcrew in an environment of its own (uv tool install, pipx, make setup)\n"
    )
    return 2
