"""S01: what was acknowledged is there after a power cut. A writer's calls are recorded, and replayed up to a random moment: what it had
synced by then is on the disk, and of what it wrote since then any part, or none."""

from __future__ import annotations

import contextlib
import random
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from supervisor.features.retention import archiving as retention_archiving
from supervisor.kernel.errors import LedgerError
from supervisor.store import archive, queries, sqlite
from supervisor.store.ledger import Ledger
from tests.store.kit import Wall, check_integrity, rows, submit, whole

POINTS = 10
RUNS = 60
WRITER = """
import sys
from pathlib import Path
from supervisor.store.ledger import Ledger
from tests.store.kit import Wall, submission
from tests.store.workers import Notebook
path, synchronous = Path(sys.argv[1]), sys.argv[2]
ledger, notebook = Ledger(path, Wall(), create=False), Notebook(path.with_name("notes"))
ledger._db.execute("PRAGMA wal_autocheckpoint=40")
if synchronous:
    ledger._db.execute(f"PRAGMA synchronous={synchronous}")
for number in range(int(sys.argv[3])):
    notebook.write(ledger.submit(submission(*(f"t{index}" for index in range(5)), key=f"k{number}"), f"run-{number}")[0])
"""
_CALL = re.compile(r"^(?:\d+ +)?(\w+)\((.*)\) += (\d+)", re.MULTILINE)
_BYTES = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')


@dataclass
class Disk:
    """Files as a kernel has them, and what of each is surely on the disk."""

    seen: dict[str, bytearray] = field(default_factory=dict)
    synced: dict[str, bytes] = field(default_factory=dict)
    since: dict[str, list[tuple[int, bytes]]] = field(default_factory=dict)
    """Writes since the last sync of a file; a truncation is a write of nothing, at a negative size less one."""

    def write(self, name: str, at: int, data: bytes) -> None:
        _put(self.seen.setdefault(name, bytearray()), at, data)
        self.since.setdefault(name, []).append((at, data))

    def sync(self, name: str) -> None:
        self.synced[name] = bytes(self.seen.get(name, b""))
        self.since[name] = []

    def cut(self, directory: Path, draw: random.Random | None) -> None:
        """What the next start finds. Without `draw` nothing that was not synced."""
        for name in self.seen:
            data = bytearray(self.synced.get(name, b""))
            for at, part in self.since.get(name, ()) if draw is not None else ():
                if draw is not None and draw.random() < 0.7:
                    _put(data, at, part[: len(part) if draw.random() < 0.8 else draw.randrange(len(part) + 1)])
            (directory / name).write_bytes(data)


def _put(data: bytearray, at: int, part: bytes) -> None:
    if at < 0:
        del data[-at - 1 :]
        return
    data.extend(bytes(max(0, at - len(data))))
    data[at : at + len(part)] = part


def recorded(path: Path, program: str, *given: str) -> list[tuple[str, str, int, bytes]]:
    """Call, file, offset and bytes, in their order: `write`, `sync`, and `said`, where the writer noted that something is done for good."""
    names = [f"{file}{suffix}" for file in (path.name, "archive.db") for suffix in ("", "-wal", "-journal")]
    log, notes, journal = path.with_name("calls"), path.with_name("notes"), sqlite.journal_file(path, 1)
    watched = [word for file in [*map(path.with_name, names), notes, journal] for word in ("-P", str(file))]
    calls = "trace=openat,pwrite64,write,ftruncate,fsync,fdatasync,close"
    argv = ["strace", "-f", "-y", "-xx", "-s", "1000000", "-e", calls, *watched, "-o", str(log), sys.executable, "-c", program]
    subprocess.run([*argv, str(path), *given], check=True, cwd=Path(__file__).parents[2])
    found = []
    for call, words, _ in _CALL.findall(log.read_text()):
        at = re.match(r"\d+<((?:\\x[0-9a-f]{2})+)>", words)
        name = Path(_bytes(at[1]).decode()).name if at else ""
        text = _bytes(m[1]) if (m := _BYTES.search(words)) else b""
        if call == "pwrite64" and name in names:
            found.append(("write", name, int(words.rpartition(", ")[2], 0), text))
        elif call == "ftruncate" and name in names:
            found.append(("write", name, -int(words.rpartition(", ")[2], 0) - 1, b""))
        elif call in ("fsync", "fdatasync") and name in (*names, journal.name):
            found.append(("sync", name, 0, b""))
        elif call == "write" and name == journal.name:
            found.append(("append", name, 0, text))
        elif call == "write" and name == notes.name:
            found.append(("said", name, 0, text))
    return found


def _bytes(text: str) -> bytes:
    return bytes.fromhex(text.replace("\\x", ""))


def cut(before: bytes, calls: list[tuple[str, str, int, bytes]], place: Path, draw: random.Random | None) -> None:
    """Make what a cut after `calls` leaves."""
    disk = Disk({"ledger.db": bytearray(before)}, {"ledger.db": before})
    for call, name, at, data in calls:
        if call == "write":
            disk.write(name, at, data)
        elif call == "sync":
            disk.sync(name)
    place.mkdir()
    disk.cut(place, draw)


