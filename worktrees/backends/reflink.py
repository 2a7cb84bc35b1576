"""Copy on write, a file at a time: FICLONE on xfs and btrfs, clonefile on APFS. No mount, but as long as there are files."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from supervisor.host.sandbox import syscalls
from worktrees import trees
from worktrees.backends import base
from worktrees.backends.index import fitted
from worktrees.failures import wrap_os_errors
from worktrees.layers import Layers

if TYPE_CHECKING:
    from worktrees.environment import Environment
    from worktrees.templates import Template


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
            syscalls.clone_tree(entry, target / entry.name)
        return
    closed: list[tuple[Path, int]] = []
    for name, seen in trees.walk(source):
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
            syscalls.share_file(here, new)
            os.fchmod(new, stat.S_IMODE(seen.st_mode))
            os.utime(new, ns=(seen.st_mtime_ns, seen.st_mtime_ns))
        finally:
            os.close(new)
    finally:
        os.close(here)
