"""LiteLLM's proxy, from an environment of its own (`make bench-peers` makes it): the one peer that can stand at the same place."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

from supervisor.bench.gateway.workspace import Server, running
from supervisor.core.errors import ToolFailed

KEY = "sk-nightcrew-bench-0123456789abcdef"
"""LiteLLM refuses to start with a weak master key."""
START_S = 180.0


def program() -> Path | None:
    """LiteLLM's command, when `make bench-peers` has installed it."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    found = Path(base) / "nightcrew" / "peers" / "litellm" / "bin" / "litellm"
    return found if found.exists() else None


@contextlib.contextmanager
def litellm(command: Path, folder: Path, url: str) -> Iterator[Server]:
    """The proxy with one worker before a provider at `url`, ready to serve. Raises ToolFailed when it does not come up."""
    port = _free_port()
    model = {"model": "anthropic/claude-sonnet-4-5", "api_base": url, "api_key": "sk-bench"}
    shape = {"model_list": [{"model_name": "claude-sonnet-4-5", "litellm_params": model}], "general_settings": {"master_key": KEY}}
    config = folder / "litellm.yaml"
    config.write_text(json.dumps(shape))  # JSON is YAML
    argv = [str(command), "--config", str(config), "--host", "127.0.0.1", "--port", str(port), "--num_workers", "1", "--telemetry", "False"]
    env = {**{name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}, "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    with running(argv, env, quiet=True) as process:
        deadline = time.monotonic() + START_S
        while not _answers(port):
            if time.monotonic() > deadline or process.poll() is not None:
                raise ToolFailed("LiteLLM did not come up", on=str(command), why=f"in {START_S:.0f} s")
            time.sleep(0.2)
        yield Server(process, port)


def _answers(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
    try:
        connection.request("GET", "/health/liveliness")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
