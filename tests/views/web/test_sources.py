"""What the pages are read by: text of strangers is plain, what many ask for is looked at once, a check that takes too long is ended."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.features.map import open_map
from supervisor.features.map.open_map import Item
from supervisor.host.paths import Home
from supervisor.kernel.errors import LedgerError, NotFound, TimedOut, ToolFailed, UsageError
from supervisor.store.ledger import Ledger
from supervisor.views.web import pages, serving
from supervisor.views.web.events import plain
from supervisor.views.web.pages import Recent
from supervisor.views.web.serving import Check, LedgerTopic
from tests.store.kit import Wall, submit
from tests.views.web.elements import leads, rows, text


@given(st.text())
def test_no_text_keeps_what_hides_or_turns_a_line_around(value: str) -> None:
    text = json.dumps(plain({value: [value]}), ensure_ascii=False)
    assert not set(text) & {chr(code) for code in (0x1B, 0x07, 0x202E, 0x200B, 0x2066, 0x9B, 0xE0041, 0xD800, 0xFEFF)}


def test_what_a_person_can_read_stays_as_it_is() -> None:
    shape = {"a": ["<b>ä🦊</b>\n\tline\u200dd", 1, None, 0.5], "b": {"c": "\x1b[2J"}}
    assert plain(shape) == {"a": ["<b>ä🦊</b>\n\tline\u200dd", 1, None, 0.5], "b": {"c": "\\x1b[2J"}}


# What many ask for ----------------------------------------------------------------------------------------------------------------


def test_however_many_ask_for_the_same_it_is_looked_at_once() -> None:
    looks: list[Mapping[str, str]] = []
    going = threading.Event()

    def read(asked: Mapping[str, str]) -> dict[str, Any]:
        looks.append(asked)
        assert going.wait(30)
        return {"asked": dict(asked)}

    async def many() -> list[bytes]:
        recent = Recent(read)
        waiting = [asyncio.ensure_future(recent.get({"a": "1"})) for _ in range(20)]
        other = asyncio.ensure_future(recent.get({"a": "2"}))
        await asyncio.sleep(0)
        waiting.pop().cancel()
        going.set()
        return [*await asyncio.gather(*waiting), await other]

    found = asyncio.run(many())
    assert found == [b'{"asked":{"a":"1"}}'] * 19 + [b'{"asked":{"a":"2"}}'] and len(looks) == 2


def test_what_a_look_raises_all_are_told_and_a_strange_row_is_a_sentence() -> None:
    async def ask(error: Exception) -> None:
        def read(_: Mapping[str, str]) -> dict[str, Any]:
            raise error

        await Recent(read).get({})

    with pytest.raises(NotFound):
        asyncio.run(ask(NotFound("no run")))
    with pytest.raises(LedgerError, match="not as it was written"):
        asyncio.run(ask(KeyError("state")))


# The check of the audit log -------------------------------------------------------------------------------------------------------


def test_a_check_runs_the_verb_once_for_who_asks_again_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[int] = []

    def run() -> dict[str, Any]:
        runs.append(1)
        return {"whole": True}

    monkeypatch.setattr(Check, "_run", staticmethod(run))
    check = Check()
    assert check.verify()["whole"] and check.verify()["took_s"] >= 0.0 and len(runs) == 1
    monkeypatch.setattr(serving, "AGAIN_S", -1.0)
    check.verify()
    assert len(runs) == 2


def test_a_check_without_a_log_says_what_the_verb_says_and_a_long_one_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NIGHTCREW_HOME", str(tmp_path))
    with pytest.raises(ToolFailed, match="there is no audit log"):
        Check().verify()
    monkeypatch.setattr(serving, "VERIFY_S", 0.001)
    with pytest.raises(TimedOut, match="the check was ended"):
        Check().verify()


# Topics ---------------------------------------------------------------------------------------------------------------------------


def test_the_ledgers_number_changes_with_each_commit_and_with_the_file(tmp_path: Path) -> None:
    home = Home(tmp_path)
    topic = LedgerTopic(home, "")
    absent = topic.look()
    with closing(Ledger(home.ledger, Wall())) as ledger:
        seen = [absent, topic.look(), topic.look()]
        assert seen[0] != seen[1] == seen[2]
        submit(ledger, "a")
        assert topic.look() != seen[2]
    home.ledger.rename(tmp_path / "aside.db")
    assert topic.look() == absent
    home.ledger.write_bytes(b"x" * 4096)
    assert "damaged" in topic.look()["trouble"]
    topic.close()


def test_topics_have_no_parts(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        LedgerTopic(Home(tmp_path), "x")


# Maps -----------------------------------------------------------------------------------------------------------------------------


def made_map(home: Home, number: int) -> str:
    name = open_map.map_id("p", {}, {"number": number})
    incoming = open_map.prepare(home, name, [Item(b"<b>\xff\x1b.py", "k", 1), Item(b"two", "k", 1), Item(b"three", "k", 1)])
    with closing(open_map.connect(open_map.file(home, name))) as db:
        open_map.take_over(db, open_map.file(home, name), incoming, fresh=True)
        open_map.set_about(db, title=f"map {number}\u202e", item_s=4.0, state="running")
        db.execute("UPDATE item SET state = 'failed', tries = 2, text = 'exit\ncode' WHERE position = 0")
        db.execute("INSERT INTO lease VALUES ('r/w1', 1, 7, '[1]')")
    return name


def test_maps_come_the_newest_first_and_a_damaged_one_keeps_none_from_being_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = Home(tmp_path)
    assert "Nothing was mapped yet" in text(pages.maps(home, {})["nodes"][0])
    monkeypatch.setattr(pages, "MAPS", 2)
    names = [made_map(home, number) for number in range(3)]
    for at, name in enumerate(names):
        os.utime(open_map.file(home, name), (at, at))
    open_map.file(home, names[2]).write_bytes(b"x" * 4096)
    os.utime(open_map.file(home, names[2]), (2, 2))
    (home.root / "maps" / "..evil").mkdir()
    first = pages.maps(home, {})
    damaged, found = (text(node) for node in first["nodes"][:2])
    assert damaged.startswith(names[2]) and "damaged" in damaged
    assert found.startswith("map 1\\u202e W running 1 of 3 (33%)") and "1 failed, 2 to do; 4s an item, about 8s left" in found
    name = "map 1\\u202e"
    assert rows(first, f"Items of {name} that failed") == [{"Item": "<b>\ufffd\\x1b.py", "Tries": "2", "Why": "exit\\ncode"}]
    assert rows(first, "Workers") == [{"Worker": "r/w1", "Attempt": "1", "Shard": "7", "Items": "1"}]
    rest = pages.maps(home, leads(first, "Older maps"))
    assert text(rest["nodes"][0]).startswith("map 0") and not leads(rest, "Older maps")
