"""What a piece of Python does, counted and not timed: the same on every machine and at every load."""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Any


@dataclass(frozen=True, slots=True)
class Effort:
    """What one call took."""

    steps: int
    """Instructions of the interpreter. Loops inside functions written in C are not seen, but what they make is."""
    peak: int
    """Bytes that it had in memory at most, beyond what was there before."""


def effort(work: Callable[[], object]) -> Effort:
    """Call `work` twice, once for each count; it must do the same both times."""
    return Effort(steps(work), _peak(work))


def steps(work: Callable[[], object]) -> int:
    """Instructions of the interpreter that one call of `work` takes."""
    count = 0

    def trace(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal count
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def _peak(work: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        work()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
