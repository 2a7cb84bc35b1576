"""A ledger that any released version wrote is read by this one."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from supervisor.features.night import rows as night_rows
from supervisor.features.night.rows import Nights
from supervisor.kernel import codec
from supervisor.kernel import snapshots as snapshots_rules
from supervisor.kernel.conversations import DeliveryState, How, Origin
from supervisor.kernel.crew import Attempt, Crew
from supervisor.kernel.decide import decide
from supervisor.kernel.decision import Start
from supervisor.kernel.errors import Refused
from supervisor.kernel.events import Submitted
from supervisor.kernel.night import NightState
from supervisor.kernel.snapshots import SnapshotKind, SnapshotSpec
from supervisor.kernel.spec import TaskSpec
from supervisor.kernel.states import AttemptState, TaskClass, TaskState
from supervisor.snapshots import rows as snapshots_rows
from supervisor.snapshots.rows import Snapshots
from supervisor.store import conversations, queries, sqlite
from supervisor.store.ledger import Ledger
from tests.data import make_ledger_sample
from tests.store.kit import Wall, check_integrity, rows

DATA = Path(make_ledger_sample.__file__).parent
RUN = "0731-k3qz"
WITH_CANDIDATES = 7
"""From this schema on the sample has groups of candidates."""


@pytest.fixture(params=range(1, sqlite.SCHEMA + 1))
def old(request: pytest.FixtureRequest, path: Path) -> Path:
    return load(path, request.param)


def load(path: Path, schema: int) -> Path:
    with closing(sqlite3.connect(path)) as db:
        db.executescript((DATA / f"ledger-{schema}.sql").read_text(encoding="utf-8"))
    return path


@pytest.fixture
def schema(request: pytest.FixtureRequest) -> int:
    """That of `old`."""
    return int(request.node.callspec.params["old"])


def test_an_old_ledger_goes_on(old: Path, schema: int) -> None:
    candidates = {"try-1": TaskState.READY, "open-1": TaskState.READY, "open-judge-1": TaskState.WAITING, "open": TaskState.WAITING}
    with closing(Ledger(old, Wall(1_700_000_060.25))) as ledger:
        check_integrity(old)
        held = {task.id.partition("/")[2]: task for task in ledger.unfinished(100.0)}
        assert {name: task.state for name, task in held.items() if task.attempt is None} == {
            "done": TaskState.DONE,
            "backoff": TaskState.READY,
            "waiting": TaskState.WAITING,
            "ready": TaskState.READY,
            "retried": TaskState.READY,
            **(candidates if schema >= WITH_CANDIDATES else {}),
        }
        assert {name: task.attempt for name, task in held.items() if task.attempt is not None} == {
            "launching": Attempt(1, AttemptState.LAUNCHING, 100.0),
            "running": Attempt(1, AttemptState.RUNNING, 100.0),
            "stopping": Attempt(1, AttemptState.STOPPING, 100.0, "cancelled"),
            "collecting": Attempt(1, AttemptState.COLLECTING, 100.0),
        }
        assert held["waiting"].after == {f"{RUN}/running", f"{RUN}/done"}
        assert (held["backoff"].tally.failures, held["backoff"].not_before, held["backoff"].cause) == (1, 132.0, "failed")
        assert held["retried"].cause == "retry asked; was cancelled"
        _, commands = decide(Crew(slots=99), [Submitted(tuple(held.values()))], 132.0)
        assert [command for command in commands if isinstance(command, Start)] == [
            Start(f"{RUN}/backoff", 2, "failed"),
            Start(f"{RUN}/ready", 1, ""),
            Start(f"{RUN}/retried", 2, "retry asked; was cancelled"),
            *([Start(f"{RUN}/try-1", 1, ""), Start(f"{RUN}/open-1", 1, "")] if schema >= WITH_CANDIDATES else []),
        ]
        ledger.commit(commands)


def test_an_old_ledger_knows_how_to_launch(old: Path, schema: int) -> None:
    with closing(Ledger(old, Wall())) as ledger:
        row = ledger.launch_row(f"{RUN}/done")
        assert (row.spec.argv, row.spec.params, row.spec.prompt) == (("caf\udce9", "a b"), {"X": "\udcff"}, "do\nit")
        assert (row.spec.title, row.spec.cores, row.root, row.base_oid, row.env) == (
            "Ende gut \u202e🦊",
            (0, 2),
            "/repo",
            "c0ffee",
            {"PATH": "/bin"},
        )
        failed = ledger.launch_row(f"{RUN}/failed").spec
        assert (failed.priority, failed.task_class, failed.timeout_s, failed.retries, failed.cores) == (
            90,
            TaskClass.INTERACTIVE,
            5.5,
            1,
            2,
        )
        assert ledger.launch_row("0731-m7wn/lonely").env == {"LC_ALL": "C", "X": "\udcfe"}
        assert len(ledger.unreleased()) == (11 if schema >= WITH_CANDIDATES else 10)


def test_an_old_ledger_can_be_looked_at(old: Path) -> None:
    with closing(sqlite.connect_readonly(old)) as db:
        done, failed, *_ = queries.of_run(db, RUN)
        assert (done.title, done.state, done.result, done.branch) == (
            "Ende gut \u202e🦊",
            "done",
            {"schema": 1, "end": "done"},
            f"nightcrew/{RUN}/done/work",
        )
        assert (failed.state, failed.epoch, failed.reason, failed.retries_used) == ("failed", 2, "failed", 2)
        assert [run.id for run in queries.runs(db, 9)] == ["0731-m7wn", RUN]
        assert [row["end"] for row in queries.attempts(db, f"{RUN}/failed")] == ["timeout", "failed"]


def test_readers_of_an_old_ledger_see_every_table_and_column_of_this_release(old: Path, tmp_path: Path) -> None:
    with closing(Ledger(tmp_path / "new.db", Wall())):
        pass
    with closing(sqlite.connect_readonly(tmp_path / "new.db")) as new, closing(sqlite.connect_readonly(old)) as db:
        for (table,) in new.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall():
            columns = [row[1] for row in new.execute(f"PRAGMA table_info({table})")]
            db.execute(f"SELECT {', '.join(columns)} FROM {table}").fetchall()  # noqa: S608 - our own names
        assert [run.id for run in queries.runs(db, 9)] == ["0731-m7wn", RUN]


def test_the_sample_has_an_attempt_and_a_task_in_every_state_that_there_was(old: Path) -> None:
    with closing(sqlite.connect_readonly(old)) as db:
        states = {row[0] for row in db.execute("SELECT DISTINCT state FROM task")}
        assert states == set(TaskState) - {TaskState.PAUSED, TaskState.PARKED, TaskState.EXPIRED}
        assert {row[0] for row in db.execute("SELECT DISTINCT state FROM attempt")} == set(AttemptState)


def test_the_environments_of_an_old_ledger_are_found_again(path: Path) -> None:
    """From schema 2 on; one of schema 1 has none, before it is migrated and after."""
    with closing(sqlite.connect_readonly(load(path, 1))) as db:
        assert snapshots_rows.every(db) == ()
    with closing(Ledger(path, Wall())) as ledger:
        assert ledger.of(Snapshots).all() == ()
        assert {(row.snapshot, row.layers, row.tier) for row in ledger.unreleased()} == {(None, None, None)}
    with closing(Ledger(load(path.with_name("2.db"), 2), Wall())) as ledger:
        found = {row.spec.name: row for row in ledger.of(Snapshots).all("0123456789ab")}
        assert {name: str(row.state) for name, row in found.items()} == {name: name for name in ("building", "failed", "ready", "stale")}
        ready = found["ready"]
        assert ready.spec == SnapshotSpec("ready", SnapshotKind.MEMORY, ("make \udcff",), ("true",), ("ast",), (".env",), memory_max=2**30)
        assert (ready.uses, ready.setup_s, ready.freeze_s, ready.disk) == (1, 90.5, 2.25, 2**20)
        assert ready.id.endswith(snapshots_rules.key(ready.spec, ready.base_oid, ready.digests)[:12]), "a key means the same for ever"
        assert found["stale"].reason == "uv.lock changed"
        running = ledger.attempt(f"{RUN}/running", 1)
        assert running is not None
        assert (running.snapshot, running.layers, running.tier) == (ready.id, '{"backend": "overlay"}', 2)


def test_the_texts_of_an_old_ledger_are_found_again(path: Path) -> None:
    """From schema 3 on; one of schema 2 has none, before it is migrated and after."""
    with closing(sqlite.connect_readonly(load(path, 2))) as db:
        assert (conversations.pending(db), conversations.of_task(db, f"{RUN}/running", 9)) == ([], [])
    with closing(Ledger(path, Wall())) as ledger:
        assert ledger.deliveries.unfinished() == []
    with closing(sqlite.connect_readonly(load(path.with_name("3.db"), 3))) as db:
        found = conversations.of_task(db, f"{RUN}/running", 9)
        assert [str(one.state) for one in found] == list(DeliveryState)
        assert [one.text for one in found] == ["kept äö\n🦊", "being typed", "", "", ""]
        assert [one.id for one in conversations.pending(db)] == [1, 2]
        assert (found[0].size, found[0].reason, found[3].epoch) == (14, "its agent works", 1)


def test_the_conversations_of_an_old_ledger_are_found_again(path: Path) -> None:
    """From schema 4 on."""
    with closing(sqlite.connect_readonly(load(path, 3))) as db:
        assert conversations.newest(db, f"{RUN}/done") is None and conversations.of_session(db, "5e55-10n") == []
    with closing(sqlite.connect_readonly(load(path.with_name("4.db"), 4))) as db:
        begun, copy = conversations.newest(db, f"{RUN}/done"), conversations.one(db, f"{RUN}/running", 1)
        assert begun is not None and (begun.session, begun.origin, begun.end) == ("5e55-10n", None, "done")
        assert copy is not None and (copy.session, copy.end) == ("c0-py", None)
        assert copy.origin == Origin(How.FORK, "5e55-10n", f"{RUN}/done", 1, "c0ffee")
    with closing(Ledger(path.with_name("4.db"), Wall())) as ledger:
        ledger.conversations.begin(f"{RUN}/launching", 1, "5e55-10n", Origin(How.RESUME, "5e55-10n", f"{RUN}/done", 1, "c0ffee"))
        with pytest.raises(Refused, match="another attempt has this conversation"):
            ledger.conversations.begin(f"{RUN}/stopping", 1, "5e55-10n", None)
        assert ledger.conversations.of(f"{RUN}/stopping", 1) is None


def test_the_newest_schema_has_its_sample() -> None:
    assert (DATA / f"ledger-{sqlite.SCHEMA}.sql").exists(), "write it: tests/data/make_ledger_sample.py"


def test_the_script_that_wrote_the_newest_sample_still_writes_such_a_ledger(tmp_path: Path) -> None:
    make_ledger_sample.write(tmp_path / "new.db")
    kept = load(tmp_path / "kept.db", sqlite.SCHEMA)
    for table in ("project", "run", "task", "dependency", "attempt", "journal", "snapshot", "delivery", "conversation"):
        sql = f"SELECT * FROM {table}"  # noqa: S608 - our own tables
        assert _in_meaning(rows(tmp_path / "new.db", sql)) == _in_meaning(rows(kept, sql)), table


def _in_meaning(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A spec that gained a key means what it meant when the key has its default, and its digest is another. No release reads `run` and
    `layers` of a snapshot any more."""
    found = [
        {**row, "spec": codec.loads(SnapshotSpec if "digests" in row else TaskSpec, row["spec"])} if "spec" in row else row for row in found
    ]
    found = [{**row, "run": "", "layers": ""} if "digests" in row else row for row in found]
    return [{**row, "data": _without_digests(row["data"])} if "data" in row else row for row in found]


def _without_digests(data: str) -> dict[str, Any]:
    return {name: value for name, value in json.loads(data).items() if not name.endswith("_sha256")}


def test_the_night_of_an_old_ledger_goes_on(path: Path) -> None:
    """From schema 5 on; one of schema 4 has none, before it is migrated and after."""
    with closing(sqlite.connect_readonly(load(path, 4))) as db:
        assert (night_rows.every(db), night_rows.of_run(db, RUN)) == ([], None)
    with closing(Ledger(path, Wall())) as ledger:
        assert ledger.of(Nights).open() == []
    with closing(Ledger(load(path.with_name("5.db"), 5), Wall())) as ledger:
        [night] = ledger.of(Nights).open()
        assert (night.run, night.terms, night.state) == ("0731-m7wn", make_ledger_sample.NIGHT.terms, NightState.OPEN)
