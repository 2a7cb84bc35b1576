"""What a person does: type into a pane, attach from anywhere."""

from __future__ import annotations

import base64
import contextlib
import os
import pty
import shlex
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agents.tmux import Pane, Tmux
from supervisor.kernel.errors import NotFound, ToolFailed

from .conftest import AskTmux, WaitUntil, _reap, lives


@pytest.fixture
def outer(short_dir: Path, wait_until: WaitUntil) -> Iterator[Callable[..., str]]:
    """The user's own tmux, on another socket: a real terminal for an attaching client."""
    path = short_dir / "outer.sock"

    def ask(*words: str) -> str:
        argv = ["tmux", "-u", "-f", "/dev/null", "-S", str(path), *words]
        return subprocess.run(argv, check=True, stdout=subprocess.PIPE, text=True, timeout=60).stdout

    yield ask
    _reap(path)


def reader(tmux: Tmux, out: Path, wait_until: WaitUntil) -> Pane:
    """A program that turns bracketed paste on and keeps every byte it is typed, like the screen of an agent."""
    script = 'stty raw -echo; printf "\\033[?2004hready"; exec cat > "$1"'
    pane = tmux.spawn("reader", ["sh", "-c", script, "sh", str(out)], out.parent, {})
    wait_until(lambda: tmux.capture(pane.pane_id) == "ready", "the reader")
    return pane


def typed(out: Path) -> bytes:
    return out.read_bytes() if out.exists() else b""


def attached(ask_tmux: AskTmux) -> list[str]:
    """The sessions that real terminals show."""
    rows = ask_tmux("list-clients", "-F", "#{client_control_mode} #{session_id}").splitlines()
    return [row[2:] for row in rows if row.startswith("0 ")]


@pytest.mark.parametrize(
    "text",
    [
        "hello;",
        "two\nlines\twith 'quotes' \"$HOME\" `id` #{pid} \\",
        "Enter",
        "-R",
        "漢字 🦀",
        "x" * 20_000,
        "line\n" * 40_000 + "end",
        "é\t" * 666_666 + "end",
    ],
    ids=["semicolon", "lines", "key name", "flag", "wide", "20 kB", "200 kB", "2 MB"],
)
def test_text_arrives_as_one_paste_and_one_enter(tmux: Tmux, tmp_path: Path, wait_until: WaitUntil, text: str) -> None:  # E2
    out = tmp_path / "typed"
    pane = reader(tmux, out, wait_until)
    tmux.send_text(pane.pane_id, text)
    wait_until(lambda: typed(out).endswith(b"\r"), "the Enter")
    assert typed(out) == b"\x1b[200~" + text.encode() + b"\x1b[201~\r"
    assert tmux._ask(("list-buffers",))[0].text == ""


def test_a_text_cannot_end_its_own_paste(tmux: Tmux, tmp_path: Path, wait_until: WaitUntil) -> None:  # E2
    out = tmp_path / "typed"
    pane = reader(tmux, out, wait_until)
    tmux.send_text(pane.pane_id, "look\x1b[201~\r/exit\r\x03\n\n", enter=False)
    tmux.send_text(pane.pane_id, "")
    wait_until(lambda: typed(out).endswith(b"\r"), "the Enter")
    assert typed(out) == b"\x1b[200~look[201~\n/exit\x1b[201~\r"


def test_text_reaches_a_pane_that_a_person_scrolled(tmux: Tmux, ask_tmux: AskTmux, tmp_path: Path, wait_until: WaitUntil) -> None:
    out = tmp_path / "typed"
    pane = reader(tmux, out, wait_until)
    ask_tmux("copy-mode", "-t", pane.pane_id)
    tmux.send_text(pane.pane_id, "go")
    wait_until(lambda: typed(out).endswith(b"\r"), "the Enter")


def test_an_ended_or_missing_pane_is_not_typed_into(tmux: Tmux, tmp_path: Path, wait_until: WaitUntil) -> None:
    pane = tmux.spawn("a", ["sh", "-c", "exit"], tmp_path, {})
    wait_until(lambda: tmux.panes()[-1].dead, "end of the program")
    with pytest.raises(ToolFailed, match="has ended"):
        tmux.send_text(pane.pane_id, "hello")
    with pytest.raises(NotFound, match="%99"):
        tmux.send_text("%99", "hello")


def test_attach_nests_in_the_users_tmux_and_switches_inside_ours(
    tmux: Tmux, ask_tmux: AskTmux, outer: Callable[..., str], tmp_path: Path, wait_until: WaitUntil
) -> None:
    shell = tmux.spawn("shell", ["sh", "-i"], tmp_path, {})
    other = tmux.spawn("other", ["cat"], tmp_path, {})
    foreign = {"TMUX": f"{tmp_path}/outer.sock,1,0"}
    outer("new-session", "-d", "-x", "150", "-y", "20", "--", *tmux.attach_argv(shell.session_id, foreign))
    wait_until(lambda: attached(ask_tmux) == [shell.session_id], "the nested client")
    wait_until(lambda: "nightcrew shell 0:agent" in outer("capture-pane", "-p"), "our status line")
    assert [pane.attached for pane in tmux.panes() if pane.session_id == shell.session_id] == [1]
    inside = f"{tmux._socket.parent}/../{tmux._socket.parent.name}/{tmux._socket.name},{tmux.server_pid()},0"
    tmux.send_text(shell.pane_id, shlex.join(tmux.attach_argv(other.session_id, {"TMUX": inside})))
    wait_until(lambda: attached(ask_tmux) == [other.session_id], "the switched client")
    outer("send-keys", "C-b", "d")
    wait_until(lambda: not attached(ask_tmux), "the detached client")
    assert lives(tmux, shell.session_id) and lives(tmux, other.session_id)


