"""Comments and verdicts reach the ledger and an agent once, whoever is killed in between and however many send them."""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

from supervisor.store import sqlite
from tests.agents.turns import acp_agent
from tests.support import House, git, plan_of, shell_task, wait_until

AGENT = [sys.executable, "-S", "-c", Path(acp_agent.__file__).read_text()]
COMMENT = ("review", "agent", "--comment", "README:1", "touch second")
SEND = ("review", "agent", "--send")


def agent(name: str, prompt: str) -> str:
    return shell_task(name, AGENT, kind="acp", prompt=prompt, sandbox=0)


def comments(house: House, name: str = "agent") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(house.ok("review", name, "--json"))["comments"]
    return found


def given(house: House, name: str) -> int:
    """How often the agent was told of a comment, in its prompts and in texts."""
    directory = house.home.attempt(house.task(name).id, 1)
    inbox = directory / "inbox"
    texts = [directory / "prompt.md", *(inbox.iterdir() if inbox.is_dir() else ())]
    return sum(file.read_text().count("README, line 1") for file in texts)


def runs(house: House) -> int:
    with closing(sqlite.connect_readonly(house.home.ledger)) as db:
        return int(db.execute("SELECT count(*) FROM run").fetchone()[0])


def killed(house: House, daemon: Any, *args: str) -> None:
    """A command during which the supervisor dies."""
    assert house.run(*args).returncode == 5, args
    daemon.wait()


def test_each_once_whichever_step_is_killed(house: House) -> None:
    daemon = house.start_daemon(die_at="review.commented")
    house.run("run", house.plan(plan_of([agent("agent", "touch made")])))
    killed(house, daemon, *COMMENT)
    daemon = house.start_daemon(die_at="submit.committed")
    house.ok(*COMMENT)
    assert len(comments(house)) == 1, "it was kept before its supervisor died"
    killed(house, daemon, *SEND)
    daemon = house.start_daemon(die_at="review.decided")
    house.wait_final()
    more = house.task("agent-more")
    assert [one["sent_to"] for one in comments(house)] == [more.id]
    assert (house.run(*SEND).returncode, runs(house), given(house, "agent-more")) == (2, 2, 1)
    files = git(house.repo, "ls-tree", "--name-only", str(more.branch)).split()
    assert files == ["README", "made", "second"], "its kind forks no conversation: another agent of it went on with the work"
    assert house.run("review", "agent", "--reject", env={"NIGHTCREW_DIE_AT": "review.kept"}).returncode == -9
    tip, ref = git(house.repo, "rev-parse", str(house.task("agent").branch)), f"refs/nightcrew/rejected/{house.task('agent').id}/1"
    assert git(house.repo, "rev-parse", ref) == tip and json.loads(house.ok("review", "agent", "--json"))["verdict"] is None
    killed(house, daemon, "review", "agent", "--reject", "-m", "too slow")
    house.start_daemon()
    verdict = json.loads(house.ok("review", "agent", "--json"))["verdict"]
    assert (verdict["verdict"], verdict["why"], verdict["ref"], verdict["holds"]) == ("rejected", "too slow", ref, True)


def test_two_reviews_at_once_send_a_comment_once(house: House) -> None:
    house.start_daemon()
    house.run("run", house.plan(plan_of([agent("agent", "touch made")])))
    house.ok(*COMMENT)
    with ThreadPoolExecutor(3) as pool:
        done = list(pool.map(lambda words: house.run("review", "agent", *words).returncode, [("--send",), ("--send",), ("--accept",)]))
    house.wait_final()
    assert done[2] == 0 and set(done[:2]) <= {0, 2, 6} and 0 in done[:2]
    assert runs(house) == 2 and given(house, "agent-more") == 1
    assert [one["sent_to"] for one in comments(house)] == [house.task("agent-more").id]


def test_an_agent_at_work_gets_them_once_and_what_never_reached_it_waits_again(house: House) -> None:
    daemon = house.start_daemon(die_at="send.kept")
    house.ok("run", "-d", house.plan(plan_of([agent("agent", "file go"), agent("ends", "file end")])))
    wait_until(lambda: all(house.task(name).attempt_state == "running" for name in ("agent", "ends")), "both to run")
    house.ok(*COMMENT)
    killed(house, daemon, *SEND)
    house.start_daemon()
    assert house.run(*SEND).returncode == 2, "it was sent before the supervisor died"
    (Path(str(house.task("agent").worktree)) / "go").touch()
    wait_until(lambda: house.state("agent") == "done", "the agent to end")
    assert given(house, "agent") == 1 and "second" in git(house.repo, "ls-tree", "--name-only", str(house.task("agent").branch))
    assert runs(house) == 1 and comments(house)[0]["sent_to"] == house.task("agent").id
    house.ok("review", "ends", "--comment", "README:1", "Never read.")
    house.ok("review", "ends", "--send")
    assert comments(house, "ends")[0]["sent"] is not None
    house.ok("kill", "ends")
    wait_until(lambda: comments(house, "ends")[0]["sent"] is None, "the comment to wait again")
