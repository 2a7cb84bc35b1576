"""A line of our own logs as one JSON object, for programs that collect logs. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from enum import StrEnum

from supervisor.core.audit_events import trace_id
from supervisor.core.errors import NightcrewError, one_line
from supervisor.core.units import rfc3339

VARIABLE = "NIGHTCREW_LOG_FORMAT"
"""Has the form for a process that another one of ours starts."""
_NAMED = re.compile(r"(?<![\w/-])(\d{4}-[a-z0-9]{4,})/([a-z0-9][a-z0-9_-]*)(?::(\d{1,9}))?(?![\w/])")


class LogFormat(StrEnum):
    """How the supervisor and the gateway write their logs."""

    TEXT = "text"
    JSON = "json"


def log_format(environ: Mapping[str, str]) -> LogFormat:
    """Return the form that an environment asks for; text by default."""
    return LogFormat.JSON if environ.get(VARIABLE) == LogFormat.JSON else LogFormat.TEXT


class Level(StrEnum):
    """How bad it is."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


Said = str | NightcrewError
"""What a log is told."""


def level_of(said: Said) -> Level:
    """How bad it is when nobody says."""
    return Level.WARNING if isinstance(said, NightcrewError) else Level.INFO


def line(at: float, level: Level, logger: str, said: Said, more: str = "") -> str:
    """`time` (RFC 3339, UTC), `level`, `logger`, `message`; of an error also its class and its five parts (`error`); and of the first
    attempt or task that the message names its `run`, `task`, `epoch` and `trace`. One line of ASCII, without the line feed. `more` is
    added to the message."""
    message = one_line(f"{said}{more}")
    shape: dict[str, object] = {"time": rfc3339(at), "level": str(level), "logger": logger, "message": message}
    if isinstance(said, NightcrewError):
        shape["error"] = {"class" if name == "error" else name: one_line(text) for name, text in said.to_wire().items()}
    if (named := _NAMED.search(message)) is not None:
        run, name, epoch = named.groups()
        shape |= {"run": run, "task": f"{run}/{name}", "epoch": int(epoch) if epoch else None, "trace": trace_id(run)}
    return json.dumps(shape)
