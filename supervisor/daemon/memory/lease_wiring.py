"""The desk of the leases, with the doors of one supervisor."""

from __future__ import annotations

from collections.abc import Mapping

from supervisor.core.events import Event
from supervisor.daemon.loop import Loop
from supervisor.daemon.memory.leases import Doors, LeaseDesk
from supervisor.daemon.memory.waits import WaitDesk


def desk(loop: Loop, waits: WaitDesk) -> LeaseDesk:
    """It keeps what the ledger has, and tells the loop what agents hold."""

    def tell(event: Event) -> None:
        if loop.crew.lines.behind:  # a task may be able to start
            loop.events([event])
        else:
            loop.later(event)

    def journal(task: str, epoch: int, event: str, data: Mapping[str, object]) -> None:
        loop.ledger.journal(task, epoch, event, data)

    loop.jobs.lease_rule = loop.settings.memory.leases
    return LeaseDesk(Doors(loop.ledger.leases, loop.crew, waits, loop.clock, tell, journal), loop.settings.memory.leases)
