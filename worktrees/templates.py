"""A template: the frozen checkout of one commit."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path, PurePosixPath
from typing import Any

from supervisor.host import scratch
from supervisor.host.files import atomic_write
from supervisor.host.untrusted_fs import folder, open_plain, remove_tree
from supervisor.kernel.errors import HostError, NightcrewError, NotFound, Refused, some_of
from worktrees import private_repository, registration
from worktrees.git import CHECKOUT_S, Place, wrap_os_errors
from worktrees.private_repository import beside, recorded
from worktrees.registration import Registration
from worktrees.repository import Repository

# Trees
# -----
# Walking a tree that is ours, and taking its fingerprint.


_WRITE = 0o222


def walk(top: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Every entry below `top`, parents before what is in them: its path relative to `top`, and its lstat. Links are not followed."""
    pending = [""]
    while pending:
        prefix = pending.pop()
        with os.scandir(top / prefix) as entries:
            found = sorted(entries, key=lambda entry: entry.name)
        for entry in found:
            name = f"{prefix}{entry.name}"
            yield name, entry.stat(follow_symlinks=False)
            if entry.is_dir(follow_symlinks=False):
                pending.append(f"{name}/")


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """What a frozen tree is recognised by."""

    digest: str
    """Over each entry's path, kind, permissions but for writing, and size and time or target."""
    files: int
    size: int
    """Bytes of all regular files."""
    foreign: str
    """The first entry that is not owned by this user and group, "" when there is none."""


def fingerprint(top: Path) -> Fingerprint:
    """Reads names and stats only, not contents: about 0.2 s for 13,000 entries. Raises OSError."""
    digest, files, size, foreign = hashlib.sha256(), 0, 0, ""
    owner = (os.geteuid(), os.getegid())
    for name, seen in walk(top):
        facts = f"{seen.st_mode & ~_WRITE:o}"
        if stat.S_ISREG(seen.st_mode):
            files, size = files + 1, size + seen.st_size
            facts += f" {seen.st_size} {seen.st_mtime_ns}"
        elif stat.S_ISLNK(seen.st_mode):
            facts += f" {(top / name).readlink()}"
        digest.update(os.fsencode(f"{facts} {name}\0"))
        if not foreign and (seen.st_uid, seen.st_gid) != owner:
            foreign = name
    return Fingerprint(digest.hexdigest(), files, size, foreign)


def write_protect(top: Path) -> None:
    """Take away the permission to write of every file and directory below `top`, and of `top`. Raises OSError."""
    for name, seen in [*walk(top), ("", top.lstat())]:
        if not stat.S_ISLNK(seen.st_mode):
            (top / name).chmod(stat.S_IMODE(seen.st_mode) & ~_WRITE)


remove_trees = remove_tree


# Templates
# ---------
# A template: the checkout of one commit with everything that set-up made in it, frozen, to start many environments from.
#
#     <place>/files/          the tree; the lower layer of overlays. It holds no `.git`
#     <place>/index           git's index of it, whose stats fit its files
#     <place>/in-use/<hash>   one for each environment: its path
#     <place>/template.json   written last: without it the template is half-made
#
# Nothing changes below a mounted layer: once template.json is there nothing of ours writes into `files` but `protect`, which
# refuses while an overlay stands on it; `remove` refuses while any environment is left; agents are kept out by their sandbox; and a
# change made all the same is found by the fingerprint that `load` compares. The files keep their permission to write: overlays and
# clones inherit it.
#
# While set-up runs, the tree is a detached worktree of a copy of the repository, so that tools which ask git for a version work and
# those that configure git change the copy. It is also registered and locked in the repository: the lock says whose it is, and the
# next `build` at the same place clears what a crash left.


_SCHEMA = 1
_TEXT_MAX = 2**18
_IGNORE_ALL = b"*\n"


