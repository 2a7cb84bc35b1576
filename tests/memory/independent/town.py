"""A house with agents that do as a test tells them: commands in their own sandbox, requests with their token."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.memory.independent.door import Denied, ask
from tests.support import House, make_repository, plan_of, shell_task, wait_until

OBEYS = """
import json, os, subprocess, sys, time
out = os.environ["NIGHTCREW_OUT"]
def write(name, what):
    open(f"{out}/{name}.tmp", "w").write(json.dumps(what)); os.rename(f"{out}/{name}.tmp", f"{out}/{name}")
write("env", dict(os.environ))
count = 0
while not os.path.exists(f"{out}/leave"):
    if not os.path.exists(f"{out}/order-{count}"):
        time.sleep(0.01)
        continue
    argv = json.load(open(f"{out}/order-{count}"))
    argv = [word.replace("$NIGHTCREW_AGENT", os.environ["NIGHTCREW_AGENT"]) for word in argv]
    done = subprocess.run(argv, capture_output=True, stdin=subprocess.DEVNULL)
    write(f"done-{count}", [done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")])
    count += 1
"""
"""An agent that runs, in its sandbox, what files in its own output directory say."""


def until_denied(request: Callable[[int], object], most: int = 500) -> tuple[int, str]:
    """How often in a row it was granted, and the words that refused it at last."""
    for number in range(most):
        try:
            request(number)
        except Denied as error:
            return number, error.text
    raise AssertionError(f"{most} were granted")


class Agent:
    """A task that lives until the end of the test."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self.env, self.id, self.name = env, env["NIGHTCREW_TASK"], env["NIGHTCREW_TASK"].rpartition("/")[2]
        self._out, self._orders = Path(env["NIGHTCREW_OUT"]), itertools.count()

    def ask(self, verb: str, op: str, **args: Any) -> dict[str, Any]:
        """One request with its token, past the client."""
        return ask(self.env, verb, op=op, **args)

    def run(self, *argv: str) -> subprocess.CompletedProcess[str]:
        """A command where it lives; `$NIGHTCREW_AGENT` stands for its client."""
        number = next(self._orders)
        (self._out / f"order-{number}.tmp").write_text(json.dumps(argv))
        (self._out / f"order-{number}.tmp").rename(self._out / f"order-{number}")
        wait_until((self._out / f"done-{number}").exists, " ".join(argv)[:200])
        return subprocess.CompletedProcess(argv, *json.loads((self._out / f"done-{number}").read_text()))

    def client(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self.run("$NIGHTCREW_AGENT", *words)

    def leave(self) -> None:
        (self._out / "leave").touch()


class Town:
    """`agents` by name, each in the tier that is asked for."""

    def __init__(self, root: Path, tiers: Mapping[str, int], settings: str = "") -> None:
        self.house = House(root, make_repository(root / "repo"))
        self.agents: dict[str, Agent] = {}
        self._tiers, self._settings = tiers, settings

    def start(self) -> None:
        if self._settings:
            with self.house.config.open("a") as config:
                config.write(self._settings)
        self.house.start_daemon()
        python = [sys.executable, "-I", "-S", "-c", OBEYS]
        self.run_id = self.house.ok(
            "run", "-d", self.house.plan(plan_of([shell_task(name, python, sandbox=tier) for name, tier in self._tiers.items()]))
        ).split("/")[0]
        for name in self._tiers:
            env = self.house.home.root / "runs" / self.run_id / name / "1" / "out" / "env"
            wait_until(env.exists, f"agent {name}")
            self.agents[name] = Agent(json.loads(env.read_text()))
        (self.project,) = (self.house.home.root / "projects").iterdir()

    @property
    def memory(self) -> Path:
        return self.project / "memory"

    def person(self, *words: str) -> Any:
        """The answer to a command of the person."""
        return json.loads(self.house.ok(*words, "--json"))

    def text(self, path: str) -> str:
        """A note as a person is shown it; empty when there is none."""
        done = self.house.run("mem", "show", path, "--json")
        return json.loads(done.stdout)["text"] if done.returncode == 0 else ""

    def file(self, path: str, text: str) -> Path:
        """A note that a person saved with an editor."""
        place = self.memory / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
        return place
