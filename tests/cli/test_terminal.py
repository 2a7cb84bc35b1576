"""X12, U04: nothing that an agent can write steers a person's terminal, whatever verb shows it."""

from __future__ import annotations

import ast
import contextlib
import fcntl
import io
import json
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from rich.live import Live
from rich.text import Text

from supervisor.cli.main import VERBS
from supervisor.client import protocol, terminal
from supervisor.host import attempt_tokens, secrets
from supervisor.kernel.ansi import escaped, for_terminal
from supervisor.kernel.errors import UNSEEN, NightcrewError
from tests import warm
from tests.agents.protocols.scenarios import DATA
from tests.cli.terminal import COMMAND
from tests.support import House, plan_of, shell_task, wait_until

ROOT = Path(__file__).parents[2]
HOSTILE = (
    "bad\x1b]52;c;b3du\x07\x1b]0;own\x07\x1bPown\x1b\\\x1b[2J\x1b[3;1H\x1b[8mhid\x1b[31mred\x9b2J\x9d0;own\x9c\u202e\u200b\x08\x0e\x7f\rend"
)
DRAWING = re.compile(r"\x1b\[(?:H|J|K|2K|[0-9]*A|[0-9]*G|\?25[hl]|\?1049[hl])")
"""Sequences with which our own live views move the cursor."""
COLOR = re.compile(r"\x1b\[[0-9;]*m")


def steering(shown: bytes, *, draws: bool = False) -> list[str]:
    """Find sequences that steer a terminal: other ones than colours, and with `draws` other ones than those of our live views."""
    text = shown.decode("utf-8", "backslashreplace").replace("\r\n", "\n")
    hidden = [one for one in COLOR.findall(text) if re.search(r"(?:\[|;)0*8(?:;|m)", one)]
    text = (DRAWING.sub("", text).replace("\r", "") if draws else text) if not hidden else text
    left = COLOR.sub("", text)
    return [
        *hidden,
        *sorted(
            {char for char in left if (ord(char) < 32 and char not in "\n\t") or 0x7F <= ord(char) < 0xA0 or char in UNSEEN | {"\u202e"}}
        ),
    ]


class Screen:
    """A terminal of 120 columns that keeps every byte that it gets."""

    def __init__(self, house: House) -> None:
        self._house = house

    def run(self, *words: str, timeout_s: float = 90) -> bytes:
        """Return all that `nightcrew WORDS` writes to the terminal."""
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        env = {**self._house.env, "TERM": "xterm-256color", "PAGER": "cat", "EDITOR": "true", "LC_ALL": "C.UTF-8"}
        command = warm.start(words, self._house.repo, env, theirs, theirs)
        os.close(theirs)
        try:
            return b"".join(self._read(ours, time.monotonic() + timeout_s, words))
        finally:
            command.kill()
            os.close(ours)

    def _read(self, ours: int, until: float, words: Sequence[str]) -> Iterator[bytes]:
        while True:
            assert select.select([ours], [], [], max(0.0, until - time.monotonic()))[0], f"nightcrew {' '.join(words)} did not end"
            with contextlib.suppress(OSError):
                if data := os.read(ours, 65536):
                    yield data
                    continue
            return


def agent(house: House, task: str, verb: str, **args: Any) -> Any:
    """Send a request as an agent does, at its socket."""
    view = house.task(task)
    token = attempt_tokens.derive(secrets.own(house.home.secret), view.id, view.epoch)
    return protocol.call(house.home.agents_socket, verb, args, timeout_s=30, token=token)


