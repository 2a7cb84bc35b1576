"""What is run in which order, and how much of it."""

from __future__ import annotations

import contextlib
import json
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from supervisor.bench.aims import Aim, rows
from supervisor.bench.figures import milli, quantile
from supervisor.bench.status import claude, crew
from supervisor.bench.status.claude import Talking
from supervisor.bench.status.crew import Size
from supervisor.bench.status.living import HOOKS_PER_S, Living
from supervisor.bench.supervised_run import SupervisedRun
from supervisor.bench.workspace import commit_all, machine, private_place
from supervisor.core.gateway.settings import Limits
from supervisor.gateway.sim.child import Simulator
from supervisor.host import files

Say = Callable[[str], None]
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
    turns: int = 15
    """Of each of its four sessions, and of a bare loop's."""
    crew: Size = field(default_factory=Size)


QUICK = Options(live=10, busy_s=5.0, pushes=20, hooks=10, texts=3, changes=4, starts=5, turns=10, crew=Size(agents=3, tools=2))
AIMS = (
    Aim("push_ms.p50", 150, name="a hook until `status` shows it, p50", unit="ms"),
    Aim("push_ms.p99", 1000, name="the same, p99", unit="ms"),
    Aim("poll_ms.p50", 1500, name="a session file until `status` shows it, p50", unit="ms"),
    Aim("poll_ms.p99", 1500, name="the same, p99", unit="ms"),
    Aim("live_agents", name="live agents"),
    Aim("cpu_percent", 3, name="the supervisor beside them, of one core", unit="%"),
    Aim("delivery_ms_p50", 300, name="a text until Claude Code has confirmed it", unit="ms"),
    Aim("hook_ms_p50", 10, name="a hook, of the agent's time", unit="ms"),
    Aim("builtin_start_ms_p50", 60, name="the built-in agent until its first request", unit="ms"),
    Aim("builtin_turn_overhead_ms_p50", 20, name="what it adds to a turn", unit="ms"),
    Aim("crew.agents", name="real Claude Code agents on one limit"),
    Aim("crew.failed_turns", 0, name="turns that failed"),
    Aim("crew.upstream_429", 0, name="requests that the provider refused"),
    Aim("crew.without_gateway.failed_turns", name="the same agents without a gateway: turns"),
    Aim("crew.without_gateway.upstream_429", name="requests"),
)


def measure(options: Options, under: Path | None, say: Say) -> dict[str, Any]:
    """The report of `nightcrew bench status`; docs/bench.md describes every key. What needs a client that is not installed is None.

    `under` is where the directory for it all is made (None: the system's temporary directory) and removed again. Raises what a tool or a
    task raises; nothing stays then either.
    """
    say(json.dumps(machine()))
    with private_place(under) as root:
        repo = root / "repo"
        files.private_dir(repo)
        (repo / "README").write_text("hello\n")
        commit_all(repo)
        report = _of_many(root, repo, options, say)
        say(f"the built-in agent: {options.starts} starts, {options.turns} turns")
        report |= _of_builtin(root, repo, options)
        binary = claude.binary()
        if binary is None:
            say("Claude Code is not installed: make clients. What needs it is not measured")
        return {**report, **_of_claude(root, repo, binary, options, say)}


def _of_many(root: Path, repo: Path, options: Options, say: Say) -> dict[str, Any]:
    say(f"{options.live} live agents")
    with SupervisedRun(root / "many", options.live) as run:
        living = Living(run, repo, files.private_dir(root / "living"), options.live)
        with contextlib.closing(living):
            say(f"for {options.busy_s:g} s they say nothing: {living.cpu_percent(options.busy_s, hooks=False):.2f} % of one core")
            say(f"for {options.busy_s:g} s each sends {HOOKS_PER_S:g} hooks a second")
            busy = living.cpu_percent(options.busy_s, hooks=True)
            say(f"{options.pushes} changes")
            pushes = living.push_s(options.pushes)
            ours, python = living.hook_s(options.hooks)
            say(f"a hook with the client in Python: {milli(python):.1f} ms")
    return {"push_ms": _quantiles(pushes), "live_agents": options.live, "cpu_percent": round(busy, 2), "hook_ms_p50": milli(ours)}


def _of_builtin(root: Path, repo: Path, options: Options) -> dict[str, Any]:
    place = files.private_dir(root / "builtin")
    shutil.copytree(repo, place / "repo")
    argv = [sys.executable, "-I", "-m", "supervisor.bench.status.builtin", str(place), str(options.starts), str(options.turns)]
    figures = json.loads(subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=True).stdout)
    return {
        "builtin_start_ms_p50": figures["start_ms"],
        "builtin_turn_overhead_ms_p50": round(figures["turn_ms"] - figures["bare_turn_ms"], 2),
    }


def _of_claude(root: Path, repo: Path, binary: Path | None, options: Options, say: Say) -> dict[str, Any]:
    if binary is None:
        return {"poll_ms": None, "delivery_ms_p50": None, "crew": None}
    say(f"Claude Code in a pane: {options.texts} texts, {options.changes} changes of its session file")
    with Simulator(needs_key=False, latency_s=TURN_S, limits=Limits()) as sim, claude.supervised(root / "talk", 1, binary, sim.url) as run:
        talking = Talking(run, repo, claude.variables(binary, root / "talk-home", repo))
        texts, changes = talking.delivery_s(options.texts), talking.poll_s(options.changes)
    said = {"poll_ms": _quantiles(changes), "delivery_ms_p50": milli(statistics.median(texts))}
    return {**said, "crew": _crew(root, repo, binary, options.crew, say)}


def _crew(root: Path, repo: Path, binary: Path, size: Size, say: Say) -> dict[str, Any]:
    found = {}
    for name, way in (("with", crew.through_nightcrew), ("without", crew.by_script)):
        say(f"{size.agents} Claude Code agents, {size.tools + 1} turns each, {name} the gateway")
        began = time.monotonic()
        found[name] = way(root / name, repo, binary, size)
        say(f"{time.monotonic() - began:.0f} s; the provider answered {found[name].answered} requests; {json.dumps(machine())}")
    shown = {name: {"failed_turns": one.failed_turns, "upstream_429": one.upstream_429} for name, one in found.items()}
    return {"agents": size.agents, **shown["with"], "without_gateway": shown["without"]}


def _quantiles(seconds: Sequence[float]) -> dict[str, float]:
    return {"p50": milli(statistics.median(seconds)), "p99": milli(quantile(seconds, 0.99))}


def table(report: Mapping[str, Any]) -> str:
    """The report for people."""
    return "\n".join(rows(AIMS, report))
