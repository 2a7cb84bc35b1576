"""`nightcrew send`: a text reaches its agent's terminal once, byte for byte, whatever happens to the supervisor; or it waits."""

from __future__ import annotations

import hashlib
import json
import os
import pty
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import tests.data
from agents import delivery
from supervisor.host import terminals
from tests.support import House, make_repository, plan_of, shell_task, wait_until

RAW = 'stty raw -echo; printf "\\033[?2004hready"; exec cat > typed'
"""A program that reads every byte, and asks for bracketed pastes, like the screen of an agent."""
NO_RECORD = "a program of its kind does not say what it takes"


def paste(text: str) -> bytes:
    """What a program reads that asked for bracketed pastes."""
    return b"\x1b[200~" + text.encode() + b"\x1b[201~\r"


class Agent:
    """A terminal task that runs."""

    def __init__(self, house: House, name: str = "agent", script: str = RAW, ready: str = "ready", command: tuple[str, ...] = ()) -> None:
        self.house, self.name, self.skipped = house, name, 0
        house.ok("run", "-d", house.plan(plan_of([shell_task(name, [*(command or ("sh", "-c", script))], kind="terminal")])))
        wait_until(lambda: house.state(name) == "running" and self.view.attempt_state == "running", f"{name} to run")
        self.await_screen(ready)
        wait_until(lambda: self.age_s > delivery.BEGUN_S, "it to be awake")

    @property
    def age_s(self) -> float:
        """Of its runner, which is the older."""
        return terminals.age_s((int(self.tmux("display-message", "-p", "-t", self.pane, "#{pane_pid}")),)) - 0.5

    @property
    def view(self) -> Any:
        return self.house.task(self.name)

    @property
    def place(self) -> Path:
        return Path(self.view.worktree)

    @property
    def typed(self) -> bytes:
        file = self.place / "typed"
        return file.read_bytes()[self.skipped :] if file.exists() else b""

    def tmux(self, *words: str) -> str:
        argv = ["tmux", "-u", "-S", str(self.house.home.tmux_socket), *words]
        return subprocess.run(argv, check=True, stdout=subprocess.PIPE, text=True, timeout=10).stdout

    @property
    def pane(self) -> str:
        return str(self.view.pane_id)

    def await_screen(self, text: str) -> None:
        wait_until(lambda: self.view.pane_id and text in self.tmux("capture-pane", "-p", "-t", self.pane), f"{text!r} on the screen")

    def send(self, *args: str) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self.house.ok("send", self.name, *args, "--json"))
        one: dict[str, Any] = answer["deliveries"][0]
        return one

    def states(self) -> list[str]:
        shape = json.loads(self.house.ok("status", self.name, "--json"))
        return [one["state"] for one in shape["deliveries"]]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """One supervisor for all the agents that need no other one."""
    place = tmp_path_factory.mktemp("house")
    made = House(place, make_repository(place / "repo"))
    made.start_daemon()
    yield made
    made.reap()


@pytest.fixture(scope="module")
def reader(shared: House) -> Agent:
    return Agent(shared, "reader")


@pytest.fixture
def agent(reader: Agent) -> Agent:
    """A raw reader, of which a test sees what was typed in its time."""
    reader.skipped += len(reader.typed)
    return reader


