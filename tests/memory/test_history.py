"""A long history is told by pages, and a patch costs little whatever it changed."""

from __future__ import annotations

import difflib
import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory import note
from memory.note import Wanted, page
from memory.versions import PERSON, Action, Change
from memory.writing import Store
from tests.memory.kit import TWO

HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")


def patch(before: list[str], after: list[str]) -> str:
    texts = {"a": "\n".join(before).encode(), "b": "\n".join(after).encode()}
    return note.patch(texts.get, Change(1, "semantic/a.md", 0.0, "person", None, Action.PUT, "b", "a", 0))


def applied(before: list[str], told: str) -> list[str]:
    """What a patch makes of a text; it has to say where what stands."""
    after, at = list[str](), 0
    for line in told.splitlines()[2:]:
        if (hunk := HUNK.fullmatch(line)) is not None:
            begin = int(hunk[1]) - (hunk[2] != "0")
            after += before[at:begin]
            at = begin
            assert len(after) == int(hunk[3]) - (hunk[4] != "0"), line
        elif line[0] in " -":
            assert before[at] == line[1:]
            at += 1
        if line[0] in " +":
            after.append(line[1:])
    return after + before[at:]


LINES = st.lists(st.sampled_from("abc"), max_size=30)


@given(LINES, LINES, LINES, LINES, st.sampled_from([0, 20, 10**6]))
def test_a_patch_leads_from_one_text_to_the_other(head: list[str], before: list[str], after: list[str], tail: list[str], most: int) -> None:
    old, new = head + before + tail, head + after + tail
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(note, "COMPARED_MAX", most)
        assert applied(old, patch(old, new)) == new


def test_thousands_of_changed_lines_are_not_compared_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """difflib takes seconds for what an agent can write into two versions of a note."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    dice, compared, unified = random.Random(seed), [0], difflib.unified_diff

    def counted(a: list[str], b: list[str], old: str, new: str, lineterm: str) -> object:
        compared.append(len(a) * len(b))
        return unified(a, b, old, new, lineterm=lineterm)

    monkeypatch.setattr(difflib, "unified_diff", counted)
    one, other = ([str(dice.randrange(130)) for _ in range(16_000)] for _ in range(2))
    assert patch(one, other).endswith("lines more)")
    assert applied(one, patch(one, [*one[:9000], "new", *one[9001:]]))[9000] == "new"
    assert max(compared) < 100, "only what changed, and what stands around it"


def test_a_long_history_is_told_by_pages(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(note, "PATCHED_MAX", 7)
    for number in range(20):
        store.put("semantic/a.md", f"text {number}", PERSON)
        store.put("procedural/a.md", f"proposal {number}", TWO)
    for with_patch, path, count in ((True, None, 40), (False, None, 40), (True, "semantic/a.md", 20), (False, "semantic/a.md", 20)):
        found, before = list[int](), None
        while True:
            told = page(store.versions, Wanted(path, 10, before, patch=with_patch))
            found += [one["number"] for one in told["changes"]]
            assert len(told["changes"]) <= (7 if with_patch else 10) and all(("patch" in one) is with_patch for one in told["changes"])
            before = told["before"]
            if before is None:
                break
        assert found == sorted(found, reverse=True) and len(set(found)) == count
    told = page(store.versions, Wanted(None, 10, patch=True), lambda change: not change.path.startswith("quarantine/"))
    assert {one["path"] for one in told["changes"]} == {"semantic/a.md"} and told["before"], "what one may not see has no place in a page"


def test_a_page_has_as_many_patches_as_there_is_room_for(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(note, "PATCHES_MAX", 30_000)
    for number in range(4):
        store.put("semantic/a.md", f"{str(number) * 99}\n" * 60, PERSON)
    first = page(store.versions, Wanted(patch=True))
    assert [one["number"] for one in first["changes"]] == [4, 3] and first["before"] == 3, "and the rest is not lost"
    assert [one["number"] for one in page(store.versions, Wanted(before=3, patch=True))["changes"]] == [2, 1]
    monkeypatch.setattr(note, "PATCHES_MAX", 10)
    assert [one["number"] for one in page(store.versions, Wanted(patch=True))["changes"]] == [4], "one is always told"
