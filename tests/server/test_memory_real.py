"""One crew of the real Claude Code and the built-in agent, each in a sandbox: both read a note, write one, and answer a mail of the other.

The simulated provider says what each does next, and holds the last answer of a turn until the other's request lies in the agent's inbox.
What an agent was told is read from its requests to the provider, which the gateway records.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from agents.conversation import DEFAULT_MODEL
from supervisor.gateway import replay
from supervisor.host import files
from supervisor.sandbox import executors
from supervisor.sandbox.policy import Tier
from tests.gateway.clients.kit import CLIENTS, ClaudeCode
from tests.gateway.kit import know_prices, upstream
from tests.gateway.simulator import Simulator
from tests.support import House, wait_until

CLAUDE = CLIENTS / "node_modules" / ".bin" / "claude"
TIERS = sorted(int(tier) for tier in executors.known().tiers if tier >= Tier.FILES)
pytestmark = [
    pytest.mark.skipif(not CLAUDE.exists(), reason="make clients installs it"),
    pytest.mark.skipif(not TIERS, reason="this host has no sandbox"),
]
NOTE = "semantic/server.md"
PORT = "The server listens on port 8713."
TEXT = "# Where the server listens\n" + "It was moved before, and may be moved again.\n" * 40 + f"\n{PORT}\n"
"""Longer than what an agent is told of a note before its task: where to read the rest is what it is told."""
MODELS = {"claude": ClaudeCode.model, "mate": DEFAULT_MODEL}
OTHER = {"claude": "mate", "mate": "claude"}
AGENT = '"$NIGHTCREW_AGENT"'


def note(name: str) -> str:
    return f"semantic/of-{name}.md"


def fact(name: str) -> str:
    return f"Fact of {name}."


def text(name: str) -> str:
    return f"# By {name}\n\n{fact(name)}\n"


def question(name: str) -> str:
    return f"Question of {name}."


def answer(name: str) -> str:
    return f"Answer of {name}."


def last_word(name: str) -> str:
    return f"Last word of {name}."


@dataclass
class Crew:
    """Both agents in one run."""

    house: House
    sim: Simulator

    def told(self, *words: str) -> Any:
        """What a person is told."""
        return json.loads(self.house.ok(*words, "--json"))

    def next(self, name: str, knows: str, **does: Any) -> None:
        """How the provider answers the agent's next request in which `knows` is: without that, the agent gets no further."""
        self.sim.faults(model=MODELS[name], contains=knows, times=1, **does)

    def asks(self, name: str, knows: str) -> None:
        """It sends the other a request, and waits for the answer."""
        other = OTHER[name]
        sends = f'{AGENT} mail send {other} --type request --subject "By {name}" "{question(name)}"'
        self.next(name, knows, command=f"{sends} && {AGENT} mail wait --from {other}")

    def ends_turn(self, name: str) -> None:
        """The agent's turn ends once the other's request lies in its inbox and the other waits for it; in its next turn it reads the
        other's note, as a file, and answers."""
        other, task = OTHER[name], self.house.task(name).id
        inbox = self.house.home.attempt(task, 1) / "inbox"
        wait_until(lambda: question(other) in "".join(file.read_text() for file in inbox.glob("*.txt")), f"{inbox} to have it", 300)
        wait = (self.house.task(other).id, [task])
        wait_until(lambda: wait in [(one["task"], one["holders"]) for one in self.told("mem", "graph")["waits"]], f"{other} to wait")
        (request,) = self.told("mail", "ls", "--of", name)["mails"]
        reads = f'cat "$NIGHTCREW_MEMORY/{note(other)}"'
        self.next(name, question(other), command=f'{reads} && {AGENT} mail reply {request["id"]} "{answer(name)}"')
        self.sim.wait_held(name)
        self.sim.release(name)

    def asked(self, name: str) -> list[str]:
        """The messages of each request of an agent to the provider."""

        def tapes() -> list[Path]:
            return sorted(self.house.home.recordings.rglob("*.tape"), key=lambda tape: int(tape.stem))

        wait_until(lambda: len(tapes()) == self.sim.tally().asked, "every request to be recorded")
        bodies = [json.loads(replay.read(tape).body) for tape in tapes()]
        return [json.dumps(body["messages"]) for body in bodies if body["model"] == MODELS[name]]


