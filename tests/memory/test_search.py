"""Notes are found by words: what counts more, what any text does as a query, and an index that follows its files."""

from __future__ import annotations

import random

import pytest

from memory.note import Page, pages
from memory.search import HALVES_EVERY_S, Index

DAY = "episodic/2026-11-01.jsonl"


def made(**texts: str) -> Index:
    index = Index()
    index.rebuild(page for name, text in texts.items() for page in pages(f"semantic/{name}.md", text, 0.0))
    return index


def found(index: Index, query: str, **more: object) -> list[str]:
    return [hit.path.removeprefix("semantic/").removesuffix(".md") for hit in index.search(query, **more)]  # type: ignore[arg-type]


def test_title_before_tags_before_text() -> None:
    filler = "Some words about something else altogether, as notes have them.\n" * 2
    index = made(
        text=f"---\ntitle: one\ntags: [other]\n---\nlease {filler}",
        tagged=f"---\ntitle: one\ntags: [lease]\n---\nother {filler}",
        titled=f"---\ntitle: lease\ntags: [other]\n---\nother {filler}",
        none=f"---\ntitle: one\ntags: [other]\n---\nother {filler}",
    )
    assert found(index, "leases") == ["titled", "tagged", "text"], "by its stem, too"


def test_one_word_of_many_is_enough_and_the_rare_one_counts() -> None:
    index = made(a="the socket is closed", b="the file is closed", c="the door is closed")
    assert found(index, "why is the socket not answering at all?")[0] == "a"
    assert found(index, "is it") == found(index, "is"), "a query of stop words alone still asks"
    assert made(a="addCommandToGroup is slow").search("the command of a group"), "the parts of a name in camel case are words"


@pytest.mark.parametrize(
    "query",
    [
        "", " ", '"', "'", '"" OR', "a AND", "NOT", "NEAR(a b, 3)", "title:x", "a*", "^a", "-a", "(", "{a b}: c", "a + b", "\0",
        "🦀", "\ud800", "'; DROP TABLE note; --", "％", "a\u202eb", "x" * 2**20, "é ü 漢字 ١٢٣", "word " * 200_000,
        "+".join(map(str, range(9000))),
    ],
)  # fmt: skip
def test_any_text_is_a_query(query: str) -> None:
    index = made(a="some text 🦀 漢字", b="NOT AND OR NEAR title")
    index.search(query, paths=(query[:1000],))
    assert found(index, "some text") == ["a"], "and nothing is broken by it"


def test_random_text_is_a_query(seed: int) -> None:
    chance, index = random.Random(seed), made(a="some text", b="more")
    for _ in range(500):
        index.search("".join(chance.choice("ab\"'*()^:+-{} \0\n漢🦀\u0301\ud8ff") for _ in range(chance.randrange(60))))
    assert found(index, "some text") == ["a"], "and nothing is broken by it"


def test_notes_about_the_tasks_files_come_first() -> None:
    plain = "Ports are taken at random."
    index = made(
        here=f"---\npaths: [tests/net/**]\n---\n{plain}", there=f"---\npaths: [docs/**]\n---\n{plain}", only="---\npaths: ['*.md']\n---\nx"
    )
    assert found(index, "random ports", paths=["tests/net/test_ports.py"]) == ["here", "there"]
    assert found(index, "random ports", paths=["docs/a.md"]) == ["there", "here"]
    assert found(index, "random ports", paths=["tests/**"]) == ["here", "there"], "a task may say its files by patterns"
    assert "only" in found(index, "nothing of this", paths=["README.md"]), "also without a word in common"
    assert found(index, "random ports", paths=["/etc/../x", "", "a" * 9999]) == ["here", "there"], "what is no path is passed over"


def test_a_record_counts_half_after_two_weeks() -> None:
    line = '{"ts": %d, "agent": "claude", "type": "note", "text": "the build broke"}\n'
    index = Index()
    index.rebuild(pages(DAY, line % 1_000_000 + line % (1_000_000 + HALVES_EVERY_S), 0.0))
    new, old = index.search("build broke", now=1_000_000 + HALVES_EVERY_S)
    assert (new.line, old.line) == (2, 1) and old.score == pytest.approx(new.score / 2, rel=1e-3)


