"""What is run in which order, and how much of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from supervisor.bench.aims import Aim, rows
from supervisor.bench.queue import crowd, engine, kills, order, redis_queue
from supervisor.bench.queue.crowd import Crowd
from supervisor.bench.queue.engine import Size
from supervisor.bench.workspace import machine, private_place
from supervisor.host import files

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Options:
    """How much is measured."""

    seed: int = 1
    """Of the moments of kills, and of repositories."""
    engine: Size = field(default_factory=Size)
    kills: int = kills.KILLS
    killed_tasks: int = 300
    """Handed over before the kills, to each queue."""
    crowd: Crowd = field(default_factory=Crowd)


QUICK = Options(engine=Size(starts=100, attempts=500, rounds=1), kills=6, killed_tasks=60, crowd=Crowd(agents=10, rounds=1, samples=3))
AIMS = (
    Aim("enqueue_10k_s", 1.0, name="10,000 tasks accepted", unit="s"),
    Aim("start_ms.p50", name="a free slot until the next start is committed, p50", unit="ms"),
    Aim("start_ms.p99", 20, name="the same, p99, 10,000 waiting", unit="ms"),
    Aim("attempts_per_s", 300, at_least=True, name="no-op attempts: ledger, loop, fake doors", unit="/s"),
    Aim("decide_us.100", name="one decision beside 100 ready tasks", unit="us"),
    Aim("decide_us.10000", name="beside 10,000", unit="us"),
    Aim("lost_after_30_kills", 0, name="tasks lost over the kills"),
    Aim("burst.wait_p99_s", name="a burst of 200 a minute: the wait, p99", unit="s"),
    Aim("burst.drain_s", order.MEANS_S, name="drained after (all slots at work: the aim)", unit="s"),
    Aim("fair.share_2_to_1", 0.6, at_least=True, name="weights 2:1 give, of the first 300", unit=""),
    Aim("fair.lone_turnovers", 2, name="one task beside 10,000: slot turnovers", unit=""),
    Aim("fair.ageing_bound_s", name="the lowest task starts within", unit="s"),
    Aim("fair.worst_s", name="it started after, at worst", unit="s"),
    Aim("crowd.agents", name="busy agents"),
    Aim("crowd.status_ms.idle", name="`status` beside no agent", unit="ms"),
    Aim("crowd.status_ms.busy", name="beside them", unit="ms"),
    Aim("crowd.interactive_ms.idle", name="an interactive task beside no agent", unit="ms"),
    Aim("crowd.interactive_ms.busy", name="beside them", unit="ms"),
    Aim("crowd.batch_throughput_ratio", 0.97, at_least=True, name="their work, of what they would do unheld", unit="x"),
    Aim("redis.enqueue_per_s", name="the Redis queue: tasks accepted", unit="/s"),
    Aim("redis.claim_per_s", name="claims", unit="/s"),
    Aim("redis.lost_after_30_kills", name="tasks lost over the kills"),
)


def measure(options: Options, under: Path | None, say: Say) -> dict[str, Any]:
    """The report of `nightcrew bench queue`; docs/bench.md describes every key. What needs Redis is None where that is not installed.

    `under` is where the directory for it all is made (None: the system's temporary directory) and removed again. Raises what a tool or a
    task raises; nothing stays then either.
    """
    say(json.dumps(machine()))
    with private_place(under) as root:
        say(f"{options.engine.waiting:,} tasks, through ledger and loop with fake doors")
        report = engine.measure(files.private_dir(root / "engine"), options.engine)
        say("bursts and fairness, in virtual time")
        report |= {"burst": order.burst(), "fair": order.fair()}
        say(f"{options.kills} kills of supervisor and runners beside {options.killed_tasks} tasks")
        report["lost_after_30_kills"] = kills.ours(files.private_dir(root / "kills"), options.killed_tasks, options.kills, options.seed)
        report["redis"] = redis_beside(files.private_dir(root / "redis"), options, say)
        say(f"{options.crowd.agents} busy agents")
        report["crowd"] = crowd.measure(files.private_dir(root / "crowd"), options.seed, options.crowd)
        say(json.dumps(machine()))
    return report


def redis_beside(root: Path, options: Options, say: Say) -> dict[str, Any] | None:
    """The `redis` of the report; None where it is not installed, which is said."""
    if why := redis_queue.absent():
        say(f"the Redis queue is not measured: {why}")
        return None
    say(f"the Redis queue: {options.engine.waiting:,} tasks, {options.kills} kills of workers")
    with redis_queue.serving(files.private_dir(root / "server")) as port:
        return {
            "enqueue_per_s": round(redis_queue.enqueue_per_s(port, options.engine.waiting)),
            "claim_per_s": round(redis_queue.claim_per_s(port, options.engine.attempts)),
            "lost_after_30_kills": kills.of_redis(root, port, options.killed_tasks, options.kills, options.seed),
        }


def table(report: Mapping[str, Any]) -> str:
    """The report for people."""
    return "\n".join(rows(AIMS, report))
