"""A train of merges: results are put on one another on top of a branch, each merged tree must pass its gates, what does not is left out,
and the branch moves once, at the end. Decides how a train goes on. Pure.

`after(train, event)` gives the train as it is then, with everything that follows; `todo(train)` what is to be done, which may be done
again. The supervisor commits the one before it acts on the other.

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

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import assert_never

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


# Decisions
# ---------


_MAKE = "make "


def is_making(gate: Gate) -> bool:
    """Whether it makes generated files, and says nothing of the tree."""
    return gate.tree.startswith(_MAKE)


def todo(train: Train) -> tuple[Command, ...]:
    """What is to be done now; each may be done again."""
    drop = tuple(DropGate(gate.number) for gate in train.gates if gate.state is GateState.UNWANTED)
    if train.state is TrainState.MOVING:
        return (*drop, Move(train.base, train.tip))
    if train.state is not TrainState.RUNNING:
        return drop
    run = tuple(RunGate(gate.number) for gate in train.gates if gate.state is GateState.WANTED)
    ask = tuple(AskAgent(one.position, one.onto) for one in train.entries if one.state is EntryState.REPAIRING and not one.repair)
    return (*drop, *run, *ask, *_made(train), *_next_stage(train))


def after(train: Train, event: Event) -> Train:
    """The train as it is once this happened, with everything that follows. What came too late changes nothing."""
    return _settled(_taken(train, event))


# Taking events -------------------------------------------------------------------------------------------------------------------------


def _taken(train: Train, event: Event) -> Train:
    match event:
        case Put() | ToMake() | Clashed() | NothingNew():
            return _tried(train, event)
        case GateBegun(number, task):
            gate = _gate(train, number)
            return _with_gate(train, replace(gate, task=task, state=GateState.RUNNING if gate.state is GateState.WANTED else gate.state))
        case GateEnded():
            return _judged(train, event)
        case GateDropped(number):
            gate = _gate(train, number)
            return _with_gate(train, replace(gate, state=GateState.DROPPED)) if gate.state is GateState.UNWANTED else train
        case Asked(position, task):
            entry = _entry(train, position)
            return _with(train, replace(entry, repair=task)) if entry.state is EntryState.REPAIRING else train
        case Mended():
            return _mended(train, event)
        case Moved() | Elsewhere():
            return _moved(train, event)
        case Halted(why, by_hand):
            return replace(train, state=TrainState.STOPPED, reason=why, by_hand=by_hand) if is_open(train.state) else train
        case Resumed():
            return _resumed(train) if train.state is TrainState.STOPPED else train
        case _:
            assert_never(event)


def _tried(train: Train, event: Put | ToMake | Clashed | NothingNew) -> Train:
    entry = _entry(train, event.position)
    if train.state is not TrainState.RUNNING or entry.state in OUT or entry.state is EntryState.PASSED:
        return train
    entry = replace(entry, onto=event.onto, staged="", gates=(), files=(), reason="")
    match event:
        case Put(_, _, commit, tried):
            for one in tried:
                train, number = _wanting(train, one)
                entry = replace(entry, gates=(*entry.gates, number))
            return _with(train, replace(entry, state=EntryState.STAGED, staged=commit))
        case ToMake(_, _, commit, command):
            train, number = _wanting(train, Tried(f"{_MAKE}{commit}", commit, command))
            return _with(train, replace(entry, state=EntryState.MAKING, staged=commit, gates=(number,)))
        case Clashed(_, _, why, files, for_person):
            may = entry.repairable and not for_person
            return _with(train, replace(entry, state=EntryState.CLASHES, reason=why, files=files, repairable=may))
        case NothingNew(_, _, why):
            return _with(train, replace(entry, state=EntryState.NOTHING, reason=why))


def _wanting(train: Train, tried: Tried) -> tuple[Train, int]:
    """With that gate, which may be there already, and its number."""
    for gate in reversed(train.gates):
        if (gate.tree, gate.command) == (tried.tree, tried.command) and gate.state not in GONE and gate.state is not GateState.LOST:
            return train, gate.number
    number = len(train.gates) + 1
    gate = Gate(number, tried.tree, tried.commit, tried.command, tried.restored)
    return replace(train, gates=(*train.gates, gate)), number


def _judged(train: Train, event: GateEnded) -> Train:
    gate = _gate(train, event.number)
    if gate.state not in ASKED:
        return train
    state = GateState.LOST if event.passed is None else GateState.PASSED if event.passed else GateState.FAILED
    return _with_gate(train, replace(gate, state=state, why=event.why))


def _mended(train: Train, event: Mended) -> Train:
    entry = _entry(train, event.position)
    if entry.state is not EntryState.REPAIRING:
        return train
    if not event.tip or event.tip == entry.tip:
        why = event.why or "it changed nothing"
        return _with(
            train, replace(entry, state=EntryState.EJECTED, reason=f"{entry.reason}; {entry.repair or 'its agent'} did not mend it: {why}")
        )
    more = Entry(
        len(train.entries) + 1, entry.repair, event.epoch, event.tip, entry.title, entry.needs, repairable=entry.repairable,
        repairs=entry.repairs,
    )  # fmt: skip
    train = _with(train, replace(entry, state=EntryState.EJECTED, reason=f"{entry.reason}; {entry.repair} comes in its place"))
    return replace(train, entries=(*train.entries, more))


def _moved(train: Train, event: Moved | Elsewhere) -> Train:
    match event:
        case Moved() if train.tip and train.state in (TrainState.MOVING, TrainState.STOPPED):
            landed = tuple(replace(one, state=EntryState.LANDED) if one.state is EntryState.PASSED else one for one in train.entries)
            return replace(train, state=TrainState.LANDED, entries=landed, reason="", by_hand="")
        case Elsewhere(stands) if train.state is TrainState.MOVING:
            again = replace(_anew(train), base=stands, restages=train.restages + 1, tip="")
            if again.restages <= RESTAGES:
                return replace(again, state=TrainState.RUNNING)
            why = f"{train.branch} was moved by somebody else {again.restages} times while results were tried"
            return replace(again, state=TrainState.STOPPED, reason=why)
        case _:
            return train


def _anew(train: Train) -> Train:
    """Everything is put on again, what was left out too: what was in its way may be out this time. Not that which another one replaces."""
    mended = {one.task for one in train.entries}
    return replace(
        train, entries=tuple(one if one.repair in mended else replace(one, state=EntryState.WAITING, reason="") for one in train.entries)
    )


def _resumed(train: Train) -> Train:
    decided = all(one.state is EntryState.PASSED or one.state in OUT - {EntryState.REPAIRING} for one in train.entries)
    state = TrainState.MOVING if train.tip and decided else TrainState.RUNNING
    kept = {GateState.PASSED, GateState.UNWANTED}
    told = {number for one in train.entries if one.state is EntryState.EJECTED for number in one.gates}
    gates = tuple(
        gate if gate.state in kept or (gate.state is GateState.FAILED and gate.number in told) else replace(gate, state=GateState.DROPPED)
        for gate in train.gates
    )
    return replace(train, state=state, reason="", by_hand="", restages=0, gates=gates)


# What follows --------------------------------------------------------------------------------------------------------------------------


def _settled(train: Train) -> Train:
    while train.state is TrainState.RUNNING and (more := _decided(train)) != train:
        train = more
    train = _without_unneeded(train)
    if train.state is not TrainState.RUNNING or any(one.state is not EntryState.PASSED and one.state not in OUT for one in train.entries):
        return train
    if any(one.state is EntryState.REPAIRING for one in train.entries):
        return train
    tip = next((one.staged for one in reversed(train.entries) if one.state is EntryState.PASSED), "")
    return replace(train, state=TrainState.MOVING if tip else TrainState.EMPTY, tip=tip)


def _decided(train: Train) -> Train:
    """The same, or with one thing more decided: the first in the order that is not."""
    tip = train.base
    for entry in train.entries:
        if entry.state in OUT:
            continue
        if entry.state is EntryState.PASSED:
            tip = entry.staged
            continue
        if lost := _lost_need(train, entry):
            return _with(train, replace(entry, state=EntryState.EJECTED, reason=f"it comes after {lost}, which was left out"))
        if not _is_valid(train, entry, tip):
            return train
        match entry.state:
            case EntryState.CLASHES:
                return _refused(train, entry)
            case EntryState.NOTHING:
                return _with(train, replace(entry, state=EntryState.CONTAINED))
            case _:
                return _by_gates(train, entry)
    return train


def _by_gates(train: Train, entry: Entry) -> Train:
    gates = [_gate(train, number) for number in entry.gates]
    if lost := next((gate for gate in gates if gate.state is GateState.LOST), None):
        return replace(train, state=TrainState.STOPPED, reason=f"{_said(lost)}; its verdict is missing")
    failed = next((gate for gate in gates if gate.state is GateState.FAILED), None)
    if failed is not None and entry.state is EntryState.MAKING:
        return _refused(train, replace(entry, reason=f"what makes its generated files failed: {_said(failed)}"))
    if failed is not None:
        return _blamed(train, entry, failed)
    if entry.state is EntryState.MAKING:
        return train
    if all(gate.state is GateState.PASSED for gate in gates):
        return _with(train, replace(entry, state=EntryState.PASSED, reason="", files=()))
    return train


def _blamed(train: Train, entry: Entry, failed: Gate) -> Train:
    """What a gate that failed means for the first result of which nothing was decided."""
    restored = " with its own tests and configuration as they were before it" if failed.restored else ""
    blamed = replace(entry, reason=f"{_said(failed)} on the merged tree{restored}")
    if entry.onto != train.base or failed.restored:
        return _refused(train, blamed)
    train, number = _wanting(train, Tried(train.base, train.base, failed.command))
    probe = _gate(train, number)
    match probe.state:
        case GateState.PASSED:
            return _refused(train, blamed)
        case GateState.FAILED:
            return replace(train, state=TrainState.STOPPED, reason=f"{_said(probe)} on {train.branch} itself, without any result")
        case _:
            return train


def _said(gate: Gate) -> str:
    why = f" ({gate.why})" if gate.why else ""
    return f"{gate.command} {'was ended' if gate.state is GateState.LOST else 'failed'}{why}"


def _refused(train: Train, entry: Entry) -> Train:
    """Left out for what its reason says, once its agent had its chances."""
    asked = sum(bool(one.repair) or one.state is EntryState.REPAIRING for one in train.entries)
    may = entry.repairable and not entry.repair and entry.repairs < train.repairs and asked < REPAIRS_ALL
    if may:
        return _with(train, replace(entry, state=EntryState.REPAIRING, repairs=entry.repairs + 1, repair=""))
    return _with(train, replace(entry, state=EntryState.EJECTED))


def _lost_need(train: Train, entry: Entry) -> str:
    lost = {one.task for one in train.entries if one.state in (EntryState.EJECTED, EntryState.REPAIRING)}
    return next((need for need in entry.needs if need in lost), "")


def _is_valid(train: Train, entry: Entry, tip: str) -> bool:
    """Whether what was tried of it holds on top of `tip`."""
    tried = entry.state in (EntryState.MAKING, EntryState.STAGED, EntryState.CLASHES, EntryState.NOTHING) and entry.onto == tip
    return tried and not any(_gate(train, number).state in GONE for number in entry.gates)


def _walk(train: Train) -> Iterator[tuple[Entry, str]]:
    """Those of which something is to be tried or decided, each with what is in front of it; up to the first that is not tried there. What
    waits for something that clashes is passed over."""
    tip = train.base
    clashing = {one.task for one in train.entries if one.state is EntryState.CLASHES}
    for entry in train.entries:
        if entry.state is EntryState.PASSED:
            tip = entry.staged
        elif entry.state not in OUT and not _lost_need(train, entry) and not clashing.intersection(entry.needs):
            yield entry, tip
            if not _is_valid(train, entry, tip) or entry.state is EntryState.MAKING:
                return
            tip = entry.staged or tip


def _made(train: Train) -> tuple[Make, ...]:
    """At most one: nothing is put on a result before its generated files are there."""
    for entry, tip in _walk(train):
        if entry.state is EntryState.MAKING and _is_valid(train, entry, tip):
            gate = _gate(train, entry.gates[0])
            return (Make(entry.position, tip, entry.staged, gate.task),) if gate.state is GateState.PASSED else ()
    return ()


def _next_stage(train: Train) -> tuple[Stage, ...]:
    """At most one. Gates that have to run make the room for it."""
    under_way = sum(gate.state in ASKED for gate in train.gates)
    found = next((Stage(entry.position, tip) for entry, tip in _walk(train) if not _is_valid(train, entry, tip)), None)
    return (found,) if found is not None and under_way < train.width else ()


def _without_unneeded(train: Train) -> Train:
    """Gates that nobody waits for any more are to be ended."""
    needed: set[int] = set()
    if train.state is TrainState.RUNNING:
        for entry, tip in _walk(train):
            if _is_valid(train, entry, tip):
                needed.update(entry.gates)
                needed.update(gate.number for gate in train.gates if gate.tree == train.base and entry.onto == train.base)
    gates = tuple(
        replace(gate, state=GateState.UNWANTED) if gate.state in ASKED and gate.number not in needed else gate for gate in train.gates
    )
    return replace(train, gates=gates) if gates != train.gates else train


def _entry(train: Train, position: int) -> Entry:
    return train.entries[position - 1]


def _with(train: Train, entry: Entry) -> Train:
    at = entry.position - 1
    return replace(train, entries=(*train.entries[:at], entry, *train.entries[at + 1 :]))


def _gate(train: Train, number: int) -> Gate:
    return train.gates[number - 1]


def _with_gate(train: Train, gate: Gate) -> Train:
    at = gate.number - 1
    return replace(train, gates=(*train.gates[:at], gate, *train.gates[at + 1 :]))
