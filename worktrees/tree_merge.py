"""The one merge of two commits, beside every checkout."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from supervisor.host.scratch import locked_directory
from supervisor.kernel.errors import some_of
from supervisor.kernel.gate_files import RESTORED, TEXT_MAX, Change, FileDiff, Flag, Hunk, folder_of, wants_folder, wants_text
from supervisor.kernel.train_orders import GeneratedRule
from worktrees import pack_import
from worktrees.git import BULK_S, IDENTITY, Answer, Bounds, Git, Place
from worktrees.repository import File, Repository, Source, files

# Tree merge
# ----------
# `git merge-tree` merges two commits: it writes objects, and nothing else. Every merge of nightcrew is one of these: `take`, a train of
# merges, the matrix of conflicts, the merge of a map, and the comparison of histories.
#
# No merge driver, filter or hook runs: a file with a driver of its own that both sides changed is a conflict.


GONE, LINK = "000000", "160000"
"""git's mode of a file that is not there, and of a commit of another repository."""
_FLAGS = ("--write-tree", "--name-only", "--no-messages")
_DIFF = ("diff-tree", "-r", "-z", "--raw", "--no-renames", "--no-ext-diff", "--no-commit-id")
"""What differs between two trees, file by file; a renamed file is one that went and one that came."""
_MADE_UP = re.compile("~(?:[0-9a-f]{40}|[0-9a-f]{64})(?:_[0-9]+)?$")
"""Where git puts a file whose place a directory has."""
_MOMENT = {"GIT_AUTHOR_DATE": "@0 +0000", "GIT_COMMITTER_DATE": "@0 +0000"}
_ANY = tuple(range(-64, 256))  # signals are negative


@dataclass(frozen=True, slots=True)
class Merged:
    """What git makes of two commits."""

    tree: str
    """With conflicts it holds the marked files."""
    conflicts: tuple[str, ...] = ()
    """Files, each once, by the names that people know them by, as `os.fsdecode` text."""


def merge(repo: Repository, ours: str, theirs: str, source: Source | None = None) -> Merged:
    """Merge two commits. The attributes of `source` count (`merge=union`); by default those of no checkout. Raises as `Git.run`."""
    place, env = (source.place, source.env) if source is not None else (repo.store, None)
    answer = repo.git.run(place, "merge-tree", *_FLAGS, "-z", ours, theirs, env=env, accept=(0, 1), deadline_s=BULK_S)
    tree, *names = answer.text.split("\0")
    return Merged(tree, _named(names) if answer.code else ())


def replay(repo: Repository, base: str, ours: str, theirs: str, source: Source | None = None) -> Merged:
    """Merge the change from `base` to `theirs` into `ours`, whatever their histories are. Commits are made for git to find the base by:
    `merge-tree --merge-base` came with git 2.40."""
    root = our_commit(repo, repo.tree(base), "", "side")
    one, two = (our_commit(repo, repo.tree(rev), root, "side") for rev in (ours, theirs))
    return merge(repo, one, two, source)


def merge_pairs(repo: Repository, pairs: Sequence[tuple[str, str]], deadline_s: float, bounds: Bounds) -> tuple[list[Merged], Answer]:
    """Merge each pair of commits by one git, with the attributes of the checkout, and return what it made with its answer. It ends at the
    first pair that it cannot merge. Raises ToolHung."""
    asked = "".join(f"{one} {two}\n" for one, two in pairs).encode()
    argv = ("merge-tree", *_FLAGS, "--stdin")
    answer = repo.git.run(repo.checkout, *argv, stdin=asked, accept=_ANY, deadline_s=deadline_s, bounds=bounds)
    return list(_records(answer.out)), answer


def _records(out: bytes) -> Iterator[Merged]:
    """Git prints for each pair 1 when the merge is clean, the tree, the names, and an empty word. A record that was cut off does not
    count."""
    for record in os.fsdecode(out).split("\0\0")[:-1]:
        clean, tree, *names = record.split("\0")
        yield Merged(tree, () if clean == "1" else _named(names))


def _named(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_MADE_UP.sub("", name) for name in names if name))


