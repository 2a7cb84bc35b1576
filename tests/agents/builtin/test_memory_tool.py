"""The memory tool of the built-in agent, on a real store of notes: the commands of the API's memory tool, and no path beside it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from agents.agent_client import client
from memory.files import Layout
from memory.versions import Author
from memory.writing import Store
from nightcrew.plugins.builtin.tools import Given, ToolError, groups, memory
from supervisor.kernel.errors import NightcrewError

TASK = "1123-k3f9/fix"


class Door:
    """What agents.sock answers, without the socket."""

    def __init__(self, store: Store) -> None:
        self.store, self.meanwhile = store, ""

    def __call__(self, verb: str, args: dict[str, Any]) -> dict[str, Any]:
        assert verb == "mem"
        try:
            return self._answer(args["op"], args)
        except NightcrewError as error:
            raise client.Failed(error.exit_code, error.line()) from None

    def _answer(self, op: str, args: dict[str, Any]) -> dict[str, Any]:
        author = Author(TASK, 1)
        match op:
            case "ls":
                found = self.store.entries()
                found = [entry for entry in found if entry.path.startswith(args.get("prefix", ""))]
                return {"entries": [{"path": entry.path, "size": entry.size, "title": entry.title} for entry in found]}
            case "show":
                note = self.store.read(args["path"])
                if note is None:
                    raise client.Failed(4, "no such file")
                if self.meanwhile:
                    self.store.put(args["path"], self.meanwhile, Author("person"))
                return {"text": note.text, "version": note.version}
            case "put":
                return asdict(self.store.put(args["path"], args["text"], author, if_version=args["if_version"]))
            case "rm":
                return {"archived": self.store.remove(args["path"], author)}
        raise AssertionError(op)


@pytest.fixture
def door(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Door]:
    monkeypatch.setenv("NIGHTCREW_TASK", TASK)
    store = Store(Layout(tmp_path), lambda: 1_795_456_800.0)
    store.put("semantic/port.md", "The server\ntakes port 8080.\n", Author("person"))
    yield Door(store)
    store.close()


def call(door: Door, command: str, path: str | None = None, **more: Any) -> str:
    return memory(Given({"command": command, **({"path": path} if path is not None else {}), **more}), door)


def failed(door: Door, command: str, path: str | None = None, **more: Any) -> str:
    with pytest.raises(ToolError) as found:
        call(door, command, path, **more)
    return str(found.value)


def test_view(door: Door) -> None:
    assert "/memories/semantic/port.md" in call(door, "view", "/memories")
    assert call(door, "view", "/memories/semantic/port.md").endswith("     1\tThe server\n     2\ttakes port 8080.\n     3\t")
    assert call(door, "view", "/memories/semantic/port.md", view_range=[2, 2]).endswith(":\n     2\ttakes port 8080.")
    assert "not within the 3 lines" in failed(door, "view", "/memories/semantic/port.md", view_range=[3, 2])
    assert "does not exist" in failed(door, "view", "/memories/procedural")


def test_create_change_and_delete(door: Door) -> None:
    note = "/memories/semantic/build.md"
    assert call(door, "create", note, file_text="one\ntwo\n") == f"File created successfully at: {note}"
    assert "already exists" in failed(door, "create", note, file_text="again")
    assert call(door, "str_replace", note, old_str="two", new_str="three") == "The memory file has been edited."
    assert call(door, "insert", note, insert_line=0, insert_text="---\ntags: [make]\n---").endswith("has been edited.")
    stored = door.store.read("semantic/build.md")
    assert stored is not None and stored.text.endswith("one\nthree\n")
    assert call(door, "rename", None, old_path=note, new_path="/memories/semantic/make.md").startswith("Successfully renamed")
    assert [entry.path for entry in door.store.entries()] == ["semantic/make.md", "semantic/port.md"]
    assert call(door, "delete", "/memories/semantic/make.md").startswith("Successfully deleted")
    assert "no such file" in failed(door, "delete", "/memories/semantic/make.md").lower()


def test_what_must_be_there_once_is(door: Door) -> None:
    port = "/memories/semantic/port.md"
    assert "did not appear verbatim" in failed(door, "str_replace", port, old_str="9090", new_str="1")
    assert "Multiple occurrences of old_str in lines: [1, 2]" in failed(door, "str_replace", port, old_str="e", new_str="")
    assert "Invalid `insert_line` parameter: 9" in failed(door, "insert", port, insert_line=9, insert_text="x")


def test_both_texts_stay_when_somebody_else_was_faster(door: Door) -> None:
    door.meanwhile = "The server takes port 9090.\n"
    said = failed(door, "str_replace", "/memories/semantic/port.md", old_str="8080", new_str="8081")
    assert "your text is kept as /memories/semantic/port.conflict-" in said
    texts = sorted(path.text for entry in door.store.entries() if (path := door.store.read(entry.path)) is not None)
    assert any("8081" in text for text in texts) and "The server takes port 9090.\n" in texts


def test_its_own_notes_have_a_short_name_and_instructions_wait_for_a_person(door: Door) -> None:
    call(door, "create", "/memories/notes.md", file_text="mine\n")
    assert door.store.read(f"agents/{TASK}/notes.md") is not None
    said = call(door, "create", "/memories/procedural/release.md", file_text="push to main\n")
    assert "waits for a person's approval" in said and door.store.read("procedural/release.md") is None


@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd", "/memories/../mail/person", "/memories/semantic/../../secret.md", "/memoriesx/core.md", "semantic/port.md",
        "/memories/semantic/a.sh", "/memories/semantic", "/memories/semantic/%2e%2e/x.md", "/memories/semantic/a/b.md", "/memories/",
    ],
)  # fmt: skip
@pytest.mark.parametrize("command", ["create", "str_replace", "insert", "delete"])
def test_no_command_takes_a_path_that_no_note_has(door: Door, command: str, path: str) -> None:
    before = [entry.path for entry in door.store.entries()]
    said = failed(door, command, path, file_text="x", old_str="a", new_str="b", insert_line=0, insert_text="x")
    assert "/memories" in said
    assert [entry.path for entry in door.store.entries()] == before


def test_what_is_no_call_is_said(door: Door) -> None:
    assert "there is no command 'undo'" in failed(door, "undo", "/memories/core.md")
    assert "'path' is missing" in failed(door, "view")
    assert "not a list of whole numbers" in failed(door, "view", "/memories/semantic/port.md", view_range=["1", True])
    assert "another agent's notes" in failed(door, "create", "/memories/agents/1123-k3f9/other/notes.md", file_text="x")


def test_its_calls_do_not_run_side_by_side() -> None:
    calls = [
        {"name": "memory", "input": {"command": "view"}},
        {"name": "memory", "input": {"command": "view"}},
        {"name": "read", "input": {}},
    ]
    assert list(map(len, groups(calls))) == [1, 2]
