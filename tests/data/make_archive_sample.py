"""Writes `archive-9.sql`, an archive of schema 9 as text, that every later version must be able to read and to go on with.

    python -m tests.data.make_archive_sample > tests/data/archive-9.sql

As `make_ledger_sample`: once for each schema, by the version that introduced it.
"""

from __future__ import annotations

import sys
import tempfile
from contextlib import closing
from pathlib import Path

from supervisor.features.retention.archiving import Archive
from supervisor.store.ledger import Ledger
from tests.data.make_ledger_sample import dump
from tests.store.kit import Wall, submit, whole

RUN, NEWEST = "0729-arch", "0731-left"


def write(directory: Path) -> Path:
    """An archive with one run of two tasks; its path."""
    wall = Wall(1_690_000_000.25)
    with closing(Ledger(directory / "ledger.db", wall)) as ledger:
        for name in submit(ledger, "done", "also", run=RUN):
            ledger.commit(whole(name))
            ledger.note(name, 1, branch=f"nightcrew/{name}/work", result='{"schema": 1, "end": "done"}')
            ledger.release(name, 1)
        submit(ledger, "left", run=NEWEST)
    with closing(Archive(directory / "ledger.db", directory / "archive.db", wall)) as moving:
        assert moving.mark(RUN, 1 << 40)
        while moving.move(RUN):
            pass
    return directory / "archive.db"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        sys.stdout.write("\n".join(dump(write(Path(name)))) + "\n")
