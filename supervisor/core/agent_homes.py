"""Describe the directories that agents' command lines keep below a person's home: which parts of them a confined agent gets a copy of, and
which renewed logins come back. Pure.

A confined agent has a copy of each of these directories, made for its attempt. Nothing of a copy returns to the person, except the tokens
of a login that was there before (`renewed`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatchcase
from posixpath import normpath
from typing import Any

_NAMES = ("claude", "codex", "aider", "gemini", "opencode", "goose", "amp", "crush")
DIRECTORIES = (
    ("CLAUDE_CONFIG_DIR", "", ".claude"),
    ("", "", ".claude.json"),
    ("CODEX_HOME", "", ".codex"),
    ("GEMINI_CLI_HOME", ".gemini", ".gemini"),
    ("QWEN_HOME", "", ".qwen"),
    ("", "", ".aider"),
    *(("XDG_CONFIG_HOME", name, f".config/{name}") for name in _NAMES),
    *(("XDG_DATA_HOME", name, f".local/share/{name}") for name in _NAMES if name != "claude"),
    *(("XDG_STATE_HOME", name, f".local/state/{name}") for name in ("claude", "opencode", "crush")),
)
"""The variable that moves a directory, the path in the place that it names, and the path below the home without it. `.claude.json` is a
file. `.local/share/claude` is not among them: it holds Claude Code's program, and stays read-only like the rest of the home."""

PROGRAMS_IN_CACHE = ("claude", "opencode")
"""Directories of `.cache` from which a command line starts programs: downloaded releases, packages of plug-ins. An attempt has a copy of
those that exist; one that it makes lies in its own `.cache`."""

LEFT_OUT = (
    ".git", ".tmp", "archived_sessions", "backups", "cache", "chats", "daemon", "debug", "file-history", "history", "ide", "image-cache",
    "jobs", "locks", "log", "logs", "paste-cache", "plans", "project", "projects", "repos", "session-env", "sessions", "shell-snapshots",
    "shell_snapshots", "snapshot", "statsig", "storage", "tasks", "teams", "telemetry", "threads", "tmp", "todos", "tool-output",
    "usage-data", "worktree", "worktrees", "*.db", "*.db-*", "*.jsonl", "*.lock", "*.log", "*.pid", "*.sqlite*",
)  # fmt: skip
"""Names in these directories that are not copied: transcripts, histories, logs, databases. Each agent begins its own."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """A group of tokens that are renewed together."""

    at: tuple[str, ...]
    """The keys that lead to its table in the JSON file; `*` stands for any key."""
    renewed: tuple[str, ...]
    """The values that a renewal changes. A dot leads into a table."""
    age: str
    """The value that grows with each renewal: milliseconds since 1970, or a time in ISO 8601."""


LOGINS: Mapping[str, tuple[Tokens, ...]] = {
    ".claude/.credentials.json": (
        Tokens(("claudeAiOauth",), ("accessToken", "refreshToken", "expiresAt", "refreshTokenExpiresAt"), "expiresAt"),
        Tokens(("mcpOAuth", "*"), ("accessToken", "refreshToken", "expiresAt"), "expiresAt"),
    ),
    ".codex/auth.json": (
        Tokens((), ("tokens.id_token", "tokens.access_token", "tokens.refresh_token", "last_refresh"), "last_refresh"),
    ),
    ".gemini/oauth_creds.json": (Tokens((), ("access_token", "refresh_token", "id_token", "expiry_date"), "expiry_date"),),
    ".qwen/oauth_creds.json": (Tokens((), ("access_token", "refresh_token", "id_token", "expiry_date"), "expiry_date"),),
    ".local/share/opencode/auth.json": (Tokens(("*",), ("access", "refresh", "expires"), "expires"),),
}  # fmt: skip
"""The files with logins that a command line renews by itself, as paths below the home without any variable."""

LOGIN_MAX = 256 * 1024
"""Bytes of a file with logins. A larger one is not shared."""
AHEAD_MAX_MS = 400 * 24 * 3600 * 1000
"""How far ahead of now a token may expire, so that a forged time cannot keep later renewals out."""
_TOKEN = re.compile(r"[\x21-\x7e]{1,16384}")


def directories(home: str, env: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Each path that may hold what a command line keeps, for an agent with that home and environment, and its usual path below the home. A
    directory that a variable moves is named at both places."""
    home = home.rstrip("/")
    for variable, inner, usual in DIRECTORIES:
        yield f"{home}/{usual}", usual
        given = env.get(variable, "") if variable else ""
        if given.startswith("/"):
            yield normpath("/" + f"{given}/{inner}".lstrip("/")), usual
    caches = [f"{home}/.cache", *(cache for cache in [env.get("XDG_CACHE_HOME", "")] if cache.startswith("/"))]
    yield from ((f"{cache}/{name}", f".cache/{name}") for cache in caches for name in PROGRAMS_IN_CACHE)


