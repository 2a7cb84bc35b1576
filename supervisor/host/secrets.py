"""The door to the files that hold secrets: ours, which makes attempt tokens, and the providers' keys."""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import hmac
import os
from pathlib import Path

from supervisor.host import files, untrusted_fs
from supervisor.kernel.errors import NotFound, Refused
from supervisor.kernel.names import attempt_name

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


# Tokens
# ------
# Attempt tokens: who speaks, at `agents.sock` and at the gateway. Derived from one secret, stored nowhere, and dead with the attempt.
#
#     nct_<task:epoch in base64url>_<40 hex digits of HMAC-SHA256>
#
# The name is in the token so that whoever checks it needs no table; whether the attempt still lives is the ledger's to say.


PREFIX = "nct_"
_DIGITS = 40
_MAX = 512
"""Characters of the longest text that is looked at: a task's id has at most 48."""


def derive(secret: bytes, task: str, epoch: int) -> str:
    """The token of one attempt: letters, digits, `-` and `_`."""
    name = attempt_name(task, epoch)
    return f"{PREFIX}{base64.urlsafe_b64encode(name.encode()).decode().rstrip('=')}_{_sign(secret, 'attempt ' + name)}"


def check(secret: bytes, token: str) -> tuple[str, int] | None:
    """The task and epoch that a token is for; None when it is not one of ours. The comparison takes the same time for any wrong one."""
    if not token.startswith(PREFIX) or len(token) > _MAX or not token.isascii():
        return None
    text, _, signature = token.removeprefix(PREFIX).rpartition("_")
    try:
        name = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode()
    except (binascii.Error, ValueError):
        return None
    task, _, epoch = name.rpartition(":")
    if not hmac.compare_digest(signature, _sign(secret, "attempt " + name)) or not epoch.isdigit():
        return None
    return task, int(epoch)


def admin(secret: bytes) -> str:
    """What opens the gateway's own pages (status, metrics, stop). No agent can derive it: agents have no way to the secret."""
    return f"nca_{_sign(secret, 'admin')}"


def is_admin(secret: bytes, token: str) -> bool:
    """Whether it is the admin token; takes the same time for any wrong one."""
    return hmac.compare_digest(token.encode("utf-8", "replace"), admin(secret).encode())


def _sign(secret: bytes, text: str) -> str:
    return hmac.new(secret, text.encode("utf-8", "surrogateescape"), hashlib.sha256).hexdigest()[:_DIGITS]
