"""A person's repository, as found."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shlex
import stat
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Unpack

from supervisor.host import untrusted_fs
from supervisor.host.scratch import locked_directory
from supervisor.host.untrusted_fs import Folder, folder
from supervisor.kernel.errors import NightcrewError, NotFound, Refused, ToolFailed, ToolHung, one_line
from supervisor.kernel.names import branch_name
from worktrees.git import BULK_S, IDENTITY, QUICK_S, Answer, Git, Place, RunOptions, last_words, wrap_os_errors

# Repository
# ----------
# A person's repository, as found: where it is, what it stands on, and what about it deserves a warning.


_OPERATIONS = {
    "rebase-merge": "rebase",
    "rebase-apply": "rebase",
    "MERGE_HEAD": "merge",
    "CHERRY_PICK_HEAD": "cherry-pick",
    "REVERT_HEAD": "revert",
    "sequencer": "cherry-pick or revert",
    "BISECT_LOG": "bisect",
}
_ATTRIBUTES_MAX = 2**20
_HEAD_MAX = 4096
_OID = re.compile(rb"[0-9a-f]{40}(?:[0-9a-f]{24})?\n?")


@dataclass(frozen=True, slots=True)
class Repository:
    """A snapshot of a repository that can hold worktrees; every path is absolute and real."""

    git: Git = field(repr=False, compare=False)
    root: Path
    """The checkout the person works in."""
    git_dir: Path
    """Of that checkout; differs from `common_dir` when it is itself a linked worktree."""
    common_dir: Path
    project: str
    """12 hex digits, the same for every worktree of the repository."""
    head: str
    branch: str | None
    """Short name, or None when HEAD is detached."""
    notes: tuple[str, ...] = ()
    """One line each, for the person: what works differently here."""

    @property
    def checkout(self) -> Place:
        return Place(self.git_dir, self.common_dir, self.root)

    @property
    def store(self) -> Place:
        """Refs and objects alone."""
        return Place(self.common_dir, self.common_dir)

    def run(self, *argv: str, **options: Unpack[RunOptions]) -> Answer:
        """Run a verb that needs refs and objects alone. Raises as `Git.run`."""
        return self.git.run(self.store, *argv, **options)

    def commit(self, rev: str) -> str:
        """Return the commit that a ref or an object id names, or "" where there is none."""
        return _verify(self.git, self.store, f"{rev}^{{commit}}") or ""

    def tree(self, rev: str) -> str:
        """Return the tree of a commit. Raises ToolFailed where there is none."""
        return self.run("rev-parse", "--verify", f"{rev}^{{tree}}").text

    def trees(self, commits: Iterable[str]) -> dict[str, str]:
        """Return the tree of each commit that git can read, by one process."""
        names = list(dict.fromkeys(commits))
        asked = "".join(f"{name}^{{tree}}\n" for name in names).encode()
        rows = self.run("cat-file", "--batch-check=%(objectname)", stdin=asked, deadline_s=BULK_S).text.splitlines() if names else []
        return {name: row for name, row in zip(names, rows, strict=True) if " " not in row}

    def has(self, commit: str, other: str) -> bool:
        """Return whether the history of `commit` holds the commit `other`; False where one of them is gone."""
        return commit == other or self.run("merge-base", "--is-ancestor", other, commit, accept=(0, 1, 128)).code == 0

    def fork_point(self, one: str, two: str) -> str:
        """Return the newest commit that both have, or "" where they have none."""
        return self.run("merge-base", one, two, accept=(0, 1)).text

    def write_commit(self, tree: str, parents: Iterable[str], message: bytes, who: Mapping[str, str] = IDENTITY) -> str:
        """Write a commit with each parent once and return its id. `who`: the variables that name author, committer and moment."""
        flags = [flag for parent in dict.fromkeys(parents) for flag in ("-p", parent)]
        return self.run("commit-tree", tree, *flags, "-F", "-", stdin=message, env=who).text


def discover(git: Git, path: Path) -> Repository:
    """The repository that holds `path`. Raises NotFound or Refused, each with the command that mends it."""
    here = path.absolute()
    if not here.is_dir():
        raise NotFound("no such directory", on=str(here), hint="name a directory inside a git repository")
    found = _find_at_once(git, here) or _find(git, here)
    place = Place(found.git_dir, found.common_dir, found.root)
    return Repository(
        git=git,
        root=found.root,
        git_dir=found.git_dir,
        common_dir=found.common_dir,
        project=hashlib.sha256(os.fsencode(found.common_dir)).hexdigest()[:12],
        head=found.head,
        branch=found.branch,
        notes=_notes(git, place, is_shallow=found.is_shallow, is_detached=found.branch is None),
    )


_STATES = ("--is-bare-repository", "--is-inside-work-tree", "--is-shallow-repository")


@dataclass(frozen=True, slots=True)
class _Found:
    """What git says of a repository."""

    is_shallow: bool
    git_dir: Path
    common_dir: Path
    root: Path
    head: str
    branch: str | None


def _find_at_once(git: Git, here: Path) -> _Found | None:
    """By one git; None where that answers less or more."""
    places = ("--absolute-git-dir", "--git-common-dir", "--show-toplevel")
    answer = git.ask(here, "rev-parse", *_STATES, *places, "HEAD^{commit}", "--symbolic-full-name", "HEAD")
    lines = answer.text.split("\n")
    if answer.code != 0 or len(lines) != 8 or lines[:2] != ["false", "true"]:  # a path may have lines of its own
        return None
    git_dir, common, root = (Path(os.path.realpath(here / line)) for line in lines[3:6])
    head, name = lines[6:]
    if not _OID.fullmatch(os.fsencode(head)):
        return None
    return _Found(lines[2] == "true", git_dir, common, root, head, None if name == "HEAD" else name.removeprefix("refs/heads/"))


def _find(git: Git, here: Path) -> _Found:
    """By one git each. Raises what is wrong."""
    answer = git.ask(here, "rev-parse", *_STATES)
    if answer.code != 0:
        raise _not_usable(here, answer.err)
    bare, inside, shallow = (word == "true" for word in answer.text.split())
    git_dir = Path(os.path.realpath(_ask(git, here, "--absolute-git-dir")))
    if bare or not inside:
        raise _no_checkout(here, git_dir, bare)
    common = Path(os.path.realpath(here / _ask(git, here, "--git-common-dir")))
    root = Path(os.path.realpath(_ask(git, here, "--show-toplevel")))
    place = Place(git_dir, common, root)
    return _Found(shallow, git_dir, common, root, _head(git, place), current_branch(git, place))


def main_root(repository: Repository) -> Path:
    """The main worktree, where the project file lies: what an agent writes into its own linked worktree changes nothing for others.

    The checkout itself where there is no main worktree: linked worktrees of a bare repository, submodules.
    """
    common = repository.common_dir
    return common.parent if common.name == ".git" and (common / "index").exists() else repository.root


def resolve(repo: Repository, rev: str) -> str:
    """The commit that `rev`, typed by a person, names. Raises NotFound; no text can become an option or a search."""
    bad = not rev or rev[0] in "-^:" or any(mark in rev for mark in ("@{", "..", ":")) or not rev.isprintable()
    answer = None if bad else _verify(repo.git, repo.checkout, f"{rev}^{{commit}}")
    if answer is None:
        why = "only names of branches, tags and commits are taken here" if bad else "it names no commit of this repository"
        raise NotFound("no such commit", on=rev, why=why, hint=f"git -C {shlex.quote(str(repo.root))} log --oneline --all")
    return answer


def refuse_absent(repo: Repository, oid: str) -> None:
    """Raise Refused when files of the commit `oid` are missing because the repository is a partial clone: git would fetch them, and no git
    of ours uses the network. Does nothing for any other repository."""
    names = repo.git.configured(repo.store)
    if not (remote := _promisor(names)):
        return
    argv = ("rev-list", "--objects", "--missing=print", "--no-walk", "--end-of-options", oid)
    rows = repo.run(*argv, deadline_s=BULK_S).out.split(b"\n")
    if missing := sum(row.startswith(b"?") for row in rows):
        raise Refused(
            "a partial clone lacks files that an agent would start from",
            on=str(repo.root),
            why=f"{missing} files of commit {oid[:12]} were never fetched, and nightcrew's git uses no network",
            kept="the repository as it is",
            hint=f"git -C {shlex.quote(str(repo.root))} fetch --refetch --no-filter {shlex.quote(remote)}",
        )


def _promisor(names: Iterable[str]) -> str:
    """Return the remote of a partial clone, by the names of its settings; "" for a whole one."""
    named = (name.removeprefix("remote.").removesuffix(".promisor") for name in names if name.endswith(".promisor"))
    return next(named, "origin" if "extensions.partialclone" in names else "")


class KnownHead:
    """`resolve` for one repository that is asked again and again: git is asked about HEAD only when what says it has changed. Threads may
    share it."""

    def __init__(self) -> None:
        self._known: tuple[object, str] = (None, "")

    def resolve(self, repo: Repository, rev: str) -> str:
        """As the function."""
        mark = _head_mark(repo) if rev == "HEAD" else None  # before git looks: what changes meanwhile is asked for the next time
        known, oid = self._known
        if mark is None or mark != known:
            oid = resolve(repo, rev)
            self._known = mark, oid
        return oid


def _head_mark(repo: Repository) -> object:
    """What HEAD follows from: the same again is the same commit. None where files do not tell (reftables)."""
    head = untrusted_fs.read_plain(repo.git_dir / "HEAD", _HEAD_MAX)
    if head is None or not head.startswith(b"ref: refs/heads/"):
        return head if head is not None and _OID.fullmatch(head) else None
    name = os.fsdecode(head[5:].strip())
    loose = None if ".." in name else untrusted_fs.read_plain(repo.common_dir / name, _HEAD_MAX)
    if loose is not None:
        return (head, loose) if _OID.fullmatch(loose) else None
    try:
        packed = os.lstat(repo.common_dir / "packed-refs")
    except OSError:
        return None
    return head, packed.st_ino, packed.st_mtime_ns, packed.st_size


def current_branch(git: Git, place: Place) -> str | None:
    """Short name of the branch that HEAD is on, or None when it is detached."""
    answer = git.run(place, "symbolic-ref", "-q", "HEAD", accept=(0, 1))
    return answer.text.removeprefix("refs/heads/") if answer.code == 0 else None


def operation(git_dir: Path) -> str | None:
    """What a checkout is in the middle of: `rebase`, `merge` ..., or None."""
    return next((name for mark, name in _OPERATIONS.items() if (git_dir / mark).exists()), None)


def _ask(git: Git, here: Path, what: str) -> str:
    answer = git.ask(here, "rev-parse", what)
    if answer.code != 0:
        raise _not_usable(here, answer.err)
    return answer.text


def _verify(git: Git, place: Place, rev: str) -> str | None:
    answer = git.run(place, "rev-parse", "--verify", "--quiet", "--end-of-options", rev, accept=(0, 1, 128))
    return answer.text if answer.code == 0 else None


def _head(git: Git, place: Place) -> str:
    head = _verify(git, place, "HEAD^{commit}")
    if head is not None:
        return head
    where = shlex.quote(str(place.work_tree))
    if _verify(git, place, "HEAD") is None and current_branch(git, place) is not None:
        raise Refused(
            "the repository has no commit on its current branch",
            on=str(place.work_tree),
            why="an agent's worktree starts from a commit",
            hint=f"git -C {where} commit --allow-empty -m start",
        )
    raise Refused("HEAD names no readable commit", on=str(place.work_tree), hint=f"git -C {where} fsck")


def _not_usable(here: Path, err: str) -> NightcrewError:
    where, why = shlex.quote(str(here)), last_words(err)
    if "dubious ownership" in err:
        owner = re.search(r"in repository at '(.*)'", err)
        safe = shlex.quote(owner.group(1) if owner else str(here))
        return Refused(
            "git does not trust this repository",
            on=str(here),
            why="it belongs to another user",
            hint=f"git config --global --add safe.directory {safe}",
        )
    if "not a git repository" in err:
        # Not "git init": typed in a home directory, that would commit whatever lies there.
        return NotFound("not a git repository", on=str(here), why=why, hint="cd into your repository, or name it with -C")
    return ToolFailed("git cannot read the repository", on=str(here), why=why, hint=f"git -C {where} status")


def _no_checkout(here: Path, git_dir: Path, bare: bool) -> Refused:
    parent = shlex.quote(str(git_dir.parent))
    if bare and git_dir.name == ".git" and (git_dir / "index").exists():
        return Refused(
            "the repository says it is bare, yet it has a checkout",
            on=str(git_dir.parent),
            why="core.bare=true was written into its shared configuration",
            hint=f"git config --file {shlex.quote(str(git_dir / 'config'))} core.bare false",
        )
    if bare:
        hint = f"git clone {shlex.quote(str(git_dir))} DIRECTORY, then work there"
        return Refused("a bare repository has no checkout to work from", on=str(here), hint=hint)
    return Refused("this is the inside of a .git directory", on=str(here), hint=f"cd {parent}")


def _notes(git: Git, place: Place, *, is_shallow: bool, is_detached: bool) -> tuple[str, ...]:
    root, names = place.top, git.configured(place)
    doing = operation(place.git_dir)
    found = {
        "shallow clone: old history is not here, merges may lack their base (git fetch --unshallow)": is_shallow,
        "partial clone: files that were never fetched cannot be checked out": bool(_promisor(names)),
        "submodules stay empty in agents' worktrees": (root / ".gitmodules").exists(),
        "content filters (such as Git LFS) are not run: agents see files as git stores them": _filtered(root, place.common_dir),
        "sparse checkout: agents' worktrees may hold the same part of the tree": git.is_sparse(place),
        f"a {doing} is in progress in your checkout: agents start from the commit it stands on": doing is not None,
        "HEAD is detached: name a base, or agents start from this commit": is_detached,
    }
    return tuple(note for note, holds in found.items() if holds)


def _filtered(root: Path, common: Path) -> bool:
    return any(b"filter=" in _head_of(file) for file in (root / ".gitattributes", common / "info" / "attributes"))


def _head_of(file: Path) -> bytes:
    if file.is_symlink() or not file.is_file():
        return b""
    with file.open("rb") as data:
        return data.read(_ATTRIBUTES_MAX)


# Commit listing
# --------------
# What a commit holds, without a worktree.


_NAMES_AT_ONCE = 500


class File(NamedTuple):
    """One file of a commit, as git writes it."""

    mode: str
    oid: str
    size: int = 0
    """Bytes, where they were asked for."""


def files(repo: Repository, commit: str, paths: Iterable[str] | None = None, *, sizes: bool = False) -> dict[str, File]:
    """Return every file of `commit` in git's order, by its path (`os.fsdecode` text); with `paths` those of them that it has, in their
    order. Raises ToolFailed when git cannot read it."""
    found: dict[str, File] = {}
    names = None if paths is None else list(dict.fromkeys(paths))
    argv = ("ls-tree", "-r", *(("-l",) if sizes else ()), "-z", "--full-tree", commit)
    for first in range(0, 1 if names is None else len(names), _NAMES_AT_ONCE):  # a command line has an end
        asked = ("--", *names[first : first + _NAMES_AT_ONCE]) if names is not None else ()
        for row in repo.run(*argv, *asked, deadline_s=BULK_S).text.split("\0")[:-1]:
            facts, _, path = row.partition("\t")
            mode, _, oid, *size = facts.split()
            found[path] = File(mode, oid, int(size[0]) if size and size[0] != "-" else 0)
    return found if names is None else {path: found[path] for path in names if path in found}


def tracked(git: Git, common_dir: Path) -> list[str] | None:
    """The files of the commit that the repository stands on, sorted; None where there is none. Raises what `Git.run` does."""
    try:
        answer = git.run(Place(common_dir, common_dir), "ls-tree", "-r", "-z", "--name-only", "HEAD")
    except ToolFailed:  # no commit yet, or HEAD names none
        return None
    return sorted(name for name in answer.text.split("\0") if name)


@dataclass(frozen=True, slots=True)
class Extent:
    """How much there is."""

    files: int
    size: int
    """Bytes in all."""


def extent(repo: Repository, commit: str, suffix: str) -> Extent:
    """The regular files of `commit` whose names end in `suffix`. Raises ToolFailed when git cannot read it."""
    sizes = [file.size for path, file in files(repo, commit, sizes=True).items() if path.endswith(suffix) and file.mode.startswith("100")]
    return Extent(len(sizes), sum(sizes))


# Attributes
# ----------
# Which attributes files have, by the `.gitattributes` of the person's checkout or of a commit. Nothing that they name is run.


FILE = ".gitattributes"
_BUILT_IN = frozenset({"unspecified", "set", "unset"})
_MERGES = frozenset({"text", "binary", "union"})


@dataclass(frozen=True, slots=True)
class Source:
    """Where git finds the attributes, beside the person's own ones (`info/attributes`, `core.attributesFile`)."""

    place: Place
    env: Mapping[str, str] = field(default_factory=dict)


