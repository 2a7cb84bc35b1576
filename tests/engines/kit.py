"""A home with engines, and a program that stands in for `llama-server`: the scripted engine, or one that fails as a test wants."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from supervisor.features.engines.service import EngineWatch
from supervisor.gateway import engines
from supervisor.host import files, processes
from supervisor.host.clock import SystemClock
from supervisor.host.paths import Home
from supervisor.kernel.engines import Engine, EngineKind, EngineState
from tests.support import wait_until

ROOT = Path(__file__).parents[2]

_SERVER = """#!{python}
import asyncio, pathlib, socket, sys
sys.path.insert(0, {root!r})
from tests.engines import scripted

mode = pathlib.Path({mode!r}).read_text()
port = int(sys.argv[sys.argv.index("--port") + 1])
print("argv", *sys.argv[1:], flush=True)
if mode == "corrupt":
    sys.exit("0.00 E llama_model_load_from_file_impl: failed to load model")
if mode == "taken":
    other = socket.create_server(("127.0.0.1", port))
if mode == "fewer":
    sys.argv += ["--parallel", "1", "--ctx-size", "512"]

async def held() -> None:
    async with scripted.scripted(port=port) as engine:
        engine.tokens.close()
        await engine.tokens.let(2)
        await asyncio.Event().wait()

asyncio.run(held()) if mode == "held" else scripted.main()
"""


@dataclass(frozen=True)
class Llama:
    """The stand-in, and where it lies."""

    bin: Path
    mode_file: Path

    def mode(self, word: str) -> None:
        """What it does from its next start on: `well`, `corrupt`, `taken`, `fewer`, `held`."""
        self.mode_file.write_text(word)

    @property
    def path(self) -> str:
        """A PATH on which it comes first."""
        return f"{self.bin}{os.pathsep}{os.environ['PATH']}"


def llama(place: Path) -> Llama:
    """Write the stand-in below `place`."""
    made = Llama(place / "bin", place / "mode")
    made.bin.mkdir()
    made.mode("well")
    program = made.bin / "llama-server"
    program.write_text(_SERVER.format(python=sys.executable, root=str(ROOT), mode=str(made.mode_file)))
    program.chmod(0o755)
    return made


class Engines:
    """Watches of engines in a home of their own; a test makes their steps."""

    def __init__(self, place: Path) -> None:
        self.home = Home(place / "home")
        files.private_dir(self.home.engines)
        self.weights = place / "weights.gguf"
        self.weights.write_bytes(b"GGUF")
        self.said: list[str] = []
        self._watches: list[EngineWatch] = []

    def engine(self, **more: Any) -> Engine:
        """`[engine.small]`."""
        shape = {
            "name": "small",
            "kind": EngineKind.LLAMACPP,
            "model": str(self.weights),
            "slots": 2,
            "context": 1024,
            "models": ("small",),
        }
        return Engine(**{**shape, "models": ("small",), **more})

    def watch(self, engine: Engine | None = None) -> EngineWatch:
        """A watch as a supervisor that begins now has it."""
        supervisor: Any = SimpleNamespace(home=self.home, loop=SimpleNamespace(clock=SystemClock()), alert=self.said.append)
        self._watches.append(EngineWatch(supervisor, engine or self.engine()))
        return self._watches[-1]

    def need(self, *, ago_s: float = 0.0) -> None:
        """A request used it so long ago."""
        file = engines.need_file(self.home, "small")
        file.touch()
        at = SystemClock().wall() - ago_s
        os.utime(file, (at, at))

    def until(self, watch: EngineWatch, state: EngineState) -> None:
        """Make steps until it is in that state."""

        def stepped() -> bool:
            watch.step()
            return watch.record.state is state

        wait_until(stepped, f"the engine to be {state}", 60, every_s=0.02)

    def living(self) -> list[int]:
        """Pids of the engine's processes."""
        return [who.pid for who in processes.tagged(engines.tag(self.home, "small"))]

    def record(self) -> Mapping[str, Any]:
        """The file as it is."""
        shape: Mapping[str, Any] = json.loads((self.home.engines / "small.json").read_bytes())
        return shape

    def log(self) -> str:
        """What the engine said."""
        return (self.home.engines / "small.log").read_text()

    def close(self) -> None:
        """End what is left."""
        for watch in self._watches:
            watch.leave()
        engines.stop(self.home, "small", None, 0.0)
