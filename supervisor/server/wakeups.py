"""Waiting for an event, for so long at most."""

from __future__ import annotations

import asyncio


async def was_set(event: asyncio.Event, within_s: float | None) -> bool:
    """Wait until the event is set, or the time is over; without a time, for ever. Whether it is set.

    Not `asyncio.wait_for`: in Python 3.11 that swallows a cancellation which comes with the wake-up, so that who is cancelled goes on.
    """
    try:
        async with asyncio.timeout(within_s):
            return await event.wait()
    except TimeoutError:
        return event.is_set()
