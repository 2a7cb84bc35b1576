"""The real Claude Code with a person at it, started by nightcrew in tier 1: what `status` says of it is what it does, whatever a person,
its tools and the provider do. One session for all of it, because each start of one costs seconds.

The person's keys are typed into its pane; prompts go by `nightcrew send`.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from agents.kinds import kinds
from supervisor.host import files
from supervisor.kernel.gateway_settings import Limits
from supervisor.sandbox import executors, homes
from supervisor.sandbox.policy import Tier
from tests.gateway.clients.kit import CLIENTS, ClaudeCode, Codex
from tests.gateway.kit import upstream
from tests.gateway.simulator import Fault, Simulator
from tests.server.test_sending import Agent
from tests.support import House, git, wait_until

CLAUDE = CLIENTS / "node_modules" / ".bin" / "claude"
pytestmark = [
    pytest.mark.skipif(not CLAUDE.exists(), reason="make clients installs it"),
    pytest.mark.skipif(Tier.FILES not in executors.known().tiers, reason="this host has no sandbox"),
]
WAITS = "until test -e {name}; do sleep 0.1; done"
NESTED = f"claude -p nested --model {ClaudeCode.model} --settings hooks.json > nested.log 2>&1; {WAITS.format(name='go')}"


@dataclass
class Session:
    """One interactive task."""

    house: House
    sim: Simulator
    home: Path

    @property
    def agent(self) -> Agent:
        return Agent(self.house, "agent", ready="")

    @property
    def told(self) -> dict[str, Any]:
        """`status --explain`."""
        found: dict[str, Any] = json.loads(self.house.ok("status", "agent", "--explain", "--json"))["agents"][self.house.task("agent").id]
        return found

    def becomes(self, *states: str) -> dict[str, Any]:
        """Wait for one of these states."""
        seen: list[dict[str, Any]] = []

        def is_so() -> bool:
            seen[:] = [self.told]
            return seen[0]["state"] in states

        try:
            wait_until(is_so, f"it to be {states}", every_s=0.2)
        except AssertionError as error:
            error.add_note(f"{json.dumps(seen, indent=1)[:4000]}\n{self.screen()}")
            raise
        return seen[0]

    def screen(self) -> str:
        return self.agent.tmux("capture-pane", "-p", "-t", self.agent.pane)

    def keys(self, *keys: str) -> None:
        """A person types."""
        self.agent.tmux("send-keys", "-t", self.agent.pane, *keys)

    def answer(self, label: str) -> None:
        """Choose one of a dialog's answers, and wait until the dialog has closed.

        A digit takes its answer, but one that comes just after the dialog was drawn only moves the cursor there (2.1.329: 20 of 25 did),
        and the dialog stays; Enter takes it then. The digit is typed once, because a second one could reach the input line behind the
        dialog and become a part of the next prompt. Enter does nothing there.
        """
        shown = re.compile(rf"^(.*?)(\d)\. +{label}", re.MULTILINE)

        def found() -> tuple[bool, str] | None:
            """Whether the cursor stands on the answer, and its digit; None when it is not shown."""
            line = shown.search(self.screen())
            return None if line is None else ("❯" in line[1], line[2])

        wait_until(found, label)
        now = found()
        assert now is not None, "nobody else answers it"
        if not now[0]:
            self.keys(now[1])

        def is_taken() -> bool:
            now = found()
            if now is not None and now[0]:
                self.keys("Enter")
            return now is None

        wait_until(is_taken, f"{label} to be taken", every_s=0.5)

    def send(self, text: str) -> dict[str, Any]:
        """By nightcrew."""
        kept: dict[str, Any] = json.loads(self.house.ok("send", "agent", text, "--json"))["deliveries"][0]
        return kept

    def sent(self) -> list[str]:
        """The states of everything sent."""
        return [one["state"] for one in json.loads(self.house.ok("status", "agent", "--json"))["deliveries"]]

    def prompts(self) -> list[str]:
        """What it took as prompts, by its own transcript."""
        own = self.house.home.attempt(self.house.task("agent").id, 1) / homes.HOMES / str(self.home)[1:]
        read = [json.loads(line) for file in own.glob(".claude/projects/*/*.jsonl") for line in file.read_text().splitlines()]
        said = [line["message"]["content"] for line in read if line["type"] == "user" and line.get("entrypoint") != "sdk-cli"]
        return [one for one in said if isinstance(one, str)]


@contextmanager
def claude(house: House, home: Path, *, trusted: bool = True, **keys: object) -> Iterator[Session]:
    """A session that begins; `keys` are more keys of its task."""
    files.private_dir(files.private_dir(home) / ".claude")
    seen = {"hasCompletedOnboarding": True, "theme": "dark"}
    (home / ".claude.json").write_text(json.dumps(seen))
    files.private_dir(house.home.root)
    if trusted:
        house.ok("trust", "--kind", "claude", "--yes", env={"HOME": str(home)})
    task = {"id": "agent", "kind": "claude", "interactive": True, "sandbox": 1, "params.HOME": str(home), "model": ClaudeCode.model, **keys}
    with Simulator(limits=Limits(rpm=10_000, itpm=10**8, otpm=10**7)) as sim:
        house.config.write_text(f"[limits]\ndisk_free_min = 0\n{upstream(house.home, sim.url)}")
        house.start_daemon()
        plan = "[[tasks]]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in task.items())
        house.ok("run", "-d", house.plan(plan), env={"PATH": f"{CLAUDE.parent}:{os.environ['PATH']}"})
        wait_until(lambda: house.state("agent") == "running" and house.task("agent").pane_id, "its pane")
        yield Session(house, sim, home)


def place(house: House) -> Path:
    return Path(str(house.task("agent").worktree))


@pytest.mark.timeout(400)  # some 20 s on a quiet machine; with a load of 27 on 2 cores it was ended in its last steps after 180
def test_a_day_with_it(house: House, tmp_path: Path) -> None:
    (house.repo / "hooks.json").write_text(kinds()["claude"].settings)
    git(house.repo, "add", "-A")
    git(house.repo, "commit", "-q", "-m", "hooks of a nested agent")
    with claude(house, tmp_path / "person", prompt="one", allow=["Bash(until:*)"]) as it:
        wait_until(lambda: it.sim.tally().asked, "its first turn: it says that it is idle before that, too")
        wait_until(it.prompts, "its transcript")
        assert {"hook", "session_file", "process"} <= {piece["source"] for piece in it.becomes("idle")["evidence"]}
        refuses(it)
        approves(it)
        waits_for_the_provider(it)
        it.agent.tmux("copy-mode", "-t", it.agent.pane)
        it.send("six")
        wait_until(lambda: it.sent()[-1] == "confirmed", "the text: copy mode is left first")
        wait_until(lambda: it.prompts()[-1] == "six", "its transcript, which it writes later than it takes a prompt")
        it.becomes("idle")
        assert it.prompts() == ["one", "two", "three", "four", "five", "six"], "each once"
        it.send("/exit")
        wait_until(lambda: house.task("agent").final, "its end")
        assert (house.task("agent").state, it.told["state"]) == ("done", "done")


def refuses(it: Session) -> None:
    """The answer No in a permission dialog: no hook says it. A dialog is never typed into."""
    it.sim.faults(Fault(contains="two", command="python3 -c 'print(1)'", times=1))
    it.send("two")
    assert "python3" in it.becomes("waiting_permission")["detail"]
    assert it.send("three")["state"] == "pending"
    it.answer("No")
    wait_until(lambda: it.sent()[-1] == "confirmed", "the text that waited for the dialog")
    it.becomes("idle")


def approves(it: Session) -> None:
    """Yes, and then a tool that is silent for long, with another Claude Code in it, whose hooks say that it began and ended."""
    it.sim.faults(Fault(contains="four", command=NESTED, times=1))
    it.send("four")
    own = {piece["session"] for piece in it.becomes("waiting_permission")["evidence"]}
    it.answer("Yes")
    log = place(it.house) / "nested.log"
    wait_until(lambda: log.exists() and log.read_text(), "the nested agent to end")
    told = it.becomes("working")
    assert {piece["session"] for piece in told["evidence"]} == own
    (place(it.house) / "go").write_text("")
    it.becomes("idle")


def waits_for_the_provider(it: Session) -> None:
    """It thinks for long; a 529 and some 429, which nobody but the gateway sees; Esc amid a turn, which no hook says."""
    it.sim.faults(contains="five", status=529, times=2)
    it.sim.faults(contains="five", status=429, retry_after="2", times=2)
    it.sim.faults(contains="five", hold="thinks", times=1)
    it.send("five")
    it.becomes("rate_limited")
    it.sim.wait_held("thinks")
    it.becomes("working")
    it.keys("Escape")
    it.becomes("idle", "interrupted")
    it.sim.release("thinks")
    wait_until(lambda: re.search(r"^❯\s+five", it.screen(), re.MULTILINE), "the prompt that is put back into its input line")
    it.keys("C-u")
    wait_until(lambda: re.search(r"^❯\s*$", it.screen(), re.MULTILINE), "an empty input line")


def test_a_dialog_at_its_start_is_reported_and_nothing_is_typed_into_it(house: House, tmp_path: Path) -> None:
    """Also the list of who needs a person has it, although it has said nothing yet."""
    with claude(house, tmp_path / "person", trusted=False, prompt="one") as it:
        told = it.becomes("blocked_startup")
        assert "trust" in told["detail"] and told["needs_person"]
        assert [one["state"] for one in json.loads(house.ok("status", "--json"))["needs_person"]] == ["blocked_startup"]
        wait_until(lambda: house.task("agent").attempt_state == "running", "the supervisor to have seen its runner")
        kept = it.send("two")
        assert kept["state"] == "pending" and "dialog" in kept["why"]
        assert house.run("send", "--now", "agent", "three").returncode != 0
        assert it.prompts() == [] and it.told["state"] == "blocked_startup", "nobody answered it"
        house.ok("kill", "agent")


def test_codex_asks_whether_it_may_trust_the_repository_until_it_was_told(house: House, tmp_path: Path) -> None:
    """Then it does not: tests/server/test_codex_hooks.py."""
    if not (CLAUDE.parent / "codex").exists():
        pytest.skip("make clients installs it")
    home = tmp_path / "person"
    files.private_dir(files.private_dir(home) / ".codex")
    files.private_dir(house.home.root)
    with Simulator() as sim:
        house.config.write_text(f"[limits]\ndisk_free_min = 0\n{upstream(house.home, sim.url, api='openai')}")
        house.start_daemon()
        keys = {"id": "agent", "kind": "codex", "interactive": True, "sandbox": 0, "params.HOME": str(home), "prompt": "one"}
        plan = "[[tasks]]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in {**keys, "model": Codex.model}.items())
        house.ok("run", "-d", house.plan(plan), env={"PATH": f"{CLAUDE.parent}:{os.environ['PATH']}"})
        it = Session(house, sim, home)
        wait_until(lambda: house.state("agent") == "running" and house.task("agent").pane_id, "its pane")
        assert "trust" in it.becomes("blocked_startup")["detail"]
        assert sim.tally().asked == 0
        house.ok("kill", "agent")
