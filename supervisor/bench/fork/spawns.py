"""From an admitted task to the first line of its agent: forked from a memory snapshot, by either client, and started cold, in turns.

Everything takes the real path of a supervisor. All agents get their files from a snapshot, so what differs is how the process starts.
"""

from __future__ import annotations

import os
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from supervisor.bench.figures import milli
from supervisor.bench.fork.fixtures import AGENT, PRELOAD
from supervisor.bench.supervised_run import Agent, SupervisedRun
from supervisor.bench.workspace import in_turns
from supervisor.core.errors import ToolFailed
from supervisor.core.sandbox import Tier
from supervisor.core.snapshots import SnapshotKind, SnapshotSpec
from supervisor.core.spec import TaskSpec
from supervisor.host import files
from supervisor.host.sandbox import probing
from worktrees.repository import Repository

MB = 1e6
WARM, COLD = "warm", "files"
"""The snapshots: of memory and files, and of files alone."""


@dataclass(frozen=True, slots=True)
class _Variant:
    side: SupervisedRun
    repo: Repository
    task: TaskSpec


def measure(fast: SupervisedRun, source: Path, rounds: int, crew: int, bursts: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """The figures of `spawn` for agents in the repository `source`, and what was used: the client.

    `rounds` agents of each kind one at a time; `bursts` times `crew` of them at once. Raises ToolFailed when one that was to be warm was
    not, or the other way round; what tasks raise.
    """
    root = fast.home.root.parent
    with SupervisedRun(root / "python", crew, _without_compiler(root / "blind")) as slow:
        variants = _variants(fast, slow, source)
        for variant in variants.values():
            _one(variant)  # not counted: it compiles the client, and reads everything from the disk
        seen = in_turns({name: partial(_one, variant) for name, variant in variants.items()}, rounds)
        ups, unshared = _bursts(variants["memory_tier0"], crew, bursts)
        client = "C" if list((fast.home.root / "bin").glob("client-*")) else "Python: there is no C compiler here"
    p50 = {name: milli(statistics.median(agent.up - agent.admitted for agent in agents)) for name, agents in seen.items()}
    figures = {
        "memory_tier0_ms_p50": p50["memory_tier0"],
        "memory_tier2_ms_p50": p50.get("memory_tier2"),
        "python_client_ms_p50": p50["python_client"],
        "cold_ms_p50": p50["cold"],
        "ratio": round(p50["cold"] / p50["memory_tier0"], 1),
        "all_50_s": round(statistics.median(ups), 3),
        "unshared_mb": round(statistics.median(unshared) / MB, 2),
    }
    return figures, {"client": client, "at_once": crew, "stages_ms": {name: _stages(agents) for name, agents in seen.items()}}


def _variants(fast: SupervisedRun, slow: SupervisedRun, source: Path) -> dict[str, _Variant]:
    memory = SnapshotSpec(WARM, kind=SnapshotKind.MEMORY, preload=PRELOAD)
    repos = {side: side.repository(source) for side in (fast, slow)}
    for side, repo in repos.items():
        side.snapshot(repo, memory)
    fast.snapshot(repos[fast], SnapshotSpec(COLD))
    agent = TaskSpec("agent", "agent", "shell", (sys.executable, "-I", AGENT))
    wanted: list[tuple[str, SupervisedRun, dict[str, Any]]] = [
        ("memory_tier0", fast, {"snapshot": WARM}),
        ("memory_tier2", fast, {"snapshot": WARM, "sandbox": int(Tier.OFFLINE)}),
        ("python_client", slow, {"snapshot": WARM}),
        ("cold", fast, {"snapshot": COLD}),
    ]
    tiers = probing.probe().tiers
    return {
        name: _Variant(side, repos[side], _agent(agent, name, keys)) for name, side, keys in wanted if Tier(keys.get("sandbox", 0)) in tiers
    }


def _agent(agent: TaskSpec, name: str, keys: dict[str, Any]) -> TaskSpec:
    return replace(agent, name=name.replace("_", "-"), **keys)


def _stages(agents: Sequence[Agent]) -> dict[str, float]:
    parts = [agent.stages for agent in agents]
    return {name: milli(statistics.median(part[name] for part in parts)) for name in parts[0]}


def _one(variant: _Variant) -> Agent:
    """One agent, alone, from its order to its end."""
    agents = variant.side.agents(variant.repo, variant.task)
    _check(variant, agents)
    variant.side.finish(agents)
    return agents[0]


def _bursts(variant: _Variant, crew: int, bursts: int) -> tuple[list[float], list[int]]:
    """Seconds from the first one's admission to the last one's first line, of each burst; bytes that each agent and its runner share
    with nobody."""
    ups, unshared = [], []
    for _ in range(bursts):
        agents = variant.side.agents(variant.repo, variant.task, crew)
        _check(variant, agents)
        ups.append(max(agent.up for agent in agents) - min(agent.admitted for agent in agents))
        unshared += [_unshared(agent) for agent in agents]
        variant.side.finish(agents)
    return ups, unshared


def _unshared(agent: Agent) -> int:
    runner = psutil.Process(agent.started.identity.pid)
    return sum(process.memory_full_info().uss for process in (runner, *runner.children(recursive=True)))


def _check(variant: _Variant, agents: Sequence[Agent]) -> None:
    wanted = variant.task.snapshot == WARM
    for agent in agents:
        if agent.warm is not wanted:
            words = ("cold", "warm") if wanted else ("warm", "cold")
            raise ToolFailed("an agent started {} that was to start {}".format(*words), on=agent.task)


def _without_compiler(directory: Path) -> str:
    """A PATH on which `cc` fails, as on a machine without one."""
    files.private_dir(directory)
    (directory / "cc").write_text("#!/bin/sh\nexit 1\n")
    (directory / "cc").chmod(0o700)
    return os.pathsep.join((str(directory), os.environ.get("PATH", os.defpath)))
