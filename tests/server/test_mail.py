"""Mail in a whole crew: at an agent's next turn, between a person and agents, and a handoff that starts the next agent from its commit."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from supervisor.client import protocol
from supervisor.host import attempt_tokens, secrets
from supervisor.kernel.errors import Refused
from supervisor.sandbox import executors
from tests.agents.turns import acp_agent
from tests.support import House, git, plan_of, shell_task, wait_until

FOREVER = "exec sleep 600"
ACP = [sys.executable, "-S", "-c", Path(acp_agent.__file__).read_text()]
COMMIT = "echo made > made; git add made; git -c user.name=a -c user.email=a@b commit -qm made; touch committed"
AIDER = """#!/bin/sh
while [ "$1" != --message-file ]; do shift; done
cat "$2" > told; echo "{\\"made\\": \\"$(cat made)\\"}"
"""
CONFINED = [int(tier) for tier in executors.known().tiers if tier]


def token(house: House, name: str) -> str:
    wait_until(lambda: house.task(name).attempt_state == "running", f"{name} to run")
    return attempt_tokens.derive(secrets.own(house.home.secret), house.task(name).id, house.task(name).epoch)


def ask(house: House, whose: str, op: str, **args: Any) -> dict[str, Any]:
    return protocol.call(house.home.agents_socket, "mail", {"op": op, **args}, timeout_s=60, token=whose)


def listed(house: House, *words: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(house.ok("mail", "ls", "--json", *words))["mails"]
    return found


def given(house: House, name: str) -> list[str]:
    """The texts that the agent was given, by what it printed."""
    log = house.home.attempt(house.task(name).id, 1) / "stdout.log"
    lines = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
    return [json.dumps(line) for line in lines if line.get("type") == "user" and "nightcrew_input" in line]


def test_a_person_and_agents_write_to_each_other(house: House) -> None:
    daemon = house.start_daemon()
    agent = shell_task("agent", ACP, kind="acp", prompt="say one\nfile go\nsay it is done", sandbox=0)
    house.ok("run", "-d", house.plan(plan_of([shell_task("script", FOREVER), agent, shell_task("later", "true", after=["agent"])])))
    script = token(house, "script")
    asked = ask(house, script, "send", to="person", type="request", text="Which port?\nIt is for the server.", needs_reply_s=3600)["mail"]
    assert asked["from"] == house.task("script").id
    assert f"? mail      {asked['id'][-6:]}  from {asked['from']}  Which port?" in house.ok("status")
    assert [one["id"] for one in json.loads(house.ok("status", "--json"))["mail"]] == [asked["id"]]
    assert asked["id"][-6:] in house.ok("mail", "ls") and "reply needed in" in house.ok("mail", "ls")
    shown = house.ok("mail", "read", asked["id"][-6:])
    assert "It is for the server." in shown and house.run("mail", "read").stderr == "nightcrew: no mail\n"
    answer = house.ok("mail", "reply", asked["id"][-6:], "8080").strip()
    assert ask(house, script, "wait", id=asked["id"], timeout_s=30)["mail"]["id"] == answer
    assert "? mail" not in house.ok("status")

    sent = ask(house, script, "send", to="agent", text="say nothing\nThe port is 8080.")["mail"]["id"]
    kept = house.ok("mail", "send", "later", "for when it begins").strip()
    wait_until(lambda: {one["state"] for one in listed(house, "--of", "agent")} == {"given"}, "its text to lie in the inbox")
    daemon.send_signal(signal.SIGKILL)
    daemon.wait(30)
    house.start_daemon()
    assert given(house, "agent") == [] and [one["id"] for one in listed(house, "--of", "agent")] == [sent]
    (Path(house.task("agent").worktree or "") / "go").touch()
    wait_until(lambda: house.state("agent") == "done", "its end")
    (text,) = given(house, "agent")
    assert f"[nightcrew mail {sent}] info from {asked['from']}: say nothing" in text and "| say nothing" in text
    wait_until(lambda: listed(house, "--of", "agent", "--all")[0]["state"] == "read", "it to be known as read")
    wait_until(
        lambda: [one["state"] for one in listed(house, "--sent") if one["id"] == kept] == ["bounced"], "what nobody read to come back"
    )
    assert "did not read it" in house.ok("mail", "read")
    late = house.run("mail", "send", "agent", "too late")
    assert (late.returncode, "it has ended" in late.stderr) == (6, True)
    nobody = house.run("mail", "send", "scrpt", "hello")
    assert (nobody.returncode, "did you mean script?" in nobody.stderr) == (4, True), nobody.stderr
    pairs = json.loads(house.ok("mail", "ls", "--pairs", "--json"))["pairs"]
    assert {(pair["from"], pair["to"]) for pair in pairs if pair["tokens"]} == {
        ("person", asked["from"]), (asked["from"], house.task("agent").id),
    }  # fmt: skip
    inside = {"NIGHTCREW_TOKEN": script, "NIGHTCREW_AGENTS_SOCKET": str(house.home.agents_socket)}
    house.ok("mail", "send", "person", "from within", env=inside)
    assert [one["from"] for one in listed(house)] == [asked["from"]], "the command of an agent speaks for its task"


@pytest.fixture
def sender(house: House, tmp_path: Path) -> House:
    """A house in which a fake aider can be started."""
    fake = tmp_path / "bin/aider"
    fake.parent.mkdir()
    fake.write_text(AIDER)
    fake.chmod(0o755)
    house.start_daemon()
    return house


def sends(house: House, tier: int) -> str:
    """The token of an agent that has made a commit."""
    task = shell_task("sender", f"{COMMIT}; {FOREVER}", sandbox=tier, children_max=2)
    house.ok("run", "-d", house.plan(plan_of([task])), env={"PATH": f"{house.home.root.parent}/bin:{os.environ['PATH']}"})
    whose = token(house, "sender")
    wait_until(lambda: (Path(house.task("sender").worktree or "") / "committed").exists(), "its commit")
    return whose


def handoff(kind: str, prompt: str) -> dict[str, Any]:
    start = {"prompt": prompt, "options": {"kind": kind, "id": "next"}}
    lists = {"questions": ["which port?"], "tried": ["a cache"]}
    return {"type": "handoff", "text": "The parser is done.", "key": "handoff", "start": start, **lists}


def check(house: House, text: str) -> None:
    """The handoff, as the next agent got it, and that it goes on from the very commit."""
    branch = house.task("sender").branch or ""
    tip = git(house.repo, "rev-parse", branch)
    assert git(house.repo, "show", f"{tip}:made") == "made"
    for words in ("The parser is done.", f"Branch: {branch}", f"Commit: {tip}", "- which port?", "- a cache"):
        assert words in text
    made = house.task("next")
    assert git(house.repo, "merge-base", made.branch or "", tip) == tip and made.parent == house.task("sender").id


def test_a_handoff_is_the_beginning_of_the_next_agents_prompt(sender: House) -> None:
    whose = sends(sender, 0)
    first = ask(sender, whose, "send", **handoff("aider", "Finish it."))["mail"]
    assert ask(sender, whose, "send", **handoff("aider", "Finish it."))["mail"]["id"] == first["id"], "the same twice is one"
    wait_until(lambda: sender.state("next") == "done", "the next agent")
    result = sender.task("next").result or {}
    assert result["output"] == {"made": "made"}, "it began with what the sender committed"
    said = git(sender.repo, "show", f"{result['tip']}:told")
    assert said.startswith(f"[nightcrew mail {first['id']}] handoff from ") and said.endswith("Finish it.")
    check(sender, said)
    assert [(one["id"], one["state"]) for one in listed(sender, "--of", "next", "--all")] == [(first["id"], "read")]
    ask(sender, whose, "send", **{**handoff("shell", "true"), "key": "second"})
    with pytest.raises(Refused, match="children_max"):
        ask(sender, whose, "send", **{**handoff("shell", "true"), "key": "third"})


@pytest.mark.skipif(not CONFINED, reason="no sandbox works here")
def test_a_handoff_of_a_confined_agent_is_read_by_the_socket(sender: House) -> None:
    """Its commit is in its own repository only, until the supervisor takes it over."""
    whose = sends(sender, max(CONFINED))
    ask(sender, whose, "send", **handoff("shell", 'cat made; "$NIGHTCREW_AGENT" mail read'))
    wait_until(lambda: sender.state("next") == "done", "the next agent")
    said = sender.ok("logs", "--stream", "stdout", "next")
    assert said.startswith("made\n")
    check(sender, said)


def test_a_person_hands_over_as_well(sender: House) -> None:
    (sender.repo / "made").write_text("by hand\n")
    git(sender.repo, "add", "made")
    git(sender.repo, "commit", "-qm", "made")
    words = ("--type", "handoff", "--start", "shell", "--id", "next", "--prompt", 'cat made; "$NIGHTCREW_AGENT" mail read')
    refused = sender.run("mail", "send", *words, "The parser is done.")
    assert refused.returncode == 0, refused.stderr
    wait_until(lambda: sender.state("next") == "done", "the next agent")
    said = sender.ok("logs", "--stream", "stdout", "next")
    assert said.startswith("by hand\n") and "Branch: main" in said and "from: person" in said