@contextlib.contextmanager
def of_commit(repo: Repository, commit: str) -> Iterator[Source]:
    """Those of a commit, whatever is checked out and whatever was changed there since: a tree of its `.gitattributes` alone. git below 2.41
    can read them from nowhere else. Raises as `Git.run`."""
    with locked_directory(repo.git.scratch(), "nightcrew.") as scratch:
        top = scratch / "top"
        top.mkdir()
        _write(repo, commit, top)
        yield Source(Place(repo.common_dir, repo.common_dir, top), {"GIT_INDEX_FILE": str(scratch / "index")})


def drivers(repo: Repository, paths: Iterable[str], *names: str, source: Source | None = None) -> Iterator[tuple[str, str, str]]:
    """Path, attribute and value of each file for which one of these attributes names something of its own: a filter, a merge driver. By
    default as the person's checkout says."""
    asked = "".join(f"{path}\0" for path in paths)
    if not asked:
        return
    there = source or Source(repo.checkout)
    argv = ("check-attr", "-z", "--stdin", *names)
    said = repo.git.run(there.place, *argv, stdin=os.fsencode(asked), env=there.env, deadline_s=BULK_S).text.split("\0")
    for path, name, value in zip(said[::3], said[1::3], said[2::3], strict=False):
        if value not in _BUILT_IN and not (name == "merge" and value in _MERGES):
            yield path, name, value


