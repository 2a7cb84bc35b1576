"""An attempt's own repository, and changes of what git obeys."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import stat
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from supervisor.host import files
from supervisor.host.untrusted_fs import Folder, folder, open_plain, remove_tree
from supervisor.kernel.errors import Refused
from supervisor.kernel.names import branch_name
from supervisor.sandbox.policy import SHARED_OBJECTS
from worktrees import repository
from worktrees.git import Place, config_text, wrap_os_errors
from worktrees.registration import is_unusual
from worktrees.repository import Repository

# Ref snapshot
# ------------
# Refs read without git: the person's, as the `packed-refs` of an attempt's own repository, and those of one task.
#
# Reading 2,000 loose refs costs as much as starting an agent. So what a directory of refs holds is remembered by the directory's time of
# change: every writer of a ref renames a file into it. A directory that changed within the last second is read again next time, since its
# time may not tell two changes apart.
#
# nightcrew's own refs are left out: there are as many as tasks ever ran, and no agent needs them but the branches that its task names.


_OURS = branch_name("").partition("/")[0]
_LEFT_OUT = frozenset({f"refs/{_OURS}", f"refs/heads/{_OURS}", "refs/stash", "refs/bisect", "refs/worktree", "refs/rewritten"})
"""The last four belong to the person's own checkout."""
_PACKED_MAX = 256 * 2**20
"""Bytes: some 3 million refs."""
_SEARCHED_MAX = 2**20
"""Bytes: git, which knows that the lines are sorted, takes 1.5 ms for any number of refs; we take that for 20,000 and ten times it for
200,000."""
_REF_MAX = 4096
_SETTLED_NS = 10**9
_OID = re.compile(rb"(?:[0-9a-f]{40}|[0-9a-f]{64})\n?")
_LINE = re.compile(rb"^([0-9a-f]{40,64}) (refs/\S+)\n(\^[0-9a-f]{40,64}\n)?", re.MULTILINE)
_PLAIN_NAME = re.compile(r"[\w-]+(?:\.[\w-]+)*", re.ASCII)
"""Of a file that is surely a ref for git; it passes over `.NAME` and `NAME.lock`."""
_HEADER = b"# pack-refs with: sorted \n"
"""Not `peeled`: for what was loose nobody says what a tag leads to, and git looks for itself."""


@dataclass(frozen=True, slots=True)
class Refs:
    """What git would say of the refs of a repository."""

    packed: bytes
    """A whole `packed-refs`."""
    symbolic: tuple[tuple[str, bytes], ...]
    """Full names of refs that name another ref, and the text of their files."""


@dataclass(frozen=True, slots=True)
class _Directory:
    """What a directory of refs held when it was read."""

    stamp: tuple[int, int]
    settled: bool
    """It had not changed for a while then, so the stamp tells every later change."""
    folders: tuple[str, ...]
    files: Mapping[str, bytes]


@dataclass(slots=True)
class _Known:
    """What was read of one repository."""

    directories: dict[str, _Directory] = field(default_factory=dict)
    packed_stamp: tuple[int, ...] = ()
    packed: Mapping[bytes, bytes] = field(default_factory=dict)
    loose: Mapping[str, bytes] = field(default_factory=dict)
    refs: Refs = Refs(b"", ())


_known: dict[Path, _Known] = {}
_lock = threading.Lock()


def take(repo: Repository, also: Iterable[str] = ()) -> Refs:
    """The refs of `repo` but nightcrew's own, of which only the branches `also` (short names) are taken.

    No process unless the refs are kept in an unusual way or `also` names one. Raises OSError, Refused when there are too many, ToolFailed.
    """
    ours = _asked(repo, also)
    if is_unusual(repo):
        return _with(_by_git(repo), ours)
    with _lock:
        known = _known.setdefault(repo.common_dir, _Known())
        loose = dict(_loose(repo.common_dir / "refs", known))
        if _packed_changed(repo.common_dir, known) or loose != known.loose:
            known.loose, known.refs = loose, _merged(known.packed, loose)
        return _with(known.refs, ours)


