"""Prometheus and its tool, as `tools/setup.sh --tests` brings them, and a server for tests that scrapes what it is told to."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support import wait_until

ROOT = Path(__file__).resolve().parents[2]
OBSERVABILITY = ROOT / "docs" / "observability"


def tool(name: str) -> str:
    """Its path; the test is skipped where it is missing."""
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:{Path(sys.executable).parent}")
    if found is None:
        pytest.skip(f"no {name}: tools/setup.sh --tests brings it where apt-get can fetch Debian's")
    return found


def promtool(*words: str, text: str = "") -> subprocess.CompletedProcess[str]:
    """Run it."""
    return subprocess.run([tool("promtool"), *words], input=text, capture_output=True, text=True, check=False)


@dataclass(frozen=True, slots=True)
class Prometheus:
    """One that runs."""

    url: str

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The series of an expression now. Fails when it is no PromQL."""
        data = urllib.parse.urlencode({"query": expression}).encode()
        with urllib.request.urlopen(f"{self.url}/api/v1/query", data, timeout=30) as answer:  # noqa: S310 - ours
            found = json.loads(answer.read())
        assert found["status"] == "success", found
        result = found["data"]["result"]
        return list(result) if found["data"]["resultType"] == "vector" else [{"metric": {}, "value": result}]

    def value(self, expression: str) -> float | None:
        """Of the only series; None while there is none."""
        found = self.query(expression)
        return float(found[0]["value"][1]) if found else None


@contextlib.contextmanager
def prometheus(place: Path, jobs: Sequence[str], rules: Path) -> Iterator[Prometheus]:
    """One that scrapes every second. `jobs`: entries of `scrape_configs`."""
    place.mkdir()
    text = f"global:\n  scrape_interval: 1s\n  evaluation_interval: 1s\nrule_files: [{json.dumps(str(rules))}]\nscrape_configs:\n"
    (place / "prometheus.yml").write_text(text + "".join(jobs))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [
        tool("prometheus"), f"--config.file={place / 'prometheus.yml'}", f"--storage.tsdb.path={place / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn",
    ]  # fmt: skip
    with (place / "log").open("wb") as log:
        child = subprocess.Popen(words, cwd=place, stdout=log, stderr=log)
    try:
        made = Prometheus(f"http://127.0.0.1:{port}")
        wait_until(lambda: child.poll() is not None or made.query("vector(1)"), "Prometheus to be ready")
        assert child.poll() is None, (place / "log").read_text()
        yield made
    finally:
        child.kill()
        child.wait()