def drivers_in(repo: Repository, commit: str, *names: str) -> set[tuple[str, str, str]]:
    """The same of all files of a commit, by its own `.gitattributes`."""
    with of_commit(repo, commit) as source:
        return set(drivers(repo, files(repo, commit), *names, source=source))


def listed(found: Iterable[tuple[str, str, str]]) -> str:
    """What `drivers` found, for people: `filter=lfs, merge=po`."""
    return ", ".join(sorted({one_line(f"{name}={value}") for _, name, value in found}))


def _write(repo: Repository, commit: str, top: Path) -> None:
    found = files(repo, commit).items()
    oids = {path: file.oid for path, file in found if path.endswith(FILE) and file.mode.startswith("100") and _is_fit(path)}
    for path, data in zip(oids, _blobs(repo, oids.values()), strict=True):
        (top / path).parent.mkdir(parents=True, exist_ok=True)
        (top / path).write_bytes(data)


def _is_fit(path: str) -> bool:
    """A stranger may have written the tree."""
    *above, name = path.split("/")
    return name == FILE and not any(part in ("", ".", "..") or part.lower() == ".git" for part in above)


def _blobs(repo: Repository, oids: Iterable[str]) -> Iterator[bytes]:
    asked = "".join(f"{oid}\n" for oid in oids)
    if not asked:
        return
    rest = repo.run("cat-file", "--batch", stdin=asked.encode(), deadline_s=BULK_S).out
    while rest:
        head, _, rest = rest.partition(b"\n")
        size = int(head.split(b" ")[2])
        yield rest[:size]
        rest = rest[size + 1 :]


