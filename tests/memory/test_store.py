"""Notes are written, kept in every version, taken back and approved."""

from __future__ import annotations

from pathlib import Path

import pytest

from memory import note
from memory.files import notes_of
from memory.versions import PERSON, Action, Author
from memory.writing import Store, Terms
from supervisor.kernel.errors import NotFound, Refused, UsageError
from supervisor.kernel.path_globs import CORE_MAX, NOTE_MAX
from tests.memory.kit import DOUBTFUL, FIX, TODAY, TWO, opened, text_of, version


def test_a_note_says_who_wrote_it_whatever_it_says_itself(store: Store) -> None:
    put = store.put("semantic/a.md", "---\ntask: person\ntags: [x]\n---\n# How it works\n", FIX)
    found = store.read("semantic/a.md")
    assert found is not None and found.note is not None and found.version == put.version
    meta = found.note.meta
    assert (meta["task"], meta["agent"], meta["kind"], meta["title"]) == (FIX.name, "claude", "semantic", "How it works")
    assert meta["tags"] == ("x",) and isinstance(meta["created"], float) and meta["created"] == meta["updated"]
    store._wall.now += 60  # type: ignore[attr-defined]
    store.put("semantic/a.md", "shorter", TWO, if_version=put.version)
    after = note.parse(text_of(store, "semantic/a.md")).meta
    assert (after["id"], after["created"]) == (meta["id"], meta["created"])
    assert after["task"] == TWO.name and after["updated"] != meta["updated"]
    assert [(change.author, change.action) for change in store.changes("semantic/a.md")] == [(TWO.name, Action.PUT), (FIX.name, Action.PUT)]


def test_a_persons_text_is_written_as_it_is(store: Store) -> None:
    text = "---\nmine: [1, 2]   # why\n---\nbody\u200b\n"
    store.put("core.md", text, PERSON)
    assert text_of(store, "core.md") == text


def test_a_text_that_comes_too_late_is_kept_beside(store: Store) -> None:
    first = store.put("semantic/a.md", "one", PERSON)
    store.put("semantic/a.md", "two", PERSON, if_version=first.version)
    late = store.put("semantic/a.md", "three", TWO, if_version=first.version)
    assert text_of(store, "semantic/a.md") == "two"
    assert late.conflict == "semantic/a.conflict-1123-k3f9-two.md" and "three" in text_of(store, late.conflict)
    again = store.put("semantic/a.md", "four", TWO, if_version="")
    assert again.conflict == "semantic/a.conflict-1123-k3f9-two-2.md"
    assert store.changes(limit=1)[0].action is Action.CONFLICT
    with pytest.raises(Refused):
        store.put(late.conflict, "x", FIX)
    assert store.put("core.md", "x", PERSON, if_version="f" * 16).conflict == "core.conflict-person.md"


def test_what_was_found_on_disk_is_a_version_too(store: Store, root: Path) -> None:
    store.put("semantic/a.md", "one", PERSON)
    (root / "memory/semantic/a.md").write_text("edited by hand")
    put = store.put("semantic/a.md", "three", PERSON)
    changes = store.changes("semantic/a.md")
    assert [(change.author, change.action) for change in changes] == [("person", "put"), ("unknown", "found"), ("person", "put")]
    assert store.versions.content(changes[1].version) == b"edited by hand" and changes[0].before == changes[1].version
    assert store.found("semantic/a.md") is None
    (root / "memory/semantic/a.md").unlink()
    gone = store.found("semantic/a.md")
    assert gone is not None and (gone.version, gone.before) == ("", put.version)
    (root / "memory/semantic/b.md").write_text("new")
    assert [change.path for change in store.found_all(["semantic/a.md", "semantic/b.md", "nowhere"])] == ["semantic/b.md"]
    assert store.known() == ["semantic/b.md"] and store.newest() == store.changes_after(0, 100)[-1].number


def test_a_version_is_brought_back(store: Store) -> None:
    one = store.put("semantic/a.md", "one", PERSON)
    store.put("semantic/a.md", "two", PERSON)
    store.restore("semantic/a.md", PERSON)
    assert text_of(store, "semantic/a.md") == "one"
    store.put("semantic/a.md", "three", PERSON)
    assert store.restore("semantic/a.md", PERSON, one.version[:6]).version == one.version
    with pytest.raises(NotFound):
        store.restore("semantic/a.md", PERSON, "ffffff")
    assert store.remove("semantic/a.md", PERSON) == "archive/semantic/a.md"
    assert store.read("semantic/a.md") is None
    store.restore("semantic/a.md", PERSON)
    assert text_of(store, "semantic/a.md") == "one"
    assert store.remove("semantic/a.md", PERSON) == "archive/semantic/a.md.2"
    with pytest.raises(NotFound):
        store.remove("semantic/a.md", PERSON)


def test_nobody_writes_the_notes_of_another(store: Store) -> None:
    own = notes_of(FIX.name)
    store.put(own, "mine", FIX)
    for act in (lambda: store.put(own, "x", TWO), lambda: store.remove(own, TWO), lambda: store.restore(own, TWO)):
        with pytest.raises(Refused):
            act()
    assert "mine" in text_of(store, own)
    store.put(own, "a word to you", PERSON)


