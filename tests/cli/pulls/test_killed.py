"""`nightcrew pr` killed at each of its steps, and given again: one branch, one pull request."""

from __future__ import annotations

import json

import pytest

from tests.cli.pulls.conftest import Person
from tests.support import git

STEPS = ("pr.intended", "pr.pushed", "pr.noted", "pr.opened")


@pytest.mark.in_turns
@pytest.mark.parametrize("step", STEPS)
def test_it_is_given_again_and_goes_on(person: Person, step: str) -> None:
    person.install("gh")
    branch = f"killed-at-{step}"
    words = ("mul", "--yes", "--branch", branch, "--with", "gh")
    assert person.pr(*words, env={"NIGHTCREW_DIE_AT": step}).returncode == -9
    said = person.ok(*words)
    tip = git(person.house.repo, "rev-parse", str(person.house.task("mul").branch))
    assert person.there(branch) == tip and said["state"] == "open"
    assert len([one for one in person.pulls() if one["head"]["ref"] == branch]) == 1
    assert json.loads(person.pr("ls", "--json").stdout)["pull_requests"][0]["pushed"] == tip, "a push whose end nobody heard is ours"


def test_killed_between_the_pull_request_and_hearing_of_it(person: Person) -> None:
    person.install("gh")
    words = ("mul", "--yes", "--branch", "unheard-of", "--with", "gh")
    assert person.pr(*words, env={"FORGE_MODE": "after-create"}).returncode == -9
    assert person.ok(*words)["state"] == "open"
    assert len([one for one in person.pulls() if one["head"]["ref"] == "unheard-of"]) == 1
