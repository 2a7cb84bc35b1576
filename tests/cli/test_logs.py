"""`nightcrew logs` of an agent that replaced its own logs, as one without a sandbox can."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from agents.protocols import Entry
from supervisor.client import transcript
from tests.agents.protocols.scenarios import DATA
from tests.support import House, plan_of, shell_task, wait_until

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
    assert house.ok("logs", "one") == house.ok("logs", "-f", "one") == shown, "of an agent it is what a person reads"
    for words in (["--raw"], ["--stream", "stdout"]):
        assert house.ok("logs", *words, "one") == stream.read_text(), "what it printed, byte for byte"
    assert json.loads(house.ok("logs", "--json", "one"))["stdout"] == stream.read_text()
    assert house.ok("logs", "other") == "words\n"


def test_an_agent_in_its_own_interface_shows_its_prompt_and_screen(house: House) -> None:
    house.start_daemon()
    house.ok("run", "-d", house.plan(shell_task("sits", "printf 'at the \\033[31mprompt\\033[0m'; read x", kind="terminal")))
    wait_until(lambda: "at the prompt" in house.ok("logs", "sits"), "its screen")
    assert "\x1b" not in house.ok("logs", "sits")


KIND = """
description = "sits in its own interface, and keeps what was said in a file"
binary = "own-agent"
protocol = "claude"
prompt = "stream"
headless = ["--session-id", "{session}"]
interactive = ["{session}", "--", "{prompt}"]
transcript = ["~/kept/*/{session}.jsonl"]
"""
SITS = """#!/bin/sh
mkdir -p "$HOME/kept/here"
cp "$HOME/said.jsonl" "$HOME/kept/here/$1.jsonl"
echo ready; read x
"""


def test_of_an_agent_in_its_own_interface_the_kept_conversation_is_shown(house: House, tmp_path: Path) -> None:
    program = tmp_path / "bin" / "own-agent"
    program.parent.mkdir()
    program.write_text(SITS)
    program.chmod(0o755)
    (house.config.parent / "kinds").mkdir(exist_ok=True)
    (house.config.parent / "kinds" / "own.toml").write_text(KIND)
    said = [
        {"type": "user", "message": {"role": "user", "content": "Why is it slow?"}},
        {"type": "assistant", "message": {"role": "assistant", "content": [{"type": "text", "text": "It sleeps.\x1b[2J"}]}},
    ]
    (tmp_path / "said.jsonl").write_text("".join(json.dumps(one) + "\n" for one in said))
    env = {"PATH": f"{program.parent}:{os.environ['PATH']}", "HOME": str(tmp_path)}
    house.start_daemon()
    task = '[[tasks]]\nid = "own"\nkind = "own"\ninteractive = true\nsandbox = 0\nprompt = "Why is it slow?"\n'
    house.ok("run", "-d", house.plan(task), env=env)
    wait_until(lambda: "agent: It sleeps" in house.ok("logs", "own"), "what is kept")
    assert house.ok("logs", "own") == "user: Why is it slow?\nagent: It sleeps.\\x1b[2J\n"


def test_a_transcript_begins_with_the_prompt_unless_the_stream_has_it() -> None:
    start, said, words = Entry("start", "agent", "begins"), Entry("message", "user", "Do it."), Entry("message", "agent", "Done.")
    assert list(transcript.with_prompt([start, words], "Do it.")) == [start, said, words]
    assert list(transcript.with_prompt([start, said, words], "Do it.")) == [start, said, words]
    assert list(transcript.with_prompt([], "Do it.")) == [said], "nothing was said yet"
    assert list(transcript.with_prompt([words], "")) == [words]
