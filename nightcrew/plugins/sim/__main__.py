"""`python -m nightcrew.plugins.sim`: for tests and benchmarks; people use `nightcrew gateway sim`."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace

from nightcrew.plugins.sim import serve
from nightcrew.plugins.sim.settings import SimSettings


def main() -> None:
    """Read the arguments and serve."""
    parser = argparse.ArgumentParser(prog="simulated-provider")
    parser.add_argument("--port", type=int, help="on 127.0.0.1; 0 takes a free one")
    parser.add_argument("--settings", type=json.loads, default={}, help="JSON of SimSettings, or a part of it")
    given = parser.parse_args()
    settings = SimSettings.from_json(given.settings)
    serve(settings if given.port is None else replace(settings, port=given.port))


if __name__ == "__main__":
    main()
