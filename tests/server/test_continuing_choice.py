"""Which conversation an attempt goes on with, from what the ledger knows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from agents.kinds import kinds
from supervisor.host.paths import Home
from supervisor.kernel.conversations import COULD_NOT, How, Origin
from supervisor.kernel.errors import HostError, Refused
from supervisor.kernel.spec import TaskSpec
from supervisor.sandbox import homes
from supervisor.server.attempts import continuing
from supervisor.store.conversations import Before, Held
from supervisor.store.rows import LaunchRow

SPEC = TaskSpec("a", "a", "claude", (), prompt="x")
LOST = Held("run/a", 1, "s", None, "lost", "its runner died", "c0ffee", "")
PARENT = Held("run/p", 1, "p", None, "done", "", "beef", "")


def launch(spec: TaskSpec = SPEC, home: str = "/nowhere") -> LaunchRow:
    return LaunchRow(spec, "run", "base", "/r", "/r/.git", "p", {"HOME": home}, 0.0)


def chosen(before: Before, spec: TaskSpec = SPEC) -> list[tuple[How, str]]:
    return [(how, had[0].session) for how, had in continuing.wanted(launch(spec), kinds()[spec.kind], before, missed=False)]


def test_a_loss_and_a_spent_limit_go_on_and_other_ends_do_not() -> None:
    for held, goes_on in (
        (LOST, True),
        (replace(LOST, end_cause=f"{COULD_NOT}: no transcript"), False),
        (replace(LOST, end="failed", reason="api_error 429: rate limit"), True),
        (replace(LOST, end="failed", reason="max_turns"), False),
        (replace(LOST, end="timeout"), False),
        (replace(LOST, end="cancelled"), False),
    ):
        assert chosen(Before([held], [])) == ([(How.RESUME, "s")] if goes_on else []), held
    assert chosen(Before([LOST], []), replace(SPEC, on_loss="restart")) == []
    assert chosen(Before([LOST], []), replace(SPEC, kind="aider")) == []
    assert chosen(Before([LOST], []), replace(SPEC, kind="codex", interactive=True)) == []


def test_a_copy_that_was_lost_goes_on_and_else_is_copied_again() -> None:
    copy = replace(SPEC, continue_from="p")
    assert chosen(Before([LOST], [PARENT]), copy) == [(How.RESUME, "s"), (How.FORK, "p")]
    assert chosen(Before([replace(LOST, end="failed")], [PARENT]), copy) == [(How.FORK, "p")]


def test_it_goes_on_where_the_transcript_and_the_work_are(tmp_path: Path) -> None:
    file = tmp_path / ".claude" / "projects" / "-r" / "s.jsonl"
    never_ran = replace(LOST, epoch=2, tip="")
    row, state = launch(home=str(tmp_path)), Home(tmp_path / "state")
    with pytest.raises(Refused, match="cannot continue"):
        continuing.origin(state, row, How.RESUME, [never_ran, LOST])
    file.parent.mkdir(parents=True)
    file.write_text("{}\n")
    assert continuing.origin(state, row, How.RESUME, [never_ran, LOST]) == Origin(How.RESUME, "s", "run/a", 2, "c0ffee")
    file.unlink()
    file.symlink_to("/etc/passwd")
    with pytest.raises(Refused):
        continuing.origin(state, row, How.RESUME, [LOST])
    for had in ([], [never_ran]):
        with pytest.raises(Refused):
            continuing.origin(state, row, How.RESUME, had)
    with pytest.raises(Refused):
        continuing.origin(state, launch(replace(SPEC, kind="shell")), How.RESUME, [LOST])


def test_its_own_place_for_transcripts_goes_before_the_home(tmp_path: Path) -> None:
    file = tmp_path / "config" / "projects" / "-r" / "s.jsonl"
    file.parent.mkdir(parents=True)
    file.write_text("{}\n")
    row = replace(launch(), env={"HOME": "/nowhere", "CLAUDE_CONFIG_DIR": str(tmp_path / "config")})
    assert continuing.origin(Home(tmp_path), row, How.FORK, [LOST]).session == "s"


@pytest.mark.parametrize("pattern", ["{out}/{session}.jsonl", "{out}/talks/of/{session}.jsonl", "{out}/talk.jsonl"])
def test_a_transcript_among_the_records_is_copied_for_the_next_attempt(tmp_path: Path, pattern: str) -> None:
    kind = replace(kinds()["claude"], transcript=(pattern,))
    home, name = Home(tmp_path), pattern.removeprefix("{out}/").replace("{session}", "s")
    file = home.attempt("run/a", 1) / "out" / name
    assert not continuing._has(home, launch(), kind, LOST)
    file.parent.mkdir(parents=True)
    file.write_text("one\ncut")
    assert continuing._has(home, launch(), kind, LOST)
    home.attempt("run/a", 2).mkdir(parents=True)
    continuing.hand_on(home, ("run/a", 2), kind, Origin(How.RESUME, "s", "run/a", 1, "c0ffee"), {})
    assert (home.attempt("run/a", 2) / "out" / name).read_text() == "one\n"
    with file.open("r+") as large:
        large.truncate(continuing.TRANSCRIPT_MAX + 1)
    assert not continuing._has(home, launch(), kind, LOST), "too large to be handed on: it begins anew"


@pytest.mark.parametrize("link", ["talks", "talks/talk.jsonl"])
def test_a_transcript_among_the_records_is_read_through_no_link(tmp_path: Path, link: str) -> None:
    """An agent puts one to another agent's conversation there, to be given that one in its next attempt."""
    home, kind = Home(tmp_path), replace(kinds()["claude"], transcript=("{out}/talks/talk.jsonl",))
    others = home.attempt("run/b", 1) / "out" / "talks" / "talk.jsonl"
    others.parent.mkdir(parents=True)
    others.write_text("secret\n")
    own = home.attempt("run/a", 1) / "out" / link
    own.parent.mkdir(parents=True)
    own.symlink_to(others if link.endswith(".jsonl") else others.parent)
    assert not continuing._has(home, launch(), kind, LOST)
    home.attempt("run/a", 2).mkdir(parents=True)
    with pytest.raises(HostError, match="cannot hand on"):
        continuing.hand_on(home, ("run/a", 2), kind, Origin(How.RESUME, "s", "run/a", 1, "c0ffee"), {})
    assert not (home.attempt("run/a", 2) / "out" / "talks" / "talk.jsonl").exists()


