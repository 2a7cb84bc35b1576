"""`agents.sock`: what agents may ask of the supervisor. Each request carries the attempt's token, and ends with the attempt.

A token that is wrong, or whose attempt has ended, is refused; that is journalled with the pid that the kernel names, since it is either a
process that outlived its attempt or somebody who tries. The verbs of `daemon.sock` are not for agents, even where one has the same name.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from supervisor.core import tokens
from supervisor.core.errors import Refused, UsageError
from supervisor.core.states import LIVING
from supervisor.daemon import protocol
from supervisor.daemon.agent_verbs import VERBS
from supervisor.daemon.agent_verbs.asked import Asked
from supervisor.daemon.agent_verbs.rate import AddRate
from supervisor.daemon.loop import Loop
from supervisor.daemon.mapping.desk import MapDesk
from supervisor.daemon.memory.desk import MemoryDesk
from supervisor.daemon.socket_server import SocketServer, Terms, Visitor
from supervisor.host.paths import Home

TERMS = Terms(request_max=256 * 2**10, read_s=5.0, silent_max=256, sandbox_max=64)
ASKED_MAX = 64
"""Requests of one attempt that may wait for their answers at one moment."""
JOURNAL_S = 10.0
"""Between two lines about refusals: each is a commit, and who tries may try a thousand times a second."""


class AgentsSocket(SocketServer):
    """The socket of the agents."""

    def __init__(self, loop: Loop, home: Home, secret: bytes, maps: MapDesk, memory: MemoryDesk) -> None:
        super().__init__(home.agents_socket, TERMS, loop.alert)
        self._loop = loop
        self._secret = secret
        self._maps, self._memory = maps, memory
        self._refused_at = -JOURNAL_S
        self._unsaid = 0
        self._asked: Counter[tuple[str, int]] = Counter()
        self._home, self._adds = home, AddRate()

    async def serve(self, line: bytes, visitor: Visitor) -> dict[str, Any]:
        """See `SocketServer.serve`."""
        verb, args, token = protocol.parse_agents(line)
        who = task, epoch = self._who(token, verb, visitor.pid)
        handle = VERBS.get(verb)
        if handle is None:
            raise UsageError("agents have no verb", on=verb, why=f"known: {', '.join(sorted(VERBS))}")
        if self._asked[who] >= ASKED_MAX:
            why = f"{ASKED_MAX} requests of this attempt wait for their answers"
            raise Refused("one request too many", on=verb, why=why, hint="let a request end, then ask again")
        asked = Asked(self._loop, task, epoch, args, self._home, self._adds, self._maps, self._memory)
        self._asked[who] += 1
        try:
            return await visitor.until_gone(handle(asked))
        finally:
            self._asked[who] -= 1
            if not self._asked[who]:
                del self._asked[who]

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
        self._loop.alert(f"agents.sock refused pid {data['pid']}: {data['why']}")