def below(repo: Repository, *tops: str) -> dict[str, str]:
    """Every ref below the directories `tops` (full names, without an end), and the object that it names. One process where they are kept in
    an unusual way, or where something lies there that is not as git writes it: git says what it makes of that. Raises as `Git.run`."""
    with contextlib.suppress(OSError, ValueError):
        if not is_unusual(repo):
            loose = {name: oid for top in tops for name, oid in _loose_below(repo.common_dir, top, len(repo.head))}
            return {**_packed_below(repo.common_dir, tops), **loose}  # in this order a ref that is packed meanwhile is in one of them
    answer = repo.run("for-each-ref", "--format=%(refname) %(objectname)", *tops)
    return dict(line.split(" ") for line in answer.text.splitlines())


def _loose_below(common: Path, top: str, size: int) -> Iterator[tuple[str, str]]:
    """Raises OSError, and ValueError for what is not as git writes it."""
    todo = [top]
    while todo:
        name = todo.pop()
        with contextlib.ExitStack() as stack:
            try:
                here = stack.enter_context(folder(common, name))
            except FileNotFoundError:
                continue
            for inner in here.names():
                if inner.startswith(".") or inner.endswith(".lock"):
                    continue
                seen = here.look(inner)
                if seen is None or not _PLAIN_NAME.fullmatch(inner):
                    raise ValueError(inner)
                if stat.S_ISDIR(seen.st_mode):
                    todo.append(f"{name}/{inner}")
                    continue
                text = here.read(inner, _REF_MAX, linked=True) or b""
                if not _OID.fullmatch(text) or len(text.strip()) != size or not text.strip(b"0\n"):
                    raise ValueError(inner)
                yield f"{name}/{inner}", text.strip().decode()


def _packed_below(common: Path, tops: Iterable[str]) -> dict[str, str]:
    """Raises ValueError where a directory of `tops` is a ref itself, or the list is too long."""
    with folder(common) as here:
        data = here.read("packed-refs", _SEARCHED_MAX + 1, linked=True) if here.look("packed-refs") is not None else b""
    if data is None or len(data) > _SEARCHED_MAX:
        raise ValueError("packed-refs")
    found = {}
    for top in map(os.fsencode, tops):
        if b" " + top + b"\n" in data:
            raise ValueError(top)
        at = data.find(b" " + top + b"/")
        while at >= 0:
            oid, name = data[data.rfind(b"\n", 0, at) + 1 : at], data[at + 1 : data.index(b"\n", at)]
            found[os.fsdecode(name)] = oid.decode()
            at = data.find(b" " + top + b"/", at + 1)
    return found


def _asked(repo: Repository, also: Iterable[str]) -> dict[bytes, bytes]:
    names = [f"refs/heads/{name}" for name in also]
    if not names:
        return {}
    rows = repo.run("for-each-ref", "--format=%(objectname) %(refname)", *names).out.splitlines()
    return {name: oid for oid, _, name in (row.partition(b" ") for row in rows)}


def _by_git(repo: Repository) -> Refs:
    rows = repo.run("for-each-ref", "--format=%(objectname) %(refname) %(symref)").out.splitlines()
    parts = [row.split(b" ") for row in rows]
    taken = [part for part in parts if len(part) == 3 and not _is_left_out(os.fsdecode(part[1]))]
    symbolic = tuple((os.fsdecode(name), b"ref: " + target + b"\n") for _, name, target in taken if target)
    return Refs(_text({name: oid for oid, name, target in taken if not target}, {}), symbolic)


def _with(refs: Refs, ours: Mapping[bytes, bytes]) -> Refs:
    if not ours:
        return refs
    lines = _LINE.findall(refs.packed)
    oids, peeled = {name: oid for oid, name, _ in lines}, {name: after for _, name, after in lines}
    return Refs(_text({**oids, **ours}, peeled), refs.symbolic)


def _merged(packed: Mapping[bytes, bytes], loose: Mapping[str, bytes]) -> Refs:
    """`packed`: what follows a name in its line and the next one. A loose ref hides a packed one."""
    plain = {os.fsencode(name): text.strip() for name, text in loose.items() if _OID.fullmatch(text)}
    symbolic = tuple((name, text) for name, text in loose.items() if text.startswith(b"ref: refs/"))
    hidden = {os.fsencode(name) for name in loose}
    kept = {name: line for name, line in packed.items() if name not in hidden}
    oids = {**{name: line.split(b"\n", 1)[0] for name, line in kept.items()}, **plain}
    return Refs(_text(oids, {name: line.split(b"\n", 1)[1] for name, line in kept.items()}), symbolic)


