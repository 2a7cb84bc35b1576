"""overlayfs: the template below, the attempt's changes above."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from supervisor.kernel.errors import HostError, NightcrewError, Refused
from supervisor.sandbox import exec_step
from worktrees import templates
from worktrees.backends import base
from worktrees.git import wrap_os_errors
from worktrees.locks import MountNamespace, entered
from worktrees.private_repository import Layers, beside

if TYPE_CHECKING:
    from worktrees.environments import Environment
    from worktrees.templates import Template


# Mounts
# ------
# Overlay mounts as the kernel lists them: which of ours stand, found by looking and not by memory.


_ESCAPE = re.compile(rb"\\([0-7]{3})")
_MOUNTINFO = Path("/proc/self/mountinfo")


@dataclass(frozen=True, slots=True)
class Mount:
    """One overlay that this process sees."""

    path: Path
    upper: str
    """The `upperdir` it was mounted with; "" for a read-only one."""


def mounts(root: Path) -> list[Mount]:
    """Every overlay mounted at or below `root`, in the order they were mounted. Empty where there is no such list (macOS)."""
    try:
        listed = _MOUNTINFO.read_bytes()
    except OSError:
        return []
    below = os.fsencode(root)
    found = []
    for line in listed.splitlines():
        if b" - overlay " not in line:
            continue
        fields, _, rest = line.partition(b" - ")
        path = _plain(fields.split(b" ")[4])
        if path == below or path.startswith(below + b"/"):
            found.append(Mount(Path(os.fsdecode(path)), _upper(rest.split(b" ")[2])))
    return found


def _upper(options: bytes) -> str:
    """overlayfs shows commas and colons of a path as it was given them, escaped by a backslash, which mountinfo escapes once more."""
    match = re.search(rb"(?:^|,)upperdir=((?:\\.|[^,\\])*)", _plain(options))
    return os.fsdecode(re.sub(rb"\\(.)", rb"\1", match.group(1))) if match else ""


def _plain(text: bytes) -> bytes:
    return _ESCAPE.sub(lambda match: bytes([int(match.group(1), 8)]), text)


# Overlay
# -------
# overlayfs: the template below, the attempt's changes above. What it takes does not grow with the size of the tree.
#
# `Overlay` mounts where every process sees it, which needs root. `UserOverlay` serves an ordinary user: the agent's own namespace
# mounts the layers (`Layers.options(user=True)`), and whoever looks at the files afterwards gets a read-only view of both layers in
# a namespace of its own. That view writes nothing, so the agent may still be alive, and there is nothing to clean up.
#
# The upper layer holds the worktree's `.git` file; the same file lies in the bare directory below the mount, so that git finds its
# worktree whether it is mounted or not. Files that nobody changed keep inode, size and times of the template, which is why a copy
# of the template's index fits them.


class Overlay:
    """Mounted where everybody sees it; root only."""

    name = "overlay"
    caveat = ""

    def probe(self, directory: Path) -> str | None:
        """See `Backend`."""
        with base.trial(directory) as scratch:
            layers, target = _trial_layers(self.name, scratch)
            try:
                exec_step.new_mount("overlay", target, layers.options(user=False))
            except OSError as error:
                return f"mount: {error.strerror}"
            try:
                return _disturbed(target, Path(layers.lower))
            finally:
                exec_step.unmount(target, lazy=True)

    def refuses(self, template: Template) -> str | None:  # noqa: ARG002 - part of the interface
        """Serves every template."""
        return None

    def plan(self, path: Path, template: Template) -> Layers:
        """See `Backend`."""
        return _plan(self.name, path, template)

    def populate(self, env: Environment, template: Template) -> None:
        """See `Backend`."""
        _lay(env, template)
        with self.open(env):
            base.follow(env, template)

    @contextlib.contextmanager
    def open(self, env: Environment) -> Iterator[MountNamespace | None]:
        """See `Backend`; it stays mounted."""
        if not self.is_open(env):
            self._mount(env)
        yield None

    def is_open(self, env: Environment) -> bool:
        """See `Backend`. Raises Refused when something else is mounted in the place."""
        if not os.path.ismount(env.path):  # the list of all mounts is long where there are many environments
            return False
        here = [mount for mount in mounts(env.path) if mount.path == env.path]
        if here and here[-1].upper != _layers(env).upper:
            raise Refused(
                "something else is mounted in the place of this worktree",
                on=str(env.path),
                why=f"its upper layer is {here[-1].upper or 'unknown'}",
                kept="both layers of the worktree",
                hint=f"umount {env.path}",
            )
        return bool(here)

    def close(self, env: Environment, *, lazy: bool = False) -> None:
        """See `Backend`."""
        with _alone(env.path):
            while self.is_open(env):
                try:
                    exec_step.unmount(env.path, lazy=lazy)
                except OSError as error:
                    kind, why = (Refused, "a process stands in there") if error.errno == errno.EBUSY else (HostError, error.strerror or "")
                    hint = f"fuser -vm {env.path}"
                    raise kind("the files were not unmounted", on=str(env.path), why=why, kept="everything", hint=hint) from error

    def _mount(self, env: Environment) -> None:
        layers = _layers(env)
        with _alone(env.path):
            if self.is_open(env):
                return
            with wrap_os_errors(env.path):
                env.path.mkdir(parents=True, exist_ok=True)
            try:
                exec_step.new_mount("overlay", env.path, layers.options(user=False))
            except OSError as error:
                raise HostError(
                    "the files could not be mounted",
                    on=str(env.path),
                    why=f"{error.strerror}; layers {layers.lower}, {layers.upper}",
                    kept="both layers",
                    hint="nightcrew doctor",
                ) from error


class UserOverlay:
    """Mounted in a user namespace of whoever needs it; no root."""

    name = "overlay-userns"
    caveat = "rename(2) of a directory of the snapshot fails (EXDEV, 'Invalid cross-device link'), as in git mv; mv copies it instead"
    """The kernel notes such a rename in an attribute that only root may write: it takes no `redirect_dir` together with `userxattr`."""

    def probe(self, directory: Path) -> str | None:
        """See `Backend`."""
        with base.trial(directory) as scratch:
            layers, target = _trial_layers(self.name, scratch)
            try:
                with entered(target, layers.options(user=True), readonly=False) as inside:
                    return _disturbed(inside.reach(target), Path(layers.lower)) or inside.refused()
            except NightcrewError as error:
                return error.why

    def refuses(self, template: Template) -> str | None:
        """A file whose owner has no number inside cannot be changed there: the kernel answers EOVERFLOW when it is copied up. Nor can a
        write-protected directory, except by root."""
        if template.is_protected:
            return "other environments are linked to its dependencies, which are write-protected for that"
        if not template.foreign:
            return None
        return f"{template.foreign} is not owned by this user and group, so nobody could change it in a user namespace"

    def plan(self, path: Path, template: Template) -> Layers:
        """See `Backend`."""
        return _plan(self.name, path, template)

    def populate(self, env: Environment, template: Template) -> None:
        """See `Backend`. It is not mounted: the agent's own namespace does that."""
        _lay(env, template)
        if template.base != env.base:
            with entered(env.path, _layers(env).options(user=True), readonly=False) as inside:
                base.follow(replace(env, inside=inside), template)

    @contextlib.contextmanager
    def open(self, env: Environment) -> Iterator[MountNamespace | None]:
        """See `Backend`: a read-only view."""
        with wrap_os_errors(env.path):
            env.path.mkdir(parents=True, exist_ok=True)
        with entered(env.path, _layers(env).view_options(), readonly=True) as inside:
            yield inside

    def is_open(self, env: Environment) -> bool:  # noqa: ARG002 - part of the interface
        """Never: a mount of a user namespace is seen in there alone."""
        return False

    def close(self, env: Environment, *, lazy: bool = False) -> None:
        """Nothing to do: a namespace ends with its last user."""


