"""The built-in agent as a process in a repository of its own, against a simulated provider. It is forked, as the supervisor does it, from a
process of the tests that has imported it: starting cold takes seconds."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.gateway.simulator import Simulator
from tests.support import GIT_IDENTITY

KEY = "token-of-a"
_FORK = """
import json, os, sys
import nightcrew.plugins.builtin.preload
from agents.runner import warm
from agents.runner.warm import recognise
import gc
gc.freeze()
for line in sys.stdin:
    order = json.loads(line)
    pid = os.fork()
    if pid == 0:
        os.setsid()
        if order["tty"]:
            os.close(os.open(order["tty"], os.O_RDWR))  # the first terminal that a session's leader opens becomes its own
        for handle, (path, mode) in enumerate(zip(order["streams"], (os.O_RDONLY, os.O_WRONLY, os.O_WRONLY))):
            os.dup2(os.open(path, mode | (os.O_CREAT if mode else 0), 0o600), handle)
        os.chdir(order["cwd"])
        environment = {os.fsencode(k): os.fsencode(v) for k, v in order["env"].items()}
        argv = [os.fsencode(word) for word in (sys.executable, "-I", "-m", "nightcrew.plugins.builtin", *order["words"])]
        warm.run(recognise(argv, environment), argv, environment)
    print(pid, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""


class Forks:
    """The warm process; one agent at a time."""

    def __init__(self) -> None:
        self._running = 0
        self._process = subprocess.Popen([sys.executable, "-c", _FORK], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def start(self, **order: Any) -> int:
        """Fork an agent; its pid, which is also the group that it leads."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        self._running = self._number()
        return self._running

    def wait(self) -> int:
        """How the newest one ended: its exit status, negative for a signal."""
        status, self._running = self._number(), 0
        return status

    def end(self) -> None:
        """End the one that a failed test left."""
        if self._running:
            os.kill(self._running, signal.SIGTERM)
            self.wait()

    def _number(self) -> int:
        assert self._process.stdout is not None
        return int(self._process.stdout.readline())

    def close(self) -> None:
        """End it."""
        self._process.communicate(timeout=30)


@dataclass(frozen=True)
class Ran:
    """One run that ended."""

    code: int
    lines: list[dict[str, Any]]
    pane: str

    @property
    def result(self) -> dict[str, Any]:
        """The last line; there is exactly one of its kind."""
        assert [line["type"] for line in self.lines].count("result") == 1, self
        return self.lines[-1]

    @property
    def tool_results(self) -> list[dict[str, Any]]:
        """Every result of a tool, in order."""
        blocks = [block for line in self.lines if line["type"] == "user" for block in line["message"]["content"]]
        return [block for block in blocks if block["type"] == "tool_result"]


@dataclass
class Bench:
    """A repository, and what an agent in it is told."""

    repo: Path
    out: Path
    sim: Simulator
    forks: Forks
    env: dict[str, str] = field(default_factory=dict)
    pid: int = 0

    def tools(self, *calls: tuple[str, Mapping[str, Any]], **more: Any) -> None:
        """The next answer calls these tools."""
        (name, given), *others = calls
        self.sim.faults(tool=name, tool_input=given, more_tools=others, times=1, **more)

    def says(self, text: str = "Done.", **more: Any) -> None:
        """The next answer is this text."""
        self.sim.faults(text=text, times=1, **more)

    def start(self, prompt: str = "Do it.", *, words: tuple[str, ...] = (), tty: str = "", stdin: str = "/dev/null") -> None:
        """Begin to run; `tty` is the terminal that it is in."""
        self.out.mkdir(exist_ok=True)
        (self.out / "prompt.md").write_text(prompt)
        for name in ("stdout", "stderr"):
            (self.out / name).unlink(missing_ok=True)
        env = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.out),
            "ANTHROPIC_BASE_URL": self.sim.url,
            "ANTHROPIC_AUTH_TOKEN": KEY,
            "NIGHTCREW_OUT": str(self.out),
            **({"NIGHTCREW_PROMPT_FILE": str(self.out / "prompt.md")} if prompt else {}),
            **GIT_IDENTITY,
            **self.env,
        }
        streams = [stdin, str(self.out / "stdout"), str(self.out / "stderr")]
        self.pid = self.forks.start(env=env, cwd=str(self.repo), words=words, tty=tty, streams=streams)

    def signal(self, number: signal.Signals) -> None:
        """To the agent alone."""
        os.kill(self.pid, number)

    def pane(self) -> str:
        """What a person has seen so far."""
        return (self.out / "stderr").read_text() if (self.out / "stderr").exists() else ""

    def end(self) -> Ran:
        """Wait for its end."""
        code = self.forks.wait()
        return Ran(code, [json.loads(line) for line in (self.out / "stdout").read_text().splitlines()], self.pane())

    def run(self, prompt: str = "Do it.", **options: Any) -> Ran:
        """Run to the end."""
        self.start(prompt, **options)
        return self.end()
