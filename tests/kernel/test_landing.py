"""The train as a pure machine, driven in every order: each result ends in one state, and what lands is what trying one by one lands."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import combinations
from typing import assert_never

from hypothesis import given, settings
from hypothesis import strategies as st

from supervisor.features.landing.rules import (  # fmt: skip
    ASKED,
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
    after,
    todo,
)
from tests.rounds import examples

GATE = "make test"

TRAIN_NEXT: Mapping[TrainState, frozenset[TrainState]] = {
    TrainState.RUNNING: frozenset({TrainState.MOVING, TrainState.EMPTY, TrainState.STOPPED}),
    TrainState.MOVING: frozenset({TrainState.LANDED, TrainState.RUNNING, TrainState.STOPPED}),
    TrainState.STOPPED: frozenset({TrainState.RUNNING, TrainState.MOVING, TrainState.LANDED}),
    TrainState.LANDED: frozenset(),
    TrainState.EMPTY: frozenset(),
}
_S = EntryState
_TRIED = frozenset({_S.MAKING, _S.STAGED, _S.CLASHES, _S.NOTHING, _S.EJECTED, _S.WAITING})
ENTRY_NEXT: Mapping[EntryState, frozenset[EntryState]] = {
    _S.WAITING: _TRIED,
    _S.MAKING: _TRIED | {_S.REPAIRING},
    _S.STAGED: _TRIED | {_S.PASSED, _S.REPAIRING},
    _S.CLASHES: _TRIED | {_S.REPAIRING},
    _S.NOTHING: _TRIED | {_S.CONTAINED},
    _S.PASSED: frozenset({_S.LANDED, _S.WAITING}),
    _S.REPAIRING: frozenset({_S.EJECTED}),
    _S.CONTAINED: frozenset({_S.WAITING}),
    _S.LANDED: frozenset(),
    _S.EJECTED: frozenset({_S.WAITING}),
}


@dataclass(frozen=True)
class World:
    """What git and the gates would say. A tree is a set of results, a commit their order on a base."""

    results: int
    conflicts: frozenset[frozenset[int]] = frozenset()
    broken: frozenset[frozenset[int]] = frozenset()
    """Sets of results that do not pass together."""
    weak: frozenset[int] = frozenset()
    """Results whose gate runs also as it was before them, and passes so only with another commit of theirs."""
    contained: frozenset[frozenset[int]] = frozenset()
    """Pairs of which either has what the other one has."""
    generated: frozenset[int] = frozenset()
    needs: Mapping[int, frozenset[int]] = field(default_factory=dict)
    against: frozenset[int] = frozenset()
    """Results that conflict with what somebody else puts on the branch meanwhile."""

    def passes(self, tree: frozenset[int]) -> bool:
        return not any(some <= tree for some in self.broken)

    def put(self, asked: Stage | Make, members: tuple[int, ...], *, made: bool) -> Event:
        position, onto = asked.position, asked.onto
        if position in self.against and onto.split()[0] != "base":
            return Clashed(position, onto, "it conflicts with somebody else", ("file",))
        if any(frozenset({position, one}) in self.conflicts for one in members):
            return Clashed(position, onto, "it conflicts", ("file",))
        if any(frozenset({position, one}) in self.contained for one in members):
            return NothingNew(position, onto, "it is there")
        commit = f"{onto} {position}"
        if position in self.generated and not made:
            return ToMake(position, onto, f"{commit}?", "npm install")
        tree = " ".join(map(str, sorted((*members, position))))
        restored = (Tried(f"{tree} weak", commit, GATE, restored=True),) if position in self.weak else ()
        return Put(position, onto, commit, (Tried(tree, commit, GATE), *restored))

    def one_by_one(self, base: str = "base") -> dict[int, EntryState]:
        """What becomes of each result when nothing runs beside anything."""
        accepted: list[int] = []
        found: dict[int, EntryState] = {}
        for position in range(1, self.results + 1):
            lost = any(found[need] is EntryState.EJECTED for need in self.needs.get(position, ()))
            event = self.put(Stage(position, base), tuple(accepted), made=True)
            good = isinstance(event, Put) and self.passes(frozenset({*accepted, position})) and position not in self.weak
            if lost or isinstance(event, Clashed) or (isinstance(event, Put) and not good):
                found[position] = EntryState.EJECTED
            elif isinstance(event, NothingNew):
                found[position] = EntryState.CONTAINED
            else:
                found[position] = EntryState.LANDED
                accepted.append(position)
        return found


@st.composite
def worlds(draw: st.DrawFn) -> World:
    results = draw(st.integers(1, 7))
    pairs = [frozenset(pair) for pair in combinations(range(1, results + 1), 2)]
    some = st.frozensets(st.sampled_from(pairs), max_size=4) if pairs else st.just(frozenset())
    singles = st.frozensets(st.integers(1, results), max_size=2)
    broken = draw(some) | {frozenset({one}) for one in draw(singles)}
    needs = {later: frozenset({draw(st.integers(1, later - 1))}) for later in draw(singles) if later > 1}
    return World(results, draw(some), broken, draw(singles), draw(some), draw(singles), needs, draw(singles))


class Driver:
    """Does what is to be done, in an order that nobody chose."""

    def __init__(self, world: World, chance: random.Random, width: int, **terms: int) -> None:
        self.world, self.chance = world, chance
        needs = {position: tuple(f"t{need}" for need in sorted(some)) for position, some in world.needs.items()}
        entries = tuple(
            Entry(number, f"t{number}", 1, f"tip{number}", needs=needs.get(number, ())) for number in range(1, world.results + 1)
        )
        self.train = Train("train", "p", "main", "base", (GATE,), width, entries=entries)
        self.members: dict[str, tuple[int, ...]] = {"base": ()}
        self.moves = terms.get("moves", 0)
        self.halts = terms.get("halts", 0)
        self.running = 0

    def take(self, event: Event) -> None:
        old, self.train = self.train, after(self.train, event)
        assert after(self.train, event) == self.train or isinstance(event, (Elsewhere, Resumed)), "the same event twice is one"
        assert self.train.state in {old.state, *_reachable(TRAIN_NEXT, old.state)}
        for before, now in zip(old.entries, self.train.entries, strict=False):
            assert now.state in {before.state, *_reachable(ENTRY_NEXT, before.state)}
        self.running = max(self.running, sum(gate.state in ASKED for gate in self.train.gates))

    def step(self) -> bool:
        """Whether there was anything to do."""
        acts: list[Command | Gate] = [*todo(self.train), *(gate for gate in self.train.gates if gate.state is GateState.RUNNING)]
        if self.train.state is TrainState.STOPPED and not acts:
            self.take(Resumed())
            return True
        if not acts:
            return False
        if self.halts and self.chance.random() < 0.1:
            self.halts -= 1
            self.take(Halted("a person stopped it"))
            return True
        self.take(self.act(self.chance.choice(acts)))
        return True

    def act(self, what: Command | Gate) -> Event:
        match what:
            case Stage(_, onto):
                return self.put(self.world.put(what, self.members[onto], made=False), onto)
            case Make(_, onto, _, _):
                return self.put(self.world.put(what, self.members[onto], made=True), onto)
            case RunGate(number):
                return GateBegun(number, f"gate{number}")
            case DropGate(number):
                return GateDropped(number)
            case Move(old, new):
                assert old == self.train.base == new.split()[0] and self.world.passes(frozenset(self.members[new]))
                if self.moves:
                    self.moves -= 1
                    base = f"base{self.moves}"
                    self.members[base] = ()
                    return Elsewhere(base)
                return Moved()
            case Gate():
                if what.state is GateState.RUNNING and self.halts and self.chance.random() < 0.1:
                    self.halts -= 1
                    return GateEnded(what.number, None, "cancelled")
                return GateEnded(what.number, self.verdict(what))
            case AskAgent():
                raise AssertionError("nobody may be asked")
            case _:
                assert_never(what)

    def verdict(self, gate: Gate) -> bool:
        if gate.command != GATE:
            return True
        return not gate.restored and self.world.passes(frozenset(self.members[gate.commit]))

    def put(self, event: Event, onto: str) -> Event:
        if isinstance(event, Put | ToMake):
            self.members[event.commit] = (*self.members[onto], event.position)
        return event

    def drive(self) -> Train:
        for _ in range(5000):
            if not self.step():
                return self.train
        raise AssertionError(f"it goes on for ever: {self.train}")


def _reachable(table: Mapping, state: object) -> set:  # type: ignore[type-arg]
    found: set = set()  # type: ignore[type-arg]
    todo_ = [state]
    while todo_:
        for one in table[todo_.pop()] - found:
            found.add(one)
            todo_.append(one)
    return found


def outcome(train: Train) -> dict[int, EntryState]:
    return {entry.position: entry.state for entry in train.entries}


@given(worlds(), st.integers(0, 2**32), st.integers(1, 5))
@settings(max_examples=examples(200), deadline=None)
def test_side_by_side_lands_exactly_what_one_by_one_lands(world: World, seed: int, width: int) -> None:
    driver = Driver(world, random.Random(seed), width)
    train = driver.drive()
    wanted = world.one_by_one()
    assert outcome(train) == wanted
    landed = [entry.position for entry in train.entries if entry.state is EntryState.LANDED]
    assert train.state is (TrainState.LANDED if landed else TrainState.EMPTY)
    if landed:
        assert driver.members[train.tip] == tuple(landed)
        assert all(world.passes(frozenset(landed[:number])) for number in range(len(landed) + 1))
    ejected = sum(state is EntryState.EJECTED for state in wanted.values())
    # Two gates a result, and its generated files; each one that is left out costs what was under way behind it; and the branch alone once.
    assert len(train.gates) <= 3 * (world.results + ejected * width) + 1
    assert driver.running <= width + 2


@given(worlds(), st.integers(0, 2**32), st.integers(1, 4), st.integers(0, RESTAGES), st.integers(0, 4))
@settings(max_examples=examples(150), deadline=None)
def test_a_branch_that_moves_and_stops_in_between_lands_what_one_by_one_lands_on_what_it_is_then(
    world: World, seed: int, width: int, moves: int, halts: int
) -> None:
    driver = Driver(world, random.Random(seed), width, moves=moves, halts=halts)
    train = driver.drive()
    assert outcome(train) == world.one_by_one(train.base) and train.state in (TrainState.LANDED, TrainState.EMPTY)
    assert not any(gate.state in ASKED for gate in train.gates)


def test_after_too_many_moves_it_stops_and_says_so() -> None:
    driver = Driver(World(2), random.Random(1), 2, moves=RESTAGES + 1)
    while driver.train.state is not TrainState.STOPPED:
        assert driver.step()
    assert driver.train.reason == "main was moved by somebody else 4 times while results were tried"
    assert driver.drive().state is TrainState.LANDED, "a person may let it go on"


def test_a_gate_that_fails_on_the_branch_itself_blames_no_result() -> None:
    train = after(
        Train("train", "p", "main", "base", (GATE,), entries=(Entry(1, "t1", 1, "tip1"),)), Put(1, "base", "c", (Tried("t", "c", GATE),))
    )
    for event in (GateBegun(1, "g1"), GateEnded(1, passed=False, why="exit code 1")):
        train = after(train, event)
    assert train.entries[0].state is EntryState.STAGED and todo(train) == (RunGate(2),)
    failed = after(after(train, GateBegun(2, "g2")), GateEnded(2, passed=False, why="exit code 1"))
    assert failed.state is TrainState.STOPPED and failed.reason == "make test failed (exit code 1) on main itself, without any result"
    blamed = after(after(train, GateBegun(2, "g2")), GateEnded(2, passed=True))
    assert blamed.entries[0].state is EntryState.EJECTED and blamed.state is TrainState.EMPTY


def test_what_was_left_out_keeps_the_log_of_its_gate_when_the_train_is_stopped_and_goes_on() -> None:
    train = Train("train", "p", "main", "base", (GATE,), entries=tuple(Entry(number, f"t{number}", 1, "tip") for number in (1, 2)))
    events: tuple[Event, ...] = (
        Put(1, "base", "c1", (Tried("one", "c1", GATE),)), GateBegun(1, "g1"), GateEnded(1, passed=True),
        Put(2, "c1", "c2", (Tried("two", "c2", GATE),)), GateBegun(2, "g2"), GateEnded(2, passed=False), Halted("uncommitted changes"),
    )  # fmt: skip
    for event in (*events, Resumed()):
        train = after(train, event)
    assert train.state is TrainState.MOVING and train.entries[1].state is EntryState.EJECTED
    assert [gate.state for gate in train.gates] == [GateState.PASSED, GateState.FAILED]


def test_a_repaired_result_comes_in_once_more_at_the_end() -> None:
    entries = (Entry(1, "t1", 1, "tip1", repairable=True), Entry(2, "t2", 1, "tip2"))
    train = after(Train("train", "p", "main", "base", (), repairs=1, entries=entries), Clashed(1, "base", "it conflicts in a"))
    assert train.entries[0].state is EntryState.REPAIRING
    train = after(train, Asked(1, "t1-more"))
    train = after(train, Put(2, "base", "c2"))
    assert train.state is TrainState.RUNNING and todo(train) == (), "it waits for the agent"
    train = after(train, Mended(1, "tip1b", 1))
    assert [entry.task for entry in train.entries] == ["t1", "t2", "t1-more"] and todo(train) == (Stage(3, "c2"),)
    again = after(train, Clashed(3, "c2", "it conflicts in b"))
    assert again.entries[2].state is EntryState.EJECTED and again.state is TrainState.MOVING, "only once"
    assert after(train, Put(3, "c2", "c3")).tip == "c3"


def test_on_a_branch_that_moved_what_was_left_out_is_tried_again_but_not_what_another_one_replaces() -> None:
    entries = (*(Entry(number, f"t{number}", 1, "tip", repairable=True) for number in (1, 2)), Entry(3, "t3", 1, "tip3"))
    train = Train("train", "p", "main", "base", (), repairs=2, entries=entries)
    events: tuple[Event, ...] = (
        *(Clashed(number, "base", "no") for number in (1, 2)), Put(3, "base", "c3"),
        *(Asked(number, f"t{number}-more") for number in (1, 2)), Mended(1, "tip1b", 1), Mended(2, why="it is failed"), Put(4, "c3", "c4"),
    )  # fmt: skip
    for event in events:
        train = after(train, event)
    train = after(train, Elsewhere("person"))
    assert [entry.state for entry in train.entries] == [EntryState.EJECTED, *[EntryState.WAITING] * 3]
    assert train.entries[0].reason.endswith("t1-more comes in its place") and todo(train) == (Stage(2, "person"),)
    asked_no_more = after(train, Clashed(2, "person", "no"))
    assert asked_no_more.entries[1].state is EntryState.EJECTED and asked_no_more.entries[1].reason == "no"


def test_nobody_is_asked_who_may_not_be() -> None:
    entries = tuple(Entry(number, f"t{number}", 1, "tip", repairable=number > 1) for number in range(1, 9))
    train = Train("train", "p", "main", "base", (), repairs=1, entries=entries)
    for number in range(1, 9):
        train = after(train, Clashed(number, "base", "no"))
    states = [entry.state for entry in train.entries]
    assert states.count(EntryState.REPAIRING) == 5 and states.count(EntryState.EJECTED) == 3
    asked = [one for one in todo(train) if isinstance(one, AskAgent)]
    assert len(asked) == 5
    for one in asked:
        train = after(train, Mended(one.position, why="it is failed"))
    assert train.state is TrainState.EMPTY and "did not mend it: it is failed" in train.entries[1].reason
