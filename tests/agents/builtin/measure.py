"""How fast the built-in agent starts as a fork of a warm process, and what a turn of it costs beside a bare loop on the SDK.

    python -m tests.agents.builtin.measure

One line of JSON: `start_ms` from the fork to the first request at the provider, `turn_ms` between two requests whose tool does nothing,
`bare_turn_ms` the same of a loop that does no more than it must; medians, and `cpu` beside each is processor time of the agent's process.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anthropic

import agents.builtin.preload  # noqa: F401 - it is what is measured
from agents.builtin import prompt, run
from agents.builtin.records import Records
from supervisor.core.gateway.settings import Limits
from tests.gateway.simulator import Simulator
from tests.support import make_repository

RUNS, TURNS = 15, 30
COMMAND = {"command": "true"}


def forked(work: Callable[[], object]) -> tuple[float, float]:
    """When the fork was asked for (monotonic seconds), and the processor time that it took."""
    began = time.monotonic()
    pid = os.fork()
    if pid == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        work()
        os._exit(0)
    _, _, used = os.wait4(pid, 0)
    return began, used.ru_utime + used.ru_stime


def agent(repo: Path) -> None:
    """One run of ours."""
    os.chdir(repo)
    sys.argv[1:] = []
    run.main(Records(os.open(os.devnull, os.O_WRONLY), os.environ["NIGHTCREW_OUT"]), os.environ)


async def _bare() -> None:
    async with anthropic.AsyncAnthropic(max_retries=0) as client:
        messages: list[dict[str, Any]] = [{"role": "user", "content": "Do it."}]
        while True:
            fixed = {"model": "claude-sonnet-5-5", "max_tokens": 16_000, "system": prompt.SYSTEM, "tools": prompt.TOOLS}
            body: dict[str, Any] = {**fixed, "messages": messages}
            async with client.messages.stream(**body) as stream:
                answer = await stream.get_final_message()
            calls = [block for block in answer.content if block.type == "tool_use"]
            if not calls:
                return
            messages.append({"role": "assistant", "content": [block.to_dict() for block in answer.content]})
            done = subprocess.run(["bash", "-c", "true"], capture_output=True, text=True, check=False)
            results = [{"type": "tool_result", "tool_use_id": call.id, "content": done.stdout} for call in calls]
            messages.append({"role": "user", "content": results})


def main() -> dict[str, float]:
    """All figures, in milliseconds."""
    gc.collect()
    gc.freeze()
    with tempfile.TemporaryDirectory() as place, Simulator(limits=Limits(rpm=10**6, itpm=10**9, otpm=10**9)) as sim:
        repo = make_repository(Path(place, "repo"))
        Path(place, "prompt").write_text("Do it.")
        own = {"NIGHTCREW_PROMPT_FILE": f"{place}/prompt", "NIGHTCREW_OUT": place}
        os.environ.update(ANTHROPIC_BASE_URL=sim.url, ANTHROPIC_AUTH_TOKEN="t", **own)
        starts = []
        for _ in range(RUNS):
            sim.faults(text="Done.", times=1)
            began, cpu = forked(lambda: agent(repo))
            starts.append((sim.last()[-1]["at"] - began, cpu))
        (turn, turn_cpu), (bare, bare_cpu) = _turns(sim, lambda: agent(repo)), _turns(sim, lambda: asyncio.run(_bare()))
    start, whole_cpu = (statistics.median(column) for column in zip(*starts, strict=True))
    figures = {"start": start, "whole_run_cpu": whole_cpu, "turn": turn, "turn_cpu": turn_cpu, "bare_turn": bare, "bare_turn_cpu": bare_cpu}
    return {f"{name}_ms": round(seconds * 1000, 1) for name, seconds in figures.items()}


def _turns(sim: Simulator, work: Callable[[], object]) -> tuple[float, float]:
    """Median seconds from request to request, and mean processor time of a turn."""
    sim.faults(tool="bash", tool_input=COMMAND, times=TURNS)
    sim.faults(text="Done.", times=1)
    _, cpu = forked(work)
    at = [entry["at"] for entry in sim.last()[-TURNS - 1 :]]
    sim.clear()
    return statistics.median(later - earlier for earlier, later in itertools.pairwise(at)), cpu / (TURNS + 1)


if __name__ == "__main__":
    print(json.dumps(main()))
