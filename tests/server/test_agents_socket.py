"""`agents.sock`: open to living attempts, for their verbs; closed to everybody else, and to what is a person's."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from supervisor import __version__
from supervisor.client import protocol
from supervisor.features.registry import BUILT_IN
from supervisor.host import attempt_tokens, secrets
from supervisor.kernel.errors import NightcrewError, NotRunning, Refused, UsageError
from supervisor.server.agent_requests import VERBS
from supervisor.server.hooks import Hooks
from supervisor.server.request_table import HANDLERS
from supervisor.server.sockets import AGENTS_SOCKET_TERMS, ASKED_MAX
from supervisor.store import sqlite
from tests.support import House, wait_until

FOREVER = "exec sleep 600"


@pytest.fixture
def agent(house: House) -> str:
    """The token of an attempt that lives as long as the test."""
    house.start_daemon()
    house.ok("add", "--id", "agent", FOREVER)
    wait_until(lambda: house.task("agent").attempt_state == "running", "it to run")
    return token(house)


def token(house: House, name: str = "agent", epoch: int = 1) -> str:
    return attempt_tokens.derive(secrets.own(house.home.secret), house.task(name).id, epoch)


def ask(house: House, verb: str, whose: str, **args: Any) -> dict[str, Any]:
    return protocol.call(house.home.agents_socket, verb, args, timeout_s=30, token=whose)


def refusals(house: House) -> list[tuple[str | None, int | None, dict[str, Any]]]:
    with contextlib.closing(sqlite.connect_readonly(house.home.ledger)) as db:
        rows = db.execute("SELECT task, epoch, data FROM journal WHERE event = 'refused at agents.sock' ORDER BY rowid").fetchall()
    return [(row["task"], row["epoch"], json.loads(row["data"])) for row in rows]


def test_an_agent_learns_who_it_is_with_what_its_environment_holds(house: House, tmp_path: Path) -> None:
    script = tmp_path / "ask.py"
    script.write_text(
        "import json, os, socket\n"
        "door = socket.socket(socket.AF_UNIX)\n"
        "door.connect(os.environ['NIGHTCREW_AGENTS_SOCKET'])\n"
        f"asked = {{'version': {__version__!r}, 'verb': 'whoami', 'args': {{}}, 'token': os.environ['NIGHTCREW_TOKEN']}}\n"
        "door.sendall(json.dumps(asked).encode() + b'\\n')\n"
        "print(door.makefile().readline())\n"
    )
    house.start_daemon()
    house.ok("add", "--id", "curious", "-f", f"{sys.executable} {script}")
    view = house.task("curious")
    may_add = {"children_max": 0, "depth_max": 0, "parent": None, "memory_tools": False}
    share = {"class": "normal", "weight": 1.0, "tpm_max": None, "cost_max": None, "tokens_max": None}
    assert (view.result or {})["output"] == {"ok": True, "value": {"task": view.id, "epoch": 1, "run": view.run, **share, **may_add}}


def test_the_socket_is_the_users_alone(house: House, agent: str) -> None:
    assert stat.S_IMODE(house.home.agents_socket.stat().st_mode) == 0o600
    house.ok("kill", "agent")
    house.ok("down")
    assert not house.home.agents_socket.exists()


def test_no_verb_of_a_person_is_an_agents(house: House, agent: str) -> None:
    hooks = Hooks(BUILT_IN)
    for verb in sorted({*HANDLERS, *hooks.requests} - {*VERBS, *hooks.agent_requests}):
        with pytest.raises(UsageError, match="agents have no verb"):
            pytest.fail(f"{verb}: {ask(house, verb, agent, tasks=[house.task('agent').id], now=True)}")
    assert house.state("agent") == "running" and house.ready()


def test_an_agents_token_opens_nothing_of_a_persons_quota_either(house: House, agent: str) -> None:
    """The verb of the same name is another one: here its answer is for the task."""
    with pytest.raises(NightcrewError, match=r"no quota is called x: config.toml has no \[quota\] tables"):
        ask(house, "quota", agent, quota="x", wait_s=0)
    with pytest.raises(UsageError, match="not a request"):
        ask(house, "quota", agent, quota="x", wait_s="soon")
    with pytest.raises(UsageError, match="not a request"):
        ask(house, "quota", agent)


def test_wrong_foreign_and_forged_tokens_are_refused_and_journalled(house: House, agent: str) -> None:
    name, _, signature = agent.removeprefix(attempt_tokens.PREFIX).rpartition("_")
    other = attempt_tokens.derive(secrets.own(house.home.secret), house.task("agent").id, 2)
    wrong = {
        "nothing": "",
        "foreign": attempt_tokens.derive(b"another secret", house.task("agent").id, 1),
        "forged": f"{attempt_tokens.PREFIX}{name}_{signature[:-1]}{'0' if signature[-1] != '0' else '1'}",
        "of another epoch": f"{other.rpartition('_')[0]}_{signature}",
        "of an epoch that never was": other,
        "the admin's": attempt_tokens.admin(secrets.own(house.home.secret)),
        "long": "nct_" + "A" * 5000,
    }
    for what, text in wrong.items():
        with pytest.raises(Refused, match="its token is not one of ours"):
            pytest.fail(f"{what}: {ask(house, 'whoami', text)}")
    seen = refusals(house)
    assert [(task, epoch) for task, epoch, _ in seen] == [(None, None)], "each is a commit, so a flood of them is one line"
    assert seen[0][2] == {"verb": "whoami", "pid": os.getpid(), "why": "its token is not one of ours"}
    assert agent not in house.daemon_output() and "agents.sock refused" in house.daemon_output()


def test_a_token_ends_with_its_attempt(house: House, agent: str) -> None:
    assert ask(house, "whoami", agent)["epoch"] == 1
    house.ok("kill", "agent")
    with pytest.raises(Refused, match="its attempt has ended"):
        ask(house, "whoami", agent)
    assert [row[:2] for row in refusals(house)] == [(house.task("agent").id, 1)], "it stands in the task's own history"
    house.ok("retry", "agent")
    wait_until(lambda: house.task("agent").attempt_state == "running", "its next attempt")
    with pytest.raises(Refused, match="its attempt has ended"):
        ask(house, "whoami", agent)
    assert ask(house, "whoami", token(house, epoch=2))["epoch"] == 2


def test_a_token_outlives_the_supervisor(house: House, agent: str) -> None:
    house.ok("down", "--now")
    with pytest.raises(NotRunning):
        ask(house, "whoami", agent)
    house.start_daemon()
    assert ask(house, "whoami", agent)["task"] == house.task("agent").id


def test_what_is_no_request_gets_a_sentence(house: House, agent: str) -> None:
    for line in (b"", b"hello", b"[]", b"5", b'"x"', b'{"version": "0"}', b"[" * 50_000, b"\xff\xfe", b'{"args": 1}'):
        answer = raw(house, line + b"\n")
        assert answer["ok"] is False and answer["error"]["what"] == "not a request", line[:20]
    assert ask(house, "whoami", agent)["epoch"] == 1


def test_a_large_request_is_refused_and_not_gathered(house: House, agent: str) -> None:
    answer = raw(house, b'{"x": "' + b"a" * (AGENTS_SOCKET_TERMS.request_max + 2**16))
    assert answer["error"]["what"] == "the request could not be read"
    assert answer["error"]["why"] == f"it is longer than {AGENTS_SOCKET_TERMS.request_max} bytes"


def raw(house: House, line: bytes) -> dict[str, Any]:
    with socket.socket(socket.AF_UNIX) as door:
        door.settimeout(30)
        door.connect(str(house.home.agents_socket))
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # shown out before all of it was sent
            door.sendall(line)
        answer: dict[str, Any] = json.loads(door.makefile().readline())
        return answer


@contextlib.contextmanager
def idle(house: House, number: int) -> Iterator[list[socket.socket]]:
    """Connections that say nothing."""
    doors: list[socket.socket] = []
    try:
        for _ in range(number):
            door = socket.socket(socket.AF_UNIX)
            doors.append(door)
            door.settimeout(30)
            door.connect(str(house.home.agents_socket))
        yield doors
    finally:
        for door in doors:
            door.close()


def test_who_says_nothing_is_shown_out(house: House, agent: str) -> None:
    with idle(house, 1) as (door,):
        answer = json.loads(door.makefile().readline())
        assert answer["error"]["what"] == "the request could not be read"


def test_many_who_say_nothing_keep_nobody_out(house: House, agent: str) -> None:
    """More than may be silent at once: those that are silent longest have to go, and whoever says what it wants is served at once."""
    with idle(house, AGENTS_SOCKET_TERMS.silent_max + 50) as doors:
        since = time.monotonic()
        assert ask(house, "whoami", agent)["epoch"] == 1
        assert time.monotonic() - since < AGENTS_SOCKET_TERMS.read_s, "it did not wait for their time to run out"
        assert doors[0].recv(1) == b"", "the first one is out"
        assert house.ready(), "the other door is open too"


FLOOD = """
import os, socket, sys, threading, time
kept, over, first = [], threading.Event(), threading.Event()
def flood():
    while not over.is_set():
        door = socket.socket(socket.AF_UNIX)
        door.setblocking(False)
        try:
            door.connect(sys.argv[1])
        except OSError:
            door.close()
            time.sleep(0.0005)
        else:
            kept.append(door)
        if len(kept) >= 2000:
            first.set()
            del kept[:1000]
