"""Which commands are Python programs that a warm process can run by itself, just as a new interpreter would.

Only in a fork of the zygote, where imports cost nothing. The rule is: whatever could come out differently is left to exec. So the
interpreter must be this one, in our own environment or in one with the very files that were preloaded (`venv`), and an option, a variable
or a locale that works on the interpreter's start rules it out.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import tokenize  # noqa: F401 - `decode_source` imports it, and what is imported before the fork is shared
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agents.runner import venv
from agents.runner.venv import Preloaded

_HONOURED = frozenset("IEsPuBq")
"""Options that `agents.runner.warm` gives their meaning, or that have none for a program that is not interactive."""
_MAX_LINE = 256  # bytes of a first line that Linux looks at (BINPRM_BUF_SIZE)


@dataclass(frozen=True, slots=True)
class Program:
    """One Python program and how its interpreter was to be started."""

    words: tuple[str, ...]
    """The whole command as the kernel would run it: the interpreter with its path first, its options, the program, its arguments."""
    options: frozenset[str]
    """Of `I E s P u B q`."""
    module: str
    """What `-m` names; empty for a script."""
    script: str
    """Its path as it was given; empty for a module."""
    source: bytes
    """The script's; empty for a module."""
    arguments: tuple[str, ...]
    """What follows the module or the script."""
    prefix: str
    """The interpreter's virtual environment; empty when it is in none."""
    preloaded: Preloaded | None
    """What this process has of that environment; None when it is our own."""


def recognise(argv: Sequence[bytes], environment: Mapping[bytes, bytes]) -> Program | None:
    """The Python program that `argv` is for a process with this environment and working directory; None where only exec does it justice."""
    words = _with_interpreter(argv, environment.get(b"PATH", b"")) if _is_utf8(environment) else None
    if words is None or os.path.realpath(words[0]) != os.path.realpath(sys.executable):
        return None
    target = _target(words)
    if target is None or not _starts_alike(words[0], target[0], environment):
        return None
    options, module, at = target
    name, prefix = words[at], _prefix(words[0])
    source = b"" if module else _read_script(name)
    preloaded = None if _is_ours(prefix) else venv.matching(prefix)
    if source is None or not (preloaded or _is_ours(prefix)):
        return None
    return Program(
        words=tuple(words),
        options=options,
        module=name if module else "",
        script="" if module else name,
        source=source,
        arguments=tuple(words[at + 1 :]),
        prefix=prefix if _in_venv(words[0]) else "",
        preloaded=preloaded,
    )


def _target(words: Sequence[str]) -> tuple[frozenset[str], bool, int] | None:
    """The interpreter's options, whether a module follows, and the place of its name or of the script's; None when one of them is not ours
    to honour, or nothing follows."""
    at = next((at for at, word in enumerate(words) if at and (word == "-m" or not word.startswith("-"))), len(words))
    options = frozenset("".join(word[1:] for word in words[1:at]))
    module = words[at : at + 1] == ["-m"]
    if "-" in words[1:at] or not options <= _HONOURED or at + module >= len(words):
        return None
    return options, module, at + module


def _is_utf8(environment: Mapping[bytes, bytes]) -> bool:
    """Whether Python would use UTF-8 there without its UTF-8 mode, which LC_ALL=C sets and a running process cannot."""
    of_all = environment.get(b"LC_ALL", b"")
    locale = of_all or environment.get(b"LC_CTYPE", b"") or environment.get(b"LANG", b"")
    return locale.lower().endswith((b".utf-8", b".utf8")) or (not of_all and locale in (b"", b"C", b"POSIX"))


def _starts_alike(python: str, options: frozenset[str], environment: Mapping[bytes, bytes]) -> bool:
    """Whether neither a variable nor the user's own site-packages, both of which this process has not looked at, would change its start."""
    if not options & {"I", "E"} and any(name.startswith(b"PYTHON") for name in environment):
        return False
    return bool(options & {"I", "s"}) or _in_venv(python)


def _with_interpreter(argv: Sequence[bytes], path: bytes) -> list[str] | None:
    """The command as the kernel would run it: found on the PATH, and with the interpreter that its first line names."""
    command = _find(os.fsdecode(argv[0]), os.fsdecode(path))
    rest = [os.fsdecode(word) for word in argv[1:]]
    if command is None:
        return None
    first = _first_line(command)
    if not first.startswith("#!"):
        return [command, *rest]
    interpreter, _, option = first[2:].strip(" \t").partition(" ")
    option = option.strip(" \t")
    if os.path.basename(interpreter) != "env":
        return [interpreter, *([option] if option else []), command, *rest]
    found = _find(option, os.fsdecode(path))
    return [found, command, *rest] if found is not None else None


def _find(command: str, path: str) -> str | None:
    places = [command] if "/" in command else [f"{directory}/{command}" for directory in path.split(":") if directory]
    return next((place for place in places if os.path.isfile(place) and os.access(place, os.X_OK)), None)


def _first_line(command: str) -> str:
    try:
        with open(command, "rb") as file:
            start = file.read(_MAX_LINE)
    except OSError:
        return ""
    return os.fsdecode(start.partition(b"\n")[0]) if start.startswith(b"#!") and b"\n" in start else ""


def _is_ours(prefix: str) -> bool:
    return os.path.realpath(prefix) == os.path.realpath(sys.prefix)


def _prefix(python: str) -> str:
    return os.path.dirname(os.path.dirname(os.path.abspath(python)))


def _in_venv(python: str) -> bool:
    return os.path.isfile(os.path.join(_prefix(python), "pyvenv.cfg"))


def _read_script(path: str) -> bytes | None:
    """Its source; None for what is no plain source file: a directory, an archive, compiled code, another encoding, or nothing."""
    try:
        if not os.path.isfile(path):
            return None
        with open(path, "rb") as file:
            source = file.read()
        importlib.util.decode_source(source)
    except (OSError, SyntaxError, UnicodeDecodeError):
        return None
    return None if b"\0" in source else source
