"""Each class's share of the processor."""

from __future__ import annotations

from supervisor.kernel import limits
from supervisor.kernel.limits import FULL
from supervisor.kernel.states import TaskClass


def test_a_person_waits_for_interactive_agents_so_they_are_like_the_persons_own_commands() -> None:
    share = limits.processor_share_of(TaskClass.INTERACTIVE, nice=7)
    assert (share.nice, share.idle, share.weight) == (0, False, FULL)


def test_batch_agents_give_way_to_normal_ones_and_those_to_interactive_ones() -> None:
    shares = [limits.processor_share_of(name, nice=7) for name in (TaskClass.INTERACTIVE, TaskClass.NORMAL, TaskClass.BATCH)]
    assert [share.nice for share in shares] == [0, 7, 19]
    assert [share.idle for share in shares] == [False, False, True]
    weights = [share.weight for share in shares]
    assert weights == sorted(weights, reverse=True) and weights[-1] > 0, (
        "what gets nothing at all stands still with its locks and time-outs"
    )


def test_agents_with_groups_of_their_own_weigh_together_what_their_class_does() -> None:
    share = limits.processor_share_of(TaskClass.NORMAL, nice=5)
    assert share.of_one(10) * 10 == share.weight
    assert share.of_one(1000) == 1 and share.of_one(0) == share.weight