def our_commit(repo: Repository, tree: str, parent: str, words: str) -> str:
    """Write a commit of nobody and of no moment: the same arguments give the same commit."""
    return repo.write_commit(tree, [parent] if parent else [], f"{words}\n".encode(), {**IDENTITY, **_MOMENT})


Changes = dict[str, tuple[File, File]]
"""Of each file that differs, what it was and what it is; a renamed one has both names. A file that is not there has the mode `GONE`."""


def changes(repo: Repository, old: str, new: str) -> Changes:
    """Return what differs between two commits or trees. Raises as `Git.run`."""
    return next(_changes(repo.run(*_DIFF, old, new, deadline_s=BULK_S).text), {})


def changes_of_pairs(repo: Repository, pairs: Sequence[tuple[str, str]]) -> list[Changes]:
    """Return the same of each pair of trees, by one process."""
    asked = "".join(f"{old} {new}\n" for old, new in pairs if old != new)
    sections = _changes(repo.run(*_DIFF, "--stdin", stdin=asked.encode(), deadline_s=BULK_S).text if asked else "")
    return [next(sections) if old != new else {} for old, new in pairs]


def _changes(text: str) -> Iterator[Changes]:
    """Read what `diff-tree` prints. With `--stdin` a line with both trees stands before the rows of each pair."""
    fields = text.split("\0")[:-1]
    found: Changes = {}
    for facts, path in zip(fields[::2], fields[1::2], strict=True):
        if not facts.startswith(":") and found:
            yield found
            found = {}
        old_mode, new_mode, old_oid, new_oid, _ = facts.rpartition(":")[2].split(" ")
        found[path] = (File(old_mode, old_oid), File(new_mode, new_oid))
    if found:
        yield found


def replaced(repo: Repository, tree: str, changed: Mapping[str, File | None]) -> str:
    """Return the tree (or that of the commit) `tree` with these files in the place of its own; None removes one. Without any it is
    `tree`."""
    if not changed:
        return tree
    with locked_directory(repo.git.scratch(), "nightcrew.") as scratch:
        env = {"GIT_INDEX_FILE": str(scratch / "index")}
        repo.run("read-tree", tree, env=env, deadline_s=BULK_S)
        zero = "0" * len(repo.head)
        rows = [f"{file.mode} {file.oid}\t{path}\0" if file else f"0 {zero}\t{path}\0" for path, file in changed.items()]
        repo.run("update-index", "-z", "--index-info", stdin="".join(rows).encode("utf-8", "surrogateescape"), env=env)
        return repo.run("write-tree", env=env, deadline_s=BULK_S).text


def as_in(repo: Repository, tree: str, commit: str, paths: Collection[str]) -> str:
    """Return `tree` with these files as `commit` has them; those that it lacks are gone."""
    there = files(repo, commit, paths)
    return replaced(repo, tree, {path: there.get(path) for path in paths})


# Aside
# -----
# A door to git that writes every new object into a directory of ours: to find out what would come of something, and leave no trace.


class _Aside(Git):
    """As `git`, with further variables for every verb."""

    def __init__(self, git: Git, more: Mapping[str, str]) -> None:
        self.__dict__.update(git.__dict__)
        self._more = dict(more)

    def environment(self, place: Place) -> dict[str, str]:
        return {**super().environment(place), **self._more}


@contextlib.contextmanager
def objects_aside(repo: Repository) -> Iterator[Repository]:
    """The repository as it is, for reading and for objects that are gone afterwards. No ref may be moved with it."""
    with locked_directory(repo.git.scratch(), "nightcrew.") as place:
        more = pack_import.environment(Path(place), repo.common_dir / "objects")
        unsynced = {"GIT_CONFIG_PARAMETERS": "'core.fsync=none'"}  # as `git -c` says it
        yield replace(repo, git=_Aside(repo.git, {**more, **unsynced}))


# Hardened gate
# -------------
# A merged tree whose gate is the one that was there before the result: what the result weakened is as it was, and its own work
# stays.
#
# A result that passes only with the gate that it changed itself is not what was asked for. So the gate runs twice then, and both
# must pass.


