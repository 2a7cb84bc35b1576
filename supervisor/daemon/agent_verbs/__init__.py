"""What agents may ask at `agents.sock`, by verb. Each takes an `Asked` and raises our errors.

`add`, `list`, `wait`, `result`, `send` and `kill` are for agents that add tasks. They reach what that agent added, and what those added,
and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from supervisor.daemon.agent_verbs import add, children, lease, mail, map, mem, own
from supervisor.daemon.agent_verbs.asked import Asked

VERBS: Mapping[str, Callable[[Asked], Coroutine[Any, Any, dict[str, Any]]]] = {
    "add": add.add,
    "hook": own.hook,
    "kill": children.kill,
    "lease": lease.lease,
    "list": children.listed,
    "mail": mail.mail,
    "map": map.ask,
    "mem": mem.ask,
    "quota": own.quota,
    "result": children.result,
    "send": children.send,
    "wait": children.wait,
    "whoami": own.whoami,
}
