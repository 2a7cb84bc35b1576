"""Blocks of ports: each agent has its own, also when another supervisor gives them away."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path

from tests.support import House, wait_until

SERVES = "echo $NIGHTCREW_PORTS > ports; while [ ! -e go ]; do sleep 0.05; done; echo $NIGHTCREW_PORT"


def block(house: House, name: str) -> int:
    house.ok("add", "--id", name, SERVES)
    wait_until(lambda: house.task(name).attempt_state == "running", f"{name} to run")
    said = Path(house.task(name).worktree or "", "ports")
    wait_until(lambda: said.exists() and said.read_text().endswith("\n"), f"{name} to say its ports")
    first, last = map(int, said.read_text().split("-"))
    assert last == first + 9 and house.task(name).port == first
    return first


def end(house: House, name: str) -> None:
    Path(house.task(name).worktree or "", "go").touch()
    wait_until(lambda: house.task(name).attempt_state == "released", f"{name} to be released")


def listen_in(first: int) -> socket.socket:
    """On one port of a block, whoever else is on another."""
    for port in range(first, first + 10):
        with contextlib.suppress(OSError):
            return socket.create_server(("127.0.0.1", port))
    raise AssertionError(f"no free port from {first}")


def test_every_agent_has_ports_of_its_own_until_it_is_released(house: House) -> None:
    daemon = house.start_daemon()
    first = block(house, "first")
    daemon.kill()
    daemon.wait()
    house.start_daemon()
    with listen_in(first + 10):
        second = block(house, "second")
    assert second not in (first, first + 10), "the other supervisor gave the first away, and somebody listens in the next one"
    assert f"{first}-{first + 9}" in house.ok("status", "first")
    end(house, "first")
    assert house.ok("logs", "first") == f"{first}\n"
    assert f"{first}-" not in house.ok("status", "first")
    third = block(house, "third")
    assert third != second and third <= first + 10, "the lowest that is free"
    for name in ("second", "third"):
        end(house, name)
