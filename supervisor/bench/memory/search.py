"""How fast notes are indexed and found, and how often the right one is among the first ten; by words, and by meaning where the extra is
installed."""

from __future__ import annotations

import gc
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from memory import reading, semantic
from memory.layout import Layout
from memory.pages import Page, pages
from memory.search import Index
from memory.semantic import Vectors
from supervisor.bench.memory import known_items
from supervisor.bench.memory.known_items import KnownItems

NOTES, QUESTIONS = 10_000, 1_500
QUICK_NOTES, QUICK_QUESTIONS = 1_000, 200
FIRST = 10


def measure(quick: bool, seed: int = 1) -> dict[str, Any]:
    """`index_10k_s`: seconds to read all notes' texts into an index; `index_files_s`: the same with reading the files from the disk;
    `search_ms_p50`: of a search; `recall_at_10`; `semantic`: the same two by meaning alone, and `fused_recall_at_10` and
    `fused_search_ms_p50` of both rankings together, or None without the extra. `notes` and `questions`: how many there were."""
    items = known_items.make(QUICK_NOTES if quick else NOTES, QUICK_QUESTIONS if quick else QUESTIONS, seed)
    texts = [(f"semantic/n{number}.md", f"---\nkind: semantic\n---\n{note}\n") for number, note in enumerate(items.notes)]
    index, took = _indexed(lambda: [page for path, text in texts for page in pages(path, text, 0.0)])
    recall, ms = _asked(items, lambda question: [hit.path for hit in index.search(question, limit=FIRST)])
    return {
        "index_10k_s": round(took, 3),
        "index_files_s": round(_from_files(texts), 3),
        "search_ms_p50": ms,
        "recall_at_10": recall,
        "semantic": _by_meaning(items, texts),
        "notes": len(items.notes),
        "questions": len(items.questions),
    }


def _indexed(found: Callable[[], list[Page]], vectors: Vectors | None = None) -> tuple[Index, float]:
    index = Index(vectors)
    gc.collect()
    since = time.perf_counter()
    index.rebuild(found())
    return index, time.perf_counter() - since


def _from_files(texts: list[tuple[str, str]]) -> float:
    with tempfile.TemporaryDirectory(prefix="nightcrew-bench-") as place:
        layout = Layout(Path(place))
        (layout.memory / "semantic").mkdir(parents=True)
        for path, text in texts:
            (layout.memory / path).write_text(text)
        return _indexed(lambda: [page for one in reading.everything(layout) for page in pages(one.path, one.text, one.modified)])[1]


def _asked(items: KnownItems, ask: Callable[[str], list[str]]) -> tuple[float, float]:
    """Recall at ten, and the median of the milliseconds."""
    found, times = 0, []
    for at, question in items.questions:
        since = time.perf_counter()
        answer = ask(question)
        times.append((time.perf_counter() - since) * 1000)
        found += f"semantic/n{at}.md" in answer
    return round(found / max(1, len(items.questions)), 4), round(statistics.median(times), 3)


def _by_meaning(items: KnownItems, texts: list[tuple[str, str]]) -> dict[str, Any] | None:
    model = semantic.load()
    if model is None:
        return None
    vectors = Vectors(model)
    vectors.add([(number, note) for number, note in enumerate(items.notes)])
    recall, ms = _asked(items, lambda question: [f"semantic/n{number}.md" for number in vectors.nearest(question, FIRST)])
    index, took = _indexed(lambda: [page for path, text in texts for page in pages(path, text, 0.0)], Vectors(model))
    both, both_ms = _asked(items, lambda question: [hit.path for hit in index.search(question, limit=FIRST)])
    more = {"index_10k_s": round(took, 3), "fused_recall_at_10": both, "fused_search_ms_p50": both_ms}
    return {"recall_at_10": recall, "search_ms_p50": ms, **more}
