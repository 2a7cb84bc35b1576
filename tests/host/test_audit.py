"""The audit log: whatever is done to it by somebody without the secret is found (battery X14)."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from supervisor.host import audit_log
from supervisor.host.audit_log import Audit
from supervisor.host.clock import SystemClock
from supervisor.kernel.audit import Verdict
from supervisor.kernel.errors import NotFound

SECRET = b"s" * 32


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log of ten records."""
    path = tmp_path / "audit.jsonl"
    writer = Audit(path, SECRET, SystemClock(), "test")
    for number in range(10):
        writer.note("token refused", {"number": number, "why": "a \u2603 \x1b[31m\nline"})
    return path


def lines(log: Path) -> list[bytes]:
    return log.read_bytes().splitlines(keepends=True)


def look(log: Path, secret: bytes = SECRET) -> Verdict:
    return audit_log.verify(log, secret)


def note(log: Path) -> None:
    Audit(log, SECRET, SystemClock(), "later").note("token refused", {})


def five(log: Path) -> None:
    for _ in range(5):
        note(log)


def test_what_was_written_is_whole(log: Path) -> None:
    assert look(log) == Verdict(10)
    assert [json.loads(line)["seq"] for line in lines(log)] == list(range(1, 11))
    assert {log.stat().st_mode & 0o777, log.with_suffix(".head").stat().st_mode & 0o777} == {0o600}


def test_any_changed_byte_is_found_at_its_record(log: Path, seed: int) -> None:
    draw, whole = random.Random(seed), log.read_bytes()
    for _ in range(60):
        at = draw.randrange(len(whole) - 1)
        byte = draw.choice([b for b in range(33, 127) if b != whole[at]])
        log.write_bytes(whole[:at] + bytes([byte]) + whole[at + 1 :])
        verdict = look(log)
        assert verdict.why, f"byte {at} as {byte}"
        assert verdict.line == whole[:at].count(b"\n") + 1


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (lambda old: old[:3] + old[4:], 4),
        (lambda old: [*old[:3], old[4], old[3], *old[5:]], 4),
        (lambda old: [*old[:3], old[2], *old[3:]], 4),
        (lambda old: old[1:], 1),
        (lambda old: old[:-1], 10),
        (lambda old: old[:4], 5),
        (lambda old: old[:0], 1),
        (lambda old: [*old[:-1], old[-1][:-5]], 10),
    ],
)
def test_records_left_out_moved_doubled_or_cut_off(log: Path, change: Callable[[list[bytes]], list[bytes]], line: int) -> None:
    log.write_bytes(b"".join(change(lines(log))))
    assert (bool(look(log).why), look(log).line) == (True, line)


@pytest.mark.parametrize(
    "change",
    [
        lambda line: line.replace(b'"who"', b'"who": "nobody", "who"'),
        lambda line: line.replace(b": ", b":", 1),
        lambda line: b" " + line,
        lambda line: line[:-1] + b" \n",
        lambda line: line[:-1] + b"\r\n",
        lambda line: b"\xef\xbb\xbf" + line,
        lambda line: line.replace(b"\\u2603", "\u2603".encode()),
        lambda line: line.replace(b"test", b"\\u0074est"),
        lambda line: line.replace(
            b'"number": 3, "why": "a \\u2603 \\u001b[31m\\nline"', b'"why": "a \\u2603 \\u001b[31m\\nline", "number": 3'
        ),
        lambda line: json.dumps(dict(reversed(json.loads(line).items()))).encode() + b"\n",
        lambda line: line + b"\n",
        lambda line: line.replace(b'"mac": "', '"mac": "\u00e9'.encode()),
    ],
)
def test_another_text_of_the_same_record_is_a_changed_one(log: Path, change: Callable[[bytes], bytes]) -> None:
    before = lines(log)
    after = [*before[:3], change(before[3]), *before[4:]]
    assert after != before
    log.write_bytes(b"".join(after))
    assert (look(log).line, bool(look(log).why)) == (5 if after[3].endswith(b"\n\n") else 4, True)


def test_a_record_without_its_last_newline_is_whole_and_stays_so(log: Path) -> None:
    log.write_bytes(log.read_bytes()[:-1])
    assert look(log) == Verdict(10)
    note(log)
    assert look(log) == Verdict(11)


@pytest.mark.parametrize("text", ["\u00b2 0 0", "10 \u00e9 \u00e9", "9" * 900 + " 0 0"])
def test_a_head_of_any_text_is_no_internal_error(log: Path, text: str) -> None:
    log.with_suffix(".head").write_text(text)
    assert "no valid head" in look(log).why


def test_a_cut_tail_stays_found_after_more_was_written(log: Path) -> None:
    log.write_bytes(b"".join(lines(log)[:6]))
    note(log)
    assert (look(log).line, bool(look(log).why)) == (7, True)


def test_a_changed_last_record_stays_found_after_more_was_written(log: Path) -> None:
    log.write_bytes(log.read_bytes().replace(b'"number": 9', b'"number": 8'))
    note(log)
    assert look(log).line == 10


def test_without_its_head_or_with_anothers_nothing_is_believed(log: Path) -> None:
    head = log.with_suffix(".head")
    kept = head.read_bytes()
    head.unlink()
    assert "no valid head" in look(log).why
    head.write_bytes(kept.replace(b"10 ", b"9 ", 1))
    assert "no valid head" in look(log).why
    assert look(log, b"t" * 32).line == 1


def test_a_log_that_is_gone_while_its_head_is_not(log: Path) -> None:
    log.unlink()
    assert "gone" in look(log).why
    log.with_suffix(".head").unlink()
    with pytest.raises(NotFound):
        look(log)


def test_a_crash_between_record_and_head_or_within_a_record_is_no_tampering(log: Path) -> None:
    head = log.with_suffix(".head")
    before = head.read_bytes()
    note(log)
    head.write_bytes(before)
    assert look(log) == Verdict(11), "the record came, the head did not"
    log.write_bytes(log.read_bytes() + b'{"seq": 12, "at": "2026')
    assert look(log) == Verdict(11), "a line that nobody was told of"
    note(log)
    assert look(log) == Verdict(12), "and the next writer takes its place"


def test_many_writers_take_turns(log: Path) -> None:
    threads = [threading.Thread(target=five, args=(log,)) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert look(log) == Verdict(40)


def test_long_data_is_cut_and_a_link_is_not_followed(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    Audit(path, SECRET, SystemClock(), "test").note("x", {"long": "y" * 100_000})
    assert len(json.loads(path.read_text())["data"]["long"]) == 4096
    (tmp_path / "other.jsonl").symlink_to(path)
    with pytest.raises(Exception, match="cannot open"):
        Audit(tmp_path / "other.jsonl", SECRET, SystemClock(), "test").note("x", {})
