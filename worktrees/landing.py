"""Bring results home: move a branch of the person's forward, and integrate edits of many workers."""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from supervisor.host.untrusted_fs import folder
from supervisor.kernel import train_orders
from supervisor.kernel.errors import NotFound, Refused, ToolFailed, ToolHung, UsageError, one_line, some_of
from supervisor.kernel.names import left_ref, merge_branch
from supervisor.kernel.train_orders import GeneratedRule, Method, Person, Terms
from worktrees import merge, pack_import, repository, tree_merge
from worktrees.git import BULK_S, CHECKOUT_S, IDENTITY
from worktrees.merge import ByHand, quoted, refused
from worktrees.repository import HEADS, File, Repository, Source, Update, current_branch, discover, drivers, files, operation
from worktrees.tree_merge import GONE, LINK, Changes

# Landing
# -------
# Moves a branch of the person's forward, for `take` and at the end of a train: as compare and swap, and with the checkout that is on it,
# if any. What is merged is known before anything is touched; what is left is a fast-forward, which git does as one guarded step.
#
# Where git as we run it would skip something that the repository relies on (filters, hooks), nothing moves: the person gets the
# command.


@dataclass(frozen=True, slots=True)
class Moved:
    """The branch stands on `commit` now."""

    commit: str
    checkout: Path | None
    """Where it is checked out; that moved with it."""
    unlocked: bool = False
    """The index there was locked by a git that was killed, and is not any more."""


def tip(repo: Repository, branch: str) -> str:
    """Return the commit that a branch (its short name), or a ref by its full name, stands on. Raises NotFound."""
    found = repo.commit(branch if branch.startswith("refs/") else f"{HEADS}/{branch}")
    if not found:
        raise NotFound("no such branch", on=branch, hint=f"git -C {quoted(repo.root)} branch")
    return found


def readiness(repo: Repository, branch: str) -> str:
    """Why `move` would refuse now, whatever the new commit is, or ""."""
    try:
        if (there := _holder_at_rest(repo, branch)) is not None:
            merge.refuse_dirty(there)
    except (Refused, NotFound) as error:
        return error.why or error.what
    return ""


def left_out(repo: Repository) -> str:
    """What a commit of ours lacks that the person's own would have had, or "": a signature, and what hooks would have said."""
    return "; ".join(filter(None, (merge.unsigned(repo), merge.bypassed_hooks(repo, *merge.MERGE_HOOKS))))


def holder(repo: Repository, branch: str) -> Repository | None:
    """The checkout that is on the branch; None when there is none. Raises Refused when there are several, or it is not there now."""
    found = _checkouts(repo, branch)
    if len(found) > 1:
        raise refused(branch, f"it is checked out at {' and at '.join(map(str, found))}", f"git -C {quoted(found[1])} switch --detach")
    if not found or found[0] == repo.root:
        return repo if found else None
    if not found[0].is_dir():
        raise refused(branch, f"it is checked out at {found[0]}, which is not there", f"git -C {quoted(repo.root)} worktree prune")
    return discover(repo.git, found[0])


def take(repo: Repository, ref: str, message: str = "", *, only: str = "", generated: Sequence[GeneratedRule] = ()) -> Moved | ByHand:
    """Merge a branch (or a ref, by its full name) into the branch that is checked out at `repo`: a train of one result, without a gate,
    that needs no supervisor. `only`: the commit that the person agreed to. No command of `generated` is run: where nothing but such files
    conflicts the refusal says what runs them.

    Raises Refused as `move`, and where it would conflict or HEAD is detached; NotFound when there is no such branch; ToolFailed when git
    could not write.
    """
    with repo.git.lock(repo.common_dir):
        result = tip(repo, ref)
        if only and result != only:
            why = f"{ref} is {result[:12]} by now, and {only[:12]} was agreed to"
            raise refused(repo.root, why, f"git -C {quoted(repo.root)} log {shlex.quote(ref)}")
        head = repo.git.run(repo.checkout, "rev-parse", "--verify", "HEAD^{commit}").text
        base = repo.fork_point(head, result)
        if base == result:
            return Moved(head, repo.root)
        _refuse_busy(repo)
        branch = current_branch(repo.git, repo.checkout)
        if branch is None:
            raise refused(repo.root, "HEAD is detached", f"git -C {quoted(repo.root)} switch BRANCH")
        there = _holder_at_rest(repo, branch) or repo
        command = f"git -C {quoted(repo.root)} merge {shlex.quote(ref)}"
        if base == head:
            return _advanced(there, merge.bypassed_by_move(there, head, result), command, lambda: result)

        def merged() -> str:
            return _merged(repo, head, result, message or f"Merge branch '{ref}' into {branch}", command, generated)

        return _advanced(there, merge.bypassed_by_merge(there, head, result), command, merged)