def test_texts_of_all_sizes_arrive_byte_for_byte_and_are_submitted_once(agent: Agent, tmp_path: Path) -> None:
    for size in (0, 1, 20_000, 200_000, 2_000_000):
        text = ("äö\t'\"$HOME `id` #{pid} ; \\\n" * (size // 20 + 1)).encode()[:size].decode(errors="ignore").rstrip("\n")
        if size == 1:
            text = "x"
        file, before = tmp_path / "text", len(agent.typed)
        file.write_text(text)
        one = agent.send("--file", str(file))
        assert (one["state"], one["bytes"], one["why"]) == ("unconfirmed", len(text.encode()), NO_RECORD)
        wait_until(lambda: agent.typed[before:].endswith(b"\r"), "the Enter")  # noqa: B023 - called at once
        assert agent.typed[before:] == (paste(text) if text else b"\r")
    assert agent.tmux("list-buffers") == ""
    assert not [file for file in agent.house.home.run_dir.iterdir() if "text" in file.name]


def test_a_scrolled_pane_and_a_text_that_would_end_its_own_paste(agent: Agent) -> None:
    agent.tmux("copy-mode", "-t", agent.pane)
    agent.send("look\x1b[201~\r/exit\r\x03\n\n")
    wait_until(lambda: agent.typed.endswith(b"\r"), "the Enter")
    assert agent.typed == paste("look[201~\n/exit")


def test_lines_arrive_as_they_are_in_a_program_that_has_bracketed_pastes_off(shared: House) -> None:
    plain = Agent(shared, script=RAW.replace("2004h", "2004l"))
    plain.send("one\ntwo")
    wait_until(lambda: plain.typed.endswith(b"\r"), "the Enter")
    assert plain.typed == b"one\ntwo\r"
    shared.ok("kill", "agent")


def test_a_text_of_control_characters_only_is_refused_before_anything_is_kept(agent: Agent) -> None:
    before = agent.states()
    done = agent.house.run("send", agent.name, "\x1b\x03\r\n")
    assert (done.returncode, done.stdout) == (2, "")
    assert "nothing of the text can be typed" in done.stderr
    assert (agent.states(), agent.typed) == (before, b"")
    assert agent.house.run("send", agent.name).returncode == 2


def test_a_program_that_does_not_read_is_not_typed_into_again_until_it_has_read(shared: House) -> None:
    deaf = Agent(shared, script='stty raw -echo; printf "\\033[?2004hready"; until [ -e go ]; do sleep 0.05; done; exec cat > typed')
    first = deaf.send("first")
    assert (first["state"], first["epoch"], first["why"]) == ("unconfirmed", 1, "its program has not read all of it yet")
    assert (first["bytes"], first["sha256"]) == (5, hashlib.sha256(b"first").hexdigest())
    kept = deaf.send("second")
    assert (kept["state"], kept["epoch"], kept["why"]) == ("pending", None, "its program does not read its terminal now")
    behind = deaf.send("third")
    assert (behind["state"], behind["why"]) == ("pending", "a text that was sent before it waits")
    assert "2 texts wait: its program does not read its terminal now" in shared.ok("status")
    refused = shared.run("send", "agent", "fourth", "--now")
    assert (refused.returncode, "a text that was sent before it waits" in refused.stderr) == (6, True)
    (deaf.place / "go").touch()
    wait_until(lambda: deaf.typed.endswith(paste("third")), "the texts that waited")
    assert deaf.typed == paste("first") + paste("second") + paste("third")
    assert deaf.states() == ["unconfirmed", "unconfirmed", "unconfirmed", "dropped"]
    shared.ok("kill", "agent")


def test_a_dialog_on_the_screen_is_not_typed_into(shared: House) -> None:  # X10
    screen = Path(tests.data.__file__).parent / "screens/codex-0.169.0/trust.txt"
    script = f"stty raw -echo; cat {screen}; until [ -e go ]; do sleep 0.05; done; clear; exec cat > typed"
    asking = Agent(shared, script=script, ready="Trust and continue")
    kept = asking.send("1")
    assert (kept["state"], kept["why"]) == ("pending", "it shows a dialog: trust (codex)")
    assert asking.view.state == "running"
    (asking.place / "go").touch()
    wait_until(lambda: asking.typed == b"1\r", "the text, once the dialog has gone")
    shared.ok("kill", "agent")


def test_a_text_for_a_task_that_does_not_run_yet_waits_for_it(shared: House) -> None:
    first = shell_task("first", "until [ -e go ]; do sleep 0.05; done")
    later = shell_task("later", ["sh", "-c", 'read line; printf %s "$line" > typed; exec sleep 100'], kind="terminal", after=["first"])
    shared.ok("run", "-d", shared.plan(plan_of([first, later])))
    (kept,) = json.loads(shared.ok("send", "later", "early", "--json"))["deliveries"]
    assert (kept["state"], kept["why"]) == ("pending", "its agent does not run now")
    wait_until(lambda: shared.task("first").worktree, "the first task")
    Path(str(shared.task("first").worktree), "go").touch()
    wait_until(lambda: shared.task("later").worktree, "the task")
    typed = Path(str(shared.task("later").worktree), "typed")
    wait_until(lambda: typed.exists() and typed.read_bytes() == b"early", "the text")
    shared.ok("kill", "later")


def test_a_line_that_the_terminal_would_cut_is_kept(shared: House) -> None:
    lines = Agent(shared, script='printf ready; while IFS= read -r line; do printf "%s\\n" "$line" >> typed; done')
    kept = lines.send("x" * 4095)
    assert (kept["state"], kept["why"]) == ("pending", "its program reads whole lines, of at most 4095 bytes; the longest has 4096")
    shared.ok("kill", "agent")
    wait_until(lambda: lines.states() == ["dropped"], "the text to be dropped with its task")
    assert shared.run("send", "agent", "late").returncode == 6


def test_a_person_who_types_is_not_interrupted(agent: Agent, terminal: Callable[[Agent], int]) -> None:
    person = terminal(agent)
    os.write(person, b"half a thou")
    wait_until(lambda: agent.typed == b"half a thou", "what the person types")
    kept = agent.send("from afar")
    assert (kept["state"], kept["why"]) == ("pending", "a person types in its pane")
    os.write(person, b"ght\r")
    wait_until(lambda: agent.typed.endswith(paste("from afar")), "the text, when the person has been still for a while")
    assert agent.typed == b"half a thought\r" + paste("from afar")


@pytest.fixture
def terminal() -> Iterator[Callable[[Agent], int]]:
    """Attach as a person does, in a terminal of the test's own."""
    made: list[tuple[int, int]] = []

    def attach(agent: Agent) -> int:
        pid, handle = pty.fork()
        if pid == 0:
            environment = {"PATH": os.environ["PATH"], "TERM": "xterm", "LC_ALL": "C.UTF-8"}
            argv = ["tmux", "-u", "-S", str(agent.house.home.tmux_socket), "attach-session", "-t", str(agent.view.session_id)]
            os.execvpe("tmux", argv, environment)  # noqa: S606 - a real terminal needs a real client
        made.append((pid, handle))
        wait_until(lambda: "0 " in agent.tmux("list-clients", "-F", "#{client_control_mode} "), "the client")
        return handle

    yield attach
    for pid, handle in made:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(handle)


@pytest.mark.parametrize(
    ("place", "why"),
    [("send.kept", NO_RECORD), ("send.committed", NO_RECORD), ("send.typed", "the supervisor ended before anything confirmed it")],
)
def test_a_supervisor_killed_at_any_step_has_the_text_typed_once(house: House, place: str, why: str) -> None:
    dying = house.start_daemon(die_at=place)
    agent = Agent(house)
    assert house.run("send", "agent", "only once").returncode == 5
    dying.wait()
    house.start_daemon()
    wait_until(lambda: agent.states() == ["unconfirmed"], "the text to be settled")
    wait_until(lambda: agent.typed.endswith(b"\r"), "the Enter")
    assert agent.typed == paste("only once")
    (one,) = json.loads(house.ok("status", "agent", "--json"))["deliveries"]
    assert (one["why"], one["bytes"]) == (why, 9)


def test_a_text_whose_pane_went_with_the_supervisor_is_settled_without_another_try(house: House) -> None:
    dying = house.start_daemon(die_at="send.typed")
    agent = Agent(house)
    house.run("send", "agent", "only once")
    dying.wait()
    agent.tmux("kill-session", "-t", str(agent.view.session_id))
    house.start_daemon()
    wait_until(lambda: agent.states() == ["unconfirmed"], "the text to be settled")
    (one,) = json.loads(house.ok("status", "agent", "--json"))["deliveries"]
    assert one["epoch"] == 1 and one["why"] in (
        "the supervisor ended before anything confirmed it, and its pane is gone",
        "its task ended first",  # its end was seen before its text
    )


def test_to_all_and_to_a_run(agent: Agent) -> None:
    house = agent.house
    other = Agent(house, "other")
    house.ok("run", "-d", house.plan(plan_of([shell_task("headless", "sleep 100")])))
    wait_until(lambda: house.task("headless").attempt_state == "running", "the headless one to run")
    answer = json.loads(house.ok("send", "--all", "to all", "--json"))
    assert [one["task"] for one in answer["deliveries"]] == [agent.view.id, other.view.id]
    assert answer["left_out"] == {house.task("headless").id: "it is headless: a task of kind shell reads no terminal"}
    house.ok("send", "--run", other.view.run, "to one")
    wait_until(lambda: agent.typed == paste("to all") and other.typed == paste("to all") + paste("to one"), "the texts")
    refused = house.run("send", "headless", "x")
    assert (refused.returncode, "reads no terminal" in refused.stderr) == (6, True)
    assert house.run("send", "--all", "--run", "x", "text").returncode == 2


def test_ids_not_names_say_where_a_text_goes_and_the_journal_has_none_of_it(agent: Agent) -> None:  # P18, X10
    agent.tmux("rename-session", "-t", str(agent.view.session_id), "other")
    agent.tmux("split-window", "-d", "-t", agent.pane, "--", "env", "sleep", "100")
    agent.send("a secret word")
    wait_until(lambda: agent.typed == paste("a secret word"), "the text")
    ledger = agent.house.home.ledger
    assert not [
        file for file in ledger.parent.iterdir() if file.is_file() and b"a secret word" in file.read_bytes() and "wal" not in file.name
    ]
    shape = json.loads(agent.house.ok("status", agent.name, "--json"))
    assert "secret" not in json.dumps(shape)
    assert [entry["event"] for entry in shape["journal"]][-2:] == ["send", "send unconfirmed"]
