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

from supervisor.ledger.ledger import Ledger
from tests.ledger.kit import Wall, check_integrity

POINTS = 20
RUNS = 60
WRITER = """
import sys
from pathlib import Path
from supervisor.ledger.ledger import Ledger
from tests.ledger.kit import Wall, submission
from tests.ledger.workers import Notebook
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


def recorded(path: Path, synchronous: str) -> list[tuple[str, str, int, bytes]]:
    """Call, file, offset and bytes, in their order: `write`, `sync`, and `said`, where the writer noted that a run was acknowledged."""
    names = [path.name, f"{path.name}-wal", f"{path.name}-journal"]
    log, notes = path.with_name("calls"), path.with_name("notes")
    watched = [word for name in [*names, notes.name] for word in ("-P", str(path.with_name(name)))]
    calls = "trace=openat,pwrite64,write,ftruncate,fsync,fdatasync,close"
    argv = ["strace", "-f", "-y", "-xx", "-s", "1000000", "-e", calls, *watched, "-o", str(log), sys.executable, "-c", WRITER]
    subprocess.run([*argv, str(path), synchronous, str(RUNS)], check=True, cwd=Path(__file__).parents[2])
    found = []
    for call, words, _ in _CALL.findall(log.read_text()):
        at = re.match(r"\d+<((?:\\x[0-9a-f]{2})+)>", words)
        name = Path(_bytes(at[1]).decode()).name if at else ""
        text = _bytes(m[1]) if (m := _BYTES.search(words)) else b""
        if call == "pwrite64" and name in names:
            found.append(("write", name, int(words.rpartition(", ")[2], 0), text))
        elif call == "ftruncate" and name in names:
            found.append(("write", name, -int(words.rpartition(", ")[2], 0) - 1, b""))
        elif call in ("fsync", "fdatasync") and name in names:
            found.append(("sync", name, 0, b""))
        elif call == "write" and name == notes.name:
            found.append(("said", name, 0, text))
    return found


def _bytes(text: str) -> bytes:
    return bytes.fromhex(text.replace("\\x", ""))


def lost(before: bytes, calls: list[tuple[str, str, int, bytes]], place: Path, draw: random.Random | None) -> list[str]:
    """Runs that were acknowledged in `calls` and are not there after a cut."""
    disk = Disk({"ledger.db": bytearray(before)}, {"ledger.db": before})
    said = [text.decode().strip() for call, _, _, text in calls if call == "said"]
    for call, name, at, data in calls:
        if call == "write":
            disk.write(name, at, data)
        elif call == "sync":
            disk.sync(name)
    place.mkdir()
    disk.cut(place, draw)
    with contextlib.closing(Ledger(place / "ledger.db", Wall(), create=False)) as ledger:
        missing = [run for run in said if not ledger.run_exists(run)]
    check_integrity(place / "ledger.db")
    return missing


@pytest.mark.parametrize("synchronous", ["", "NORMAL"])
def test_what_was_acknowledged_survives_a_power_cut(path: Path, tmp_path: Path, synchronous: str) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    if shutil.which("strace") is None or subprocess.run(["strace", "-o", "/dev/null", "true"], capture_output=True, check=False).returncode:
        pytest.skip("NO PROCESS MAY BE TRACED HERE (strace, ptrace)")
    Ledger(path, Wall()).close()
    before = path.read_bytes()
    calls = recorded(path, synchronous)
    assert sum(call == "said" for call, *_ in calls) == RUNS
    assert sum(call == "write" and name == path.name for call, name, *_ in calls) > 10, "it was never checkpointed"
    points = sorted({draw.randrange(1, len(calls)) for _ in range(POINTS - 1)} | {len(calls)})
    found = [lost(before, calls[:point], tmp_path / f"{point}-{bool(any_of)}", any_of) for point in points for any_of in (None, draw)]
    assert any(found) == bool(synchronous), "with less syncing this very check must see a loss"