def test_a_pane_is_shown_while_a_terminal_shows_its_window(
    tmux: Tmux, ask_tmux: AskTmux, outer: Callable[..., str], tmp_path: Path, wait_until: WaitUntil
) -> None:
    shell, other = (tmux.spawn(name, ["cat"], tmp_path, {}) for name in ("shell", "other"))
    ttys = [tmux.pane_input(pane.pane_id).tty for pane in (shell, other)]
    assert [tmux.is_shown(tty) for tty in ttys] == [False, False]
    outer("new-session", "-d", "--", *tmux.attach_argv(shell.session_id, {"TMUX": "/foreign,1,0"}))
    wait_until(lambda: attached(ask_tmux) == [shell.session_id], "the client")
    assert [tmux.is_shown(tty) for tty in ttys] == [True, False]
    ask_tmux("new-window", "-t", f"{shell.session_id}:", "cat")
    assert not tmux.is_shown(ttys[0]), "the terminal shows another window of the session"
    assert tmux.is_shown("/dev/pts/none"), "a terminal of somebody else is taken for a shown one"


def test_attach_is_not_refused_for_the_terminal_of_an_ended_pane(
    tmux: Tmux, ask_tmux: AskTmux, outer: Callable[..., str], tmp_path: Path, wait_until: WaitUntil
) -> None:
    live = tmux.spawn("live", ["cat"], tmp_path, {})
    for number in range(3):  # their terminals' numbers are free again, so the next pane anywhere gets one of them
        tmux.spawn(f"a{number}", ["sh", "-c", "exit"], tmp_path, {})
    wait_until(lambda: sum(one.dead for one in tmux.panes()) == 4, "the ends")
    outer("new-session", "-d", "--", *tmux.attach_argv(live.session_id, {"TMUX": "/foreign,1,0"}))
    wait_until(lambda: attached(ask_tmux) == [live.session_id], "the nested client")


class Screen:
    """A person's terminal: what it was sent, and the keys that are pressed in it."""

    def __init__(self, argv: list[str], term: str) -> None:
        self.text = b""
        pid, self._master = pty.fork()
        if pid == 0:
            os.execvpe(argv[0], argv, {"PATH": os.environ["PATH"], "TERM": term, "LANG": "C.UTF-8"})  # noqa: S606 - no shell is the point
        self._pid = pid
        os.set_blocking(self._master, False)

    def sees(self, word: bytes) -> bool:
        with contextlib.suppress(BlockingIOError, OSError):
            self.text += os.read(self._master, 65536)
        return word in self.text

    def press(self, keys: bytes) -> None:
        os.write(self._master, keys)

    def close(self) -> None:
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        os.close(self._master)


@pytest.mark.parametrize("term", ["xterm-ghostty-unknown", "dumb", "no/such", "", "xterm-256color"])
def test_attach_draws_on_a_terminal_that_this_machine_does_not_know(tmux: Tmux, tmp_path: Path, wait_until: WaitUntil, term: str) -> None:
    shell = tmux.spawn("shell", ["sh", "-c", "echo it is shown; exec sleep 600"], tmp_path, {})
    screen = Screen(tmux.attach_argv(shell.session_id, {"TERM": term}), term)
    try:
        wait_until(lambda: screen.sees(b"it is shown"), "the pane")
    finally:
        screen.close()


def test_shift_enter_reaches_an_agent_and_a_copy_the_clipboard_of_the_person(
    tmux: Tmux, ask_tmux: AskTmux, tmp_path: Path, wait_until: WaitUntil
) -> None:
    out = tmp_path / "typed"
    script = 'stty raw -echo; printf "\\033[>4;1mready"; exec cat > "$1"'
    pane = tmux.spawn("reader", ["sh", "-c", script, "sh", str(out)], tmp_path, {})
    wait_until(lambda: tmux.capture(pane.pane_id) == "ready", "the reader")
    screen = Screen(tmux.attach_argv(pane.session_id, {"TERM": "xterm-256color"}), "xterm-256color")
    try:
        wait_until(lambda: screen.sees(b"\x1b[>4;"), "the terminal to be asked to tell keys apart")
        screen.press(b"\x1b[27;2;13~")
        wait_until(lambda: typed(out) in (b"\x1b[13;2u", b"\x1b[27;2;13~"), "the key, as this tmux writes it")
        ask_tmux("set-buffer", "-w", "taken along")
        wait_until(lambda: screen.sees(b"\x1b]52;") and screen.sees(base64.b64encode(b"taken along")), "the clipboard")
    finally:
        screen.close()


@pytest.mark.parametrize("environ", [{"TMUX": ""}, {"TMUX": "/nowhere/default,12,0"}, {"TMUX": "odd"}])
def test_attach_from_outside(tmux: Tmux, socket: Path, environ: dict[str, str]) -> None:
    environ = {**environ, "TERM": "screen-256color"}
    assert tmux.attach_argv("$3", environ) == [*("env", "-u", "TMUX", "tmux", "-u", "-S", os.fspath(socket), "attach-session", "-t", "$3")]
