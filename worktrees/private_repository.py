"""The repository of its own that a confined attempt works in.

In its sandbox it stands at the path of the person's common directory, so that everything inside is an ordinary worktree of an ordinary
repository: refs as they were at the start, a copy of the configuration, the person's hooks and `info` read-only, objects of its own, and
the person's objects as read-only alternates. The agent may do there what it likes: no git outside ever reads it. What it committed comes
out through `worktrees.securing`.

It lies beside the worktree, where no agent can reach it but by its own sandbox, and goes with the worktree.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

from supervisor.core.sandbox import SHARED_OBJECTS
from supervisor.host.foreign import folder, open_plain
from worktrees import ref_snapshot
from worktrees.failures import wrap_os_errors
from worktrees.git import Place
from worktrees.hardening import config_text
from worktrees.layers import beside
from worktrees.repository import Repository

_DIGEST = "packed-refs.sha256"
_SMALL_MAX = 2**20
_BORROWED_MAX = 100
_OID_MAX = 128
_DROPPED = ("include.", "includeif.", "core.worktree", "extensions.refstorage", "core.ignorecase", "core.filemode", "core.symlinks")
"""Keys of the configuration that do not hold here: includes are written out, the refs are files, and the last three describe the file
system that the repository was made on, see `Git.disk_settings`."""
_DIRECTORIES = (
    "objects/info", "objects/pack", SHARED_OBJECTS, "hooks", "info", "refs/heads", "refs/tags", "logs/refs/heads", "worktrees",
)  # fmt: skip
_ADMINISTRATION = ("HEAD", "ORIG_HEAD", "commondir", "gitdir", "index", "config.worktree", "logs/HEAD", "info/sparse-checkout")
_configurations: dict[Path, tuple[tuple[int, ...], bytes]] = {}


def place(worktree: Path) -> Path:
    """Where the repository of the attempt at `worktree` lies; it need not exist."""
    return beside(worktree) / "git"


def make(repo: Repository, worktree: Path, admin_dir: Path, branch: str, oid: str, also: Iterable[str] = ()) -> Path:
    """Make it, for the registered worktree with its index in place, whose `branch` (short name) stands at `oid`. `also`: branches of
    nightcrew's that the agent sees. Nothing may be there yet.

    Raises DiskFull, HostError, Refused, ToolFailed; what it left then is below `beside(worktree)`.
    """
    return _make(repo, worktree, admin_dir, {f"refs/heads/{branch}": f"{oid}\n".encode()}, also)


def make_unconfined(repo: Repository, worktree: Path, admin_dir: Path) -> Path:
    """Make a private repository with a detached HEAD for commands that run in the worktree as the person. It has links to the
    person's objects, and copies of the hooks and of `info`. Returns git's directory for the worktree in it. Raises as `make`."""
    top = _make(repo, worktree, admin_dir, {}, ())
    with wrap_os_errors(top):
        (top / SHARED_OBJECTS).rmdir()
        (top / SHARED_OBJECTS).symlink_to(repo.common_dir / "objects")
        (top / "objects" / "info" / "alternates").write_text(f"../{SHARED_OBJECTS}\n")
        for name in ("hooks", "info"):
            if (repo.common_dir / name).is_dir():
                shutil.copytree(repo.common_dir / name, top / name, symlinks=True, dirs_exist_ok=True)
    return top / "worktrees" / admin_dir.name


def _make(repo: Repository, worktree: Path, admin_dir: Path, branches: Mapping[str, bytes], also: Iterable[str]) -> Path:
    top = place(worktree)
    with wrap_os_errors(top):
        top.parent.mkdir(mode=0o700, exist_ok=True)
        top.mkdir(mode=0o700)
        for name in _DIRECTORIES:
            (top / name).mkdir(parents=True)
        (top / "objects" / "info" / "alternates").write_bytes(alternates(repo.common_dir))
        disk = repo.git.disk_settings(Place(admin_dir, repo.common_dir, worktree, is_ours=True))
        (top / "config").write_bytes(_configuration(repo) + os.fsencode(config_text("\n".join(pair) for pair in disk.items())))
        _write_refs(repo, top, branches, also)
        _copy_administration(admin_dir, top / "worktrees" / admin_dir.name)
    return top


def alternates(common_dir: Path) -> bytes:
    """What its `objects/info/alternates` says, for a repository that stands at `common_dir` in the sandbox. A whole path where one line
    holds it: GitPython's own object store, which aider reads with, takes a relative one for a path below the current directory."""
    path = f"{common_dir}/{SHARED_OBJECTS}"
    return os.fsencode(f"../{SHARED_OBJECTS}\n" if "\n" in path else f"{path}\n")