def hardened(repo: Repository, staged: str, before: str, flags: Sequence[Flag]) -> str | None:
    """A commit on `staged` in which the files that weaken the gate are as in `before`, the commit that `staged` was put on; None when there
    are none, or all are as before. A file that `before` lacks is gone there; one that was renamed has its old name. The same arguments give
    the same commit. Raises as `Git.run`."""
    paths = {flag.path for flag in flags if flag.weakens and flag.kind in RESTORED}
    if not paths:
        return None
    moved = {change.path: change.old_path for change in read_gate_changes(repo, before, staged) if change.old_path}
    paths |= {moved[path] for path in paths if path in moved}
    tree = as_in(repo, staged, before, sorted(paths))
    return None if tree == repo.tree(staged) else our_commit(repo, tree, staged, "nightcrew: the gate as it was before this result")


# Equivalence
# -----------
# Whether one branch of a person's holds the work of another branch, though not its commits: cherry-picked, rebased or squashed.
#
# Patches are compared by what they say to the byte, mode and whitespace included, and by the names of what is binary; only the numbers of
# lines do not count. git's own patch ids leave out white space, and the content of binary files in some versions. A patch that is in the
# history counts as long as its effect is there: what was reverted later is no safe place for it.
#
# Files that a command makes (`GeneratedRule`) are left out of it: a train makes them anew, and they hold no work that is not elsewhere. A
# branch that changed nothing else is compared whole.
#
# Everything is bounded: what lies beyond the bounds counts as not there, and is said.


OWN_MAX = 200
"""Commits of the branch that are compared one by one; of one with more, only the whole."""
HISTORY = 5000
"""Commits of the other branch that are looked at, the newest of them."""
CANDIDATES = 1000
"""Of those, the ones that touch the same file: their patches are read."""
CONFLICTS = 50
"""Files in which both went on, and that are compared."""
MERGES = 20
"""Merges in the branch that are made again, to see whether they hold a change of their own."""
_SIZE_MAX = 16 * 2**20
_HISTORY_DIFF = ("diff-tree", "--stdin", "-r", "--root", "--no-renames", "--no-ext-diff", "--no-textconv", "--ignore-submodules=none")
_PATCH = ("-p", "--full-index", "--unified=3", "--submodule=short", "--no-prefix")


_ESCAPED = re.compile(rb"\\\\([0-7]{3}|.)", re.DOTALL)
_ESCAPES = {b"a": b"\a", b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}

_Newest = Mapping[str, tuple[int, str]]


