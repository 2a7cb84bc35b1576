"""Trains and groups of candidates as rows, with what to type."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from supervisor.features.landing.rows import Trains
from supervisor.features.landing.rules import Entry, EntryState, Gate, GateState, Train, TrainState
from supervisor.host.paths import Home
from supervisor.kernel.errors import NotFound
from supervisor.kernel.spec import TaskSpec
from supervisor.kernel.train_orders import Orders, Person, Terms
from supervisor.store.ledger import Ledger
from supervisor.views.web import pages
from tests.store.kit import spec, submission, submit, whole
from tests.views.web.elements import cells, commands, every, leads, rows, text

PROJECT = "0123456789ab"
GATE = TaskSpec("gate", "gate", "landing-gate", ("true",))
ORDERS = Orders("/repo", "/repo/.git", Terms("train-1", Person("A", "a@example.org"), 1.0), GATE).to_json()
ENTRIES = (
    Entry(1, "r/one", 1, "c1", title="<b>one</b>", state=EntryState.PASSED, gates=(1,)),
    Entry(2, "r/two", 1, "c2", state=EntryState.EJECTED, reason="its gate failed", gates=(2,)),
    Entry(3, "r/three", 1, "c3", state=EntryState.REPAIRING, repair="r/mend", reason="conflict", files=("a.py",)),
)
GATES = (
    Gate(1, "tree", "c1", "make test", state=GateState.PASSED, task="g/1"),
    Gate(2, "tree2", "c2", "make test", state=GateState.FAILED, task="g/2"),
)


def shown(page: dict[str, Any]) -> list[list[Any]]:
    """The trains of a page."""
    return [node for node in page["nodes"] if node[1].get("class") == "train"]


def train(name: str = "train-1", branch: str = "main it's") -> Train:
    return Train(name, PROJECT, branch, "base", ("make test",), entries=ENTRIES, gates=GATES)


def begun(ledger: Ledger, one: Train) -> Train:
    ledger.of(Trains).begin(one, ORDERS)
    return one


def test_without_a_project_it_says_so(home: Home, ledger: Ledger) -> None:
    with pytest.raises(NotFound, match="no project yet"):
        pages.trains(home, {})


def test_each_result_is_a_row_with_what_shows_more_of_it(home: Home, ledger: Ledger) -> None:
    submit(ledger, "a")
    begun(ledger, train())
    [found] = shown(pages.trains(home, {}))
    assert commands(found)[0] == "nightcrew land --follow --into 'main it'\"'\"'s'"
    entries = rows({"nodes": [found]}, "Results of train-1")
    assert [(one["Task"], one["State"], one["To type"]) for one in entries] == [
        ("r/one", "D passed", ""),
        ("r/two", "F ejected", "nightcrew logs g/2"),
        ("r/three", "W repairing", "nightcrew attach r/mend"),
    ]
    assert entries[0]["Title"] == "<b>one</b>"


@pytest.mark.parametrize(
    ("state", "by_hand", "typed"),
    [
        (TrainState.STOPPED, "git reset --hard c9", ["git reset --hard c9", "nightcrew land --resume --into dev"]),
        (TrainState.STOPPED, "", ["nightcrew land --resume --into dev"]),
        (TrainState.EMPTY, "", ["nightcrew review r/two"]),
    ],
)
def test_what_to_type_follows_from_its_state(home: Home, ledger: Ledger, state: TrainState, by_hand: str, typed: list[str]) -> None:
    submit(ledger, "a")
    old = begun(ledger, train(branch="dev"))
    ledger.of(Trains).save(old, replace(old, state=state, by_hand=by_hand))
    [found] = shown(pages.trains(home, {}))
    assert commands(found)[: len(typed)] == typed


def test_the_newest_first_a_page_at_a_time_and_of_one_project(home: Home, ledger: Ledger) -> None:
    submit(ledger, "a")
    ledger.submit(submission("b", key="other", project="ba9876543210", root="/other/place"), "0801-bbbb")
    for number in range(pages.TRAINS + 2):
        begun(ledger, train(f"train-{number}", branch=f"b{number}"))
    [newest] = [one for one in every(pages.trains(home, {})) if one[0] == "option" and one[1].get("selected")]
    assert newest[1]["value"] == "?project=ba9876543210", "the one that was used last"
    first = pages.trains(home, {"project": PROJECT})
    names = [text(one[2]).split()[0] for one in shown(first)]
    assert names == [f"train-{number}" for number in range(pages.TRAINS + 1, 1, -1)]
    rest = pages.trains(home, leads(first, "Older trains"))
    assert [text(one[2]).split()[0] for one in shown(rest)] == ["train-1", "train-0"] and not leads(rest, "Older trains")
    assert [text(one).split()[0] for one in every(first) if one[0] == "option"] == ["place", "repo"]
    with pytest.raises(NotFound):
        pages.trains(home, {"project": "<script>"})


def test_a_long_train_has_as_many_rows_as_a_page_has_room_for(home: Home, ledger: Ledger) -> None:
    submit(ledger, "a")
    many = tuple(Entry(number, f"r/{number}", 1, "c") for number in range(1, pages.ENTRIES + 6))
    begun(ledger, replace(train(), entries=many, gates=()))
    page = pages.trains(home, {})
    assert len(cells(page, "Results of train-1")) == pages.ENTRIES and "and 5 more: nightcrew land --status" in text(page["nodes"][0])


def test_a_group_of_candidates_is_rows_with_what_to_type(home: Home, ledger: Ledger) -> None:
    tries = [spec(name, candidate_of="fix") for name in ("fix-1", "fix-2")]
    submit(ledger, *tries, spec("fix", after=("fix-1", "fix-2"), decide="person"))
    ledger.commit(whole("0731-aaaa/fix-1"))
    ledger.commit(whole("0731-aaaa/fix-2"))
    page = pages.trains(home, {})
    [group] = [one for one in every(page) if one[1].get("class") == "group"]
    assert [text(one) for one in group[2:4]] == ["0731-aaaa/fix a waiting", "a person chooses"]
    assert commands(group) == ["nightcrew diff 0731-aaaa/fix-1", "nightcrew choose 0731-aaaa/fix fix-1"]
    assert len(cells(page, "Candidates of 0731-aaaa/fix")) == 2
