"""Decides how a train of merges goes on. Pure; what a train is says `core.landing`.

`after(train, event)` gives the train as it is then, with everything that follows; `todo(train)` what is to be done, which may be done
again. The supervisor commits the one before it acts on the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import assert_never

from supervisor.features.landing.rules import (
    ASKED,
    GONE,
    OUT,
    REPAIRS_ALL,
    RESTAGES,
    AskAgent,
    Asked,
    Clashed,
    Command,
    DropGate,
    Elsewhere,
    Entry,
    EntryState,
    Event,
    Gate,
    GateBegun,
    GateDropped,
    GateEnded,
    GateState,
    Halted,
    Make,
    Mended,
    Move,
    Moved,
    NothingNew,
    Put,
    Resumed,
    RunGate,
    Stage,
    ToMake,
    Train,
    TrainState,
    Tried,
    is_open,
)

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