# Refs
# ----
# Moves refs that an agent could have written: each is checked without git first, then moved by git alone.
#
# In an ordinary repository a ref is a file, and so is its log. An agent that may write both can put in their place a name of another ref,
# which git would move instead, a link, to which git would append, or a pipe, for which git would wait. So before git reads or moves such a
# ref, whatever is neither a plain file nor a directory on the way to it is set aside (`supervisor.host.untrusted_fs`); git then sees a ref
# that does not exist, or the one that was packed. And every update says `--no-deref`.
#
# A repository that keeps its refs elsewhere (reftable) has no such files; a link of the person's above `refs/heads` is followed.


HEADS = "refs/heads"
STALE_S = 5.0
_OURS = branch_name("").partition("/")[0]
_ANY_OID = re.compile(rb"(?:[0-9a-f]{40}|[0-9a-f]{64})\n?")
_ENTRIES_MAX = 100_000
"""Looked at in one go. Whoever has more made them to be in the way; git's deadline ends what that costs."""


@dataclass(frozen=True, slots=True)
class Update:
    """One ref's move, as compare and swap."""

    ref: str
    """Full name."""
    new: str
    """"" deletes it."""
    old: str
    """What it must stand at; "" means that it must not exist."""


def move(repo: Repository, ref: str, to: str, expected: str, why: str) -> None:
    """`move_all` of one ref."""
    move_all(repo, [Update(ref, to, expected)], why)


