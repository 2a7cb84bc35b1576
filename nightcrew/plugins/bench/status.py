"""`nightcrew bench status`: how soon a state is known, and what watching costs."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from agents import hook_client
from agents.agent_state import Source
from nightcrew.plugins.bench.crews import Busy, Say, SupervisedRun, children_cpu_s, commit_all, in_turns, until
from nightcrew.plugins.bench.figures import Aim, median_ms, quantiles_ms
from nightcrew.plugins.sim.child import Simulator
from supervisor.host import files
from supervisor.kernel.errors import ToolFailed
from supervisor.kernel.gateway_settings import Limits
from supervisor.kernel.spec import TaskSpec

# Living
# ------
# A crew that lives: each agent is a shell in a session of its own that runs the hook's client whenever it is told to, and nothing
# else.


HOOKS_PER_S = 0.2
"""Of each agent while the crew is busy: a tool call, which is two hooks, in 10 s."""
LIVING_LOOK_S = 0.005
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
        self._tasks = [view.id for view in run.living(repo, *tasks)]

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
            until(partial(self._is, place, _SAYS[event]), "a hook to be heard", look_s=LIVING_LOOK_S)
            found.append(time.monotonic() - began)
        return found

    def cpu_percent(self, seconds: float) -> float:
        """Return what the supervisor takes of one core while every agent sends HOOKS_PER_S hooks a second."""
        busy, began = Busy(self._run.process()), time.monotonic()
        turns = itertools.cycle((place, event) for event in ("PreToolUse", "PostToolUse") for place in range(len(self._tasks)))
        for number in itertools.count():
            due = began + number / (HOOKS_PER_S * len(self._tasks))
            if due >= began + seconds:
                break
            time.sleep(max(0.0, due - time.monotonic()))
            self._tell(*next(turns))
        time.sleep(max(0.0, began + seconds - time.monotonic()))
        return busy.percent()

    def hook_ms(self, samples: int) -> dict[str, float]:
        """Return the milliseconds that a hook takes of an agent's time, and of the processor: by the client of this machine and by the one
        in Python, in turns."""
        event, env = self._places[0] / "PreToolUse", self._environment()
        programs = {"hook": self._hook, "python_hook": hook_client.script(self._places[0])}
        found = in_turns({name: partial(_hook_s, program, event, env) for name, program in programs.items()}, samples)
        return {f"{name}_ms_p50": median_ms(wall for wall, _ in times) for name, times in found.items()} | {
            f"{name}_cpu_ms": median_ms(cpu for _, cpu in times) for name, times in found.items()
        }

    def close(self) -> None:
        """Nothing can be told to them any more; they live until their supervisor's side is ended."""
        for handle in self._orders:
            os.close(handle)

    def _environment(self) -> dict[str, str]:
        """Return the environment of a process of the first agent, token included."""
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                env = process.environ()
                if env.get("PLACE") == str(self._places[0]) and "NIGHTCREW_TOKEN" in env:
                    return env
        raise ToolFailed("no agent of the crew lives")

    def _tell(self, place: int, event: str) -> None:
        os.write(self._orders[place], f"{event}\n".encode())

    def _is(self, place: int, state: str) -> bool:
        return any(piece["state"] == state for piece in evidence(self._run, self._tasks[place]))


def _hook_s(program: Path, event: Path, env: Mapping[str, str]) -> tuple[float, float]:
    before, began = children_cpu_s(), time.monotonic()
    with event.open("rb") as file:
        subprocess.run([str(program), event.name], stdin=file, env=env, check=True)
    return time.monotonic() - began, children_cpu_s() - before


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
    answer = run.ask("evidence", attempts=[(task, 1)])
    found: list[dict[str, Any]] = answer["agents"].get(task, {}).get("evidence", [])
    return found


# Claude
# ------
# The real Claude Code, as `make clients` installs it, before a simulated provider: it uses no account and no network.


