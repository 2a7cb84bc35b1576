"""Shards, leases and what becomes of items, without a file or a process."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.features.map import rules as map_rules
from supervisor.features.map.rules import DEATHS_MAX, SHARD_BYTES, SHARD_S, SILENT_S, STOPPED_S, WAIT_S, Board, Key, Lease, Outcome, Spent

A, B, C = ("run/w1", 1), ("run/w2", 1), ("run/w3", 1)


def board(items: int, retries: int = 0, sizes: list[int] | None = None) -> Board:
    made = Board(sizes or [1] * items, retries)
    made.waiting.extend(range(items))
    return made


def given_to(it: Board, key: Key, now: float = 0.0) -> Lease:
    lease = it.give(key, now)
    assert lease is not None
    return lease


def done(positions: list[int]) -> list[Outcome]:
    return [Outcome(position, ok=True, text="1", ms=1) for position in positions]


def work(it: Board, key: Key, each_s: float, around_s: float = 0.0, now: float = 0.0) -> int:
    """A shard that succeeds; how many items it had."""
    lease = given_to(it, key, now)
    count = len(lease.positions)
    it.settle(key, lease.number, done(lease.positions), Spent(count * each_s + around_s, around_s))
    return count


def test_shards_grow_to_the_time_that_one_should_take_and_no_faster_than_is_proven() -> None:
    it = board(100_000)
    sizes = [work(it, A, each_s=0.01) for _ in range(6)]
    assert sizes[0] == map_rules.FIRST
    assert all(after <= map_rules.GROWTH * before for before, after in itertools.pairwise(sizes))
    assert sizes[-1] == SHARD_S / 0.01


def test_a_shard_is_longer_where_much_surrounds_it() -> None:
    it = board(100_000)
    for _ in range(20):
        last = work(it, A, each_s=0.01, around_s=0.3)
    assert last * 0.01 == pytest.approx(0.3 / map_rules.OVERHEAD_MAX, rel=0.2)


def test_large_files_make_shards_of_fewer_items() -> None:
    it = board(400, sizes=[1000] * 200 + [9000] * 200)
    it.item_s, it.proven = 0.1, 1000
    small = given_to(it, A).positions
    it.waiting = type(it.waiting)(range(200, 400))
    assert len(small) > 2 * len(given_to(it, B).positions)


def test_a_shard_holds_no_more_than_its_bytes_and_at_least_one_item() -> None:
    it = board(10, sizes=[SHARD_BYTES] * 10)
    it.item_s, it.proven = 1e-6, 1000
    assert len(given_to(it, A).positions) == 1


def test_what_failed_is_tried_again_after_all_others_and_then_fails() -> None:
    it = board(3, retries=1)
    lease = given_to(it, A)
    again = it.settle(A, lease.number, [Outcome(0, ok=False, text="no", ms=2)], Spent())
    assert [(one.state, one.tries) for one in again] == [("waiting", 1)]
    assert list(it.waiting) == [1, 2, 0]
    it.waiting.rotate(1)
    lease = given_to(it, A)
    assert lease.positions[0] == 0
    assert [one.state for one in it.settle(A, lease.number, [Outcome(0, ok=False, text="no", ms=2)], Spent())] == ["failed"]
    assert it.left == 2


def test_what_was_not_begun_goes_back_uncharged_and_first() -> None:
    it = board(40)
    it.item_s, it.proven = 0.5, 100
    lease = given_to(it, A)
    positions = list(lease.positions)
    it.settle(A, lease.number, done(positions[:1]), Spent(1.0))
    assert list(it.waiting)[: len(positions) - 1] == positions[1:]
    assert not it.tries and not it.deaths


def test_a_death_is_charged_to_the_item_in_progress_alone_which_is_then_given_out_alone() -> None:
    it = board(8)
    it.item_s, it.proven = 0.4, 100
    for death in range(1, DEATHS_MAX):
        lease = given_to(it, A)
        judged = it.gone(A, (), lease.positions[0] if death == 1 else 0, "killed by signal 9")
        assert [(one.position, one.state, one.deaths) for one in judged] == [(0, "waiting", death)]
        it.waiting.clear()  # so that it is its turn
    assert given_to(it, A).positions == [0]
    judged = it.gone(A, (), 0, "killed by signal 9")
    assert [(one.state, one.text) for one in judged] == [("failed", "3 workers died of it, the last one: killed by signal 9")]


def test_an_end_that_is_nobodys_fault_is_not_charged() -> None:
    it = board(3)
    lease = given_to(it, A)
    assert it.gone(A, done(lease.positions[:1]), None, "cancelled")[0].state == "done"
    assert it.left == 2 and not it.deaths
    assert it.gone(A, (), 1, "again") == []


def test_who_idles_gets_half_of_what_another_has_not_begun() -> None:
    it = board(9)
    it.item_s, it.proven = 0.1, 1000
    it.waiting.clear()
    it.leases[A] = Lease(1, list(range(9)), 0.0, 0.0)
    assert it.give(B, 0.0) is None and not it.may_leave()
    assert it.beat(A, 1, 2, 0.1) == 6  # 0, 1 and 2 are begun; of the other six it keeps three
    assert list(it.waiting) == [6, 7, 8] and it.changed == {A}
    assert it.beat(A, 1, 2, 0.2) == 6, "nobody idles any more"
    assert given_to(it, B).positions
    late = it.settle(A, 1, done([0, 1, 8]), Spent(1.0))
    assert [one.position for one in late] == [0, 1], "8 is another's by now"


def test_what_is_not_worth_a_shard_is_not_taken_and_no_shard_is_smaller() -> None:
    it = board(20)
    it.item_s, it.around_s, it.proven = 0.1, 0.4, 1000  # what surrounds a shard takes as long as four items
    it.leases[A] = Lease(1, list(range(20, 29)), 0.0, 0.0)
    it.idle[B] = 0.0
    it.waiting.clear()
    assert it.beat(A, 1, 2, 0.1) == 9, "six are left"
    it.leases[A].at = 0
    assert it.beat(A, 1, 0, 0.1) == 5, "eight were"
    it = board(9)
    it.item_s, it.around_s, it.proven = 0.1, 0.4, 1000
    it.leases = {(f"run/x{number}", 1): Lease(number, [], 0.0, 0.0) for number in range(50)}
    assert len(given_to(it, A).positions) == 8


def test_who_asked_long_ago_idles_no_more() -> None:
    it = board(0)
    it.leases[A] = Lease(1, [1, 2, 3, 4], 0.0, 0.0)
    assert it.give(B, 0.0) is None
    assert it.beat(A, 1, 0, 5 * WAIT_S) == 4


def test_an_answer_for_another_shard_and_a_second_one_for_an_item_change_nothing() -> None:
    it = board(10)
    lease = given_to(it, A)
    assert it.settle(A, lease.number + 1, done(lease.positions), Spent()) == [] and it.leases[A] is lease
    assert it.beat(A, lease.number + 1, 1, 0.0) == 0
    twice = it.settle(A, lease.number, [*done(lease.positions[:1]), *done(lease.positions[:1])], Spent())
    assert [one.position for one in twice] == [0] and it.left == 9


def test_a_silent_worker_loses_what_it_has_not_begun_and_then_all_of_it() -> None:
    it = board(4)
    it.waiting.clear()
    it.leases[A] = Lease(1, [0, 1, 2, 3], 0.0, 0.0, at=1)
    assert it.give(B, SILENT_S - 1) is None
    assert given_to(it, B, SILENT_S + 1).positions == [2] and it.leases[A].positions == [0, 1]
    it.waiting.clear()
    assert given_to(it, C, STOPPED_S + 1).positions[0] == 0 and A not in it.leases
    assert it.beat(A, 1, 1, STOPPED_S + 2) == 0
    assert it.settle(A, 1, done([0]), Spent()) == []


def test_one_that_is_needed_no_more_may_leave() -> None:
    it = board(2)
    given_to(it, A)
    assert not it.may_leave()
    it.waiting.clear()
    assert it.may_leave()


def test_the_same_line_twice_is_two_items() -> None:
    assert list(map_rules.occurrences([(b"a", "1"), (b"a", "1"), (b"a", "2")])) == [0, 1, 0]


def test_sizes_of_nothing() -> None:
    assert board(0).give(A, 0.0) is None
    it = board(2, sizes=[0, 0])
    assert given_to(it, A).positions


@given(seed=st.integers(0, 2**32), items=st.integers(1, 120), workers=st.integers(1, 7))
def test_whatever_dies_or_is_late_every_item_ends_once(seed: int, items: int, workers: int) -> None:
    """Workers that do a part of their shards, die, fall silent and speak late, in any order."""
    rng = random.Random(seed)
    it, now, ended = board(items, retries=1), 0.0, dict[int, str]()
    names = [(f"run/w{number}", 1) for number in range(workers)]
    late: list[tuple[Key, int, list[int]]] = []
    for _ in range(100_000):
        if not it.left:
            break
        now += rng.choice((0.1, 1.0, 5.0, SILENT_S, STOPPED_S))
        key = rng.choice(names)
        lease = it.leases.get(key) or it.give(key, now)
        if lease is None:
            continue
        part = lease.positions[: rng.randint(0, len(lease.positions))]
        said = [Outcome(position, rng.random() < 0.8, "1", 1) for position in part]
        late.append((key, lease.number, list(lease.positions)))
        match rng.randrange(5):
            case 0:
                judged = it.gone(key, said, rng.choice([*lease.positions, None]), "killed")
            case 1:
                it.beat(key, lease.number, len(part), now)
                judged = []
            case 2:
                old = rng.choice(late)
                judged = it.settle(old[0], old[1], done(old[2]), Spent(1.0))
            case _:
                judged = it.settle(key, lease.number, said, Spent(1.0, 0.1))
        for one in judged:
            if one.state != "waiting":
                assert one.position not in ended, "an item ended twice"
                ended[one.position] = one.state
        held = [*it.waiting, *it.suspects, *(position for lease in it.leases.values() for position in lease.positions)]
        assert sorted([*held, *ended]) == list(range(items)), "an item is lost, or in two places"
    assert len(ended) == items
