"""Messages to a person, by apprise, to a real receiver on this machine."""

from __future__ import annotations

import asyncio
import json
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from agents.tmux import Tmux
from supervisor.features.notify import post
from supervisor.features.notify.rules import AGAIN_S, GROUP_S, RETRY_S, Kind, Notice, Receiver, Terms
from supervisor.features.notify.service import Notifying, Sources, kept
from supervisor.host.paths import Home
from supervisor.server import lock
from supervisor.store import journal
from supervisor.store.ledger import Ledger
from tests.store.kit import Wall
from tests.support import House, wait_until

SECRET = "sk-ant-0123456789abcdef0123"


@dataclass
class Inbox:
    """What was received, and with which status it answers."""

    port: int = 0
    status: int = 200
    messages: list[dict[str, Any]] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"json://127.0.0.1:{self.port}/hooks/aSecretPath42"

    @property
    def titles(self) -> list[str]:
        return [message["title"] for message in self.messages]


@pytest.fixture
def inbox() -> Iterator[Inbox]:
    made = Inbox()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            made.messages.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(made.status)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Says nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        made.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield made
        server.shutdown()
        thread.join()


class Night:
    """A supervisor's messages, whose clock a test moves."""

    def __init__(self, root: Path, inbox: Inbox, **terms: Any) -> None:
        self.home, self.wall, self.said, self.goes_on = Home(root), Wall(), list[str](), list[Notice]()
        root.mkdir()
        self.ledger = Ledger(self.home.ledger, self.wall)
        self.terms = Terms((Receiver("urls[0]", inbox.url),), **terms)
        self.restart()

    def restart(self) -> None:
        """As a supervisor that was killed and started again."""

        async def goes_on() -> list[Notice]:
            return self.goes_on

        clock = type("Clock", (), {"wall": lambda _: self.wall.now, "monotonic": lambda _: self.wall.now})()
        self.notifying = Notifying(self.home.notices, self.terms, clock, Sources(self.ledger, goes_on, self.said.append))

    def look(self, after_s: float = 0.0) -> None:
        self.wall.now += after_s
        asyncio.run(self.notifying.look())

    def fails(self, *tasks: str, cause: str = "exit code 1") -> None:
        for task in tasks:
            self.ledger.journal(task, 1, "end failed", {"task": "failed", "cause": cause})


@pytest.fixture
def night(tmp_path: Path, inbox: Inbox) -> Iterator[Night]:
    made = Night(tmp_path / "home", inbox)
    with closing(made.ledger):
        yield made


def test_a_storm_is_one_message_and_a_restart_repeats_nothing(night: Night, inbox: Inbox) -> None:
    night.fails(*(f"r/{number}" for number in range(50)))
    night.look()
    night.restart()
    night.look(GROUP_S)
    night.restart()
    night.fails("r/7")
    night.look(60)
    night.look(AGAIN_S - GROUP_S - 61)
    assert inbox.titles == ["nightcrew: 50 failed"]
    body = inbox.messages[0]["message"]
    assert "r/9: failed" in body and "exit code" not in body and "and 40 more failed" in body
    told = [one["data"] for one in journal.after(night.ledger.db, 0, 1000) if one["event"] == "notified"]
    assert told == [{"what": "nightcrew: 50 failed", "urls": 1, "failed": [], "outcome": "sent", "after_s": GROUP_S}]


