"""What the other processes of the tests do. Each says what it was told to be true by appending lines to a file of its own: a line
that was written survives the writer."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

from supervisor.kernel.decision import Collect, Finish, Start
from supervisor.kernel.errors import StaleEpoch
from supervisor.kernel.states import End, TaskState
from supervisor.store import sqlite
from supervisor.store.ledger import Ledger
from tests.store.kit import Wall, submission


class Notebook:
    """Lines that are on record when `write` returns."""

    def __init__(self, path: Path) -> None:
        self._handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def write(self, *words: object) -> None:
        os.write(self._handle, (" ".join(map(str, words)) + "\n").encode())


def lines(path: Path) -> list[list[str]]:
    """The words of each whole line; nothing when the writer never came so far."""
    text = path.read_text() if path.exists() else ""
    return [line.split() for line in text[: text.rfind("\n") + 1].splitlines()]


def submit_keys(path: Path, notes: Path, keys: list[str], name: str) -> None:
    """Submit the same keys as everybody else, each under a run id of its own, from the moment that a file `go` is there."""
    ledger, notebook = Ledger(path, Wall(), create=False), Notebook(notes)
    while not (path.parent / "go").exists():
        time.sleep(0.0005)
    for number, key in enumerate(keys):
        run, new = ledger.submit(submission("a", "b", key=key), f"{name}-{number}")
        notebook.write(key, run, new)
    ledger.close()


def submit_for_ever(path: Path, notes: Path, name: str) -> None:
    """Submit until killed; a run that was acknowledged is noted afterwards."""
    ledger, notebook = Ledger(path, Wall(), create=False), Notebook(notes)
    number = 0
    while True:
        run, _ = ledger.submit(submission(*(f"t{index}" for index in range(5)), key=f"{name}-{number}"), f"{name}-{number}")
        notebook.write(run)
        number += 1


def claim(path: Path, notes: Path, count: int) -> None:
    """Take ready tasks and do them, until `count` are done. `start` is noted before the commit, `done` after the acknowledgement."""
    ledger, notebook = Ledger(path, Wall(), create=False), Notebook(notes)
    reader = sqlite.connect_readonly(path)
    notebook.write("here")
    while reader.execute("SELECT count(*) FROM task WHERE state = 'done'").fetchone()[0] < count:
        found = reader.execute("SELECT id, epoch FROM task WHERE state = 'ready' ORDER BY random() LIMIT 1").fetchone()
        if found is not None:
            _do(ledger, notebook, found["id"], found["epoch"] + 1)
    reader.close()
    ledger.close()


def _do(ledger: Ledger, notebook: Notebook, task: str, epoch: int) -> None:
    notebook.write("start", task, epoch)
    try:
        ledger.commit([Start(task, epoch, "again" if epoch > 1 else "")])
        time.sleep(random.uniform(0, 0.02))  # the work: most deaths shall fall into it
        ledger.commit([Collect(task, epoch, End.DONE, ""), Finish(task, epoch, End.DONE, "", TaskState.DONE, 0.0)])
    except StaleEpoch:
        return  # somebody else was first, or said that we were lost
    notebook.write("done", task, epoch)
