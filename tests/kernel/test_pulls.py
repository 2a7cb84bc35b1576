"""Pull requests: which push is allowed, what the description says, what comes back and how it is told, and the JSON of two hosts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.features.pull_requests import description, rules
from supervisor.features.pull_requests import remarks as pull_requests_remarks
from supervisor.features.pull_requests import rules as pull_requests_rules
from supervisor.features.pull_requests.description import BEGIN, END, Facts
from supervisor.features.pull_requests.forge import PAGE, Forge, Found, GitHub, GitLab, newest
from supervisor.features.pull_requests.remarks import PULL_REMARKS_LINES_MAX, PULL_REMARKS_TEXT_MAX, REMARKS_MAX, Remark
from supervisor.features.pull_requests.rules import Lease, PullRequest, State, Tool
from supervisor.kernel.errors import Refused, ToolFailed, UsageError

ONE, TWO, THREE = "1" * 40, "2" * 40, "3" * 40
KNOWN = PullRequest(1, "r/t", "p", "https://h/o/r", "b", "main", "", "", Tool.GH, 0, "", State.NONE, True, 0, 0.0)
FACTS = Facts("r/t", "Do it.", "Did it.", ONE, (), "make test: passed", True, ("2 files",))


@pytest.mark.parametrize(
    ("known", "there", "lease"),
    [
        (None, "", Lease("")), (None, ONE, None), (KNOWN, ONE, None), (replace(KNOWN, pushed=TWO), TWO, Lease(TWO)),
        (replace(KNOWN, intent=TWO), TWO, Lease(TWO)), (replace(KNOWN, pushed=TWO), "", Lease("")),
    ],
)  # fmt: skip
def test_what_we_pushed_may_be_moved(known: PullRequest | None, there: str, lease: Lease | None) -> None:
    assert pull_requests_rules.lease(known, "b", there, ONE) == lease


@pytest.mark.parametrize("known", [None, KNOWN, replace(KNOWN, intent=TWO), replace(KNOWN, pushed=TWO)])
def test_what_others_pushed_may_not(known: PullRequest | None) -> None:
    with pytest.raises(Refused, match="333333"):
        pull_requests_rules.lease(known, "b", THREE, ONE)


def test_a_branch_on_a_remote_has_a_short_name() -> None:
    assert pull_requests_rules.short_branch("1124-44p3/mul", taken=False) == "nightcrew/mul"
    assert pull_requests_rules.short_branch("1124-44p3/mul", taken=True) == "nightcrew/mul-44p3"


def test_what_has_ended_is_left_and_rounds_are_bounded() -> None:
    pull_requests_rules.refuse_ended(State.OPEN, "l")
    for state in (State.CLOSED, State.MERGED):
        with pytest.raises(Refused):
            pull_requests_rules.refuse_ended(state, "l")
    assert (pull_requests_rules.rounds(None), pull_requests_rules.rounds(7)) == (pull_requests_rules.ROUNDS_MAX, 7)
    for odd in (0, 101):
        with pytest.raises(UsageError):
            pull_requests_rules.rounds(odd)


def test_the_description_has_the_warnings_first_and_ends_with_trailers() -> None:
    body = description.body(replace(FACTS, warnings=tuple(f"w{number}" for number in range(40))))
    assert body.index("w0") < body.index("Do it.") < body.index("Did it.") < body.index("make test") < body.index("Nightcrew-Gate: passed")
    assert "- and 10 more" in body and body.startswith(BEGIN) and body.endswith(f"{END}\n")
    bare = description.body(replace(FACTS, prompt=" ", message="", gate="", gate_passed=False))
    assert "Asked for" not in bare and "no gate ran" in bare and "Nightcrew-Gate: none" in bare
    assert "Nightcrew-Gate: not passed" in description.body(replace(FACTS, gate_passed=False))
    assert "```` a```b ````" not in bare and "``a`b``" in description.body(replace(FACTS, notes=("a`b", "`a")))
    long = description.body(replace(FACTS, prompt="x\n" * 5000))
    assert len(long) < 3000 and "(cut)" in long


def test_a_title_is_one_line() -> None:
    assert description.title("\n  one\ntwo", "r/t") == "one" and description.title(" ", "r/t") == "r/t"
    assert len(description.title("x" * 500, "r/t")) == description.TITLE_MAX


@given(st.text(alphabet=st.sampled_from("@#!aA1-/<>`:htps\n "), max_size=80))
def test_no_word_of_a_stranger_leaves_its_fence_or_calls_anybody(words: str) -> None:
    body = description.body(replace(FACTS, prompt=f"@x {words}"))
    assert (body.count(BEGIN), body.count(END)) == (1, 1)
    fence = body.split("Asked for**\n\n")[1].partition("text\n")[0]
    inside = body.split(f"{fence}text\n")[1].partition(f"\n{fence}")[0]
    assert fence not in inside and "@x" not in inside
    again = description.inert(words)
    assert again.replace("\u200b", "") == words and description.inert(again) == again


def test_our_part_is_written_anew_and_a_persons_stays() -> None:
    new = description.body(replace(FACTS, commit=TWO))
    assert description.merged(f"Mine.\r\n{description.body(FACTS)}Mine.", new) == f"Mine.\n{new}Mine."
    assert description.merged(new, new) is None and description.merged("Mine.", new) is None and description.merged(BEGIN, new) is None


def remark(number: int, **facts: Any) -> Remark:
    return Remark(**{"key": f"k{number}", "kind": "comment", "author": "ann", "text": "text", "at": f"{number:04}", **facts})


def test_each_remark_is_given_once_the_oldest_first_and_within_bounds() -> None:
    found = [remark(number) for number in range(60, 0, -1)]
    first = pull_requests_remarks.chosen([*found, remark(70, insider=False)], (), everyone=False)
    assert [one.key for one in first.remarks] == [f"k{number}" for number in range(1, REMARKS_MAX + 1)]
    assert (first.later, first.outsiders) == (20, 1)
    rest = pull_requests_remarks.chosen(found, {one.key for one in first.remarks}, everyone=True)
    assert len(rest.remarks) == 20 and not rest.later
    large = pull_requests_remarks.chosen([remark(number, text="x" * 9000) for number in range(30)], (), everyone=True)
    assert 10 <= len(large.remarks) < 20 and large.later == 30 - len(large.remarks)


def test_remarks_are_quoted_as_a_strangers_words() -> None:
    long = pull_requests_remarks.cleaned(remark(2, text="y" * 9000, author="", place="", link="https://h/2"), str.upper)
    asked = pull_requests_remarks.Round(
        (remark(1, text="do\r\nthis\x1b\n\u202e", place="a.py:3", insider=False), long, remark(3, text="z\n" * 99)), 4, 0
    )
    text = pull_requests_remarks.prompt("r/t", "https://h/1", asked)
    assert "1. comment by ann, who may not write to this repository, a.py:3:\n    > do\n    > this\\x1b" in text
    assert (
        "2. comment (https://h/2):\n    > YYY" in text
        and text.count("Y") == PULL_REMARKS_TEXT_MAX
        and text.count("> z") == PULL_REMARKS_LINES_MAX
    )
    assert text.count("> (cut)") == 2 and "4 more came back" in text
    assert "One remark came back" in pull_requests_remarks.prompt("r/t", "l", pull_requests_remarks.Round((remark(1),), 0, 0))


HUB, LAB = GitHub(rules.parse("git@github.com:o/r.git")), GitLab(rules.parse("https://gitlab.com/g/s/r"))
PULL = {
    "number": 7, "html_url": "https://h/7", "state": "open", "draft": True, "head": {"ref": "b", "sha": ONE}, "base": {"ref": "main"},
    "title": "t", "body": None, "node_id": "PR_7", "merged_at": None,
}  # fmt: skip
MERGE = {
    "iid": 7, "web_url": "https://h/7", "state": "opened", "draft": True, "source_branch": "b", "target_branch": "main", "sha": ONE,
    "title": "Draft: t", "description": None,
}  # fmt: skip


def test_what_both_hosts_are_asked() -> None:
    hub, lab = HUB.read(PULL), LAB.read(MERGE)
    assert replace(hub, node="", title="") == replace(lab, title="") == Found(7, "https://h/7", State.OPEN, True, "b", "main", ONE, "", "")
    assert HUB.read({**PULL, "state": "closed", "merged_at": "2026"}).state is State.MERGED
    assert [LAB.read({**MERGE, "state": word}).state for word in ("locked", "closed", "merged")] == [State.OPEN, State.CLOSED, State.MERGED]
    assert HUB.search("a/b").path == f"repos/o/r/pulls?head=o%3Aa%2Fb&state=all&per_page={PAGE}"
    assert LAB.search("a/b").path == f"projects/g%2Fs%2Fr/merge_requests?source_branch=a%2Fb&state=all&per_page={PAGE}"
    assert HUB.create("b", "main", "t", "x", draft=True).body == {"title": "t", "head": "b", "base": "main", "body": "x", "draft": True}
    titles = [(LAB.create("b", "main", "t", "x", draft=draft).body or {})["title"] for draft in (True, False)]
    assert titles == ["Draft: t", "t"] and LAB.ready(lab).body == {"title": "t"}
    assert HUB.update(hub, "x").path == "repos/o/r/pulls/7" and LAB.update(lab, "x").body == {"description": "x"}
    assert (HUB.ready(hub).body or {})["variables"] == {"id": "PR_7"}
    assert HUB.lists(hub)[3].page(2).path == f"repos/o/r/commits/{ONE}/check-runs?per_page={PAGE}&page=2"
    assert LAB.lists(lab)[0].page(1).path.startswith("projects/g%2Fs%2Fr/members/all?")


@pytest.mark.parametrize("forge", [HUB, LAB])
@pytest.mark.parametrize("shape", [None, [], {}, {"number": "x"}, {**PULL, "state": "odd"}, {**MERGE, "state": "odd"}])
def test_an_answer_in_another_form_is_said(forge: Forge, shape: Any) -> None:
    with pytest.raises(ToolFailed, match="does not know"):
        forge.read(shape)
    with pytest.raises(ToolFailed, match="does not know"):
        forge.remarks({"line": [shape], "member": [], "note": [shape], "status": []})


def test_an_open_one_is_meant_before_the_known_one() -> None:
    old, new = HUB.read({**PULL, "state": "closed"}), HUB.read({**PULL, "number": 9})
    assert newest([old, new], 7) == new and newest([old], 7) == old and newest([old], 8) is None


def test_what_github_says() -> None:
    user = {"user": {"login": "ann"}, "author_association": "MEMBER", "html_url": "l"}
    found = HUB.remarks({
        "review": [{"id": 1, "state": "DISMISSED", "body": "x", **user}, {"id": 2, "state": "COMMENTED", "body": " x ", **user}],
        "line": [{"id": 3, "path": "a", "line": None, "original_line": None, "body": "x", "user": None, "author_association": "NONE"}],
        "check": [{"id": 4, "name": "n", "conclusion": "timed_out", "output": None}, {"id": 5, "name": "n", "conclusion": None}],
        "status": [{"id": 6, "context": "c", "state": "failure"}, {"id": 7, "context": "c", "state": "success"}],
        "comment": [{"id": 8, "body": "", **user}],
    })  # fmt: skip
    assert [(one.key, one.author, one.place, one.insider) for one in found] == [
        ("review/2", "ann", "", True), ("line/3", "somebody", "a", False), ("check/4", "", "", True), ("status/6", "", "", True),
    ]  # fmt: skip


def test_what_gitlab_says() -> None:
    notes = [{"notes": [{"id": 1, "body": "x", "author": {"username": "ann"}}, {"id": 2, "body": "assigned", "system": True}]}]
    jobs = [{"id": 3, "name": "n", "status": "failed"}, {"id": 4, "name": "n", "status": "failed", "allow_failure": True}]
    found = LAB.remarks({"member": [{"username": "ann", "access_level": 30}], "note": notes, "status": jobs})
    assert [(one.key, one.insider) for one in found] == [("note/1", True), ("status/3", True)]