def planted(house: House, tmp_path: Path) -> None:
    """Hostile bytes wherever an agent, a repository or a plan can put some."""
    said, made = tmp_path / "said", tmp_path / "make.py"
    said.write_bytes(HOSTILE.encode() + b"\x9b2J\xff\n")
    stream = (DATA / "claude-2.1.329" / "denied.jsonl").read_text().replace("Bash", json.dumps(HOSTILE)[1:-1])
    (tmp_path / "stream").write_text(stream.replace("python3 -c", json.dumps(HOSTILE)[1:-1]))
    name = HOSTILE.replace("\r", "").replace("/", "").encode() + b"\x9b"
    made.write_text(f"open({name!r}, 'wb').write(open({str(said)!r}, 'rb').read())\nopen('README', 'w').write('x')\n")
    commit = f"git add -A; git -c user.name=a -c user.email=a@b commit -qF {said}; git branch \"$(printf 'x\\342\\200\\256y')\" || true"
    work = f"cat {said}; cat {said} >&2; {sys.executable} {made}; {commit}"
    tasks = [
        shell_task("made", work, title=HOSTILE),
        shell_task("gated", f"echo x > y; cat {said} >&2", gate=f"cat {said}; cat {said} >&2; exit 3", title=HOSTILE),
        shell_task("stream", f"cat {tmp_path}/stream"),
        shell_task("asks", ["sh", "-c", f"{work}; cat {said}; exec sleep 600"], kind="terminal", title=HOSTILE),
        shell_task("fails", f"cat {said} >&2; exit 7", title=HOSTILE),
    ]
    house.start_daemon()
    house.ok("run", "-d", house.plan(f"title = {json.dumps(HOSTILE)}\n" + plan_of(tasks)))
    ended = {"made": "done", "gated": "failed", "stream": "done", "fails": "failed"}
    wait_until(lambda: {name: house.state(name) for name in ended} == ended, "them to end")
    agent(
        house, "asks", "hook", name="PermissionRequest", event={"session_id": "s", "tool_name": HOSTILE, "tool_input": {"command": HOSTILE}}
    )
    for kind in ("info", "request"):
        agent(house, "asks", "mail", op="send", to="person", type=kind, subject=HOSTILE, text=HOSTILE)
    for path in ("semantic/planted.md", "episodic/planted.md", "agents/asks/notes.md"):
        with contextlib.suppress(NightcrewError):
            agent(house, "asks", "mem", op="put", path=path, text=f"# {HOSTILE}\n{HOSTILE}\n")
    with contextlib.suppress(NightcrewError):
        agent(house, "asks", "lease", op="take", globs=[escaped(HOSTILE)[:20]])
    (tmp_path / "items").write_text(HOSTILE.replace("\r", "") + "\n")
    house.run("map", "--lines", str(tmp_path / "items"), "--agents", "1", "--", "sh", "-c", f"cat {said} >&2; exit 3")


SHOWS: dict[str, list[list[str]]] = {
    "status": [[], ["--all"], ["made"], ["gated"], ["fails"], ["asks"], ["asks", "--explain"], ["--json"]],
    "statusline": [[]],
    "engine": [["ls"], ["ls", "--json"]],
    "logs": [["made"], ["-f", "made"], ["--stream", "gate", "gated"], ["--transcript", "stream"], ["asks"], ["--json", "made"]],
    "wait": [["made", "fails"]],
    "trace": [["made"], ["gated"]],
    "report": [[]],
    "diff": [["made"], ["--stat", "made"], ["asks"], ["made", "asks"]],
    "conflicts": [[], ["--json"]],
    "review": [[], ["made"], ["gated"], ["asks"]],
    "compare": [["made"]],
    "choose": [["made", "1"]],
    "land": [["made", "--dry-run"], ["--status"]],
    "pr": [["made", "--dry-run"], ["ls"]],
    "restore": [["made"]],
    "retry": [["stream"]],
    "take": [["--print", "made"], ["asks"], [HOSTILE]],
    "clean": [[], ["--old"]],
    "kinds": [[]],
    "trust": [[]],
    "snapshot": [["list"], ["show", HOSTILE]],
    "fork": [[HOSTILE]],
    "capacity": [[]],
    "gateway": [["status"]],
    "metrics": [[]],
    "mcp": [["install", "--help"]],
    "mem": [["ls"], ["ls", "agents"], ["show", "semantic/planted.md"], ["search", "bad"], ["log"], ["graph"], ["brief"], ["lease", "ls"]],
    "mail": [["ls", "--all"], ["read"], ["read"], ["ls", "--pairs"]],
    "token": [["list"]],
    "quota": [[HOSTILE]],
    "notify": [["status"]],
    "answer": [["asks"]],
    "ask": [[HOSTILE, "why?"]],
    "send": [["made", HOSTILE]],
    "pause": [["made"]],
    "resume": [["made"]],
    "doctor": [[]],
    "audit": [["show"], ["verify"]],
    "night": [["list"], ["check", HOSTILE]],
    "completion": [["bash"]],
    "init": [[]],
    "popup": [[]],
    "add": [["--id", "new", "--title", HOSTILE, "true"]],
    "shell": [["made"]],
    "attach": [["made"]],
    "bench": [["--help"]],
    "service": [["status"]],
    "kill": [["asks"]],
    "stop-all": [["--help"]],
    "thaw": [["--help"]],
    "start": [["--help"]],
    "map": [["--lines", HOSTILE, "--", "true"]],
    "down": [["--help"]],
}
DRAWN = ("run", "analyze", "top", "up", "web")
"""Verbs that draw, or serve: `test_what_draws` runs `run`; the screen of `top` and the page have tests of their own."""


