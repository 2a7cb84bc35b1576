"""Conflicts are seen while agents work, and told once: to the two agents, and to a person."""

from __future__ import annotations

import json
from typing import Any

from supervisor.ledger import conflict_book
from tests.support import House, git, plan_of, shell_task, wait_until

COMMIT = "git add -A && git -c user.name=a -c user.email=a@b commit -qm x"


def told(house: House, task: str) -> list[dict[str, Any]]:
    shape = json.loads(house.ok("status", task, "--json"))
    return [entry["data"] for entry in shape["journal"] if entry["event"] == "conflict"]


def mails(house: House, task: str) -> list[str]:
    found = json.loads(house.ok("mail", "ls", "--all", "--of", task, "--json"))["mails"]
    return [one["subject"] for one in found if one["type"] == "info" and one["from"] == "supervisor"]


def test_two_agents_at_work_are_told_once_and_a_person_sees_it(house: House) -> None:
    house.start_daemon()
    live = [shell_task(name, f"echo {name} > same && {COMMIT}; sleep 600") for name in ("one", "two")]
    live += [shell_task("far", f"echo far > far && {COMMIT}; sleep 600")]
    house.ok("run", "-d", house.plan(plan_of(live)))
    wait_until(lambda: house.state("two") == "running", "them to run")
    one, two, far = (house.task(name).id for name in ("one", "two", "far"))
    wait_until(lambda: told(house, one) and told(house, two), "the conflict to be told")
    assert told(house, one) == [{"with": two, "in": "same", "commit": ""}] and told(house, two)[0]["with"] == one
    wait_until(lambda: mails(house, one) == [f"conflict with {two}"] and mails(house, two) == [f"conflict with {one}"], "their mail")
    assert "conflicts with two in same" in house.ok("status", "one")
    assert json.loads(house.ok("status", "--json"))["conflicts"].keys() == {one, two}
    (house.repo / "far").write_text("mine\n")
    git(house.repo, "add", "-A")
    git(house.repo, "commit", "-qm", "mine")
    wait_until(lambda: told(house, far), "the conflict with the checkout to be told")
    assert told(house, far) == [{"with": "main", "in": "far", "commit": git(house.repo, "rev-parse", "HEAD")[:12]}]
    house.ok("down")
    house.start_daemon()
    (house.repo / "more").write_text("a look that is seen\n")
    git(house.repo, "add", "-A")
    git(house.repo, "commit", "-qm", "more")
    head, book = git(house.repo, "rev-parse", "HEAD"), next(house.home.root.glob("projects/*/conflicts.json"))
    wait_until(lambda: conflict_book.load(book).matrix.base == head, "a look after the restart")
    assert [len(told(house, task)) for task in (one, two, far)] == [1, 1, 1]
    assert [len(mails(house, task)) for task in (one, two, far)] == [1, 1, 1]