threads = [threading.Thread(target=flood) for _ in range(2)]
for thread in threads: thread.start()
first.wait()
print(flush=True)
sys.stdin.read()
over.set()
for thread in threads: thread.join()
"""
"""Connects until its standard input ends, and says nothing. Its first line says that it has connected 2,000 times."""


@contextlib.contextmanager
def program(text: str, *words: str, inside: tuple[str, ...] = ()) -> Iterator[subprocess.Popen[str]]:
    command = [*inside, sys.executable, "-c", text, *words]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        try:
            yield child
        finally:
            assert child.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                child.stdin.close()


def test_a_flood_of_silent_connections_takes_few_descriptors_and_stops_no_work(house: House) -> None:
    daemon = house.start_daemon()
    house.ok("add", "--id", "agent", FOREVER)
    wait_until(lambda: house.task("agent").attempt_state == "running", "it to run")
    whose, descriptors = token(house), Path(f"/proc/{daemon.pid}/fd")
    quiet, most = len(os.listdir(descriptors)), 0
    with program(FLOOD, str(house.home.agents_socket)) as flood:
        assert flood.stdout is not None
        assert flood.stdout.readline() == "\n"
        for _ in range(20):
            assert ask(house, "whoami", whose)["epoch"] == 1
            assert house.ready()
            most = max(most, len(os.listdir(descriptors)))
        house.ok("add", "--id", "later", FOREVER)
        house.ok("kill", "agent")
    assert most < quiet + AGENTS_SOCKET_TERMS.silent_max + 150, (
        "the silent ones, those of one turn of the loop, and what the supervisor itself opens"
    )


HOLD = """
import json, socket, sys
doors = []
for _ in range(int(sys.argv[2])):
    door = socket.socket(socket.AF_UNIX)
    door.connect(sys.argv[1])
    doors.append(door)
    if len(doors) > int(sys.argv[3]):
        print(json.loads(door.makefile().readline())["error"]["why"], flush=True)
