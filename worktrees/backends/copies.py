"""Copies of a template: reflinks, or a checkout of its own."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from supervisor.kernel.errors import HostError
from supervisor.sandbox import exec_step
from worktrees import templates
from worktrees.backends import base
from worktrees.git import CHECKOUT_S, wrap_os_errors
from worktrees.private_repository import Layers

if TYPE_CHECKING:
    from worktrees.environments import Environment
    from worktrees.templates import Template


# Index
# -----
# git's index, read without git, and made to fit files that were copied: else the first `git status` reads every file again.
#
# An entry of the index begins with the file's stat: 10 big-endian words (ctime, mtime, dev, ino, mode, uid, gid, size), then the
# object's id, 16 bits of flags, and the name (Documentation/gitformat-index.txt). Only words are replaced, so everything else,
# extensions included, stays where it is; the checksum at the end is made anew.


_HEADER = struct.Struct(">4sLL")
_STAT = struct.Struct(">10L")
_EXTENDED, _NAME_LENGTH, _LONG_NAME = 0x4000, 0x0FFF, 0x0FFF
_WORD = 0xFFFFFFFF
GITLINK = 0o160000
"""The mode of a repository inside."""
_VALID, _STAGE, _SKIP = 0x8000, 0x3000, 0x4000
_PLAIN_EXTENSION = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ"
"""First letters of those that do not change what the entries mean: git refuses any other that it does not know."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of an index."""

    at: int
    """Where its stat begins."""
    mode: int
    is_valid: bool
    """git was told to take the file for unchanged."""
    is_skipped: bool
    """git was told not to look for the file; never so of an unmerged one."""
    path: bytes


def entries(index: bytes, oid_size: int) -> Iterator[Entry]:
    """Every entry. Raises ValueError when that takes git: a form other than 2 or 3, one that is split or sparse, or not whole."""
    try:
        magic, version, count = _HEADER.unpack_from(index)
        if magic != b"DIRC" or version not in (2, 3):
            raise ValueError(f"version {version}")
        fixed, at = struct.Struct(f">24xL12x{oid_size}xH"), _HEADER.size
        for _ in range(count):
            mode, flags = fixed.unpack_from(index, at)
            name_at = at + fixed.size
            more = 0
            if flags & _EXTENDED:
                (more,) = struct.unpack_from(">H", index, name_at)
                name_at += 2
            length = flags & _NAME_LENGTH
            if length == _LONG_NAME:
                length = index.index(0, name_at) - name_at
            yield Entry(at, mode, bool(flags & _VALID), bool(more & _SKIP and not flags & _STAGE), index[name_at : name_at + length])
            used = name_at + length - at
            at += used + 8 - used % 8  # 1 to 8 NULs: the name's end, and up to a multiple of eight
        _check_extensions(index, at, len(index) - oid_size)
    except struct.error as error:
        raise ValueError(str(error)) from None


def noted(index: bytes, entry: Entry) -> tuple[int, ...]:
    """What git noted of its file: ctime and mtime in nanoseconds, then inode, kind, owner, group and size as 32 bits each."""
    words = _STAT.unpack_from(index, entry.at)
    return (words[0] * 10**9 + words[1], words[2] * 10**9 + words[3], words[5], stat.S_IFMT(words[6]), *words[7:])


def now(seen: os.stat_result) -> tuple[int, ...]:
    """The same of a file as it is."""
    words = (seen.st_ino, stat.S_IFMT(seen.st_mode), seen.st_uid, seen.st_gid, seen.st_size)
    return (seen.st_ctime_ns, seen.st_mtime_ns, *(word & _WORD for word in words))


def _check_extensions(index: bytes, at: int, end: int) -> None:
    while at < end:
        name, size = struct.unpack_from(">4sL", index, at)
        if name[:1] not in _PLAIN_EXTENSION:
            raise ValueError(f"extension {name!r}")
        at += 8 + size
    if at != end:
        raise ValueError("it is cut short")


def fitted(index: bytes, top: Path, oid_size: int) -> bytes:
    """`index` with the stat of each entry taken from its file below `top`, for entries whose file has the size and the time (seconds) it
    had; others stay, and git looks at them itself. `oid_size` is 20 or 32 bytes. Raises HostError for a form that `entries` cannot read."""
    data = bytearray(index[:-oid_size])
    try:
        for entry in entries(index, oid_size):
            _fit(data, entry.at, top / os.fsdecode(entry.path))
    except ValueError as error:
        raise HostError("the index has an unknown form", on=str(top), why=str(error)) from error
    return bytes(data) + (hashlib.sha1(data, usedforsecurity=False) if oid_size == 20 else hashlib.sha256(data)).digest()


def _fit(data: bytearray, at: int, file: Path) -> None:
    words = list(_STAT.unpack_from(data, at))
    try:
        seen = file.lstat()
    except OSError:
        return
    if stat.S_ISDIR(seen.st_mode) or words[2] != int(seen.st_mtime) & _WORD or words[9] != seen.st_size & _WORD:
        return
    ctime, mtime = divmod(seen.st_ctime_ns, 10**9), divmod(seen.st_mtime_ns, 10**9)
    fresh = (*ctime, *mtime, seen.st_dev, seen.st_ino, words[6], seen.st_uid, seen.st_gid, seen.st_size)
    _STAT.pack_into(data, at, *(word & _WORD for word in fresh))


