"""The simulated provider for tests: as a process of its own (`Simulator`), or in the test's own loop (`running`, from the package)."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from nightcrew.plugins.sim import child
from nightcrew.plugins.sim.account import Tally
from nightcrew.plugins.sim.faults import Fault
from nightcrew.plugins.sim.server import Running, running
from nightcrew.plugins.sim.settings import SimSettings
from tests import warm
from tests.support import wait_until

__all__ = ["Fault", "Running", "SimSettings", "Simulator", "Tally", "running"]


class Simulator(child.Simulator):
    """`nightcrew.plugins.sim.child` describes it."""

    def _start(self, argv: list[str], stdout: int) -> subprocess.Popen[bytes]:
        return warm.start_program(argv, Path.cwd(), os.environ, stdout, 2)

    def wait_held(self, name: str, number: int = 1) -> None:
        """Until at least so many answers wait for `name`."""
        wait_until(lambda: self.stats()["held"].get(name, 0) >= number, f"{number} answers held by {name}")
