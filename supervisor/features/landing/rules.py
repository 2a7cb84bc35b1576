"""A train of merges: results are put on one another on top of a branch, each merged tree must pass its gates, what does not is left out,
and the branch moves once, at the end. Here is what a train is, what can happen to it, and what is to be done; `core.train_rules` decides.

Rules that do not fit the tables:

1. Results come in their order. What follows one that is left out is put on again without it; a verdict on a tree holds for that tree
   wherever it turns up again.
2. Gates of results run side by side, on the assumption that those before them pass. Nothing is decided about a result before everything
   in front of it is: one that fails on top of something that is left out later may well pass without it.
3. Of the result that is the first on the branch a gate that fails is run on the branch itself too. When that fails as well no result is
   to blame, and the train stops.
4. What comes after a result by its plan is left out with it.
5. The branch moves from `base` to `tip` and from nowhere else. Where it stands elsewhere by then, everything is put on that, RESTAGES
   times.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

RESTAGES = 3
"""How often a train begins again because its branch was moved by somebody else."""
REPAIRS_ALL = 5
"""Repairs of one train, whatever each result may have."""


class TrainState(StrEnum):
    """What a train does."""

    RUNNING = "running"
    """Results are put on, and gates run."""
    MOVING = "moving"
    """Everything is decided, and the branch is being moved."""
    LANDED = "landed"
    EMPTY = "empty"
    """Nothing was left that could land."""
    STOPPED = "stopped"
    """A person stopped it, or has to do something first; it can go on."""


class EntryState(StrEnum):
    """How far one result has come."""

    WAITING = "waiting"
    """Not on yet."""
    MAKING = "making"
    """On what is in front of it, but for files that a command makes; that runs."""
    STAGED = "staged"
    """On what is in front of it; its gates run."""
    CLASHES = "clashes"
    """It cannot be put on what is in front of it, of which something may still be left out."""
    NOTHING = "nothing new"
    """What is in front of it, of which something may still be left out, has all of it."""
    PASSED = "passed"
    """It passed, and so did all in front of it."""
    REPAIRING = "repairing"
    """Its agent was asked to mend it."""
    LANDED = "landed"
    EJECTED = "ejected"
    CONTAINED = "contained"
    """The branch, or what landed before it, has all of it."""


class GateState(StrEnum):
    """One command on one tree."""

    WANTED = "wanted"
    RUNNING = "running"
    PASSED = "passed"
    FAILED = "failed"
    LOST = "lost"
    """It ended without a verdict: somebody ended its task."""
    UNWANTED = "unwanted"
    """Nobody needs it any more; its task is to be ended."""
    DROPPED = "dropped"


OUT = frozenset({EntryState.EJECTED, EntryState.CONTAINED, EntryState.REPAIRING})
"""They put nothing on."""
ASKED = frozenset({GateState.WANTED, GateState.RUNNING})
GONE = frozenset({GateState.UNWANTED, GateState.DROPPED})


@dataclass(frozen=True, slots=True)
class Entry:
    """One result of a train."""

    position: int
    task: str
    epoch: int
    tip: str
    """Its commit."""
    title: str = ""
    needs: tuple[str, ...] = ()
    """Tasks of the train that it comes after."""
    trusted: bool = False
    """A person accepted it as it is: its gates run as it left them."""
    repairable: bool = False
    """Its agent reads prompts."""
    state: EntryState = EntryState.WAITING
    onto: str = ""
    """The commit that it was put on, or tried."""
    staged: str = ""
    """The commit that has it and all in front of it."""
    gates: tuple[int, ...] = ()
    """Numbers."""
    repairs: int = 0
    """How often its agent was asked to mend it."""
    repair: str = ""
    """The task that mends it."""
    reason: str = ""
    files: tuple[str, ...] = ()
    """Those that conflict."""


@dataclass(frozen=True, slots=True)
class Gate:
    """One command that has to pass on one tree, or that makes generated files there."""

    number: int
    tree: str
    """What the verdict is about: a tree, or the branch's own commit."""
    commit: str
    """Where it runs."""
    command: str
    restored: bool = False
    """What the result changed in its own gate is there as it was before."""
    state: GateState = GateState.WANTED
    task: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True)
