"""A house whose agents ask a simulated provider by a gateway."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from supervisor.client import protocol
from supervisor.gateway import lifecycle
from supervisor.host import files
from tests.gateway.kit import upstream
from tests.gateway.simulator import Simulator
from tests.support import House, wait_until

ASK = '''
"""Asks a model, and again while nobody answers; then says what it was told on one line."""
import json, os, sys, time, urllib.error, urllib.request

def ask(size):
    text = "hello " * size
    body = {"model": "claude-opus-4-8", "max_tokens": 50, "messages": [{"role": "user", "content": text}]}
    headers = {"authorization": "Bearer " + os.environ["ANTHROPIC_AUTH_TOKEN"], "content-type": "application/json"}
    request = urllib.request.Request(os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages", json.dumps(body).encode(), headers)
    while True:
        try:
            return json.load(urllib.request.urlopen(request, timeout=600))
        except (urllib.error.URLError, ConnectionError) as error:
            if getattr(error, "code", 503) not in (429, 503):
                raise
            time.sleep(0.05)

if __name__ == "__main__":
    if len(sys.argv) > 2:
        while not os.path.exists(sys.argv[2]):
            time.sleep(0.02)
    print(json.dumps(ask(int(sys.argv[1]))))
'''


@dataclass
class Models:
    """A house whose agents reach a simulated provider."""

    house: House
    sim: Simulator
    script: Path

    @property
    def ask(self) -> str:
        """The agent's command."""
        return f"{sys.executable} {self.script}"

    def settings(self, more: str = "", *, before: str = "", of_upstream: str = "") -> None:
        """The user's file."""
        files.private_dir(self.house.home.root)
        base = 'grace = "1s"\nsandbox = 0\n[limits]\ndisk_free_min = 0\n'
        self.house.config.write_text(f"{before}{base}{upstream(self.house.home, self.sim.url, more=of_upstream)}{more}")

    def start(self) -> subprocess.Popen[bytes]:
        """The daemon, and its gateway ready."""
        daemon = self.house.start_daemon()
        self.ready()
        return daemon

    def ready(self) -> lifecycle.Record:
        """Until agents can start."""
        wait_until(lambda: self.ping()["no_gateway"] == "", "the gateway to be ready")
        return self.record()

    def ping(self) -> dict[str, Any]:
        """What the daemon says of itself."""
        return protocol.call(self.house.home.daemon_socket, "ping", {}, timeout_s=30)

    def record(self) -> lifecycle.Record:
        """The gateway that lives."""
        found = self.house.gateway()
        assert found is not None, self.house.daemon_output()
        return found

    def another(self, before: lifecycle.Record) -> lifecycle.Record:
        """The one that lives instead of it."""
        wait_until(lambda: (now := self.house.gateway()) is not None and now.identity != before.identity, "another gateway")
        return self.ready()
