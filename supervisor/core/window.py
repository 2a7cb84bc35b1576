"""The window of the day in which batch tasks start."""

from __future__ import annotations

from dataclasses import dataclass

from supervisor.core.task import BatchTime


@dataclass(frozen=True, slots=True)
class Window:
    """From one minute of the day to another, over midnight when the end is the earlier one. By the clock on the wall: on the days on which
    it is set forward or back, the window is an hour shorter or longer."""

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


def batch_time(window: Window | None, minute: int, *, when_idle: bool) -> BatchTime:
    """Whether batch tasks may start at that minute of the day: in the window, and outside of it, or without one, when idle if that is
    asked."""
    if window is not None and window.holds(minute):
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
