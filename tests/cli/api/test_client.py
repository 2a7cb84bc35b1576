"""`nightcrew.client`, the example that uses it, and kills between a submission and its answer."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from nightcrew.client import ApiError, AsyncClient, Client, Unreachable
from tests.cli.api.kit import Served
from tests.support import House, make_repository, wait_until

ROOT = Path(__file__).resolve().parents[3]


def test_a_task_by_the_client(served: Served, token: str) -> None:
    with Client(served.url, token) as crew:
        task = crew.submit(id="by-client", command="printf 'größer\\n'; echo more; echo x > f", key="c1")
        assert crew.submit(id="by-client", command="printf 'größer\\n'; echo more; echo x > f", key="c1").id == task.id
        assert "".join(crew.log(task.id)) == "größer\nmore\n"
        assert crew.wait(task.id, 60).is_done and crew.result(task.id).commits == 1
        assert task.id in {one.id for one in crew.tasks()} and crew.capacity().slots > 0 and not crew.cancel(task.id)
        with pytest.raises(ApiError, match="colour") as failed:
            crew.submit(colour="red")
        assert (failed.value.status, failed.value.errors[0]["field"]) == (422, "colour")
        long = crew.submit(id="long", command="sleep 60")
        with pytest.raises(TimeoutError):
            crew.wait(long.id, 0)
        assert crew.cancel(long.id) and crew.wait(long.id, 60).state == "cancelled"


def test_many_at_once_by_the_async_client(served: Served, token: str) -> None:
    async def work() -> None:
        async with AsyncClient(served.url, token) as crew:
            tasks = await asyncio.gather(*(crew.submit(id=f"at-once-{number}", command="echo x") for number in range(5)))
            ended = await asyncio.gather(*(crew.wait(task.id, 90) for task in tasks))
            assert [one.is_done for one in ended] == [True] * 5
            assert [text async for text in crew.log(tasks[0].id)] == ["x\n"]
            assert {one.id for one in tasks} <= {one.id async for one in crew.tasks()}
            assert (await crew.result(tasks[0].id)).commits == 0 and (await crew.capacity()).slots and not await crew.cancel(tasks[0].id)
            with pytest.raises(ApiError, match="404"):
                await crew.get("0101-aaaa/none")

    asyncio.run(work())


def test_the_example_of_a_ci_job(served: Served, token: str, tmp_path: Path) -> None:
    gate, what = "test -f mended", "echo working; touch mended"
    env = {
        **os.environ,
        "NIGHTCREW_URL": served.url,
        "NIGHTCREW_API_TOKEN": token,
        "CI_JOB_ID": "17",
        "NIGHTCREW_KIND": "shell",
        "PYTHONPATH": str(ROOT),
    }
    argv = [sys.executable, str(ROOT / "docs" / "examples" / "ci_job.py"), gate, what]
    done = subprocess.run(argv, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "working\n" in done.stdout and "done" in done.stdout and "mended" in (tmp_path / "mended.patch").read_text()
    again = subprocess.run(argv, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert again.stdout.splitlines()[0] == done.stdout.splitlines()[0], "the same job again is the same task"


def test_nobody_answers() -> None:
    with Client("http://127.0.0.1:1", "nck_x", patience_s=0.3) as crew, pytest.raises(Unreachable):
        crew.get("0101-aaaa/x")
    with pytest.raises(ValueError, match="not an address"):
        Client("ftp://x", "nck_x")


@pytest.mark.parametrize("who", ["supervisor", "server"])
def test_a_kill_between_submission_and_answer_makes_no_second_task(tmp_path: Path, who: str) -> None:
    served = Served(House(tmp_path, make_repository(tmp_path / "repo")))
    try:
        served.house.start_daemon()
        token = served.token("ci", "--unconfined")
        served.house.ok("down")
        daemon = served.house.start_daemon(die_at="submit.committed" if who == "supervisor" else "")
        served.start("--port", "0", die_at="api.submitted" if who == "server" else "")

        def revive() -> None:
            wait_until(lambda: daemon.poll() is not None if who == "supervisor" else served.died, f"the {who} to die")
            if who == "supervisor":
                served.house.start_daemon()
            else:
                served.stop()
                served.start()

        async def submit() -> str:
            async with AsyncClient(served.url, token) as crew:
                reviving = asyncio.create_task(asyncio.to_thread(revive))
                task = await crew.submit(id="once", command="true", key="job 1")
                await reviving
                return task.id

        name = asyncio.run(submit())
        assert [view.id for view in served.house.tasks()] == [name]
    finally:
        served.stop()
        served.house.reap()
