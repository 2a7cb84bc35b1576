"""The perspectives that look at a tree, one decision at a time."""

from __future__ import annotations

import ast

import pytest

from nightcrew.plugins.analyze import analyst
from nightcrew.plugins.analyze.analyst import definitions
from supervisor.results.findings import Severity
from tests.agents.analysts.kit import module

NESTED = """
class Outer:
    class Inner:
        def method(self): pass
    async def coroutine(self): pass

def function():
    class Local:
        def method(self): pass
    def closure(): pass

if True:
    def conditional(): pass
elif x:
    def other(): pass
try:
    def tried(): pass
except E:
    def caught(): pass
else:
    def fine(): pass
finally:
    def last(): pass
with a:
    def within(): pass
for a in b:
    def looped(): pass
else:
    def orelse(): pass
match a:
    case 1:
        def matched(): pass
def _private():
    def seen(): pass
class _Hidden:
    def method(self): pass
"""


def test_definitions_are_found_everywhere_and_in_order() -> None:
    found = list(definitions(ast.parse(NESTED)))
    assert [item.name for item in found if not item.is_class] == [
        "Outer.Inner.method", "Outer.coroutine", "function", "function.Local.method", "function.closure", "conditional", "other", "tried",
        "caught", "fine", "last", "within", "looped", "orelse", "matched", "_private", "_private.seen", "_Hidden.method",
    ]  # fmt: skip
    assert [item.name for item in found if item.is_class] == ["Outer", "Outer.Inner", "function.Local", "_Hidden"]
    hidden = {item.name for item in found if not item.is_public}
    assert hidden == {
        "function.Local",
        "function.Local.method",
        "function.closure",
        "_private",
        "_private.seen",
        "_Hidden",
        "_Hidden.method",
    }


def _branches(count: int) -> str:
    return "def f(x):\n" + "    if x: pass\n" * count


@pytest.mark.parametrize(
    ("complexity_", "over", "severity"),
    [(5, 0, None), (6, 1, None), (10, 1, None), (11, 1, "low"), (20, 1, "low"), (21, 1, "medium"), (40, 1, "medium"), (41, 1, "high")],
)
def test_the_thresholds_of_complexity(complexity_: int, over: int, severity: str | None) -> None:
    seen = analyst.look_complexity(module(_branches(complexity_ - 1)))
    assert seen.counts == {"functions": 1, "over": over, "worst": complexity_}
    assert [str(item.severity) for item in seen.findings] == ([severity] if severity else [])


def test_complexity_counts_each_function_for_itself() -> None:
    text = "def outer(a):\n    if a: pass\n    def inner(b):\n" + "        if b: pass\n" * 6
    text += "    class Local:\n        def method(self, c):\n" + "            if c: pass\n" * 12
    seen = analyst.look_complexity(module(text))
    assert seen.counts == {"functions": 3, "over": 2, "worst": 13}
    assert [(item.message, item.weight) for item in seen.findings] == [("`outer.Local.method` has cyclomatic complexity 13", 13)]


def test_asserts_of_a_test_are_no_branches() -> None:
    text = "def test():\n" + "    assert x\n" * 8
    assert analyst.look_complexity(module(text)).counts["over"] == 1
    assert analyst.look_complexity(module(text, "test_a.py", is_test=True)).counts["over"] == 0


def test_no_function_no_complexity() -> None:
    assert analyst.look_complexity(module("x = 1\n")).counts == {"functions": 0, "over": 0, "worst": 0}


PUBLIC = '''"""Module."""
from typing import overload
class Open:
    """Open."""
    def __init__(self): pass
    def method(self): pass
    @property
    def value(self):
        """Value."""
    @value.setter
    def value(self, new): pass
    @overload
    def over(self): pass
    @typing.override
    def inherited(self): pass
    def empty(self):
        """  """
def _private(): pass
async def later():
    def inner(): pass
'''


def test_public_objects_are_those_that_promise_something() -> None:
    seen = analyst.look_docstrings(module(PUBLIC))
    assert seen.counts == {"objects": 6, "documented": 3}
    assert seen.findings[0].message == "no docstring for 3 of 6 public objects: `Open.method`, `Open.empty`, `later`"
    assert seen.findings[0].line == 6