def _merged(repo: Repository, head: str, result: str, message: str, command: str, generated: Sequence[GeneratedRule]) -> str:
    """Write the merge as the person would commit it: their identity, their branch as the first parent. Raises Refused for a conflict."""
    merged = tree_merge.merge(repo, head, result, Source(repo.checkout))
    if merged.conflicts:
        why = f"it would conflict in {some_of(merged.conflicts)}"
        if all(any(rule.covers(path) for rule in generated) for path in merged.conflicts):
            why, command = f"{why}, which commands make; take runs none of them", "nightcrew land NAME, which has them made anew"
        raise refused(repo.root, why, command)
    who = {role: merge.person(repo, role) for role in ("AUTHOR", "COMMITTER")}
    names = {f"GIT_{role}_NAME": one.name for role, one in who.items()} | {f"GIT_{role}_EMAIL": one.mail for role, one in who.items()}
    return repo.write_commit(merged.tree, (head, result), message.encode("utf-8", "replace") + b"\n", names)


def move(repo: Repository, branch: str, old: str, new: str) -> Moved | ByHand:
    """Move the person's branch (its short name) from the commit `old` forward to `new`. Done twice, it is done.

    Raises Refused, with everything untouched, when the branch stands elsewhere, `new` does not contain `old`, or the checkout that is on it
    is dirty or in the middle of something; NotFound when there is no such branch; ToolFailed when git could not write.
    """
    with repo.git.lock(repo.common_dir):
        stands = tip(repo, branch)
        if stands == new:
            return Moved(new, next(iter(_checkouts(repo, branch)), None))
        if stands != old:
            why = f"it stands on {stands[:12]} by now, and on {old[:12]} when its results were tried"
            raise refused(branch, why, _log(repo, old, branch))
        if not repo.has(new, old):
            raise refused(branch, f"{new[:12]} does not contain {old[:12]}", _log(repo, old, new))
        there = _holder_at_rest(repo, branch)
        if there is None:
            return _moved_ref(repo, branch, old, new)
        return _advanced(there, merge.bypassed_by_move(there, old, new), by_hand(repo, branch, old, new), lambda: new)


def _advanced(there: Repository, skipped: str, command: str, make: Callable[[], str]) -> Moved | ByHand:
    """Move the checkout `there`, and the branch with it, to the commit that `make` gives: the one way home of a result. `skipped` says what
    git as we run it would skip; the person does it by `command` then."""
    if skipped:
        return ByHand(skipped, (command,))
    merge.refuse_dirty(there)
    commit = make()
    return Moved(commit, there.root, unlocked=merge.advance(there, commit))


def _moved_ref(repo: Repository, branch: str, old: str, new: str) -> Moved | ByHand:
    ref = f"{HEADS}/{branch}"
    if why := merge.bypassed_hooks(repo, merge.REF_HOOK):
        return ByHand(why, (by_hand(repo, branch, old, new),))
    try:
        repository.move(repo, ref, new, old, "nightcrew land")
    except ToolFailed as error:
        raise refused(branch, error.why, _log(repo, old, branch)) from error
    return Moved(new, None)


def by_hand(repo: Repository, branch: str, old: str, new: str) -> str:
    """The command with which a person moves the branch forward with their own git."""
    for top in _checkouts(repo, branch):
        return f"git -C {quoted(top)} merge --ff-only {new}"
    return f"git -C {quoted(repo.root)} update-ref {shlex.quote(f'{HEADS}/{branch}')} {new} {old}"


def _holder_at_rest(repo: Repository, branch: str) -> Repository | None:
    """`holder`. Raises Refused also when that, or the branch, is not to be moved now."""
    named = repo.run("symbolic-ref", "--quiet", f"{HEADS}/{branch}", accept=(0, 1, 128))
    if not named.code:
        name = named.text.removeprefix(f"{HEADS}/")
        raise refused(
            branch, f"it is another name of {name}", f"git -C {quoted(repo.root)} symbolic-ref {shlex.quote(f'{HEADS}/{branch}')}"
        )
    there = holder(repo, branch)
    if there is not None:
        _refuse_busy(there)
    elif doing := _detached_from(repo, branch):
        raise refused(branch, f"{doing} of it is in progress", f"git -C {quoted(repo.root)} worktree list")
    return there