def _text(oids: Mapping[bytes, bytes], peeled: Mapping[bytes, bytes]) -> bytes:
    """A `packed-refs` file: one line for each name, sorted as bytes, and below it what a tag leads to, where that is known."""
    return _HEADER + b"".join(oids[name] + b" " + name + b"\n" + peeled.get(name, b"") for name in sorted(oids))


def _packed_changed(common: Path, known: _Known) -> bool:
    with folder(common) as here:
        seen = here.look("packed-refs")
        stamp = (seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns) if seen is not None else ()
        if stamp == known.packed_stamp:
            return False
        data = b"" if seen is None else here.read("packed-refs", _PACKED_MAX + 1, linked=True) or b""
    if len(data) > _PACKED_MAX:
        raise Refused("the repository has too many refs", on=str(common / "packed-refs"), why=f"more than {_PACKED_MAX} bytes")
    lines = {name: oid + b"\n" + peeled for oid, name, peeled in _LINE.findall(data) if not _is_left_out(os.fsdecode(name))}
    known.packed_stamp, changed = stamp, lines != known.packed
    known.packed = lines
    return changed


def _loose(refs: Path, known: _Known) -> Iterator[tuple[str, bytes]]:
    todo, seen = ["refs"], set()
    while todo:
        name = todo.pop()
        with contextlib.suppress(FileNotFoundError, NotADirectoryError), folder(refs, name[len("refs/") :]) as here:
            listed = _listed(here, known.directories.get(name))
            known.directories[name] = listed
            seen.add(name)
            todo += [f"{name}/{inner}" for inner in listed.folders if not _is_left_out(f"{name}/{inner}")]
            yield from ((f"{name}/{file}", text) for file, text in listed.files.items() if not _is_left_out(f"{name}/{file}"))
    for gone in known.directories.keys() - seen:
        del known.directories[gone]


def _listed(here: Folder, before: _Directory | None) -> _Directory:
    now = os.fstat(here.handle)
    stamp = (now.st_ino, now.st_mtime_ns)
    if before is not None and before.settled and before.stamp == stamp:
        return before
    settled = time.time_ns() - now.st_mtime_ns > _SETTLED_NS
    folders, files = [], {}
    with os.scandir(here.handle) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry.name)
            elif not entry.name.endswith(".lock") and not entry.name.startswith("."):
                files[entry.name] = here.read(entry.name, _REF_MAX, linked=True) or b""
    return _Directory(stamp, settled, tuple(folders), files)


def _is_left_out(name: str) -> bool:
    return name in _LEFT_OUT or any(name.startswith(f"{ref}/") for ref in _LEFT_OUT)


# Layers
# ------
# The layers of an environment's files: the frozen template below, the attempt's own layer above. Kept as text in the ledger.


_RECORD = "layers.json"
_RECORD_MAX = 2**16
_REMOVED = "removed"


@dataclass(frozen=True, slots=True)
class Layers:
    """Absolute paths. `lower` is the template's tree; `upper` and `work` are "" where the files are the worktree's own."""

    backend: str
    lower: str
    upper: str = ""
    work: str = ""

    @property
    def template(self) -> Path:
        """Where the template lies."""
        return Path(self.lower).parent

    def options(self, *, user: bool) -> str:
        """The data of mount(2) for a writable overlay. `user`: for a mount in a user namespace, where renaming a directory of the lower
        layer answers EXDEV, as it does between file systems; without it such a rename works."""
        own = "userxattr" if user else "redirect_dir=on,metacopy=off"
        return f"lowerdir={_escaped(self.lower)},upperdir={_escaped(self.upper)},workdir={_escaped(self.work)},index=off,{own}"

    def view_options(self) -> str:
        """The data of mount(2) for a read-only view of both layers, in a user namespace: it never writes, so it may stand beside a live
        mount of the same layers."""
        return f"lowerdir={_escaped(self.upper)}:{_escaped(self.lower)},index=off,userxattr"


def beside(path: Path) -> Path:
    """The directory of ours that belongs to the environment at `path`: its layers, and the record of them."""
    return path.with_name(f".{path.name}")


