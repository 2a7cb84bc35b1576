"""How fast the built-in agent starts as a fork of a warm process, and what a turn of it costs beside a bare loop on the SDK.

    python -I -m nightcrew.plugins.bench.status.builtin DIRECTORY STARTS TURNS

One line of JSON: `start_ms` from the fork to the first request at the provider, `turn_ms` between two requests whose tool does nothing,
`bare_turn_ms` the same of a loop that does no more than it must; medians. A process of its own, since all that it has imported is forked.
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
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import anthropic

import nightcrew.plugins.builtin.preload  # noqa: F401 - it is what is measured
from agents import conversation
from agents.printing import Records
from nightcrew.plugins.bench.crews import in_turns
from nightcrew.plugins.builtin import agent as run
from nightcrew.plugins.sim.child import Simulator
from supervisor.kernel.gateway_settings import Limits

COMMAND = {"command": "true"}
ROUNDS = 4
"""The two take turns so often."""


def forked(work: Callable[[], object]) -> float:
    """Do it in a fork of this process, and wait for its end; when the fork was asked for, monotonic seconds."""
    began = time.monotonic()
    pid = os.fork()
    if pid == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        work()
        os._exit(0)
    os.waitpid(pid, 0)
    return began


def agent(repo: Path) -> None:
    """One run of ours."""
    os.chdir(repo)
    sys.argv[1:] = []
    run.main(Records(os.open(os.devnull, os.O_WRONLY), os.environ["NIGHTCREW_OUT"]), os.environ)


def _bare() -> None:
    """The least that is a loop."""
    asyncio.run(_loop())


async def _loop() -> None:
    async with anthropic.AsyncAnthropic(max_retries=0) as client:
        messages: list[dict[str, Any]] = [{"role": "user", "content": "Do it."}]
        while True:
            fixed = {"model": "claude-sonnet-5-5", "max_tokens": 16_000, "system": conversation.SYSTEM, "tools": conversation.TOOLS}
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


def measure(place: Path, runs: int, turns: int) -> dict[str, float]:
    """All figures, in milliseconds. `place`: a directory with a repository `repo`, for the rest that an agent needs."""
    gc.collect()
    gc.freeze()
    with Simulator(limits=Limits()) as sim:
        (place / "prompt").write_text("Do it.")
        own = {"NIGHTCREW_PROMPT_FILE": f"{place}/prompt", "NIGHTCREW_OUT": str(place)}
        os.environ.update(ANTHROPIC_BASE_URL=sim.url, ANTHROPIC_AUTH_TOKEN="t", **own)  # noqa: S106 - a simulated provider takes any
        starts = []
        for _ in range(runs):
            sim.faults(text="Done.", times=1)
            began = forked(lambda: agent(place / "repo"))
            starts.append(sim.last()[-1]["at"] - began)
        ours = partial(agent, place / "repo")
        taken = in_turns({"turn": partial(_gaps, sim, turns, ours), "bare_turn": partial(_gaps, sim, turns, _bare)}, ROUNDS)
    figures = {name: statistics.median(gap for gaps in rounds for gap in gaps) for name, rounds in taken.items()}
    return {f"{name}_ms": round(seconds * 1000, 2) for name, seconds in {"start": statistics.median(starts), **figures}.items()}


def _gaps(sim: Simulator, turns: int, work: Callable[[], object]) -> list[float]:
    """Seconds from each request to the next one."""
    sim.faults(tool="bash", tool_input=COMMAND, times=turns)
    sim.faults(text="Done.", times=1)
    forked(work)
    at: list[float] = [entry["at"] for entry in sim.last()[-turns - 1 :]]
    sim.clear()
    return [later - earlier for earlier, later in itertools.pairwise(at)]


if __name__ == "__main__":
    print(json.dumps(measure(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))))
