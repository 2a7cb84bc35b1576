"""The providers' keys, the gateway's log, and what never gets into a log."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import re
import subprocess
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

from supervisor.gateway.wire.headers import SECRET_LEAST, in_base64, mask
from supervisor.host import secrets
from supervisor.host.audit_log import Audit
from supervisor.host.clock import Clock
from supervisor.host.paths import Home
from supervisor.kernel.audit import Level, LogFormat, Said, level_of, line
from supervisor.kernel.errors import NightcrewError, NotFound, Refused, from_wire, one_line
from supervisor.kernel.format import duration
from supervisor.kernel.gateway_settings import KeySource, Upstream

# Keys
# ----
# The providers' keys. They are read when the gateway starts and when it is told to reload, and live in this process alone.


_COMMAND_S = 30.0
"""A keyring may ask its user to unlock it."""


@dataclass(frozen=True, slots=True)
class Keyring:
    """Upstream -> key. A key is empty where the server wants none or the client sends its own; an upstream that is not in `keys` cannot
    be used, and `problems` says why."""

    keys: Mapping[str, str] = field(default_factory=dict, repr=False)
    problems: Mapping[str, NightcrewError] = field(default_factory=dict)


def read_all(home: Home, upstreams: tuple[Upstream, ...]) -> Keyring:
    """Every key that can be had: one that is missing must not keep the other providers from being used."""
    keys: dict[str, str] = {}
    problems: dict[str, NightcrewError] = {}
    for upstream in upstreams:
        try:
            keys[upstream.name] = _read(home, upstream.name, upstream.key)
        except NightcrewError as error:
            problems[upstream.name] = error
    return Keyring(keys, problems)


def _read(home: Home, name: str, source: KeySource) -> str:
    if source.kind == "command":
        return _printed(source.argv)
    if source.kind != "file":
        return ""
    path = Path(source.value).expanduser() if source.value else home.keys / f"{name}.key"
    try:
        return secrets.key(path)
    except NotFound as error:
        hint = "put the key there, mode 600, then nightcrew gateway reload"
        raise NotFound("there is no key for the upstream", on=name, why=f"no file {path}", hint=hint) from error


def _printed(argv: tuple[str, ...]) -> str:
    """What a command prints. Neither that nor what it says about a failure is repeated: a key may be in it."""
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=_COMMAND_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        why = error.strerror or "" if isinstance(error, OSError) else f"it did not end in {duration(_COMMAND_S)}"
        raise Refused("the command that prints a key failed", on=argv[0], why=why) from None
    key = done.stdout.decode("utf-8", "replace").strip()
    if done.returncode != 0:
        raise Refused("the command that prints a key failed", on=argv[0], why=f"it ended with {done.returncode}")
    if not key or not key.isprintable() or " " in key:
        raise Refused("the command that prints a key failed", on=argv[0], why="it did not print a single word")
    return key


# Redact
# ------
# What never gets into a log: the providers' keys in any disguise that we know of, and whatever looks like a credential.
#
# A secret that is known is found by its fragments: any ten characters in a row that occur in it, or in its base64, hexadecimal or
# URL-quoted form. So half a key, or a key between other text, in a URL or in Basic authorisation, is found like a whole one.


_GRAM = 10
"""Characters of a fragment: fewer would find `sk-ant-` in a sentence about keys, more would let more of a split key through."""
_SHORTEST = 4
_HIDDEN = "[hidden]"
_ANSI = re.compile(r"\x1b(?:\[[0-9;:?]*[ -/]*[@-~]|[@-_])")
_NO_LETTER = re.compile(r"[^A-Za-z0-9]")
_LOOKS_SECRET = re.compile(
    r"""(?ix)
    (?P<before> \b(?:bearer|basic)\s+ | (?:authorization|(?:x-)?(?:goog-)?api[-_]?key)["']?\s*[:=]\s*["']? | [?&]key= )
    (?P<value> [^\s"'&,;]{4,} )
  | (?P<token> \bnc[tak]_[a-z0-9_-]+ | \bsk-[a-z0-9_-]{16,} | \bAIza[a-z0-9_-]{20,} )
    """
)


class Redactor:
    """Knows secrets, and cleans text of them."""

    def __init__(self) -> None:
        self._grams: set[str] = set()
        self._short: set[str] = set()

    def add(self, secret: str) -> None:
        """From now on it is hidden, and so are its other forms. Less than 4 characters is no secret."""
        if len(secret) < _GRAM:
            self._short |= {secret} if len(secret) >= _SHORTEST else set()
            return
        for form in _forms(secret):
            self._grams.update(form[start : start + _GRAM] for start in range(len(form) - _GRAM + 1))

    def clean(self, text: str) -> str:
        """`text` without terminal sequences and without secrets."""
        plain = _ANSI.sub("", text)
        for short in self._short:
            plain = plain.replace(short, _HIDDEN)
        return _LOOKS_SECRET.sub(_shown, self._without_known(plain))

    def masked(self, text: str) -> str:
        """`text` with each known fragment replaced by as many other characters; the same object when there is none."""
        for start, end in list(self._found(text)):
            text = text[:start] + mask(end - start) + text[end:]
        return text

    def _without_known(self, text: str) -> str:
        kept: list[str] = []
        shown_to = 0
        for start, end in self._found(text):
            kept += [text[shown_to:start], _HIDDEN]
            shown_to = end
        return "".join(kept) + text[shown_to:]

    def _found(self, text: str) -> Iterator[tuple[int, int]]:
        """Where known fragments lie; those that touch are one."""
        start = end = -1
        for at in range(len(text) - _GRAM + 1):
            if text[at : at + _GRAM] not in self._grams:
                continue
            if at > end:
                if end > 0:
                    yield start, end
                start = at
            end = at + _GRAM
        if end > 0:
            yield start, end


def masked(data: bytes, key: str) -> bytes:
    """`data` without this key, or ten characters in a row of it, in any disguise; of the same length. A short key (see `wire.scrub`) stays.
    It takes about 0.1 us a byte: for errors, not for streams."""
    return _knowing(key).masked(data.decode("latin-1")).encode("latin-1") if len(key) >= SECRET_LEAST else data


@functools.lru_cache(maxsize=16)
def _knowing(key: str) -> Redactor:
    redactor = Redactor()
    redactor.add(key)
    return redactor


def _forms(secret: str) -> Iterator[str]:
    data = secret.encode("utf-8", "surrogateescape")
    yield secret
    yield data.hex()
    yield quote(secret, safe="")
    yield _NO_LETTER.sub(lambda mark: f"%{ord(mark[0]):02X}", secret)
    yield _NO_LETTER.sub(lambda mark: f"\\u{ord(mark[0]):04x}", secret)
    yield from (form.decode() for form in in_base64(data))


def _shown(found: re.Match[str]) -> str:
    return f"{found['before'] or ''}{_HIDDEN}"


# Log
# ---
# `gateway.log`, and `daemon.log` as JSON: what is said. Every line is cleaned of secrets before it is written.


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
