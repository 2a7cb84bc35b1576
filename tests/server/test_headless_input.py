"""`nightcrew send` to agents that work by themselves: by their protocol, at the end of a turn, once. What they print tells how they are."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from agents.kinds import kinds
from supervisor.sandbox import executors
from supervisor.server.attempts import observe
from supervisor.server.attempts.observe import STAYS_S, Stream
from tests.agents.protocols.scenarios import DATA
from tests.agents.turns import acp_agent
from tests.gateway.clients.kit import CLIENTS
from tests.support import House, plan_of, shell_task, wait_until

AGENT = [sys.executable, "-S", "-c", Path(acp_agent.__file__).read_text()]
"""Given as text, since a sandbox does not show it the file."""
CLAUDE = CLIENTS / "node_modules/.bin/claude"
TIER = max(int(tier) for tier in executors.known().tiers)


def task(name: str, prompt: str, **keys: object) -> str:
    return shell_task(name, AGENT, kind="acp", prompt=prompt, sandbox=min(TIER, 1), **keys)


def deliveries(house: House, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(house.ok("status", name, "--json"))["deliveries"]
    return found


def states(house: House, name: str) -> list[str]:
    return [one["state"] for one in deliveries(house, name)]


def printed(house: House, name: str) -> str:
    """The state that the agent's own output speaks of; empty while it has said nothing."""
    shape = json.loads(house.ok("status", name, "--explain", "--json"))
    found = [piece["state"] for piece in shape["agents"][house.task(name).id]["evidence"] if piece["source"] == "protocol"]
    return found[0] if found else ""


def where(house: House, name: str) -> Path:
    wait_until(lambda: house.task(name).attempt_state == "running" and house.task(name).worktree, f"{name} to run")
    return Path(house.task(name).worktree or "")


def turns(house: House, name: str, epoch: int = 1) -> list[int]:
    """The numbers of the texts that an attempt was given."""
    log = house.home.attempt(house.task(name).id, epoch) / "stdout.log"
    lines = map(json.loads, log.read_text().splitlines())
    return [line["nightcrew_input"] for line in lines if line["type"] == "user" and "nightcrew_input" in line]


def test_texts_are_kept_for_the_end_of_a_turn_and_are_given_once_through_crashes(house: House) -> None:
    daemon = house.start_daemon()
    tasks = [task("agent", "say one\nfile go\nsay it is done", retries=1), task("late", "file go")]
    house.ok("run", "-d", house.plan(plan_of(tasks)))
    place = where(house, "agent")
    wait_until(lambda: printed(house, "agent") == "working", "its own word")
    refused = house.run("send", "agent", "--now", "x")
    assert (refused.returncode, "when its turn ends, and not now" in refused.stderr) == (6, True)
    large = house.home.root.parent / "large"
    large.write_text("die 9\n" + "x" * 1_500_000)  # its line in the log is longer than those that are read
    house.ok("send", "agent", "say two\nfile later")
    house.ok("send", "agent", "--file", str(large))
    house.ok("send", "agent", "say three")
    why = "it works; it gets the text when its turn ends"
    assert [(one["state"], one["why"]) for one in deliveries(house, "agent")] == [("pending", why)] * 3
    first, second, third = (one["id"] for one in deliveries(house, "agent"))
    daemon.send_signal(signal.SIGKILL)
    daemon.wait(30)
    (place / "go").touch()  # the texts lie in its inbox, so its turn ends as well without a supervisor
    wait_until(lambda: turns(house, "agent") == [first], "the first text")
    house.start_daemon()
    wait_until(lambda: states(house, "agent") == ["confirmed", "pending", "pending"], "the confirmation")
    (place / "later").touch()
    wait_until(lambda: house.task("agent").epoch == 2 and house.task("agent").attempt_state == "running", "the second attempt")
    assert turns(house, "agent") == [first, second], "it died of the second"
    inbox = house.home.attempt(house.task("agent").id, 2) / "inbox"
    wait_until(lambda: list(inbox.iterdir()), "the text that is left")
    (where(house, "agent") / "go").touch()
    wait_until(lambda: house.state("agent") == "done", "its end")
    wait_until(lambda: states(house, "agent") == ["confirmed"] * 3, "what became of all: it spoke before it died")
    assert turns(house, "agent", 2) == [third]
    assert (house.task("agent").result or {})["agent"]["message"] == "[small]three"
    words = house.ok("logs", "--transcript", "agent")
    assert words.index("user: say one") < words.index("user: say three") < words.index("[small]three")
    house.ok("send", "late", "die 1")
    house.ok("kill", "late")
    wait_until(lambda: states(house, "late") == ["dropped"], "the end of what waited")