def test_instructions_wait_for_a_person(store: Store, root: Path) -> None:
    put = store.put("procedural/release.md", "push --force", FIX)
    assert put.quarantined and store.read("procedural/release.md") is None
    assert [entry.path for entry in store.quarantined()] == ["procedural/release.md"]
    other = store.put("procedural/release.md", "ask first", TWO)
    assert other.path == "procedural/release.conflict-1123-k3f9-two.md"
    for refused in (store.approve, store.reject):
        with pytest.raises(Refused):
            refused("procedural/release.md", FIX)
    with pytest.raises(Refused):
        store.remove("procedural/release.md", FIX)
    store.approve(other.path, PERSON)
    assert "ask first" in text_of(store, "procedural/release.md")
    assert store.reject("procedural/release.md", PERSON) == "archive/quarantine/procedural/release.md"
    assert store.quarantined() == []
    with pytest.raises(NotFound):
        store.approve("procedural/release.md", PERSON)
    assert "ask first" in text_of(store, "procedural/release.md")


def test_what_changed_since_it_was_proposed_is_not_replaced_by_an_approval(store: Store) -> None:
    store.put("core.md", "one", PERSON)
    store.put("core.md", "proposed", FIX)
    store.put("core.md", "two", PERSON)
    put = store.approve("core.md", PERSON)
    assert text_of(store, "core.md") == "two" and "proposed" in text_of(store, put.conflict)


def test_a_failing_agent_writes_only_into_the_quarantine(store: Store) -> None:
    assert store.put("semantic/a.md", "x", DOUBTFUL).quarantined
    assert store.put(notes_of(DOUBTFUL.name), "x", DOUBTFUL).quarantined
    assert store.append({"text": "I won"}, DOUBTFUL) == f"quarantine/{TODAY}"
    store.append({"text": "I did not"}, FIX)
    with pytest.raises(Refused):
        store.remove(TODAY, DOUBTFUL)
    assert [record["text"] for record in store.day(TODAY)[0]] == ["I did not"]
    store.approve(TODAY, PERSON)
    assert [record["text"] for record in store.day(TODAY)[0]] == ["I did not", "I won"]
    assert [entry.path for entry in store.quarantined()] == [notes_of(DOUBTFUL.name), "semantic/a.md"]


def test_a_person_settles_who_is_trusted(root: Path) -> None:
    with opened(root, Terms(approval=frozenset(), trust="none")) as store:
        assert store.put("semantic/a.md", "x", FIX).quarantined
    with opened(root, Terms(approval=frozenset())) as store:
        assert not store.put("core.md", "x", FIX).quarantined


def test_lines_of_a_day(store: Store, root: Path) -> None:
    assert store.append({"text": "it\u200b failed", "type": "found", "refs": ["a.py"]}, FIX) == TODAY
    with (root / "memory" / TODAY).open("ab") as file:
        file.write(b'{"v": 1, "text": "torn')
    store.append({"text": "after"}, TWO)
    records, skipped = store.day(TODAY)
    assert [record["text"] for record in records] == ["it failed", "after"] and [line.line for line in skipped] == [2]
    assert records[0] | {"ts": 0} == {
        "v": 1, "ts": 0, "seq": 1, "agent": "claude", "task": FIX.name, "type": "found", "text": "it failed", "refs": ["a.py"],
    }  # fmt: skip
    found = store.found(TODAY)
    assert found is not None and found.author == "unknown", "somebody else added to it"
    store.append({"text": "more"}, FIX)
    assert store.found(TODAY) is None, "what is ours is known"
    with pytest.raises(UsageError):
        store.put(TODAY, "x", PERSON)
    for odd in ({}, {"text": 1}, {"text": " "}, {"text": "x", "who": "me"}, {"text": "x" * 5000}, {"text": "x", "refs": "a"}):
        with pytest.raises(UsageError):
            store.append(odd, FIX)


@pytest.mark.parametrize(("path", "size"), [("core.md", CORE_MAX), ("semantic/a.md", NOTE_MAX)])
def test_a_note_has_a_size(store: Store, root: Path, path: str, size: int) -> None:
    store.put(path, "x" * size, PERSON)
    for author in (PERSON, FIX):
        with pytest.raises(UsageError):
            store.put(path, "é" * (size // 2 + 1), author)
    assert len(text_of(store, path)) == size


def test_the_list_reads_a_file_again_only_when_it_changed(store: Store, root: Path) -> None:
    store.put("semantic/a.md", "# One", PERSON)
    (root / "memory/semantic/.hidden").write_text("x")
    assert [(entry.path, entry.title) for entry in store.entries()] == [("semantic/a.md", "One")]
    (root / "memory/semantic/a.md").write_text("# Two")
    assert [entry.title for entry in store.entries()] == ["Two"]


def test_who_is_unknown_is_no_agent() -> None:
    assert not PERSON.is_agent and not Author("unknown").is_agent and FIX.is_agent


def test_the_same_text_again_is_no_change(store: Store) -> None:
    store.put("core.md", "x", PERSON)
    store.put("core.md", "x", PERSON)
    assert len(store.changes()) == 1 and version(store, "core.md") == store.changes()[0].version


def test_a_day_is_put_together_again(store: Store, root: Path) -> None:
    for word in ("one", "two", "three"):
        store.append({"text": word}, FIX)
    whole = (root / "memory" / TODAY).read_bytes()
    store.remove(TODAY, PERSON)
    with pytest.raises(Refused):
        store.restore(TODAY, FIX)
    for _ in range(2):  # what is there is not doubled
        store.restore(TODAY, PERSON)
        assert (root / "memory" / TODAY).read_bytes() == whole
    (root / "memory" / TODAY).write_bytes(whole.split(b"\n")[1] + b"\n")
    store.restore(TODAY, PERSON)
    assert [record["text"] for record in store.day(TODAY)[0]] == ["two", "one", "three"]
    with pytest.raises(NotFound):
        store.restore("episodic/2020-01-01.jsonl", PERSON)