sys.stdin.read()
"""
"""Opens so many silent connections, and prints what those beyond a number are told."""


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="no bwrap")
def test_the_processes_of_one_sandbox_hold_few_connections(house: House, agent: str) -> None:
    inside = ("bwrap", "--unshare-pid", "--dev-bind", "/", "/", "--die-with-parent")
    with idle(house, 1) as (door,):
        words = (str(house.home.agents_socket), str(AGENTS_SOCKET_TERMS.sandbox_max + 3), str(AGENTS_SOCKET_TERMS.sandbox_max))
        with program(HOLD, *words, inside=inside) as child:
            assert child.stdout is not None
            told = [child.stdout.readline().strip() for _ in range(3)]
            assert told == [f"the processes of this sandbox hold {AGENTS_SOCKET_TERMS.sandbox_max} connections"] * 3
            assert ask(house, "whoami", agent)["epoch"] == 1
            with program(HOLD, words[0], "1", "1", inside=inside):
                assert ask(house, "whoami", agent)["epoch"] == 1
        door.sendall(json.dumps({"version": __version__, "verb": "whoami", "args": {}, "token": agent}).encode() + b"\n")
        assert json.loads(door.makefile().readline())["ok"], "a client outside the sandbox keeps its connection"


def test_few_requests_of_one_attempt_wait_at_one_moment(house: House, agent: str) -> None:
    mail = ask(house, "mail", agent, op="send", to="person", type="request", text="May I?")["mail"]["id"]
    shape = {"version": __version__, "verb": "mail", "args": {"op": "wait", "id": mail, "timeout_s": 60}, "token": agent}
    with idle(house, ASKED_MAX + 1) as doors:
        for door in doors:
            door.sendall(json.dumps(shape).encode() + b"\n")
        answered = select.select(doors, (), (), 30)[0]
        assert len(answered) == 1, "the others wait"
        why = json.loads(answered[0].makefile().readline())["error"]["why"]
        assert why == f"{ASKED_MAX} requests of this attempt wait for their answers"
        with pytest.raises(Refused, match="one request too many"):
            ask(house, "whoami", agent)
    line = json.dumps({**shape, "verb": "whoami", "args": {}}).encode() + b"\n"
    wait_until(lambda: "value" in raw(house, line), "the others to be let go")
