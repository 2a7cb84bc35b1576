"""A writer is killed at every step of every kind of write; the next one finds out what was done, and who did it."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from memory.versions import PERSON, Author
from memory.writing import Store
from tests.failpoints import FAILPOINTS
from tests.memory.kit import DOUBTFUL, FIX, TODAY, opened, text_of

OLD, NEW, OTHERS = "old " * 2000, "new " * 3000, "a person's " * 500
STEPS = [name for name in FAILPOINTS if name.startswith("note.")]
DOES: dict[str, tuple[str, ...]] = {
    "put": ("note.pending", "note.drafted", "note.replaced", "note.done"),
    "create": ("note.pending", "note.drafted", "note.replaced", "note.done"),
    "append": ("note.pending", "note.appended", "note.done"),
    "remove": ("note.pending", "note.moved", "note.done"),
    "approve": ("note.pending", "note.pending:2", "note.drafted", "note.replaced", "note.done", "note.moved:1", "note.done:2"),
}
CASES = [(act, step) for act, steps in DOES.items() for step in steps]


def act(name: str, root: Path) -> None:
    with opened(root) as store:
        match name:
            case "put" | "create":
                store.put("semantic/a.md" if name == "put" else "semantic/b.md", NEW, FIX)
            case "append":
                store.append({"text": "three"}, FIX)
            case "remove":
                store.remove("semantic/a.md", FIX)
            case "approve":
                store.approve("procedural/a.md", PERSON)
            case "approve day":
                store.approve(TODAY, PERSON)


@pytest.fixture
def filled(root: Path) -> Path:
    with opened(root) as store:
        store.put("semantic/a.md", OLD, PERSON)
        store.put("procedural/a.md", OLD, PERSON)
        store.put("procedural/a.md", NEW, FIX)
        store.append({"text": "one"}, PERSON)
        store.append({"text": "two"}, PERSON)
    return root


def killed_at(step: str, name: str, root: Path) -> None:
    child = os.fork()
    if child == 0:
        os.environ["NIGHTCREW_DIE_AT"] = step
        try:
            act(name, root)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def drafts(root: Path) -> list[str]:
    return [path.name for path in root.rglob(".*") if path.is_file()]


def check(store: Store, root: Path, name: str, *, was_done: bool) -> None:
    """All files are whole, the old or the new; rows say what is true, and by whom."""
    last = store.changes(limit=1)[0]
    texts = {path: text_of(store, path) for path in (entry.path for entry in store.entries()) if path.endswith(".md")}
    whole = {path: text.rpartition("---\n")[2] for path, text in texts.items()}
    assert set(whole.values()) <= {OLD, NEW}
    match name:
        case "put":
            assert whole["semantic/a.md"] == (NEW if was_done else OLD)
        case "create":
            assert ("semantic/b.md" in whole) == was_done
        case "append":
            records, skipped = store.day(TODAY)
            assert [record["text"] for record in records] == ["one", "two", "three"][: 2 + was_done] and not skipped
        case "remove":
            assert ("semantic/a.md" not in whole) == was_done
            assert (root / "archive/semantic/a.md").exists() == was_done
        case "approve":
            assert whole["procedural/a.md"] == (NEW if was_done else OLD)
    by = FIX if name != "approve" else PERSON
    assert last.author == (by.name if was_done else last.author) and last.author != "unknown"
    assert store.found_all([entry.path for entry in store.entries()]) == [], "nobody else wrote"


@pytest.mark.parametrize(("name", "step"), CASES)
def test_a_kill_at_any_step_leaves_the_old_or_the_new(filled: Path, name: str, step: str) -> None:
    killed_at(step, name, filled)
    with opened(filled) as store:
        check(store, filled, name, was_done=step.partition(":")[0] not in ("note.pending", "note.drafted"))
        assert drafts(filled) == [] and store.versions.pending() == []
    if step.partition(":")[0] in ("note.pending", "note.drafted"):
        act(name, filled)
    with opened(filled) as store:
        check(store, filled, name, was_done=True)
        if name == "approve" and step != "note.done:2":
            waits = [entry.path for entry in store.quarantined()]
            was_moved = step.partition(":")[0] in ("note.pending", "note.drafted") or step == "note.moved:1"
            assert waits == ([] if was_moved else ["procedural/a.md"])
            if waits:
                assert store.approve("procedural/a.md", PERSON).conflict == "" and store.quarantined() == []
                assert [entry.path for entry in store.entries() if "conflict" in entry.path] == []


@pytest.mark.parametrize("step", ["note.pending:2", "note.appended", "note.done", "note.moved", "note.done:2"])
def test_an_approval_of_a_day_is_whole_after_a_kill(filled: Path, step: str) -> None:
    with opened(filled) as store:
        for text in ("three", "four"):
            store.append({"text": text}, DOUBTFUL)
    killed_at(step, "approve day", filled)
    was_done = step != "note.pending:2"
    with opened(filled) as store:
        texts = ["one", "two", "three", "four"]
        assert [record["text"] for record in store.day(TODAY)[0]] == texts[: 4 if was_done else 2]
        assert store.found_all([TODAY]) == [], "nobody else wrote"
        if TODAY in [entry.path for entry in store.quarantined()]:
            store.approve(TODAY, PERSON)
        assert [record["text"] for record in store.day(TODAY)[0]] == texts
        assert [entry.path for entry in store.quarantined()] == ["procedural/a.md"]


def test_every_step_is_tried() -> None:
    assert {step.partition(":")[0] for _, step in CASES} == set(STEPS)


def test_an_edit_of_the_last_moment_outlives_a_kill_after_the_exchange(filled: Path) -> None:
    """Whoever was killed had exchanged the draft for a text that nobody knows yet: it lies under the draft's name."""
    killed_at("note.replaced", "put", filled)
    (draft,) = (path for path in (filled / "memory/semantic").iterdir() if path.name.startswith("."))
    assert draft.read_text() == OLD, "the draft has what was replaced"
    draft.write_text(OTHERS)
    with opened(filled) as store:
        assert text_of(store, "semantic/a.conflict-unknown.md") == OTHERS
        assert text_of(store, "semantic/a.md").endswith(NEW) and drafts(filled) == []
        assert store.changes("semantic/a.md", 1)[0].author == Author(FIX.name).name


def test_a_torn_draft_is_no_version(filled: Path) -> None:
    killed_at("note.drafted", "put", filled)
    (draft,) = (path for path in (filled / "memory/semantic").iterdir() if path.name.startswith("."))
    draft.write_bytes(draft.read_bytes()[:100])
    with opened(filled) as store:
        assert [entry.path for entry in store.entries()] == [TODAY, "procedural/a.md", "semantic/a.md"] and drafts(filled) == []