@contextmanager
def crew(house: House) -> Iterator[Crew]:
    """A memory with a note that a person wrote, and a provider with what both agents do until they have each other's mail."""
    files.private_dir(house.home.root)
    know_prices(house.home)
    with Simulator() as sim:
        house.config.write_text(f"[limits]\ndisk_free_min = 0\n[gateway]\nrecord = true\n{upstream(house.home, sim.url)}")
        house.start_daemon()
        house.ok("mem", "put", NOTE, "--text", TEXT)
        it = Crew(house, sim)
        it.next("claude", NOTE, command=f"{AGENT} mem search server listens && {AGENT} mem show {NOTE}")
        it.next("claude", PORT, command=f'{AGENT} mem put {note("claude")} "{text("claude")}"')
        it.asks("claude", f"path: {note('claude')}")
        it.next("claude", answer("mate"), text="The turn is over.", hold="claude")
        it.next("claude", f"Re: By {OTHER['claude']}", text=last_word("claude"))
        created = {"command": "create", "path": f"/memories/{note('mate')}", "file_text": text("mate")}
        it.next("mate", NOTE, tool="memory", tool_input={"command": "view", "path": f"/memories/{NOTE}"})
        it.next("mate", PORT, tool="memory", tool_input=created)
        it.next("mate", "File created successfully", text="The turn is over.", hold="mate")
        it.asks("mate", f"Re: By {OTHER['mate']}")
        it.next("mate", answer("claude"), text=last_word("mate"))
        yield it


def begin(it: Crew, home: Path) -> None:
    """Claude Code in the first tier that confines, the built-in agent in the last."""
    files.private_dir(files.private_dir(home) / ".claude")
    (home / ".claude.json").write_text("{}")
    claude = {"id": "claude", "kind": "claude", "model": ClaudeCode.model, "sandbox": TIERS[0], "params.HOME": str(home)}
    plan = ""
    for task in (claude, {"id": "mate", "kind": "builtin", "sandbox": TIERS[-1]}):
        keys = {**task, "prompt": "Find out where the server listens."}
        plan += "[[tasks]]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in keys.items())
    it.house.ok("run", "-d", it.house.plan(plan), env={"PATH": f"{CLAUDE.parent}:{os.environ['PATH']}"})


def test_both_read_a_note_write_one_and_answer_a_mail(house: House, tmp_path: Path) -> None:
    with crew(house) as it:
        begin(it, tmp_path / "agent-home")
        it.ends_turn("mate")
        it.ends_turn("claude")
        house.wait_final(300)
        for name in MODELS:
            result = house.task(name).result or {}
            assert (house.task(name).state, result["agent"]["message"]) == ("done", last_word(name)), house.run("logs", name).stdout
            was_told(it, name)
            wrote_a_note(it, name)
            wrote_mail(it, name)


def was_told(it: Crew, name: str) -> None:
    """The note's place before its task, the rest when it asked; of the other its note, its question and its answer. All of it once: the
    last request has the whole conversation."""
    first, *_, last = it.asked(name)
    assert NOTE in first and PORT not in first
    other = OTHER[name]
    assert [last.count(words) for words in (PORT, fact(other), question(other), answer(other))] == [1, 1, 1, 1], last


def wrote_a_note(it: Crew, name: str) -> None:
    """It is a plain file of the memory that says who wrote it, and so does its history."""
    task = it.house.task(name).id
    (file,) = it.house.home.root.glob(f"projects/*/memory/{note(name)}")
    head, _, body = file.read_text().removeprefix("---\n").partition("---\n")
    assert body == text(name) and f"task: {task}\n" in head, head
    (change,) = it.told("mem", "log", note(name))["changes"]
    assert (change["author"], change["epoch"], change["action"]) == (task, 1, "put")


def wrote_mail(it: Crew, name: str) -> None:
    """Its question and the other's answer are one thread, and both were read."""
    task, other = it.house.task(name).id, it.house.task(OTHER[name]).id
    (asked,) = (one for one in it.told("mail", "ls", "--of", name, "--sent")["mails"] if one["type"] == "request")
    thread = it.told("mail", "ls", "--thread", asked["id"])["mails"]
    found = [(one["type"], one["from"], one["to"], one["in_reply_to"], one["state"], one["epoch"]) for one in thread]
    assert found == [("request", task, other, None, "read", 1), ("reply", other, task, asked["id"], "read", 1)]
    for one in thread:
        assert [file.parent.name for file in it.house.home.root.glob(f"projects/*/mail/{one['to']}/*/{one['id']}*")] == ["cur"]
