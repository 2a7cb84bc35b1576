"""What is done with an engine at one look, and what its log says of its end. Pure: the service tells what it saw.

stopped ──needed──> starting ──healthy──> ready ──idle, or other settings──> stopped
   ^                    │ ended                │ ended
   └── not needed ── failed <──────────────────┘      failed ──needed, after a pause that grows──> starting
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from supervisor.kernel.engines import Engine, EngineKind, EngineRecord, EngineState
from supervisor.kernel.errors import one_line


class Act(Enum):
    """What to do now."""

    START = auto()
    ASK = auto()
    """Ask whether it is healthy."""
    STOP = auto()
    BURY = auto()
    """It ended, and nobody stopped it: find out why."""
    REST = auto()


@dataclass(frozen=True, slots=True)
class Look:
    """What was seen of one engine."""

    engine: Engine
    record: EngineRecord
    alive: bool
    """Its process runs."""
    unused_s: float | None
    """Seconds since a request needed it; None: none has since it was stopped by a person, or ever."""
    may_start: bool
    """The pause after its last failure is over."""

    @property
    def needed(self) -> bool:
        """Whether a request used it not long ago."""
        return self.unused_s is not None and (self.engine.idle_s == 0 or self.unused_s < self.engine.idle_s)


def decide(look: Look) -> Act:
    """Return what is done now."""
    if look.alive:
        return Act.ASK if look.needed and look.record.settings == look.engine.digest else Act.STOP
    if look.engine.kind is EngineKind.ADOPTED:
        return Act.ASK
    if look.record.state in (EngineState.STARTING, EngineState.READY):
        return Act.BURY
    return Act.START if look.needed and look.may_start else Act.REST


# Answers
# -------
# What an engine says of itself is data: whatever is not of the expected shape counts as not said.


@dataclass(frozen=True, slots=True)
class Said:
    """What an engine says of itself; 0 and None: it does not say."""

    slots: int = 0
    context: int = 0
    tools: bool | None = None


def said(props: Any, models: Any, info: Any) -> Said:
    """Read the answers of `/props` (llama.cpp), `/v1/models` (all) and `/get_server_info` (SGLang)."""
    settings = _at(props, "default_generation_settings")
    caps = _at(props, "chat_template_caps")
    data = _at(models, "data")
    model = data[0] if isinstance(data, list) and data else None
    tools = _at(caps, "supports_tools")
    return Said(
        _number(_at(props, "total_slots")) or _number(_at(info, "max_running_requests")),
        _number(_at(settings, "n_ctx")) or _number(_at(model, "max_model_len")) or _number(_at(_at(model, "meta"), "n_ctx")),
        tools if isinstance(tools, bool) else None,
    )


def _at(shape: Any, key: str) -> Any:
    return shape.get(key) if isinstance(shape, Mapping) else None


def _number(value: Any) -> int:
    return value if type(value) is int and 0 < value < 2**31 else 0


def differences(engine: Engine, found: Said) -> tuple[str, ...]:
    """Return what the engine says otherwise than the settings ask, for a person."""
    asked = {"slots": (engine.slots, found.slots), "context of a slot": (engine.context, found.context)}
    differ = [f"{what}: {want} asked, {have} served" for what, (want, have) in asked.items() if have not in (0, want)]
    return (*differ, *(["the chat template takes no tools: requests with tools are refused"] if found.tools is False else []))


# Ends
# ----


_REASONS = (
    (r"no file at|no weights|No module named|is not installed|no option", ""),
    (r"address already in use|couldn't bind|failed to bind|cannot assign requested address", "another process has its port"),
    (r"out of memory|bad_alloc|failed to allocate|cannot allocate|OutOfMemory|KV cache.*larger", "it has not enough memory"),
    (r"failed to load model|invalid magic|not within the file bounds|safetensor|unknown model arch", "its weights cannot be loaded"),
)
_KILLED = -9
_LINE_MAX = 300


def reason(tail: str, code: int | None) -> str:
    """Return why an engine ended, for a person, from the end of its log and its exit status (negative: a signal; None: not known)."""
    lines = [line for line in map(one_line, tail.splitlines()) if line.strip()]
    for pattern, words in _REASONS:
        if line := next((line for line in lines if re.search(pattern, line, re.IGNORECASE)), ""):
            return f"{words}: {line[:_LINE_MAX]}" if words else line[:_LINE_MAX]
    ended = {None: "it ended", _KILLED: "it was killed (signal 9): the machine had no memory left, or somebody killed it"}
    return f"{ended.get(code, f'it ended with status {code}')}; its last line: {lines[-1][:_LINE_MAX] if lines else 'none'}"
