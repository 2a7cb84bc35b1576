"""`nightcrew logs` of an agent that replaced its own logs, as one without a sandbox can."""

from __future__ import annotations

import json

import pytest

from tests.agents.protocols.scenarios import DATA
from tests.support import House, plan_of, shell_task

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


def test_a_transcript_of_a_stream_of_json(house: House) -> None:
    house.start_daemon()
    stream = DATA / "claude-2.1.329" / "denied.jsonl"
    plan = [shell_task("one", f"cat {stream}"), shell_task("other", "echo words")]
    house.ok("run", "-d", house.plan(plan_of(plan)))
    followed = house.ok("logs", "-f", "--transcript", "one")
    house.wait_final()
    shown = house.ok("logs", "--transcript", "one")
    assert "  Bash  python3 -c 'print(1)'  -> DENIED: This command requires approval\n" in shown
    assert followed == shown
    assert "\x1b" not in shown
    assert "-> \x1b[31mDENIED\x1b[0m" in house.ok("logs", "--transcript", "one", env={"FORCE_COLOR": "1"})
    kinds = [json.loads(line)["kind"] for line in house.ok("logs", "--transcript", "--json", "one").splitlines()]
    assert kinds == ["start", "message", "tool", "denied", "message", "end"]
    refused = house.run("logs", "--transcript", "other")
    assert refused.returncode != 0
    assert "its stdout is no stream of JSON that nightcrew reads" in refused.stderr
