"""Logs that stay inside their quota and survive a full disk, and a pane that is never waited for."""

from __future__ import annotations

import os
import resource
import signal
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.runner.loop import Log, Pane
from tests import support
from tests.agents.runner.kit import Lab, until


@given(st.lists(st.binary(min_size=1, max_size=300), max_size=30), st.integers(0, 1000))
def test_a_log_is_a_beginning_a_marker_and_an_end(tmp_path_factory: pytest.TempPathFactory, pieces: list[bytes], limit: int) -> None:
    path = tmp_path_factory.mktemp("log") / "stdout.log"
    log = Log(str(path), limit)
    for piece in pieces:
        log.add(piece)
    log.close()
    written, whole = path.read_bytes(), b"".join(pieces)
    if log.lost == 0:
        assert written == whole
        return
    marker = b"\n[nightcrew: truncated %d bytes]\n" % log.lost
    head, _, tail = written.partition(marker)
    assert whole.startswith(head)
    assert whole.endswith(tail)
    assert len(head) + log.lost + len(tail) == len(whole)
    assert len(written) <= limit or not head


@contextmanager
def full_at(size: int) -> Iterator[None]:
    """Until the end of the block no file may grow past `size` bytes: a full disk that needs no root. Python ignores SIGXFSZ."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_logging_resumes_when_there_is_space_again(tmp_path: Path) -> None:
    """S06: the gap is marked and counted, and a marker that did not fit either leaves no trace."""
    log = Log(str(tmp_path / "log"), 10_000)
    with full_at(8):
        log.add(b"12345")
        log.add(b"67890abc")  # three of these fit
        log.add(b"lost")
    log.add(b"back again")
    log.close()
    assert (tmp_path / "log").read_bytes() == b"12345678\n[nightcrew: 9 bytes lost, no space to write them]\nback again"
    assert log.lost == 9


def test_a_gap_at_the_end_is_marked_too(tmp_path: Path) -> None:
    log = Log(str(tmp_path / "log"), 10_000)
    with full_at(20):
        log.add(b"1" * 30)
    log.close()
    assert (tmp_path / "log").read_bytes() == b"1" * 20 + b"\n[nightcrew: 10 bytes lost, no space to write them]\n"


def test_a_log_that_stays_full_to_the_end_holds_only_output(tmp_path: Path) -> None:
    log = Log(str(tmp_path / "log"), 10_000)
    with full_at(30):
        log.add(b"1" * 20)
        log.add(b"2" * 20)
    with full_at(40):  # a little space: not enough for the marker
        log.add(b"3")
        log.close()
    assert (tmp_path / "log").read_bytes() == b"1" * 20 + b"2" * 10
    assert log.lost == 11


def test_a_log_that_cannot_even_be_opened_costs_only_itself(tmp_path: Path) -> None:
    log = Log(str(tmp_path / "later" / "log"), 10_000)
    log.add(b"lost")
    (tmp_path / "later").mkdir()
    log.add(b"kept")
    log.close()
    assert (tmp_path / "later" / "log").read_bytes() == b"\n[nightcrew: 4 bytes lost, no space to write them]\nkept"


@pytest.fixture
def small_disk(lab: Lab) -> Iterator[Path]:
    """A real file system of 1 MB, half of it taken by a file `ballast`; attempts are made on it."""
    with support.small_disk(lab.folder / "disk", "size=1m") as disk:
        outside, lab.folder = lab.folder, disk
        (disk / "ballast").write_bytes(b"x" * 500_000)
        yield outside
        lab.close()


@pytest.mark.root
def test_an_agent_does_not_notice_a_full_disk(lab: Lab, small_disk: Path) -> None:
    """S06: filled up and freed while the agent runs."""
    os.mkfifo(small_disk / "go")
    program = f"dd if=/dev/zero bs=1k count=2000 2>&1; echo full > {small_disk}/full; read go < {small_disk}/go; echo after"
    attempt = lab.attempt("sh", "-c", program, cwd="/")
    runner = attempt.start()
    until(lambda: (small_disk / "full").exists(), "the agent went on although the disk is full")
    assert os.statvfs(lab.folder).f_bavail == 0
    (lab.folder / "ballast").unlink()
    (small_disk / "go").write_text("go\n")
    assert runner.wait(30) == 0
    log = attempt.read("stdout.log")
    assert b" bytes lost, no space to write them]\n" in log
    assert log.endswith(b"after\n")
    assert attempt.record().truncated["stdout"] > 1_000_000


@pytest.mark.root
def test_the_exit_record_finds_its_place_on_a_full_disk(lab: Lab, small_disk: Path) -> None:
    attempt = lab.attempt("sh", "-c", "dd if=/dev/zero bs=1k count=2000; exit 3", cwd="/")
    assert attempt.run() == 3
    assert os.statvfs(lab.folder).f_bavail == 0
    assert attempt.record().code == 3


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    """A terminal: the end that tmux would hold, and the end of the pane."""
    ours, theirs = os.openpty()
    tty.setraw(theirs)
    os.set_blocking(ours, False)
    yield ours, theirs
    for handle in (ours, theirs):
        os.close(handle)


def shown(ours: int) -> bytes:
    try:
        return os.read(ours, 1 << 20)
    except BlockingIOError:
        return b""


def test_a_pane_is_paced_and_says_what_it_left_out(terminal: tuple[int, int]) -> None:
    ours, theirs = terminal
    pane = Pane(theirs, now=0.0)
    seen = b""
    for tick in range(100):  # 2 s of a clock of our own, 64 MB/s
        for _ in range(20):
            pane.show(b"x" * 65536)
        pane.flush(tick / 50)
        seen += shown(ours)
    assert len(seen) <= 65536 + 2 * 1_000_000
    assert seen.startswith(b"x" * 1000)
    assert b" bytes not shown here, see the logs]\n" in seen


def test_a_pane_that_nobody_reads_is_not_waited_for(terminal: tuple[int, int]) -> None:
    pane = Pane(terminal[1], now=0.0)
    for tick in range(200):
        pane.show(b"x" * 4096)
        pane.flush(float(tick))
    assert pane.waiting


def test_a_pane_that_is_gone_is_no_error() -> None:
    ours, theirs = os.openpty()
    pane = Pane(theirs, now=0.0)
    os.close(theirs)
    os.close(ours)
    pane.show(b"into the void")
    pane.flush(1.0)
    assert not pane.waiting


def test_the_terminal_itself_stays_blocking(terminal: tuple[int, int]) -> None:
    """It is shared with whatever else the pane runs."""
    Pane(terminal[1], now=0.0)
    assert os.get_blocking(terminal[1])
    assert signal.getsignal(signal.SIGXFSZ) == signal.SIG_IGN  # what `full_at` relies on
