"""What drives a headless agent turn by turn: a small process beside the agent, in its sandbox, that gives it the prompt of its task and
then, at the end of each turn, the texts that people sent meanwhile. When a turn has ended and none waits, the agent's input is closed.

It is here, and not in the runner or in the supervisor, because the end of a turn is read from what the agent prints: the runner reads
nothing that an agent wrote, and a supervisor may be gone for hours while agents end.

agent.py      the agent's process: lines in, lines out, signals
streaming.py  Claude Code's `--input-format stream-json`: its lines are passed on as they are
acp.py        a client of the Agent Client Protocol (version 1, JSON-RPC 2.0 over stdio), and what it prints of a session
permissions.py  which of an ACP agent's requests for permission are granted

Run as `python -I -m agents.turns PROTOCOL [OPTION VALUE]... -- COMMAND`, with `claude` or `acp`.
"""