class State(StrEnum):
    """Where the change of one commit is."""

    SAME = "in it as a patch"
    EMPTY = "changes nothing"
    REVERTED = "was in it and was taken back"
    MISSING = "not in it"


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit of the branch, as the other one holds it."""

    oid: str
    state: State
    by: str = ""
    """The commit there that holds the same patch, or took it back."""

    @property
    def is_inside(self) -> bool:
        return self.state in {State.SAME, State.EMPTY}


@dataclass(frozen=True, slots=True)
class Standing:
    """Whether the work is there, and why."""

    held: bool
    why: str
    commits: tuple[Commit, ...] = ()
    """Oldest first; none where they were not compared one by one."""

    @property
    def inside(self) -> int:
        """How many commits are there."""
        return sum(commit.is_inside for commit in self.commits)


@dataclass(frozen=True, slots=True)
class _Store:
    """Where git is asked."""

    repo: Repository
    rules: Sequence[GeneratedRule] = ()

    def is_made(self, name: str) -> bool:
        """Whether a command makes the file."""
        return any(rule.covers(name) for rule in self.rules)

    def text(self, *argv: str, stdin: str = "") -> str:
        return self.repo.run(*argv, stdin=os.fsencode(stdin), deadline_s=BULK_S).text

    def patches(self, asked: Iterable[str], *flags: str) -> dict[str, str]:
        """A word for what each commit changes, equal for equal patches; none of those that change nothing. `asked` may name another
        parent behind a commit."""
        lines = "".join(f"{one}\n" for one in asked)
        if not lines:
            return {}
        said = self.repo.run(*_HISTORY_DIFF, *_PATCH, *flags, stdin=lines.encode(), deadline_s=BULK_S).out
        return _words(said, frozenset(lines.encode().split()), self.is_made)

    def paths(self, asked: Iterable[str]) -> set[str]:
        """The first file that each commit changes, of those that no command makes."""
        lines = "".join(f"{one}\n" for one in asked)
        tokens = self.text(*_HISTORY_DIFF, "--raw", "-z", stdin=lines).split("\0") if lines else []
        at, is_first, found = 0, False, set[str]()
        while at < len(tokens):
            if not tokens[at].startswith(":"):
                is_first, at = True, at + 1
                continue
            if is_first and not self.is_made(tokens[at + 1]):
                found.add(tokens[at + 1])
                is_first = False
            at += 2
        return found

    def history(self, target: str, tip: str, paths: Iterable[str]) -> tuple[list[str], str]:
        """Commits of `target` that touch one of the files, newest first, and in words what was not looked at."""
        listed = self.text("rev-list", "--no-merges", "--topo-order", f"--max-count={HISTORY + 1}", f"{tip}..{target}").splitlines()
        wanted = sorted(paths)
        if not listed or not wanted:
            return [], ""
        asked = "".join(f"{one}\n" for one in listed[:HISTORY])
        lines = self.text(*_HISTORY_DIFF, "--raw", "--", *wanted, stdin=asked).splitlines()
        touching = [line for line in lines if not line.startswith(":")]
        bounded = f"only the newest {HISTORY} commits were looked at" if len(listed) > HISTORY else ""
        if len(touching) > CANDIDATES:
            bounded = f"only the newest {CANDIDATES} commits that touch the same files were looked at"
        return touching[:CANDIDATES], bounded


def judge(repo: Repository, target: str, tip: str, rules: Sequence[GeneratedRule] = ()) -> Standing:
    """Say what the history of `target` holds of the work of `tip`: its commits, its effect, or its patches. This is the one answer to
    "is this there already?" for trains, for `clean` and for reviews. Raises as `Git.run`, and OSError when nothing can be written beside
    git's locks."""
    base = repo.fork_point(target, tip)
    if not base:
        return Standing(held=False, why="no history in common")
    if base == tip:
        return Standing(held=True, why="its commits are on the branch")
    merged = merge(repo, target, tip)
    changes_more = rules and any(not any(rule.covers(name) for rule in rules) for name in changes(repo, base, tip))
    store = _Store(repo, rules if changes_more else ())  # a branch that changed nothing but what commands make is compared whole
    if not merged.conflicts and merged.tree == repo.tree(target):
        return Standing(held=True, why="merging it would change nothing")
    if store.rules and all(map(store.is_made, both := {*changes(repo, target, merged.tree), *merged.conflicts})):
        return Standing(held=True, why=f"merging it would change nothing but generated files: {some_of(sorted(both), 3)}")
    seen = _compared(store, base, target, tip)
    gone = _gone(store, (base, target, tip), merged) if seen.held else ""
    return Standing(held=False, why=f"{seen.why}, but the effect is gone: {gone}", commits=seen.commits) if gone else seen


def _compared(store: _Store, base: str, target: str, tip: str) -> Standing:
    """Each commit, and the whole, beside the patches of the other branch."""
    own = [line.split() for line in store.text("rev-list", "--parents", "--topo-order", "--reverse", f"{target}..{tip}").splitlines()]
    many = len(own) > OWN_MAX
    single = [] if many else [oid for oid, *parents in own if len(parents) < 2]
    asked = [f"{tip} {base}"]
    paths = store.paths([*single, *asked])  # the other parent last: git keeps it for every later mention of the commit
    touching, bounded = store.history(target, tip, paths)
    newest = _newest(store.patches(touching), touching)
    there, squash = store.patches(single), Commit(tip, State.MISSING)
    back = _taken_back(store, single, there, newest)
    if own == [[tip, base]]:  # one commit is the whole
        squash = _placed(tip, there, back, newest)
    elif newest:  # else nothing there can be the same
        whole = store.patches(asked)
        squash = _placed(tip, whole, _taken_back(store, asked, whole, newest), newest)
    kept = frozenset(single)
    empty = set() if many else _empty_merges(store, [line for line in own if line[0] not in kept])
    commits = tuple(Commit(oid, State.EMPTY) if oid in empty else _placed(oid, there, back, newest, oid in kept) for oid, *_ in own)
    return _standing(squash, () if many else commits, bounded)


