"""The client of the Agent Client Protocol, with an agent of our own at the other end of its pipes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from agents import protocols, turns
from tests.agents.turns import acp_agent
from tests.support import wait_until

AGENT = [sys.executable, "-S", acp_agent.__file__]


@dataclass
class Ran:
    """What one run printed, and how it ended."""

    code: int
    stdout: bytes
    pane: str

    @property
    def said(self) -> protocols.Outcome:
        found = protocols.read("acp", self.stdout)
        assert found is not None, self.pane
        return found


class Driver:
    """The driver, with a prompt and an inbox."""

    def __init__(self, where: Path, prompt: str, *options: str, agent: list[str] = AGENT) -> None:
        self.inbox = where / "inbox"
        self.inbox.mkdir()
        (where / "prompt.md").write_text(prompt)
        files = ["--prompt-file", str(where / "prompt.md"), "--inbox", str(self.inbox)]
        argv = [sys.executable, "-I", "-m", "agents.turns", "acp", *files, *options, "--", *agent]
        env = {"PATH": os.environ["PATH"]}
        self.process = subprocess.Popen(argv, cwd=where, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def ended(self) -> Ran:
        try:
            out, err = self.process.communicate(timeout=30)
        finally:
            self.process.kill()
        return Ran(self.process.returncode, out, err.decode())


def run(where: Path, prompt: str, *options: str, agent: list[str] = AGENT) -> Ran:
    return Driver(where, prompt, *options, agent=agent).ended()


def test_a_turn_is_told_to_programs_in_json_and_to_people_in_words(tmp_path: Path) -> None:
    ran = run(tmp_path, "say Hello,\ntool read a file\ncost 0.25\nodd\nsay  all is well.", "--model", "large")
    said = ran.said
    assert (ran.code, said.ended, said.is_error, said.denials, said.session) == (0, True, False, (), "session-1")
    assert (said.message, said.cost_usd, said.steps, said.usage) == ("-32601 all is well.", 0.25, None, None)
    entries = list(protocols.transcript("acp", [ran.stdout]))
    assert [(one.kind, one.who, one.text) for one in entries if one.kind in ("message", "tool", "outcome")] == [
        ("message", "user", (tmp_path / "prompt.md").read_text()),
        ("message", "agent", "[large]Hello,"),
        ("tool", "agent", "a file"),
        ("outcome", "agent", ""),
        ("message", "agent", "-32601 all is well."),
    ]
    assert "-- small 1\n[large]Hello,\n> read a file\n" in ran.pane
    assert '"type"' not in ran.pane


@pytest.mark.in_turns
@pytest.mark.parametrize(
    ("reason", "code", "why"),
    [
        ("max_tokens", 1, "max_tokens: the model reached its limit of tokens"),
        ("max_turn_requests", 1, "max_turns: the agent reached its limit of requests in one turn"),
        ("refusal", 1, "refusal: the agent refused to go on"),
        ("from_the_future", 1, "stop_reason: it stopped: from_the_future"),
    ],
)
def test_a_turn_that_stopped_for_another_reason_has_not_ended_well(tmp_path: Path, reason: str, code: int, why: str) -> None:
    ran = run(tmp_path, f"say so far\nstop {reason}")
    assert (ran.code, ran.said.is_error, ran.said.reason) == (code, True, why)


def test_an_agent_that_fails_dies_or_is_none_is_said_so(tmp_path: Path) -> None:
    wrong = {
        "fail out of order": (AGENT, 1, "api_error: session/prompt: out of order"),
        "die 7": (AGENT, 1, "ended: the agent ended with exit status 7 before its turn was over"),
        "": ([*AGENT, "9"], 1, "protocol: it speaks version 9 of the protocol, not 1"),
        " ": (["true"], 1, "ended: the agent ended with exit status 0 before its turn was over"),
    }
    for number, (prompt, (agent, code, why)) in enumerate(wrong.items()):
        where = tmp_path / str(number)
        where.mkdir()
        ran = run(where, prompt, agent=agent)
        assert (ran.code, ran.said.ended, ran.said.reason) == (code, True, why)
    (tmp_path / "none").mkdir()
    assert run(tmp_path / "none", "x", agent=["/no/such/agent"]).code == 127


def test_a_permission_is_granted_once_by_the_list_or_refused_and_recorded(tmp_path: Path) -> None:
    ran = run(tmp_path, "ask execute\nask edit\nask-for-ever fetch\nask odd", "--allow", "execute,fetch")
    entries = list(protocols.transcript("acp", [ran.stdout]))
    answers = [one.text for one in entries if one.who == "agent" and one.kind == "message"]
    selected = [f'{{"outcome": "selected", "optionId": "the-{option}"}}' for option in ("allow_once", "reject_once")]
    assert answers == ["[small]", *selected, '{"outcome": "cancelled"}', selected[1]]
    assert [(one.kind, one.call) for one in entries if one.kind in ("outcome", "denied")] == [
        ("outcome", "call-execute"), ("denied", "call-edit"), ("denied", "call-fetch"), ("denied", "call-odd"),
    ]  # fmt: skip
    assert ran.said.denials == ("edit: edit it", "fetch: fetch it", "other: odd it")
    assert "! not allowed: edit to edit" in ran.pane


def test_no_option_that_grants_more_than_one_call_is_ever_taken() -> None:
    options: list[dict[str, Any]] = [{"optionId": sort, "kind": sort} for sort in ("allow_always", "reject_always")]
    assert turns.answer({"kind": "edit"}, options, turns.KINDS) == (False, {"outcome": "cancelled"})
    assert turns.answer({"kind": "edit"}, options, ()) == (False, {"outcome": "selected", "optionId": "reject_always"})
    assert turns.answer({"kind": ["edit"]}, [{"kind": "allow_once"}], ("edit",)) == (False, {"outcome": "cancelled"})


def test_texts_that_were_sent_are_the_next_turns_and_the_last_turn_ends_it(tmp_path: Path) -> None:
    driver = Driver(tmp_path, "say one\nfile go")
    for number, text in ((12, "say three"), (7, "touch two\nsay two")):
        (driver.inbox / f"{number}.txt").write_text(text)
    (driver.inbox / ".13.txt.draft").write_text("say nothing")
    (tmp_path / "go").touch()
    ran = driver.ended()
    lines = [json.loads(line) for line in ran.stdout.splitlines()]
    assert [line["nightcrew_input"] for line in lines if "nightcrew_input" in line and line["type"] == "user"] == [7, 12]
    assert [line["message"]["content"][0]["text"] for line in lines if line["type"] == "assistant"] == [
        "[small]one", "[small]two", "[small]three",
    ]  # fmt: skip
    assert (ran.code, ran.said.message) == (0, "[small]three")
    live = protocols.follow("acp", protocols.Live(), ran.stdout)
    assert (live.state, live.given, live.taken, live.session) == ("idle", 12, 12, "session-1")


def test_ctrl_c_cancels_the_turn_and_what_was_sent_comes_next(tmp_path: Path) -> None:
    driver = Driver(tmp_path, "touch begun\nwait")
    wait_until((tmp_path / "begun").exists, "the turn to begin")
    (driver.inbox / "1.txt").write_text("say and now this")
    driver.process.send_signal(signal.SIGINT)
    ran = driver.ended()
    assert (ran.code, ran.said.message) == (0, "[small]and now this")


@pytest.mark.parametrize(("number", "prompt", "code", "why"), [
    (signal.SIGINT, "touch begun\nwait", 130, "interrupted: interrupted by the person"),
    (signal.SIGTERM, "touch begun\nwait", 143, "terminated: stopped by SIGTERM"),
])  # fmt: skip
def test_a_signal_ends_it_with_a_last_line(tmp_path: Path, number: signal.Signals, prompt: str, code: int, why: str) -> None:
    driver = Driver(tmp_path, prompt)
    wait_until((tmp_path / "begun").exists, "the turn to begin")
    driver.process.send_signal(number)
    ran = driver.ended()
    assert (ran.code, ran.said.ended, ran.said.reason) == (code, True, why)


def test_a_session_is_continued_and_what_it_replays_is_not_said_again(tmp_path: Path) -> None:
    ran = run(tmp_path, "say more", "--resume", acp_agent.SESSION)
    assert (ran.code, ran.said.message, ran.said.session) == (0, "[small]more", acp_agent.SESSION)
    assert b"long ago" not in ran.stdout


def test_options_that_are_off_are_refused_before_anything_starts(tmp_path: Path) -> None:
    ran = run(tmp_path, "touch x", "--allow", "edit,everything")
    assert ran.code == 2
    assert "everything is no kind of tool of an ACP agent" in ran.pane
    assert not (tmp_path / "x").exists()
