"""Results that would rather not be judged. Each trial quotes the sentence of the documents that it holds us to."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import pytest

from tests.landing.independent.victim import HIDING, Victim
from tests.support import git


def unseen(text: str) -> set[str]:
    """Letters that drive a terminal, or turn what it shows; a zero-width space keeps hosts from calling people."""
    return {each for each in text if each not in "\n\u200b" and unicodedata.category(each) in ("Cc", "Cf", "Zl", "Zp", "Cs")}


@pytest.mark.parametrize(
    "names",
    [HIDING, pytest.param(("linked", "renamed", "target"), marks=pytest.mark.soak)],
    ids=lambda names: names[0],
)
def test_no_result_lands_by_what_it_did_to_its_gate(victim: Victim, names: tuple[str, ...]) -> None:
    """Of a train: "A gate that a result weakened runs twice: as the result left it, and with what it changed in ... what the gate runs
    ... as it was before. Both must pass"."""
    victim.hide(names)
    train = victim.json("land", *names)
    told = {entry["task"].rpartition("/")[2]: (entry["state"], entry["reason"]) for entry in train["entries"]}
    assert {name: state for name, (state, _) in told.items()} == dict.fromkeys(names, "ejected"), told
    assert git(victim.repo, "rev-parse", "main") == victim.base
    for name in names:
        assert any(flag["weakens"] for flag in victim.json("review", name)["flags"]), name


def test_no_author_writes_the_trailers_of_a_train(victim: Victim) -> None:
    """Of commits: "in the trailers they say `Nightcrew-Task`, `Nightcrew-Train` and `Nightcrew-Gate`"."""
    for method in ("rebase", "squash"):
        train = victim.json("land", "words", "--no-gate", "--method", method)
        assert train["state"] == "landed", train
        form = "--format=%(trailers:only,unfold)"
        lines = git(victim.repo, "log", "-1", form, "main").splitlines()
        ours = [line for line in lines if line.lower().startswith("nightcrew-")]
        task = victim.house.task("words").id
        assert ours == [f"Nightcrew-Task: {task}", f"Nightcrew-Train: {train['train']}", "Nightcrew-Gate: none"], (method, lines)
        assert ("Reviewed-by: Person <p@x>" in lines) == (method == "rebase")
        victim.back()


def test_what_agents_call_things_drives_no_terminal(victim: Victim) -> None:
    """Of text from outside: "What is shown has control characters and direction overrides escaped"."""
    for words in (
        ("review",), ("review", "words"), ("review", "words", "--stat"), ("conflicts",), ("land", "--ready", "--dry-run"),
        ("pr", "words", "--dry-run"), ("clean",), ("status", "words"),
    ):  # fmt: skip
        assert unseen(victim.shown(*words)) == set(), words
    body = victim.shown("pr", "words", "--dry-run")
    written = body.partition("<!-- nightcrew: what follows")[2]
    assert "@maintainer" not in written and "#1" not in written and written.count("<!-- nightcrew: end -->") == 1
    assert [line for line in body.splitlines() if line.startswith("Nightcrew-Gate")] == ["Nightcrew-Gate: passed"]
    assert not (victim.repo / "pwned").exists()


def test_no_line_of_a_result_becomes_a_comment_of_the_person(victim: Victim) -> None:
    """Of the editor: "write below a line, each of your lines with a `#` at its beginning"; who wrote nothing said nothing."""
    victim.house.run("review", "words", "--edit", env={"EDITOR": "true", "VISUAL": "true"})
    assert victim.json("review", "words")["comments"] == []


def test_a_gate_has_judged_the_commit_that_it_ran_on_and_no_other(victim: Victim) -> None:
    """Of verdicts: they "hold for the commit that the result is now"; so does what a review and a pull request say of the gate."""
    victim.house.ok("review", "swapped", "--accept")
    judged = git(victim.repo, "rev-parse", victim.branch("swapped"))
    assert "gate: true: passed" in victim.house.ok("review", "swapped", "--stat")
    swapped = git(victim.repo, "commit-tree", "-p", judged, "-m", "swapped", f"{victim.branch('script')}^{{tree}}")
    git(victim.repo, "update-ref", f"refs/heads/{victim.branch('swapped')}", swapped)
    said = victim.house.ok("review", "swapped", "--stat")
    assert f"gate: true: it has not run on this commit, but on {judged[:12]}" in said and "gate: true: passed" not in said
    assert f"accepted, as of {judged[:12]}; it has changed since" in said
    body = victim.shown("pr", "swapped", "--dry-run")
    assert f"Nightcrew-Commit: {swapped}\nNightcrew-Gate: not passed" in body
    assert victim.json("land", "swapped")["entries"][0]["state"] == "ejected", "nobody accepted what it is now"


def test_a_gate_that_ruins_its_repository_is_left_out_and_stops_nobody(victim: Victim) -> None:
    """Of a train: "What conflicts or does not pass is left out"; of stopping: "nothing that an agent started outlives its attempt"."""
    if not victim.tier:
        pytest.skip("its repository is the person's where no sandbox works")
    before = (victim.repo / ".git/config").read_bytes()
    train = victim.json("land", "ruins", "other", "--gate", "test ! -f g.sh || sh g.sh")
    states = {entry["task"].rpartition("/")[2]: entry["state"] for entry in train["entries"]}
    assert states == {"ruins": "ejected", "other": "landed"}, train
    assert train["state"] == "landed", train
    assert git(victim.repo, "diff", "--name-only", victim.base, "main").splitlines() == ["-rf", "a.txt"]
    assert (victim.repo / ".git/config").read_bytes() == before
    agents = [pid for pid in victim.house.tagged() if b"4242" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    assert agents == []
    victim.back()


def test_another_object_in_the_place_of_one_is_not_shown(victim: Victim) -> None:
    """Of a pull request: "Exactly one commit"; what is shown of it is what is pushed, whatever `refs/replace` says."""
    tip = git(victim.repo, "rev-parse", victim.branch("other"))
    innocent = git(victim.repo, "commit-tree", "-p", victim.base, "-m", "innocent", f"{victim.base}^{{tree}}")
    shown = victim.house.ok("review", "other")
    git(victim.repo, "replace", tip, innocent)
    assert victim.house.ok("review", "other") == shown
    git(victim.repo, "replace", "-d", tip)


def test_what_the_repository_alone_says_runs_nothing_and_sends_nothing_elsewhere(victim: Victim) -> None:
    """Of a push: "What is set for the *repository alone* has no effect"; of nightcrew's git: "hooks, filters, external diffs, signing,
    aliases, credential helpers, pagers, editors and every transport switched off"."""
    victim.poison()
    for words in (
        ("review",), ("review", "words"), ("diff", "words"), ("conflicts",), ("land", "other", "--no-gate"), ("take", "other"), ("clean",),
        ("restore", "other", "--worktree", str(victim.root / "restored")), ("review", "other", "--reject"), ("pr", "words", "--yes"),
    ):  # fmt: skip
        victim.house.run(*words)
        assert sorted(hit.name for hit in victim.hits.iterdir()) == [], words
    there = git(victim.remote, "for-each-ref", "--format=%(refname)").splitlines()
    assert there == ["refs/heads/main", "refs/heads/nightcrew/words"]
    assert git(victim.remote, "rev-parse", "main") == victim.base
    assert git(victim.root / "evil.git", "for-each-ref") == ""
    assert git(victim.repo, "rev-parse", "main") == victim.base
