"""`nightcrew logs` of an agent that replaced its own logs, as one without a sandbox can."""

from __future__ import annotations

import json

import pytest

from tests.support import House, shell_task

TRAPS = {
    "pipe": "mkfifo stdout.log stderr.log screen.txt",
    "link": "ln -s $HOME/victim stdout.log; ln -s $HOME/victim stderr.log; ln -s $HOME/victim screen.txt",
    "directory": "mkdir stdout.log stderr.log screen.txt",
}


@pytest.mark.timeout(120)
@pytest.mark.parametrize("trap", TRAPS)
def test_what_stands_in_place_of_a_log_is_neither_waited_for_nor_shown(house: House, trap: str) -> None:
    (house.repo.parent / "victim").write_text("canary")
    env = {"HOME": str(house.repo.parent)}
    house.start_daemon(env=env)
    script = f"cd $NIGHTCREW_OUT/.. && rm -f stdout.log stderr.log && {TRAPS[trap]}"
    house.ok("run", "-d", house.plan(shell_task("one", script)), env=env)
    house.wait_final()
    name = house.task("one").id
    for words in (["logs", name], ["logs", "-f", name], ["status", "--json"], ["status", name]):
        assert "canary" not in house.ok(*words, timeout_s=30)
    said = json.loads(house.ok("logs", "--json", name, timeout_s=30))
    assert (said["stdout"], said["stderr"]) == ("", "")