def _checkouts(repo: Repository, branch: str) -> list[Path]:
    """Where the branch is checked out. The main worktree comes first, and where its git directory lies elsewhere git misnames it."""
    said = repository.over_all(repo, "worktree", "list", "--porcelain", "-z").text
    entries = [entry.split("\0") for entry in said.split("\0\0")]
    if repo.git_dir == repo.common_dir:
        entries[0][0] = str(repo.root)
    return [Path(entry[0].removeprefix("worktree ")) for entry in entries if f"branch {HEADS}/{branch}" in entry[1:]]


def _refuse_busy(there: Repository) -> None:
    """Raises Refused when the checkout is in the middle of something."""
    if doing := operation(there.git_dir):
        raise refused(there.root, f"a {doing} is in progress", f"git -C {quoted(there.root)} status")


_BEGUN = (("rebase-merge", "head-name", "a rebase"), ("rebase-apply", "head-name", "a rebase"), ("", "BISECT_START", "a bisect"))
"""Where git notes the branch to which it will return, and what it does meanwhile, with HEAD detached."""


def _detached_from(repo: Repository, branch: str) -> str:
    """What began on the branch in some checkout and has left it meanwhile, or ""."""
    with contextlib.ExitStack() as stack:
        linked: list[str] = []
        with contextlib.suppress(OSError):
            linked = stack.enter_context(folder(repo.common_dir, "worktrees")).names()
        for admin in ("", *(f"worktrees/{name}/" for name in linked)):
            for below, file, what in _BEGUN:
                with contextlib.suppress(OSError), folder(repo.common_dir, f"{admin}{below}".rstrip("/")) as here:
                    said = os.fsdecode((here.read(file, 4096) or b"").removesuffix(b"\n"))
                    if said.removeprefix(f"{HEADS}/") == branch:
                        return what
    return ""


def _log(repo: Repository, old: str, new: str) -> str:
    return f"git -C {quoted(repo.root)} log --oneline {old[:12]}..{shlex.quote(new)}"


# Integration
# -----------
# Brings the edits of many workers and agents into one branch, in a fixed order, beside every checkout.
#
# An edit is the difference between two commits. Each becomes one commit on the branch, in the order in which the edits are given;
# one that conflicts with what is there by then is left out, and a ref of its own keeps it. The commits carry nothing of this
# moment, so the same edits give the same branch, byte for byte, whoever was killed in between: only the last step moves refs.
#
# An edit whose files all are on the branch as it found them is put there as it is, many of them by one `git fast-import`. Any other
# is merged by `git merge-tree`, with the tree that it began from as the base of the merge.


_MAP, _ITEM, _FROM = "Nightcrew-Map", "Nightcrew-Item", "Nightcrew-Commit"


@dataclass(frozen=True, slots=True)
class Edit:
    """What was done for one item: the change from commit `base` to commit `tip`."""

    position: int
    """Of the item, unique among the edits."""
    name: str
    base: str
    tip: str


@dataclass(frozen=True, slots=True)
class Left:
    """An edit that is not on the branch."""

    edit: Edit
    why: str
    files: tuple[str, ...] = ()
    """Those that conflict, or are commits of another repository, as `os.fsdecode` text."""
    ref: str = ""
    """What keeps its commit; empty: it is gone."""


@dataclass(frozen=True, slots=True)
class Integrated:
    """The branch as it stands now. `merged` are positions; an edit that changes nothing is among neither."""

    branch: str
    tip: str
    merged: tuple[int, ...]
    left: tuple[Left, ...]


def integrate(repo: Repository, name: str, base: str, edits: Sequence[Edit]) -> Integrated:
    """Make the branch of the map `name` (12 hex) hold `edits` on top of commit `base`, in their order. Without one that changes anything no
    branch is made.

    Raises Refused, with nothing moved, when the branch holds a person's commits or is checked out; ToolFailed, DiskFull.
    """
    there = _existing(repo, [oid for edit in edits for oid in (edit.base, edit.tip)])
    known = [edit for edit in edits if edit.base in there and edit.tip in there]
    gone = [Left(edit, "its commit is gone") for edit in edits if edit.base not in there or edit.tip not in there]
    trees, fold = repo.trees(there), _Fold(repo, name, base)
    changed = tree_merge.changes_of_pairs(repo, [(trees[edit.base], trees[edit.tip]) for edit in known])
    for edit, changes in zip(known, changed, strict=True):
        fold.add(edit, changes)
    tip = fold.finish()
    left = sorted([*fold.left, *gone], key=lambda one: one.edit.position)
    _publish(repo, name, base, tip, left)
    return Integrated(merge_branch(name), tip, tuple(fold.merged), tuple(left))


