"""What an agent may add: a child never has more than its parent, and counts and dollars are taken out of the parent's own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from supervisor.kernel import child_tasks
from supervisor.kernel.child_tasks import Parent
from supervisor.kernel.errors import BudgetSpent, Refused
from supervisor.kernel.events import CancelAsked, Event, Secured, Started, Submitted, TreeGone
from supervisor.kernel.spec import TaskSpec
from supervisor.kernel.states import End, TaskClass, TaskState
from tests.kernel.playbook import After, Playbook, task
from tests.kernel.test_decide import running

PARENT = TaskSpec(name="lead", title="lead", kind="shell", argv=("true",), children_max=10, depth_max=3)
ASKED = TaskSpec(name="x", title="x", kind="shell", argv=("true",))


def parent(tier: int = 1, *, takes_prompt: bool = False, added: int = 0, given: float = 0.0, spent: float = 0.0, **spec: Any) -> Parent:
    return Parent("run/lead", 2, replace(PARENT, **spec), tier, takes_prompt, added, given, spent)


def child(of: Parent, **asked: Any) -> TaskSpec:
    return child_tasks.child(of, replace(ASKED, **asked), asked.keys())


WIDER: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "a lower tier": ({"tier": 2}, {"sandbox": 1}),
    "no sandbox": ({"tier": 1}, {"sandbox": 0}),
    "the network that its parent has not": ({"tier": 2, "network": False}, {"network": True}),
    "hosts where its parent has none": ({"tier": 2, "network": False}, {"network": ("a.b",)}),
    "another host": ({"tier": 2, "network": ("a.b", "*.c.d")}, {"network": ("a.b", "c.d")}),
    "the network of one with named hosts": ({"tier": 2, "network": ("a.b",)}, {"network": True}),
    "processors": ({"gpus": False}, {"gpus": True}),
    "another processor": ({"gpus": (0,)}, {"gpus": (0, 1)}),
    "more time": ({"timeout_s": 60.0}, {"timeout_s": 61.0}),
    "more memory": ({"memory_max": 10}, {"memory_max": 11}),
    "more disk": ({"disk_max": 10}, {"disk_max": 11}),
    "more processes": ({"processes_max": 10}, {"processes_max": 11}),
    "more processor time": ({"cpu_max": 10.0}, {"cpu_max": 10.5}),
    "its parent's tokens for each of ten": ({"tpm_max": 1000}, {"tpm_max": 101}),
    "its parent's tokens in all for each of ten": ({"tokens_max": 1000}, {"tokens_max": 101}),
    "more weight": ({"weight": 1.0}, {"weight": 1.5}),
    "a higher priority": ({"priority": 40}, {"priority": 41}),
    "more urgency": ({"task_class": TaskClass.BATCH}, {"task_class": TaskClass.NORMAL}),
    "a person": ({}, {"interactive": True}),
    "a terminal": ({}, {"kind": "terminal"}),
    "retries without end": ({}, {"retries": 11}),
    "a level too many": ({"depth_max": 2}, {"children_max": 1, "depth_max": 2}),
    "levels of one that has one": ({"depth_max": 1}, {"children_max": 1}),
    "a command below an agent that may not use every tool": ({"takes_prompt": True, "kind": "claude", "allow": ("Read",)}, {}),
    "a command below an agent that asks in tier 0": ({"takes_prompt": True, "kind": "claude", "tier": 0}, {}),
    "a sandbox, where its kind asks nobody, below an agent that asks in tier 0": (
        {"takes_prompt": True, "kind": "claude", "tier": 0},
        {"kind": "claude", "sandbox": 1},
    ),
    "more tools": ({"takes_prompt": True, "kind": "claude", "allow": ("Read",)}, {"kind": "claude", "allow": ("Read", "Bash")}),
    "a child where none is allowed": ({"children_max": 0}, {}),
    "an eleventh child": ({"added": 10}, {}),
    "children that would be the eleventh": ({"added": 5}, {"children_max": 5}),
}


@pytest.mark.parametrize(("has", "asked"), WIDER.values(), ids=WIDER)
def test_more_than_its_parent_has_is_refused(has: dict[str, Any], asked: dict[str, Any]) -> None:
    with pytest.raises(Refused, match="not added x: "):
        child(parent(**has), **asked)


def test_what_the_agent_does_not_say_is_its_parents() -> None:
    given: dict[str, Any] = {
        "network": ("a.b",), "gpus": (1,), "timeout_s": 60.0, "memory_max": 1, "disk_max": 2, "processes_max": 3, "cpu_max": 4.0,
        "weight": 0.5, "priority": 7, "task_class": TaskClass.BATCH, "params": {"A": "b"},
        "snapshot": "deps", "snapshot_id": "1", "cores": 2,
    }  # fmt: skip
    made = child(parent(tier=2, **given, tpm_max=1005))
    assert {name: getattr(made, name) for name in given} == given
    assert (made.sandbox, made.tpm_max, made.parent, made.parent_epoch, made.depth_max) == (2, 101, "run/lead", 2, 0)


def test_what_is_narrower_is_granted() -> None:
    made = child(
        parent(tier=1, network=True, gpus=True, timeout_s=60.0, priority=50),
        network=("a.b",), gpus=(), timeout_s=5.0, priority=10, task_class=TaskClass.BATCH, children_max=2,
    )  # fmt: skip
    assert (made.network, made.sandbox, made.gpus, made.timeout_s, made.priority) == (("a.b",), 2, (), 5.0, 10)
    assert (made.children_max, made.depth_max) == (2, 1)
    assert child(parent(tier=2, network=("*.c.d",)), network=("x.c.d", "*.y.c.d")).network == ("x.c.d", "*.y.c.d")
    assert child(parent(tier=2, network=("a.b",)), network=False).network is False
    assert child(parent(gpus=(0, 1)), gpus=(1,)).gpus == (1,)
    assert child(parent(tier=0)).sandbox is None and child(parent(tier=0), sandbox=0).sandbox == 0
    limited = parent(takes_prompt=True, kind="claude", allow=("Read", "Bash"))
    assert child(limited, kind="claude").allow == ("Read", "Bash") and child(limited, kind="claude", allow=("Read",)).allow == ("Read",)
    assert child(parent(takes_prompt=True, kind="claude")).allow is None, "in a sandbox it may use every tool itself"


def test_dollars_are_taken_out_of_the_parents() -> None:
    assert child(parent(cost_max=10.0, spent=2.0, added=2, given=4.0)).cost_max == 0.5, "an eighth of the four that are left"
    assert child(parent(cost_max=10.0, spent=2.0, added=2, given=4.0), children_max=3).cost_max == 2.0
    assert child(parent(cost_max=10.0, spent=2.0, given=4.0), cost_max=4.0).cost_max == 4.0
    for wanted in ({"cost_max": 4.01}, {"cost_max": 100.0}):
        with pytest.raises(BudgetSpent, match=r"\$4.00 is left of the cost_max of run/lead, \$10.00"):
            child(parent(cost_max=10.0, spent=2.0, given=4.0), **wanted)
    with pytest.raises(BudgetSpent, match=r"\$0.00 is left"):
        child(parent(cost_max=10.0, spent=7.0, given=4.0))
    assert child(parent(), cost_max=3.0).cost_max == 3.0 and child(parent()).cost_max == 0.0


def test_what_only_its_kind_says_gives_way_to_its_parents_own_limits() -> None:
    usual: dict[str, Any] = {"cost_max": 20.0, "timeout_s": 100.0, "assumed": ("cost_max", "timeout_s")}
    asked = replace(ASKED, **usual)
    free = child_tasks.child(parent(), asked, ())
    assert (free.cost_max, free.timeout_s, free.assumed) == (20.0, 100.0, ("cost_max", "timeout_s"))
    bound = child_tasks.child(parent(cost_max=200.0, timeout_s=60.0), asked, ())
    assert (bound.cost_max, bound.timeout_s, bound.assumed) == (20.0, 60.0, ()), "also where both are the same: a person said it"
    assert child_tasks.child(parent(cost_max=1.0), asked, ()).cost_max == 0.1


# The crew --------------------------------------------------------------------------------------------------------------------------


def after(book: Playbook, *events: Event) -> Playbook:
    """The crew after these events, whatever was commanded."""
    book.happens(*events)
    return book


def ended(book: Playbook, name: str, end: End = End.DONE) -> Playbook:
    return after(book, Started(name, 1), TreeGone(name, 1, end, ""), Secured(name, 1, end, ""))


def conducted() -> Playbook:
    """One slot. `a` runs, and its child `b`; its child `c` and another's task `e` wait."""
    return after(running("a", slots=1), Submitted((task("b", 1, parent="a"), task("c", 2, parent="a"), task("e", 4))))