class Train:
    """One train."""

    id: str
    project: str
    branch: str
    """Short name of the person's branch."""
    base: str
    """The commit on which that stands, as far as is known."""
    commands: tuple[str, ...] = ()
    """Its gates."""
    width: int = 2
    """Gates that run side by side."""
    repairs: int = 0
    """How often the agent of each result is asked to mend it."""
    state: TrainState = TrainState.RUNNING
    restages: int = 0
    tip: str = ""
    """The commit to which the branch is to move, or has moved."""
    reason: str = ""
    by_hand: str = ""
    """The command that does what could not be done here."""
    entries: tuple[Entry, ...] = ()
    """By position."""
    gates: tuple[Gate, ...] = field(default=(), repr=False)
    """By number, from 1 on."""


# What happens --------------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Tried:
    """A tree on which a command has to pass."""

    tree: str
    commit: str
    command: str
    restored: bool = False


@dataclass(frozen=True, slots=True)
class Put:
    """A result is on top of `onto`."""

    position: int
    onto: str
    commit: str
    tried: tuple[Tried, ...] = ()


@dataclass(frozen=True, slots=True)
class ToMake:
    """A result is on top of `onto`, but for its generated files: `command` has to make them in a worktree at `commit`."""

    position: int
    onto: str
    commit: str
    command: str


@dataclass(frozen=True, slots=True)
class Clashed:
    """It cannot be put on `onto`."""

    position: int
    onto: str
    why: str
    files: tuple[str, ...] = ()
    for_person: bool = False
    """A person has to decide it: its agent is not asked to mend it."""


@dataclass(frozen=True, slots=True)
class NothingNew:
    """`onto` has all of it."""

    position: int
    onto: str
    why: str


@dataclass(frozen=True, slots=True)
class GateBegun:
    """It runs, as this task."""

    number: int
    task: str


@dataclass(frozen=True, slots=True)
class GateEnded:
    """`passed` None: nobody knows, since its task was ended by somebody."""

    number: int
    passed: bool | None
    why: str = ""


@dataclass(frozen=True, slots=True)
class GateDropped:
    """One that is not wanted was ended, or had ended."""

    number: int


@dataclass(frozen=True, slots=True)
class Asked:
    """The agent of a result mends it, as this task."""

    position: int
    task: str


@dataclass(frozen=True, slots=True)
class Mended:
    """What came of that: another commit, or no more than `why` says."""

    position: int
    tip: str = ""
    epoch: int = 0
    why: str = ""


@dataclass(frozen=True, slots=True)
class Moved:
    """The branch stands on the tip."""


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Somebody else moved the branch."""

    stands: str


@dataclass(frozen=True, slots=True)
class Halted:
    """It cannot go on: a person asked for that, or has to do something first."""

    why: str
    by_hand: str = ""


@dataclass(frozen=True, slots=True)
class Resumed:
    """A person says that it can."""


Event = Put | ToMake | Clashed | NothingNew | GateBegun | GateEnded | GateDropped | Asked | Mended | Moved | Elsewhere | Halted | Resumed


# What is to be done --------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Stage:
    """Put a result on top of a commit."""

    position: int
    onto: str


@dataclass(frozen=True, slots=True)
class Make:
    """Take the generated files that a task left into the commit of a result."""

    position: int
    onto: str
    commit: str
    task: str


@dataclass(frozen=True, slots=True)
class RunGate:
    """Have a gate run."""

    number: int


@dataclass(frozen=True, slots=True)
class DropGate:
    """End the task of a gate, if there is one."""

    number: int


@dataclass(frozen=True, slots=True)
class AskAgent:
    """Ask the agent of a result to mend it, on top of a commit."""

    position: int
    onto: str


@dataclass(frozen=True, slots=True)
class Move:
    """Move the branch."""

    old: str
    new: str


Command = Stage | Make | RunGate | DropGate | AskAgent | Move


def is_open(state: TrainState) -> bool:
    """Whether it holds its branch: no other train begins there."""
    return state in (TrainState.RUNNING, TrainState.MOVING)
