"""`nightcrew send` to agents that work by themselves: by their protocol, at the end of a turn, once. What they print tells how they are."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from agents.kinds import kinds
from supervisor.daemon import agent_streams
from supervisor.daemon.agent_streams import Stream
from supervisor.host import files
from supervisor.host.sandbox import probing
from tests.agents.protocols.scenarios import DATA
from tests.agents.turns import acp_agent
from tests.gateway.clients.kit import CLIENTS, ClaudeCode
from tests.gateway.kit import know_prices, upstream
from tests.gateway.simulator import Simulator
from tests.support import House, plan_of, shell_task, wait_until

AGENT = [sys.executable, "-S", "-c", Path(acp_agent.__file__).read_text()]
"""Given as text, since a sandbox does not show it the file."""
CLAUDE = CLIENTS / "node_modules/.bin/claude"
TIER = max(int(tier) for tier in probing.known().tiers)


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
    return [line["nightcrew_input"] for line in map(json.loads, log.read_text().splitlines()) if "nightcrew_input" in line]


def test_texts_are_kept_for_the_end_of_the_turn_and_are_given_once(house: House) -> None:
    daemon = house.start_daemon()
    house.ok("run", "-d", house.plan(plan_of([task("agent", "say one\nfile go\nsay it is done"), task("late", "file go")])))
    place = where(house, "agent")
    wait_until(lambda: printed(house, "agent") == "working", "its own word")
    refused = house.run("send", "agent", "--now", "x")
    assert (refused.returncode, "when its turn ends, and not now" in refused.stderr) == (6, True)
    house.ok("send", "agent", "say two\nfile later")
    house.ok("send", "agent", "say three")
    assert [(one["state"], one["why"]) for one in deliveries(house, "agent")] == [
        ("pending", "it works; it gets the text when its turn ends")
    ] * 2
    daemon.send_signal(signal.SIGKILL)
    daemon.wait(30)
    (place / "go").touch()  # the texts lie in its inbox, so its turn ends as well without a supervisor
    wait_until(lambda: len(turns(house, "agent")) == 1, "the first text")
    house.start_daemon()
    wait_until(lambda: states(house, "agent") == ["confirmed", "pending"], "the confirmation")
    (place / "later").touch()
    wait_until(lambda: house.state("agent") == "done", "its end")
    wait_until(lambda: states(house, "agent") == ["confirmed", "confirmed"], "what became of both")
    first, second = (one["id"] for one in deliveries(house, "agent"))
    assert turns(house, "agent") == [first, second]
    assert (house.task("agent").result or {})["agent"]["message"] == "[small]three"
    words = house.ok("logs", "--transcript", "agent")
    assert words.index("user: say one") < words.index("user: say two") < words.index("user: say three") < words.index("[small]three")
    house.ok("send", "late", "die 1")
    house.ok("kill", "late")
    wait_until(lambda: states(house, "late") == ["dropped"], "the end of what waited")


def test_a_text_that_one_attempt_was_given_is_not_given_to_the_next(house: House) -> None:
    house.start_daemon()
    house.ok("run", "-d", house.plan(plan_of([task("agent", "file go", retries=1)])))
    place = where(house, "agent")
    house.ok("send", "agent", "die 9")
    house.ok("send", "agent", "say the second")
    (place / "go").touch()
    wait_until(lambda: house.task(name := "agent").epoch == 2 and house.task(name).attempt_state == "running", "the second attempt")
    inbox = house.home.attempt(house.task("agent").id, 2) / "inbox"
    wait_until(lambda: list(inbox.iterdir()), "the text that is left")
    (where(house, "agent") / "go").touch()
    wait_until(lambda: house.state("agent") == "done", "its end")
    first, second = (one["id"] for one in deliveries(house, "agent"))
    assert (turns(house, "agent"), turns(house, "agent", 2)) == ([first], [second])
    wait_until(lambda: states(house, "agent") == ["confirmed", "confirmed"], "what became of both: it spoke before it died")


def test_a_long_line_and_a_log_that_grows_are_read_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is cut where, the end is the same; a line that is longer than a look is passed by."""
    monkeypatch.setattr(agent_streams, "CHUNK", 20_000)
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


@pytest.mark.parametrize("file", sorted(DATA.glob("*/*.jsonl")), ids=lambda file: f"{file.parent.name}-{file.stem}")
def test_every_recorded_stream_is_followed_from_work_to_its_end(file: Path) -> None:
    if file.stem == "json":
        pytest.skip("one line at the end")
    stream = Stream(file, file.parent.name.partition("-")[0])
    while stream.read():
        pass
    ends = not file.parent.name.startswith("opencode") or file.stem == "tool"
    assert stream.live.state == ("idle" if ends else "working"), "the others say no more and end"
    assert kinds()[stream.protocol].protocol == stream.protocol


def test_the_real_claude_code_takes_a_second_prompt_in_the_same_session(house: House, tmp_path: Path) -> None:
    if not CLAUDE.exists():
        pytest.skip("make clients installs it")
    home = files.private_dir(tmp_path / "home")
    files.private_dir(home / ".claude")
    (home / ".claude.json").write_text("{}")
    files.private_dir(house.home.root)
    keys = {
        "id": "agent",
        "kind": "claude",
        "prompt": "begin",
        "model": ClaudeCode.model,
        "params.HOME": str(home),
        "sandbox": min(TIER, 1),
    }
    with Simulator() as sim:
        house.config.write_text(f"[limits]\ndisk_free_min = 0\n{upstream(house.home, sim.url)}")
        sim.faults(hold="gate", times=1)
        house.start_daemon()
        plan = "[[tasks]]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in keys.items())
        house.run("run", "-d", house.plan(plan), env={"PATH": f"{CLAUDE.parent}:{os.environ['PATH']}"})
        sim.wait_held("gate")
        house.ok("send", "agent", "and then this")
        wait_until(lambda: deliveries(house, "agent")[0]["why"].startswith("it works"), "it to lie in the inbox")
        sim.release("gate")
        wait_until(lambda: house.state("agent") in ("done", "failed"), "its end")
    assert house.state("agent") == "done", house.run("logs", "agent").stdout
    wait_until(lambda: states(house, "agent") == ["confirmed"], "the confirmation")
    judged = house.task("agent").result or {}
    assert (judged["agent"]["steps"], judged["notes"]) == (2, [])
    assert "user: and then this" in house.ok("logs", "--transcript", "agent")


def test_the_built_in_agent_goes_on_with_what_was_sent(house: House) -> None:
    files.private_dir(house.home.root)
    know_prices(house.home)
    with Simulator() as sim:
        house.config.write_text(f"[limits]\ndisk_free_min = 0\n{upstream(house.home, sim.url)}")
        sim.faults(hold="gate", times=1)
        house.start_daemon()
        house.ok("run", "-d", house.plan(f'[[tasks]]\nid = "agent"\nkind = "builtin"\nprompt = "begin"\nsandbox = {min(TIER, 1)}\n'))
        sim.wait_held("gate")
        house.ok("send", "agent", "and then this")
        wait_until(lambda: deliveries(house, "agent")[0]["why"].startswith("it works"), "it to lie in the inbox")
        sim.release("gate")
        wait_until(lambda: house.state("agent") in ("done", "failed"), "its end")
    assert house.state("agent") == "done"
    wait_until(lambda: states(house, "agent") == ["confirmed"], "the confirmation")
    assert "user: and then this" in house.ok("logs", "--transcript", "agent")
