"""The suite's own set-up: what is inherited does not change what is tested, and root's round runs what is left to it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis.internal.conjecture import providers

from tests import rounds, warm
from tests.rounds import DIFFERS_FOR_ROOT, NEEDS_ROOT

ROOT = Path(__file__).parent.parent
IGNORING = """
import signal, subprocess
for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
    signal.signal(number, signal.SIG_IGN)
from tests import rounds, warm
rounds.reset_signals()
for name in ("HUP", "INT", "QUIT"):
    signal.raise_signal(getattr(signal, f"SIG{name}"))
    print(subprocess.run(["sh", "-c", f"ulimit -c 0; kill -{name} $$"]).returncode)
"""
SUITE = """
import pytest

def test_that_runs(): pass

@pytest.mark.skip("not for this user")
def test_that_is_skipped(): pass

@pytest.fixture(params=["one", "other"])
def form(request): pass

@pytest.mark.skip
@pytest.mark.in_turns
def test_of_one(form): pass

@pytest.mark.skip
@pytest.mark.in_turns
def test_of_the_other(form): pass
"""


NEEDING = """
import pytest

@pytest.mark.parametrize("keys", ["signals", pytest.param("group", marks=pytest.mark.skip)])
def test_it(keys): pass
"""
VARIANTS = """
import pytest

@pytest.mark.one_in(3)
@pytest.mark.parametrize("one", range(5))
@pytest.mark.parametrize("other", range(2))
def test_it(one, other): pass
"""
IN_TURNS = """
import pytest

pytestmark = pytest.mark.in_turns

@pytest.fixture(params=["shared", "confined"])
def form(request): pass

def test_one(form): pass
@pytest.mark.parametrize("what", range(3))
def test_three(form, what): pass
def test_other(form): pass
def test_alone(): pass
"""


def test_what_a_test_starts_ignores_no_signal() -> None:
    done = subprocess.run([sys.executable, "-c", IGNORING], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["-1", "-2", "-3"]


def pytest_in(place: Path, *argv: str) -> str:
    done = subprocess.run(command(place, *argv), cwd=place, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def command(place: Path, *argv: str) -> list[str]:
    plugins = ["-p", "no:cacheprovider", "-p", "no:schemathesis", "-p", "tests.conftest"]
    return [sys.executable, "-m", "pytest", *plugins, "--rootdir", str(place), "-q", *argv]


ENVIRONMENT = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}


def test_roots_rounds_are_what_was_skipped_and_what_differs(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(SUITE)
    (tmp_path / "tests" / "host" / "sandbox").mkdir(parents=True)
    (tmp_path / "tests" / "host" / "sandbox" / "test_other.py").write_text(
        "import pytest\n@pytest.mark.skip\ndef test_that_differs(): pass\n"
    )
    (tmp_path / "tests" / "server").mkdir()
    (tmp_path / "tests" / "server" / "test_pause.py").write_text(NEEDING)
    skipped = tmp_path / "skipped"
    skipped.touch()
    assert "2 passed, 5 skipped" in pytest_in(tmp_path, "--skipped-to", str(skipped), "-m", "not soak")
    assert skipped.read_text().split() == [
        "test_it.py::test_of_one[one]",
        "test_it.py::test_of_the_other[other]",
        "test_it.py::test_that_is_skipped",
        "tests/host/sandbox/test_other.py::test_that_differs",
        "tests/server/test_pause.py::test_it[group]",
    ]
    (tmp_path / "test_same.py").write_text("raise AssertionError('nothing here is to be run, so it need not be imported')")
    assert "3 skipped, 3 deselected" in pytest_in(tmp_path, "--skipped-from", str(skipped), "-m", "not soak")
    assert "2 skipped, 1 deselected in" in pytest_in(tmp_path, "--differs-for-root")


def test_of_many_variants_some_are_run_and_the_others_in_the_long_run(tmp_path: Path) -> None:
    (tmp_path / "test_many.py").write_text(VARIANTS)
    (tmp_path / "test_turns.py").write_text(IN_TURNS)
    short, long = (
        set(re.findall(r"(\w+)\.py::test_(\S+) PASSED", pytest_in(tmp_path, "-m", which, "-vv"))) for which in ("not soak", "soak")
    )
    assert (len([file for file, _ in short if file == "test_many"]), len([file for file, _ in long if file == "test_many"])) == (4, 6)
    turns = {"one[shared]", "three[shared-1]", "three[confined-0]", "three[confined-2]", "other[shared]", "alone"}
    assert {name for file, name in short if file == "test_turns"} == turns
    assert len([file for file, _ in long if file == "test_turns"]) == 5 and not short & long


def test_a_random_test_draws_the_same_number_but_in_the_long_run(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (rounds.SEED, rounds.RANDOM):
        monkeypatch.delenv(name, raising=False)
    assert len({rounds.seed(is_long=False) for _ in range(5)}) == 1
    assert len({rounds.seed(is_long=True) for _ in range(5)}) > 1
    monkeypatch.setenv(rounds.RANDOM, "1")
    assert len({rounds.seed(is_long=False) for _ in range(5)}) > 1
    monkeypatch.setenv(rounds.SEED, "7")
    assert {rounds.seed(is_long=is_long) for is_long in (False, True)} == {7}


def test_everything_that_differs_for_root_is_there() -> None:
    assert [name for name in DIFFERS_FOR_ROOT if not is_there(name)] == []


def test_everything_that_needs_root_is_there() -> None:
    assert [name for name in NEEDS_ROOT if not matches(name)] == []


def matches(pattern: str) -> bool:
    path, _, test = pattern.partition("::")
    name = re.escape(test.rpartition("::")[2].partition("[")[0].rstrip("*")).replace(r"\*", r"\w*")
    return bool(re.search(rf"\n *def (test_\w*)?{name}" if test.startswith("*") else rf"\n *def {name}", (ROOT / path).read_text()))


def is_there(name: str) -> bool:
    path, _, test = name.partition("::")
    return (ROOT / path).exists() and (not test or f"\ndef {test}(" in (ROOT / path).read_text())


@pytest.mark.skipif(bool(os.environ.get(rounds.RANDOM)), reason="`make soak` draws from what the product says too")
def test_no_example_depends_on_which_modules_a_worker_has_imported() -> None:
    assert not len(providers._get_local_constants())


@pytest.mark.skipif(warm.COLD or "PYTEST_XDIST_WORKER" not in os.environ, reason="about workers")
def test_workers_have_one_process_in_common_that_starts_nightcrew() -> None:
    assert warm._server()._process is None


SKIPPING = """
import pytest

