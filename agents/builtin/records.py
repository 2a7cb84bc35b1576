"""What the built-in agent says in JSON lines: on its standard output, and the same in its transcript.

One line a message in the API's own shape, as Claude Code's `stream-json` has them: `system` (`init`) first, then `assistant` and `user` by
turns, `result` last. Each has the session's id and a time (RFC 3339).
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agents.inbox import NUMBER
from supervisor.core.gateway.types import Usage
from supervisor.core.units import rfc3339

TRANSCRIPT = "transcript.jsonl"
"""Its name in NIGHTCREW_OUT."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How a run ended. `reason` is one word for programs, `message` what a person is told or the model's last message."""

    subtype: str
    reason: str
    message: str
    exit_code: int = 1
    api_status: int | None = None

    @property
    def is_error(self) -> bool:
        """Whether the task is not done."""
        return self.exit_code != 0


@dataclass(frozen=True, slots=True)
class Account:
    """What a run took. `cost_usd` is None where nobody knows the price."""

    model: str = ""
    counted: bool = True
    """False: nobody knows its steps and its tokens."""
    steps: int = 0
    usage: Usage = field(default_factory=Usage)
    cost_usd: float | None = None
    api_s: float = 0.0
    denials: tuple[dict[str, Any], ...] = ()
    """Calls of tools that the task does not allow."""


class Records:
    """The two places where lines go. One that cannot be written is given up, which is said once: the work is worth more."""

    def __init__(self, handle: int, directory: str | None) -> None:
        self.session = _new_id()
        """Its id, in every line."""
        self._began = time.monotonic()
        self._handles = {} if os.isatty(handle) else {"standard output": handle}  # a person does not read JSON
        if directory:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            try:
                self._handles["the transcript"] = os.open(Path(directory, TRANSCRIPT), flags, 0o600)
            except OSError as error:
                _warn("the transcript", error)

    def init(self, model: str, tools: tuple[str, ...], mode: str = "bypassPermissions") -> None:
        """The first line."""
        self._line("system", subtype="init", cwd=str(Path.cwd()), model=model, tools=list(tools), permissionMode=mode)

    def state(self, state: str) -> None:
        """`running`, or `idle` while a person is asked."""
        self._line("system", subtype="session_state_changed", state=state)

    def message(self, kind: str, message: dict[str, Any], sent: int | None = None) -> None:
        """An `assistant` or `user` message of the conversation; `sent` is the number of a text that was sent to it meanwhile."""
        if sent is not None:  # first a line that is short whatever the text: a reader may leave out long ones
            self._line("system", subtype="input", **{NUMBER: sent})
        self._line(kind, message=message, parent_tool_use_id=None, **({NUMBER: sent} if sent is not None else {}))

    def denied(self, call: str) -> None:
        """The call of a tool with this id was not allowed."""
        self._line("system", subtype="permission_denied", tool_use_id=call)

    def retry(self, why: str, wait_s: float) -> None:
        """A request is sent again after so many seconds."""
        self._line("system", subtype="api_retry", error=why, retry_delay_ms=round(wait_s * 1000))

    def result(self, ending: Ending, account: Account) -> None:
        """The last line."""
        self._line(
            "result",
            subtype=ending.subtype,
            is_error=ending.is_error,
            terminal_reason=ending.reason,
            result=ending.message,
            errors=[ending.message] if ending.is_error else [],
            api_error_status=ending.api_status,
            num_turns=account.steps if account.counted else None,
            duration_ms=round((time.monotonic() - self._began) * 1000),
            duration_api_ms=round(account.api_s * 1000),
            total_cost_usd=account.cost_usd,
            usage=usage_shape(account.usage) if account.counted else None,
            modelUsage={account.model: _model_shape(account)} if account.steps else {},
            permission_denials=list(account.denials),
        )

    def _line(self, kind: str, **fields: Any) -> None:
        shape = {"type": kind, **fields, "session_id": self.session, "timestamp": rfc3339(time.time())}
        data = json.dumps(shape, separators=(",", ":")).encode("ascii") + b"\n"
        for name, handle in list(self._handles.items()):
            try:
                _write(handle, data)
            except OSError as error:
                del self._handles[name]
                _warn(name, error)


def read_back(path: Path) -> list[dict[str, Any]]:
    """The whole conversation that a transcript holds, also what the model was no longer shown, as the API takes it: two messages of one
    role in a row are one. A last line that was cut off is left out. Raises OSError, ValueError, KeyError or TypeError for what is none."""
    found: list[dict[str, Any]] = []
    for line in path.read_bytes().splitlines(keepends=True):
        shape: dict[str, Any] = json.loads(line) if line.endswith(b"\n") else {"type": ""}
        if shape["type"] not in ("assistant", "user"):
            continue
        message: dict[str, Any] = {name: shape["message"][name] for name in ("role", "content")}
        if found and found[-1]["role"] == message["role"]:
            found[-1]["content"] += message["content"]
        else:
            found.append(message)
    return found


def usage_shape(usage: Usage) -> dict[str, int]:
    """As the API names the kinds of tokens."""
    return {
        "input_tokens": usage.input,
        "output_tokens": usage.output,
        "cache_read_input_tokens": usage.cache_read,
        "cache_creation_input_tokens": usage.cache_write,
    }


def _model_shape(account: Account) -> dict[str, Any]:
    usage = account.usage
    return {
        "inputTokens": usage.input,
        "outputTokens": usage.output,
        "cacheReadInputTokens": usage.cache_read,
        "cacheCreationInputTokens": usage.cache_write,
        "costUSD": account.cost_usd,
    }


def _write(handle: int, data: bytes) -> None:
    while data:
        data = data[os.write(handle, data) :]


def _warn(name: str, error: OSError) -> None:
    print(f"nightcrew: cannot write {name} any more: {error.strerror}", file=sys.stderr, flush=True)


def _new_id() -> str:
    """A random UUID (version 4); `uuid` costs more to import than this."""
    raw = bytearray(os.urandom(16))
    raw[6], raw[8] = raw[6] & 0x0F | 0x40, raw[8] & 0x3F | 0x80
    text = raw.hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
