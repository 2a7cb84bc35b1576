"""Which attempt has which block of ports: nobody else gets it until the attempt is released."""

from __future__ import annotations

import socket

from supervisor.core import ports
from supervisor.ledger.ledger import Ledger

Key = tuple[str, int]


class PortBlocks:
    """The blocks of one supervisor's attempts, with those that the one before it gave away. Not thread safe."""

    def __init__(self, ledger: Ledger) -> None:
        self._held = {(row.task, row.epoch): row.port for row in ledger.unreleased() if row.port is not None}

    def take(self, key: Key) -> int | None:
        """The first port of its block, the same one every time; None when all blocks are taken."""
        if key not in self._held and (found := ports.block(set(self._held.values()), is_free)) is not None:
            self._held[key] = found
        return self._held.get(key)

    def give_back(self, key: Key) -> None:
        """Idempotent."""
        self._held.pop(key, None)


def is_free(port: int) -> bool:
    """Whether nobody listens there on 127.0.0.1 or on every address: found by taking it for a moment."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as trial:
        try:
            trial.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
