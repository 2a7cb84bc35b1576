"""HEAD that is asked for again and again: git is asked only when it may have changed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support import git, make_repository
from worktrees.git import Git
from worktrees.repository import KnownHead, discover


def test_it_is_always_where_head_is(tmp_path: Path) -> None:
    path = make_repository(tmp_path / "repo")
    repo, known = discover(Git(tmp_path / "git"), path), KnownHead()
    without: Any = replace(repo, git=None)  # type: ignore[arg-type]  # whoever asks git fails

    def now() -> str:
        with pytest.raises(AttributeError):
            known.resolve(without, "HEAD")
        found = known.resolve(repo, "HEAD")
        assert found == git(path, "rev-parse", "HEAD")
        return found

    seen = [now()]
    assert known.resolve(without, "HEAD") == seen[0]
    for change in (
        ("commit", "-q", "--allow-empty", "-m", "second"),
        ("pack-refs", "--all", "--prune"),
        ("update-ref", "refs/heads/main", "HEAD~1"),
        ("checkout", "-q", "-b", "other"),
        ("commit", "-q", "--allow-empty", "-m", "third"),
        ("checkout", "-q", "--detach", "main"),
        ("checkout", "-q", "other"),
        ("reset", "-q", "--hard", "main"),
    ):
        git(path, *change)
        seen.append(now())
        assert known.resolve(without, "HEAD") == seen[-1], change
    assert len({*seen}) == 3 and known.resolve(repo, "main") == seen[0]