class _Fold:
    """The branch as it grows. What waits in `_pending` is written by one process, before anything else is asked of git."""

    def __init__(self, repo: Repository, name: str, base: str) -> None:
        self._repo, self._name = repo, name
        self._tip = base
        self._date = repo.run("show", "-s", "--format=%ct", base).text
        self._pending: list[tuple[Edit, Changes]] = []
        self._files = files(repo, base)
        self._folders = {above for path in self._files for above in _above(path)}
        self.merged: list[int] = []
        self.left: list[Left] = []

    def add(self, edit: Edit, changes: Changes) -> None:
        """Put the edit on the branch, or among what is left."""
        if not changes:
            return
        if links := [path for path, (_, new) in changes.items() if new.mode == LINK]:
            self._leave(edit, "it has a commit of another repository, which nobody may have", links)
            return
        if all(self._fits(path, old) for path, (old, _) in changes.items()):
            self._pending.append((edit, changes))
            self._note(changes)
            self.merged.append(edit.position)
            return
        self._write()
        merged = tree_merge.replay(self._repo, edit.base, self._tip, edit.tip)
        if merged.conflicts:
            self._leave(edit, "it conflicts with what is on the branch", merged.conflicts)
            return
        self._note(tree_merge.changes(self._repo, self._tip, merged.tree))
        moment = {"GIT_AUTHOR_DATE": f"@{self._date} +0000", "GIT_COMMITTER_DATE": f"@{self._date} +0000"}
        self._tip = self._repo.write_commit(merged.tree, (self._tip,), self._message(edit), {**IDENTITY, **moment})
        self.merged.append(edit.position)

    def _leave(self, edit: Edit, why: str, files: Sequence[str]) -> None:
        self.left.append(Left(edit, why, tuple(files), left_ref(self._name, edit.position)))

    def finish(self) -> str:
        """The branch's commit."""
        self._write()
        return self._tip

    def _fits(self, path: str, old: File) -> bool:
        """Whether the file is on the branch as the edit found it, and nothing is in the way of a new one."""
        if old.mode != GONE:
            return self._files.get(path) == old
        clear = path not in self._files and path not in self._folders
        return clear and not any(above in self._files for above in _above(path))

    def _note(self, changes: Changes) -> None:
        for path, (_, new) in changes.items():
            if new.mode == GONE:
                self._files.pop(path, None)
            else:
                self._files[path] = new
                self._folders.update(_above(path))

    def _message(self, edit: Edit) -> bytes:
        trailers = f"{_MAP}: {self._name}\n{_ITEM}: {edit.position}\n{_FROM}: {edit.tip}\n"
        return f"{one_line(edit.name) or edit.position}\n\n{trailers}".encode("utf-8", "replace")

    def _write(self) -> None:
        """Write what waits. The branch of fast-import is removed by its last line: nothing but `_publish` moves a ref."""
        if not self._pending:
            return
        ref = f"refs/nightcrew/map/{self._name}/draft"
        who = f"nightcrew <nightcrew@localhost> {self._date} +0000\n".encode()
        lines: list[bytes] = []
        for mark, (edit, changes) in enumerate(self._pending, start=1):
            message = self._message(edit)
            before = f":{mark - 1}" if mark > 1 else self._tip
            lines.append(f"commit {ref}\nmark :{mark}\n".encode() + b"author " + who + b"committer " + who)
            lines.append(f"data {len(message)}\n".encode() + message + f"\nfrom {before}\n".encode())
            lines += [_line(path, new) for path, (_, new) in sorted(changes.items(), key=lambda change: change[1][1].mode != GONE)]
        end = f"get-mark :{len(self._pending)}\nreset {ref}\nfrom {'0' * len(self._tip)}\n\ndone\n"
        script = b"".join([*lines, end.encode()])
        flags = ("--quiet", "--done", "--force", "--date-format=raw")
        self._tip = self._repo.run("fast-import", *flags, stdin=script, deadline_s=CHECKOUT_S).text
        self._pending = []


def _line(name: str, new: File) -> bytes:
    """Of a fast-import script: files that go come before those that take their place."""
    path = b'"' + b"".join(_QUOTED.get(byte, bytes([byte])) for byte in os.fsencode(name)) + b'"'
    return b"D " + path + b"\n" if new.mode == GONE else f"M {new.mode} {new.oid} ".encode() + path + b"\n"


_QUOTED = {ord('"'): b'\\"', ord("\\"): b"\\\\", ord("\n"): b"\\n"}


def _above(path: str) -> Iterator[str]:
    """The directories that a path lies in, innermost first."""
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