@pytest.mark.timeout(600)
def test_no_verb_lets_an_agent_steer_the_terminal(house: House, tmp_path: Path) -> None:
    planted(house, tmp_path)
    assert SHOWS.keys() | set(DRAWN) == set(VERBS), "every verb is shown hostile text"
    screen, wrong = Screen(house), []
    for verb, calls in SHOWS.items():
        for words in calls:
            shown = screen.run(verb, *words)
            if (found := steering(shown)) or b"Traceback" in shown:
                wrong.append((verb, *words, found, shown[-300:]))
    assert wrong == []
    assert b"\\x1b]52;c;b3du\\x07" in screen.run("diff", "made") and b"\\x1b[2J" in screen.run("logs", "made")
    assert b"\x1b[31mred" in screen.run("logs", "made"), "colours survive"
    assert b"\x1b]52;c;b3du\x07" in screen.run("logs", "--raw", "made") and b"\x1b]52;c;b3du\x07" in screen.run("diff", "--raw", "made")
    raw = subprocess.run([*COMMAND, "diff", "made"], cwd=house.repo, env=house.env, capture_output=True, check=True).stdout
    assert b"\x1b]52;c;b3du\x07" in raw, "a pipe gets git's very bytes"


@pytest.mark.timeout(300)
def test_what_draws_moves_the_cursor_by_its_own_sequences_alone(house: House, tmp_path: Path) -> None:
    (tmp_path / "said").write_text(HOSTILE)
    house.start_daemon()
    plan = house.plan(f"title = {json.dumps(HOSTILE)}\n" + plan_of([shell_task("one", f"cat {tmp_path}/said >&2; exit 3", title=HOSTILE)]))
    shown = Screen(house).run("run", plan)
    assert steering(shown) == [], shown[-500:]
    (tmp_path / "items").write_text(HOSTILE.replace("\r", "") + "\n")
    shown = Screen(house).run("map", "--lines", f"{tmp_path}/items", "--agents", "1", "--", "sh", "-c", f"cat {tmp_path}/said >&2; exit 3")
    assert b"\x1b[?25l" in shown and steering(shown, draws=True) == [], shown[-500:]


def test_what_is_drawn_with_rich_is_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.StringIO()
    monkeypatch.setattr(sys, "stderr", written)
    with Live(console=terminal.console(), auto_refresh=False) as live:
        live.update(Text(HOSTILE, style="bold"), refresh=True)
    with terminal.live() as show:
        show(f"\x1b]8;;http://example.invalid\x07link\x1b]8;;\x07 {HOSTILE}")
    assert "http://example.invalid" in written.getvalue()
    assert "\\x1b]52" in written.getvalue() and steering(written.getvalue().encode(), draws=True) == []


