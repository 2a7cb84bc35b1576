"""Whether a checkout is still what we made of it, without asking git: as after a task that only looked, or failed at once.

git noted the times, the inode and the size of each file as it wrote it, in the index. That index is known again by its digest, which we
keep in memory and no agent can write; so each file that still fits is as it was made, and a file that the index does not name is new.
git is asked whenever anything differs, and when there is no digest: after a restart, for a checkout by anybody else, and where an agent
could have begun so soon after a file was written that its time does not tell the two apart.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from supervisor.host.foreign import entries, folder
from worktrees.backends import index
from worktrees.environment import Environment

FILES_MAX = 2000
"""git is faster with more."""
TICK_NS = 12 * 10**6
"""Longer than the time of a file stands still on any kernel: its clock for files ticks at least 100 times a second."""
_INDEX_MAX = 2**20
_KEPT_MAX = 10_000
_digests: dict[Path, bytes] = {}
_lock = threading.Lock()


def remember(env: Environment) -> None:
    """Of a checkout that was just made; nobody has worked there."""
    data = _index(env)
    with _lock:
        if data is not None:
            _digests[env.path] = hashlib.sha256(data).digest()
        while len(_digests) > _KEPT_MAX:
            del _digests[next(iter(_digests))]


def begin(env: Environment) -> None:
    """Its agent may begin now. Where that is too soon after the checkout to tell later, the checkout is forgotten."""
    data = _index(env) if env.path in _digests else None
    files = None if data is None else _files(data, len(env.base) // 2)
    if files is None or time.time_ns() - max((facts[0] for facts in files.values()), default=0) < TICK_NS:
        forget(env)


def forget(env: Environment) -> None:
    """What is there is no more what we made."""
    with _lock:
        _digests.pop(env.path, None)


def is_untouched(env: Environment) -> bool:
    """Whether its HEAD, its index and all files are as they were made. Its branch is not looked at."""
    digest = _digests.get(env.path)
    try:
        data = _index(env) if digest is not None else None
        if data is None or hashlib.sha256(data).digest() != digest or not _has_head(env):
            return False
        files = _files(data, len(env.base) // 2)
        return files is not None and _are_all_there(env.path, files)
    except OSError:
        return False


def _index(env: Environment) -> bytes | None:
    try:
        with folder(env.admin_dir) as here:
            data = here.read("index", _INDEX_MAX + 1)
    except OSError:
        return None
    return data if data is not None and len(data) <= _INDEX_MAX else None


def _has_head(env: Environment) -> bool:
    with folder(env.admin_dir) as here:
        return here.read("HEAD", len(env.branch_ref) + 10) == f"ref: {env.branch_ref}\n".encode()


def _files(data: bytes, oid_size: int) -> Mapping[bytes, tuple[int, ...]] | None:
    """What git noted of each file; None where it takes git to tell."""
    try:
        found = list(index.entries(data, oid_size))
    except ValueError:
        return None
    if len(found) > FILES_MAX or any(entry.is_valid or entry.is_skipped or entry.mode == index.GITLINK for entry in found):
        return None
    return {entry.path: index.noted(data, entry) for entry in found}


def _are_all_there(top: Path, files: Mapping[bytes, tuple[int, ...]]) -> bool:
    """Whether the files below `top` are these and no others, each as git wrote it."""
    left = len(files)
    for below, _, entry in entries(top):
        if entry.is_dir(follow_symlinks=False) or (not below and entry.name == ".git"):
            continue
        name = os.fsencode(f"{below}/{entry.name}" if below else entry.name)
        if name not in files or files[name] != index.now(entry.stat(follow_symlinks=False)):
            return False
        left -= 1
    return left == 0