def _existing(repo: Repository, oids: Sequence[str]) -> set[str]:
    """Those that are commits of the repository."""
    if not oids:
        return set()
    lines = repo.run("cat-file", "--batch-check", stdin="\n".join(oids).encode() + b"\n", deadline_s=BULK_S).text
    return {line.split(" ")[0] for line in lines.splitlines() if line.split(" ")[1:2] == ["commit"]}


def _publish(repo: Repository, name: str, base: str, tip: str, left: Sequence[Left]) -> None:
    """Move the branch and what keeps the edits that were left out, in one transaction. The last step, and the only one that others see."""
    branch = f"{repository.HEADS}/{merge_branch(name)}"
    with repo.git.lock(repo.common_dir):
        rows = repository.over_all(
            repo, "for-each-ref", "--format=%(refname) %(objectname) %(worktreepath)", branch, left_ref(name, "").rstrip("/")
        )
        stand = {row[0]: row[1:] for row in (line.split(" ", 2) for line in rows.text.splitlines())}
        old, holder = stand.pop(branch, ["", ""])
        _refuse_theirs(repo, name, base, old, holder)
        wanted = {one.ref: one.edit.tip for one in left if one.ref}
        updates = [Update(branch, tip, old)] if tip != (old or base) else []
        updates += [Update(ref, wanted.get(ref, ""), oid) for ref, (oid, _) in stand.items() if wanted.get(ref) != oid]
        updates += [Update(ref, oid, "") for ref, oid in wanted.items() if ref not in stand]
        if updates:
            repository.move_all(repo, updates, f"nightcrew: map {name}")


def _refuse_theirs(repo: Repository, name: str, base: str, old: str, holder: str) -> None:
    """Raises Refused when the branch is not ours to move."""
    branch = merge_branch(name)
    kept = "the branch, and every edit on the branch of its worker"
    if holder:
        hint = f"git -C {os.fsdecode(os.fsencode(holder))} switch --detach"
        raise Refused("the edits were not merged", on=branch, why=f"it is checked out at {holder}", kept=kept, hint=hint)
    if not old or old == base:
        return
    said = repo.run("show", "-s", "--format=%ce%n%B", old).text
    mail, _, message = said.partition("\n")
    if mail != IDENTITY["GIT_COMMITTER_EMAIL"] or f"{_MAP}: {name}" not in message.splitlines():
        why = f"commit {old[:12]} on it is not nightcrew's"
        raise Refused("the edits were not merged", on=branch, why=why, kept=kept, hint=f"git branch -m {branch} kept/{name}")


# Restoring
# ---------
# Brings what a rescue ref holds back as a branch of the person's, and as a worktree of theirs. The rescue ref stays.
#
# Where git as we run it would skip something that the repository relies on (filters, hooks) no worktree is made: the person gets
# the command.


_HOOKS = ("post-checkout", "post-index-change", "reference-transaction")
"""What git runs when it makes a worktree."""


@dataclass(frozen=True, slots=True)
class Restored:
    """A branch that stands on the commit of the rescue ref."""

    branch: str
    commit: str
    is_new: bool
    """False: it stood there already."""


def restore(repo: Repository, rescue: str, branch: str) -> Restored:
    """Make `branch` at the commit of the ref `rescue`; nothing else changes. Safe to call again.

    Raises NotFound when there is no such ref, UsageError when git takes no branch of that name, Refused when one with that name stands
    elsewhere, ToolFailed when git could not write.
    """
    if repo.run("check-ref-format", f"refs/heads/{branch}", accept=(0, 1)).code or branch.startswith("-"):
        raise UsageError("no branch can be called", on=branch, why="git does not take the name")
    with repo.git.lock(repo.common_dir):
        commit = repo.commit(rescue)
        if not commit:
            listed = f"git -C {shlex.quote(str(repo.root))} for-each-ref refs/nightcrew/rescue"
            raise NotFound("nothing was rescued", on=rescue, why="there is no such ref in this repository", hint=listed)
        stands = repo.commit(f"refs/heads/{branch}")
        if stands == commit:
            return Restored(branch, commit, is_new=False)
        if stands:
            why = f"a branch of that name stands on {stands[:12]}"
            raise Refused("nothing was restored", on=branch, why=why, kept="that branch", hint="--branch NAME gives it another name")
        repository.move(repo, f"refs/heads/{branch}", commit, "", "nightcrew: restored")
    return Restored(branch, commit, is_new=True)