def test_what_was_being_sent_when_the_supervisor_was_killed_comes_once_more_a_quarter_of_an_hour_later(
    night: Night, inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        """Whatever ends a process between two instructions."""

    real = post.post

    async def arrives_and_dies(*args: Any) -> dict[str, str]:
        await real(*args)
        raise Killed

    night.fails("r/a")
    night.look()
    monkeypatch.setattr(post, "post", arrives_and_dies)
    with pytest.raises(Killed):
        night.look(GROUP_S)
    monkeypatch.undo()
    night.restart()
    night.look(AGAIN_S - 1)
    assert len(inbox.messages) == 1
    night.look(1)
    assert len(inbox.messages) == 2, "nobody could know that it had arrived"


def test_a_receiver_that_is_down_gets_it_later(night: Night, inbox: Inbox) -> None:
    inbox.status = 503
    night.fails("r/a")
    night.look()
    night.look(GROUP_S)
    known = kept(night.home.notices)
    assert known is not None and [message.left for message in known.outbox] == [("urls[0]",)]
    inbox.status = 200
    night.look(RETRY_S[0])
    known = kept(night.home.notices)
    assert known is not None and known.outbox == () and inbox.titles == ["nightcrew: failed"] * 2


def test_hostile_text_and_secrets_are_told_harmlessly_and_only_when_asked(night: Night, inbox: Inbox) -> None:
    night.terms = replace(night.terms, text=True)
    night.restart()
    night.fails("r/a", cause=f"\x1b]0;owned\x07\u202egnp.exe api_key={SECRET} and\nmore{'x' * 200}")
    night.fails("r/b", cause=f"{'x' * 170} {SECRET} is cut in two")
    night.goes_on = [Notice(Kind.BREAKER_OPEN, "b", "no key", night.wall.now)]
    night.look()
    night.look(GROUP_S)
    (message,) = inbox.messages
    assert message["title"] == "nightcrew: 2 failed, no model is served"
    assert "\x1b" not in message["message"] and "\u202e" not in message["message"] and "sk-ant" not in message["message"]
    assert max(map(len, message["message"].splitlines())) <= 200


def test_an_answer_that_is_no_says_why_and_not_where(inbox: Inbox, tmp_path: Path) -> None:
    inbox.status = 401
    file = tmp_path / "address"
    file.write_text(inbox.url)
    file.chmod(0o600)
    receivers = [Receiver("env:NTFY", "env:NTFY"), Receiver(f"file:{file}", f"file:{file}"), Receiver("env:NONE", "env:NONE")]
    answers = asyncio.run(post.post([*receivers, Receiver("urls[3]", "nosuch://x")], "t", "b", {"NTFY": inbox.url}))
    assert len(inbox.messages) == 2
    assert [bool(why) for why in answers.values()] == [True] * 4
    assert "aSecretPath42" not in "".join(answers.values()) and "401" in answers["env:NTFY"]
    said = post.without_address(f"no answer of {inbox.url} \x1b[31mred\nnext", inbox.url)
    assert "aSecretPath42" not in said and said.startswith("no answer of [hidden]") and said.endswith(" red\\nnext")
    assert "not set" in answers["env:NONE"]
    file.chmod(0o644)
    assert "others can read it" in asyncio.run(post.post(receivers[1:2], "t", "b", {}))[f"file:{file}"]


def test_the_verb_tries_it_and_shows_what_is_set(house: House, inbox: Inbox) -> None:
    assert house.run("notify", "test").returncode == 3
    house.config.write_text(f'{house.config.read_text()}[notify]\nurls = ["env:NTFY", "{inbox.url}"]\nquiet_hours = "22:00-06:00"\n')
    done = house.run("notify", "test", env={"NTFY": inbox.url})
    assert (done.returncode, done.stdout) == (0, "env:NTFY  taken\nurls[1]  taken\n"), done.stderr
    assert "sent by this shell, as no supervisor runs" in done.stderr
    assert inbox.titles == ["nightcrew: a test"] * 2
    shown = json.loads(house.ok("notify", "status", "--json"))
    assert shown["receivers"] == ["env:NTFY", "urls[1]"] and shown["quiet_hours"] == "22:00-06:00" and "aSecret" not in str(shown)


def test_a_supervisor_that_a_verb_starts_has_the_variables_that_urls_names_and_no_agent_has_them(house: House, inbox: Inbox) -> None:
    """Started from a shell that has it, asked from one that has not."""
    house.config.write_text(f'{house.config.read_text()}[notify]\nurls = ["env:NTFY"]\n')
    house.ok("up", "-d", env={"NTFY": inbox.url, "OTHER": "a canary"})
    secret, pid = inbox.url.encode(), lock.holder(house.home.lock)
    tried = json.loads(house.ok("notify", "test", "--json", env={"NTFY": "json://127.0.0.1:1/of-the-wrong-shell"}))
    assert tried == {"schema": 1, "by": f"the supervisor (pid {pid})", "receivers": [{"name": "env:NTFY", "taken": True, "why": ""}]}
    assert inbox.titles == ["nightcrew: a test"] and not house.home.handed.exists()
    house.ok("run", house.plan('[[tasks]]\nid = "one"\ncommand = "cat /proc/*/environ /proc/*/cmdline >$NIGHTCREW_OUT/all 2>&1; true"\n'))
    assert secret not in (house.home.attempt(house.task("one").id, 1) / "out" / "all").read_bytes()
    for ours in (pid, house.tmux_pid()):
        for file in ("environ", "cmdline"):
            assert secret not in Path(f"/proc/{ours}/{file}").read_bytes()
    with Tmux(house.home.tmux_socket) as tmux:
        shown = [subprocess.run([*_tmux(house), *words], capture_output=True, text=True, check=True).stdout for words in _ENVIRONMENTS]
        assert tmux.server_pid() is not None and inbox.url not in "".join(shown) and "PATH=" in shown[0]
    house.config.write_text(house.config.read_text().replace("env:NTFY", "env:NTFI"))
    assert "has changed since" in house.run("notify", "test").stderr


_ENVIRONMENTS = (("show-environment", "-g"), ("show-environment", "-t", "supervisor"))


def _tmux(house: House) -> list[str]:
    return ["tmux", "-S", str(house.home.tmux_socket)]


@pytest.mark.soak
def test_a_whole_supervisor_tells_of_a_failure_once_though_it_is_killed(house: House, inbox: Inbox) -> None:
    house.config.write_text(f'{house.config.read_text()}[notify]\nurls = ["env:NTFY"]\n')
    daemon = house.start_daemon(env={"NTFY": inbox.url})
    house.ok("run", "--detach", house.plan('[[tasks]]\nid = "bad"\ncommand = "exit 1"\n'))
    wait_until(lambda: house.home.notices.exists() and "/bad" in house.home.notices.read_text(), "it to be heard")
    daemon.kill()
    daemon.wait()
    house.ok("up", "-d", env={"NTFY": inbox.url})
    wait_until(lambda: not json.loads(house.home.notices.read_text())["outbox"] and inbox.messages, "the message")
    assert [(one["title"], one["message"].endswith("/bad: failed")) for one in inbox.messages] == [("nightcrew: failed", True)]
    house.ok("down")
    assert json.loads(house.ok("notify", "status", "--json"))["sent"] == 1
