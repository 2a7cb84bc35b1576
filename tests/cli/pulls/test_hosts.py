"""`gh` and `glab`: one pull request for a branch, and what is said where they cannot."""

from __future__ import annotations

import json

import pytest

from supervisor.features.pull_requests.description import BEGIN, END
from tests.cli.pulls.conftest import Person
from tests.support import git

MUTE = "\u200b"


def test_gh_opens_one_draft_and_brings_it_up_to_date(person: Person) -> None:
    person.install("gh")
    first = person.ok("agent", "--yes", "--branch", "with-gh", "--with", "gh")
    mine = person.pulls()[first["number"] - 1]
    assert (first["draft"], first["state"], mine["draft"], mine["base"]["ref"]) == (True, "open", True, "main")
    person.edit(first["number"], body=f"Mine above.\r\n{mine['body']}Mine below.", title="A better title")
    ready = person.ok("agent", "--branch", "with-gh", "--ready")
    mine = person.pulls()[first["number"] - 1]
    assert ready["draft"] is False and mine["draft"] is False and mine["title"] == "A better title"
    assert mine["body"].startswith("Mine above.") and mine["body"].endswith("Mine below.") and mine["body"].count(BEGIN) == 1
    person.edit(first["number"], body="All of it is mine.")
    done = person.pr("agent", "--branch", "with-gh")
    assert "somebody took our part out of it" in done.stderr and person.pulls()[first["number"] - 1]["body"] == "All of it is mine."
    assert len([one for one in person.pulls() if one["head"]["ref"] == "with-gh"]) == 1
    shown = json.loads(person.pr("agent", "--status", "--json").stdout)
    assert (shown["number"], shown["state"], shown["draft"], shown["pushed"]) == (first["number"], "open", False, first["commit"])
    listed = json.loads(person.pr("ls", "--json").stdout)["pull_requests"]
    assert first["link"] in [one["link"] for one in listed] and first["link"] in person.pr("ls").stdout
    person.edit(first["number"], state="closed", merged_at="2026-01-01T00:00:00Z")
    done = person.pr("agent", "--branch", "with-gh")
    assert done.returncode == 6 and "is merged" in done.stderr
    for call in map(json.loads, person.log.read_text().splitlines()):
        assert call["cwd"] == str(person.house.home.root / "git" / "empty") and "Done as" not in " ".join(call["argv"])


def test_what_a_stranger_wrote_calls_nobody_and_closes_nothing(person: Person) -> None:
    said = person.ok("agent", "--dry-run")
    body = said["body"]
    for live in ("@someone", "fixes #3", "\n/close", "https://", "sk-ant-canary", f"asked. {END}"):
        assert live not in body, live
    assert f"@{MUTE}someone" in body and f"#{MUTE}3" in body and body.count(END) == 1
    assert "````text" in body, "the fence is longer than what it holds"
    assert "Asked for" not in person.ok("agent", "--dry-run", "--no-prompt")["body"]


def test_glab_opens_one_draft_and_makes_it_ready(person: Person) -> None:
    person.install("glab")
    person.forge = person.root / "gitlab.json"
    try:
        first = person.ok("agent", "--yes", "--branch", "with-glab", "--with", "glab")
        assert person.pulls()[0]["title"].startswith("Draft: ") and (first["number"], first["draft"]) == (1, True)
        assert person.ok("agent", "--branch", "with-glab", "--ready")["draft"] is False
        assert not person.pulls()[0]["title"].startswith("Draft: ") and len(person.pulls()) == 1
        person.edit(1, state="closed")
        assert "is closed" in person.pr("agent", "--branch", "with-glab").stderr
    finally:
        person.forge = person.root / "forge.json"


@pytest.mark.parametrize(
    ("mode", "code", "why"),
    [
        ("login", 8, "gh auth login"), ("bad-login", 8, "Bad credentials"), ("limit", 1, "repeat the command later"),
        ("offline", 1, "error connecting"), ("old", 2, "too old"), ("noise", 1, "did not answer with JSON"),
    ],
)  # fmt: skip
def test_what_keeps_gh_from_answering_is_said_and_nothing_is_pushed(person: Person, mode: str, code: int, why: str) -> None:
    person.install("gh")
    done = person.pr("mul", "--yes", "--branch", "unheard", "--with", "gh", env={"FORGE_MODE": mode})
    assert (done.returncode, why in done.stderr) == (code, True), done.stderr
    assert "\x1b" not in done.stderr and not person.there("unheard")


def test_a_repository_that_the_host_does_not_know(person: Person) -> None:
    person.install("gh")
    person.server.make(person.house.repo, "owner/unknown")
    git(person.house.repo, "remote", "add", "unknown", person.server.url("owner/unknown"))
    try:
        done = person.pr("mul", "--yes", "--remote", "unknown", "--with", "gh")
    finally:
        git(person.house.repo, "remote", "remove", "unknown")
    assert done.returncode == 4 and "Not Found" in done.stderr


def test_who_is_logged_in_there_opens_it_and_else_there_is_a_link(person: Person) -> None:
    person.install("gh", "glab")
    person.config.write_text(
        person.config.read_text() + f'[url "{person.server.url("owner/")[:-4]}"]\n\tinsteadOf = https://codeberg.org/o/\n'
    )
    assert person.ok("mul", "--yes", "--branch", "by-login", "--dry-run")["tool"] == "link"
    knows = json.loads(person.pr("mul", "--branch", "by-login", "--dry-run", "--json", env={"FORGE_KNOWS": "glab"}).stdout)
    assert knows["tool"] == "glab"
