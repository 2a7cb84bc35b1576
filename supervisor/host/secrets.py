"""The door to the files that hold secrets: ours, which makes attempt tokens, and the providers' keys."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from supervisor.host import files, untrusted_fs
from supervisor.kernel.errors import NotFound, Refused

# Secrets
# -------


_LENGTH = 32
_KEY_MAX = 16 * 1024
"""Bytes of the longest key that is read."""


def own(path: Path) -> bytes:
    """The secret from which tokens are derived; made at the first call, the same for ever after.

    Two processes may make it at once: both get the one that was there first. Raises Refused when somebody else can read it, or it is
    not whole, and DiskFull.
    """
    try:
        return _read(path)
    except NotFound:
        draft = path.with_name(f".{path.name}.{os.urandom(8).hex()}")
        files.atomic_write(draft, os.urandom(_LENGTH).hex().encode() + b"\n")
        with contextlib.suppress(FileExistsError):
            os.link(draft, path)
        draft.unlink()
        return _read(path)


def _read(path: Path) -> bytes:
    text = key(path)
    if len(text) != 2 * _LENGTH:
        why = "it is not the secret that nightcrew wrote"
        raise Refused("will not use the secret", on=str(path), why=why, hint=f"rm {path}, then nightcrew down && nightcrew up -d")
    return bytes.fromhex(text)


def key(path: Path) -> str:
    """One word that only its owner can read. Raises NotFound, and Refused when others can read the file or it is no plain one of ours."""
    try:
        file = untrusted_fs.open_plain(path)
    except FileNotFoundError:
        raise NotFound("no such file", on=str(path)) from None
    except OSError as error:
        raise Refused("will not use the secret", on=str(path), why=error.strerror or str(error)) from error
    with file:
        state = os.fstat(file.fileno())
        if state.st_uid != os.geteuid():
            raise Refused("will not use the secret", on=str(path), why="it is not a file of ours", hint=f"ls -l {path}")
        if state.st_mode & 0o077:
            raise Refused("will not use the secret", on=str(path), why="others can read it", hint=f"chmod 600 {path}")
        text = file.read(_KEY_MAX).decode("utf-8", "replace").strip()
    _check_word(text, path)
    return text


def _check_word(text: str, path: Path) -> None:
    """It goes into a header line: no blank, no line break, nothing that a log or a server could take for something else."""
    if not text or not text.isascii() or not text.isprintable() or " " in text:
        raise Refused("will not use the secret", on=str(path), why="it is not a single word of ASCII")


def store(path: Path, text: str) -> bool:
    """Keep a key in a 0600 file of a private directory, unless one is there already. Whether the file holds `text` now.

    Raises Refused when the directory or a file there is not private or `text` cannot be a key, DiskFull.
    """
    files.private_dir(path.parent)
    try:
        return key(path) == text
    except NotFound:
        _check_word(text, path)
        files.atomic_write(path, text.encode() + b"\n")
        return True
