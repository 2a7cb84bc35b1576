"""What a train of merges does with git: a result is put on, the branch is moved. In a thread; whatever is done here may be done again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from supervisor.core import gate_files
from supervisor.core.errors import NotFound
from supervisor.core.landing import (
    Clashed,
    Elsewhere,
    Entry,
    Event,
    Halted,
    Make,
    Move,
    Moved,
    NothingNew,
    Put,
    Stage,
    ToMake,
    Train,
    TrainState,
    Tried,
    is_open,
)
from supervisor.core.train_orders import Orders
from supervisor.host.failpoint import failpoint
from worktrees import garbage_collection, gate_changes, generated, hardened_gate, landing, refs, staging
from worktrees.git import Git
from worktrees.landing import Moved as BranchMoved
from worktrees.repository import Repository, discover
from worktrees.staging import Contained, Left, Result

_REFS = "refs/nightcrew/train"


@dataclass(frozen=True, slots=True)
class TrainGit:
    """One train's door to its repository."""

    repo: Repository
    orders: Orders

    @classmethod
    def of(cls, git: Git, orders: Orders) -> TrainGit:
        """Raises NotFound, Refused as `discover`."""
        return cls(discover(git, Path(orders.root)), orders)

    def stage(self, train: Train, asked: Stage) -> Event:
        """Put a result on top of a commit, and say on which trees its gates have to pass. Raises as `Git.run`."""
        return self._kept(train, self.tried(train, asked))

    def _kept(self, train: Train, event: Event) -> Event:
        if isinstance(event, Put | ToMake):
            more = [one.commit for one in event.tried] if isinstance(event, Put) else []
            commits = dict.fromkeys([event.commit, *more])
            keep(self.repo, train.id, commits)
            garbage_collection.check_kept(self.repo, list(commits), event.onto)
            failpoint("train.staged")
        return event

    def make(self, train: Train, asked: Make, made: str) -> Event:
        """Take the generated files of the commit `made` into the commit of a result. Raises NotFound, and as `Git.run`."""
        entry = train.entries[asked.position - 1]
        done = generated.finish(self.repo, asked.commit, made, self.orders.terms)
        if isinstance(done, Left):
            return Clashed(asked.position, asked.onto, done.why, tuple(map(_text, done.files)))
        if unseen := _unseen(self.repo, entry, asked.onto, done.commit, train.commands):
            return Clashed(asked.position, asked.onto, unseen, for_person=True)
        if _tree(self.repo, done.commit) == _tree(self.repo, asked.onto):
            return NothingNew(asked.position, asked.onto, "it changes nothing on the branch")
        tried = tuple(tried_on(self.repo, train.commands, entry, asked.onto, done.commit))
        return self._kept(train, Put(asked.position, asked.onto, done.commit, tried))

    def tried(self, train: Train, asked: Stage) -> Put | ToMake | Clashed | NothingNew:
        """The same, with nothing kept: the objects alone are written."""
        entry = train.entries[asked.position - 1]
        try:
            done = staging.stage(self.repo, asked.onto, Result(entry.task, entry.tip, entry.title), self.orders.terms)
        except NotFound as error:
            return Clashed(asked.position, asked.onto, f"{error.what}: {error.why}")
        match done:
            case Left(why, files):
                return Clashed(asked.position, asked.onto, why, tuple(map(_text, files)))
            case Contained(why):
                return NothingNew(asked.position, asked.onto, why)
        if unseen := _unseen(self.repo, entry, asked.onto, done.commit, train.commands):
            return Clashed(asked.position, asked.onto, unseen, for_person=True)
        if done.regenerate:
            command = " && ".join(f"(\n{one}\n)" for one in done.regenerate) if len(done.regenerate) > 1 else done.regenerate[0]
            return ToMake(asked.position, asked.onto, done.commit, command)
        return Put(asked.position, asked.onto, done.commit, tuple(tried_on(self.repo, train.commands, entry, asked.onto, done.commit)))

    def move(self, train: Train, asked: Move) -> Event:
        """Move the branch from where it was to where it is to be, or say why not. Raises Refused where the checkout is not fit for it now,
        NotFound for a branch that is gone, and as `Git.run`."""
        stands = landing.tip(self.repo, train.branch)
        if _has(self.repo, stands, asked.new):
            return Moved()
        if stands != asked.old:
            return Elsewhere(stands)
        done = landing.move(self.repo, train.branch, asked.old, asked.new)
        failpoint("train.moved")
        if isinstance(done, BranchMoved):
            return Moved()
        return Halted(done.why, done.commands[0])

    def by_hand(self, train: Train, asked: Move) -> str:
        """The command with which a person moves the branch."""
        return landing.by_hand(self.repo, train.branch, asked.old, asked.new)


def _unseen(repo: Repository, entry: Entry, onto: str, commit: str, commands: Sequence[str]) -> str:
    """Return why the result may not land before a person accepted it; empty if it may."""
    if entry.trusted:
        return ""
    why = gate_files.what_runs(gate_files.flags(gate_changes.read(repo, onto, commit), "\n".join(commands)))
    return f"{_text(why)}; next: nightcrew review {entry.task}, then --accept" if why else ""


def tried_on(repo: Repository, commands: tuple[str, ...], entry: Entry, onto: str, commit: str) -> Iterator[Tried]:
    """Each gate on the merged tree; where the result may have weakened it, also on that tree with what it changed there as it was."""
    if not commands:
        return
    tree = _tree(repo, commit)
    changes = [] if entry.trusted else gate_changes.read(repo, onto, commit)
    for command in commands:
        yield Tried(tree, commit, command)
        before = hardened_gate.hardened(repo, commit, onto, gate_files.flags(changes, command))
        if before is not None:
            yield Tried(_tree(repo, before), before, command, restored=True)


def superfluous(repo: Repository, rows: Sequence[Train]) -> None:
    """Of these trains into one branch, the newest first, forget what nobody can go on with: those that have ended, and those that stopped
    before another one ended."""
    ended = False
    for train in rows:
        ended = ended or train.state in (TrainState.LANDED, TrainState.EMPTY)
        if ended and not is_open(train.state):
            forget(repo, train.id)


def keep(repo: Repository, train: str, commits: dict[str, None]) -> None:
    """Refs on commits that nothing else names yet, so that a gate finds them."""
    with repo.git.lock(repo.common_dir):
        there = kept(repo, train)
        new = [refs.Update(f"{_REFS}/{train}/{commit}", commit, "") for commit in commits if commit not in there]
        if new:
            refs.move_all(repo, new, "nightcrew land")


def kept(repo: Repository, train: str) -> list[str]:
    """The commits that `keep` holds."""
    return refs.over_all(repo, "for-each-ref", "--format=%(objectname)", f"{_REFS}/{train}/").text.split()


def forget(repo: Repository, train: str) -> None:
    """Take those refs away: the train has landed, or another one has begun."""
    with repo.git.lock(repo.common_dir):
        gone = [refs.Update(f"{_REFS}/{train}/{commit}", "", commit) for commit in kept(repo, train)]
        if gone:
            refs.move_all(repo, gone, "nightcrew land")


def _tree(repo: Repository, commit: str) -> str:
    return repo.git.run(repo.store, "rev-parse", "--verify", f"{commit}^{{tree}}").text


def _has(repo: Repository, commit: str, other: str) -> bool:
    return repo.git.run(repo.store, "merge-base", "--is-ancestor", other, commit, accept=(0, 1)).code == 0


def _text(path: str) -> str:
    """A name of a file as text that the ledger can hold."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