def test_many_old_records_crowd_out_no_note() -> None:
    index = Index()
    lines = "".join(f'{{"ts": 0, "text": "the build broke again {number}"}}\n' for number in range(500))
    index.rebuild([*pages(DAY, lines, 0.0), *pages("semantic/build.md", "Why the build broke: the cache.", 0.0)])
    assert index.search("the build broke again", now=1e9)[0].path == "semantic/build.md"


def test_an_expired_note_is_not_found() -> None:
    index = made(a="---\nexpires: 2026-01-01\n---\nfreeze", b="---\nexpires: 2027-01-01T00:00:00Z\n---\nfreeze")
    assert found(index, "freeze", now=1_790_000_000.0) == ["b"]


def test_an_index_that_follows_is_the_one_that_is_made_anew(seed: int) -> None:
    chance, index = random.Random(seed), Index()
    files: dict[str, str] = {}
    words = ["port", "lease", "merge", "build", "cache", "token", "agent", "note"]
    for _ in range(150):
        path = chance.choice([f"semantic/n{chance.randrange(8)}.md", DAY])
        said = " ".join(chance.choices(words, k=6))
        if path == DAY:
            files[path] = chance.choice([files.get(path, ""), ""]) + f'{{"ts": 1, "text": "{said}"}}\n'
        elif chance.random() < 0.3:
            files.pop(path, None)
        else:
            files[path] = f"---\ntitle: {chance.choice(words)}\npaths: [{chance.choice(words)}/**]\n---\n{said}"
        index.update(path, pages(path, files.get(path, ""), 0.0) if path in files else [])
    fresh = Index()
    fresh.rebuild(page for path, text in files.items() for page in pages(path, text, 0.0))
    assert len(index) == len(fresh)
    for word in words:
        asked = [one.search(word, paths=[f"{word}/x"], limit=50, now=1.0) for one in (index, fresh)]
        mine, theirs = (sorted((hit.path, hit.line, round(hit.score, 3)) for hit in hits) for hits in asked)
        assert mine == theirs


def test_a_day_that_grew_keeps_its_lines() -> None:
    index, line = Index(), '{"ts": 1, "text": "built"}\n'
    index.update(DAY, pages(DAY, line, 0.0))
    before = set(index._pages)
    index.update(DAY, pages(DAY, line + line, 5.0))
    assert before < set(index._pages) and len(index) == 2


def page(text: str, path: str = "semantic/a.md") -> Page:
    (one,) = pages(path, text, 7.0)
    return one


def test_what_is_read_of_a_note() -> None:
    full = page('---\ntitle: "Ports: at random"  # why\ntags:\n  - net\n  - \'flaky\'\npaths: [a/**, "b.py"]\ntask: 1/x\n---\n\nText.\n')
    assert (full.title, full.tags, full.globs, full.task) == ("Ports: at random", ("net", "flaky"), ("a/**", "b.py"), "1/x")
    assert full.body.strip() == "Text."
    assert page("# A head\n\ntext").title == "A head" and page("").title == "a"
    assert page("---\n: : {{{ [\n- x\ntitle: [unclosed\n---\nx").body == "x"
    assert pages("semantic/../x.md", "x", 0.0) == [] and page("---\nnever closed").body.startswith("---")


def test_what_is_read_of_a_day() -> None:
    lines = (
        '{"ts": "2026-11-01T10:00:00Z", "agent": "codex", "task": "1/x", "type": "done", "text": "built"}\nnot json\n[1]\n{"text": 5}\n{"te'
    )
    one, other = pages(DAY, lines, 9.0)
    assert (one.line, one.tags, one.task, one.at, one.body) == (1, ("done", "codex"), "1/x", 1_793_527_200.0, "built")
    assert (other.line, other.body) == (4, "5") and other.at == 1_793_491_200.0, "a record without a time is of its day"


def test_front_matter_of_an_editor_with_other_line_ends() -> None:
    (page,) = pages("semantic/a.md", "\ufeff---\r\ntitle: A\r\ntags: [x, y]\r\npaths:\r\n  - src/**\r\n---\r\nBody\r\n", 0.0)
    assert (page.title, page.tags, page.globs, page.body) == ("A", ("x", "y"), ("src/**",), "Body\r\n")
