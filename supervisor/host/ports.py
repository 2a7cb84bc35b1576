"""Whether a port of this machine is free."""

from __future__ import annotations

import socket


def is_free(port: int) -> bool:
    """Whether nobody listens there on 127.0.0.1 or on every address: found by taking it for a moment."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as trial:
        try:
            trial.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
