"""What a map came to, as files: the results in the order of the workload, a summary, and what failed. Each is whole or not there."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from supervisor.host import files

RESULTS, SUMMARY, FAILED = "output.jsonl", "summary.json", "failed.jsonl"
SCHEMA = 1


def write(
    db: sqlite3.Connection, about: dict[str, Any], counts: dict[str, int], directory: Path, merge: dict[str, Any] | None = None
) -> None:
    """Write all three: into `directory`, and the results where the map's person wants them, if that is elsewhere and every item has ended.
    Raises DiskFull, ToolFailed; what was there before is then still there."""
    source = json.loads(about["source"])
    objects = source.get("form") == "jsonl"
    stream(target(directory, about["out"], counts["waiting"]), (line(row, objects) for row in _ended(db, "state IN ('done', 'failed')")))
    stream(directory / FAILED, (line(row, objects) for row in _ended(db, "state = 'failed'")))
    files.atomic_write(
        directory / SUMMARY, json.dumps(summary(about, counts, db) | ({"merge": merge} if merge else {}), indent=2).encode() + b"\n"
    )


def target(directory: Path, out: str, missing: int) -> Path:
    """Where the results are. While items are missing the file `out` that a person named stays as it was."""
    return Path(out) if out and not missing else directory / RESULTS


def _ended(db: sqlite3.Connection, which: str) -> sqlite3.Cursor:
    return db.execute(f"SELECT * FROM item WHERE {which} ORDER BY position")  # noqa: S608 - no text of others


def line(row: sqlite3.Row, objects: bool) -> bytes:
    """One item: `item`, `ok`, `result` or `error`, `tries`, `ms`. Names that are no UTF-8 have their bytes as surrogates, as in
    `os.fsdecode`."""
    name = bytes(row["name"])
    item = name.decode() if objects else json.dumps(name.decode("utf-8", "surrogateescape"))
    ok = row["state"] == "done"
    text = row["text"] if ok else json.dumps(row["text"])
    head = f'{{"item": {item}, "ok": {"true" if ok else "false"}, "{"result" if ok else "error"}": {text}'
    return f'{head}, "tries": {row["tries"]}, "ms": {row["ms"]}}}\n'.encode()


def summary(about: dict[str, Any], counts: dict[str, int], db: sqlite3.Connection) -> dict[str, Any]:
    """The figures of it."""
    tried, worked = db.execute("SELECT total(max(tries + deaths - 1, 0)), total(ms) FROM item").fetchone()
    return {
        "schema": SCHEMA,
        "title": about["title"],
        "run": about["run"],
        "items": counts["total"],
        "done": counts["done"],
        "failed": counts["failed"],
        "missing": counts["waiting"],
        "tried_again": int(tried),
        "cleaned": about["undone"],
        "item_ms": int(worked),
        "wall_s": round(max(0.0, about["ended"] - about["began"]), 3),
        "why": about["why"],
    }


def stream(path: Path, lines: Iterator[bytes]) -> None:
    """Write a file that may be large, whole or not at all; it is on the disk before it has its name. Raises DiskFull, ToolFailed."""
    draft = path.with_name(f".{path.name[:200]}.{os.getpid()}.{os.urandom(4).hex()}")
    try:
        try:
            handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with os.fdopen(handle, "wb", 2**20) as file:
                file.writelines(lines)
                file.flush()
                os.fsync(file.fileno())
            draft.rename(path)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise files.write_error(path, error) from error
