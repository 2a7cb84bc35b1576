"""A simulated provider: a real HTTP server that limits, answers and fails as the real ones do, for tests, the demo and the benchmarks.

It costs nothing and no model runs: texts that nobody dictated begin with `[simulated]`, every answer has the header `x-simulated`.
`serve` runs it as a process of its own, `running` inside another one. Anthropic Messages, OpenAI Chat Completions and Responses, Gemini.

Controls (JSON): `POST /sim/faults` takes a list of `settings.Fault`, `POST /sim/clear` drops them, `POST /sim/release {"hold": name}`,
`POST /sim/limits {"rpm": ..., "class": ...}` changes the limits; `GET /sim/stats` tells what was asked and
what the buckets hold.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

from nightcrew.plugins.sim.account import label
from nightcrew.plugins.sim.faults import Fault
from nightcrew.plugins.sim.server import Running, running, serve_until_stopped
from nightcrew.plugins.sim.settings import SimSettings, WindowLimit

__all__ = ["Fault", "Running", "SimSettings", "WindowLimit", "label", "running", "serve"]


def _announce(url: str) -> None:
    print(json.dumps({"url": url, "simulated": True}), flush=True)


def serve(settings: SimSettings, announce: Callable[[str], None] = _announce) -> None:
    """Run one until SIGINT or SIGTERM. `announce` gets the URL once it listens; by default one line of JSON on stdout says it.

    Raises:
        OSError: the port is taken.
    """
    with asyncio.Runner(loop_factory=_fast_loop()) as runner:
        runner.run(serve_until_stopped(settings, announce))


def _fast_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
