"""Both clients of hooks: what the supervisor gets, and what is kept when nobody takes it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agents import hook_client

SOURCE = Path(hook_client.__file__).with_name("client.py")


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler")
    return hook_client.program(tmp_path_factory.mktemp("client"))


@pytest.fixture(params=["c", "python"])
def client(request: pytest.FixtureRequest) -> list[str]:
    return [str(request.getfixturevalue("compiled"))] if request.param == "c" else [sys.executable, "-I", "-S", str(SOURCE)]


@pytest.fixture
def place() -> Iterator[Path]:
    """Short enough for a socket."""
    with tempfile.TemporaryDirectory(prefix="nc-") as folder:
        yield Path(folder)


def run(client: list[str], place: Path, name: str, data: bytes, **more: str) -> subprocess.CompletedProcess[bytes]:
    env = {"NIGHTCREW_AGENTS_SOCKET": str(place / "s"), "NIGHTCREW_TOKEN": "nct_x", "NIGHTCREW_OUT": str(place), **more}
    return subprocess.run([*client, name], input=data, env=env, capture_output=True, timeout=30, check=False)


def kept(place: Path) -> list[dict[str, Any]]:
    file = place / hook_client.KEPT
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


class Listener:
    """A supervisor that takes one request, and answers it or not."""

    def __init__(self, place: Path, answer: bytes) -> None:
        self.lines: list[bytes] = []
        self._door = socket.socket(socket.AF_UNIX)
        self._door.bind(str(place / "s"))
        self._door.listen(4)
        self._thread = threading.Thread(target=self._serve, args=(answer,))
        self._thread.start()

    def _serve(self, answer: bytes) -> None:
        visitor, _ = self._door.accept()
        with visitor, visitor.makefile("rb") as reader:
            self.lines.append(reader.readline())
            visitor.sendall(answer)

    def heard(self) -> dict[str, Any]:
        self._thread.join(30)
        self._door.close()
        (line,) = self.lines
        shape: dict[str, Any] = json.loads(line)
        return shape


def test_the_supervisor_gets_the_event_on_one_line(client: list[str], place: Path) -> None:
    listener = Listener(place, b'{"ok": true, "value": {}}\n')
    event = {"session_id": "s", "tool_input": {"command": 'printf "a\nb\u2028"'}}
    done = run(client, place, "PreToolUse", json.dumps(event, indent=2).replace("\n", "\r\n").encode())
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert listener.heard() == {"version": "", "verb": "hook", "token": "nct_x", "args": {"name": "PreToolUse", "event": event}}
    assert not kept(place)


@pytest.mark.parametrize("data", [b"", b"x" * (192 * 1024 + 1), b'"a\0"'], ids=["nothing", "too long", "NUL"])
def test_what_cannot_be_sent_is_an_event_by_its_name(client: list[str], place: Path, data: bytes) -> None:
    listener = Listener(place, b"{}\n")
    assert run(client, place, "Stop", data).returncode == 0
    assert listener.heard()["args"] == {"name": "Stop", "event": None}


def test_the_longest_event_arrives_whole(client: list[str], place: Path) -> None:
    listener = Listener(place, b"{}\n")
    text = "x" * (192 * 1024 - len('{"a": ""}'))
    run(client, place, "PostToolUse", json.dumps({"a": text}).encode())
    assert listener.heard()["args"]["event"] == {"a": text}


def test_without_a_supervisor_it_is_kept(client: list[str], place: Path) -> None:
    for number in range(3):
        done = run(client, place, "Stop", json.dumps({"number": number}).encode())
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert [(line["name"], line["event"]["number"]) for line in kept(place)] == [("Stop", 0), ("Stop", 1), ("Stop", 2)]
    assert all(line["at"] > 1.7e9 for line in kept(place))
    assert stat.S_IMODE((place / hook_client.KEPT).stat().st_mode) == 0o600


def test_a_supervisor_that_goes_away_before_it_answers(client: list[str], place: Path) -> None:
    listener = Listener(place, b"")
    run(client, place, "Stop", b"{}")
    assert listener.heard()["args"]["name"] == "Stop"
    assert [line["name"] for line in kept(place)] == ["Stop"]


@pytest.mark.parametrize("what", ["link", "pipe", "full", "directory"])
def test_nothing_else_is_written_to(client: list[str], place: Path, what: str) -> None:
    target, file = place / "target", place / hook_client.KEPT
    target.write_text("theirs\n")
    if what == "link":
        file.symlink_to(target)
    elif what == "pipe":
        os.mkfifo(file)
    elif what == "directory":
        file.mkdir()
    else:
        with file.open("wb") as out:
            out.truncate(4 * 2**20)
    assert run(client, place, "Stop", b"{}").returncode == 0
    assert target.read_text() == "theirs\n"
    assert what != "full" or file.stat().st_size == 4 * 2**20


@pytest.mark.parametrize("name", ["", 'a"b', "a\\b", "a\nb", "x" * 600])
def test_a_name_that_is_none_is_refused(client: list[str], place: Path, name: str) -> None:
    assert run(client, place, name, b"{}").returncode == 64
    assert not kept(place)


def test_a_token_that_is_no_text_of_ours_goes_nowhere(client: list[str], place: Path) -> None:
    listener = Listener(place, b"{}\n")
    run(client, place, "Stop", b"{}", NIGHTCREW_TOKEN='x","verb":"quota')
    assert len(kept(place)) == 1
    run(client, place, "Stop", b"{}")
    assert listener.heard()["verb"] == "hook"


def test_without_a_compiler_it_is_a_script(tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = os.environ["PATH"]
    monkeypatch.setenv("PATH", str(tmp_path))
    program = hook_client.program(tmp_path)
    monkeypatch.setenv("PATH", path)
    assert program.read_bytes().startswith(b"#!/bin/sh")
    assert run([str(program)], place, "Stop", b"{}").returncode == 0
    assert [line["name"] for line in kept(place)] == ["Stop"]


DENIES = (
    b'{"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "deny", "permissionDecisionReason": "a}}\\n \\u00e9"}}'
)


def test_what_the_supervisor_says_before_a_tool_is_used_is_printed(client: list[str], place: Path) -> None:
    listener = Listener(place, b'{"ok": true, "value": {"print": ' + DENIES + b"}}\n")
    done = run(client, place, "PreToolUse", b"{}")
    listener.heard()
    assert (done.returncode, done.stdout, done.stderr) == (0, DENIES, b"")


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("PostToolUse", b'{"ok": true, "value": {"print": ' + DENIES + b"}}\n"),
        ("PreToolUse", b'{"ok": true, "value": {"print": ' + DENIES),
        ("PreToolUse", b'{"ok": true, "value": {"print": "' + b"x" * 40_000 + b'"}}\n'),
        ("PreToolUse", b'{"ok": true, "value": {}}\n'),
        ("PreToolUse", b'{"ok": false, "error": {"print": {}}}\n'),
        ("PreToolUse", b""),
    ],
    ids=["another event", "a part", "too long", "nothing", "refused", "no answer"],
)
def test_nothing_else_is_printed(client: list[str], place: Path, name: str, answer: bytes) -> None:
    listener = Listener(place, answer)
    done = run(client, place, name, b"{}")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        listener.heard()
