"""`python -m nightcrew.plugins.sim SETTINGS` (JSON): for tests and benchmarks; people use `nightcrew gateway sim`."""

from __future__ import annotations

import json
import sys

from nightcrew.plugins.sim import serve
from nightcrew.plugins.sim.settings import SimSettings

if __name__ == "__main__":
    serve(SimSettings.from_json(json.loads(sys.argv[1])))
