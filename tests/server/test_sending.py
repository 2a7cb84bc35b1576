"""`nightcrew send`: a text reaches its agent's terminal once, byte for byte, whatever happens to the supervisor; or it waits."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pty
import shlex
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import tests.data
from agents import typing_rules
from supervisor.host import processes
from supervisor.sandbox import homes
from supervisor.server.attempts import sending
from supervisor.store import sqlite
from tests.support import House, make_repository, plan_of, shell_task, wait_until


def paste(text: str) -> bytes:
    """What a program reads that asked for bracketed pastes."""
    return b"\x1b[200~" + text.encode() + b"\x1b[201~\r"


RAW = 'stty raw -echo; printf "\\033[?2004hready"; exec cat > typed'
"""A program that reads every byte, and asks for bracketed pastes, like the screen of an agent."""
UNTIL_GO = "until [ -e go ]; do sleep 0.05; done"
DIALOG = Path(tests.data.__file__).parent / "screens/codex-0.169.0/trust.txt"
SCRIPTS = {
    "reader": RAW,
    "other": RAW,
    "unbracketed": RAW.replace("2004h", "2004l"),
    "deaf": RAW.replace("exec", f"{UNTIL_GO}; exec"),
    "asking": f"stty raw -echo; cat {DIALOG}; printf ready; {UNTIL_GO}; clear; exec cat > typed",
    "lines": "printf ready; read -r line; exec sleep 100",
}
SWALLOWS = f"""
said() {{
    printf '{{"pid":%d,"procStart":"%s","status":"%s","statusUpdatedAt":%d}}' $$ "$ticks" "$1" "$2" > new
    mv new "sessions/$$.json"
}}
ticks=$(cut -d " " -f 22 /proc/$$/stat); mkdir sessions; stty raw -echo; said idle 1000
printf "\\033[?2004hready"; head -c {len(paste("text"))} > typed; head -c 1 >> typed; said busy 2000; sleep 100
"""
"""It keeps a record as Claude Code does, and takes no notice of the first Enter."""
NO_RECORD = "a program of its kind does not say what it takes"


class Agent:
    """A terminal task that runs, and shows that it is ready."""

    def __init__(self, house: House, name: str, ready: str = "ready") -> None:
        self.house, self.name, self.skipped = house, name, 0
        wait_until(lambda: house.state(name) == "running" and self.view.attempt_state == "running", f"{name} to run")
        self.await_screen(ready)
        wait_until(lambda: self.age_s > typing_rules.BEGUN_S, "it to be awake")

    @property
    def age_s(self) -> float:
        """Of the process that it became."""
        runner = int(self.tmux("display-message", "-p", "-t", self.pane, "#{pane_pid}"))
        terminal = processes.look(self.tmux("display-message", "-p", "-t", self.pane, "#{pane_tty}").strip(), runner)
        assert terminal is not None
        return processes.age_s(terminal.foreground)

    @property
    def view(self) -> Any:
        return self.house.task(self.name)

    @property
    def place(self) -> Path:
        return Path(self.view.worktree)

    @property
    def typed(self) -> bytes:
        """What it read in the time of this test."""
        file = self.place / "typed"
        return file.read_bytes()[self.skipped :] if file.exists() else b""

    def tmux(self, *words: str) -> str:
        argv = ["tmux", "-u", "-S", str(self.house.home.tmux_socket), *words]
        return subprocess.run(argv, check=True, stdout=subprocess.PIPE, text=True, timeout=60).stdout

    @property
    def pane(self) -> str:
        return str(self.view.pane_id)

    def await_screen(self, text: str) -> None:
        wait_until(lambda: self.view.pane_id and text in self.tmux("capture-pane", "-p", "-t", self.pane), f"{text!r} on the screen")

    def send(self, *args: str) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self.house.ok("send", self.name, *args, "--json"))
        one: dict[str, Any] = answer["deliveries"][0]
        return one

    def sent(self) -> list[dict[str, Any]]:
        """As `status` shows them."""
        shown: list[dict[str, Any]] = json.loads(self.house.ok("status", self.name, "--json"))["deliveries"]
        return shown

    def states(self) -> list[str]:
        return [one["state"] for one in self.sent()]


def started(house: House, scripts: Mapping[str, str]) -> None:
    """Tasks that own their panes."""
    tasks = [shell_task(name, ["sh", "-c", script], kind="terminal") for name, script in scripts.items()]
    house.ok("run", "-d", house.plan(plan_of(tasks)))


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """One supervisor with all the agents that need no other one."""
    place = tmp_path_factory.mktemp("house")
    made = House(place, make_repository(place / "repo"))
    made.config.write_text("slots = 20\n" + made.config.read_text())
    made.start_daemon()
    started(made, SCRIPTS)
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
        line = "äö\t'\"$HOME `id` #{pid} ; \\\n"
        text = (line * (size // len(line.encode())) + "x" * size)[:size].encode()[:size].decode(errors="ignore").rstrip("\n")
        file, before = tmp_path / "text", len(agent.typed)
        file.write_text(text)
        one = agent.send("--file", str(file))
        assert (one["state"], one["bytes"], one["why"]) == ("unconfirmed", len(text.encode()), one["why"])
        wait_until(lambda: agent.typed[before:].endswith(b"\r"), "the Enter")  # noqa: B023 - called at once
        assert agent.typed[before:] == (paste(text) if text else b"\r")
    assert agent.tmux("list-buffers") == ""
    assert not [file for file in agent.house.home.run_dir.iterdir() if "text" in file.name]


def test_a_scrolled_pane_and_a_text_that_would_end_its_own_paste(agent: Agent) -> None:
    agent.tmux("copy-mode", "-t", agent.pane)
    assert agent.send("look\x1b[201~\r/exit\r\x03\n\n")["why"] == NO_RECORD
    wait_until(lambda: agent.typed.endswith(b"\r"), "the Enter")
    assert agent.typed == paste("look[201~\n/exit")


def test_lines_arrive_as_they_are_in_a_program_that_has_bracketed_pastes_off(shared: House) -> None:
    plain = Agent(shared, "unbracketed")
    plain.send("one\ntwo")
    wait_until(lambda: plain.typed.endswith(b"\r"), "the Enter")
    assert plain.typed == b"one\ntwo\r"


def test_a_text_of_control_characters_only_is_refused_before_anything_is_kept(agent: Agent) -> None:
    before = agent.states()
    done = agent.house.run("send", agent.name, "\x1b\x03\r\n")
    assert (done.returncode, done.stdout) == (2, "")
    assert "nothing of the text can be typed" in done.stderr
    assert (agent.states(), agent.typed) == (before, b"")
    assert agent.house.run("send", agent.name).returncode == 2


def test_a_program_that_does_not_read_is_not_typed_into_again_until_it_has_read(shared: House) -> None:
    deaf = Agent(shared, "deaf")
    first = deaf.send("first")
    assert (first["state"], first["epoch"], first["why"]) == ("unconfirmed", 1, "its program has not read all of it yet")
    assert (first["bytes"], first["sha256"]) == (5, hashlib.sha256(b"first").hexdigest())
    kept = deaf.send("second")
    assert (kept["state"], kept["epoch"], kept["why"]) == ("pending", None, "its program does not read its terminal now")
    behind = deaf.send("third")
    assert (behind["state"], behind["why"]) == ("pending", "a text that was sent before it waits")
    assert "2 texts wait: its program does not read its terminal now" in shared.ok("status")
    refused = shared.run("send", "deaf", "fourth", "--now")
    assert (refused.returncode, "a text that was sent before it waits" in refused.stderr) == (6, True)
    (deaf.place / "go").touch()
    wait_until(lambda: deaf.typed.endswith(paste("third")), "the texts that waited")
    assert deaf.typed == paste("first") + paste("second") + paste("third")
    wait_until(lambda: deaf.states() == ["unconfirmed", "unconfirmed", "unconfirmed", "dropped"], "all to be settled")


def test_enter_is_pressed_again_and_the_text_is_not_typed_again_when_the_agent_says_that_it_is_idle(shared: House) -> None:
    begin = 'cp "$(command -v sh)" claude; CLAUDE_CONFIG_DIR="$PWD" exec ./claude swallows'
    script = f"printf %s {shlex.quote(SWALLOWS)} > swallows; {begin}"
    started(shared, {"swallows": script})
    agent = Agent(shared, "swallows")
    one = agent.send("text")
    assert (one["state"], one["why"]) == ("confirmed", "")
    assert agent.typed == paste("text") + b"\r"
    kept = agent.send("more")
    assert (kept["state"], kept["why"]) == ("pending", "it is working")


def test_a_dialog_on_the_screen_is_not_typed_into(shared: House) -> None:  # X10
    asking = Agent(shared, "asking")
    kept = asking.send("1")
    assert (kept["state"], kept["why"]) == ("pending", "it shows a dialog: trust (codex)")
    assert asking.view.state == "running"
    (asking.place / "go").touch()
    wait_until(lambda: asking.typed == b"1\r", "the text, once the dialog has gone")


def test_a_text_for_a_task_that_does_not_run_yet_waits_for_it(shared: House) -> None:
    first = shell_task("first", UNTIL_GO)
    later = shell_task("later", ["sh", "-c", 'read line; printf %s "$line" > typed; exec sleep 100'], kind="terminal", after=["first"])
    shared.ok("run", "-d", shared.plan(plan_of([first, later])))
    (kept,) = json.loads(shared.ok("send", "later", "early", "--json"))["deliveries"]
    assert (kept["state"], kept["why"]) == ("pending", "its agent does not run now")
    wait_until(lambda: shared.task("first").worktree, "the first task")
    Path(str(shared.task("first").worktree), "go").touch()
    wait_until(lambda: shared.task("later").worktree, "the task")
    typed = Path(str(shared.task("later").worktree), "typed")
    wait_until(lambda: typed.exists() and typed.read_bytes() == b"early", "the text")


def test_a_line_that_the_terminal_would_cut_is_kept_until_its_task_ends(shared: House) -> None:
    lines = Agent(shared, "lines")
    kept = lines.send("x" * 4095)
    assert (kept["state"], kept["why"]) == ("pending", "its program reads whole lines, of at most 4095 bytes; the longest has 4096")
    shared.ok("kill", "lines")
    wait_until(lambda: lines.states() == ["dropped"], "the text to be dropped with its task")
    assert shared.run("send", "lines", "late").returncode == 6


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


def test_a_text_is_typed_once_whichever_steps_supervisors_are_killed_at(house: House) -> None:
    """Before tmux is asked, it is typed later; afterwards never again, also when its pane went as well (P17)."""
    cut_off = "the supervisor ended before anything confirmed it"
    dying = house.start_daemon(die_at="send.kept")
    started(house, {"agent": RAW})
    agent = Agent(house, "agent")
    assert house.run("send", "agent", "once").returncode == 5
    for place in ("send.committed", "send.typed"):
        dying.wait()
        assert agent.states() == [{"send.committed": "pending", "send.typed": "typing"}[place]]
        dying = house.start_daemon(die_at=place)  # it finds the text, and goes one step further
    dying.wait()
    assert agent.states() == ["typing"]
    last = house.start_daemon(die_at="send.typed")
    wait_until(lambda: agent.states() == ["unconfirmed"], "the text to be settled")
    assert (agent.sent()[0]["why"], agent.typed) == (cut_off, paste("once"))
    house.run("send", "agent", "gone")
    last.wait()
    agent.tmux("kill-session", "-t", str(agent.view.session_id))
    house.start_daemon()
    wait_until(lambda: agent.states() == ["unconfirmed", "unconfirmed"], "the last text to be settled")
    assert agent.sent()[1]["why"] in (f"{cut_off}, and its pane is gone", "its task ended first")
    assert agent.typed == paste("once") + paste("gone")


def test_to_all_and_to_a_run(agent: Agent) -> None:
    house, other = agent.house, Agent(agent.house, "other")
    house.ok(
        "run", "-d", house.plan(plan_of([shell_task("headless", "sleep 100"), shell_task("alone", ["sh", "-c", RAW], kind="terminal")]))
    )
    wait_until(lambda: house.task("headless").attempt_state == "running", "the headless one to run")
    alone = Agent(house, "alone")
    answer = json.loads(house.ok("send", "--all", "to all", "--json"))
    assert {agent.view.id, other.view.id, alone.view.id} <= {one["task"] for one in answer["deliveries"]}
    assert answer["left_out"] == {
        house.task("headless").id: "it is headless: a task of kind shell reads no terminal, and takes no text while it works"
    }
    house.ok("send", "--run", alone.view.run, "to one")
    wait_until(lambda: alone.typed == paste("to all") + paste("to one"), "both texts")
    wait_until(lambda: agent.typed == paste("to all") and other.typed == paste("to all"), "one text")
    refused = house.run("send", "headless", "x")
    assert (refused.returncode, "reads no terminal" in refused.stderr) == (6, True)
    assert house.run("send", "--all", "--run", "x", "text").returncode == 2


def test_ids_not_names_say_where_a_text_goes_and_nothing_keeps_its_words(agent: Agent) -> None:  # P18
    agent.tmux("rename-session", "-t", str(agent.view.session_id), "renamed")
    agent.tmux("split-window", "-d", "-t", agent.pane, "--", "env", "sleep", "100")
    agent.send("a secret word")
    wait_until(lambda: agent.typed == paste("a secret word"), "the text")
    shape = json.loads(agent.house.ok("status", agent.name, "--json"))
    assert "secret" not in json.dumps(shape)
    assert [entry["event"] for entry in shape["journal"]][-2:] == ["send", "send unconfirmed"]
    with contextlib.closing(sqlite.connect_readonly(agent.house.home.ledger)) as db:
        assert db.execute("SELECT DISTINCT text FROM delivery WHERE state NOT IN ('pending', 'typing')").fetchall()[0][0] == ""
        assert db.execute("SELECT count(*) FROM journal WHERE data LIKE '%secret%'").fetchone()[0] == 0


def test_the_record_of_a_confined_claude_is_in_its_copy_of_the_home(tmp_path: Path) -> None:
    """Two confined agents have the same process numbers: in one directory they would write over each other's records."""
    person = tmp_path / "person" / ".claude"
    (person / "sessions").mkdir(parents=True)
    (person / "sessions" / "2.json").write_text("the person's")
    attempts = [tmp_path / name for name in ("a", "b", "tier0")]
    for attempt in attempts:
        attempt.mkdir()
    for attempt in attempts[:2]:
        made = homes.prepare(attempt, homes.find(tmp_path / "person", {}, ()), gives_back=True)
        assert sending._read_home(person / "sessions", "2.json", attempt) is None
        own = attempt / made.own(str(person / "sessions"))
        own.mkdir()
        (own / "2.json").write_text(attempt.name)
    seen = [sending._read_home(person / "sessions", "2.json", attempt) for attempt in attempts]
    assert seen == [b"a", b"b", b"the person's"]
    (own / "2.json").unlink()
    (own / "2.json").symlink_to(person / "sessions" / "2.json")
    assert sending._read_home(person / "sessions", "2.json", attempts[1]) is None, "no link is followed"