def check_out(repo: Repository, done: Restored, place: Path, ours: Path) -> bool:
    """Make `place` a worktree of the person's with the restored branch; False when it is one already. `ours`: where it may not lie. Neither
    hook nor filter nor merge driver runs.

    Raises Refused, with the branch as it is and no worktree, when the place is taken or ours, when the branch is checked out elsewhere, and
    where the person's own git would run a filter or a hook; DiskFull, ToolFailed when git could not write.
    """
    by_hand = f"git -C {shlex.quote(str(repo.root))} worktree add {shlex.quote(str(place))} {shlex.quote(done.branch)}"
    with repo.git.lock(repo.common_dir):
        if _stands_there(repo, done.branch, place):
            return False
        if why := _why_not(place, ours):
            raise _no_worktree(place, why, done, "--worktree DIR names another place")
        if why := _skipped(repo, done.commit):
            raise _no_worktree(place, why, done, by_hand)
        try:  # killed in the middle it would leave half of the files: it goes on to its end without us
            repo.run("worktree", "add", "--quiet", str(place), done.branch, deadline_s=BULK_S, survives=True)
        except ToolFailed as error:
            raise _no_worktree(place, error.why, done, "git worktree list") from error
    return True


def _no_worktree(place: Path, why: str, done: Restored, hint: str) -> Refused:
    return Refused("no worktree was made", on=str(place), why=why, kept=f"the branch {done.branch}", hint=hint)


def _stands_there(repo: Repository, branch: str, place: Path) -> bool:
    entries = repo.run("worktree", "list", "--porcelain", "-z").text.split("\0\0")
    wanted = [f"worktree {os.path.realpath(place)}", f"branch refs/heads/{branch}"]
    return place.is_dir() and any(set(wanted) <= set(entry.split("\0")) and "\0locked initializing" not in entry for entry in entries)


def _why_not(place: Path, ours: Path) -> str:
    if not str(place).isprintable():
        return "its name holds a character that git cannot write down"
    real = Path(os.path.realpath(place))
    if real.is_relative_to(os.path.realpath(ours)):
        return f"{ours} is nightcrew's own"
    if ".git" in real.parts:
        return "it lies inside a .git directory"
    if os.path.lexists(place) and not (place.is_dir() and not any(place.iterdir())):
        return "something is there"
    return ""


def _skipped(repo: Repository, commit: str) -> str:
    """What the person's own git would run for the files of a commit and ours does not, or ""."""
    if used := repository.drivers_in(repo, commit, "filter"):
        return f"files use {repository.listed(used)}, which nightcrew does not run"
    return merge.bypassed_hooks(repo, *_HOOKS)


# Staging
# -------
# Puts one result on top of a commit, as a train of merges does it: objects are written, no ref and no checkout changes.
#
# The same result on the same commit by the same terms makes the same commit, whoever was killed in between.


TRIES = 8
"""`git gc --prune=now` may take what no ref names yet from under a staging; the next try writes it again."""
COMMITS_MAX = 500
"""Of a result that is rebased: each costs some eight gits."""
_CRUD = "".join(map(chr, range(33))) + ".,:;<>\"\\'"
"""What git takes no name of nothing else for."""


@dataclass(frozen=True, slots=True)
class Result:
    """What one task made."""

    task: str
    tip: str
    """Commit."""
    title: str = ""


@dataclass(frozen=True, slots=True)
class Staged:
    """The result is on top."""

    commit: str
    regenerate: tuple[str, ...] = ()
    """Commands that must run in a worktree at `commit`, in this order, before it is what it should be; see `generated.finish`."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """The result cannot be put there."""

    why: str
    files: tuple[str, ...] = ()
    """`os.fsdecode` text."""


@dataclass(frozen=True, slots=True)
class Contained:
    """The commit has all of it already."""

    why: str


def stage(repo: Repository, onto: str, result: Result, terms: Terms) -> Staged | LeftOut | Contained:
    """Put `result` on top of the commit `onto`; what is checked out does not matter, nor what was changed there. Raises NotFound when the
    result's commit is gone, ToolHung and DiskFull; what git cannot merge is left with its words."""
    if not repo.commit(result.tip):
        raise NotFound("the commit of a result is gone", on=result.task, why=result.tip, hint=f"nightcrew restore {result.task}")
    base = repo.fork_point(onto, result.tip)
    if not base:
        return LeftOut("it shares no commit with the branch")
    why = ""
    for _ in range(TRIES):
        try:
            with repository.of_commit(repo, onto) as source:
                return _staged(_Case(repo, source, base, onto, result, terms))
        except ToolHung:
            raise
        except ToolFailed as error:
            why = error.why
            pack_import.outlast(repo.common_dir)
    return LeftOut(f"git cannot merge it: {why}")


