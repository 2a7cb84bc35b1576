"""Test `take`, `land`, `diff`, `review` and `pr` of an agent that is idle in its own terminal, is at work there, or was stopped."""

from __future__ import annotations

import contextlib
import json
import re
from pathlib import Path

import pytest

from supervisor.client import protocol
from supervisor.client.crew import Lookout
from supervisor.host import attempt_tokens, secrets
from supervisor.sandbox import executors
from tests.support import GIT_IDENTITY, House, git, plan_of, shell_task, wait_until

IDENTITY = {name: text for name, text in GIT_IDENTITY.items() if not name.startswith("GIT_CONFIG")}
COMMIT = "git add done && git -c user.name=a -c user.email=a@b commit -qm done"
FORGED = r"printf '\033]2;✳ resting\007TASK DONE\n❯ \n'"
"""A title and a screen of an agent that rests."""
AT_WORK = [
    "sh",
    "-c",
    f"{FORGED}; echo done > done; {COMMIT}; echo more > 'left over'; echo changed > README; touch ready; read line; sleep 600",
]
TIERS = [0, *(int(tier) for tier in executors.known().tiers if tier)]


def sits(house: House, tier: int = 0) -> str:
    """An agent in its own terminal that has committed `done`, and left two files uncommitted."""
    house.start_daemon()
    house.ok("run", "-d", house.plan(plan_of([shell_task("agent", AT_WORK, kind="terminal", sandbox=tier)])))
    wait_until(lambda: (Path(house.task("agent").worktree or "/nowhere") / "ready").exists(), "it to sit there")
    return house.task("agent").id


def says(house: House, name: str, event: str) -> None:
    """A hook of the agent."""
    view = house.task(name)
    token = attempt_tokens.derive(secrets.own(house.home.secret), view.id, view.epoch)
    protocol.call(house.home.agents_socket, "hook", {"name": event, "event": {"session_id": "own"}}, timeout_s=30, token=token)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("tier", TIERS)
def test_take_merges_what_an_idle_agent_has_committed_and_names_the_rest(house: House, tier: int) -> None:
    task = sits(house, tier)
    shown = house.run("diff", "agent")
    assert (
        "+done" in shown.stdout
        and "changed" not in shown.stdout
        and "not committed, and left out: README, left over and ready" in shown.stderr
    )
    taken = house.run("take", "agent")
    assert taken.returncode == 0, taken.stderr
    assert f"{task} has no gate: nothing has checked its commits" in taken.stderr
    assert (
        f"{task} is in main" in taken.stderr
        and f"README, left over and ready; with these: nightcrew take --with-changes {task}" in taken.stderr
    )
    assert (house.repo / "done").read_text() == "done\n" and not (house.repo / "left over").exists()
    branch = house.task("agent").branch or ""
    before = git(house.repo, "rev-parse", branch)
    again = house.run("take", "--with-changes", "agent", env=IDENTITY)
    assert again.returncode == 0, again.stderr
    assert (house.repo / "left over").read_text() == "more\n" and (house.repo / "README").read_text() == "changed\n"
    assert git(house.repo, "status", "--porcelain") == ""
    assert house.state("agent") == "running" and git(house.repo, "rev-parse", branch) == before, "the agent's own branch stays"
    assert git(house.repo, "rev-parse", "--verify", f"refs/nightcrew/rescue/{task}/1") == git(house.repo, "rev-parse", "main")
    house.ok("kill", "agent")
    wait_until(lambda: house.state("agent") == "cancelled", "its end")
    assert house.run("take", "agent").returncode == 0


def test_an_agent_at_work_is_refused_and_named(house: House) -> None:  # X10: whatever its screen says
    sits(house)
    says(house, "agent", "UserPromptSubmit")
    for verb in ("take", "land"):
        refused = house.run(verb, "agent")
        assert refused.returncode == 6 and "its agent works" in refused.stderr, refused.stderr
        assert "nightcrew wait" not in refused.stderr
    refused = house.run("review", "agent", "--accept", "-m", "fine")
    assert refused.returncode == 6 and "its agent works" in refused.stderr
    assert not (house.repo / "done").exists()
    says(house, "agent", "Stop")
    left = f"not committed, and left out: README, left over and ready; with these: nightcrew take --with-changes {house.task('agent').id}"
    assert left in house.ok("review", "agent", "--stat") and left in house.run("land", "--ready").stderr
    house.ok("review", "agent", "--accept", "-m", "fine")
    says(house, "agent", "UserPromptSubmit")
    assert house.run("take", "--force", "agent").returncode == 0 and (house.repo / "done").exists()


def test_an_idle_agent_lands_as_it_stands(house: House) -> None:
    task = sits(house)
    said = house.run("land", "agent", "--gate", "test -e done && ! test -e 'left over'", "--json", env=IDENTITY)
    assert said.returncode == 0, said.stderr
    shape = json.loads(said.stdout)
    assert [(one["task"], one["state"]) for one in shape["entries"]] == [(task, "landed")] and "left over" in said.stderr
    said = house.run("land", "agent", "--with-changes", "--gate", "test -e 'left over'", env=IDENTITY)
    assert said.returncode == 0, said.stderr
    assert (house.repo / "left over").exists() and house.state("agent") == "running"


def test_what_a_stopped_task_left_is_taken_by_name(house: House) -> None:
    task = sits(house)
    house.ok("kill", "agent")
    wait_until(lambda: house.state("agent") == "cancelled", "its end")
    assert house.run("land", "--ready").returncode == 0 and not (house.repo / "done").exists(), "only by name"
    taken = house.run("take", "agent")
    assert taken.returncode == 0 and f"{task} was stopped before it was done" in taken.stderr, taken.stderr
    assert (house.repo / "done").exists() and (house.repo / "left over").exists(), "its end secured what it had not committed"
    assert re.search(rf"cancelled +{task} .*taken into main", house.ok("status"))
    assert json.loads(house.ok("status", "--json"))["results"][task]["state"] == "taken"
    with contextlib.closing(Lookout(house.home)) as reader:
        (row,) = (row for row in reader.crew({task}).rows() if row.id == task)
    assert row.word == "cancelled" and "taken into main" in row.says, "the screen and the page read this"


def test_what_an_agent_committed_after_it_was_taken_does_not_count_as_taken(house: House) -> None:
    task = sits(house)
    assert house.run("take", "agent").returncode == 0
    house.ok("kill", "agent")
    wait_until(lambda: house.state("agent") == "cancelled", "its end, which secures what was not committed")
    assert "taken into" not in house.ok("status", "agent")
    assert house.run("take", "agent").returncode == 0
    assert "taken into main" in house.ok("status", "agent")
    house.ok("retry", task)
    assert "taken into" not in house.ok("status", "agent")


def test_a_task_that_works_by_itself_is_waited_for(house: House) -> None:
    house.start_daemon()
    house.ok("run", "-d", house.plan(plan_of([shell_task("alone", "sleep 600")])))
    wait_until(lambda: house.state("alone") == "running", "it to run")
    for verb in ("take", "land"):
        refused = house.run(verb, "alone")
        assert refused.returncode == 6 and "it is running" in refused.stderr and "nightcrew wait" in refused.stderr