MODEL = "claude-opus-5-5"
CLAUDE_LOOK_S = 0.02
"""Between two looks at what its session file says. A turn here takes ten times as long."""


def binary_claude() -> Path | None:
    """The one on PATH, or else the one of `make clients`."""
    base = os.environ.get("NIGHTCREW_CLIENTS") or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "nightcrew/clients")
    own = Path(base, "node_modules", ".bin", "claude")
    found = shutil.which("claude") or (own if own.exists() else None)
    return Path(found) if found is not None else None


def variables(binary: Path, home: Path, repo: Path) -> dict[str, str]:
    """For a task: a PATH with it, and a home in which it has seen its first screens and trusts `repo`; made when it is not there."""
    files.private_dir(files.private_dir(home) / ".claude")
    seen = {"hasCompletedOnboarding": True, "theme": "dark", "projects": {str(repo): {"hasTrustDialogAccepted": True}}}
    (home / ".claude.json").write_text(json.dumps(seen))
    return {"HOME": str(home), "PATH": f"{binary.parent}:{os.environ['PATH']}"}


def supervised(root: Path, slots: int, binary: Path, url: str) -> SupervisedRun:
    """A supervisor whose agents reach the provider at `url` through a gateway that was told nothing of its limits."""
    upstream = f'[upstream.sim]\napi = "anthropic"\nurl = "{url}"\nkey = "none"\n'
    return SupervisedRun(root, slots, f"{binary.parent}:{os.environ['PATH']}", upstream)


