"""Which files there are, and whose they are."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightcrew.plugins.analyze.analyst import Excluded, read_parameters
from nightcrew.plugins.analyze.sources import Source, lines, shard, tracked
from supervisor.kernel.errors import UsageError
from supervisor.results.findings import Perspective, Shard

OID = b"e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"


def test_only_regular_python_files_count_each_once() -> None:
    entries = [(b"100644", b"0", b"b.py"), (b"100755", b"0", b"a.py"), (b"120000", b"0", b"link.py"), (b"160000", b"0", b"module.py")]
    entries += [(b"100644", stage, b"conflict.py") for stage in (b"1", b"2", b"3")] + [
        (b"100644", b"0", b"x.pyc"),
        (b"100644", b"0", b"t\tb.py"),
    ]
    listing = b"".join(mode + b" " + OID + b" " + stage + b"\t" + name + b"\0" for mode, stage, name in entries)
    assert tracked(listing) == [b"a.py", b"b.py", b"conflict.py", b"t\tb.py"]
    assert tracked(b"") == []


sizes = st.lists(st.integers(0, 100_000), max_size=60)


@given(sizes, st.integers(1, 9))
def test_every_file_is_in_exactly_one_shard(numbers: list[int], of: int) -> None:
    sources = [Source(b"%d.py" % index, size) for index, size in enumerate(numbers)]
    parts = [shard(sources, Shard(index, of)) for index in range(1, of + 1)]
    assert sorted((each.name, each.size) for part in parts for each in part) == sorted((each.name, each.size) for each in sources)
    assert parts == [shard(reversed(sources), Shard(index, of)) for index in range(1, of + 1)]
    assert all(one.name < two.name for part in parts for one, two in pairwise(part))


@given(sizes, st.integers(1, 9))
def test_shards_are_about_equally_large(numbers: list[int], of: int) -> None:
    sources = [Source(b"%d.py" % index, size) for index, size in enumerate(numbers)]
    weights = [sum(each.size + 256 for each in shard(sources, Shard(index, of))) for index in range(1, of + 1)]
    assert max(weights) - min(weights) <= max(numbers, default=0) + 256


def test_empty_files_are_spread_as_well() -> None:
    sources = [Source(b"%d.py" % index, 0) for index in range(10)]
    assert [len(shard(sources, Shard(index, 5))) for index in range(1, 6)] == [2] * 5


@pytest.mark.parametrize(
    "name",
    [
        "test_a.py",
        "a/test_b.py",
        "a_test.py",
        "conftest.py",
        "shop/tests.py",
        "shop/test.py",
        "tests/helper.py",
        "a/test/b/c.py",
        "tests/__init__.py",
    ],
)
def test_tests_are_known_by_their_names(name: str) -> None:
    assert Source(name.encode(), 0).is_test


@pytest.mark.parametrize("name", ["a.py", "testing.py", "contest.py", "latest/a.py", "attests.py", "my_conftest.py"])
def test_other_files_are_no_tests(name: str) -> None:
    assert not Source(name.encode(), 0).is_test


@pytest.mark.parametrize(("data", "count"), [(b"", 0), (b"a", 1), (b"a\n", 1), (b"a\n\nb", 3), (b"a\r\nb\r\n", 2)])
def test_lines_are_those_of_an_editor(data: bytes, count: int) -> None:
    assert lines(data) == count


@pytest.mark.parametrize(
    ("patterns", "path", "out"),
    [
        (["vendor"], "vendor/a/b.py", True),
        (["vendor/"], "vendor/a.py", True),
        (["./vendor"], "vendor/a.py", True),
        (["vendor"], "src/vendor/a.py", False),
        (["vendor"], "vendored/a.py", False),
        (["*/vendor"], "src/deep/vendor/a.py", True),
        (["*_pb2.py"], "src/x_pb2.py", True),
        (["a/*.py"], "a/b/c.py", True),
        (["[ab].py"], "a.py", True),
        (["A.py"], "a.py", False),
        (["", "  ", "/"], "a.py", False),
        ([], "a.py", False),
        (["*"], "line\nbreak.py", True),
    ],
)
def test_excluding(patterns: list[str], path: str, *, out: bool) -> None:
    assert Excluded(patterns)(path) is out


def test_the_environment_is_read_with_its_defaults() -> None:
    job = read_parameters({"ANALYST": "tests"})
    assert (job.perspective, job.shard, job.timeout_s, job.excluded("a.py")) == (Perspective.TESTS, Shard(1, 1), 300, False)
    job = read_parameters({"ANALYST": "security", "ANALYST_SHARD": "2/3", "ANALYST_TIMEOUT": "0.5", "ANALYST_EXCLUDE": "a.py\nb"})
    assert (job.shard, job.timeout_s, job.excluded("b/c.py"), job.excluded("c.py")) == (Shard(2, 3), 0.5, True, False)


@pytest.mark.parametrize(
    ("name", "text"),
    [("ANALYST", text) for text in ("", "lint", "Security")]
    + [("ANALYST_SHARD", text) for text in ("0/1", "2/1", "1", "1/0", "1/2/3", "-1/2", "a/b", "1/1\n", "٣/٤", "1/9999999")]
    + [("ANALYST_TIMEOUT", text) for text in ("0", "-1", "nan", "inf", "5m")],
)
def test_a_bad_environment_is_refused_by_name(name: str, text: str) -> None:
    with pytest.raises(UsageError, match=rf"^{name} is off"):
        read_parameters({"ANALYST": "tests", name: text})


def test_names_that_are_not_utf8_are_shown_as_escapes(tmp_path: Path) -> None:
    assert Source(b"a\xff.py", 0).shown == "a\\xff.py"