def _taken_back(store: _Store, asked: Sequence[str], there: Mapping[str, str], newest: _Newest) -> dict[str, str]:
    """What would take each commit back; only of those that are there, which alone can have been."""
    return store.patches([one for one in asked if there.get(one.partition(" ")[0]) in newest], "-R")


def _newest(patches: Mapping[str, str], order: Sequence[str]) -> _Newest:
    """By what a patch says: where in the order, and which commit, the newest that says it."""
    found: dict[str, tuple[int, str]] = {}
    for at, oid in enumerate(order):
        if oid in patches:
            found.setdefault(patches[oid], (at, oid))
    return found


def _placed(
    oid: str, there: Mapping[str, str], back: Mapping[str, str], newest: Mapping[str, tuple[int, str]], plain: bool = True
) -> Commit:
    """Where the change of one commit is. Of a merge, which is not `plain`, nobody knows."""
    if oid not in there:
        return Commit(oid, State.EMPTY if plain else State.MISSING)
    did = newest.get(there[oid])
    if did is None:
        return Commit(oid, State.MISSING)
    undid = newest.get(back[oid])
    if undid is not None and undid[0] < did[0]:
        return Commit(oid, State.REVERTED, undid[1])
    return Commit(oid, State.SAME, did[1])


def _standing(squash: Commit, commits: tuple[Commit, ...], bounded: str) -> Standing:
    inside = sum(commit.is_inside for commit in commits)
    if commits and inside == len(commits):
        return Standing(held=True, why="each of its commits is there as a patch", commits=commits)
    if squash.state is State.SAME:
        return Standing(held=True, why=f"{squash.by[:12]} is the whole of it, squashed", commits=commits)
    back = [commit for commit in (squash, *commits) if commit.state is State.REVERTED]
    if back:
        why = f"it was there and {back[0].by[:12]} took it back"
    elif not commits:
        why = f"more than {OWN_MAX} commits, and no commit is the whole of it"
    else:
        why = f"{inside} of its {len(commits)} commits are there as patches" if inside else ""
    return Standing(held=False, why="; ".join(part for part in (why, bounded) if part), commits=commits)


def _empty_merges(store: _Store, merges: Sequence[Sequence[str]]) -> set[str]:
    """Merges that are what git makes of their parents: they hold no change of their own."""
    found = set()
    for oid, *parents in merges[:MERGES]:
        if len(parents) == 2:
            merged = merge(store.repo, parents[0], parents[1])
            if not merged.conflicts and merged.tree == store.repo.tree(oid):
                found.add(oid)
    return found


def _words(said: bytes, asked: frozenset[bytes], is_made: Callable[[str], bool]) -> dict[str, str]:
    """`Store.patches` of what git printed: a line with the commit, then its patch, file by file."""
    found: dict[str, Any] = {}
    commit, held, is_skipped = "", b"", False
    for line in said.removesuffix(b"\n").split(b"\n"):
        if line in asked:
            commit, is_skipped = line.decode(), False
            continue
        if line.startswith(b"diff --git "):
            is_skipped = is_made(_named_file(line))
        if not commit or is_skipped:
            continue
        if line.startswith(b"index "):  # the names of what it was and is: of no text, which differs elsewhere in the file
            held = line
            continue
        into = found.setdefault(commit, hashlib.sha256())
        if line.startswith(b"Binary files "):
            into.update(held + b"\n")
        into.update((b"@@" if line.startswith(b"@@ ") else line) + b"\n")
    return {oid: word.hexdigest() for oid, word in found.items()}