def lost(before: bytes, calls: list[tuple[str, str, int, bytes]], place: Path, draw: random.Random | None) -> list[str]:
    """Runs that were acknowledged in `calls` and are not there after a cut."""
    said = [text.decode().strip() for call, _, _, text in calls if call == "said"]
    cut(before, calls, place, draw)
    with contextlib.closing(Ledger(place / "ledger.db", Wall(), create=False)) as ledger:
        missing = [run for run in said if not ledger.run_exists(run)]
    check_integrity(place / "ledger.db")
    return missing


def must_trace() -> None:
    if shutil.which("strace") is None or subprocess.run(["strace", "-o", "/dev/null", "true"], capture_output=True, check=False).returncode:
        pytest.skip("NO PROCESS MAY BE TRACED HERE (strace, ptrace)")


@pytest.mark.parametrize("synchronous", ["", "NORMAL"])
def test_what_was_acknowledged_survives_a_power_cut(path: Path, tmp_path: Path, synchronous: str, seed: int) -> None:
    draw = random.Random(seed)
    must_trace()
    Ledger(path, Wall()).close()
    before = path.read_bytes()
    calls = recorded(path, WRITER, synchronous, str(RUNS))
    assert sum(call == "said" for call, *_ in calls) == RUNS
    assert sum(call == "write" and name == path.name for call, name, *_ in calls) > 10, "it was never checkpointed"
    points = sorted({draw.randrange(1, len(calls)) for _ in range(POINTS - 1)} | {len(calls)})
    found = [lost(before, calls[:point], tmp_path / f"{point}-{bool(any_of)}", any_of) for point in points for any_of in (None, draw)]
    assert any(found) == bool(synchronous), "with less syncing this very check must see a loss"


def test_what_was_acknowledged_is_in_the_journal_by_then(path: Path) -> None:
    """So that no accepted task is lost with a ledger that the same power cut damages."""
    must_trace()
    Ledger(path, Wall()).close()
    written = synced = b""
    runs = 0
    for call, name, _, data in recorded(path, WRITER, "", str(RUNS)):
        if call == "append":
            written += data
        elif call == "sync" and ".journal-" in name:
            synced = written
        elif call == "said":
            assert b"submitted" in synced and data.strip() in synced
            runs += 1
    assert runs == RUNS


ARCHIVER = """
import sys
from pathlib import Path
from supervisor.features.retention import archiving
from tests.store.kit import Wall
archiving.TASKS = 4
path = Path(sys.argv[1])
moving = archiving.Archive(path, path.with_name("archive.db"), Wall())
for schema in ("main", "archive"):
    moving._db.execute(f"PRAGMA {schema}.wal_autocheckpoint=10")
    if sys.argv[2]:
        moving._db.execute(f"PRAGMA {schema}.synchronous={sys.argv[2]}")
for number in range(4):
    assert moving.mark(f"run-{number}", 1 << 40)
    while moving.move(f"run-{number}"):
        pass
"""


@pytest.mark.parametrize("synchronous", ["", "OFF"])
def test_what_moves_to_the_archive_survives_a_power_cut(path: Path, tmp_path: Path, synchronous: str, seed: int) -> None:
    """S01, of two files: whatever of both is on the disk, each task is there, and once when it is gone on with."""
    draw = random.Random(seed)
    must_trace()
    tasks = {f"run-{run}/t{number}" for run in range(5) for number in range(10)}
    with contextlib.closing(Ledger(path, Wall())) as ledger:
        for run in range(5):
            names = submit(ledger, *(f"t{number}" for number in range(10)), run=f"run-{run}")
            ledger.commit([command for name in names for command in whole(name)])
            for name in names:
                ledger.release(name, 1)
    before = path.read_bytes()
    with contextlib.closing(retention_archiving.Archive(path, path.with_name("archive.db"), Wall())):
        pass  # made before: what is cut is the moving
    empty = path.with_name("archive.db").read_bytes()
    calls = [("write", "archive.db", 0, empty), ("sync", "archive.db", 0, b""), *recorded(path, ARCHIVER, synchronous)]
    points = sorted({draw.randrange(2, len(calls)) for _ in range(POINTS - 1)} | {len(calls)})
    found = [
        whole_after(before, calls[:point], tmp_path / f"{point}-{bool(some)}", some, tasks) for point in points for some in (None, draw)
    ]
    assert all(found) != bool(synchronous), "with less syncing this very check must see a loss"


def whole_after(before: bytes, calls: list[tuple[str, str, int, bytes]], place: Path, draw: random.Random | None, tasks: set[str]) -> bool:
    """Whether every task is there after a cut, each in the one file that has its run whole, and once when the archiver went on."""
    cut(before, calls, place, draw)
    path, beside = place / "ledger.db", place / "archive.db"
    try:
        seen = set()
        for run in {task.partition("/")[0] for task in tasks}:
            with contextlib.closing(archive.reader(path, beside, run)) as db:
                seen |= {view.id for view in queries.of_run(db, run) if view.state == "done"}
        with contextlib.closing(retention_archiving.Archive(path, beside, Wall())) as moving:
            while (left := moving.leaving()) is not None:
                while moving.move(left):
                    pass
        held = [row["id"] for file in (path, beside) for row in rows(file, "SELECT id FROM task")]
        for file in (path, beside):
            check_integrity(file)
    except (LedgerError, AssertionError, ValueError):  # damaged, or not whole: what less syncing is to show
        return False
    return seen == tasks and sorted(held) == sorted(tasks)