def move_all(repo: Repository, updates: Sequence[Update], why: str) -> None:
    """Move every ref or none, in one transaction of git's. `why` is for their logs; refs that go have none.

    A git that is killed in the middle may have moved some of several: whoever tries again reads them first.
    Raises ToolFailed, HostError, DiskFull; Refused when something else than a branch is in the place of one that is the person's.
    """
    for update in updates:
        if is_persons(update.ref):
            _refuse_unfit(repo, update.ref)
        else:
            clear(repo, update.ref)
        if not update.new:
            forget_asides(repo, update.ref)
    with repo.git.moving(repo.common_dir, [(update.ref, update.new) for update in updates]):
        _transact(repo, updates, [_command(repo, update) for update in updates], why)


def is_persons(ref: str) -> bool:
    """Whether it is a branch of the person's, where nothing is ours to set aside."""
    return ref.startswith(f"{HEADS}/") and not ref.startswith(f"{HEADS}/{_OURS}/")


def _refuse_unfit(repo: Repository, ref: str) -> None:
    name = ref.removeprefix(f"{HEADS}/")
    for area in (HEADS, f"logs/{HEADS}"):
        with contextlib.suppress(FileNotFoundError, PermissionError):
            if found := _in_the_way(repo.common_dir / area, name, is_ref=area == HEADS):
                above, step, what = found
                place = one_line("/".join(filter(None, (area, above, step))))
                hint = f"ls -l {shlex.quote(str(repo.common_dir / area / above / step))}"
                raise Refused("the branch was not moved", on=name, why=f"{place} is {what}", kept="everything as it was", hint=hint)


