"""A crew that lives: each agent is a shell in a session of its own that runs the hook's client whenever it is told to, and nothing else."""

from __future__ import annotations

import itertools
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from agents import hook_client
from supervisor.bench.supervised_run import SupervisedRun, until
from supervisor.bench.workspace import busy_s
from supervisor.core.errors import ToolFailed
from supervisor.core.spec import TaskSpec
from supervisor.daemon import protocol

HOOKS_PER_S = 0.2
"""Of each agent while the crew is busy: a tool call, which is two hooks, in 10 s."""
LOOK_S = 0.005
"""Between two questions how an agent is: so exact is the time until that is known."""
_SAYS = {"Stop": "idle", "UserPromptSubmit": "working"}
_TOOL = {"tool_name": "Bash", "tool_input": {"command": "make test", "description": "Run the tests"}}
_EVENTS: Mapping[str, Mapping[str, Any]] = {
    "UserPromptSubmit": {"prompt": "Add discounts to prices.py, with tests."},
    "Stop": {"stop_hook_active": False},
    "PreToolUse": _TOOL,
    "PostToolUse": {**_TOOL, "tool_response": {"stdout": "x" * 2000, "stderr": "", "interrupted": False}},
}
_AGENT = 'while read -r event; do "$HOOK" "$event" < "$PLACE/$event"; done <> "$PLACE/orders"'


class Living:
    """`count` agents that are up; `root` is for what they read."""

    def __init__(self, run: SupervisedRun, repo: Path, root: Path, count: int) -> None:
        self._run = run
        self._hook = hook_client.program(root)
        self._places = [_place(root / f"living{number}") for number in range(count)]
        tasks = [
            TaskSpec(place.name, "", "shell", ("sh", "-c", _AGENT), params={"HOOK": str(self._hook), "PLACE": str(place)})
            for place in self._places
        ]
        self._orders = [os.open(place / "orders", os.O_RDWR) for place in self._places]  # both ends: writing never waits for a reader
        self.run_id = run.submit(run.repository(repo), tasks)
        until(lambda: all(view.attempt_state == "running" for view in run.views(self.run_id)), f"{count} agents to live")
        self._tasks = [view.id for view in run.views(self.run_id)]

    def push_s(self, samples: int) -> list[float]:
        """Seconds from the moment an agent is told to run its hook until the supervisor says the state that the hook means; the agents
        take turns. Raises TimedOut when it never does."""
        found = []
        for number, event in zip(range(samples), itertools.cycle(name for name in _SAYS for _ in self._tasks), strict=False):
            place = number % len(self._tasks)
            if number < len(self._tasks):  # so that each change is one
                self._tell(place, "UserPromptSubmit")
                until(partial(self._is, place, "working"), "an agent to work")
            began = time.monotonic()
            self._tell(place, event)
            until(partial(self._is, place, _SAYS[event]), "a hook to be heard", look_s=LOOK_S)
            found.append(time.monotonic() - began)
        return found

    def cpu_percent(self, seconds: float, *, hooks: bool) -> float:
        """What the supervisor takes of one core meanwhile, while every agent sends HOOKS_PER_S hooks a second, or none."""
        supervisor = psutil.Process(self._run.start())
        before, began = busy_s(supervisor), time.monotonic()
        turns = itertools.cycle((place, event) for event in ("PreToolUse", "PostToolUse") for place in range(len(self._tasks)))
        for number in itertools.count():
            due = began + number / (HOOKS_PER_S * len(self._tasks))
            if not hooks or due >= began + seconds:
                break
            time.sleep(max(0.0, due - time.monotonic()))
            self._tell(*next(turns))
        time.sleep(max(0.0, began + seconds - time.monotonic()))
        return 100 * (busy_s(supervisor) - before) / (time.monotonic() - began)

    def hook_s(self, samples: int) -> tuple[float, float]:
        """What one hook takes of an agent's time, median seconds: with the client that it has here, and with the one in Python."""
        env = next(self._environments())
        python = [sys.executable, "-I", "-S", str(Path(hook_client.__file__).with_name("client.py"))]
        return self._hook_s([str(self._hook)], env, samples), self._hook_s(python, env, samples)

    def _hook_s(self, argv: Sequence[str], env: Mapping[str, str], samples: int) -> float:
        event, taken = self._places[0] / "PreToolUse", []
        for _ in range(samples):
            with event.open("rb") as file:
                began = time.monotonic()
                subprocess.run([*argv, "PreToolUse"], stdin=file, env=env, check=True)
                taken.append(time.monotonic() - began)
        return statistics.median(taken)

    def close(self) -> None:
        """Nothing can be told to them any more; they live until their supervisor's side is ended."""
        for handle in self._orders:
            os.close(handle)

    def _environments(self) -> Iterator[dict[str, str]]:
        """Of processes of the first agent, token included."""
        for process in psutil.process_iter():
            try:
                env = process.environ()
            except psutil.Error:
                continue
            if env.get("PLACE") == str(self._places[0]) and "NIGHTCREW_TOKEN" in env:
                yield env
        raise ToolFailed("no agent of the crew lives", on=self.run_id)

    def _tell(self, place: int, event: str) -> None:
        os.write(self._orders[place], f"{event}\n".encode())

    def _is(self, place: int, state: str) -> bool:
        return any(piece["state"] == state for piece in evidence(self._run, self._tasks[place]))


def _place(path: Path) -> Path:
    """The events of one agent, with a session of its own, and the FIFO by which it is told of them."""
    path.mkdir()
    for name, event in _EVENTS.items():
        shape = {"session_id": path.name, "transcript_path": "/nowhere/own.jsonl", "cwd": "/nowhere", "hook_event_name": name, **event}
        (path / name).write_text(json.dumps(shape))
    os.mkfifo(path / "orders")
    return path


def evidence(run: SupervisedRun, task: str) -> list[dict[str, Any]]:
    """What `nightcrew status --explain` asks the supervisor: the evidence of what the agent says; none before it starts."""
    answer = protocol.call(run.home.daemon_socket, "evidence", {"attempts": [(task, 1)]})
    found: list[dict[str, Any]] = answer["agents"].get(task, {}).get("evidence", [])
    return found
