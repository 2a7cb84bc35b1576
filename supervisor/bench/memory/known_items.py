"""Notes with questions whose answer is known: what programmers wrote about functions, the first sentence being the question.

Made from the Python files of this interpreter and its packages, the same each time on the same installation; nothing is imported.
"""

from __future__ import annotations

import ast
import random
import re
import sysconfig
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

NOTE_MIN, NOTE_MAX = 80, 600
"""Characters of a note."""
QUESTION_MIN, QUESTION_MAX = 20, 300
_SENTENCE = re.compile(r"(.+?[.!?])(?:\s+(?=[A-Z`'\"(:])|\s*\n\s*\n|\s*\Z)", re.DOTALL)
_LEFT_OUT = frozenset({"test", "tests", "idlelib", "lib2to3", "__pycache__"})
_ELSEWHERE = frozenset({"site-packages", "dist-packages"})


@dataclass(frozen=True, slots=True)
class KnownItems:
    """`questions`: the positions in `notes` that are asked for, each with the question."""

    notes: tuple[str, ...]
    questions: tuple[tuple[int, str], ...]


def make(notes: int, questions: int, seed: int = 1) -> KnownItems:
    """As many notes as that, or as there are. A question that stands before two notes is never asked: either would be right."""
    pairs = list(_pairs(notes * 2))
    chance = random.Random(seed)  # noqa: S311 - the same set each time
    chance.shuffle(pairs)
    chosen = pairs[:notes]
    often = Counter(question for question, _ in pairs)
    asked = [at for at, (question, _) in enumerate(chosen) if often[question] == 1]
    picked = chance.sample(asked, min(questions, len(asked)))
    return KnownItems(tuple(note for _, note in chosen), tuple((at, chosen[at][0]) for at in picked))


def _pairs(limit: int) -> Iterator[tuple[str, str]]:
    """A question and its note, of different notes; at most `limit`."""
    places = sysconfig.get_paths()
    seen: set[str] = set()
    for root, left_out in ((Path(places["stdlib"]), _LEFT_OUT | _ELSEWHERE), (Path(places["purelib"]), _LEFT_OUT)):
        for text in _documented(root, left_out):
            pair = _pair(text)
            if pair is not None and pair[1] not in seen:
                seen.add(pair[1])
                yield pair
                if len(seen) >= limit:
                    return


def _pair(text: str) -> tuple[str, str] | None:
    first = _SENTENCE.match(text)
    if first is None:
        return None
    question, note = (" ".join(part.split()) for part in (first[1], text[first.end() :]))
    return (question, note[:NOTE_MAX]) if QUESTION_MIN <= len(question) <= QUESTION_MAX and len(note) >= NOTE_MIN else None


def _documented(root: Path, left_out: frozenset[str]) -> Iterator[str]:
    for path in sorted(root.rglob("*.py")):
        if left_out.isdisjoint(path.relative_to(root).parts[:-1]):
            yield from _docstrings(path)


def _docstrings(path: Path) -> Iterator[str]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of others' code
            tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError, RecursionError, MemoryError, OSError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and (text := ast.get_docstring(node)):
            yield text