def test_colours_survive_and_end_with_their_text() -> None:
    assert for_terminal("a\x1b[31mb\x1b[0m\n") == "a\x1b[31mb\x1b[0m\n"
    assert for_terminal("a\x1b[31mb\n") == "a\x1b[31mb\n\x1b[0m"
    assert for_terminal("a\x1b[38;2;1;2;3mb") == "a\x1b[38;2;1;2;3mb\x1b[0m"
    assert for_terminal("\x1b[38;5;8mx\x1b[0m\x1b[48:2:8:8:8mx\x1b[0m") == "\x1b[38;5;8mx\x1b[0m\x1b[48:2:8:8:8mx\x1b[0m"
    assert for_terminal("\x1b[38;5;8;8mx") == "\\x1b[38;5;8;8mx"
    assert for_terminal("\x1b[8mx\x1b[1;8mx") == "\\x1b[8mx\\x1b[1;8mx"
    assert for_terminal("one\r\ntwo\rthree\t\u0435\u0301") == "one\r\ntwo\\rthree\t\u0435\u0301"
    assert escaped("\x1b[31m\ta\nb") == "\\x1b[31m\ta\nb"


# Printers -------------------------------------------------------------------------------------------------------------------------------

PRINTERS = (
    *(f"supervisor/{place}" for place in ("cli", "client", "views", "features", "server", "doctor")),
    "memory",
    "nightcrew/plugins/analyze",
    "nightcrew/plugins/otel",
)
DOOR = "supervisor/client/terminal.py"
ALLOWED = {
    ("supervisor/views/diff_lines.py", "Console"): "it writes into memory",
    ("supervisor/features/review/commands.py", "echo_via_pager"): "every line is made by `for_terminal`",
    ("supervisor/cli/main.py", "fileno"): "it closes a stream whose reader left",
    ("supervisor/cli/live_view.py", "fileno"): "the name of its terminal, of which tmux is asked whether it is shown",
    ("supervisor/cli/logs.py", "buffer"): "the guarded one",
    ("memory/mem_commands.py", "buffer"): "the guarded one",
}


def ways_out(file: Path) -> Iterator[str]:
    """Names by which a program reaches a terminal beside `sys.stdout.write`, `print` and `click.echo`."""
    for node in ast.walk(ast.parse(file.read_text())):
        match node:
            case ast.Attribute(value=ast.Name(id="sys"), attr="__stdout__" | "__stderr__" as name):
                yield name
            case ast.Attribute(value=ast.Attribute(value=ast.Name(id="sys"), attr="stdout" | "stderr"), attr="fileno" | "detach" as name):
                yield name
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id="os"), attr="write" | "writev" | "fdopen"), args=[ast.Constant(value=1 | 2), *_]
            ):
                yield "os.write"
            case ast.Call(func=ast.Name(id="Console") | ast.Attribute(attr="Console")):
                yield "Console"
            case ast.Attribute(value=ast.Attribute(attr="stdin")):
                continue
            case ast.Attribute(attr="echo_via_pager" | "buffer" as name):
                yield name
            case ast.Constant(value=str() as text) if text in ("/dev/tty", "/dev/stdout", "/dev/stderr", "/dev/fd/1", "/dev/fd/2"):
                yield text


def test_every_printer_goes_through_the_one_door() -> None:
    files = [file for place in PRINTERS for file in (ROOT / place).rglob("*.py")]
    found = {(str(file.relative_to(ROOT)), name) for file in files for name in ways_out(file)}
    assert {one for one in found if one[0] != DOOR} - ALLOWED.keys() == set(), "use supervisor.client.terminal"
    assert ALLOWED.keys() - found == set(), "an exception that nothing needs any more"


def test_the_search_for_printers_finds_each_kind(tmp_path: Path) -> None:
    bad = tmp_path / "bad.py"
    bad.write_text(  # each line is one way out
        "sys.__stdout__.write('')\nsys.stdout.buffer.write(b'')\nos.write(2, b'')\n"
        "rich.console.Console()\nopen('/dev/tty')\nclick.echo_via_pager(x)\n"
    )
    assert set(ways_out(bad)) == {"__stdout__", "buffer", "os.write", "Console", "/dev/tty", "echo_via_pager"}