def _plan(name: str, path: Path, template: Template) -> Layers:
    return Layers(name, str(template.files), str(beside(path) / "upper"), str(beside(path) / "work"))


def _lay(env: Environment, template: Template) -> None:
    layers = _layers(env)
    with wrap_os_errors(beside(env.path)):
        Path(layers.work).mkdir()
        Path(layers.upper).mkdir()
        (Path(layers.upper) / ".git").write_bytes((env.path / ".git").read_bytes())
        base.rewrite(env, template, Path(layers.upper))
        base.place_index(env, template.index.read_bytes())


def _layers(env: Environment) -> Layers:
    if env.layers is None:
        raise HostError("the worktree has no layers", on=str(env.path))
    return env.layers


def _trial_layers(name: str, scratch: Path) -> tuple[Layers, Path]:
    lower, upper, work, target = (scratch / part for part in ("lower", "upper", "work", "target"))
    for folder in (lower / "folder", upper, work, target):
        folder.mkdir(parents=True)
    (lower / "folder" / "file").write_text("below")
    return Layers(name, str(lower), str(upper), str(work)), target


def _disturbed(top: Path, lower: Path) -> str | None:
    """Change, delete and make a file at `top`; None when all of it worked and `lower` is as it was."""
    try:
        (top / "folder" / "file").write_text("above")
        (top / "folder" / "new").write_text("new")
        (top / "folder" / "file").unlink()
    except OSError as error:
        return f"writing: {error.strerror}"
    left = [name for name, _ in templates.walk(lower)]
    return None if left == ["folder", "folder/file"] and (lower / "folder" / "file").read_text() == "below" else "the lower layer changed"


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    """One at a time mounts or unmounts an environment, of all threads and processes."""
    with wrap_os_errors(path):
        handle = os.open(beside(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
