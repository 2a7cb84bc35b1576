"""What a result changed of its gate is read from git, and the gate can be put back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from supervisor.kernel.gate_files import Kind, flags
from worktrees import tree_merge
from worktrees.tree_merge import hardened, read_gate_changes

if TYPE_CHECKING:
    from tests.worktrees.conftest import World

TESTS = "def test_one():\n    assert 1 + 1 == 2\n\n\ndef test_two():\n    assert 2 + 2 == 4\n"


def test_lines_are_those_of_their_file(world: World) -> None:
    repo = world.repo()
    at = repo.root
    world.commit(at, "tests/test_a.py", TESTS)
    world.commit(at, "old name.py", "a\nb\nc\nd\ne\nf\ng\nh\n")
    (at / "link").write_text("plain\n")
    (at / "bytes").write_bytes(b"\0\1\2" * 500)
    base = world.commit(at, "gone.txt", "--- a/x\n+++ b/y\n@@ -1 +1 @@\ndiff --git a/z b/z\n")
    (at / "tests/test_a.py").write_text(TESTS.replace("    assert 2 + 2 == 4", "    pass"))
    (at / "old name.py").rename(at / 'new "name"\t.py')
    (at / "link").unlink()
    (at / "link").symlink_to("f0.txt")
    (at / "bytes").write_bytes(b"\0\3\4" * 500)
    (at / "gone.txt").unlink()
    (at / "f1.txt").chmod(0o755)
    (at / "no end").write_text("one\ntwo")
    tip = world.commit(at, "z.txt", "@@ -1,9 +1,9 @@\n-x\n")
    found = {change.path: change for change in read_gate_changes(repo, base, tip)}
    facts = {path: (change.status, change.removed, change.added) for path, change in found.items()}
    assert facts == {
        "bytes": ("M", (), ()),
        "f1.txt": ("M", (), ()),
        "gone.txt": ("D", ("--- a/x", "+++ b/y", "@@ -1 +1 @@", "diff --git a/z b/z"), ()),
        "link": ("T", ("plain",), ("f0.txt",)),
        'new "name"\t.py': ("R", (), ()),
        "no end": ("A", (), ("one", "two")),
        "tests/test_a.py": ("M", ("    assert 2 + 2 == 4",), ("    pass",)),
        "z.txt": ("A", (), ("@@ -1,9 +1,9 @@", "-x")),
    }
    assert found['new "name"\t.py'].old_path == "old name.py" and not any(change.cut for change in found.values())


def test_what_is_too_large_is_said(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    repo = world.repo()
    monkeypatch.setattr(tree_merge, "PATCH_MAX", 400)
    world.commit(repo.root, "a.txt", "x\n" * 50)
    tip = world.commit(repo.root, "tests/test_z.py", TESTS)
    found = {change.path: change for change in read_gate_changes(repo, repo.head, tip)}
    assert found["tests/test_z.py"].cut
    assert [flag.why for flag in flags(found.values()) if flag.weakens] == ["too large to be read through"]


def test_a_gate_is_put_back_and_the_work_stays(world: World) -> None:
    repo = world.repo()
    at = repo.root
    world.commit(at, "tests/test_a.py", TESTS)
    world.commit(at, "tests/test_moved.py", "def test_three():\n    assert 3\n")
    base = world.commit(at, "pyproject.toml", '[project]\nname = "a"\n')
    (at / "tests/test_a.py").write_text(TESTS.replace("def test_two", "@pytest.mark.skip\ndef test_two"))
    (at / "tests/test_moved.py").rename(at / "tests_moved.py")
    (at / "conftest.py").write_text("collect_ignore = ['tests/test_a.py']\n")
    (at / "tests/test_new.py").write_text("def test_new():\n    assert True is True\n")
    tip = world.commit(at, "src.py", "work = 1\n")
    found = flags(read_gate_changes(repo, base, tip), "pytest")
    assert {(flag.path, flag.kind) for flag in found if flag.weakens} == {
        ("tests/test_a.py", Kind.TEST),
        ("tests_moved.py", Kind.TEST),
        ("conftest.py", Kind.CONFIG),
    }
    commit = hardened(repo, tip, base, found)
    assert commit is not None and commit == hardened(repo, tip, base, found)
    assert world.sh(at, "diff", "--name-status", "--no-renames", base, commit) == "A\tsrc.py\nA\ttests/test_new.py"
    assert hardened(repo, tip, base, ()) is None
    assert hardened(repo, base, base, found) is None


def test_a_gate_that_lies_behind_a_link_or_below_a_file_is_put_back(world: World) -> None:
    """The result put a link in the place of its directory, and a directory in the place of its file."""
    repo = world.repo()
    at = repo.root
    world.commit(at, "tests/test_a.py", TESTS)
    base = world.commit(at, "pytest.ini", "[pytest]\n")
    for name in ("tests/test_a.py", "pytest.ini"):
        (at / name).unlink()
    (at / "tests").rmdir()
    (at / "tests").symlink_to("elsewhere")
    (at / "elsewhere").mkdir()
    (at / "elsewhere" / "test_a.py").write_text("def test_one():\n    pass\n")
    tip = world.commit(at, "pytest.ini/inner", "x\n")
    commit = hardened(repo, tip, base, flags(read_gate_changes(repo, base, tip), "pytest"))
    assert commit is not None
    assert world.sh(at, "diff", "--name-only", base, commit, "--", "tests", "pytest.ini") == ""
    assert world.sh(at, "ls-tree", "--name-only", commit, "tests/") == "tests/test_a.py"


def test_where_a_new_module_lies_is_read_from_the_base(world: World) -> None:
    repo = world.repo()
    at = repo.root
    world.commit(at, "package/__init__.py", "")
    base = world.commit(at, "plain/a.py", "")
    for name in ("package", "plain", "new", "package/new"):
        (at / name).mkdir(exist_ok=True)
        (at / name / "__init__.py").touch()
        (at / name / "types.py").write_text("x = 1\n")
    (at / "plain" / "json").symlink_to("../new")
    tip = world.commit(at, "queue.py", "x = 1\n")
    found = {flag.path for flag in flags(read_gate_changes(repo, base, tip), "pytest") if flag.kind is Kind.RUNS}
    assert found == {"plain/types.py", "plain/json", "queue.py"}
