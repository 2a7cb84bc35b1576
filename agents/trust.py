"""The record in which a program keeps that a person trusts a repository: found, read, and written for the person who asked for it.

Its file is a person's own, with logins and settings in it. Every other key stays as it is, and so do the file's mode and, of a TOML file,
every line. What cannot be read as a whole is not written.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import time
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from supervisor.host import files, untrusted_fs
from supervisor.kernel.errors import NotFound, Refused
from supervisor.kernel.kind import Trust

FILE_MAX = 64 * 2**20
LOCK_S = 5.0
"""A program holds its lock for some milliseconds."""
STALE_S = 10.0
"""A lock that nobody has touched for so long was left behind: the rule of the library (proper-lockfile) that takes it."""
_LOOK_S = 0.05


@dataclass(frozen=True, slots=True)
class Change:
    """What would be written, for a person to see first."""

    path: Path
    key: tuple[str, ...]
    value: bool | str
    is_there: bool
    """It says so already."""

    @property
    def shown(self) -> str:
        """The key with its value."""
        return f"{'.'.join(_quoted(part) for part in self.key)} = {json.dumps(self.value)}"


def look(trust: Trust, root: Path, environ: Mapping[str, str]) -> Change:
    """The change that makes `root`, the main worktree of a repository, trusted. Raises NotFound without a home, Refused for a file that
    cannot be read as what it should be."""
    path = _place(trust, environ)
    key = tuple(part.replace("{root}", os.fspath(root)) for part in trust.key)
    return Change(path, key, trust.value, _value(_parsed(path, _read(path)), key) == trust.value)


def write(trust: Trust, change: Change) -> None:
    """Make the change. Raises Refused when the file cannot be read or written as it should be, or when its program keeps its lock."""
    change.path.parent.mkdir(parents=True, exist_ok=True)
    with _locked(change.path) if trust.lock else contextlib.nullcontext():
        before = _read(change.path)
        data = _with(change, before)
        files.atomic_write(change.path, data, _mode(change.path))


def _place(trust: Trust, environ: Mapping[str, str]) -> Path:
    """The file itself where a link leads to it: the link stays."""
    chosen = environ.get(trust.variable) if trust.variable else None
    if not chosen and not environ.get("HOME"):
        raise NotFound("no home directory", on="HOME", why="the variable is not set")
    directory = Path(chosen) if chosen else Path(environ["HOME"]) / trust.directory
    return Path(os.path.realpath(directory / trust.file))


def _read(path: Path) -> bytes:
    """Empty where there is no file yet."""
    try:
        with untrusted_fs.open_plain(path) as file:
            data = file.read(FILE_MAX + 1)
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise _refused(path, error.strerror or str(error)) from error
    if len(data) > FILE_MAX:
        raise _refused(path, f"it is larger than {FILE_MAX} bytes")
    return data


def _mode(path: Path) -> int:
    try:
        found = path.stat()
    except FileNotFoundError:
        return 0o600
    if found.st_uid != os.geteuid():  # the new file would be ours
        raise _refused(path, f"it belongs to uid {found.st_uid}, not to you")
    return stat.S_IMODE(found.st_mode)


def _parsed(path: Path, data: bytes) -> dict[str, Any]:
    try:
        text = data.decode()
        shape = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text) if text.strip() else {}
    except (ValueError, RecursionError) as error:
        raise _refused(path, f"it is malformed: {error}") from error
    if not isinstance(shape, dict):
        raise _refused(path, "it holds no table")
    return shape


def _value(shape: Any, key: tuple[str, ...]) -> Any:
    for part in key:
        shape = shape.get(part) if isinstance(shape, dict) else None
    return shape


def _with(change: Change, before: bytes) -> bytes:
    """The file's new text. Raises Refused when something else of it would change."""
    shape = _parsed(change.path, before)
    wanted = _merged(change, shape)
    if change.path.suffix != ".toml":
        return json.dumps(wanted, indent=2, ensure_ascii=False).encode()
    for text in _toml(change, before.decode()):
        with contextlib.suppress(tomllib.TOMLDecodeError):
            if tomllib.loads(text) == wanted:
                return text.encode()
    why = "its tables are written in a way that a line cannot be added to"
    raise Refused("will not write", on=str(change.path), why=why, kept="it was not touched", hint=f"add it yourself: {change.shown}")


def _merged(change: Change, shape: dict[str, Any]) -> dict[str, Any]:
    copy: dict[str, Any] = json.loads(json.dumps(shape)) if change.path.suffix != ".toml" else {**shape}
    here = copy
    for part in change.key[:-1]:
        inner = here.get(part, {})
        if not isinstance(inner, dict):
            raise _refused(change.path, f"{part} is no table")
        here[part] = {**inner}
        here = here[part]
    here[change.key[-1]] = change.value
    return copy


def _toml(change: Change, text: str) -> Iterator[str]:
    """Texts that may be the wanted one: the key in its table's lines, first where it stands, then anew; or a new table at the end."""
    *tables, name = change.key
    line, header = f"{_quoted(name)} = {json.dumps(change.value)}\n", f"[{'.'.join(_quoted(part) for part in tables)}]\n"
    rows = text.splitlines(keepends=True)
    for place, row in enumerate(rows):
        if row.partition("=")[0].strip() == name:
            yield "".join([*rows[:place], line, *rows[place + 1 :]])
        if row.strip() == header.strip():
            yield "".join([*rows[: place + 1], line, *rows[place + 1 :]])
    yield f"{text}{'' if not text or text.endswith(chr(10)) else chr(10)}{chr(10) if text else ''}{header}{line}"


def _quoted(part: str) -> str:
    return part if part.replace("_", "").replace("-", "").isalnum() and part.isascii() else json.dumps(part)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    lock = path.with_name(f"{path.name}.lock")
    ends_at = time.monotonic() + LOCK_S
    while not _taken(lock):
        if time.monotonic() > ends_at:
            raise Refused("cannot write", on=str(path), why="its program keeps it locked", kept="it was not touched", hint="try again")
        time.sleep(_LOOK_S)
    try:
        yield
    finally:
        lock.rmdir()


def _taken(lock: Path) -> bool:
    with contextlib.suppress(FileExistsError):
        lock.mkdir()
        return True
    with contextlib.suppress(OSError):  # its holder may let go of it at any moment
        if time.time() - lock.stat().st_mtime > STALE_S:
            lock.rmdir()
    return False


def _refused(path: Path, why: str) -> Refused:
    return Refused("will not write", on=str(path), why=why, kept="it was not touched", hint="mend it, or answer the program's own question")