# Reflink
# -------
# Copy on write, a file at a time: FICLONE on xfs and btrfs, clonefile on APFS. No mount, but as long as there are files.


class Reflink(base.Visible):
    """An ordinary directory whose files share their blocks with the template until they are changed."""

    name = "reflink"

    def probe(self, directory: Path) -> str | None:
        """See `Backend`."""
        with base.trial(directory) as scratch:
            source, target = scratch / "source", scratch / "target"
            source.mkdir()
            target.mkdir()
            (source / "file").write_text("one")
            try:
                _copy(source, target)
                (target / "file").write_text("two")
            except OSError as error:
                return f"sharing blocks: {error.strerror}"
            return None if (source / "file").read_text() == "one" else "the copy is not its own"

    def plan(self, path: Path, template: Template) -> Layers:  # noqa: ARG002 - part of the interface
        """See `Backend`."""
        return Layers(self.name, str(template.files))

    def populate(self, env: Environment, template: Template) -> None:
        """See `Backend`."""
        with wrap_os_errors(env.path):
            _copy(template.files, env.path)
            base.rewrite(env, template, env.path)
            base.place_index(env, fitted(template.index.read_bytes(), env.path, len(template.base) // 2))
        base.follow(env, template)


def _copy(source: Path, target: Path) -> None:
    if sys.platform == "darwin":
        for entry in source.iterdir():
            exec_step.clone_tree(entry, target / entry.name)
        return
    closed: list[tuple[Path, int]] = []
    for name, seen in templates.walk(source):
        new = target / name
        if stat.S_ISDIR(seen.st_mode):
            new.mkdir()
            closed.append((new, stat.S_IMODE(seen.st_mode)))
        elif stat.S_ISLNK(seen.st_mode):
            new.symlink_to((source / name).readlink())
            os.utime(new, ns=(seen.st_mtime_ns, seen.st_mtime_ns), follow_symlinks=False)
        elif stat.S_ISREG(seen.st_mode):
            _share(source / name, new, seen)
    for folder, mode in closed:  # only now: a directory may be closed to writing
        folder.chmod(mode)


def _share(source: Path, target: Path, seen: os.stat_result) -> None:
    here = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        new = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, stat.S_IMODE(seen.st_mode))
        try:
            exec_step.share_file(here, new)
            os.fchmod(new, stat.S_IMODE(seen.st_mode))
            os.utime(new, ns=(seen.st_mtime_ns, seen.st_mtime_ns))
        finally:
            os.close(new)
    finally:
        os.close(here)


# Plain
# -----
# A checkout of its own, with the dependencies linked into the template. Works everywhere.
#
# A dependency directory becomes a directory of links, not one link: a pattern such as `node_modules/` matches directories only, and
# a bare link would turn up as the agent's own new file. What the links lead to is write-protected, so that one agent does not
# change another's dependencies (that does not hold root; a sandbox does). Nothing is changed below an overlay: while one stands on
# the template, its dependencies are copied instead, which is slower still.


_COPIED = ".gitignore"
"""git does not read one through a link."""


class Plain(base.Visible):
    """`read-tree` and links."""

    name = "plain"

    def probe(self, directory: Path) -> str | None:
        """See `Backend`."""
        with base.trial(directory) as scratch:
            try:
                (scratch / "link").symlink_to(scratch)
            except OSError as error:
                return f"links: {error.strerror}"
        return None

    def plan(self, path: Path, template: Template) -> Layers:  # noqa: ARG002 - part of the interface
        """See `Backend`."""
        return Layers(self.name, str(template.files))

    def populate(self, env: Environment, template: Template) -> None:
        """See `Backend`."""
        env.repo.git.run(env.place, "read-tree", "-m", "-u", "--end-of-options", env.base, deadline_s=CHECKOUT_S)
        linked = template.protect()
        with wrap_os_errors(env.path):
            for name in template.extras:
                target = env.path / name
                if os.path.realpath(target) == str(target):  # no link of another commit's tree leads out of the worktree
                    _bring(template, name, target, linked=linked)
            base.rewrite(env, template, env.path)


def _bring(template: Template, name: str, target: Path, *, linked: bool) -> None:
    source = template.files / name
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.is_file():
        return  # this commit has a file of its own there
    if not source.is_dir() or source.is_symlink():
        shutil.copy2(source, target, follow_symlinks=False)
        return
    if not linked:
        shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True)
        return
    own = {template.files / inner for inner in template.anchored}
    _link(source, target, own, {folder for file in own for folder in file.parents})


def _link(source: Path, target: Path, own: set[Path], opened: set[Path]) -> None:
    """Make `target` a directory of links to what is in `source`: but not to `own` files, and `opened` directories inside are made alike."""
    target.mkdir(exist_ok=True)
    for entry in source.iterdir():
        if entry in own:
            continue
        if entry in opened:
            _link(entry, target / entry.name, own, opened)
        elif entry.name == _COPIED:
            shutil.copyfile(entry, target / entry.name)
        else:
            (target / entry.name).symlink_to(entry)