def borrowed(repo: Repository) -> tuple[str, ...]:
    """The object stores that the person's repository borrows from, in turn: they must be in sight where nothing else shows them, as in
    `/tmp`."""
    found: dict[str, None] = {}
    todo = [str(repo.common_dir / "objects")]
    while todo and len(found) < _BORROWED_MAX:
        store = todo.pop()
        for line in _lines(Path(store, "info", "alternates")):
            other = os.path.normpath(Path(store) / line)  # as git does: `..` takes a word away, wherever links lead
            if other not in found and Path(other).is_dir():
                found[other] = None
                todo.append(other)
    return tuple(os.path.realpath(path) for path in found)


def _lines(alternates: Path) -> list[str]:
    try:
        with open_plain(alternates) as file:
            text = os.fsdecode(file.read(_SMALL_MAX))
    except OSError:  # most have none, and from one that cannot be read git takes nothing either
        return []
    return [line for line in text.split("\n") if line and not line.startswith(("#", '"'))]  # git itself quotes none that it writes


def packed_at_start(worktree: Path) -> str:
    """SHA-256 (hex) of the `packed-refs` that the repository of the attempt at `worktree` began with: by it is known that no agent wrote it
    anew. Raises OSError."""
    return (beside(worktree) / _DIGEST).read_text()


def branch_now(worktree: Path, branch: str) -> tuple[object, ...]:
    """What changes when the agent of the attempt at `worktree` moves `branch`: what its file says, and the stamp of `packed-refs`. No
    process; to be compared only. Raises nothing."""
    above, _, name = f"refs/heads/{branch}".rpartition("/")
    try:
        with folder(place(worktree), above) as here:
            text = here.read(name, _OID_MAX, linked=True)
    except OSError:
        text = None
    with contextlib.suppress(OSError), folder(place(worktree)) as here:
        packed = here.look("packed-refs")
        return text, packed and (packed.st_ino, packed.st_size, packed.st_mtime_ns, packed.st_ctime_ns)
    return text, None


def _write_refs(repo: Repository, top: Path, branches: Mapping[str, bytes], also: Iterable[str]) -> None:
    taken = ref_snapshot.take(repo, also)
    (top / "packed-refs").write_bytes(taken.packed)
    (top.parent / _DIGEST).write_text(hashlib.sha256(taken.packed).hexdigest())
    for name, text in (*taken.symbolic, *branches.items()):
        with contextlib.suppress(FileExistsError, NotADirectoryError):  # a name below that of another ref
            (top / name).parent.mkdir(parents=True, exist_ok=True)
            (top / name).write_bytes(text)
    with folder(repo.common_dir) as here:
        for name in ("HEAD", "shallow"):
            if (read := here.read(name, _SMALL_MAX, linked=True)) is not None:
                (top / name).write_bytes(read)


def _copy_administration(admin_dir: Path, target: Path) -> None:
    """git's own files of the worktree. Nobody but us has written there yet."""
    for name in _ADMINISTRATION:
        if (admin_dir / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(admin_dir / name, target / name)


def _configuration(repo: Repository) -> bytes:
    """What the repository is configured as, written out. Read again when the file changed, or when it pulls in others."""
    file = repo.common_dir / "config"
    seen = file.stat()
    stamp = (seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns)
    known = _configurations.get(file)
    if known is not None and known[0] == stamp:
        return known[1]
    listed = repo.git.run(repo.store, "config", "--file", str(file), "--includes", "--list", "-z").out
    entries = [entry for entry in os.fsdecode(listed).split("\0") if entry]
    text = os.fsencode(config_text(entry for entry in entries if not entry.lower().startswith(_DROPPED)))
    if not any(entry.lower().startswith("include") for entry in entries):
        _configurations[file] = stamp, text
    return text
