"""The warm process: it has imported what agents need, and forks an attempt's runner, with the agent's modules in memory, in milliseconds.

    pane: client --SCM_RIGHTS--> zygote --fork--> runner (new session, the pane's terminal) --fork--> agent

The runner is the same as for any attempt: it claims the epoch, limits, waits and records. So the client or the zygote may die, and a
restarted supervisor adopts the attempt by its records. `__main__` is the zygote, `lifecycle` its outside, `client.c` and `client.py`
what runs in the pane, `zygote_protocol` what they speak.
"""

from agents.zygote.lifecycle import Child, Place, Record, Wanted, answers, build_client, find, pane_argv, program, start, stop

__all__ = ["Child", "Place", "Record", "Wanted", "answers", "build_client", "find", "pane_argv", "program", "start", "stop"]
