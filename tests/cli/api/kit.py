"""A supervisor and the server of the API beside it, and requests as any program would send them."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from supervisor.views.web import serving
from tests import warm
from tests.support import House, wait_until

JSON = {"Content-Type": "application/json"}


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back."""

    status: int
    headers: Mapping[str, str]
    data: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.data)

    @property
    def fields(self) -> set[str]:
        """Which fields a problem names."""
        assert self.headers["content-type"].startswith("application/problem+json"), self.data
        return {one["field"] for one in self.json.get("errors", [])}


class Served:
    """The server of one house."""

    def __init__(self, house: House) -> None:
        self.house = house
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *words: str, die_at: str = "") -> None:
        """Start it, and wait until it listens; after the first time at the same port."""
        env = {**self.house.env, **({"NIGHTCREW_DIE_AT": die_at} if die_at else {})}
        log = os.open(self.house.home.root.parent / "web.out", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._process = process = warm.start(("web", "--json", *words), self.house.repo, env, log, log, session=True)
        os.close(log)

        def up() -> bool:
            assert process.poll() is None, (self.house.home.root.parent / "web.out").read_text()
            known = serving.read(self.house.home)
            return known is not None and known.lives and known.identity is not None and known.identity.pid == process.pid

        wait_until(up, "the server to listen")

    def stop(self, number: int = signal.SIGKILL) -> None:
        """End it."""
        if self._process is not None:
            if self._process.poll() is None:
                os.kill(self._process.pid, number)
            self._process.wait(timeout=30)
            self._process = None

    @property
    def died(self) -> bool:
        return self._process is not None and self._process.poll() is not None

    @property
    def port(self) -> int:
        known = serving.read(self.house.home)
        assert known is not None
        return known.port

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def token(self, name: str = "ci", *words: str) -> str:
        """A new one."""
        return self.house.ok("token", "create", name, *words).strip()

    def ask(
        self, token: str, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None, *, raw: bytes | None = None
    ) -> Reply:
        """One request; `path` below `/api/v1`, or whole."""
        data = raw if raw is not None else json.dumps(body).encode() if body is not None else None
        given = {**({"Authorization": f"Bearer {token}"} if token else {}), **(JSON if method == "POST" else {}), **(headers or {})}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path if path.startswith("/api") else f"/api/v1{path}", data, given)
            answer = connection.getresponse()
            return Reply(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())
        finally:
            connection.close()

    def submit(self, token: str, key: str = "", **task: Any) -> Reply:
        return self.ask(token, "POST", "/tasks", {"command": "true", **task}, {"Idempotency-Key": key} if key else {})

    def events(self, token: str, last: str) -> Iterator[tuple[int, str]]:
        """The numbers and tasks of what happens after the event `last`."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request("GET", "/api/v1/events", headers={"Authorization": f"Bearer {token}", "Last-Event-ID": last})
            number = 0
            for line in connection.getresponse():
                name, _, value = line.decode().rstrip("\n").partition(": ")
                number = int(value) if name == "id" else number
                if name == "data":
                    yield number, json.loads(value)["task"]
        finally:
            connection.close()

    def wire(self, data: bytes) -> bytes:
        """Raw bytes, and what comes back until the server closes, or has said its first piece."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=30) as connection:
            connection.sendall(data)
            return connection.recv(65536)
