"""No wait begins that could never end; those that come to that later are given up; a restart forgets none of them."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from memory.service import notes
from memory.service.waits import GRACE_S, WAITS_MAX
from supervisor.kernel.crew import Task
from supervisor.kernel.errors import Chosen, Deadlock, Refused, TimedOut
from supervisor.kernel.leases import WaitKind
from supervisor.kernel.states import TaskState
from tests.server.memory.wait_kit import PROJECT, in_a_loop, parked, waiting
from tests.store.kit import RUN


@in_a_loop
async def test_a_wait_is_on_disk_while_it_waits_and_says_how_it_ended(tmp_path: Path) -> None:
    with waiting(tmp_path, "a", "b") as there:
        async with there.desk.waiting(PROJECT, f"{RUN}/a", 1, WaitKind.LEASE, "src/**", [f"{RUN}/b"], 60):
            assert there.rows() == [("a", None)]
        assert there.rows() == [("a", "over")] and not there.desk.graph.waits
        left = there.wait("a", WaitKind.LEASE, "src/**", "b")
        await parked(left)
        left.cancel()
        with pytest.raises(asyncio.CancelledError):
            await left
        assert there.rows()[1] == ("a", "left")


@in_a_loop
async def test_two_that_would_wait_for_each_other_are_told_the_whole_cycle(tmp_path: Path) -> None:
    with waiting(tmp_path, "a", "b") as there:
        await parked(first := there.wait("a", WaitKind.LEASE, "src/two.py", "b"))
        with pytest.raises(Deadlock) as caught:
            await there.wait("b", WaitKind.LEASE, "src/one.py", "a")
        assert caught.value.why == (
            f"{RUN}/b waits for {RUN}/a (lease src/one.py), {RUN}/a waits for {RUN}/b (lease src/two.py)"
        )  # fmt: skip
        assert caught.value.exit_code == 6 and not first.done(), "the first one waits on"
        assert there.rows() == [("a", None)] and [event for event, _ in there.journal()] == ["wait refused"]


@in_a_loop
async def test_three_parties_by_mail_lease_and_task(tmp_path: Path) -> None:
    with waiting(tmp_path, "a", "b", "c") as there:
        await parked(there.wait("a", WaitKind.MAIL, "a reply", "b"), there.wait("b", WaitKind.LEASE, "x", "c"))
        with pytest.raises(Deadlock, match=r"c waits for .*a \(task .*a waits for .*b \(mail .*b waits for .*c \(lease x\)"):
            await there.wait("c", WaitKind.TASK, "its end", "a")


@in_a_loop
async def test_what_a_task_comes_after_counts(tmp_path: Path) -> None:
    """A lead waits for its second child, which comes after the first, which waits for what the lead holds."""
    second = Task(f"{RUN}/second", 9, state=TaskState.WAITING, after=frozenset({f"{RUN}/first"}))
    with waiting(tmp_path, "lead", "first", second=second) as there:
        await parked(there.wait("lead", WaitKind.TASK, "its children", "second"))
        with pytest.raises(Deadlock, match=r"first waits for .*lead .*lead waits for .*second .*second waits for .*first \(task after\)"):
            await there.wait("first", WaitKind.LEASE, "src/**", "lead")


@in_a_loop
async def test_rates_have_no_holder_and_persons_wait_for_nobody(tmp_path: Path) -> None:
    with waiting(tmp_path, "a", "b") as there:
        waits = [there.wait("a", WaitKind.RATE, "quota deploys"), there.wait("b", WaitKind.MEMORY, "semantic/plan.md")]
        waits += [there.wait("a", WaitKind.HUMAN, "a reply", "person"), there.wait("b", WaitKind.HUMAN, "a reply", "person")]
        await parked(*waits)
        assert not any(wait.done() for wait in waits) and there.desk.graph.deadlocks() == []


@in_a_loop
async def test_a_time_out_ends_it(tmp_path: Path) -> None:
    with waiting(tmp_path, "a", "b") as there:
        long, short = there.wait("a", WaitKind.LEASE, "x", "b", timeout_s=60), there.wait("a", WaitKind.LEASE, "y", "b", timeout_s=5)
        await parked(long, short)
        there.clock.now += 6
        there.desk.step()
        with pytest.raises(TimedOut, match="waited for lease y"):
            await short
        assert there.rows() == [("a", None), ("a", "timed out")] and not long.done()


@pytest.mark.parametrize(("important", "chosen"), [("a", "b"), ("b", "a")])
@in_a_loop
async def test_a_lease_that_passes_on_costs_the_less_important_its_wait(tmp_path: Path, important: str, chosen: str) -> None:
    with waiting(tmp_path, "a", "b", "c") as there:
        there.crew.tasks[f"{RUN}/{important}"] = replace(there.crew.tasks[f"{RUN}/{important}"], priority=90)
        waits = {"a": there.wait("a", WaitKind.LEASE, "x", "c"), "b": there.wait("b", WaitKind.LEASE, "y", "a")}
        await parked(*waits.values())
        there.desk.change_holders(there.number("a"), [f"{RUN}/b"])
        with pytest.raises(Chosen, match=r"a waits for .*b \(lease x\)"):
            await waits[chosen]
        assert not waits[important].done() and there.desk.graph.deadlocks() == []
        assert dict(there.rows()) == {important: None, chosen: "given up"}
        assert [event for event, _ in there.journal()] == ["wait given up"] and "gave up a wait" in there.said[0]


@in_a_loop
async def test_a_dependency_that_comes_later_is_seen_too(tmp_path: Path) -> None:
    """The youngest of equals is given up: nobody registered what the plan says."""
    child = Task(f"{RUN}/child", 9, state=TaskState.READY)
    with waiting(tmp_path, "lead", "other", child=child) as there:
        await parked(old := there.wait("other", WaitKind.MAIL, "a reply", "lead"))
        there.clock.now += 1
        await parked(young := there.wait("lead", WaitKind.TASK, "its child", "child"))
        there.crew.tasks[child.id] = Task(child.id, 9, state=TaskState.WAITING, after=frozenset({f"{RUN}/other"}))
        there.desk.step()
        with pytest.raises(Chosen):
            await young
        assert not old.done()


@in_a_loop
async def test_one_of_several_is_enough(tmp_path: Path) -> None:
    """Whoever waits for any of two is in no deadlock while one of them can go on, and is in one when neither can."""
    with waiting(tmp_path, "lead", "one", "two") as there:
        await parked(lead := there.wait("lead", WaitKind.TASK, "any", "one", "two", any_of=True))
        await parked(one := there.wait("one", WaitKind.LEASE, "x", "lead"))
        assert not lead.done() and not one.done()
        with pytest.raises(Deadlock, match="waits for one of"):
            await there.wait("two", WaitKind.LEASE, "x", "lead")


@in_a_loop
async def test_after_a_restart_the_waits_of_before_stand_until_they_are_asked_again(tmp_path: Path) -> None:
    with waiting(tmp_path, "a", "b") as there:
        await parked(there.wait("a", WaitKind.LEASE, "two", "b"))
        there.restart()
        with pytest.raises(Deadlock):
            await there.wait("b", WaitKind.LEASE, "one", "a")
        number = there.number("a")
        there.clock.now += GRACE_S / 2
        await parked(again := there.wait("a", WaitKind.LEASE, "two", "b"))
        assert there.number("a") == number and there.rows() == [("a", None)], "the same wait goes on"
        assert there.desk.graph.waits[number].since == 1_700_001_000.0, "and is as old as it was"
        there.clock.now += GRACE_S
        there.desk.step()
        with pytest.raises(TimedOut):
            await again


@in_a_loop
async def test_a_wait_that_nobody_asks_for_again_ends(tmp_path: Path) -> None:
    with waiting(tmp_path, "a", "b", "c") as there:
        await parked(there.wait("a", WaitKind.LEASE, "two", "b"), there.wait("c", WaitKind.LEASE, "two", "b"))
        there.restart()
        there.crew.tasks[f"{RUN}/c"] = Task(f"{RUN}/c", 3, state=TaskState.READY, epoch=1)
        there.desk.step()
        assert there.rows() == [("a", None), ("c", "its attempt ended")]
        there.clock.now += GRACE_S + 1
        there.desk.step()
        assert there.rows()[0] == ("a", "nobody asked again")
        await parked(there.wait("b", WaitKind.LEASE, "one", "a"))


@in_a_loop
async def test_a_request_that_is_repeated_and_need_not_wait_ends_the_wait_of_before(tmp_path: Path) -> None:
    """Else nobody could wait for its asker until the grace is over."""
    with waiting(tmp_path, "a", "b") as there:
        await parked(there.wait("a", WaitKind.LEASE, "two", "b"), there.wait("a", WaitKind.LEASE, "three", "b"))
        there.desk.answered(f"{RUN}/a", 1, WaitKind.LEASE, "two")
        assert there.rows() == [("a", None), ("a", None)], "those that wait now are another request's"
        there.restart()
        there.desk.answered(f"{RUN}/a", 1, WaitKind.LEASE, "two")
        assert there.rows() == [("a", "over"), ("a", None)]
        there.desk.answered(f"{RUN}/a", 1, WaitKind.LEASE, "three")
        await parked(other := there.wait("b", WaitKind.LEASE, "one", "a"))
        assert not other.done()


@in_a_loop
async def test_an_agent_cannot_wait_without_bound(tmp_path: Path) -> None:
    with waiting(tmp_path, "a", "b") as there:
        waits = [there.wait("a", WaitKind.MEMORY, f"{at}") for at in range(WAITS_MAX)]
        await parked(*waits)
        with pytest.raises(Refused, match="too many wait already"):
            await there.wait("a", WaitKind.MEMORY, "one more")
        await parked(there.wait("b", WaitKind.MEMORY, "another's"))


@in_a_loop
async def test_what_an_agent_names_is_harmless_and_short_for_the_others(tmp_path: Path) -> None:
    with waiting(tmp_path, "a", "b") as there:
        await parked(there.wait("a", WaitKind.LEASE, "\x1b]0;owned\x07\u202e\U000e0041" + "x" * 500, "b"))
        with pytest.raises(Deadlock) as caught:
            await there.wait("b", WaitKind.LEASE, "one", "a")
        assert caught.value.why.isprintable() and len(caught.value.why) < 400


@in_a_loop
async def test_the_graph_of_a_project(tmp_path: Path) -> None:
    """What agents wait for, then what follows from the plan; nothing of another project."""
    child = Task(f"{RUN}/child", 8, state=TaskState.WAITING, after=frozenset({f"{RUN}/b"}), project=PROJECT)
    with waiting(tmp_path, "a", "b", child=child, later=replace(child, id=f"{RUN}/later")) as there:
        await parked(there.wait("a", WaitKind.TASK, "child", "child"), there.wait("b", WaitKind.HUMAN, "a reply", "person"))
        found = notes.shape(there.desk, there.crew, PROJECT)
        assert [(wait["task"].partition("/")[2], wait["kind"], bool(wait["number"])) for wait in found["waits"]] == [
            ("a", "task", True), ("b", "human", True), ("child", "task", False), ("later", "task", False),
        ]  # fmt: skip
        assert {node["id"].partition("/")[2] or node["id"]: node["state"] for node in found["nodes"]} == {
            "a": "running", "b": "running", "person": "person", "child": "waiting", "later": "waiting",
        }  # fmt: skip
        assert len(found["edges"]) == 4 and not found["more"]
        assert notes.shape(there.desk, there.crew, "another")["nodes"] == []
