"""The copies of what the agents' command lines keep in a person's home: made for one attempt, and their renewed logins taken back.

`prepare` runs before the attempt's agent; from then on the agent can write everything in `HOMES` of its attempt, so the other functions go
there by `supervisor.host.untrusted_fs` alone. The person's files are found by `MANIFEST`, which no agent can write.
"""

# ruff: noqa: PTH102, PTH110, PTH112, PTH115, PTH116, PTH211
# (the core speaks text, and so do mounts)

from __future__ import annotations

import json
import os
import stat
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from supervisor.host import files, untrusted_fs
from supervisor.kernel.errors import NightcrewError
from supervisor.sandbox import policy
from supervisor.sandbox.policy import lies_in, touches

HOMES = "home"
"""In an attempt's directory: the copies, each below the path of its original."""
MANIFEST = "home.json"
COPIED_BYTES, COPIED_ENTRIES = 2**20, 32
"""An entry of a directory that is larger is shown as it is, read-only."""
FILE_MAX = 16 * 2**20
"""Bytes of a file that stands for itself (`.claude.json`)."""
MATCHES_MAX = 1000
_MANIFEST_MAX = 2**20


@dataclass(frozen=True, slots=True)
class Login:
    """A file with logins that a command line renews."""

    usual: str
    """Its key in `LOGINS`."""
    real: str
    """The person's file, free of links."""
    own: str
    """The attempt's copy, below the attempt's directory."""


@dataclass(frozen=True, slots=True)
class Homes:
    """The copies of one attempt."""

    private: tuple[tuple[str, str], ...] = ()
    """A real path of the person's, and the path of the copy below the attempt's directory."""
    shown: tuple[str, ...] = ()
    """As `Places.homes_shown`."""
    logins: tuple[Login, ...] = ()
    gives_back: bool = False
    """Whether a login that was renewed in a copy is the person's new one: only an agent that reaches a provider can renew any."""

    def own(self, path: str) -> str:
        """Where the attempt has its copy of a real path, below its directory; empty: it has none."""
        for real, own in self.private:
            if path == real or path.startswith(f"{real}/"):
                return own + path[len(real) :]
        return ""


def find(home: Path, env: Mapping[str, str], closed: Collection[str], repository: str = "") -> dict[str, str]:
    """Return the directories and files to copy for an agent with that HOME and environment: where each really lies, and its usual path
    below the home. None of them lies in or holds one of `closed`, lies in `repository`, or holds the home itself: a variable could say so.
    A person may keep a whole directory in a repository."""
    found = dict[str, str]()
    at = os.path.realpath(home)
    for path, usual in policy.directories(at, env):
        real = os.path.realpath(path)
        if os.path.exists(real) and not touches(real, closed) and not lies_in(at, real) and not (repository and lies_in(real, repository)):
            found.setdefault(real, usual)
    inner = {real for real in found if any(other != real and lies_in(real, other) for other in found)}
    return {real: usual for real, usual in found.items() if real not in inner}


def prepare(attempt: Path, found: Mapping[str, str], *, gives_back: bool) -> Homes:
    """Make the copies of an attempt; a second call returns what the first one made. Raises OSError, and as `files.atomic_write`."""
    made = of(attempt)
    if made is not None:
        return made
    untrusted_fs.remove_tree(attempt / HOMES)  # of a start that was interrupted: no agent has seen it
    shown, logins = list[str](), list[Login]()
    for real, usual in found.items():
        own = attempt / HOMES / real.lstrip("/")
        own.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if os.path.isdir(real):
            own.mkdir(mode=0o700)
            shown += _fill(real, own)
        elif not _copy_file(real, str(own)):
            continue
        for name in policy.LOGINS:
            file = os.path.realpath(f"{real}/{name[len(usual) + 1 :]}")
            if name.startswith(f"{usual}/") and (data := _login(file)) is not None:
                copy = own / name[len(usual) + 1 :]
                files.atomic_write(copy, data, durable=False)
                logins.append(Login(name, file, str(copy.relative_to(attempt))))
    private = tuple((real, f"{HOMES}{real}") for real in found if os.path.exists(attempt / f"{HOMES}{real}"))
    made = Homes(private, tuple(shown), tuple(logins), gives_back)
    files.atomic_write(attempt / MANIFEST, json.dumps(asdict(made)).encode(), durable=False)
    return made


