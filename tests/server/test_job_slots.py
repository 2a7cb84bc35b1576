"""What takes long keeps nobody waiting; what does not takes its turn."""

from __future__ import annotations

import asyncio

import pytest

from supervisor.server.attempts.jobs import JobSlots


def test_a_slow_job_holds_up_nobody() -> None:
    async def hold(over: asyncio.Event) -> str:
        await over.wait()
        return "done"

    async def quick() -> str:
        return "quick"

    async def run() -> list[str]:
        turns, over = JobSlots(2, 0.01), asyncio.Event()
        slow = [asyncio.ensure_future(turns.run(hold, over)) for _ in range(20)]
        assert await turns.run(quick) == "quick"
        over.set()
        return await asyncio.gather(*slow)

    assert asyncio.run(asyncio.wait_for(run(), 60)) == ["done"] * 20


def test_no_more_than_that_many_run_at_once() -> None:
    async def run() -> int:
        turns, alive, most = JobSlots(3, 3600), 0, 0

        async def job() -> None:
            nonlocal alive, most
            alive += 1
            most = max(most, alive)
            for _ in range(5):
                await asyncio.sleep(0)
            alive -= 1

        await asyncio.gather(*(turns.run(job) for _ in range(30)))
        return most

    assert asyncio.run(run()) == 3


def test_an_error_is_raised_and_gives_the_turn_back() -> None:
    async def fail() -> None:
        raise ValueError

    async def run() -> None:
        turns = JobSlots(1, 3600)
        for _ in range(3):
            with pytest.raises(ValueError):
                await turns.run(fail)

    asyncio.run(run())


def test_a_cancelled_job_is_cancelled() -> None:
    async def run() -> None:
        turns, began, ended = JobSlots(1, 3600), asyncio.Event(), asyncio.Event()

        async def job() -> None:
            began.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

        task = asyncio.ensure_future(turns.run(job))
        await began.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await ended.wait()

    asyncio.run(asyncio.wait_for(run(), 60))


def test_one_that_is_cancelled_before_its_turn_never_begins() -> None:
    async def run() -> list[str]:
        turns, over, begun = JobSlots(1, 3600), asyncio.Event(), list[str]()

        async def job(name: str) -> None:
            begun.append(name)
            await over.wait()

        first, second = (asyncio.ensure_future(turns.run(job, name)) for name in ("first", "second"))
        while not begun:
            await asyncio.sleep(0)
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        over.set()
        await first
        return begun

    assert asyncio.run(asyncio.wait_for(run(), 60)) == ["first"]