def compare_all(repo: Repository, updates: Sequence[Update]) -> None:
    """Raises ToolFailed unless each ref stands at its `old` now."""
    _transact(repo, updates, [f"verify {update.ref}\0{update.old or _zero(repo)}\0" for update in updates])


def _command(repo: Repository, update: Update) -> str:
    old = update.old or _zero(repo)
    return f"update {update.ref}\0{update.new}\0{old}\0" if update.new else f"delete {update.ref}\0{old}\0"


def _zero(repo: Repository) -> str:
    """git's word for no object. An empty word would compare with nothing."""
    return "0" * len(repo.head)


def _unlocked(repo: Repository, ref: str) -> bool:
    """Whether a lock stood on one of our own refs and stands there no more: a git that was killed leaves it for ever. Nobody but us moves
    these refs, for milliseconds; so a lock that has stood for STALE_S is nobody's."""
    above, _, name = ref.rpartition("/")
    if not ref.startswith((f"{HEADS}/{_OURS}/", f"refs/{_OURS}/")):
        return False
    with contextlib.suppress(OSError), folder(repo.common_dir, above) as here:
        lock = f"{name}.lock"
        if (seen := here.look(lock)) is None:
            return False
        while seen is not None and (young := STALE_S - (time.time() - seen.st_mtime)) > 0:
            time.sleep(min(young, STALE_S))  # for the lock's age
            seen = here.look(lock)
        here.remove(lock)
        return True
    return False


