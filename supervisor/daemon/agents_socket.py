"""`agents.sock`: what agents may ask of the supervisor. Each request carries the attempt's token, and ends with the attempt.

A token that is wrong, or whose attempt has ended, is refused; that is journalled with the pid that the kernel names, since it is either a
process that outlived its attempt or somebody who tries. The verbs of `daemon.sock` are not for agents, even where one has the same name.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

from supervisor.core import tokens
from supervisor.core.errors import HostError, Refused, UsageError
from supervisor.core.states import LIVING
from supervisor.daemon import protocol
from supervisor.daemon.loop import Loop
from supervisor.daemon.socket_server import SocketServer, Terms, Visitor
from supervisor.host.audit import Audit
from supervisor.host.paths import Home

TERMS = Terms(request_max=256 * 2**10, read_s=5.0, silent_max=256)
JOURNAL_S = 10.0
"""Between two lines about refusals: each is a commit, and who tries may try a thousand times a second."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One request of a living attempt. `args` is the agent's own text: nothing of it is to be believed."""

    loop: Loop
    task: str
    epoch: int
    args: dict[str, Any]


async def quota(asked: Asked) -> dict[str, Any]:
    """A ticket of a named quota, as the verb of the same name gives people; the tasks that wait take turns."""
    return await asked.loop.quotas.ask(asked.task, asked.args)


async def whoami(asked: Asked) -> dict[str, Any]:
    """The task, the epoch, the run, and what its plan says of its part of the limits."""
    spec = asked.loop.ledger.launch_row(asked.task).spec
    return {
        "task": asked.task,
        "epoch": asked.epoch,
        "run": asked.task.partition("/")[0],
        "class": str(spec.task_class),
        "weight": spec.weight,
        "tpm_max": spec.tpm_max or None,
        "cost_max": spec.cost_max or None,
        "tokens_max": spec.tokens_max or None,
    }


async def hook(asked: Asked) -> dict[str, Any]:
    """An event of the agent's command line: `name`, and `event`, the hook's input; null when it was too long to send."""
    name, event = asked.args.get("name"), asked.args.get("event")
    if not isinstance(name, str) or not (event is None or isinstance(event, dict)):
        raise UsageError("not an event", why="name is text, event is an object or null")
    if (other := asked.loop.evidence.speaker(event)) not in ("", asked.task) and other in asked.loop.crew.living:
        raise asked.loop.evidence.forged((asked.task, asked.epoch))
    asked.loop.evidence.hook((asked.task, asked.epoch), name, event)
    return {}


VERBS: Mapping[str, Callable[[Asked], Coroutine[Any, Any, dict[str, Any]]]] = {"hook": hook, "quota": quota, "whoami": whoami}
"""Each raises our errors."""


class AgentsSocket(SocketServer):
    """The socket of the agents."""

    def __init__(self, loop: Loop, home: Home, secret: bytes) -> None:
        super().__init__(home.agents_socket, TERMS, loop.alert)
        self._loop = loop
        self._secret = secret
        self._audit = Audit(home.audit, secret, loop.clock, "supervisor")
        self._refused_at = -JOURNAL_S
        self._unsaid = 0

    async def serve(self, line: bytes, visitor: Visitor) -> dict[str, Any]:
        """See `SocketServer.serve`."""
        verb, args, token = protocol.parse_agents(line)
        task, epoch = self._who(token, verb, visitor.pid)
        handle = VERBS.get(verb)
        if handle is None:
            raise UsageError("agents have no verb", on=verb, why=f"known: {', '.join(sorted(VERBS))}")
        return await visitor.until_gone(handle(Asked(self._loop, task, epoch, args)))

    def _who(self, token: str, verb: str, pid: int) -> tuple[str, int]:
        name = tokens.check(self._secret, token)
        row = self._loop.ledger.attempt(*name) if name is not None else None
        if name is None or row is None or row.end is not None or row.state not in LIVING:
            why = "its token is not one of ours" if name is None or row is None else "its attempt has ended"
            self._keep(name if row is not None else None, {"verb": verb[:40], "pid": pid, "why": why})
            raise Refused("not for you", on=verb[:40], why=why, hint="NIGHTCREW_TOKEN of a running attempt opens it")
        return name

    def _keep(self, name: tuple[str, int] | None, data: dict[str, Any]) -> None:
        now = self._loop.clock.monotonic()
        if now - self._refused_at < JOURNAL_S:
            self._unsaid += 1
            return
        more = {"more before": self._unsaid} if self._unsaid else {}
        self._refused_at, self._unsaid = now, 0
        task, epoch = name or (None, None)
        self._loop.ledger.journal(task, epoch, "refused at agents.sock", {**data, **more})
        with contextlib.suppress(HostError):  # it is in the journal already
            self._audit.note("refused at agents.sock", {"task": task, "epoch": epoch, **data, **more})
        self._loop.alert(f"agents.sock refused pid {data['pid']}: {data['why']}")
