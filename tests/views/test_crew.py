"""The read model of the screen and the page: who is in which group, what is said of it, and the figures above."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from supervisor.kernel.format import moment
from supervisor.kernel.pressure import Decision, Verdict
from supervisor.kernel.states import TaskState
from supervisor.views import crew, status
from supervisor.views import gateway as face
from supervisor.views.crew import Group, Seen
from supervisor.views.places import Train
from supervisor.views.status import Waiting
from tests.views.top.kit import NOW, RUN, asks, view


def grouped(*views: Any, **more: Any) -> dict[Group, list[str]]:
    found = crew.crew(Seen(views, Counter(one.state for one in views), **more))
    return {section.group: [row.view.name for row in section.rows] for section in found.sections if section.rows}


def test_each_state_has_its_group() -> None:
    states = {
        TaskState.RUNNING: Group.WORKING, TaskState.WAITING: Group.QUEUED, TaskState.READY: Group.QUEUED, TaskState.PAUSED: Group.QUEUED,
        TaskState.PARKED: Group.QUEUED,
    }  # fmt: skip
    for state in TaskState:
        assert list(grouped(view("one", state))) == [states.get(state, Group.ENDED)], state
    assert list(grouped(view("one", paused="person"))) == [Group.QUEUED], "an agent that stands still does not work"
    assert list(grouped(view("one"), waits=asks("one"))) == [Group.NEEDS_ME]
    assert list(grouped(view("one", TaskState.DONE), to_take=[f"{RUN}/one"])) == [Group.TO_TAKE]
    assert list(grouped(view("one", TaskState.FAILED), to_take=[f"{RUN}/one"])) == [Group.ENDED]


def test_a_group_that_waits_for_a_choice_needs_me_and_is_not_queued() -> None:
    verdict = Verdict(Decision.DEFER, "choice", "waits for your choice: nightcrew compare api", NOW - 60)
    group, counts = view("api", TaskState.WAITING), Counter({TaskState.WAITING: 3})
    asked = {group.id: {"state": "choice", "detail": verdict.words, "since": NOW - 60}}
    for waits in (Waiting(reasons={group.id: verdict}), Waiting(asked), Waiting(asked, reasons={group.id: verdict})):
        found = crew.crew(Seen([group], counts, waits))
        (row,) = found.rows()
        assert (row.group, row.says, row.asks, row.age(NOW)) == (Group.NEEDS_ME, verdict.words, "", "1m")
        assert found.total(Group.QUEUED) == 2, "the group is not counted twice"


def test_what_can_be_taken_says_what_it_is_and_what_stands_in_its_way() -> None:
    ended = [
        view(name, TaskState.DONE, ended=NOW - at, result={"commits": 2, "agent": {"message": "I did."}}) for at, name in enumerate("ab")
    ]
    waits = Waiting(
        conflicts={f"{RUN}/a": "conflicts with b in x.py"}, trains={f"{RUN}/a": "left out of t: why", f"{RUN}/b": "landed in main"}
    )
    found = crew.crew(Seen(ended, Counter(), waits, to_take=[f"{RUN}/a"], merged={f"{RUN}/b": "main"}))
    assert {row.view.name: (row.group, row.letter, row.says) for row in found.rows()} == {
        "a": (Group.TO_TAKE, "T", "conflicts with b in x.py; left out of t: why; I did."),
        "b": (Group.ENDED, "M", "landed in main; I did."),
    }  # fmt: skip
    plain = crew.crew(Seen([view("c", TaskState.DONE, title="c", result={"commits": 1})], to_take=[f"{RUN}/c"]))
    assert plain.rows()[0].says == "1 commit"


def test_every_letter_is_explained() -> None:
    letters = {row.letter for state in TaskState for row in crew.crew(Seen([view("one", state)])).rows()}
    assert letters <= crew.LETTERS.keys()
    assert crew.LETTERS.keys() == crew.WORDS.keys() and all(crew.WORDS.values())


def test_an_agent_that_waits_for_a_prompt_is_idle_and_does_not_work() -> None:
    views = view("works"), view("rests"), view("stopped")
    waits = Waiting(states={f"{RUN}/works": "working", f"{RUN}/rests": "idle", f"{RUN}/stopped": "interrupted"})
    found = crew.crew(Seen(views, Counter({TaskState.RUNNING: 3}), waits))
    assert {section.group: section.total for section in found.sections if section.total} == {Group.WORKING: 1, Group.IDLE: 2}
    assert {row.view.name: row.word for row in found.rows()} == {"works": "works", "rests": "idle", "stopped": "idle"}
    assert status.tally({TaskState.RUNNING: 3, TaskState.DONE: 1}, status.idle(views, waits.states)) == "1 running, 1 done, 2 idle"


def test_what_ended_says_when() -> None:
    at = time.mktime((2026, 11, 21, 14, 5, 9, 0, 0, -1))
    moments = [moment(at, at + later) for later in (0, 86400, 86400 * 60)]
    assert moments == ["14:05", "21 Nov", "2026-11"]
    (row,) = crew.crew(Seen([view("a", TaskState.FAILED, started=at - 7200, ended=at)])).rows()
    assert row.age(at + 60) == "14:05"
    layout = status.Layout(200, color=False)
    assert "14:05  title of a" in status.line(row.view, at + 60, layout)
    assert "2h  title of a" in status.line(row.view, at + 60, replace(layout, took=True)), "while a run is followed"


def test_all_workers_of_a_map_are_one_row_and_so_are_the_gates_of_a_train() -> None:
    workers = [view(f"worker-{n}", TaskState.RUNNING if n else TaskState.DONE, kind="map-worker", run="1121-mmmm") for n in range(3)]
    gates = [view(f"g{n}", kind="landing-gate", run=f"1121-g{n}", id=f"1121-g{n}/gate") for n in range(2)]
    trains = {one.id: Train("train-7", "into main is running; 2 gates under way") for one in gates}
    found = crew.crew(Seen([*workers, *gates, view("lint")], Counter({TaskState.RUNNING: 5, TaskState.DONE: 1}), trains=trains))
    assert {row.view.name: (row.says, row.tasks) for row in found.rows()} == {
        "lint": ("", ()),
        "1121-mmmm": ("2 running, 1 done", tuple(one.id for one in workers)),
        "train-7": ("into main is running; 2 gates under way", tuple(one.id for one in gates)),
    }
    assert found.total(Group.WORKING) == 6, "the tasks are counted, not the rows"
    asked = {workers[1].id: {"state": "waiting_permission", "detail": "may I?", "since": NOW, "task": workers[1].id}}
    alone = crew.crew(Seen(workers, Counter({TaskState.RUNNING: 2}), Waiting(asked)))
    assert alone.rows()[0].group is Group.NEEDS_ME and alone.rows()[0].id == workers[1].id, "a worker that asks has a row of its own"


def test_the_longest_wait_stands_first_and_of_what_ended_the_newest() -> None:
    waits = asks("late", "early")
    ended = [view(name, TaskState.DONE, ended=NOW - at) for name, at in (("older", 50), ("newer", 5))]
    found = grouped(view("late"), view("early"), view("held", TaskState.WAITING), view("next", TaskState.READY), *ended, waits=waits)
    assert found == {Group.NEEDS_ME: ["early", "late"], Group.QUEUED: ["next", "held"], Group.ENDED: ["newer", "older"]}


def test_what_waits_says_why_and_colours_are_left_out() -> None:
    verdict = Verdict(Decision.DEFER, "slots", "waits for a slot (8 of 8 taken)")
    waits = Waiting(reasons={f"{RUN}/a": verdict}, unsent={f"{RUN}/b": "1 text waits"})
    found = crew.crew(Seen([view("a", TaskState.READY), view("b")], waits=waits), lambda _: "\x1b[31mred\x1b[0m\x1b]0;own\x07\ttab")
    says = {row.view.name: row.says for row in found.rows()}
    assert says == {"a": "waits for a slot (8 of 8 taken)", "b": "red\\ttab; 1 text waits"}


def test_totals_count_what_is_not_shown() -> None:
    counts = Counter({TaskState.WAITING: 20_000, TaskState.RUNNING: 1})
    found = crew.crew(Seen([view("a"), view("b", TaskState.WAITING)], counts))
    assert (found.total(Group.QUEUED), found.total(Group.WORKING)) == (20_000, 1)


def pool(**more: Any) -> dict[str, Any]:
    one = {"name": "input", "limit_per_minute": 80_000.0, "reserved": 8000.0, "outside_per_minute": 2000.0, "saturation": 0.5}
    shape = {"key": "sim/anthropic/opus-4", "account": "sim", "lane": "anthropic/opus-4", "in_flight": 1, "figures": None, "windows": []}
    return {**shape, "breaker": "closed", "breaker_why": "", "opens_in_s": None, "exhausted_in_s": None, "dimensions": [one], **more}


def gateway(*pools: dict[str, Any]) -> dict[str, Any]:
    figures = {"unpriced": 0, "known_usd": 1.5, "window_s": 300.0}
    lanes = [{"lane": "anthropic/opus-4", "queued": 3, "delay_s": 12.0}]
    return {"running": True, "agents": [{"used_tpm": 61_000.0}], "pools": list(pools), "lanes": lanes, "figures": figures}


def facts(*pools: dict[str, Any], **more: Any) -> dict[str, str]:
    return {fact.name: ("! " if fact.bad else "") + fact.value for fact in crew.facts(gateway(*pools) | more, None)}


def test_the_figures_above_say_the_limit_the_breaker_and_the_cost() -> None:
    assert facts(pool()) == {
        "tok/min": "61k, input 50% of 80k, 8.0k reserved, 2.0k outside", "breaker": "closed", "queue": "12s, 3 wait", "cost": "$1.50/5m",
    }  # fmt: skip
    assert facts(pool(exhausted_in_s=5.0))["breaker"] == "! closed, empty in 5s"
    open_one = pool(breaker="open", breaker_why="rate limited\x1b[2J", opens_in_s=90.0)
    assert facts(pool(), open_one)["breaker"] == "! OPEN rate limited\\x1b[2J, again in 1m30s"
    assert facts(pool(), tonight_usd=35.0, caps={"cost_per_night": 40.0})["cost"] == "! $35.00 of $40.00"
    assert facts()["tok/min"] == "61k", "no limit is known"
    idle = {"name": "output", "limit_per_minute": 16_000.0, "reserved": 0.0, "outside_per_minute": 0.0, "saturation": 0.9}
    nobodys = pool(in_flight=0, lane="anthropic/haiku-4", dimensions=[idle])
    gone = pool(account="old", in_flight=0, dimensions=[idle])
    seen = {**gateway(nobodys, gone, pool()), "accounts": ["sim"]}
    said = {fact.name: fact.value for fact in crew.facts(seen, None)}["tok/min"]
    assert said.startswith("61k, input 50% of 80k"), "a limit that nothing uses is not the one that counts"
    status = "\n".join(face._pools(seen, 200))
    assert "input" in status and "50%" in status and "90%" not in status, "the same number"
    assert [fact.name for fact in crew.facts({**gateway(), "running": False, "why": "gone"}, None)] == ["gateway", "cost"]


def test_what_an_agent_holds_and_whether_it_has_a_sandbox_is_in_its_own_page_and_not_in_its_row(tmp_path: Path) -> None:
    log = tmp_path / "runs" / RUN / "a" / "1" / "stdout.log"
    log.parent.mkdir(parents=True)
    log.write_text("step 4 of 9\n")
    one = view("a", tier=0, account={"memory": 306184192})
    assert status.detail(one, tmp_path) == "step 4 of 9"
    assert status.line(one, NOW, status.Layout(200, color=False), detail=status.detail(one, tmp_path)).endswith("title of a  step 4 of 9")
    assert dict(status.made_of(one))["isolation"].startswith("none (tier 0)")
    assert status.detail(replace(one, account={"warning": "it holds 3 GiB"}), tmp_path) == "it holds 3 GiB; step 4 of 9", "a reason to look"