def _transact(repo: Repository, updates: Sequence[Update], commands: Sequence[str], why: str = "") -> None:
    try:
        _update_ref(repo, commands, why)
    except ToolHung:
        raise
    except ToolFailed:
        unlocked = [update.ref for update in updates if _unlocked(repo, update.ref)]
        if not unlocked:
            raise
        _update_ref(repo, commands, why)


def _update_ref(repo: Repository, commands: Sequence[str], why: str) -> None:
    said = ("-m", why) if why else ()
    repo.run("update-ref", "--no-deref", *said, "--stdin", "-z", stdin=os.fsencode("".join(commands)))


def clear(repo: Repository, ref: str) -> list[str]:
    """Set aside what is in the place of the branch `ref` and of its log, on the way to them and beside them. Returns a line for each."""
    name = ref.removeprefix(f"{HEADS}/")
    if name == ref:
        return []  # not a branch: no agent in a sandbox can write there
    found = []
    for area in (HEADS, f"logs/{HEADS}"):
        top = repo.common_dir / area
        with contextlib.suppress(FileNotFoundError, PermissionError):  # closed to us, closed to git
            found += [f"{area}/{line}" for line in _clear_way(top, name, is_ref=area == HEADS)]
            if "/" in name:
                found += [f"{area}/{line}" for line in _clear_beside(top, name.rpartition("/")[0])]
    return found


def set_aside(repo: Repository, ref: str, what: str) -> str:
    """Take a branch out of git's sight that names no commit; a line for the result. Raises OSError."""
    above, _, name = ref.removeprefix(f"{HEADS}/").rpartition("/")
    with contextlib.suppress(FileNotFoundError, NotADirectoryError), folder(repo.common_dir / HEADS, above) as here:
        return f"{HEADS}/{_said(here, above, name, what)}"
    return f"{ref} was {what}"  # packed: it stays


def _clear_way(top: Path, name: str, *, is_ref: bool) -> list[str]:
    """At most one: what lies below it is out of the way with it."""
    found = _in_the_way(top, name, is_ref=is_ref)
    if found is None:
        return []
    above, step, what = found
    with folder(top, above) as here:
        return [_said(here, above, step, what)]