class Talking:
    """One that owns its pane and waits for a prompt."""

    def __init__(self, run: SupervisedRun, repo: Path, own: Mapping[str, str]) -> None:
        """`own`: its `variables`."""
        self._run = run
        task = TaskSpec("talking", "", "claude", (), own, prompt="Begin.", model=MODEL, interactive=True)
        self._task = run.living(repo, task)[0].id
        until(self._is_idle, "Claude Code to end its first turn")

    def delivery_s(self, samples: int) -> list[float]:
        """Seconds that the supervisor takes for one text each, from being asked until Claude Code has confirmed it."""
        found = []
        for number in range(samples):
            began = time.monotonic()
            self._send(f"Prompt {number}.")
            found.append(time.monotonic() - began)
            until(self._is_idle, "the turn to end")
        return found

    def poll_s(self, samples: int) -> list[float]:
        """Seconds from the moment that Claude Code's session file names as that of a change until the supervisor says the new state by that
        file alone; two changes a turn."""
        found: list[float] = []
        for number in range(samples // 2):
            seen = {self._by_file()[1]}
            typist = threading.Thread(target=self._send, args=(f"Look {number}.",))
            typist.start()
            while typist.is_alive() or not self._is_idle():
                state, at = self._by_file()
                if at not in seen and state:
                    found.append(time.time() - at)
                seen.add(at)
                time.sleep(CLAUDE_LOOK_S)
            typist.join()
        return found

    def _send(self, text: str) -> None:
        (one,) = self._run.ask("send", 30.0, tasks=[self._task], text=text, now=True, some=False)["deliveries"]
        if one["state"] != "confirmed":
            raise ToolFailed("a text was not confirmed", on=self._task, why=one["why"])

    def _by_file(self) -> tuple[str, float]:
        said = [piece for piece in evidence(self._run, self._task) if piece["source"] == Source.SESSION_FILE]
        return (said[0]["state"], said[0]["at"]) if said else ("", 0.0)

    def _is_idle(self) -> bool:
        """By its hooks and its file."""
        said = evidence(self._run, self._task)
        return len(said) > 1 and all(piece["state"] == "idle" for piece in said)


# Measure
# -------
# What is run in which order, and how much of it.


TURN_S = 0.3
"""Until the simulated provider answers: a turn is long enough to be seen."""


@dataclass(frozen=True, slots=True)
class Options:
    """How much is measured."""

    live: int = 50
    busy_s: float = 60.0
    """How long the crew lives without hooks, and again with them."""
    pushes: int = 300
    hooks: int = 100
    texts: int = 20
    changes: int = 40
    """Of what the session file says."""
    starts: int = 15
    """Of the built-in agent."""


QUICK = Options(live=10, busy_s=5.0, pushes=20, hooks=50, texts=3, changes=4, starts=5)
AIMS = (
    Aim("push_ms.p50", 150, name="a hook until `status` shows it, p50", unit="ms"),
    Aim("push_ms.p99", 1000, name="the same, p99", unit="ms"),
    Aim("poll_ms.p50", 1500, name="a session file until `status` shows it, p50", unit="ms"),
    Aim("poll_ms.p99", 1500, name="the same, p99", unit="ms"),
    Aim("live_agents", name="live agents"),
    Aim("cpu_percent", 3, name="the supervisor beside them, of one core", unit="%"),
    Aim("delivery_ms_p50", 300, name="a text until Claude Code has confirmed it", unit="ms"),
    Aim("hook_ms_p50", 10, name="a hook, of the agent's time", unit="ms"),
    Aim("python_hook_ms_p50", name="the same where there is no C compiler", unit="ms"),
    Aim("hook_cpu_ms", name="a hook, of the processor", unit="ms"),
    Aim("python_hook_cpu_ms", name="the same where there is no C compiler", unit="ms"),
    Aim("builtin_start_ms_p50", 60, name="the built-in agent until its first request", unit="ms"),
)


def measure(options: Options, root: Path, say: Say) -> dict[str, Any]:
    """Return the figures; docs/bench.md describes every key. What needs a client that is not installed is None. Raises what a tool or a
    task raises."""
    repo = root / "repo"
    files.private_dir(repo)
    (repo / "README").write_text("hello\n")
    commit_all(repo)
    report = _of_many(root, repo, options, say)
    say(f"the built-in agent: {options.starts} starts")
    report |= _of_builtin(root, repo, options)
    binary = binary_claude()
    if binary is None:
        say("Claude Code is not installed: make clients. What needs it is not measured")
    return {**report, **_of_claude(root, repo, binary, options, say)}


def _of_many(root: Path, repo: Path, options: Options, say: Say) -> dict[str, Any]:
    say(f"{options.live} live agents, each of which sends {HOOKS_PER_S:g} hooks a second for {options.busy_s:g} s")
    with SupervisedRun(root / "many", options.live) as run:
        living = Living(run, repo, files.private_dir(root / "living"), options.live)
        with contextlib.closing(living):
            busy = living.cpu_percent(options.busy_s)
            say(f"{options.pushes} changes")
            pushes = quantiles_ms(living.push_s(options.pushes))
            hooks = living.hook_ms(options.hooks)
    return {"push_ms": pushes, "live_agents": options.live, "cpu_percent": busy, **hooks}


def _of_builtin(root: Path, repo: Path, options: Options) -> dict[str, Any]:
    place = files.private_dir(root / "builtin")
    shutil.copytree(repo, place / "repo")
    argv = [sys.executable, "-I", "-m", "nightcrew.plugins.bench.builtin_start", str(place), str(options.starts)]
    return {"builtin_start_ms_p50": json.loads(subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=True).stdout)}


def _of_claude(root: Path, repo: Path, binary: Path | None, options: Options, say: Say) -> dict[str, Any]:
    if binary is None:
        return {"poll_ms": None, "delivery_ms_p50": None}
    say(f"Claude Code in a pane: {options.texts} texts, {options.changes} changes of its session file")
    with Simulator(needs_key=False, latency_s=TURN_S, limits=Limits()) as sim, supervised(root / "talk", 1, binary, sim.url) as run:
        talking = Talking(run, repo, variables(binary, root / "talk-home", repo))
        return {"delivery_ms_p50": median_ms(talking.delivery_s(options.texts)), "poll_ms": quantiles_ms(talking.poll_s(options.changes))}
