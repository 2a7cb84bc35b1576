"""Inference engines on the person's own machines: what a person describes, and what the gateway is told of a running engine.

The supervisor starts and watches engines (`supervisor/features/engines`) and writes an `EngineRecord` for each. The gateway reads the
records: an engine is an upstream whose limit is its free slots.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from supervisor.kernel.names import Identity

Option = str | int | float | bool | list[str]


class EngineKind(StrEnum):
    """The program that serves the model."""

    LLAMACPP = "llamacpp"
    """llama.cpp's server: `llama-server` of PATH, or the package xllamacpp."""
    VLLM = "vllm"
    SGLANG = "sglang"
    ADOPTED = "adopted"
    """A server that the person runs, such as Ollama: nightcrew starts and stops nothing."""


@dataclass(frozen=True, slots=True)
class Engine:
    """`[engine.NAME]` of the person's settings."""

    name: str
    kind: EngineKind
    model: str = ""
    """A file of weights, or what the engine's command takes as a model. Never downloaded by nightcrew."""
    url: str = ""
    """Where an adopted engine answers; empty for an engine that nightcrew starts."""
    models: tuple[str, ...] = ()
    """The names by which agents ask for it."""
    slots: int = 4
    """Requests that it serves at once."""
    context: int = 8192
    """Tokens of one slot: prompt and answer together."""
    idle_s: float = 900.0
    """It is stopped after so long without a request; 0: never."""
    options: Mapping[str, Option] = field(default_factory=dict)
    """Passed on under the engine's own names."""


class EngineState(StrEnum):
    """What an engine's process does."""

    STOPPED = "stopped"
    STARTING = "starting"
    READY = "ready"
    FAILED = "failed"
    """It ended or never answered; it is tried again after a pause that grows."""


@dataclass(frozen=True, slots=True)
class EngineRecord:
    """What the supervisor knows of an engine now; the file `engines/NAME.json` of the state directory."""

    name: str
    state: EngineState
    why: str = ""
    """Why it failed, for a person."""
    url: str = ""
    """Where it answers while it is ready."""
    slots: int = 0
    """What the engine itself says, not what was asked for; so is `context`."""
    context: int = 0
    tools: bool = True
    """Its chat template takes tools."""
    identity: Identity | None = None
    """Its process; None for an adopted engine."""
    started_at: float = 0.0
    """Seconds since 1970."""
