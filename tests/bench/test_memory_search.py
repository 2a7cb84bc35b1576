"""The set of notes with questions, and the figures that are made of it."""

from __future__ import annotations

from nightcrew.plugins.bench import memory


def test_the_same_set_each_time_and_its_figures(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    made = memory.make(100, 30)
    assert made == memory.make(100, 30) and len(made.notes) == 100 == len(set(made.notes)) and len(made.questions) == 30
    assert all(question not in made.notes[at] for at, question in made.questions), "a question is not part of its note"
    monkeypatch.setattr(memory, "make", lambda *_: made)
    found = memory.measure_search(quick=True)
    assert found["notes"] == 100 and 0.5 < found["recall_at_10"] <= 1 and found["index_files_s"] > 0 and found["search_ms_p50"] > 0
