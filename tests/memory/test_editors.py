"""A person's editor saves by renaming over, while agents write the same files (battery R05)."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from memory.versions import PERSON, Author
from memory.writing import Store
from supervisor.host import untrusted_fs
from tests.memory.kit import FIX, TODAY, text_of

AGENTS = [Author(f"1123-k3f9/agent-{number}", 1, "claude") for number in range(10)]


@contextmanager
def beside(work: Callable[[], object]) -> Iterator[None]:
    """Do `work` again and again in a thread; what it raises is raised here."""
    over, failed = threading.Event(), list[BaseException]()

    def run() -> None:
        try:
            while not over.is_set():
                work()
        except BaseException as error:  # noqa: BLE001 - the test raises it
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    assert not failed, failed


def save(place: Path, text: str) -> None:
    draft = place.with_name(f"{place.name}~")
    draft.write_text(text)
    draft.rename(place)


def test_a_person_edits_a_day_while_ten_agents_add_to_it(store: Store, root: Path) -> None:
    place, edits = root / "memory" / TODAY, 0
    store.append({"text": "the first"}, PERSON)

    def edit() -> None:
        nonlocal edits
        loaded = place.read_text()
        if not loaded.endswith("\n"):  # it was read in the middle of a write
            loaded += "\n"
        save(place, f"{loaded}{json.dumps({'text': f'edit {edits}'})}\n")
        edits += 1

    with beside(edit):
        for number in range(30):
            for agent in AGENTS:
                store.append({"text": f"{agent.name} {number}"}, agent)
            store.found(TODAY)
    store.found(TODAY)
    records, _ = store.day(TODAY)
    texts = [record["text"] for record in records]
    wanted = {f"{agent.name} {number}" for agent in AGENTS for number in range(30)} | {f"edit {number}" for number in range(edits)}
    assert edits and wanted <= set(texts)
    assert {record["task"] for record in records if "task" in record} == {agent.name for agent in AGENTS} | {"person"}


def test_a_line_that_a_person_removed_stays_removed(store: Store, root: Path) -> None:
    for text in ("one", "secret", "three"):
        store.append({"text": text}, FIX)
    place = root / "memory" / TODAY
    assert store.found(TODAY) is None
    save(place, "".join(line for line in place.read_text().splitlines(keepends=True) if "secret" not in line))
    assert store.found(TODAY) is not None
    assert [record["text"] for record in store.day(TODAY)[0]] == ["one", "three"]
    store.remove(TODAY, PERSON)
    place.write_text('{"text": "anew"}\n')
    store.found(TODAY)
    assert [record["text"] for record in store.day(TODAY)[0]] == ["anew"], "what was removed as a whole does not come back"


def test_no_edit_of_a_note_is_lost_to_a_write_at_the_same_moment(store: Store, root: Path) -> None:
    place, edits = root / "memory/semantic/a.md", 0
    store.put("semantic/a.md", "agent's", PERSON)

    def edit() -> None:
        nonlocal edits
        if not place.read_text().startswith("edit"):
            save(place, f"edit {edits}")
            edits += 1

    with beside(edit):
        while edits < 40:
            store.put("semantic/a.md", f"agent's {edits}", PERSON)
    store.found("semantic/a.md")
    kept = {store.versions.content(change.version) for change in store.changes(limit=10_000)}
    assert {f"edit {number}".encode() for number in range(edits)} <= kept
    for entry in store.entries():
        assert entry.path == "semantic/a.md" or text_of(store, entry.path).startswith("edit"), "beside it are only edits"


def test_what_was_saved_just_before_the_exchange_is_kept_beside(store: Store, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place, exchange = root / "memory/semantic/a.md", untrusted_fs.exchange
    store.put("semantic/a.md", "one", PERSON)

    def late(handle: int, one: str, other: str) -> bool:
        save(place, "saved at the last moment")
        return exchange(handle, one, other)

    monkeypatch.setattr(untrusted_fs, "exchange", late)
    store.put("semantic/a.md", "two", PERSON)
    assert text_of(store, "semantic/a.md") == "two"
    assert text_of(store, "semantic/a.conflict-unknown.md") == "saved at the last moment"
