"""Inference engines on the person's own machines: what a person describes, and what the gateway is told of a running engine.

The supervisor starts and watches engines (`supervisor/features/engines`) and writes an `EngineRecord` for each. The gateway reads the
records: an engine is an upstream whose limit is its free slots.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from supervisor.kernel.names import Identity

Option = str | int | float | bool | list[str]
_NAME = re.compile(r"[a-z][a-z0-9_.-]*")
_OPTION = re.compile(r"-(?![\d.]+$)")
"""How a text begins that a program may take for an option; a negative number is none."""
_OURS = (
    " host hostnames port reuse-port uds api-key api-keys admin-api-key ssl cors config path public-path tools server-tools mcp ui-mcp"
    " webui-mcp agent middleware rpc grpc model model-path model-url models-dir models-preset hf-repo hf-file hf-token docker-repo offline"
    " slot-save-path served-model-name alias model-alias data-parallel-address data-parallel-rpc-port master-addr master-port"
    " dist-init-addr nccl-port"
)
"""Options that nightcrew gives, and those that would open an address, demand a key, download, or run tools and files of others. Parsers
take the beginning of a name for the name, so that no option may be one either."""
_ANY_ENDING = ("api-key-", "ssl-", "cors-", "mcp-", "server-tools-", "ui-mcp-", "webui-mcp-", "rpc-", "grpc-")


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

    @property
    def digest(self) -> str:
        """Changes when its process must be another one."""
        return hashlib.sha256(repr(replace(self, idle_s=0)).encode()).hexdigest()[:16]


def option_refusal(name: str, value: Option) -> str:
    """Return why a person may not set this option of an engine; empty when they may."""
    plain = name.replace("_", "-")
    if not _NAME.fullmatch(name):
        return "an option is written without its dashes, in lower case"
    if plain.startswith(_ANY_ENDING) or f" {plain}" in _OURS:
        return "nightcrew sets it: an engine listens on 127.0.0.1 alone, without a key, tools or downloads"
    if any(_OPTION.match(text) for text in (value if isinstance(value, list) else [str(value)])):
        return "its value begins with a dash: it would be another option"
    return ""


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
    kv_bytes: float = 0.0
    """Bytes that one token of a slot's context takes, as the engine or the file of weights says; 0: neither does."""
    identity: Identity | None = None
    """Its process; None for an adopted engine."""
    started_at: float = 0.0
    """Seconds since 1970."""
    settings: str = ""
    """`Engine.digest` of the settings with which it was started."""
    differences: tuple[str, ...] = ()
    """What it says otherwise than the settings asked, in words for a person."""
