"""The built-in agent as the supervisor starts it: forked from a warm process, confined, through the gateway; its commit arrives, and
Ctrl-C in its pane asks what to do."""

from __future__ import annotations

import json
import subprocess

import pytest

from agents.tmux import Tmux
from supervisor.host import files
from supervisor.sandbox import executors
from tests.gateway.kit import know_prices, upstream
from tests.gateway.simulator import Simulator
from tests.support import House, git, wait_until

COMMIT = "git add made && git -c user.name=a -c user.email=a@b commit -qm made"
TASK = '[[tasks]]\nid = "agent-{tier}"\nkind = "builtin"\nprompt = "Make the file of tier {tier}."\nsandbox = {tier}\n'


def test_it_edits_and_commits_in_each_tier(house: House) -> None:
    tiers = [int(tier) for tier in executors.known().tiers if tier > 0]
    if not tiers:
        pytest.skip("this host cannot")
    files.private_dir(house.home.root)
    know_prices(house.home)
    with Simulator() as sim:
        house.config.write_text(f"[limits]\ndisk_free_min = 0\n{upstream(house.home, sim.url)}")
        for tier in tiers:
            mine = {"contains": f"of tier {tier}.", "times": 1}
            sim.faults(tool="write", tool_input={"path": "made", "content": f"in {tier}\n"}, **mine)
            sim.faults(tool="bash", tool_input={"command": COMMIT}, **mine)
        sim.faults(tool="bash", tool_input={"command": "sleep 600"}, contains=f"of tier {tiers[-1]}.", times=1)
        sim.faults(text="The file is there.")
        house.start_daemon()
        house.ok("run", "--detach", house.plan("".join(TASK.format(tier=tier) for tier in tiers)))
        _interrupt(house, f"agent-{tiers[-1]}")
        house.wait_final()
    for tier in tiers:
        _did_it(house, tier, turns=4 if tier == tiers[-1] else 3)
    assert "start cold" not in house.daemon_output()


def _interrupt(house: House, name: str) -> None:
    """Ctrl-C, and a few words, typed into its pane."""
    with Tmux(house.home.tmux_socket) as tmux:

        def pane() -> str:
            return next((pane.pane_id for pane in tmux.panes() if pane.tags.get("attempt", "").startswith(f"{house.task(name).id}:")), "")

        def screen() -> str:
            return subprocess.run([*tmux_words, "capture-pane", "-p", "-t", pane()], capture_output=True, text=True, check=True).stdout

        tmux_words = ["tmux", "-S", str(house.home.tmux_socket)]
        wait_until(lambda: house.state(name) == "running" and pane() and "sleep 600" in screen(), "the command to run")
        subprocess.run([*tmux_words, "send-keys", "-t", pane(), "C-c"], check=True)
        wait_until(lambda: "-- interrupted" in screen(), "the question")
        subprocess.run([*tmux_words, "send-keys", "-t", pane(), "leave it", "Enter"], check=True)


def _did_it(house: House, tier: int, turns: int) -> None:
    view = house.task(f"agent-{tier}")
    assert view.state == "done", house.run("logs", f"agent-{tier}").stdout + house.daemon_output()
    assert git(house.repo, "show", f"{view.branch}:made") == f"in {tier}"
    result = json.loads(house.ok("logs", "--stream", "stdout", f"agent-{tier}").splitlines()[-1])
    assert (result["type"], result["is_error"], result["num_turns"], result["result"]) == ("result", False, turns, "The file is there.")
    judged = view.result or {}
    assert (judged["agent"]["message"], judged["agent"]["steps"], judged["notes"]) == ("The file is there.", turns, [])
    assert judged["agent"]["tokens"] == {kind: judged["tokens"][kind] for kind in judged["agent"]["tokens"]}, "as the gateway counted"
    assert abs(judged["agent"]["cost_usd"] - judged["cost_usd"]) < 0.0001
    records = house.home.attempt(view.id, 1)
    assert json.loads((records / "out" / "transcript.jsonl").read_text().splitlines()[-1])["result"] == "The file is there."
    screen = (records / "screen.txt").read_text()
    assert "> write made" in screen and '"type"' not in screen, "a person reads words in the pane, not JSON"
