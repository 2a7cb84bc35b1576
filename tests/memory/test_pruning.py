"""Which notes go to the archive, and the summary of a day."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from memory import listing
from memory.files import Layout
from memory.listing import Candidate, plan
from memory.note import pages
from memory.search import SUMMARY_MAX, path_of, summary
from supervisor.kernel.path_globs import CORE_MAX, Kind
from supervisor.kernel.settings import MemoryTerms

NOW, DAY = 1_000_000_000.0, 86400.0
TRACKED = ["docs/a.md", "src/net/port.py", "src/new.py"]


def note(name: str, kind: Kind = Kind.SEMANTIC, **more: object) -> Candidate:
    return Candidate(f"{kind.value}/{name}.md", **{"kind": kind, "size": 100, "changed": NOW, **more})  # type: ignore[arg-type]


def pruned(*found: Candidate, read: dict[str, float] | None = None, tracked: list[str] | None = TRACKED, **terms: object) -> dict[str, str]:
    decided = plan(found, read or {}, tracked, NOW, MemoryTerms(**terms))  # type: ignore[arg-type]
    return {prune.path.partition("/")[2].removesuffix(".md"): prune.why for prune in decided.prunes}


def test_what_is_over() -> None:
    assert pruned(note("old", expires=NOW), note("later", expires=NOW + 1), note("never")) == {"old": "expired"}


def test_what_another_note_takes_the_place_of() -> None:
    found = pruned(note("one", id="a"), note("two", id="b", supersedes="a"), note("three", supersedes="semantic/two.md"))
    assert found == {"one": "superseded by semantic/two.md", "two": "superseded by semantic/three.md"}
    assert pruned(note("one", id="a", supersedes="b"), note("two", id="b", supersedes="a")) == {}, "nobody knows which is right"
    for name in ("a", "semantic/one.md", "nobody"):
        assert pruned(note("one", id="a", supersedes=name)) == {}


def test_a_fact_of_an_agent_takes_the_place_of_no_procedure() -> None:
    keep = note("keep", Kind.PROCEDURAL, id="k")
    for said in ("k", "procedural/keep.md"):
        assert pruned(keep, note("fact", supersedes=said)) == {}
        assert pruned(keep, note("fact", supersedes=said, by_person=True)) == {"keep": "superseded by semantic/fact.md"}
        assert pruned(keep, note("how", Kind.PROCEDURAL, supersedes=said)) == {"keep": "superseded by procedural/how.md"}
    assert pruned(note("keep"), note("fact", supersedes="semantic/keep.md"), approval=frozenset(Kind)) == {
        "keep": "superseded by semantic/fact.md"
    }


@pytest.mark.parametrize(
    ("globs", "dead"),
    [
        (("src/net/port.py",), False), (("src/**",), False), (("src",), False), (("**/*.py",), False), (("src/*.py",), False), ((), False),
        (("src/gone.py",), True), (("lib/**",), True), (("*.py",), True), (("gone", "docs"), False), (("/etc", "..", ""), False),
    ],
)  # fmt: skip
def test_what_is_about_files_that_are_gone(globs: tuple[str, ...], dead: bool) -> None:
    assert bool(pruned(note("one", globs=globs))) is dead
    assert pruned(note("one", globs=globs), tracked=None) == {}, "nobody knows which files there are"


def test_what_nobody_read() -> None:
    old = NOW - 61 * DAY
    assert pruned(note("one", changed=old)) == {"one": "neither read nor changed for 60d"}
    assert pruned(note("one", changed=old), read={"semantic/one.md": NOW - DAY}) == {}
    assert pruned(note("one", changed=old), unread_s=90 * DAY) == {}
    assert set(pruned(note("how", Kind.PROCEDURAL, changed=old))) == {"how"}


def test_facts_keep_their_budget() -> None:
    found = [note(f"n{number}", changed=NOW - number) for number in range(5)]
    assert set(pruned(*found, semantic_max=300)) == {"n3", "n4"}, "those that were used longest ago"
    assert set(pruned(*found, read={"semantic/n4.md": NOW + 1}, semantic_max=300)) == {"n2", "n3"}
    assert pruned(*found, note("how", Kind.PROCEDURAL, size=9000), semantic_max=500) == {}, "other kinds have no part in it"


def test_days_are_summed_up_and_the_core_is_a_persons() -> None:
    core = Candidate("core.md", Kind.CORE, CORE_MAX + 1, 0.0, expires=1.0)
    own = Candidate("agents/1/x/notes.md", Kind.NOTES, 10, 0.0)
    days = [Candidate(f"episodic/2001-0{month}-01.jsonl", Kind.EPISODIC, 10, NOW - age * DAY) for month, age in ((7, 31), (8, 29))]
    decided = plan([core, own, *days], {}, TRACKED, NOW, MemoryTerms())
    assert [prune.path for prune in decided.days] == ["episodic/2001-07-01.jsonl"] and not decided.prunes
    assert len(decided.remarks) == 1 and "core.md" in decided.remarks[0]


def line(**record: object) -> str:
    return json.dumps(record) + "\n"


def test_the_summary_of_a_day() -> None:
    day = "episodic/2026-11-01.jsonl"
    text = (
        line(agent="claude", type="done", text="Built it.\nmore") * 3
        + line(agent="codex", type="failed", text="\x1b[31mNo\u202e room")
        + '{"torn'
    )
    made = summary(day, text)
    assert made == summary(day, text) and path_of(day) == "semantic/episodes-2026-11-01.md"
    assert (
        "4 records of 2 agents; 1 lines were torn" in made and "- claude: 3 × done\n  - Built it." in made and "- codex: 1 × failed" in made
    )
    assert "\x1b" not in made and "\u202e" not in made
    (page,) = pages(path_of(day), made, 0.0)
    assert page.title == "What happened on 2026-11-01" and page.tags == ("episodes",)


def test_a_summary_is_small_whatever_the_day_was() -> None:
    text = "".join(line(agent=f"a{number}" * 50, type="x" * 500, text="y" * 3000) for number in range(2000)) + "\0\n[]\n5\n"
    assert len(summary("episodic/2026-11-01.jsonl", text).encode()) <= SUMMARY_MAX
    assert "0 records of 0 agents" in summary("episodic/2026-11-01.jsonl", "")


def test_a_file_too_large_to_be_read_is_none(tmp_path: Path) -> None:
    folder = tmp_path / "memory" / "semantic"
    folder.mkdir(parents=True)
    (folder / "a.md").write_text("a")
    with (folder / "sparse.md").open("wb") as file:
        file.truncate(200 * 2**30)
    assert [found.path for found in listing.everything(Layout(tmp_path))] == ["semantic/a.md"]
