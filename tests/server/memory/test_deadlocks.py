"""Agents that would wait for each other, as processes of their own at the real socket; and what a killed supervisor knows of who waited."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from supervisor import __version__
from supervisor.client import protocol
from supervisor.host import attempt_tokens, secrets
from supervisor.kernel.errors import Deadlock, NotRunning
from supervisor.store import sqlite
from tests.support import House, plan_of, shell_task, wait_until

FOREVER = "exec sleep 600"
AGENT = f"""
import json, os, pathlib, socket, sys, time

def ask(verb, **args):
    with socket.socket(socket.AF_UNIX) as door:
        door.connect(os.environ["NIGHTCREW_AGENTS_SOCKET"])
        asked = {{"version": {__version__!r}, "verb": verb, "args": args, "token": os.environ["NIGHTCREW_TOKEN"]}}
        door.sendall(json.dumps(asked).encode() + b"\\n")
        return json.loads(door.makefile().readline())

mine, others, place = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
assert ask("lease", op="take", globs=[mine])["ok"]
(place / mine).touch()
while not (place / others).exists():
    time.sleep(0.01)
got = ask("lease", op="take", globs=[others], wait_s=300)
if not got["ok"]:
    ask("lease", op="release", globs=[mine])
print(json.dumps({{"error": None if got["ok"] else got["error"]["error"], "why": "" if got["ok"] else got["error"]["why"]}}))
"""


def test_two_agents_that_cross_hold_two_files_both_end(house: House, tmp_path: Path) -> None:
    """One of them is told at once, gives its own back, and the other one gets it."""
    (script := tmp_path / "agent.py").write_text(AGENT)
    (place := tmp_path / "place").mkdir()
    house.start_daemon()
    words = {"a": ["one.py", "two.py"], "b": ["two.py", "one.py"]}
    tasks = [shell_task(name, [sys.executable, str(script), *files, str(place)]) for name, files in words.items()]
    house.ok("run", "--detach", house.plan(plan_of(tasks)))
    house.wait_final()
    said = {name: (house.task(name).result or {})["output"] for name in words}
    assert sorted(one["error"] or "" for one in said.values()) == ["", "Deadlock"], said
    (why,) = (one["why"] for one in said.values() if one["error"])
    for name in words:
        assert why.count(house.task(name).id) == 2, "the whole cycle: each waits for the other"
    assert "one.py" in why and "two.py" in why
    assert open_rows(house) == []


@pytest.fixture
def crew(house: House) -> Iterator[Crew]:
    """A lead with a child, and two more agents, all of which live as long as the test."""
    house.config.write_text("slots = 8\n" + house.config.read_text())
    daemon = house.start_daemon()
    tasks = [shell_task("lead", FOREVER, children_max=2), *(shell_task(name, FOREVER) for name in ("b", "c"))]
    house.ok("run", "--detach", house.plan(plan_of(tasks)))
    made = Crew(house, daemon)
    made.ask("lead", "add", text=FOREVER, options={"id": "child"})
    yield made
    made.close()


class Crew:
    """Asks as the agents, each request in a thread of its own; one that the supervisor left unanswered is asked again, as clients do."""

    def __init__(self, house: House, daemon: subprocess.Popen[bytes]) -> None:
        self.house, self.daemon = house, daemon
        self._threads = ThreadPoolExecutor(40)
        self._over = False

    def close(self) -> None:
        self._over = True
        self.house.reap()
        self._threads.shutdown()

    def token(self, name: str) -> str:
        wait_until(lambda: self.house.task(name).attempt_state == "running", f"{name} to run")
        return attempt_tokens.derive(secrets.own(self.house.home.secret), self.house.task(name).id, 1)

    def ask(self, who: str, verb: str, **args: Any) -> dict[str, Any]:
        return protocol.call(self.house.home.agents_socket, verb, args, timeout_s=300, token=self.token(who))

    def later(self, who: str, verb: str, **args: Any) -> Future[dict[str, Any]]:
        """Ask, and be registered as waiting before this returns."""
        before = len(open_rows(self.house))
        asked = self._threads.submit(self._patiently, who, verb, args)
        wait_until(lambda: asked.done() or len(open_rows(self.house)) > before, f"{who} to wait")
        return asked

    def _patiently(self, who: str, verb: str, args: dict[str, Any]) -> dict[str, Any]:
        while True:
            try:
                return self.ask(who, verb, **args)
            except NotRunning:
                if self._over:
                    raise
                time.sleep(0.1)


def open_rows(house: House) -> list[tuple[str, str]]:
    """Who waits now, by the ledger, and for what."""
    with contextlib.closing(sqlite.connect_readonly(house.home.ledger)) as db:
        found = db.execute("SELECT task, what FROM wait WHERE ended IS NULL ORDER BY number").fetchall()
    return [(row["task"].partition("/")[2], row["what"]) for row in found]


def every_row(house: House) -> int:
    """How often somebody began to wait."""
    with contextlib.closing(sqlite.connect_readonly(house.home.ledger)) as db:
        return int(db.execute("SELECT COUNT(*) FROM wait").fetchone()[0])


def project(house: House) -> str:
    with contextlib.closing(sqlite.connect_readonly(house.home.ledger)) as db:
        return str(db.execute("SELECT id FROM project").fetchone()["id"])


def test_a_cycle_of_task_mail_and_lease_is_refused_and_outlives_a_killed_supervisor(crew: Crew) -> None:
    house, child = crew.house, crew.house.task("child").id
    crew.ask("lead", "lease", op="take", globs=["src/**"])
    by_task = crew.later("lead", "wait", tasks=["child"], timeout_s=600)
    by_mail = crew.later("child", "mail", op="wait", **{"from": house.task("b").id}, timeout_s=600)
    with pytest.raises(Deadlock) as caught:
        crew.ask("b", "lease", op="take", globs=["src/a.py"], wait_s=60)
    assert type(caught.value) is Deadlock, "refused at once, and not begun and given up"
    words = [f"{house.task('b').id} waits for {house.task('lead').id} (lease src/a.py)", f"(task {child})", "(mail mail from"]
    assert all(word in caught.value.why for word in words)
    others = [crew.later("c", "lease", op="take", globs=[f"src/{at}.py"], wait_s=600) for at in range(20)]
    by_note = crew.later("b", "mem", op="wait", glob="semantic/*.md", timeout_s=600)

    drawn = house.ok("mem", "graph")
    assert "lease src/0.py" in drawn and f"→ {child} (running)" in drawn
    assert len(json.loads(house.ok("mem", "graph", "--json"))["edges"]) == 22 and "digraph" in house.ok("mem", "graph", "--dot")
    assert f"waits for {child.partition('/')[2]}" in house.ok("status", "lead")
    waiting = {one["name"]: (one["waits_for"] or {}).get("code") for one in json.loads(house.ok("status", "--json"))["tasks"]}
    assert waiting == {"lead": "task", "child": "mail", "b": "note", "c": "lease"}

    before = sorted(open_rows(house))
    crew.daemon.kill()
    crew.daemon.wait()
    house.start_daemon()
    with pytest.raises(Deadlock) as again:
        crew.ask("b", "lease", op="take", globs=["src/a.py"], wait_s=60)
    assert type(again.value) is Deadlock
    assert sorted(open_rows(house)) == before, "taken up by those that ask again, each once"

    crew.ask("b", "mail", op="send", to=child, subject="now", text="go on", type="info")
    assert by_mail.result(60)["mail"]["subject"] == "now"
    crew.ask("lead", "lease", op="release")
    for one in others:
        assert len(one.result(60)["leases"]) == 1
    (folder := house.home.memory(project(house)) / "semantic").mkdir(exist_ok=True)
    (folder / "x.md").write_text("a fact\n")
    assert by_note.result(60)["changes"][0]["path"] == "semantic/x.md"
    house.ok("kill", "child")
    assert by_task.result(60)["ended"][0]["task"] == child
    assert open_rows(house) == []
    assert every_row(house) == len(before), "who asked again waited no second time"
