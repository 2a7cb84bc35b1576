"""Which files a stranger's patterns reach."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from supervisor.host import scratch
from supervisor.kernel.snapshots import LOCK_FILES


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "repo"
    for path in ("uv.lock", "requirements.txt", "requirements-dev.txt", "sub/uv.lock", ".env.local", ".git/config", "sub/.GIT/x.lock"):
        (made / path).parent.mkdir(parents=True, exist_ok=True)
        (made / path).write_text(path)
    (tmp_path / "secret.lock").write_text("secret")
    return made


def test_the_usual_lock_files_at_the_root_are_found(root: Path) -> None:
    assert scratch.files(root, LOCK_FILES) == ("requirements-dev.txt", "requirements.txt", "uv.lock")
    assert scratch.files(root, ["**/*.lock", "uv.lock", ".env*"]) == (".env.local", "sub/uv.lock", "uv.lock")
    assert scratch.files(root, ["none", "sub"]) == ()
    assert scratch.files(root / "gone", ["*"]) == ()


@pytest.mark.parametrize("pattern", ["sub/", "sub/**", "./sub//", "s*/", "**/sub/", "sub/**/**"])
def test_everything_below_a_directory_is_named_by_one_mark_behind_it(root: Path, pattern: str) -> None:
    (root / "sub/deep").mkdir()
    (root / "sub/deep/x").touch()
    assert scratch.files(root, [pattern]) == ("sub/deep/x", "sub/uv.lock")


@pytest.mark.parametrize("pattern", ["../*", "sub/../../*", "/etc/*"])
def test_what_leads_out_is_no_pattern(root: Path, pattern: str) -> None:
    with pytest.raises(ValueError, match="a pattern"):
        scratch.files(root, [pattern])


def test_nothing_outside_and_nothing_of_gits_is_reached(root: Path) -> None:
    (root / "link.lock").symlink_to(root.parent / "secret.lock")
    (root / "out").symlink_to(root.parent)
    (root / "loop").symlink_to(root)
    reached = scratch.files(
        root, ["*.lock", "out/*", "out/", "out/**", "loop/uv.lock", "**/*", "**", ".git/*", "sub/", "*/config", "*/*/x.lock"]
    )
    assert reached == (".env.local", "requirements-dev.txt", "requirements.txt", "sub/uv.lock", "uv.lock")


def test_a_pipe_is_no_file_and_holds_nobody_up(root: Path) -> None:
    os.mkfifo(root / "pipe.lock")
    assert "pipe.lock" not in scratch.files(root, ["*.lock"])


def test_a_pattern_that_matches_a_whole_tree_is_refused(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scratch, "MAX_FILES", 3)
    with pytest.raises(ValueError, match="matches more than 3 files"):
        scratch.files(root, ["**/*"])
