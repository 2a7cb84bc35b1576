"""The program of the built-in agent: the last line on standard output is its result, whatever happens to it.

Exit 0: the model ended its turn. 1: it could not. 2, 3: the settings are off. 130: the person ended it. 128 + n: stopped by signal n.
"""

from __future__ import annotations

import os
import signal
import sys

from agents import printing

if __name__ == "__main__":
    line_out = printing.claim()  # whatever prints from here on prints on stderr

    from agents.printing import Account, Ending, Records

    ending = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    signal.pthread_sigmask(signal.SIG_BLOCK, ending)  # until there is somebody to take it
    for number in ending:  # until `run` listens, which is seconds away where it starts cold
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    records = Records(line_out, os.environ.get("NIGHTCREW_OUT"))
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ending)
        from nightcrew.plugins.builtin import agent

        code = agent.main(records, os.environ)
    except SystemExit as error:  # of the handlers above
        code = error.code if isinstance(error.code, int) else 1
        records.result(Ending("error_during_execution", "terminated", f"stopped by signal {code - 128} at its start", code), Account())
    except BaseException as error:
        # A fault of ours. The result line is promised all the same; the traceback follows.
        records.result(Ending("error_during_execution", "crashed", f"{type(error).__name__}: {error}"), Account())
        raise
    sys.exit(code)