def is_left_out(name: str) -> bool:
    """Return whether a confined agent gets no copy of an entry of such a directory."""
    return any(fnmatchcase(name, pattern) for pattern in LEFT_OUT)


def renewed(groups: Collection[Tokens], real: bytes, own: bytes, now_ms: float) -> bytes | None:
    """Return the person's file `real` with the tokens that were renewed in an agent's copy `own`; None when none was.

    Only values that `Tokens.renewed` names change, only in groups that `real` has, and all of a group or none. They must be plain tokens or
    times, newer than those of the person, and not further ahead than AHEAD_MAX_MS. Whatever else the copy says is not looked at.
    """
    ours, theirs = _parsed(real), _parsed(own)
    if ours is None or theirs is None:
        return None
    changed = False
    for group in groups:
        for path in _places(ours, group.at):
            found = {leaf: _value(theirs, (*path, *leaf.split("."))) for leaf in group.renewed}
            known = {leaf: _value(ours, (*path, *leaf.split("."))) for leaf in group.renewed}
            if found == known or not _is_renewal(known, found, group.age, now_ms):
                continue
            changed = True
            for leaf in (leaf for leaf in group.renewed if known[leaf] is not None and found[leaf] is not None):
                *above, last = (*path, *leaf.split("."))
                _value(ours, above)[last] = found[leaf]
    return _written(ours, real) if changed else None


def _is_renewal(known: Mapping[str, Any], found: Mapping[str, Any], age: str, now_ms: float) -> bool:
    before, after = _milliseconds(known[age]), _milliseconds(found[age])
    if before is None or after is None or not before < after <= now_ms + AHEAD_MAX_MS:
        return False
    return all(_alike(known[leaf], found[leaf]) for leaf in known)


def _alike(known: Any, found: Any) -> bool:
    """Return whether `found` may replace `known`. A key that only one of the two files has stays as in the person's file."""
    if known is None or found is None:
        return True
    if isinstance(known, str):
        return isinstance(found, str) and _TOKEN.fullmatch(found) is not None
    return _milliseconds(known) is not None and isinstance(found, int | float) and _milliseconds(found) is not None


def _milliseconds(value: Any) -> float | None:
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value)
            return moment.timestamp() * 1000 if moment.tzinfo is not None else None
        except (ValueError, OverflowError):
            return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 2**53:
        return None
    return float(value)


def _places(shape: dict[str, Any], at: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """The tables of `shape` to which `at` leads."""
    if not at:
        yield ()
        return
    for name in list(shape) if at[0] == "*" else [at[0]]:
        if isinstance(below := shape.get(name), dict):
            yield from ((name, *rest) for rest in _places(below, at[1:]))


def _value(shape: Any, path: Collection[str]) -> Any:
    for name in path:
        shape = shape.get(name) if isinstance(shape, dict) else None
    return shape


def _parsed(data: bytes) -> dict[str, Any] | None:
    try:
        shape = json.loads(data) if len(data) <= LOGIN_MAX else None
    except (ValueError, RecursionError):
        return None
    return shape if isinstance(shape, dict) else None


def _written(shape: dict[str, Any], like: bytes) -> bytes:
    """In one line, or indented, as the file was."""
    return json.dumps(shape, indent=2 if b"\n" in like.strip() else None, ensure_ascii=False).encode("utf-8", "surrogatepass")
