"""Conflicts are seen while agents work, and told once: to the two agents, and to a person."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from agents import hook_client
from supervisor.host import attempt_tokens, secrets
from supervisor.results import conflicts
from tests.support import House, git, plan_of, shell_task, wait_until

COMMIT = "git add -A && git -c user.name=a -c user.email=a@b commit -qm x"


def told(house: House, task: str) -> list[dict[str, Any]]:
    shape = json.loads(house.ok("status", task, "--json"))
    return [entry["data"] for entry in shape["journal"] if entry["event"] == "conflict"]


def mails(house: House, task: str) -> list[str]:
    found = json.loads(house.ok("mail", "ls", "--all", "--of", task, "--json"))["mails"]
    return [one["subject"] for one in found if one["type"] == "info" and one["from"] == "supervisor"]


def hook(house: House, tmp_path: Path, name: str) -> str:
    """Return the output of the hook of an agent's command line before a tool."""
    event = {"tool_name": "Read", "tool_input": {}, "session_id": "s"}
    whose = attempt_tokens.derive(secrets.own(house.home.secret), house.task(name).id, house.task(name).epoch)
    env = {"NIGHTCREW_AGENTS_SOCKET": str(house.home.agents_socket), "NIGHTCREW_TOKEN": whose}
    client = hook_client.program(tmp_path)
    done = subprocess.run([client, "PreToolUse"], input=json.dumps(event).encode(), env=env, capture_output=True, timeout=30, check=True)
    return str(json.loads(done.stdout)["hookSpecificOutput"]["additionalContext"]) if done.stdout else ""


def test_two_agents_at_work_conflict_and_a_person_sees_it_once(house: House, tmp_path: Path) -> None:
    """The agents are told too, since the settings say so."""
    house.config.write_text("[memory]\ntell_conflicts = true\n")
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
    assert f"conflict with {two}" in hook(house, tmp_path, "one") and hook(house, tmp_path, "one") == "", "beside a tool, once"
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
    wait_until(lambda: conflicts.load(book).matrix.base == head, "a look after the restart")
    assert [len(told(house, task)) for task in (one, two, far)] == [1, 1, 1]
    assert [len(mails(house, task)) for task in (one, two, far)] == [1, 1, 1]


def test_no_agent_is_told_unasked_nor_of_what_the_person_changed(house: House) -> None:
    """`left` and the person change one line; `other` begins after that, and adds a file."""
    (house.repo / "same").write_text("start\n")
    git(house.repo, "add", "-A")
    git(house.repo, "commit", "-qm", "start")
    house.start_daemon()
    house.ok("run", "-d", house.plan(plan_of([shell_task("left", f"echo left > same && {COMMIT}; sleep 600")])))
    wait_until(lambda: house.state("left") == "running", "it to run")
    (house.repo / "same").write_text("mine\n")
    git(house.repo, "commit", "-qam", "mine")
    house.ok("run", "-d", house.plan(plan_of([shell_task("other", f"echo new > new && {COMMIT}; sleep 600")])))
    wait_until(lambda: house.state("other") == "running", "it to run")
    left, other = (house.task(name).id for name in ("left", "other"))
    wait_until(lambda: other in {one["task"] for one in json.loads(house.ok("conflicts", "--json"))["results"]}, "its commit")
    found = json.loads(house.ok("conflicts", "--json"))["conflicts"]
    assert [(one["task"], one["with"], one["files"]) for one in found] == [(left, None, ["same"])]
    wait_until(lambda: told(house, left), "the conflict with the checkout to be told")
    assert [one["with"] for one in told(house, left)] == ["main"] and told(house, other) == []
    assert mails(house, left) == mails(house, other) == []
    assert "conflicts with main in same" in house.ok("status", "left") and "conflict" not in house.ok("status", "other")
