"""What is lost when whoever holds a task is killed, 30 times: the same number of tasks, workers and kills for both queues.

Ours is the real path: a supervisor, and agents in sessions. Two of three kills hit the supervisor, the third a runner of an agent; the
supervisor is started again at once, as its next verb would. In the Redis queue a worker is both, so each kill hits one; it is started again
at once too. A task is lost when it was accepted and its result never comes.
"""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path

from supervisor.bench.queue import redis_queue
from supervisor.bench.supervised_run import SupervisedRun, until
from supervisor.bench.workspace import make_repository
from supervisor.core import records
from supervisor.core.spec import TaskSpec
from supervisor.host import processes

KILLS = 30
WORKERS = 4
WORK_S = 0.2
PAUSES_S = (0.05, 0.6)
"""Between two kills, drawn evenly."""


def ours(root: Path, tasks: int, kills: int, seed: int) -> int:
    """Tasks that nightcrew lost."""
    chance = random.Random(seed)  # noqa: S311 - moments, not secrets
    make_repository(root / "repo.git", seed, files=20)
    specs = [TaskSpec(f"t{number}", "no-op", "shell", ("sleep", str(WORK_S))) for number in range(tasks)]
    with SupervisedRun(root / "home", WORKERS) as run:
        accepted = run.submit(run.repository(root / "repo.git"), specs)
        for number in range(kills):
            time.sleep(chance.uniform(*PAUSES_S))
            if number % 3 or not _killed_a_runner(run, accepted, chance):
                run.kill()
                run.start()
        return tasks - sum(view.state == "done" for view in run.finished(accepted))


def _killed_a_runner(run: SupervisedRun, accepted: str, chance: random.Random) -> bool:
    for view in sorted(run.views(accepted), key=lambda _: chance.random()):
        if view.state == "running" and (record := run.home.attempt(view.id, view.epoch) / "started.json").exists():
            started = records.parse_started(record.read_text())
            if started is not None and processes.send(started.identity, signal.SIGKILL):
                return True
    return False


def of_redis(root: Path, port: int, tasks: int, kills: int, seed: int) -> int:
    """Tasks that the Redis queue lost. As with ours, whoever is killed is at work: a worker that is only starting loses nothing."""
    chance = random.Random(seed)  # noqa: S311 - as above
    with redis_queue.client(port) as queue:
        queue.flushall()
        redis_queue.hand_over(queue, tasks)
        workers = [redis_queue.Worker(port, root / f"started{number}", WORK_S) for number in range(WORKERS)]
        try:
            for number in range(kills):
                hit = chance.randrange(WORKERS)
                workers[hit].until_at_work()
                time.sleep(chance.uniform(*PAUSES_S))
                workers[hit].end()
                workers[hit] = redis_queue.Worker(port, root / f"started{WORKERS + number}", WORK_S)
            until(lambda: not any(one.lives for one in workers), "the workers to find nothing more")
        finally:
            for one in workers:
                one.end()
        return tasks - int(queue.hlen(redis_queue.RESULTS))
