"""What our own drivers of agents print: JSON lines for programs, and lines for the person at the pane."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from agents.typing_rules import NUMBER
from supervisor.gateway.admission.types import Usage
from supervisor.kernel.errors import one_line
from supervisor.kernel.format import rfc3339

# Records
# -------
# What the built-in agent says in JSON lines: on its standard output, and the same in its transcript.
#
# One line a message in the API's own shape, as Claude Code's `stream-json` has them: `system` (`init`) first, then `assistant` and
# `user` by turns, `result` last. Each has the session's id and a time (RFC 3339).


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


# Pane
# ----
# What a person reads in the pane, on standard error: the model's text as it comes, a line for each tool call and for its result.


_WIDTH = 160
_SHOWN = {"bash": "command", "grep": "pattern", "glob": "pattern"}
"""Which of a tool's parameters says most; of all others it is the path."""


class Pane:
    """Lines for people. Nothing that a model or a command wrote can drive the terminal."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._open = False

    def text(self, piece: str) -> None:
        """A piece of the model's text, as it comes."""
        shown = "\n".join(one_line(line.replace("\t", "    ")) for line in piece.split("\n"))
        if shown:
            self._write(shown)
            self._open = not shown.endswith("\n")

    def line(self, text: str) -> None:
        """One whole line."""
        self._write(("\n" if self._open else "") + _cut(one_line(text.replace("\t", "    "))) + "\n")
        self._open = False

    def call(self, name: str, given: Mapping[str, Any]) -> None:
        """A tool is called."""
        self.line(f"> {name} {given.get(_SHOWN.get(name, 'path'), '')}")

    def outcome(self, name: str, text: str, *, is_error: bool) -> None:
        """What came of it."""
        lines = text.splitlines() or [""]
        more = f" (+{len(lines) - 1} lines)" if len(lines) > 1 else ""
        self.line(f"  {'! ' if is_error else ''}{name}: {lines[0][: _WIDTH - 40]}{more}")

    def _write(self, text: str) -> None:
        try:
            self._out.write(text)
            self._out.flush()
        except (OSError, ValueError):  # the pane is gone: the work goes on
            self._open = False


def _cut(text: str) -> str:
    return text if len(text) <= _WIDTH else text[: _WIDTH - 3] + "..."


# Terminal
# --------
# The person at the terminal, if there is one.


LINE_MAX = 2**16


class Terminal:
    """Where lines are read from: standard input when it is a terminal, else the pane that the process runs in."""

    def __init__(self) -> None:
        self.attended = os.isatty(0)
        """A person sits at standard input and leads the conversation."""
        self._handle: int | None = 0 if self.attended else None
        if self._handle is None:
            with contextlib.suppress(OSError):  # no terminal at all, or a sandbox has cut it off
                self._handle = os.open("/dev/tty", os.O_RDONLY | os.O_CLOEXEC)

    def __bool__(self) -> bool:
        """Whether anybody can be asked."""
        return self._handle is not None

    async def line(self) -> str | None:
        """The next line that the person types, without its end; None when there are no more. May be cancelled."""
        if self._handle is None:
            return None
        loop, handle = asyncio.get_running_loop(), self._handle
        ready: asyncio.Future[None] = loop.create_future()
        loop.add_reader(handle, _mark, ready)
        try:
            await ready
        finally:
            loop.remove_reader(handle)
        try:
            raw = os.read(handle, LINE_MAX)  # a terminal is readable once there is a whole line
        except OSError:  # it hung up
            raw = b""
        return raw.decode("utf-8", "replace").strip() if raw else None


def _mark(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


# Stdout
# ------
# The real stdout, kept out of everybody's reach until the one line is written.


def claim() -> int:
    """Take stdout aside and let descriptor 1 be stderr, for this process, its libraries and its children. Returns where the line goes."""
    kept = os.dup(1)  # not inherited by children
    os.dup2(2, 1)
    return kept


def put(kept: int, line: str) -> None:
    """Write `line` and a newline, all of it, and close `kept`. Raises OSError when the reader is gone."""
    os.set_blocking(kept, True)  # in a pipe that somebody made non-blocking the line would end where the pipe is full
    with os.fdopen(kept, "wb") as file:
        file.write(f"{line}\n".encode("ascii"))
