"""A small repository with known flaws: what each analyst says of it, to the number."""

from __future__ import annotations

from pathlib import Path

import pytest

from supervisor.results.findings import Facts, Severity
from tests.agents.analysts.kit import brief, checkout, look

BRANCHES = "".join(f"    if x == {number}:\n        return {number}\n" for number in range(24))
FLAWED = f'''"""Says what it is."""

import subprocess


def shell(command):
    return subprocess.call(command, shell=True)


class Shape:
    """A shape."""

    def area(self):
        return 0

    def _hidden(self):
        def inner():
            return 1
        return inner


def many(x):
    """Branch {chr(233)}."""
{BRANCHES}    return x
'''
LONG = "def long():\n" + "    a = 1\n" * 400 + "    return a\n"
TESTED = """import pkg

def test_one():
    assert pkg
    assert 1
    assert 2
    assert 3
    assert 4
    assert 5


class TestMore:
    def test_two(self):
        pass

    def helper(self):
        pass
"""
FILES = {
    "pkg/__init__.py": "",
    "pkg/flawed.py": FLAWED,
    "pkg/long.py": LONG,
    "pkg/old.py": "print 'python 2'\n",
    "tests/test_pkg.py": TESTED,
    "tests/test_empty.py": "X = 1\n",
    "tests/conftest.py": "import os\n",
    "README.md": "no Python\n",
    "script": "#!/usr/bin/env python\nexec(input())\n",
}
LINES = 2 + sum(text.count("\n") for name, text in FILES.items() if name.endswith(".py")) - 2


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkout(tmp_path_factory.mktemp("golden") / "repository", FILES)


def _size(facts: Facts) -> tuple[int, int, int]:
    return (facts.files, facts.lines, facts.unparsable)


def test_security(repository: Path) -> None:
    facts = look(repository, "security")
    assert _size(facts) == (7, LINES, 1)
    assert facts.counts == {"issues": 2, "ignored": 6}  # the asserts of a test are how it speaks
    assert brief(facts.findings) == [("high", "pkg/flawed.py", 7, "B602"), ("low", "pkg/flawed.py", 3, "B404")]
    assert "shell=True" in facts.findings[0].message
    assert facts.hot == {"pkg/flawed.py": (1, 0, 1)}


def test_complexity(repository: Path) -> None:
    facts = look(repository, "complexity")
    assert _size(facts) == (7, LINES, 1)
    assert facts.counts == {"functions": 9, "over": 1, "worst": 25}
    assert brief(facts.findings) == [("medium", "pkg/flawed.py", 22, "complex-function")]
    assert facts.findings[0].message == "`many` has cyclomatic complexity 25"


def test_docstrings(repository: Path) -> None:
    facts = look(repository, "docstrings")
    assert _size(facts) == (7, LINES, 1)
    assert facts.counts == {"objects": 7, "documented": 3}  # flawed: module, shell, Shape, Shape.area, many; long: module, long
    assert brief(facts.findings) == [("low", "pkg/flawed.py", 6, "missing-docstring"), ("low", "pkg/long.py", 1, "missing-docstring")]
    assert facts.findings[0].message == "no docstring for 2 of 5 public objects: `shell`, `Shape.area`"


def test_tests(repository: Path) -> None:
    facts = look(repository, "tests")
    assert _size(facts) == (7, LINES, 1)
    assert facts.counts == {"test_files": 3, "test_functions": 2}
    assert brief(facts.findings) == [("low", "tests/test_empty.py", 0, "no-test-function")]


def test_structure(repository: Path) -> None:
    facts = look(repository, "structure")
    assert _size(facts) == (7, LINES, 1)
    assert facts.counts == {"functions": 9, "classes": 2}
    assert brief(facts.findings) == [("medium", "pkg/long.py", 1, "long-function"), ("medium", "pkg/old.py", 1, "syntax-error")]
    assert facts.severities == {Severity.HIGH: 0, Severity.MEDIUM: 2, Severity.LOW: 0}


def test_shards_add_up_to_the_whole(repository: Path) -> None:
    whole = look(repository, "structure")
    parts = [look(repository, "structure", ANALYST_SHARD=f"{index}/3") for index in (1, 2, 3)]
    assert [str(part.shard) for part in parts] == ["1/3", "2/3", "3/3"]
    assert sum(part.files for part in parts) == whole.files
    assert sum(part.lines for part in parts) == whole.lines
    assert sorted(brief(sum((part.findings for part in parts), ()))) == sorted(brief(whole.findings))


def test_excluded_files_do_not_exist(repository: Path) -> None:
    facts = look(repository, "structure", ANALYST_EXCLUDE="tests\npkg/*old.py")
    assert (facts.files, facts.unparsable) == (3, 0)


@pytest.mark.in_turns
@pytest.mark.parametrize("perspective", ["security", "complexity", "docstrings", "tests", "structure"])
def test_nothing_to_look_at_is_no_mistake(tmp_path: Path, perspective: str) -> None:
    none = look(checkout(tmp_path / "none", {}), perspective)
    other = look(checkout(tmp_path / "other", {"a.c": "int main;\n"}), perspective)
    more_shards_than_files = look(checkout(tmp_path / "one", {"a.py": "x = 1\n"}), perspective, ANALYST_SHARD="2/2")
    assert {_size(none), _size(other), _size(more_shards_than_files)} == {(0, 0, 0)}
    assert not none.findings + other.findings + more_shards_than_files.findings


def test_a_repository_without_tests_is_told_once(tmp_path: Path) -> None:
    path = checkout(tmp_path / "r", {"a.py": "x = 1\n", "b.py": "y = 1\n"})
    facts = look(path, "tests")
    assert brief(facts.findings) == [("high", ".", 0, "no-tests")]
    assert not facts.hot  # no file is to blame
    parts = [look(path, "tests", ANALYST_SHARD=f"{index}/2") for index in (1, 2)]
    assert [len(part.findings) for part in parts] == [1, 0]
    assert not look(checkout(tmp_path / "t", {"a.py": "x = 1\n", "test_a.py": "def test(): pass\n"}), "tests", ANALYST_SHARD="1/2").findings


def test_five_thousand_files(tmp_path: Path) -> None:
    path = checkout(tmp_path / "r", {f"d{number % 50}/f{number}.py": "def f():\n    return 1\n" for number in range(5000)})
    facts = look(path, "structure")
    assert (facts.files, facts.lines, facts.counts["functions"]) == (5000, 10_000, 5000)
    parts = [look(path, "structure", ANALYST_SHARD=f"{index}/4").files for index in range(1, 5)]
    assert parts == [1250] * 4