def of(attempt: Path) -> Homes | None:
    """Return the copies that an attempt was given; None: it has none, or they are not finished."""
    data = untrusted_fs.read_plain(attempt / MANIFEST, _MANIFEST_MAX)
    if not data:
        return None
    shape = json.loads(data)
    private = tuple((real, own) for real, own in shape["private"])
    return Homes(private, tuple(shape["shown"]), tuple(Login(**login) for login in shape["logins"]), shape["gives_back"])


def matching(attempt: Path, own: str, pattern: str) -> Iterator[tuple[str, os.stat_result]]:
    """The plain files in a directory of the copies, both given below the attempt's directory, whose path there fits `pattern`: each `*` is
    within one name. At most MATCHES_MAX names of a directory are looked at."""
    first, _, rest = pattern.partition("/")
    try:
        with untrusted_fs.folder(attempt, own) as here:
            names = sorted(name for name in here.names() if fnmatchcase(name, first))[:MATCHES_MAX]
            found = [(name, seen) for name in names if (seen := here.look(name)) is not None]
    except OSError:
        return
    for name, seen in found:
        if rest and stat.S_ISDIR(seen.st_mode):
            yield from matching(attempt, f"{own}/{name}", rest)
        elif not rest and stat.S_ISREG(seen.st_mode):
            yield f"{own}/{name}", seen


def forget(attempt: Path) -> None:
    """Remove the copies of an attempt whose worktree is gone, its logins among them. Transcripts, logs and whatever else is not copied
    (`LEFT_OUT`) stay. Raises OSError."""
    made = of(attempt)
    for _, own in made.private if made is not None else ():
        if not os.path.isdir(attempt / own):
            untrusted_fs.remove_tree(attempt / own)
            continue
        with untrusted_fs.folder(attempt, own) as here:
            names = [name for name in here.names() if not policy.is_left_out(name)]
        for name in names:
            untrusted_fs.remove_tree(attempt / own / name)


# Logins -------------------------------------------------------------------------------------------------------------------------------

Stamp = tuple[int, ...]


class SharedLogins:
    """Keeps the logins of running attempts and of the person alike. What it saw last is in memory only: after a restart all is compared."""

    def __init__(self) -> None:
        self._homes: dict[Path, Homes | None] = {}
        self._seen: dict[tuple[Path, str], tuple[Stamp, Stamp]] = {}

    def share(self, attempts: Collection[Path], now_ms: float) -> None:
        """Take back what was renewed in one of these attempts, then give each what the person's file says now. Raises as
        `files.atomic_write`, once for each renewal; the end of the attempt tries again."""
        self._homes = {attempt: self._homes[attempt] if attempt in self._homes else of(attempt) for attempt in attempts}
        known = [(attempt, made, login) for attempt, made in self._homes.items() if made is not None for login in made.logins]
        self._seen = {key: self._seen[key] for attempt, _, login in known if (key := (attempt, login.own)) in self._seen}
        failed = None
        for attempt, made, login in known:
            try:
                self._take(attempt, made, login, now_ms)
            except NightcrewError as error:
                failed = error
        for attempt, _, login in known:
            self._give(attempt, login)
        if failed is not None:
            raise failed

    def _take(self, attempt: Path, made: Homes, login: Login, now_ms: float) -> None:
        own, real = self._seen.get((attempt, login.own), ((), ()))
        if (now := _own_stamp(attempt, login)) != own:
            self._seen[attempt, login.own] = now, real
            take_back(attempt, made, login, now_ms)

    def _give(self, attempt: Path, login: Login) -> None:
        _, real = self._seen.get((attempt, login.own), ((), ()))
        if (now := _stamp(login.real)) != real:
            _give(attempt, login)
            self._seen[attempt, login.own] = _own_stamp(attempt, login), now


def take_back(attempt: Path, made: Homes, login: Login, now_ms: float) -> None:
    """Write a login that was renewed in an attempt's copy into the person's file. Only tokens change there (`agent_homes.renewed`)."""
    if not made.gives_back:
        return
    real, own = _login(login.real), _read(attempt, login)
    merged = policy.renewed(policy.LOGINS[login.usual], real, own, now_ms) if real and own else None
    if merged is None:
        return
    path = Path(login.real)
    files.atomic_write(path, merged, stat.S_IMODE(path.stat().st_mode))


