"""The window of the day in which batch tasks start."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from supervisor.core.states import BatchTime


@dataclass(frozen=True, slots=True)
class Window:
    """From one minute of the day to another, over midnight when the end is the earlier one. By the clock on the wall: on the day on which
    it is set back, the window may be open for an hour longer or twice; see `batch_time` for the day on which it is set forward."""

    begin: int
    """Minutes after midnight."""
    end: int

    def holds(self, minute: int) -> bool:
        """Whether that minute of the day lies in it; the end does not."""
        if self.begin < self.end:
            return self.begin <= minute < self.end
        return minute >= self.begin or minute < self.end

    def __str__(self) -> str:
        return f"{self.begin // 60:02}:{self.begin % 60:02}-{self.end // 60:02}:{self.end % 60:02}"


def batch_time(window: Window | None, minutes: Iterable[int], *, when_idle: bool) -> BatchTime:
    """Whether batch tasks may start: in the window, and outside of it, or without one, when idle if that is asked. `minutes` of the day:
    the one that the clock shows, and for an hour after it was set forward also the one that it would show, so that a window which it
    leaps over opens all the same."""
    if window is not None and any(map(window.holds, minutes)):
        return BatchTime.ALWAYS
    if when_idle:
        return BatchTime.IDLE
    return BatchTime.ALWAYS if window is None else BatchTime.NEVER


def why_batch_waits(window: Window | None, now: BatchTime) -> str:
    """Why a batch task does not start, in a person's words; empty when the time is not the reason."""
    match now:
        case BatchTime.ALWAYS:
            return ""
        case BatchTime.IDLE:
            return "waits until no other task runs or waits" + (f", or for {window}" if window else "")
        case BatchTime.NEVER:
            return f"waits for {window}"
