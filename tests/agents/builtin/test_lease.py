"""The built-in agent's tools ask before they write a file that may be another's."""

from __future__ import annotations

import json
import socket
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nightcrew.plugins.builtin import tools
from nightcrew.plugins.builtin.tools import Given, Place, ToolError


class Supervisor:
    """Answers each `check` with what it was told to."""

    def __init__(self, place: Path) -> None:
        self.answer: dict[str, Any] | None = {}
        self.asked: list[dict[str, Any]] = []
        self.door = socket.socket(socket.AF_UNIX)
        self.door.bind(str(place / "s"))
        self.door.listen(4)
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                visitor, _ = self.door.accept()
            except OSError:
                return
            with visitor, visitor.makefile("rb") as reader:
                self.asked.append(json.loads(reader.readline()))
                if self.answer is not None:
                    visitor.sendall(json.dumps({"ok": True, "value": self.answer}).encode() + b"\n")


@pytest.fixture
def supervisor(monkeypatch: pytest.MonkeyPatch) -> Iterator[Supervisor]:
    with tempfile.TemporaryDirectory(prefix="nc-") as folder:
        made = Supervisor(Path(folder))
        monkeypatch.setenv("NIGHTCREW_AGENTS_SOCKET", str(Path(folder) / "s"))
        monkeypatch.setenv("NIGHTCREW_TOKEN", "nct_x")
        yield made
        made.door.shutdown(socket.SHUT_RDWR)
        made.door.close()


def test_a_write_is_denied_told_or_goes_through(supervisor: Supervisor, tmp_path: Path) -> None:
    place, file = Place(tmp_path), tmp_path / "x.py"
    write, edit = Given({"path": "x.py", "content": "one\n"}), Given({"path": "x.py", "old": "one", "new": "two"})
    assert tools.write(write, place) == "made x.py, 1 lines"
    (asked,) = supervisor.asked
    assert (asked["verb"], asked["token"], asked["args"]) == ("lease", "nct_x", {"op": "check", "path": str(file)})
    supervisor.answer = {"decision": "deny", "why": "x.py belongs to r/a"}
    for tool, given in ((tools.write, write), (tools.edit, edit)):
        with pytest.raises(ToolError, match=r"x\.py belongs to r/a"):
            tool(given, place)
    assert file.read_text() == "one\n"
    supervisor.answer = {"decision": "warn", "why": "x.py belongs to r/a"}
    assert tools.edit(edit, place) == "changed x.py at line 1\n[x.py belongs to r/a]"
    assert file.read_text() == "two\n"


def test_without_an_answer_it_goes_through(supervisor: Supervisor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place(tmp_path)
    supervisor.answer = None
    assert tools.write(Given({"path": "x", "content": "1"}), place).startswith("made")
    monkeypatch.setenv("NIGHTCREW_AGENTS_SOCKET", str(tmp_path / "nobody"))
    assert tools.write(Given({"path": "y", "content": "1"}), place).startswith("made")