@dataclass(frozen=True, slots=True)
class Template:
    """A frozen template. Everything but `place` is what template.json says."""

    place: Path
    base: str
    """Commit that is checked out."""
    project: str
    extras: tuple[str, ...]
    """What is there beside the commit's files: paths that git ignores; a whole directory is one entry and ends in a slash."""
    anchored: tuple[str, ...]
    """Text files among the extras that name the template's own path, as scripts of a virtual environment and editable installs do: each
    environment gets its own, which names its path instead."""
    foreign: str
    """First file that is not owned by this user and group; "" when there is none."""
    count: int
    """Regular files."""
    size: int
    """Bytes of them."""
    digest: str
    notes: tuple[str, ...] = ()
    """One line each: what set-up did that was put right."""

    @property
    def files(self) -> Path:
        """The tree."""
        return self.place / "files"

    @property
    def index(self) -> Path:
        """git's index of the tree."""
        return self.place / "index"

    @property
    def is_protected(self) -> bool:
        """Whether what set-up made is write-protected, because environments are linked to it."""
        return (self.place / "protected").exists()

    def protect(self) -> bool:
        """Write-protect what set-up made; safe to repeat. False while an overlay stands on it: nothing is done then. Raises HostError."""
        with _locked(self.place):
            if self.is_protected:
                return True
            if any((layers := recorded(path)) is not None and layers.upper for path in _users(self.place)):
                return False
            with wrap_os_errors(self.place):
                for name in self.extras:
                    if name.endswith("/") and not (self.files / name.rstrip("/")).is_symlink():
                        write_protect(self.files / name)
                (self.place / "protected").touch()
        return True


def build(repo: Repository, base: str, place: Path, prepare: Callable[[Path], None], copy: Sequence[str] = ()) -> Template:
    """Check `base` out at `place`, add the files of `copy` from the person's checkout, let `prepare` work in the tree, and freeze it.

    Raises Refused (there is one already; a file of `copy` leads out of the checkout or is not ignored by git; set-up left new
    files that git does not ignore, or moved HEAD), DiskFull, ToolFailed, and whatever `prepare` raises. After an error nothing is left.
    """
    place = Path(os.path.realpath(place))
    with wrap_os_errors(place):
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        scratch.spread(place.parent)
        place.mkdir(mode=0o700, exist_ok=True)
    with _locked(place):
        if (place / "template.json").exists():
            raise Refused("there is a template already", on=str(place), kept="it", hint="remove it, or load it")
        _clear(repo, place)
        try:
            return _build(repo, base, place, prepare, copy)
        except BaseException:
            _clear(repo, place)
            remove_tree(place)
            raise


def clear(repo: Repository, place: Path) -> None:
    """Remove what a crash left of a `build` or a `remove` at `place`; a whole template stays, and absent is fine.

    Raises Refused when environments stand on it all the same, HostError.
    """
    place = Path(os.path.realpath(place))
    if not place.is_dir():
        return
    with _locked(place):
        if not (place / "template.json").exists():
            _clear(repo, place)
            with wrap_os_errors(place):
                remove_tree(place)


def load(place: Path) -> Template:
    """The template at `place`, compared with its fingerprint: names, sizes and times of every file, about 0.2 s for 13,000.

    Raises NotFound when there is none or it is half-made, HostError when it was changed or is damaged.
    """
    template = read(place)
    with _whole(place):
        seen = fingerprint(template.files)
        if _digest(seen.digest, template.index) != template.digest:
            raise ValueError("its files are not as they were frozen")
    return template


def read(place: Path) -> Template:
    """As `load`, without looking at the files."""
    place = Path(os.path.realpath(place))
    file = place / "template.json"
    if not file.exists():
        raise NotFound("no template", on=str(place), why="it was removed, or never finished", hint="create the snapshot again")
    with _whole(place), open_plain(file) as data:
        shape: dict[str, Any] = json.loads(data.read())
        if shape["schema"] != _SCHEMA:
            raise ValueError(f"schema {shape['schema']} is of another version")
        known = {field.name: shape[field.name] for field in fields(Template) if field.name != "place"}
    lists = {name: tuple(value) for name, value in known.items() if isinstance(value, list)}
    return Template(place=place, **{**known, **lists})


def remove_template(template: Template) -> None:
    """Delete it. Raises Refused while an environment uses it, naming them; HostError."""
    with _locked(template.place):
        _refuse_used(template)
        with wrap_os_errors(template.place):
            (template.place / "template.json").unlink(missing_ok=True)  # from now on it is half-made
            remove_tree(template.place)


def refuse_used(template: Template) -> None:
    """Raises Refused while an environment uses it, naming them."""
    with _locked(template.place):
        _refuse_used(template)


def _refuse_used(template: Template) -> None:
    used = _users(template.place)
    if used:
        names = some_of([str(path) for path in used])
        raise Refused("the template is in use", on=str(template.place), why=f"{len(used)} environments: {names}", kept="it")


