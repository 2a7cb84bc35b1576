"""The program of an analyst: one line on stdout and exit 0, or nothing on stdout, one sentence on stderr and the exit code of its error.

Exit 2: the environment is off, or git is missing. Exit 1: git or bandit failed or took too long. Exit 128 + n: stopped by signal n.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from agents import printing

if __name__ == "__main__":
    line_out = printing.claim()  # before anything else is imported: whatever prints from here on prints on stderr

    from nightcrew.plugins.analyze import analyst
    from nightcrew.plugins.analyze.analyst import Progress, read_parameters
    from supervisor.host.clock import SystemClock
    from supervisor.kernel.errors import NightcrewError
    from supervisor.results import findings

    for number in (signal.SIGINT, signal.SIGTERM):  # an exit like any other, so that a child does not outlive it
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    try:
        parameters = read_parameters(os.environ)
        facts = analyst.survey(parameters, Path.cwd(), Progress(parameters.perspective, SystemClock(), sys.stderr))
        printing.put(line_out, findings.write(facts))
    except NightcrewError as error:
        print(error.line(), file=sys.stderr)
        sys.exit(error.exit_code)
