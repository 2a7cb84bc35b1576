"""Patterns of paths, against a matcher of `fnmatch` that knows nothing of them: no overlap may be missed."""

from __future__ import annotations

import itertools
from fnmatch import fnmatchcase

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from supervisor.kernel.path_globs import covers, names_files, normalised, overlap
from tests.kernel.effort import steps
from tests.rounds import examples

NAMES = ("a", "b", "ab", "x.py")
PATHS = ["/".join(parts) for depth in (1, 2, 3) for parts in itertools.product(NAMES, repeat=depth)]
PARTS = st.sampled_from([*NAMES, "*", "**", "?", "a*", "*b", "*.py", "[ab]", "[!a]", "a?", "***", "", "."])
GLOBS = st.lists(PARTS, min_size=1, max_size=4).map("/".join).filter(lambda glob: glob and not glob.startswith("/"))


def matches(glob: str, path: str) -> bool:
    """The reference: part by part, or everything below what matches."""
    return _matches([part for part in glob.split("/") if part not in ("", ".")], path.split("/"))


def _matches(parts: list[str], path: list[str]) -> bool:
    if not parts:
        return True
    if parts[0] == "**":
        return any(_matches(parts[1:], path[at:]) for at in range(len(path) + 1))
    return bool(path) and fnmatchcase(path[0], parts[0]) and _matches(parts[1:], path[1:])


@settings(max_examples=examples(400), deadline=None)
@given(GLOBS, GLOBS)
def test_no_overlap_is_never_said_of_patterns_that_match_the_same_path(one: str, other: str) -> None:
    first, second = normalised(one), normalised(other)
    common = [path for path in PATHS if matches(one, path) and matches(other, path)]
    assert overlap(first, second) or not common
    assert overlap(first, second) == overlap(second, first)


@settings(max_examples=examples(300), deadline=None)
@given(GLOBS)
def test_a_pattern_covers_what_the_reference_matches_and_its_form_stays(glob: str) -> None:
    form = normalised(glob)
    assert [path for path in PATHS if covers(form, path)] == [path for path in PATHS if matches(glob, path)]
    assert normalised(form) == form


@pytest.mark.parametrize(
    ("one", "other"),
    [("src/api/**", "src/web/**"), ("src/*.py", "src/*.md"), ("src/a*", "src/b*/x"), ("a/?", "a/bc"), ("a/b", "a/c")],
)
def test_what_cannot_meet_does_not(one: str, other: str) -> None:
    assert not overlap(normalised(one), normalised(other))


@pytest.mark.parametrize(
    ("glob", "form"), [("./src//api/", "src/api"), ("src/**/**", "src"), ("**", "**"), ("**/**/x", "**/x"), ("a***b", "a*b"), (".", "**")]
)
def test_one_form(glob: str, form: str) -> None:
    assert normalised(glob) == form


@pytest.mark.parametrize(
    "glob", ["", "/etc/passwd", "../x", "a/../../b", "a\0b", "a\nb", "x" * 10_000, "**/" * 10_000, "~/x", "a/" * 40 + "b", "\udcff"]
)
def test_a_hostile_pattern_is_refused(glob: str) -> None:
    with pytest.raises(ValueError, match="a pattern"):
        normalised(glob)


@pytest.mark.parametrize(
    ("glob", "named"),
    [
        ("src", []),
        ("src/", ["src/a.lock", "src/b/a.lock"]),
        ("src/**", ["src/a.lock", "src/b/a.lock"]),
        ("*.lock", ["a.lock"]),
        ("src/*.lock", ["src/a.lock"]),
        ("**/*.lock", ["a.lock", "src/a.lock", "src/b/a.lock"]),
        ("**", ["a.lock", "src/a.lock", "src/b/a.lock"]),
    ],
)
def test_which_files_a_pattern_names(glob: str, named: list[str]) -> None:
    assert [path for path in ("a.lock", "src/a.lock", "src/b/a.lock") if names_files(glob)(path)] == named


def test_comparing_what_two_agents_may_hold_costs_little() -> None:
    """64 patterns each, of the hardest kinds that are taken: 22 s once. A comparison looks at no more than 32 pairs of parts."""
    kinds = (
        [["**", f"a*{number}*b", "**", "*a*"] * 2 for number in range(64)],
        [["*", "*", "*", "*", "*", "*", "*", "*", f"x{number}"] for number in range(64)],
        [["a"] * 31 + [f"{number}"] for number in range(64)],
    )
    lists = [[normalised("/".join(parts)) for parts in kind] for kind in kinds]
    for some, others in itertools.product(lists, repeat=2):
        overlap.cache_clear()
        assert steps(lambda some=some, others=others: [overlap(one, other) for one in some for other in others]) < 64 * 64 * 32 * 40  # type: ignore[misc]


def test_a_long_path_costs_little() -> None:
    path = "/".join(["a"] * 2047 + ["c"])
    for glob in ("**/" + "a/" * 30 + "b", "a/**/" * 15 + "b"):
        assert steps(lambda glob=glob: covers(normalised(glob), path)) < 2048 * 32 * 60  # type: ignore[misc]


def test_the_worst_patterns_that_are_taken_cost_little() -> None:
    bombs = ["/".join(["**", "a*a*a*a*b"] * 16)[:512], "/".join(["*a*a*a*a*a*a*a*a", "**"] * 16)[:512], "*a" * 200, "[" * 500]
    for one, other in itertools.product([normalised(bomb) for bomb in bombs], repeat=2):
        assert steps(lambda one=one, other=other: overlap(one, other)) < 5_000  # type: ignore[misc]
        assert steps(lambda one=one: covers(one, "a" * 200 + "/" + "a" * 3000)) < 5_000_000  # type: ignore[misc]
