"""The program of an analyst: one line on stdout and exit 0, or nothing on stdout, one sentence on stderr and the exit code of its error.

Exit 2: the environment is off, or git is missing. Exit 1: git or bandit failed or took too long. Exit 128 + n: stopped by signal n.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from agents.analysts import output

if __name__ == "__main__":
    line_out = output.claim()  # before anything else is imported: whatever prints from here on prints on stderr

    from agents.analysts import commands, survey
    from agents.analysts.parameters import read
    from agents.analysts.progress import Progress
    from supervisor.core.analysis import analyst_json
    from supervisor.core.errors import NightcrewError
    from supervisor.host.clock import SystemClock

    for number in (signal.SIGINT, signal.SIGTERM):  # an exit like any other, so that a child does not outlive it
        signal.signal(number, lambda number, _: commands.stop(number))
    try:
        parameters = read(os.environ)
        facts = survey.survey(parameters, Path.cwd(), Progress(parameters.perspective, SystemClock(), sys.stderr))
        output.put(line_out, analyst_json.write(facts))
    except NightcrewError as error:
        print(error.line(), file=sys.stderr)
        sys.exit(error.exit_code)