def test_an_agent_stays_when_it_neither_leaves_nor_goes_on_after_its_result(tmp_path: Path) -> None:
    log = tmp_path / "stdout.log"
    stream = Stream(log, "claude")

    def says(**line: object) -> None:
        with log.open("a") as file:
            file.write(json.dumps({"session_id": "own", **line}) + "\n")
        stream.read()

    says(type="system", subtype="init")
    assert not stream.stays(0) and not stream.stays(STAYS_S), "it has no result yet"
    says(type="result", subtype="success")
    assert not stream.stays(100) and not stream.stays(99 + STAYS_S)
    assert stream.stays(100 + STAYS_S)
    says(type="assistant", message={"content": [{"type": "text", "text": "one more turn"}]})
    assert not stream.stays(100 + 2 * STAYS_S)
    says(type="result", subtype="success")
    says(type="system", subtype="background_tasks_changed", tasks=[{"description": "the tests"}])
    assert not stream.stays(200) and not stream.stays(200 + STAYS_S), "it waits for what it has in the background"
    says(type="system", subtype="background_tasks_changed", tasks=[])
    assert not stream.stays(300)
    assert stream.stays(300 + STAYS_S)


STAYS = """
import json, os, signal, subprocess, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print(json.dumps({"type": "thread.started", "thread_id": "own"}), flush=True)
print(json.dumps({"type": "item.completed", "item": {"type": "agent_message", "text": "all done"}}))
print(json.dumps({"type": "turn.completed", "usage": {}}), flush=True)
signal.pause()
"""


@pytest.mark.soak
def test_an_agent_that_does_not_leave_is_ended_with_a_note(house: House) -> None:
    kind = house.config.parent / "kinds" / "stays.toml"
    kind.parent.mkdir(parents=True)
    kind.write_text(f"description = 'stays'\nbinary = {json.dumps(sys.executable)}\nprotocol = 'codex'\n")
    with kind.open("a") as file:
        file.write(f"headless = ['-S', '-c', {json.dumps(STAYS)}, '{{prompt}}']\n")
    house.start_daemon()
    house.ok("run", "-d", house.plan("[[tasks]]\nid = 'stays'\nkind = 'stays'\nprompt = 'x'\ngate = 'echo looked'\n"))
    wait_until(lambda: house.task("stays").final, "its end", 100)
    judged = house.task("stays").result or {}
    assert (house.state("stays"), judged["agent"]["message"], judged["gate"]["passed"]) == ("done", "all done", True)
    assert judged["notes"] == ["it gave its result and did not exit, so nightcrew ended it"]


def test_a_long_line_and_a_log_that_grows_are_read_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is cut where, the end is the same; a line that is longer than a look is passed by."""
    monkeypatch.setattr(observe, "CHUNK", 20_000)
    whole = (DATA / "claude-2.1.329/tool.jsonl").read_bytes()
    whole = whole.replace(b"\n", b'\n{"type":"assistant","message":"%s"}\n' % (b"x" * 50_000), 1)
    log = tmp_path / "stdout.log"
    for step in (7_001, 100, len(whole)):
        stream = Stream(log, "claude")
        assert not stream.read()
        assert stream.evidence(1e12) is None
        for end in range(step, len(whole) + step, step):
            log.write_bytes(whole[:end])
            while stream.read():
                pass
        piece = stream.evidence(log.stat().st_mtime + 1)
        assert piece is not None
        assert (piece.state, piece.at, stream.live.session[:8]) == (
            "idle",
            log.stat().st_mtime,
            json.loads(whole.split(b"\n")[0])["session_id"][:8],
        )
        log.unlink()


STREAMS = [file for file in sorted(DATA.glob("*/*.jsonl")) if file.stem != "json"]
"""Without those that print one line, at the end."""


@pytest.mark.parametrize("file", STREAMS, ids=lambda file: f"{file.parent.name}-{file.stem}")
def test_every_recorded_stream_is_followed_from_work_to_its_end(file: Path) -> None:
    stream = Stream(file, file.parent.name.partition("-")[0])
    while stream.read():
        pass
    ends = not file.parent.name.startswith("opencode") or file.stem == "tool"
    assert stream.live.state == ("idle" if ends else "working"), "the others say no more and end"
    assert kinds()[stream.protocol].protocol == stream.protocol
