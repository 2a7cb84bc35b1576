"""`nightcrew pr`: what leaves the machine, and only when."""

from __future__ import annotations

from tests.cli.pulls.conftest import Person
from tests.support import git


def test_nothing_is_pushed_before_the_person_agreed_and_then_exactly_one_branch_is(person: Person) -> None:
    house, branch = person.house, str(person.house.task("mul").branch)
    before = git(person.bare, "for-each-ref")
    done = person.pr("mul")
    assert done.returncode == 8 and "--yes" in done.stderr and git(person.bare, "for-each-ref") == before
    said = person.ok("mul", "--yes")
    tip = git(house.repo, "rev-parse", branch)
    assert said["pushed"] and (said["commit"], said["branch"], said["remote"]) == (tip, branch, person.server.url())
    assert set(git(person.bare, "for-each-ref").splitlines()) == {*before.splitlines(), f"{tip} commit\trefs/heads/{branch}"}
    again = person.ok("mul")
    assert not again["pushed"]
