"""Which paths the memory has, and which text is none."""

from __future__ import annotations

import pytest

from memory.files import checked, notes_of
from supervisor.kernel.errors import UsageError
from supervisor.kernel.path_globs import PATH_MAX, Kind, kind_of


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("core.md", Kind.CORE),
        ("semantic/build.md", Kind.SEMANTIC),
        ("procedural/release-1.2.md", Kind.PROCEDURAL),
        ("episodic/2026-11-23.jsonl", Kind.EPISODIC),
        (notes_of("1123-k3f9/fix"), Kind.NOTES),
    ],
)
def test_what_has_a_place(path: str, kind: Kind) -> None:
    assert kind_of(path) is kind is checked(path)


@pytest.mark.parametrize(
    "path",
    [
        "", "/core.md", "core.md/", "core.txt", "semantic", "semantic/.hidden.md", "semantic/a/b.md", "semantic/../core.md",
        "semantic/a b.md", "semantic/x.md\n", "episodic/today.jsonl", "agents/a/notes.md", "agents/../x/notes.md", "mail/person/new/x.md",
        "semantic/" + "x" * PATH_MAX + ".md", "semantic/\u202ex.md",
    ],
)  # fmt: skip
def test_what_has_none(path: str) -> None:
    assert kind_of(path) is None
    with pytest.raises(UsageError):
        checked(path)
