"""Waiting for an event."""

from __future__ import annotations

import asyncio

import pytest

from supervisor.server.wakeups import was_set

pytestmark = pytest.mark.asyncio


@pytest.mark.parametrize("steps", range(5))
async def test_a_cancellation_that_comes_with_the_wake_up_ends_the_wait(steps: int) -> None:
    event, goes_on = asyncio.Event(), list[bool]()

    async def wait() -> None:
        goes_on.append(await was_set(event, 3600))
        await asyncio.Event().wait()

    task = asyncio.create_task(wait())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    event.set()
    for _ in range(steps):
        await asyncio.sleep(0)
    task.cancel()
    for _ in range(10):
        await asyncio.sleep(0)
    assert task.cancelled()


async def test_it_ends_with_the_time() -> None:
    event = asyncio.Event()
    assert not await was_set(event, 0)
    event.set()
    assert await was_set(event, 0)
    assert await was_set(event, None)