def record(path: Path, layers: Layers) -> None:
    """Make `beside(path)` (0700) and write the record. Raises OSError, or as `files.atomic_write`."""
    folder = beside(path)
    folder.mkdir(mode=0o700, exist_ok=True)
    files.atomic_write(folder / _RECORD, json.dumps({"schema": 1, **asdict(layers)}).encode(), durable=False)


def recorded(path: Path) -> Layers | None:
    """The layers of the environment at `path`; None when it has none. Raises OSError or ValueError when the record is damaged."""
    file = beside(path) / _RECORD
    if not file.exists():
        return None
    with open_plain(file) as data:
        shape = json.loads(data.read(_RECORD_MAX))
    return Layers(*(str(shape[name]) for name in ("backend", "lower", "upper", "work")))


def mark_removed(path: Path) -> None:
    """Note that nothing in `beside(path)`, if there is one, is to be kept once git's record of the worktree is gone. Raises OSError."""
    with contextlib.suppress(FileNotFoundError):
        os.close(os.open(beside(path) / _REMOVED, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))


def is_removed(path: Path) -> bool:
    """Whether that was noted: a removal was cut off where the directory is still there."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        return (names := os.listdir(beside(path))) == [] or _REMOVED in names  # noqa: PTH208 - a few names
    return False


def remove_beside(path: Path) -> None:
    """Remove `beside(path)`, the note that says so last. Raises OSError."""
    remove_tree(beside(path), keep=(_REMOVED,))
    remove_tree(beside(path))


def _escaped(path: str) -> str:
    """overlayfs splits its options at commas, and the lower directories at colons."""
    return path.replace("\\", "\\\\").replace(",", "\\,").replace(":", "\\:")


# Private repository
# ------------------
# The repository of its own that a confined attempt works in.
#
# In its sandbox it stands at the path of the person's common directory, so that everything inside is an ordinary worktree of an
# ordinary repository: refs as they were at the start, a copy of the configuration, the person's hooks and `info` read-only, objects
# of its own, and the person's objects as read-only alternates. The agent may do there what it likes: no git outside ever reads it.
# What it committed comes out through `worktrees.collect_work`.
#
# It lies beside the worktree, where no agent can reach it but by its own sandbox, and goes with the worktree.


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
    taken = take(repo, also)
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
    listed = repo.run("config", "--file", str(file), "--includes", "--list", "-z").out
    entries = [entry for entry in os.fsdecode(listed).split("\0") if entry]
    text = os.fsencode(config_text(entry for entry in entries if not entry.lower().startswith(_DROPPED)))
    if not any(entry.lower().startswith("include") for entry in entries):
        _configurations[file] = stamp, text
    return text


# Tampering
# ---------
# Notices changes of what git obeys in a repository (configuration, hooks and attributes), and of rescue refs.


_READ_MAX = 2**20
_RESCUE = "refs/nightcrew/"
_PAUSE = 19
"""The pause between two looks, as a multiple of how long a look takes."""
_FEW = 1_000
"""Rescue refs that are looked at each time: git lists so many loose ones in 20 ms of processor time."""
_RACY_NS = 2 * 10**9
"""A file that changed so short ago may change again without another stamp."""
_DIGESTS_MAX = 10_000
_UNREADABLE = "unreadable"
_digests: dict[str, tuple[tuple[int, ...], str]] = {}
_FILES = ("config", "config.worktree", "info/attributes", "info/exclude", "info/grafts", "objects/info/alternates")


def config_guard(repo: Repository) -> dict[str, str]:
    """A fingerprint: name of each file that steers git (relative to the common directory) -> digest of its kind, mode and text.

    Symbolic links count by where they point and are not followed; of a file beyond 1 MiB the size and time count as well.
    """
    common, found = repo.common_dir, dict[str, str]()
    for name in (*_FILES, *_hooks(common)):
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            found[name] = _digest(f"{common}/{name}")
    return found


def changed(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[str, ...]:
    """Names that were added, removed or altered between two fingerprints, sorted."""
    return tuple(sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name)))


def _hooks(common: Path) -> Iterator[str]:
    hooks = common / "hooks"
    if hooks.is_symlink():
        yield "hooks"
        return
    with contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(hooks) as entries:
        yield from sorted(f"hooks/{entry.name}" for entry in entries)


def _digest(file: str) -> str:
    """A file that stands as it stood is not read again: whoever writes to one changes its times. Raises OSError when there is none."""
    seen, now = os.lstat(file), time.time_ns()
    stamp = (seen.st_dev, seen.st_ino, seen.st_mode, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns)
    known = _digests.get(file)
    if known is not None and known[0] == stamp:
        return known[1]
    digest = _read_digest(Path(file), seen)
    _digests.pop(file, None)
    if 0 < seen.st_ctime_ns < now - _RACY_NS and not digest.startswith(_UNREADABLE):
        _digests[file] = stamp, digest
        while len(_digests) > _DIGESTS_MAX:
            _digests.pop(next(iter(_digests)), None)
    return digest


def _read_digest(file: Path, seen: os.stat_result) -> str:
    facts = f"{seen.st_mode:o}"
    if stat.S_ISLNK(seen.st_mode):
        return _hash(facts, os.fsencode(file.readlink()))
    if not stat.S_ISREG(seen.st_mode):
        return _hash(facts, b"")
    if seen.st_size > _READ_MAX:
        facts += f" {seen.st_size} {seen.st_mtime_ns}"
    try:
        with open_plain(file) as data:
            return _hash(facts, data.read(_READ_MAX))
    except OSError as error:
        return f"{_UNREADABLE}: {error.strerror}"


def _hash(facts: str, data: bytes) -> str:
    return hashlib.sha256(facts.encode() + b"\0" + data).hexdigest()


class RefGuard:
    """Notices that a rescue ref was moved or removed, and not by us. Safe to use from several threads.

    A look costs as much as there are rescue refs. Where these are many and looking would take more than a twentieth of the time, it is
    left to a later one, which then may say it of a later attempt.
    A repository whose git hangs keeps no other's refs from being moved.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._watched: dict[Path, _Watched] = {}

    def _of(self, common_dir: Path) -> _Watched:
        return self._watched.setdefault(common_dir, _Watched())

    @contextlib.contextmanager
    def moving(self, common_dir: Path, updates: list[tuple[str, str]]) -> Iterator[None]:
        """For `Git.moving`."""
        watched = self._of(common_dir)
        with watched.lock:
            watched.moving.append(updates)
        try:
            yield
            watched.learn(updates)
        except BaseException:
            watched.learn([(ref, "") for ref, _ in updates])  # nobody knows which moved
            raise
        finally:
            with watched.lock:
                watched.moving.remove(updates)

    def begin(self, repo: Repository) -> None:
        """From now on, at the latest, changes in this repository are noticed. Raises as `Git.run`."""
        watched = self._of(repo.common_dir)
        with watched.lock:
            if watched.known is None:
                watched.known = _rescue_refs(repo)

    def changed(self, repo: Repository) -> tuple[str, ...]:
        """Rescue refs that somebody else changed since the last look, sorted. Raises as `Git.run`."""
        watched = self._of(repo.common_dir)
        with watched.lock:
            before, began = watched.known, self._monotonic()
            if before is None or began < watched.not_before:
                return ()
            now = watched.known = _rescue_refs(repo)
            ended = self._monotonic()
            watched.not_before = ended + _PAUSE * (ended - began) if len(now) > _FEW else ended
            ours = {ref for updates in watched.moving for ref, _ in updates}
            return tuple(sorted(ref for ref, oid in before.items() if now.get(ref) != oid and ref not in ours))


class _Watched:
    """What is known of one repository."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.known: dict[str, str] | None = None
        """Its rescue refs; None before anybody asked."""
        self.moving: list[list[tuple[str, str]]] = []
        self.not_before = 0.0

    def learn(self, updates: list[tuple[str, str]]) -> None:
        """Note moves that we made ourselves; "" is a ref that is gone, or one whose place nobody knows."""
        with self.lock:
            if self.known is not None:
                for ref, new in updates:
                    self.known.pop(ref, None)
                    if new and ref.startswith(_RESCUE):
                        self.known[ref] = new


def _rescue_refs(repo: Repository) -> dict[str, str]:
    listed = repository.over_all(repo, "for-each-ref", "--format=%(refname) %(objectname)", _RESCUE)
    return dict(line.rsplit(" ", 1) for line in os.fsdecode(listed.out).splitlines())