@dataclass(frozen=True, slots=True)
class _Case:
    """One result, and the commit that it is put on."""

    repo: Repository
    source: Source
    """The attributes of `onto`."""
    base: str
    onto: str
    result: Result
    terms: Terms

    def git(self, *argv: str) -> str:
        return self.repo.run(*argv, deadline_s=BULK_S).text


def _staged(case: _Case) -> Staged | LeftOut | Contained:
    repo, terms, onto, tip = case.repo, case.terms, case.onto, case.result.tip
    changed = tree_merge.changes(repo, case.base, tip)
    if refused := _submodules(changed) or _filtered(case, changed):
        return refused
    if (seen := tree_merge.judge(repo, onto, tip, terms.generated)).held:
        return Contained(seen.why)
    if terms.method is Method.REBASE:
        return _replayed(case, changed)
    both = _changed_twice(case, changed)
    merged = tree_merge.merge(repo, onto, tip, case.source)
    if rest := tuple(path for path in merged.conflicts if path not in both and not terms.is_generated(path)):
        return _conflict(case, rest)
    again = tuple(dict.fromkeys((*(path for path in merged.conflicts if terms.is_generated(path)), *both)))
    tree = tree_merge.as_in(repo, merged.tree, onto, again)
    if not again and tree == repo.tree(onto):
        return Contained("it changes nothing on the branch")
    parents = (onto, tip) if terms.method is Method.MERGE else (onto,)
    others = _authors(case) if terms.method is Method.SQUASH else ()
    words = train_orders.message(terms, case.result.task, case.result.title, others)
    return Staged(commit(repo, tree, parents, words, terms), terms.regenerate(again))


def commit(repo: Repository, tree: str, parents: Collection[str], words: str, terms: Terms, author: dict[str, str] | None = None) -> str:
    """A commit of the person's; with `author`, of that author's. Its moment is that of the train."""
    moment = f"@{int(terms.began)} +0000"
    env = {"GIT_COMMITTER_NAME": terms.person.name, "GIT_COMMITTER_EMAIL": terms.person.mail, "GIT_COMMITTER_DATE": moment}
    mine = {"GIT_AUTHOR_NAME": terms.person.name, "GIT_AUTHOR_EMAIL": terms.person.mail, "GIT_AUTHOR_DATE": moment}
    return repo.write_commit(tree, parents, words.encode("utf-8", "surrogateescape"), {**env, **(author or mine)})


def _submodules(changed: Changes) -> LeftOut | None:
    links = sorted(path for path, sides in changed.items() if path == ".gitmodules" or any(side.mode == LINK for side in sides))
    if not links:
        return None
    return LeftOut(f"it changes submodules, and nobody else may have their commits: merge it by hand ({some_of(links)})", tuple(links))


def _filtered(case: _Case, changed: Changes) -> LeftOut | None:
    """What the result wrote into files of a filter, such as Git LFS, did not pass through it. One that was only moved or removed did."""
    there = {old.oid for old, _ in changed.values()}
    new = [path for path, (_, side) in changed.items() if side.mode != GONE and side.oid not in there]
    found = set(drivers(case.repo, new, "filter", source=case.source))
    if any(path.rpartition("/")[2] == repository.FILE for path in changed):
        with repository.of_commit(case.repo, case.result.tip) as source:
            found |= set(drivers(case.repo, new, "filter", source=source))
    if not found:
        return None
    files = tuple(sorted({path for path, *_ in found}))
    return LeftOut(
        f"it changes files of {repository.listed(found)}, which nightcrew does not run: merge it by hand ({some_of(files)})", files
    )


def _changed_twice(case: _Case, changed: Collection[str]) -> tuple[str, ...]:
    """Generated files that both sides changed: what git makes of two of them by lines is no file that the command would make."""
    mine = [path for path in changed if case.terms.is_generated(path)]
    if not mine:
        return ()
    theirs = tree_merge.changes(case.repo, case.base, case.onto)
    return tuple(path for path in mine if path in theirs)


def _conflict(case: _Case, files: tuple[str, ...]) -> LeftOut:
    if found := set(drivers(case.repo, files, "merge", source=case.source)):
        own = repository.listed(found)
        return LeftOut(f"it conflicts in {some_of(files)}; some use {own}, which nightcrew does not run: merge it by hand", files)
    return LeftOut(f"it conflicts in {some_of(files)}", files)


