"""The built-in agent as the supervisor starts it: forked from a warm process, confined, through the gateway; its commit arrives."""

from __future__ import annotations

import json

import pytest

from supervisor.host import files
from supervisor.host.sandbox import probing
from tests.gateway.kit import know_prices, upstream
from tests.gateway.simulator import Simulator
from tests.support import House, git

COMMIT = "git add made && git -c user.name=a -c user.email=a@b commit -qm made"
TASK = '[[tasks]]\nid = "agent-{tier}"\nkind = "builtin"\nprompt = "Make the file of tier {tier}."\nsandbox = {tier}\n'


def test_it_edits_and_commits_in_each_tier(house: House) -> None:
    tiers = [int(tier) for tier in probing.known().tiers if tier > 0]
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
            sim.faults(text="The file is there.", **mine)
        house.start_daemon()
        house.run("run", house.plan("".join(TASK.format(tier=tier) for tier in tiers)), timeout_s=120)
    for tier in tiers:
        _did_it(house, tier)
    assert "start cold" not in house.daemon_output()


def _did_it(house: House, tier: int) -> None:
    view = house.task(f"agent-{tier}")
    assert view.state == "done", house.run("logs", f"agent-{tier}").stdout + house.daemon_output()
    assert git(house.repo, "show", f"{view.branch}:made") == f"in {tier}"
    result = json.loads(house.ok("logs", "--stream", "stdout", f"agent-{tier}").splitlines()[-1])
    assert (result["type"], result["is_error"], result["num_turns"], result["result"]) == ("result", False, 3, "The file is there.")
    judged = view.result or {}
    assert (judged["agent"]["message"], judged["agent"]["steps"], judged["notes"]) == ("The file is there.", 3, [])
    assert judged["agent"]["tokens"] == {kind: judged["tokens"][kind] for kind in judged["agent"]["tokens"]}, "as the gateway counted"
    assert abs(judged["agent"]["cost_usd"] - judged["cost_usd"]) < 0.0001
    records = house.home.attempt(view.id, 1)
    assert json.loads((records / "out" / "transcript.jsonl").read_text().splitlines()[-1])["result"] == "The file is there."
    screen = (records / "screen.txt").read_text()
    assert "> write made" in screen and '"type"' not in screen, "a person reads words in the pane, not JSON"