def _in_the_way(top: Path, name: str, *, is_ref: bool) -> tuple[str, str, str] | None:
    """What git must not meet on the way to `name`: the directory and the name of it, and what it is."""
    steps = name.split("/")
    for depth, step in enumerate(steps):
        above = "/".join(steps[:depth])
        with folder(top, above) as here:
            seen = here.look(step)
            if seen is None:
                return None
            what = _unfit(here, step, seen, is_ref=is_ref) if depth == len(steps) - 1 else _special(seen)
        if what:
            return above, step, what
        if not stat.S_ISDIR(seen.st_mode):
            return None
    return None


def _special(seen: os.stat_result) -> str:
    return "" if stat.S_ISDIR(seen.st_mode) or stat.S_ISREG(seen.st_mode) else untrusted_fs.kind(seen)


def _unfit(here: Folder, name: str, seen: os.stat_result, *, is_ref: bool) -> str:
    """Why git must not see the ref, or the log, that is there; a directory is its own to judge."""
    if not stat.S_ISREG(seen.st_mode):
        return _special(seen)
    if is_ref:  # git replaces it, so a second name is no way to another file
        return "" if _ANY_OID.fullmatch(here.read(name, 128, linked=True) or b"") else "no commit's name"
    return "" if seen.st_nlink == 1 else "a file with another name elsewhere"


def _clear_beside(top: Path, directory: str) -> list[str]:
    """What lies below the directory of the task's refs and is no plain file: the person's git would open it to list all refs."""
    found = []
    for below in _folders(top, directory):
        with contextlib.suppress(OSError), folder(top, below) as here:  # what we cannot open git cannot either
            for name in here.names():
                seen = here.look(name)
                if seen is not None and not name.startswith(".") and (what := _special(seen)):  # git passes over those with a dot
                    found.append(_said(here, below, name, what))
    return found


def _folders(top: Path, directory: str) -> list[str]:
    """`directory` and the directories below it, outer ones first."""
    found, looked = [directory], 0
    for below in found:
        with contextlib.suppress(OSError), folder(top, below) as here:
            names = here.names()
            looked += len(names)
            if looked < _ENTRIES_MAX:
                found += [f"{below}/{name}" for name in names if (seen := here.look(name)) is not None and stat.S_ISDIR(seen.st_mode)]
    return found


def _said(here: Folder, below: str, name: str, what: str) -> str:
    return one_line(f"{below}/{name} was {what}: it is now {here.set_aside(name)}")


def forget_asides(repo: Repository, ref: str) -> None:
    """Remove what `clear` set aside beside `ref` and its log, and the directories that are empty then. For a branch that goes."""
    directory = ref.removeprefix(f"{HEADS}/").rpartition("/")[0]
    for area in (HEADS, f"logs/{HEADS}"):
        for below in reversed(_folders(repo.common_dir / area, directory)):
            with contextlib.suppress(OSError), folder(repo.common_dir / area, below) as here:
                for name in here.names():
                    with contextlib.suppress(OSError):  # a directory that holds something
                        here.remove(name) if name.startswith(".") else here.remove_empty(name)


def over_all(repo: Repository, *argv: str, stdin: bytes = b"", deadline_s: float = QUICK_S) -> Answer:
    """Run a verb that reads every ref, or the HEAD of every worktree with the branch that it names. A neighbour which still runs may have
    put a pipe there: when git hangs, such things are set aside, and it is asked once more. Raises as `Git.run`."""
    try:
        return repo.run(*argv, stdin=stdin, deadline_s=deadline_s)
    except ToolHung:
        with wrap_os_errors(repo.common_dir):
            _clear_beside(repo.common_dir / HEADS, branch_name("").partition("/")[0])
            _clear_heads(repo.common_dir / "worktrees")
        return repo.run(*argv, stdin=stdin, deadline_s=deadline_s)


def _clear_heads(place: Path) -> None:
    with contextlib.suppress(FileNotFoundError), folder(place) as here:
        for name in here.names():
            if untrusted_fs.may_wait(here.leads_to(f"{name}/HEAD")):
                with folder(place, name) as admin:
                    admin.set_aside("HEAD")
