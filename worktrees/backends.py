"""The ways to give an environment its files. Each is probed by doing it; the first that works is taken. Those whose files behave as
ordinary files come before those that have a caveat, and of these the fastest comes first."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import re
import shutil
import stat
import struct
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from supervisor.host import files
from supervisor.host.scratch import locked_directory
from supervisor.kernel.errors import HostError, NightcrewError, NotFound, Refused
from supervisor.sandbox import exec_step
from worktrees import templates
from worktrees.git import CHECKOUT_S, wrap_os_errors
from worktrees.locks import MountNamespace, entered
from worktrees.private_repository import Layers, beside

if TYPE_CHECKING:
    from worktrees.environments import Environment
    from worktrees.templates import Template


# Base
# ----
# What every file backend answers, and what several of them share.


class Backend(Protocol):
    """A way to give an environment the files of a template. Stateless: what it made is found by looking."""

    @property
    def name(self) -> str:
        """As the ledger writes it."""

    @property
    def caveat(self) -> str:
        """Name what an agent cannot do with the files although the backend works; "" where they behave as ordinary files."""

    def probe(self, directory: Path) -> str | None:
        """Why it does not work for environments in `directory`, found by really doing it there; None when it works."""

    def refuses(self, template: Template) -> str | None:
        """Why it cannot serve this very template, naming the file; None when it can."""

    def plan(self, path: Path, template: Template) -> Layers:
        """The layers that an environment at `path` will have. Touches nothing."""

    def populate(self, env: Environment, template: Template) -> None:
        """Give `env`, which git knows and which has no file yet, its files at `env.base`, and an index that fits them.

        Not repeatable: what a crash left is cleared first. Raises DiskFull, HostError, ToolFailed.
        """

    def open(self, env: Environment) -> AbstractContextManager[MountNamespace | None]:
        """Show the files for the time of the `with`: inside the `MountNamespace` when it gives one, else at `env.path`, where they stay.

        Mounts what is not mounted, also after a reboot. Raises HostError.
        """

    def is_open(self, env: Environment) -> bool:
        """Whether every process of this machine can see the files at `env.path` now."""

    def close(self, env: Environment, *, lazy: bool = False) -> None:
        """Unmount; safe to repeat. Raises Refused when somebody stands in there, unless `lazy`: then it disappears, and ends with its last
        user. Never make it `lazy` and open it again: two mounts of one upper layer disturb each other."""


class Visible:
    """The half of a backend whose environments are ordinary directories."""

    caveat = ""

    def refuses(self, template: Template) -> str | None:  # noqa: ARG002 - part of the interface
        """Serves every template."""
        return None

    @contextlib.contextmanager
    def open(self, env: Environment) -> Iterator[MountNamespace | None]:  # noqa: ARG002
        """Nothing to do."""
        yield None

    def is_open(self, env: Environment) -> bool:
        """Always, while the directory is there."""
        return env.path.is_dir()

    def close(self, env: Environment, *, lazy: bool = False) -> None:
        """Nothing to do."""


def follow(env: Environment, template: Template) -> None:
    """Bring files and index from the template's commit to that of the environment; only files that differ are touched."""
    if template.base != env.base:
        env.repo.git.run(env.place, "read-tree", "-m", "-u", "--end-of-options", env.base, deadline_s=CHECKOUT_S)


def rewrite(env: Environment, template: Template, top: Path) -> None:
    """Write the template's `anchored` files below `top`, with the environment's path in place of the template's. Raises OSError."""
    here, there = os.fsencode(template.files), os.fsencode(env.path)
    for name in template.anchored:
        source, target = template.files / name, top / name
        _same_directory(source.parent, target.parent)
        target.unlink(missing_ok=True)
        target.write_bytes(source.read_bytes().replace(here, there))
        target.chmod(stat.S_IMODE(source.stat().st_mode))


def _same_directory(source: Path, target: Path) -> None:
    if not target.exists():
        _same_directory(source.parent, target.parent)
        target.mkdir()
        target.chmod(stat.S_IMODE(source.stat().st_mode) | stat.S_IRWXU)


def place_index(env: Environment, data: bytes) -> None:
    """Make `data` the environment's index. Written after the files: an index that is not newer than they are is not believed by git."""
    files.atomic_write(env.admin_dir / "index", data, durable=False)


@contextlib.contextmanager
def trial(directory: Path) -> Iterator[Path]:
    """A directory of ours for a probe. Raises HostError when `directory` cannot be written."""
    with contextlib.ExitStack() as stack:
        try:
            place = stack.enter_context(locked_directory(directory, ".nightcrew-probe."))
        except OSError as error:
            raise HostError("cannot write", on=str(directory), why=error.strerror or str(error)) from error
        yield place


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


class Reflink(Visible):
    """An ordinary directory whose files share their blocks with the template until they are changed."""

    name = "reflink"

    def probe(self, directory: Path) -> str | None:
        """See `Backend`."""
        with trial(directory) as scratch:
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
            rewrite(env, template, env.path)
            place_index(env, fitted(template.index.read_bytes(), env.path, len(template.base) // 2))
        follow(env, template)


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


class Plain(Visible):
    """`read-tree` and links."""

    name = "plain"

    def probe(self, directory: Path) -> str | None:
        """See `Backend`."""
        with trial(directory) as scratch:
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
            rewrite(env, template, env.path)


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
        with trial(directory) as scratch:
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
            follow(env, template)

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
        with trial(directory) as scratch:
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
                follow(replace(env, inside=inside), template)

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
        rewrite(env, template, Path(layers.upper))
        place_index(env, template.index.read_bytes())


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


#   init
# --------
# The ways to give an environment its files. Each is probed by doing it; the first that works is taken. Those whose files behave as
# ordinary files come before those that have a caveat, and of these the fastest comes first.


BACKENDS: tuple[Backend, ...] = (Overlay(), Reflink(), UserOverlay(), Plain())
"""In order of preference."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a backend works in a directory."""

    backend: Backend
    reason: str | None
    """Why not; None when it works."""


def named(name: str) -> Backend:
    """The backend that the ledger calls `name`. Raises NotFound."""
    for backend in BACKENDS:
        if backend.name == name:
            return backend
    raise NotFound("no such file backend", on=name, why=f"there are {', '.join(backend.name for backend in BACKENDS)}")


def survey(directory: Path) -> tuple[Verdict, ...]:
    """Every backend, tried out for environments in `directory`: some milliseconds each. Raises HostError when it cannot be written."""
    return tuple(Verdict(backend, backend.probe(directory)) for backend in BACKENDS)


def best(directory: Path, template: Template | None = None, *, shared: bool = False) -> Backend:
    """The first backend that works in `directory`, for this template when one is given. Raises HostError when none does.

    `shared`: only one whose files every process of this machine sees; not one that each process has to mount for itself.
    """
    reasons = []
    for backend in BACKENDS:
        if shared and isinstance(backend, UserOverlay):
            continue
        reason = (backend.refuses(template) if template else None) or backend.probe(directory)
        if reason is None:
            return backend
        reasons.append(f"{backend.name}: {reason}")
    raise HostError("no file backend works", on=str(directory), why="; ".join(reasons))