def _replayed(case: _Case, changed: Collection[str]) -> Staged | LeftOut | Contained:
    """Each commit of the result again; one that changes nothing there is left out."""
    repo, result, terms = case.repo, case.result, case.terms
    lines = case.git("rev-list", "--reverse", "--topo-order", "--parents", f"{case.onto}..{result.tip}").splitlines()
    if len(lines) > COMMITS_MAX:
        return LeftOut(f"it has {len(lines)} commits, and at most {COMMITS_MAX} are rebased: squash or merge it")
    tip, again = case.onto, dict[str, None]()
    for line in lines:
        oid, *parents = line.split()
        if len(parents) != 1:
            return LeftOut(
                f"{oid[:12]} is {'a merge' if parents else 'a first commit'}, and only plain commits are rebased: squash or merge it"
            )
        merged = tree_merge.replay(repo, parents[0], tip, oid, case.source)
        if rest := tuple(path for path in merged.conflicts if not terms.is_generated(path)):
            return _conflict(case, rest)
        again |= dict.fromkeys(merged.conflicts)
        if (tree := tree_merge.as_in(repo, merged.tree, tip, merged.conflicts)) != repo.tree(tip):
            tip = commit(repo, tree, (tip,), _own_words(case, oid), terms, _author(case, oid))
    if tip == case.onto and not again:
        return Contained("it changes nothing on the branch")
    again |= dict.fromkeys(_changed_twice(case, changed))
    if tip == case.onto:  # all that it changed is generated: what is made anew needs a commit
        tip = commit(repo, repo.tree(tip), (tip,), train_orders.message(terms, result.task, result.title), terms)
    return Staged(tip, terms.regenerate(tuple(again)))


def _own_words(case: _Case, oid: str) -> str:
    return train_orders.signed(case.git("show", "-s", "--format=%B", "--encoding=UTF-8", oid), case.terms, case.result.task)


def _author(case: _Case, oid: str) -> dict[str, str]:
    name, mail, date = case.git("show", "-s", "--format=%an%x00%ae%x00%ad", "--date=raw", "--encoding=UTF-8", oid).split("\0")
    return {"GIT_AUTHOR_NAME": name if name.strip(_CRUD) else "unknown", "GIT_AUTHOR_EMAIL": mail, "GIT_AUTHOR_DATE": f"@{date}"}


def _authors(case: _Case) -> tuple[Person, ...]:
    out = case.git("log", "--no-show-signature", "--format=%an%x00%ae", "--encoding=UTF-8", f"{case.onto}..{case.result.tip}")
    pairs = [line.split("\0") for line in out.split("\n")]
    return tuple(dict.fromkeys(Person(*pair) for pair in pairs if len(pair) == 2))


# Generated
# ---------
# Puts the files that a command made anew into the staged commit of a result. The command itself ran as a task, in a sandbox.
#
# What that task left is a stranger's: of its files those count that a rule makes, and only as plain files. Anything else is a
# reason to leave the result out, and never part of the branch.


_PLAIN = frozenset({"100644", "100755"})
"""git's modes of a file that is no link."""


def finish(repo: Repository, staged: str, made: str, terms: Terms) -> Staged | LeftOut:
    """`staged` with the generated files as the commit `made` has them, which a task left that ran the commands in a worktree at `staged`.
    Parents, author, message and moment stay, so the same arguments give the same commit.

    Raises NotFound when `made` is gone, and as `Git.run`.
    """
    if not repo.commit(made):
        raise NotFound("the commit with the generated files is gone", on=made)
    changed = {path: new for path, (_, new) in tree_merge.changes(repo, staged, made).items()}
    if others := train_orders.foreign(changed, terms):
        return _left("what makes the generated files also changed files that no rule names", others)
    if odd := [path for path, new in changed.items() if new.mode not in _PLAIN and new.mode != GONE]:
        return _left("what makes the generated files left something else than a file", odd)
    if gone := [path for path, new in changed.items() if new.mode == GONE and terms.must_exist(path)]:
        return _left("what makes the generated files removed one that a rule names", gone)
    return Staged(_amended(repo, staged, changed) if changed else staged)


def _left(why: str, files: Sequence[str]) -> LeftOut:
    return LeftOut(f"{why}: {some_of(files)}", tuple(files))


def _amended(repo: Repository, staged: str, files: Mapping[str, File]) -> str:
    """The same commit, byte for byte, with another tree."""
    tree = tree_merge.replaced(repo, staged, {path: None if new.mode == GONE else new for path, new in files.items()})
    _, _, rest = repo.run("cat-file", "commit", staged).out.partition(b"\n")
    text = b"tree " + os.fsencode(tree) + b"\n" + rest
    return repo.run("hash-object", "-t", "commit", "-w", "--stdin", stdin=text).text