@pytest.mark.parametrize("file", ["_private.py", "a/_private/b.py", "_a/__init__.py"])
def test_a_private_module_promises_nothing(file: str) -> None:
    assert analyst.look_docstrings(module("def f(): pass\n", file)).counts == {"objects": 0, "documented": 0}


@pytest.mark.parametrize(("text", "objects"), [("", 0), ("# only a comment\n", 0), ("x = 1\n", 1)])
def test_a_module_without_code_needs_no_docstring(text: str, objects: int) -> None:
    assert analyst.look_docstrings(module(text, "a/__init__.py")).counts["objects"] == objects


def test_test_files_are_not_asked_for_docstrings() -> None:
    assert analyst.look_docstrings(module(PUBLIC, is_test=True)).counts == {"objects": 0, "documented": 0}


@pytest.mark.parametrize(("functions", "severity"), [(8, Severity.LOW), (9, Severity.MEDIUM)])
def test_a_large_file_without_any_docstring_is_worse(functions: int, severity: Severity) -> None:
    (finding,) = analyst.look_docstrings(module("".join(f"def f{index}(): pass\n" for index in range(functions)))).findings
    assert finding.severity is severity
    assert finding.message.endswith("public objects: the module, `f0`, `f1`, …")


def test_test_functions_are_those_that_would_be_collected() -> None:
    text = "def test_a():\n    def test_inner(): pass\ndef helper(): pass\n"
    text += "class TestB:\n    def testC(self): pass\n    def other(self): pass\n"
    assert analyst.look_tests(module(text, "test_a.py", is_test=True)).counts == {"test_files": 1, "test_functions": 2}
    assert analyst.look_tests(module(text)).counts == {"test_files": 0, "test_functions": 0}


@pytest.mark.parametrize(
    ("file", "text", "found"),
    [
        ("test_a.py", "x = 1\n", 1),
        ("test_a.py", "", 1),
        ("a/b_test.py", "class Plain: pass\n", 1),
        ("test_a.py", "class TestA(Base): pass\n", 0),
        ("test_a.py", "from base import *\n", 0),
        ("test_a.py", "def load_tests(a, b, c): pass\n", 0),
        ("conftest.py", "x = 1\n", 0),
        ("tests/models.py", "x = 1\n", 0),
    ],
)
def test_a_test_file_without_tests_is_told(file: str, text: str, found: int) -> None:
    assert len(analyst.look_tests(module(text, file, is_test=True)).findings) == found


@pytest.mark.parametrize(("lines", "severity"), [(100, None), (101, "low"), (300, "low"), (301, "medium")])
def test_long_functions(lines: int, severity: str | None) -> None:
    seen = analyst.look_structure(module("@mark\ndef f():\n" + "    x = 1\n" * (lines - 1)))
    found = [(str(item.severity), item.code, item.line, item.weight) for item in seen.findings]
    assert found == ([(severity, "long-function", 2, lines)] if severity else [])


@pytest.mark.parametrize(("lines", "severity"), [(1000, None), (1001, "low"), (3000, "low"), (3001, "medium")])
def test_long_files(lines: int, severity: str | None) -> None:
    seen = analyst.look_structure(module("\n" * lines, is_test=True))
    assert [(str(item.severity), item.code) for item in seen.findings] == ([(severity, "long-file")] if severity else [])


def test_classes_with_many_methods() -> None:
    methods = "".join(f"    def m{index}(self): pass\n" for index in range(40))
    again = "    @m0.setter\n    def m0(self, new): pass\n"
    assert not analyst.look_structure(module("class A:\n" + methods + again)).findings
    (finding,) = analyst.look_structure(module("class A:\n" + methods + "    def one_more(self): pass\n")).findings
    assert (finding.code, finding.message, finding.weight) == ("many-methods", "`A` has 41 methods", 41)


def test_tests_may_be_long_lists() -> None:
    text = (
        "class TestA:\n" + "".join(f"    def test_{index}(self): pass\n" for index in range(60)) + "def test():\n" + "    assert x\n" * 400
    )
    seen = analyst.look_structure(module(text, is_test=True))
    assert not seen.findings
    assert seen.counts == {"functions": 61, "classes": 1}
