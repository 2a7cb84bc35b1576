"""The built-in agent as the supervisor starts it: forked from a warm process, confined, through the gateway; its commit arrives."""

from __future__ import annotations

import json

import pytest

from supervisor.core.sandbox import Tier
from supervisor.host import files
from supervisor.host.sandbox import probing
from tests.gateway.kit import know_prices, upstream
from tests.gateway.simulator import Simulator
from tests.support import House, git

COMMIT = "git add made && git -c user.name=a -c user.email=a@b commit -qm made && cat /proc/self/status | grep NoNewPrivs"


@pytest.mark.parametrize("tier", [1, 2])
def test_it_edits_and_commits(house: House, tier: int) -> None:
    if Tier(tier) not in probing.known().tiers:
        pytest.skip("this host cannot")
    files.private_dir(house.home.root)
    know_prices(house.home)
    plan = f'[[tasks]]\nid = "agent"\nkind = "builtin"\nprompt = "Make the file."\nsandbox = {tier}\n'
    with Simulator() as sim:
        house.config.write_text(f"[limits]\ndisk_free_min = 0\n{upstream(house.home, sim.url)}")
        sim.faults(tool="write", tool_input={"path": "made", "content": "by the agent\n"}, times=1)
        sim.faults(tool="bash", tool_input={"command": COMMIT}, times=1)
        sim.faults(text="The file is there.", times=1)
        house.start_daemon()
        house.run("run", house.plan(plan), timeout_s=120)
    view = house.task("agent")
    shown = house.run("logs", "agent").stdout
    assert view.state == "done", shown + house.daemon_output()
    result = json.loads(house.ok("logs", "--stream", "stdout", "agent").splitlines()[-1])
    assert (result["type"], result["is_error"], result["num_turns"], result["result"]) == ("result", False, 3, "The file is there.")
    assert git(house.repo, "show", f"{view.branch}:made") == "by the agent"
    assert "start cold" not in house.daemon_output()
    transcript = house.home.attempt(view.id, 1) / "out" / "transcript.jsonl"
    assert json.loads(transcript.read_text().splitlines()[-1])["result"] == "The file is there."
