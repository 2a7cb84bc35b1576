"""`gateway.log`, and `daemon.log` as JSON: what is said. Every line is cleaned of secrets before it is written."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from supervisor.core.errors import NightcrewError, from_wire, one_line
from supervisor.core.log_lines import Level, LogFormat, Said, level_of, line
from supervisor.gateway.redact import Redactor
from supervisor.host.audit import Audit
from supervisor.host.clock import Clock

MAX_BYTES = 8 * 2**20
"""The log is at most twice as large: what is older lies in `gateway.log.1`, and what is older than that is gone."""
_LINE_MAX = 4000
_REPEATS_KEPT = 1000


@dataclass(frozen=True, slots=True)
class Form:
    """How lines are written, and as whose."""

    format: LogFormat = LogFormat.TEXT
    logger: str = "nightcrew.gateway"


TEXT = Form()


class Log:
    """Any thread may say something. A log that cannot be written loses lines; it never stops the gateway."""

    def __init__(
        self, path: Path, redactor: Redactor, clock: Clock, max_bytes: int = MAX_BYTES, *, audit: Audit | None = None, form: Form = TEXT
    ) -> None:
        self._path = path
        self._form = form
        self._redactor = redactor
        self._clock = clock
        self._max_bytes = max_bytes
        self._audit = audit
        self._lock = threading.Lock()
        self._said: dict[str, tuple[float, int]] = {}

    def say(self, said: Said, level: Level | None = None, *, more: str = "", logger: str = "") -> None:
        """Add one line: the time in UTC, then what is `said` without line breaks and control characters; or an object of JSON."""
        shown = self.shown(said, level, more=more, logger=logger)
        with self._lock:
            self._append(f"{shown}\n".encode("utf-8", "replace"))

    def shown(self, said: Said, level: Level | None = None, *, more: str = "", logger: str = "") -> str:
        """The line, without its line feed."""
        # Cleaned before it is cut and escaped: a secret cut in two, or with an escape in its midst, would be harder to find.
        now, clean = self._clock.wall(), self._clean(said)
        if self._form.format is LogFormat.JSON:
            return line(now, level or level_of(said), logger or self._form.logger, clean, more)
        stamp = datetime.fromtimestamp(now, UTC).isoformat(timespec="milliseconds").removesuffix("+00:00")
        return f"{stamp}Z {one_line(f'{clean}{more}')[:_LINE_MAX]}"

    def _clean(self, said: Said) -> Said:
        if not isinstance(said, NightcrewError):
            return self._redactor.clean(said)[:_LINE_MAX]
        parts = {name: self._redactor.clean(text)[:_LINE_MAX] for name, text in said.to_wire().items()}
        return from_wire({**parts, "error": type(said).__name__})

    def is_at(self, handle: int) -> bool:
        """Whether a handle of ours writes into the same file."""
        with contextlib.suppress(OSError):
            return os.path.samestat(os.fstat(handle), self._path.stat())
        return False

    def refused(self, text: str) -> None:
        """Somebody was refused: seldom said, and then in the audit log as well."""
        if self.say_seldom(text, level=Level.WARNING):
            self._audited("refused", text)

    def alert(self, about: str, text: str) -> None:
        """Something that a person must mend: said, and in the audit log."""
        self.say(f"ALERT {about}: {text}", Level.ERROR)
        self._audited("alert", f"{about}: {text}")

    def _audited(self, event: str, text: str) -> None:
        if self._audit is not None:
            with contextlib.suppress(NightcrewError):  # as for the log itself: a full disk must not stop the traffic
                self._audit.note(event, {"what": self._redactor.clean(text)})

    def say_seldom(self, said: Said, every_s: float = 60.0, *, level: Level | None = None) -> bool:
        """The same as `say` for what may repeat a thousand times a second: at most once in `every_s`, with how often it was left out.
        Whether it was said now."""
        now, text = self._clock.monotonic(), str(said)
        since, left_out = self._said.get(text, (-every_s, 0))
        if now - since < every_s:
            self._said[text] = (since, left_out + 1)
            return False
        if len(self._said) >= _REPEATS_KEPT:
            self._said.clear()
        self._said[text] = (now, 0)
        self.say(said, level, more=f" ({left_out} more of these before)" if left_out else "")
        return True

    def _append(self, line: bytes) -> None:
        try:
            if self._path.exists() and self._path.stat().st_size + len(line) > self._max_bytes:
                self._path.replace(self._path.with_name(f"{self._path.name}.1"))
            handle = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                os.write(handle, line)
            finally:
                os.close(handle)
        except OSError:  # a full disk must not stop the traffic, and there is nowhere else to say it
            pass


class Handler(logging.Handler):
    """Brings what libraries log (aiohttp, asyncio) into the one log: warnings and worse, a traceback as one line."""

    def __init__(self, log: Log) -> None:
        super().__init__(logging.WARNING)
        self._log = log
        self.setFormatter(logging.Formatter("%(name)s: %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        """One record, one line. What a client sends instead of HTTP is its own affair: it may send it a thousand times a second."""
        from aiohttp.http_exceptions import HttpProcessingError  # the supervisor has a log too, and nothing else of what this imports

        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, HttpProcessingError):
            self._log.say_seldom(f"400: what came is no HTTP ({type(error).__name__})")
        elif isinstance(error, ConnectionError):
            self._log.say_seldom(f"a client left while it was answered ({type(error).__name__})")
        else:
            bad = Level.ERROR if record.levelno >= logging.ERROR else Level.WARNING
            self._log.say(self.format(record), bad, logger=record.name)
