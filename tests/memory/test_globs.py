"""Patterns of paths in a memory."""

from __future__ import annotations

import pytest

from memory.note import matcher
from supervisor.kernel.errors import UsageError


@pytest.mark.parametrize(
    ("glob", "path", "matches"),
    [
        ("semantic/*.md", "semantic/plan.md", True),
        ("semantic/*.md", "semantic/deep/plan.md", False),
        ("semantic/plan.md", "semantic/planXmd", False),
        ("*", "core.md", True),
        ("*", "semantic/plan.md", True),
        ("semantic", "semantic/plan.md", True),
        ("semantic/", "semantic/plan.md", True),
        ("semantic/", "semantics.md", False),
        ("*.md", "semantic/plan.md", False),
        ("**", "agents/r/t/notes.md", True),
        ("**/notes.md", "notes.md", True),
        ("agents/**/notes.md", "agents/r/t/notes.md", True),
        ("agents/**", "procedural/x.md", False),
        ("semantic/[ab].md", "semantic/a.md", True),
        ("semantic/[!ab].md", "semantic/a.md", False),
        ("semantic/?.md", "semantic/a.md", True),
        ("semantic/[.md", "semantic/[.md", True),
        ("semantic/(a|b).md", "semantic/a.md", False),
    ],
)
def test_a_pattern_matches_whole_paths(glob: str, path: str, matches: bool) -> None:
    assert matcher(glob)(path) is matches


@pytest.mark.parametrize("glob", ["", "/etc/passwd", "x" * 513, "../mail", "*/" * 33, "a\x00b"])
def test_what_is_no_pattern_is_refused(glob: str) -> None:
    with pytest.raises(UsageError):
        matcher(glob)