def take_all_back(attempt: Path, now_ms: float) -> None:
    """The same for every login of an attempt that has ended."""
    if (made := of(attempt)) is not None:
        for login in made.logins:
            take_back(attempt, made, login, now_ms)


def _give(attempt: Path, login: Login) -> None:
    data = _login(login.real)
    if data is None or data == _read(attempt, login):
        return
    below, _, name = login.own.rpartition("/")
    try:
        with untrusted_fs.folder(attempt, below) as here:
            here.replace(name, data, mode=0o600)
    except OSError:
        return  # the agent put something else there: it goes without


def _read(attempt: Path, login: Login) -> bytes | None:
    below, _, name = login.own.rpartition("/")
    try:
        with untrusted_fs.folder(attempt, below) as here:
            return here.read(name, policy.LOGIN_MAX + 1)
    except OSError:
        return None


def _own_stamp(attempt: Path, login: Login) -> Stamp:
    below, _, name = login.own.rpartition("/")
    try:
        with untrusted_fs.folder(attempt, below) as here:
            seen = here.look(name)
    except OSError:
        return ()
    return _stamped(seen)


def _stamp(path: str) -> Stamp:
    try:
        return _stamped(os.stat(path, follow_symlinks=False))
    except OSError:
        return ()


def _stamped(seen: os.stat_result | None) -> Stamp:
    return (seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns) if seen is not None else (0,)


def _login(path: str) -> bytes | None:
    """A person's file with logins; None when there is none, or none that is shared."""
    try:
        data = untrusted_fs.read_plain(Path(path), policy.LOGIN_MAX + 1)
    except NightcrewError:
        return None
    return data if data is not None and len(data) <= policy.LOGIN_MAX else None


# Copies -------------------------------------------------------------------------------------------------------------------------------


def _fill(real: str, own: Path) -> list[str]:
    """Copy the entries of a directory; those that are too large are left empty, and returned."""
    shown = []
    for entry in _entries(real):
        if policy.is_left_out(entry.name):
            continue
        if _fits(entry, _Budget(COPIED_BYTES, COPIED_ENTRIES)):
            _copy(entry, f"{own}/{entry.name}")
        else:
            (own / entry.name).mkdir(0o700) if entry.is_dir(follow_symlinks=False) else (own / entry.name).touch(0o600)
            shown.append(entry.path)
    return shown


@dataclass(slots=True)
class _Budget:
    size: int
    entries: int


def _fits(entry: os.DirEntry[str], budget: _Budget) -> bool:
    budget.entries -= 1
    if entry.is_file(follow_symlinks=False):
        budget.size -= entry.stat(follow_symlinks=False).st_size
    inner = _entries(entry.path) if budget.entries >= 0 and entry.is_dir(follow_symlinks=False) else []
    return min(budget.entries - len(inner), budget.size) >= 0 and all(_fits(each, budget) for each in inner)


def _copy(entry: os.DirEntry[str], target: str) -> None:
    """Copy a file, a link as a link, or a whole directory. What is unreadable, or none of them, is passed over."""
    if entry.is_symlink():
        os.symlink(os.readlink(entry.path), target)
    elif entry.is_dir(follow_symlinks=False):
        os.mkdir(target, 0o700)
        for inner in _entries(entry.path):
            _copy(inner, f"{target}/{inner.name}")
    elif entry.is_file(follow_symlinks=False):
        _copy_file(entry.path, target)


def _copy_file(path: str, target: str) -> bool:
    """False when it cannot be read, or is too large."""
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            data, mode = file.read(FILE_MAX + 1), os.fstat(file.fileno()).st_mode
    except OSError:
        return False
    if len(data) > FILE_MAX:
        return False
    handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600 | (mode & 0o100))
    with os.fdopen(handle, "wb") as copy:
        copy.write(data)
    return True


def _entries(path: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(path) as found:
            return sorted(found, key=lambda entry: entry.name)
    except OSError:
        return []
