"""Who has a token, or a session of the page, and no client library."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from tests.web.independent.wire import Reply, Wire


@dataclass(frozen=True)
class Attacker:
    """At one server's port, with the token of a program."""

    port: int
    token: str = ""

    @property
    def wire(self) -> Wire:
        return Wire(self.port)

    def api(self, method: str, path: str, body: Any = None, **headers: str) -> Reply:
        """`path` below /api/v1; `_` in the name of a header is `-`."""
        given = {"Authorization": f"Bearer {self.token}"} | {name.replace("_", "-"): value for name, value in headers.items()}
        data = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
        return self.wire.ask(method, f"/api/v1{path}", given, b"" if data is None and method == "POST" else data)

    def enter(self, address: str) -> dict[str, str]:
        """The headers of a session that a person began by the printed address."""
        reply = self.wire.ask("GET", address)
        key = re.search(rb"key=([0-9a-f]{64})", reply.body)
        assert reply.status == 200 and key, reply
        cookie = reply.headers["set-cookie"].partition(";")[0]
        return {"Cookie": cookie, "X-Nightcrew-Key": key[1].decode()}
