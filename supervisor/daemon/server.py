"""`daemon.sock`: hands the requests of the command line to the handlers of their verbs. Only the user's own processes may ask."""

from __future__ import annotations

from typing import Any

from supervisor.core.errors import UsageError
from supervisor.daemon import protocol
from supervisor.daemon.handlers import ENDS_WITH_ITS_CLIENT, HANDLERS, land, map, memory
from supervisor.daemon.loop import Loop
from supervisor.daemon.mapping.desk import MapDesk
from supervisor.daemon.memory.desk import MemoryDesk
from supervisor.daemon.socket_server import SocketServer, Terms, Visitor
from supervisor.daemon.trains import TrainDesk
from supervisor.host.paths import Home

TERMS = Terms(request_max=protocol.MAX_REQUEST, read_s=30.0, silent_max=200, sandbox_max=64)


class Server(SocketServer):
    """The socket of the command line."""

    def __init__(self, loop: Loop, home: Home, maps: MapDesk, memory_desk: MemoryDesk, trains: TrainDesk) -> None:
        super().__init__(home.daemon_socket, TERMS, loop.alert)
        self._loop = loop
        self._maps, self._memory, self._trains = maps, memory_desk, trains

    async def serve(self, line: bytes, visitor: Visitor) -> dict[str, Any]:
        """See `SocketServer.serve`."""
        verb, args = protocol.parse(line)
        if verb == "map":
            return await map.handle(self._maps, args)
        if verb == "land":
            return await land.handle(self._trains, args)
        if (of_memory := memory.VERBS.get(verb)) is not None:
            return await visitor.until_gone(of_memory(self._memory, args))
        handler = HANDLERS.get(verb)
        if handler is None:
            raise UsageError("the supervisor knows no verb", on=verb, why=f"known: {', '.join(sorted(HANDLERS))}")
        work = handler(self._loop, args)
        return await (visitor.until_gone(work) if verb in ENDS_WITH_ITS_CLIENT else work)