def living(book: Playbook) -> list[str]:
    return sorted(book.crew.living)


def test_who_has_unfinished_children_takes_no_slot() -> None:
    book = conducted()
    assert living(book) == ["a", "b"], "in one slot"
    assert living(after(book, Submitted((task("d", 3, parent="b", priority=90),)))) == ["a", "b", "d"]
    assert living(ended(book, "d")) == ["a", "b"]
    assert living(ended(book, "b")) == ["a", "c"]
    assert living(ended(book, "c")) == ["a"], "its last child has ended, so it takes a slot again"
    assert living(ended(book, "a")) == ["e"]


def test_one_that_runs_again_need_not_wait_for_its_children() -> None:
    book = after(conducted(), Started("b", 1), TreeGone("a", 1, End.LOST, ""), Secured("a", 1, End.LOST, ""))
    assert living(book) == ["b"] and book.crew.tasks["a"].not_before > 0
    book >> After(60)
    assert living(book) == ["a", "b"], "the one slot is its child's"


def test_a_cancelled_task_takes_its_children_along() -> None:
    book = after(after(conducted(), Submitted((task("d", 3, parent="b", priority=90),))), CancelAsked("a"))
    stopping = {name: one.attempt.stop_why for name, one in book.crew.living.items() if one.attempt is not None}
    assert stopping == {"a": "cancelled", "b": "cancelled", "d": "cancelled"}
    assert {name: book.books.tasks[name].state for name in "ce"} == {"c": TaskState.CANCELLED, "e": TaskState.READY}


def test_children_go_on_when_their_parent_ends_by_itself() -> None:
    book = ended(conducted(), "a", End.FAILED)
    assert living(book) == ["b"] and living(ended(book, "b")) == ["c"]


def test_below_an_agent_that_asks_in_tier_0_there_is_no_sandbox_in_which_nobody_is_asked() -> None:
    assert child(parent(0, takes_prompt=True, kind="claude"), kind="claude").sandbox == 0
    assert child(parent(0, kind="shell")).sandbox is None, "a command has no permissions of its own to pass on"
