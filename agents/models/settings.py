"""What the built-in agent is told, by its environment and by the options of its command, which go first."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from agents.models.conversation import DEFAULT_MODEL, NAMES, Budget
from supervisor.kernel.errors import ConfigError, UsageError
from supervisor.kernel.names import nearest

STEPS_MAX = 200
"""Requests to the model, when nothing says how many."""
_OPTIONS = {
    "--prompt-file": "NIGHTCREW_PROMPT_FILE",
    "--model": "NIGHTCREW_MODEL",
    "--steps-max": "NIGHTCREW_STEPS_MAX",
    "--allow": "NIGHTCREW_ALLOW",
    "--session-id": "NIGHTCREW_SESSION",
    "--inbox": "NIGHTCREW_INBOX",
    "--resume": "NIGHTCREW_RESUME",
}
_SESSION = re.compile(r"[0-9A-Za-z-]{0,64}")
PROMPT_MAX = 2**20
"""Bytes."""


@dataclass(frozen=True, slots=True)
class Settings:
    """One run's. `key` is a provider's key, `token` what the gateway gave in its place; one of them is set."""

    prompt: str
    """Empty: a person at the terminal says what to do."""
    model: str
    base_url: str
    key: str
    token: str
    budget: Budget
    allow: tuple[str, ...] = NAMES
    """The tools that may be called."""
    session: str = ""
    """The session's id; empty: a new one."""
    inbox: str = ""
    """Directory of texts that are sent to it while it works; empty: none are."""
    resume: str = ""
    """The transcript of the conversation that goes on; empty: it begins."""


def read(environ: Mapping[str, str], words: Sequence[str] = ()) -> Settings:
    """Read both, and standard input when no prompt file is named. `words` are the options, which go before the environment. Raises
    UsageError or ConfigError."""
    environ = {**environ, **_options(words)}
    token, key = environ.get("ANTHROPIC_AUTH_TOKEN", ""), environ.get("ANTHROPIC_API_KEY", "")
    if not token and not key:
        hint = "ANTHROPIC_API_KEY=... nightcrew up -d"
        raise UsageError("no key for a model", why="ANTHROPIC_AUTH_TOKEN and ANTHROPIC_API_KEY are not set", hint=hint)
    return Settings(
        prompt=_prompt(environ),
        model=environ.get("NIGHTCREW_MODEL") or DEFAULT_MODEL,
        base_url=environ.get("ANTHROPIC_BASE_URL") or "https://api.anthropic.com",
        key="" if token else key,
        token=token,
        budget=Budget(
            steps=int(_number(environ, "NIGHTCREW_STEPS_MAX")) or STEPS_MAX,
            tokens=int(_number(environ, "NIGHTCREW_TOKENS_MAX")),
            cost_usd=_number(environ, "NIGHTCREW_COST_MAX"),
        ),
        allow=_allowed(environ.get("NIGHTCREW_ALLOW", "")),
        session=_session(environ.get("NIGHTCREW_SESSION", "")),
        inbox=environ.get("NIGHTCREW_INBOX", ""),
        resume=environ.get("NIGHTCREW_RESUME", ""),
    )


def _allowed(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    for name in names:
        if name not in NAMES:
            raise UsageError("bad value", on="allow", why=f"{name!r} is not a tool; {nearest(name, NAMES)}")
    return names or NAMES


def _session(text: str) -> str:
    if not _SESSION.fullmatch(text):
        raise UsageError("bad value", on="--session-id", why="an id has at most 64 letters, digits and '-'")
    return text


def _options(words: Sequence[str]) -> dict[str, str]:
    """The options under the names that the environment has for them."""
    found = {}
    for at in range(0, len(words), 2):
        if words[at] not in _OPTIONS or at + 1 == len(words):
            raise UsageError("bad option", on=words[at], why=f"known are {', '.join(_OPTIONS)}, each with a value")
        found[_OPTIONS[words[at]]] = words[at + 1]
    return found


def _prompt(environ: Mapping[str, str]) -> str:
    name = environ.get("NIGHTCREW_PROMPT_FILE")
    if name is None and os.isatty(0):
        return ""
    try:
        with Path(name).open("rb") if name is not None else sys.stdin.buffer as file:
            raw = file.read(PROMPT_MAX + 1)
        text = raw.decode()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError("cannot read the prompt", on=name or "standard input", why=str(error)) from None
    if len(raw) > PROMPT_MAX:
        raise ConfigError("cannot use the prompt", on=name or "standard input", why=f"it is larger than {PROMPT_MAX} bytes")
    if not text.strip():
        raise UsageError("no prompt", why="the task gives none", hint="write prompt or prompt_file into the plan")
    return text


def _number(environ: Mapping[str, str], name: str) -> float:
    """0 when it is not set."""
    text = environ.get(name, "")
    try:
        number = float(text or 0)
    except ValueError:
        number = -1.0
    if not 0 <= number < float("inf"):
        raise UsageError("bad value", on=name, why=f"{text!r} is no number from 0 on")
    return number
