"""The set of notes with questions, and the figures that are made of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from nightcrew.plugins.bench import crews, memory


def test_the_same_set_each_time_and_its_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = memory.make(100, 30)
    assert made == memory.make(100, 30) and len(made.notes) == 100 == len(set(made.notes)) and len(made.questions) == 30
    assert all(question not in made.notes[at] for at, question in made.questions), "a question is not part of its note"
    monkeypatch.setattr(memory, "make", lambda *_: made)
    found = memory.measure_search(tmp_path, quick=True)
    assert found["notes"] == 100 and 0.5 < found["recall_at_10"] <= 1 and found["index_files_s"] > 0 and found["search_ms_p50"] > 0


@pytest.mark.soak
def test_every_figure_is_there(tmp_path: Path) -> None:
    report = crews.report(memory, memory.QUICK, tmp_path, print)
    assert report["storm"]["equal"] and report["index_10k_s"] > 0
    assert min(report["lease_ms_p50"], report["wait_check_ms"], report["wake_ms"]["p50"], report["agent_wake_ms"]["p50"]) > 0
    assert {aim.figure.partition(".")[0] for aim in memory.AIMS} <= report.keys()
    assert list(tmp_path.iterdir()) == []