def _named_file(line: bytes) -> str:
    """The file of a line `diff --git NAME NAME`, which without prefixes and renames has it twice."""
    both = line.removeprefix(b"diff --git ")
    name = both[: (len(both) - 1) // 2]
    if name.startswith(b'"'):
        name = _ESCAPED.sub(_unescaped, name[1:-1])
    return os.fsdecode(name)


def _unescaped(match: re.Match[bytes]) -> bytes:
    said = match.group(1)
    return bytes([int(said, 8)]) if said.isdigit() else _ESCAPES.get(said, said)


def _gone(store: _Store, three: tuple[str, str, str], merged: Merged) -> str:
    """Files in which merging would bring something that was there before; "" when the other branch has only gone on."""
    both = {name for name in merged.conflicts if not store.is_made(name)}
    differing = changes(store.repo, three[1], merged.tree).keys() - set(merged.conflicts)
    lost = sorted(name for name in differing if not store.is_made(name))
    if len(both) > CONFLICTS:
        return f"more than {CONFLICTS} files changed on both sides"
    lost += [] if lost else [name for name in sorted(both) if not _went_on(store, three, name)]
    return some_of(lost, 3)


def _went_on(store: _Store, three: tuple[str, str, str], name: str) -> bool:
    """Whether the file as it is holds all of the branch that it did not itself change again."""
    if "\n" in name:
        return False
    asked = "".join(f"{commit}:{name}\n" for commit in three)
    rows = [line.rsplit(" ", 2) for line in store.text("cat-file", "--batch-check", stdin=asked).splitlines()]
    base, here, there = (row if len(row) == 3 and row[1] == "blob" else None for row in rows) if len(rows) == 3 else (None,) * 3
    if here is None or there is None:
        return False
    if any(row is not None and int(row[2]) > _SIZE_MAX for row in (base, here, there)):
        return base is None or here[0] != base[0]
    with locked_directory(store.repo.git.scratch(), "merged.") as scratch:
        files = []
        for label, row in (("here", here), ("base", base), ("there", there)):
            files.append(str(scratch / label))
            Path(files[-1]).write_bytes(store.repo.run("cat-file", "blob", row[0]).out if row is not None else b"")
        answer = store.repo.run("merge-file", "-p", "--ours", *files, accept=(0, 255))
        if answer.code:  # binary: no lines to compare, and `_compared` has looked whether it was taken back
            return base is None or here[0] != base[0]
        return answer.out == Path(files[0]).read_bytes()


# Patches
# -------
# Reads the difference of two commits as files, hunks and lines, within bounds: by two gits, however large it is.


PATCH_MAX = 16 * 2**20
"""Bytes of the patch that are read."""
FILES_MAX = 20_000

_PATCH_FLAGS = ("-r", "-M", "-l1000", "--ignore-submodules=none")
_HUNK = re.compile(rb"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")


@dataclass(slots=True)
class _Section:
    hunks: list[Hunk]
    binary: bool = False


def read_patch(repo: Repository, base: str, tip: str, context: int = 3) -> list[FileDiff]:
    """Every file that differs, at most FILES_MAX, in git's order. What lies behind PATCH_MAX is `cut`. Raises as `Git.run`."""
    rows = _rows(repo, base, tip)[:FILES_MAX]
    patch, whole = bounded(repo, PATCH_MAX, "diff-tree", "-p", f"-U{context}", *_PATCH_FLAGS, base, tip)
    sections = list(_sections(patch))
    last = len(sections) - 1
    found, place = [], 0
    for row in rows:
        count = 2 if row.status == "T" else 1  # another kind of file: one that goes, and one that comes
        here = sections[place : place + count]
        hunks = tuple(hunk for section in here for hunk in section.hunks)
        cut = len(here) < count or (not whole and place + count > last)
        found.append(replace(row, hunks=hunks, binary=any(section.binary for section in here), cut=cut))
        place += count
    return found


def _rows(repo: Repository, base: str, tip: str) -> list[FileDiff]:
    words = iter(repo.run("diff-tree", "-z", "--raw", *_PATCH_FLAGS, base, tip, deadline_s=BULK_S).text.split("\0"))
    found = []
    for facts in words:
        if not facts.startswith(":"):
            continue
        old_mode, new_mode, old, new, status = facts.removeprefix(":").split(" ")
        first = next(words)
        second = next(words) if status[0] in "RC" else ""
        found.append(FileDiff(second or first, status[0], first if second else "", old_mode, new_mode, old, new))
    return found


def bounded(repo: Repository, limit: int, verb: str, *argv: str) -> tuple[bytes, bool]:
    """Return at most `limit` bytes of a difference that `verb` prints, and whether that is all: git writes it into a file, so that it is
    never held in memory, however large it is. Raises as `Git.run`."""
    with locked_directory(repo.git.scratch(), "nightcrew.") as scratch:
        file: Path = scratch / "difference"
        repo.run(verb, "--no-ext-diff", "--no-textconv", "--no-color", f"--output={file}", *argv, deadline_s=BULK_S)
        with file.open("rb") as said:
            return said.read(limit), file.stat().st_size <= limit


def _sections(patch: bytes) -> Iterator[_Section]:
    """Of each file its hunks. A hunk says how many lines it has, so no line of a file is taken for git's own."""
    lines = patch.split(b"\n")
    place = 0
    here: _Section | None = None
    while place < len(lines):
        line = lines[place]
        place += 1
        if line.startswith(b"diff --git "):
            if here is not None:
                yield here
            here = _Section([])
        elif here is not None and (match := _HUNK.match(line)):
            hunk, place = _hunk(match, lines, place)
            here.hunks.append(hunk)
        elif here is not None and line.startswith(b"Binary files "):
            here.binary = True
    if here is not None:
        yield here


def _hunk(match: re.Match[bytes], lines: Sequence[bytes], place: int) -> tuple[Hunk, int]:
    old, new = int(match.group(1)), int(match.group(3))
    gone, come = (1 if count is None else int(count) for count in match.group(2, 4))
    found: list[tuple[str, str]] = []
    bare = set[int]()
    while place < len(lines) and (gone > 0 or come > 0 or lines[place][:1] == b"\\"):
        sign = lines[place][:1].decode("ascii", "replace") or " "
        if sign == "\\":  # "\ No newline at end of file"
            bare.add(len(found) - 1)
        else:
            found.append((sign, lines[place][1:].decode("utf-8", "replace")))
            gone -= sign in " -"
            come -= sign in " +"
            if sign not in " -+":
                break
        place += 1
    return Hunk(old, new, tuple(found), frozenset(bare)), place


# Gate changes
# ------------
# Reads what lies between two commits in the form in which `core.gate_files` judges it, within bounds.


TEXTS_MAX = 50
"""Files whose whole text is read."""
FOLDERS_MAX = 500
"""Directories that are looked for in the base."""


def read_gate_changes(repo: Repository, base: str, tip: str) -> list[Change]:
    """Every file that differs, with the lines that were removed and added; bounds as of `patches.read`. Raises as `Git.run`."""
    return of_diffs(repo, base, read_patch(repo, base, tip, 0))


def of_diffs(repo: Repository, base: str, diffs: Sequence[FileDiff]) -> list[Change]:
    """The same of differences from `base` that were read already."""
    wanted = {one.path for one in [one for one in diffs if wants_text(one.path) and one.status in "AMRT"][:TEXTS_MAX]}
    packages, new = _folders(repo, base, [folder_of(one.path) for one in diffs if one.status not in "MD" and wants_folder(one.path)])
    return [
        Change(
            one.path, one.status, one.old_path, one.lines("-"), one.lines("+"),
            old_text=_text(repo, one.old_oid) if one.path in wanted else None,
            new_text=_text(repo, one.new_oid) if one.path in wanted else None,
            cut=one.cut,
            link=one.new_mode in ("120000", "160000"),
            in_package=folder_of(one.path) in packages,
            in_new_folder=folder_of(one.path) in new,
        )
        for one in diffs
    ]  # fmt: skip


def _folders(repo: Repository, base: str, folders: Iterable[str]) -> tuple[frozenset[str], frozenset[str]]:
    """Return the Python packages among `folders` in `base`, and the folders that `base` lacks. The root, and folders beyond FOLDERS_MAX,
    are neither."""
    asked = sorted({folder for folder in folders if folder})[:FOLDERS_MAX]
    if not asked:
        return frozenset(), frozenset()
    named = [path for folder in asked for path in (folder, f"{folder}/__init__.py")]
    there = repo.run("ls-tree", "-z", "-t", "--name-only", "--full-tree", base, "--", *named).text.split("\0")
    return frozenset(asked).intersection(path.removesuffix("/__init__.py") for path in there if path.endswith("/__init__.py")), frozenset(
        folder for folder in asked if folder not in there
    )


def _text(repo: Repository, oid: str) -> str | None:
    size = repo.run("cat-file", "-s", oid, accept=(0, 128)).text
    if not size.isdigit() or int(size) > TEXT_MAX:
        return None
    return repo.run("cat-file", "blob", oid, accept=(0, 128)).out.decode("utf-8", "replace")
