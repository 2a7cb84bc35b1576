"""bandit as a child that hangs, dies, lies or prints what nobody asked for."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from nightcrew.plugins.analyze import analyst
from nightcrew.plugins.analyze.analyst import CHUNK_BYTES, CHUNK_FILES, Bandit, chunks
from nightcrew.plugins.analyze.sources import Source
from supervisor.kernel.errors import ToolFailed, ToolMissing
from tests.agents.analysts.kit import assert_gone, checkout


def _stub(path: Path, script: str, timeout_s: float = 60) -> Bandit:
    return Bandit(path, timeout_s, (sys.executable, "-I", "-c", script))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return checkout(tmp_path / "r", {"a.py": "x = 1\n"})


SOURCES = [Source(b"a.py", 6)]


def _ignore(_: int) -> None:
    """Nobody watches."""


def test_one_that_hangs_is_stopped_with_its_children(path: Path) -> None:
    script = f"""
import os, subprocess, time
child = subprocess.Popen(["sleep", "1000"])
open({str(path / "pids")!r}, "w").write(f"{{os.getpid()}} {{child.pid}}")
time.sleep(1000)
"""
    with pytest.raises(ToolFailed, match=r"^bandit was stopped: no answer in 4s$"):
        analyst.survey_security(_stub(path, script, 4), SOURCES, _ignore)
    for pid in (path / "pids").read_text().split():
        assert_gone(int(pid))


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("import sys; print('one', file=sys.stderr); print('the reason', file=sys.stderr); sys.exit(2)", "^bandit failed: the reason$"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "^bandit failed: exit status -9$"),
        ("print('garbage')", "^bandit's answer was not understood: JSONDecodeError"),
        ("print('[]')", "^bandit's answer was not understood: TypeError"),
        ("print('{}')", "^bandit's answer was not understood: KeyError: 'results'"),
        ('print(\'{"results": [], "errors": [{"filename": "/etc/passwd"}]}\')', "^bandit's answer was not understood: KeyError"),
        ("", "^bandit's answer was not understood"),
    ],
)
def test_one_that_fails_is_told_with_its_reason(path: Path, script: str, why: str) -> None:
    with pytest.raises(ToolFailed, match=why):
        analyst.survey_security(_stub(path, script), SOURCES, _ignore)


def test_one_that_is_not_there(path: Path) -> None:
    with pytest.raises(ToolMissing, match=r"^bandit cannot be started"):
        analyst.survey_security(Bandit(path, 60, (str(path / "nothing"),)), SOURCES, _ignore)


def test_words_on_stderr_are_no_failure(path: Path) -> None:
    answer = json.dumps({"results": [], "errors": []})
    script = f"import sys; sys.stderr.write('warning ' * 100000); print({answer!r})"
    (seen,) = analyst.survey_security(_stub(path, script), SOURCES, _ignore)
    assert (seen.files, seen.lines, seen.counts) == (1, 1, {"issues": 0, "ignored": 0})


def test_progress_is_told_after_each_chunk(tmp_path: Path) -> None:
    names = [f"{index:03}.py" for index in range(CHUNK_FILES + 1)]
    path = checkout(tmp_path / "r", dict.fromkeys(names, "x = 1\n"))
    script = "import json; print(json.dumps({'results': [], 'errors': []}))"
    told: list[int] = []
    analyst.survey_security(_stub(path, script), [Source(os.fsencode(name), 6) for name in names], told.append)
    assert told == [CHUNK_FILES, CHUNK_FILES + 1]


def test_chunks_are_bounded_by_number_and_size_and_lose_nothing() -> None:
    sources = [Source(b"%d.py" % index, index * 20_000) for index in range(400)]
    parts = list(chunks(sources))
    assert [source for part in parts for source in part] == sources
    assert all(len(part) <= CHUNK_FILES for part in parts)
    assert all(len(part) == 1 or sum(source.size for source in part) <= CHUNK_BYTES for part in parts)
    assert len(parts[-1]) == 1
    assert list(chunks([])) == []
