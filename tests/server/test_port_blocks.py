"""Free ports, on real sockets."""

from __future__ import annotations

import socket

from supervisor.server.attempts import launch


def test_a_port_that_somebody_listens_on_is_not_free_and_is_again_afterwards() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert not launch.is_free(port)
    assert launch.is_free(port)