@contextlib.contextmanager
def leased(template: Template, path: Path) -> Iterator[None]:
    """Note that the environment at `path` stands on the template. The record counts only once the `with` body has created `beside(path)`.

    Raises NotFound when the template is gone.
    """
    with _locked(template.place), wrap_os_errors(template.place):
        read(template.place)
        folder = template.place / "in-use"
        folder.mkdir(exist_ok=True)
        note = folder / hashlib.sha256(os.fsencode(path)).hexdigest()[:24]
        note.write_bytes(os.fsencode(path))
        yield


def _build(repo: Repository, base: str, place: Path, prepare: Callable[[Path], None], copy: Sequence[str]) -> Template:
    files = place / "files"
    with repo.git.lock(repo.common_dir):
        admin = registration.add(repo, Registration(files, _making(place), base))
    tree = Place(admin, repo.common_dir, files, is_ours=True)
    repo.git.run(tree, "read-tree", "-m", "-u", "--end-of-options", base, deadline_s=CHECKOUT_S)
    for name in copy:
        _copy(repo, name, files)
    with _own_repository(repo, tree, base):
        prepare(files)
    notes = _settle(repo, tree, base)
    extras = tuple(sorted(_others(repo, tree, b"!! ")))
    for name in extras:  # an environment may stand on a commit whose .gitignore does not know the directory
        if name.endswith("/") and not (files / name.rstrip("/")).is_symlink():
            _ignore_all(files, name, anew=False)
    repo.git.run(tree, "update-index", "--index-version", "3")  # the form that `index.fitted` knows, whatever is configured
    with wrap_os_errors(place):
        shutil.copyfile(admin / "index", place / "index")
        _unregister(repo, files, admin)
        seen = fingerprint(files)
        digest = _digest(seen.digest, place / "index")
        template = Template(place, base, repo.project, extras, _anchored(files, extras), seen.foreign, seen.files, seen.size, digest, notes)
        shape = {name: value for name, value in asdict(template).items() if name != "place"}
        atomic_write(place / "template.json", json.dumps({"schema": _SCHEMA, **shape}).encode(), durable=False)
    return template


@contextlib.contextmanager
def _own_repository(repo: Repository, tree: Place, base: str) -> Iterator[None]:
    """Let the tree belong to a repository of its own, which is gone afterwards: set-up often configures git and writes hooks (husky,
    lefthook), and the person's repository is not its to change. Raises Refused when it made a commit."""
    files = tree.work_tree or tree.common_dir
    own = private_repository.make_unconfined(repo, files, tree.git_dir)
    with wrap_os_errors(files), folder(files) as here:
        here.replace(".git", b"gitdir: " + os.fsencode(own) + b"\n")
    yield
    answer = repo.git.run(Place(own, own.parent.parent, files, is_ours=True), "rev-parse", "--verify", "HEAD", accept=(0, 128))
    if answer.text != base:
        raise Refused("set-up made a commit", on=str(repo.root), why="a template stands on the commit that was asked for")
    with wrap_os_errors(files):
        remove_tree(beside(files))
        if (files / ".git").is_dir():
            remove_tree(files / ".git")
        with folder(files) as here:
            here.replace(".git", b"gitdir: " + os.fsencode(tree.git_dir) + b"\n")


def _copy(repo: Repository, name: str, files: Path) -> None:
    """Copy one file of the person's checkout that git ignores. Absent is fine: not everybody has one."""
    parts = PurePosixPath(name).parts
    source = repo.root.joinpath(*parts)
    if not parts or ".." in parts or name.startswith("/") or os.path.realpath(source) != str(source):
        raise Refused("a file to copy must lie in your checkout", on=name, why="it is, or leads through, a link or a path out of it")
    if not source.exists():
        return
    magic = {"GIT_LITERAL_PATHSPECS": "0"}  # this verb refuses it; a name that begins with ./ has no magic
    if repo.git.run(repo.checkout, "check-ignore", "-q", "--", f"./{name}", accept=(0, 1), env=magic).code:
        raise Refused(
            "a file to copy must be ignored by git", on=name, why="agents' commits would hold it", hint=f"echo /{name} >> .gitignore"
        )
    target = files.joinpath(*parts)
    with wrap_os_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        with open_plain(source) as data, target.open("xb") as out:
            shutil.copyfileobj(data, out)
        target.chmod(source.stat().st_mode & 0o777)


