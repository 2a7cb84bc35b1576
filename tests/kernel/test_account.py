"""What an attempt took, and where its time went."""

from __future__ import annotations

import random

import pytest

from supervisor.kernel import codec
from supervisor.kernel.account import Gpu, Life, Measured, Span, Tree, Used, closed, covered

TREE = Tree(processes=3, memory=300, cpu_s=2.0, agent_cpu_s=0.5)


def test_looks_keep_the_most_and_the_newest() -> None:
    seen = Measured().after(TREE).after(Tree(2, 100, 1.5, 0.75))
    assert (seen.samples, seen.memory, seen.peak_memory, seen.processes, seen.peak_processes) == (2, 100, 300, 2, 3)
    assert (seen.cpu_s, seen.agent_cpu_s) == (2.0, 0.75), "a process whose parent never waited for it does not take its time back"
    assert (seen.peak_gpu_memory, seen.gpu_utilisation) == (None, None), "nobody measured it"


def test_what_a_tool_says_of_graphics_processors_is_kept_and_what_it_does_not_is_not() -> None:
    seen = Measured()
    for gpu in (None, Gpu(memory=10), Gpu(memory=30, utilisation=0.5), Gpu(utilisation=1.0), Gpu(memory=20)):
        seen = seen.after(Tree(1, 1, 0.0, 0.0, gpu))
    assert (seen.peak_gpu_memory, seen.gpu_utilisation, seen.gpu_samples) == (30, 0.75, 2)


def test_the_looks_survive_the_ledger() -> None:
    seen = Measured().after(TREE)
    assert Measured.of(codec.dumps(seen)) == seen
    assert Measured.of(None) == Measured()
    assert Measured.of('{"peak_memory": 7, "samples": 2, "wall_s": 3.5}') == Measured(samples=2, peak_memory=7), "of a later state"


LIFE = Life(
    queued=100.0,
    spawned=110.0,
    started=112.0,
    ended=212.0,
    model=((120.0, 140.0), (130.0, 150.0), (205.0, 300.0)),
    waited=((115.0, 125.0), (90.0, 113.0)),
    human_s=20.0,
    paused_s=5.0,
)


def test_the_time_is_accounted_for_once() -> None:
    account = closed(Measured().after(TREE), Used(cpu_s=3.0, process_memory=200, tokens=42), LIFE)
    assert {name: account[name] for name in ("slot_queue_s", "launch_s", "wall_s")} == {
        "slot_queue_s": 10.0,
        "launch_s": 2.0,
        "wall_s": 100.0,
    }
    parts = {name: account[name] for name in ("model_s", "token_queue_s", "human_s", "paused_s", "local_s")}
    assert parts == {"model_s": 37.0, "token_queue_s": 6.0, "human_s": 20.0, "paused_s": 5.0, "local_s": 32.0}
    assert sum(parts.values()) == account["wall_s"]
    assert (account["cpu_s"], account["agent_cpu_s"], account["tool_cpu_s"]) == (3.0, 0.5, 2.5)
    assert (account["peak_memory"], account["tokens"], account["samples"]) == (300, 42, 1)


def test_what_nobody_measured_is_not_there() -> None:
    account = closed(Measured(), Used(), Life(queued=5.0, spawned=9.0, started=None, ended=7.0))
    unknown = (
        "cpu_s",
        "tool_cpu_s",
        "agent_cpu_s",
        "tokens",
        "peak_memory",
        "peak_processes",
        "human_s",
        "peak_gpu_memory",
        "gpu_utilisation",
    )
    assert {name: account[name] for name in unknown} == dict.fromkeys(unknown)
    assert (account["wall_s"], account["slot_queue_s"], account["local_s"]) == (0.0, 4.0, 0.0), "a clock that went back takes nothing"


def test_all_processor_time_of_a_command_is_a_tools() -> None:
    account = closed(Measured().after(TREE), Used(cpu_s=3.0, all_tools=True), LIFE)
    assert (account["tool_cpu_s"], account["agent_cpu_s"]) == (3.0, None)


def test_one_large_process_between_two_looks_is_seen() -> None:
    assert closed(Measured().after(TREE), Used(process_memory=900), LIFE)["peak_memory"] == 900


@pytest.mark.parametrize("seed", range(5))
def test_spans_are_counted_once_wherever_they_lie(seed: int) -> None:
    rng = random.Random(seed)
    spans: list[Span] = [(start, start + rng.randint(0, 20)) for start in (rng.randint(-10, 110) for _ in range(rng.randint(0, 30)))]
    counted = sum(any(begin <= second < end for begin, end in spans) for second in range(100))
    assert covered(spans, (0, 100)) == counted, f"seed {seed}: {spans}"