def test_that_runs(): pass
def test_that_lacks_a_kernel(): pytest.skip("{reason}")
@pytest.mark.xfail
def test_that_is_known_to_fail(): raise AssertionError
"""


def test_a_skip_whose_reason_is_not_listed_fails_the_run(tmp_path: Path) -> None:
    listed = next(iter(rounds.ALLOWED_SKIPS)).replace("*", "x")
    (tmp_path / "test_it.py").write_text(SKIPPING.format(reason=listed))
    assert "1 passed, 1 skipped, 1 xfailed" in (said := pytest_in(tmp_path, "--refuse-skips")) and "ALLOWED_SKIPS" not in said
    (tmp_path / "test_it.py").write_text(SKIPPING.format(reason="the moon is full"))
    assert "ALLOWED_SKIPS" in (said := pytest_in(tmp_path, "--refuse-skips")) and "test_that_lacks_a_kernel: the moon is full" in said
    assert "ALLOWED_SKIPS" not in pytest_in(tmp_path)
    assert rounds.is_allowed_skip("the extra nightcrew[semantic] is not installed")


def test_an_unlisted_skip_is_an_exit_status_of_one_also_with_workers(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(SKIPPING.format(reason="the moon is full"))
    (tmp_path / "test_module.py").write_text('import pytest\npytest.skip("of a module", allow_module_level=True)\n')
    codes = [
        subprocess.run(command(tmp_path, *more), cwd=tmp_path, env=ENVIRONMENT, capture_output=True, check=False).returncode
        for more in ([], ["--refuse-skips"], ["--refuse-skips", "-n", "1"])
    ]
    assert codes == [0, 1, 1]
    assert "of a module" in pytest_in(tmp_path, "--refuse-skips")


def test_what_both_users_skipped_is_left_to_the_last_round(tmp_path: Path) -> None:
    user, beside = tmp_path / "user", tmp_path / "beside"
    both, only_user, elsewhere = (
        "tests/host/sandbox/test_a.py::test_both",
        "tests/host/sandbox/test_a.py::test_user",
        "tests/kernel/test_b.py::test_c",
    )
    user.write_text(f"{both}\n{only_user}\n{elsewhere}\n")
    beside.write_text(f"{both}\n")
    chosen = rounds.what_was_skipped(user, beside)
    assert [name for name in (both, only_user, elsewhere) if chosen.wants(name)] == [both, elsewhere]


def test_every_allowed_skip_is_one_that_a_test_names() -> None:
    sources = [file.read_text() for file in (ROOT / "tests").rglob("*.py") if file.name != "rounds.py"]
    literal = {pattern: max(re.split(r"[*?]", pattern), key=len) for pattern in rounds.ALLOWED_SKIPS}
    assert [pattern for pattern, text in literal.items() if not any(text in source for source in sources)] == []


def test_no_whole_file_of_tests_is_skipped_where_nobody_notices() -> None:
    """With workers, the skip of a module reaches no round."""
    found = [
        str(file)
        for file in (ROOT / "tests").rglob("*.py")
        if re.search(r"^\S*\bimportorskip\(|allow_module_level=", file.read_text(), re.M)
    ]
    assert [name for name in found if not name.endswith("test_rounds.py")] == []