def _settle(repo: Repository, tree: Place, base: str) -> tuple[str, ...]:
    """Put changed files of the commit back, and make new directories ignored. Raises Refused for new files that git would commit."""
    git, files = repo.git, tree.work_tree or tree.common_dir
    notes = []
    git.run(tree, "update-index", "-q", "--refresh", accept=(0, 1), deadline_s=CHECKOUT_S)
    changed = git.run(tree, "diff-index", "--name-only", "-z", "--ignore-submodules=all", base, deadline_s=CHECKOUT_S).text
    names = [name for name in changed.split("\0") if name]
    if names:
        notes.append(f"set-up changed {some_of(names)}: put back as in the commit")
        git.run(tree, "read-tree", "--reset", "-u", base, deadline_s=CHECKOUT_S)
    new = _others(repo, tree, b"?? ")
    loose = [name for name in new if not name.endswith("/") or os.path.lexists(files / name / ".git")]
    if loose:
        raise Refused(
            "set-up left new files that git does not ignore",
            on=some_of(loose),
            why="every agent's work would seem to hold them",
            hint="add them to .gitignore, or let set-up remove them",
        )
    for name in new:
        notes.append(f"set-up made {name}: git ignores it in environments, by a .gitignore inside")
        _ignore_all(files, name, anew=True)
    return tuple(notes)


def _ignore_all(files: Path, name: str, *, anew: bool) -> None:
    """Have git ignore the directory `name`, by a file inside: in place of what has its name there, or only where nothing has. What a link
    leads to is not written."""
    with wrap_os_errors(files / name), folder(files, name.rstrip("/")) as here:
        here.replace(".gitignore", _IGNORE_ALL) if anew else here.create(".gitignore", _IGNORE_ALL)


def _others(repo: Repository, tree: Place, mark: bytes) -> list[str]:
    """What lies in the tree beside the commit's files: new (`?? `) or ignored (`!! `). A whole directory is one entry that ends
    in a slash."""
    argv = ("--porcelain", "-z", "--untracked-files=normal", "--ignored=matching", "--ignore-submodules=all", "--no-renames")
    entries = repo.git.run(tree, "status", *argv, deadline_s=CHECKOUT_S).out.split(b"\0")
    return [os.fsdecode(entry[3:]) for entry in entries if entry.startswith(mark)]


def _anchored(files: Path, extras: Sequence[str]) -> tuple[str, ...]:
    path, found = os.fsencode(files), []
    for extra in extras:
        top = files / extra
        below = walk(top) if extra.endswith("/") and not top.is_symlink() else [("", top.lstat())]
        for name, seen in below:
            if stat.S_ISREG(seen.st_mode) and seen.st_size <= _TEXT_MAX:
                data = (top / name).read_bytes()
                if path in data and b"\0" not in data:
                    found.append(f"{extra}{name}")
    return tuple(sorted(found))


def _making(place: Path) -> bytes:
    return b"nightcrew is making the template " + os.fsencode(place)


def _clear(repo: Repository, place: Path) -> None:
    """Only with the place's lock held and no template.json there."""
    used = _users(place)
    if used:
        raise Refused(
            "a damaged template is in use", on=str(place), why=f"{used[0]} stands on it", kept="it", hint=f"remove {used[0]} first"
        )
    with repo.git.lock(repo.common_dir), wrap_os_errors(place):
        admin = registration.find(repo, place / "files", _making(place))
        if admin is not None and registration.is_being_made(admin, place / "files", _making(place)):
            registration.drop(admin)
        for name in ("files", ".files", "in-use"):
            remove_tree(place / name)
        for name in ("index", "protected"):
            (place / name).unlink(missing_ok=True)


def _unregister(repo: Repository, files: Path, admin: Path) -> None:
    with repo.git.lock(repo.common_dir):
        (files / ".git").unlink()
        registration.drop(admin)


def _users(place: Path) -> list[Path]:
    """The environments that stand on it. Drops the notes of those that are gone."""
    found = []
    for note in sorted((place / "in-use").glob("*")):
        path = Path(os.fsdecode(note.read_bytes()))
        if beside(path).exists():
            found.append(path)
        else:
            note.unlink()
    return sorted(found)


@contextlib.contextmanager
def _locked(place: Path) -> Iterator[None]:
    """Hold the template's lock, to build, lease or remove it. The lock is the directory itself, so it goes with it. Raises NotFound."""
    try:
        handle = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise NotFound("no template", on=str(place), why="it was removed") from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


@contextlib.contextmanager
def _whole(place: Path) -> Iterator[None]:
    try:
        yield
    except NightcrewError:
        raise
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise HostError(
            "the template is damaged", on=str(place), why=str(error), kept="it", hint="remove it and create it again"
        ) from error


def _digest(files: str, index: Path) -> str:
    return hashlib.sha256(files.encode() + index.read_bytes()).hexdigest()