SAID = ".claude/projects/-r/s.jsonl"


def copied_home(state: Home, person: Path, epoch: int) -> Path:
    """An attempt with its copy of a home, as a confined one has it; the copy of that home."""
    attempt = state.attempt("run/a", epoch)
    attempt.mkdir(parents=True)
    homes.prepare(attempt, homes.find(person, {}, ()), gives_back=True)
    return attempt / "home" / str(person.resolve()).lstrip("/")


def test_the_transcript_of_a_confined_agent_is_in_its_copy_of_the_home_and_is_handed_on(tmp_path: Path) -> None:
    person, state, kind = tmp_path / "person", Home(tmp_path / "state"), kinds()["claude"]
    (person / ".claude").mkdir(parents=True)
    row, origin = launch(home=str(person)), Origin(How.RESUME, "s", "run/a", 1, "c0ffee")
    own = [copied_home(state, person, epoch) for epoch in (1, 2)]
    assert not continuing._has(state, row, kind, LOST)
    (own[0] / SAID).parent.mkdir(parents=True)
    (own[0] / SAID).write_text("one\ncut")
    assert continuing._has(state, row, kind, LOST)
    kept = "projects/-r/s/tool-results/long.txt"
    (own[0] / ".claude" / kept).parent.mkdir(parents=True)
    (own[0] / ".claude" / kept).write_text("long")
    (own[0] / ".claude" / kept).with_name("link.txt").symlink_to("/etc/passwd")
    continuing.hand_on(state, ("run/a", 2), kind, origin, row.env)
    assert (own[1] / SAID).read_text() == "one\n"
    assert (own[1] / ".claude" / kept).read_text() == "long", "what the transcript speaks of comes along"
    assert [file.name for file in (own[1] / ".claude" / kept).parent.iterdir()] == ["long.txt"]
    (own[1] / SAID).write_text("one\ntwo\n")
    continuing.hand_on(state, ("run/a", 2), kind, origin, row.env)
    assert (own[1] / SAID).read_text() == "one\ntwo\n", "its agent may have begun before a crash of ours"
    assert list((person / ".claude").iterdir()) == [], "nothing of it is in the person's home"


def test_a_conversation_goes_into_a_sandbox_and_out_of_it(tmp_path: Path) -> None:
    person, state, kind = tmp_path / "person", Home(tmp_path / "state"), kinds()["claude"]
    (person / SAID).parent.mkdir(parents=True)
    (person / SAID).write_text("one\n")
    own = copied_home(state, person, 2)
    assert not (own / SAID).exists()
    continuing.hand_on(state, ("run/a", 2), kind, Origin(How.RESUME, "s", "run/a", 1, "c0ffee"), {"HOME": str(person)})
    assert (own / SAID).read_text() == "one\n"
    (own / SAID).write_text("one\ntwo\n")
    state.attempt("run/a", 3).mkdir(parents=True)
    origin = Origin(How.FORK, "s", "run/a", 2, "c0ffee")
    continuing.hand_on(state, ("run/a", 3), kind, origin, {"HOME": str(person)})
    assert (person / SAID).read_text() == "one\n", "a file of the person's stays"
    (person / SAID).unlink()
    continuing.hand_on(state, ("run/a", 3), kind, origin, {"HOME": str(person)})
    assert (person / SAID).read_text() == "one\ntwo\n", "where an agent without a sandbox looks"


@pytest.mark.parametrize("link", ["projects", "projects/-r", "projects/-r/s.jsonl"])
def test_a_transcript_in_a_copy_is_read_through_no_link(tmp_path: Path, link: str) -> None:
    person, state, kind = tmp_path / "person", Home(tmp_path / "state"), kinds()["claude"]
    (person / ".claude").mkdir(parents=True)
    others = tmp_path / "others" / "projects" / "-r" / "s.jsonl"
    others.parent.mkdir(parents=True)
    others.write_text("secret\n")
    own = copied_home(state, person, 1) / ".claude" / link
    own.parent.mkdir(parents=True, exist_ok=True)
    own.symlink_to(tmp_path / "others" / link)
    assert not continuing._has(state, launch(home=str(person)), kind, LOST)
    new = copied_home(state, person, 2)
    continuing.hand_on(state, ("run/a", 2), kind, Origin(How.RESUME, "s", "run/a", 1, "c0ffee"), {"HOME": str(person)})
    assert not (new / SAID).exists()
