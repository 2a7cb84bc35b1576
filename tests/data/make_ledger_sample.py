"""Writes `ledger-9.sql`, a ledger of schema 9 as text, that every later version must be able to load.

    python -m tests.data.make_ledger_sample > tests/data/ledger-9.sql

It was run once, by the version that introduced the schema, and its output is never written again: that is its use. For the next
schema, run this with that version and commit the output under that number.
"""

from __future__ import annotations

import sqlite3
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from memory.lease_rows import Waits
from memory.mail import Mail, Mails, MailState, MailType
from supervisor.features.api.rows import Access
from supervisor.features.api.rules import Kind, Scope, Token
from supervisor.kernel.conversations import DeliveryState, How, Origin
from supervisor.kernel.decision import Choose, Collect, MarkRunning, Revive, SetState, Start, Stop
from supervisor.kernel.leases import Wait, WaitKind
from supervisor.kernel.night import NightOrder, NightTerms, OnCap
from supervisor.kernel.snapshots import SnapshotKind, SnapshotSpec
from supervisor.kernel.states import Choice, Decider, End, TaskClass, TaskState
from supervisor.results import ranking
from supervisor.snapshots.rows import Built, Snapshots
from supervisor.store import sqlite
from supervisor.store.ledger import Ledger
from tests.store.kit import Wall, ended, spec, submission, submit, whole

RUN, LATER = "0731-k3qz", "0731-m7wn"
NIGHT = NightOrder(NightTerms(1_700_030_000.0, 600.0, 40.0, 3, OnCap.STOP), "/repo/plan.toml", "ab" * 32, "nightly")
TASKS = (
    spec("done", title="Ende gut \u202e🦊", argv=("caf\udce9", "a b"), params={"X": "\udcff"}, prompt="do\nit", cores=(0, 2)),
    spec("failed", priority=90, task_class=TaskClass.INTERACTIVE, timeout_s=5.5, retries=1, cores=2),
    spec("cancelled", task_class=TaskClass.BATCH, after=("done",)),
    spec("skipped", after=("failed",)),
    spec("quarantined"),
    spec("backoff", retries=9),
    spec("launching"),
    spec("running", paths=("src/api",)),
    spec("stopping"),
    spec("collecting"),
    spec("waiting", after=("running", "done")),
    spec("ready"),
    spec("retried", after=("done",)),
    spec("try-1", candidate_of="try", gate=("true",)),
    spec("try-2", candidate_of="try"),
    spec("try", argv=(), after=("try-1", "try-2"), after_on="finished", candidates=("try-1", "try-2"), decide="person"),
    spec("open-1", candidate_of="open"),
    spec("open-judge-1", prompt="best", after=("open-1",), after_on="finished", candidates=("open-1",), judge_round=1),
    spec("open", argv=(), after=("open-1", "open-judge-1"), after_on="finished", candidates=("open-1",), decide="gate"),
)


def write(path: Path) -> None:
    """One task in every state that this version reaches, one attempt in every state."""
    wall = Wall(1_700_000_000.25)
    with closing(Ledger(path, wall)) as ledger:
        at = {name.partition("/")[2]: name for name in submit(ledger, *TASKS, run=RUN)}
        wall.now += 60
        ledger.commit(whole(at["done"]))
        ledger.note(at["done"], 1, worktree="/w/done", admin_dir="/d/done", branch=f"nightcrew/{at['done']}/work", base_oid="c0ffee")
        ledger.note(at["done"], 1, session_id="$1", pane_id="%1", server_pid=77, rescue_oid="beef", result='{"schema": 1, "end": "done"}')
        ledger.note(at["done"], 1, account='{"wall_s": 60.0}')
        ledger.release(at["done"], 1)
        ledger.note(at["done"], 1, removed=wall.now)
        ledger.commit(whole(at["failed"], 1, End.TIMEOUT, TaskState.READY, 2.0))
        ledger.commit([*whole(at["failed"], 2, End.FAILED, TaskState.FAILED), SetState(at["skipped"], TaskState.SKIPPED, "it failed")])
        ledger.commit([SetState(at["cancelled"], TaskState.READY, ""), SetState(at["cancelled"], TaskState.CANCELLED, "cancelled")])
        ledger.commit(whole(at["quarantined"], 1, End.LOST, TaskState.QUARANTINED))
        ledger.commit(whole(at["backoff"], 1, End.FAILED, TaskState.READY, 32.0))
        ledger.commit([Start(at[name], 1, "") for name in ("launching", "running", "stopping", "collecting")])
        ledger.commit([MarkRunning(at[name], 1) for name in ("running", "stopping", "collecting")])
        ledger.commit([Stop(at["stopping"], 1, "cancelled"), Collect(at["collecting"], 1, End.FAILED, "exit code 1")])
        ledger.commit([SetState(at["retried"], TaskState.READY, ""), *whole(at["retried"], 1, End.CANCELLED, TaskState.CANCELLED)])
        ledger.commit([Revive(at["retried"], "retry asked; was cancelled"), SetState(at["retried"], TaskState.READY, "")])
        _tokens(ledger)
        handed: dict[str, Any] = {"night": NIGHT, "token": "0" * 12, "digest": "cd" * 32}
        ledger.submit(
            submission("lonely", key=LATER, project="ba9876543210", root="/other", env={"LC_ALL": "C", "X": "\udcfe"}, **handed), LATER
        )
        ledger.commit([SetState(f"{LATER}/lonely", TaskState.READY, ""), Start(f"{LATER}/lonely", 1, "")])
        ledger.commit([*ended(f"{LATER}/lonely", 1)])
        ledger.journal(None, None, "up", {"pid": 1})
        _snapshots(ledger, at["running"])
        _deliveries(ledger, at["running"])
        _mails(ledger, at["running"])
        _conversations(ledger, at["done"], at["running"])
        _waits(ledger, at["running"], at["stopping"])
        _choice(ledger, at["try"], at["try-2"])


def _conversations(ledger: Ledger, ended: str, running: str) -> None:
    """One that began and is known, and one that goes on with it."""
    ledger.conversations.begin(ended, 1, "", None)
    ledger.conversations.learned(ended, 1, "5e55-10n")
    ledger.conversations.begin(running, 1, "c0-py", Origin(How.FORK, "5e55-10n", ended, 1, "c0ffee"))


def _waits(ledger: Ledger, who: str, holder: str) -> None:
    """One that has ended and one that goes on."""
    for what in ("src/ä\u202e", "src/**"):
        ledger.of(Waits).begin(
            "0123456789ab", Wait(0, who, 1, WaitKind.LEASE, what, (holder, "person"), 1.5, 61.5, any_of=what == "src/**")
        )
    ledger.of(Waits).end([(1, "over")])


def _choice(ledger: Ledger, group: str, winner: str) -> None:
    """Two tasks that tried the same; the second was chosen."""
    ledger.commit(whole(winner))
    places = ranking.rank([ranking.of_result(winner, TaskState.DONE, 1, None)])
    ranked = ranking.shape(places, ["ä\u202e"])
    made = Choice(group, winner, 1, "c0ffee", Decider.PERSON, "it is\nshorter", ranked)
    ledger.commit([SetState(group, TaskState.DONE, f"{winner} was chosen by person: it is shorter"), Choose(made)])


def _snapshots(ledger: Ledger, task: str) -> None:
    """One in every state, and an attempt that stands on the ready one."""
    for name, events in (("building", ()), ("ready", ("verified",)), ("failed", ("failed",)), ("stale", ("verified", "changed"))):
        asked = SnapshotSpec(name, SnapshotKind.MEMORY, ("make \udcff",), ("true",), ("ast",), (".env",), memory_max=2**30)
        made = ledger.of(Snapshots).begin("0123456789ab", asked, "c0ffee", {"uv.lock": "ab"})
        for event in events:
            built = Built(90.5, 2.25, 2**20) if event == "verified" else None
            made = ledger.of(Snapshots).step(made.id, made.epoch, event, "" if built else "uv.lock changed", built)
        if name == "ready":
            ledger.lent(task, 1, made.id)
            ledger.note(task, 1, layers='{"backend": "overlay"}', tier=2, port=20_010)


def _deliveries(ledger: Ledger, task: str) -> None:
    """One in every state."""
    texts = ["kept äö\n🦊", "being typed", "it took it", "nobody knows", "too late"]
    kept, typing, confirmed, unconfirmed, dropped = (ledger.deliveries.keep([task], text)[0].id for text in texts)
    ledger.deliveries.waits(kept, "its agent works")
    for number in (typing, confirmed, unconfirmed):
        ledger.deliveries.typing(number, 1)
    ledger.deliveries.ended(confirmed, DeliveryState.CONFIRMED)
    ledger.deliveries.ended(unconfirmed, DeliveryState.UNCONFIRMED, "its kind does not say")
    ledger.deliveries.ended(dropped, DeliveryState.DROPPED, "its task ended first")


def _mails(ledger: Ledger, task: str) -> None:
    """One in every state, and a reply."""
    asked = Mail(
        f"01{'A' * 24}", "0123456789ab", f"01{'A' * 24}", task, "person", MailType.REQUEST, "which port? \u2028", 1_700_000_000.0, key="k"
    )
    for number, state in enumerate(MailState):
        name = f"01{str(number) * 24}"
        made = replace(asked, id=name, thread=name, key=f"k{number}", recipient=task if number % 2 else "person", sender="person")
        ledger.of(Mails).accept(made, f"words {number} \u2028")
        if state is MailState.GIVEN:
            ledger.deliveries.keep([task], "given", [name])
        elif state is MailState.READ:
            ledger.of(Mails).read(name, 1, 7)
        elif state not in (MailState.ACCEPTED, MailState.NEW):
            ledger.of(Mails).ended(name, state, "it ended")
    ledger.of(Mails).accept(
        replace(asked, in_reply_to=f"01{'0' * 24}", thread=f"01{'0' * 24}", depth=1, type=MailType.REPLY, needs_reply_by=2e9), "8080"
    )


def _tokens(ledger: Ledger) -> None:
    """One of each kind, and one that was revoked."""
    facts: dict[str, Any] = {"digest": "ab" * 32, "user": "änna", "others": False, "confined": True, "rate": 20.0, "quota": 100}
    ledger.of(Access).create(
        Token("0" * 12, kind=Kind.API, name="ci", scopes=frozenset(Scope), projects=frozenset({"0123456789ab"}), **facts)
    )
    ledger.of(Access).create(Token("1" * 12, kind=Kind.DEVICE, name="phone", scopes=frozenset({Scope.READ}), projects=frozenset(), **facts))
    ledger.of(Access).create(Token("2" * 12, kind=Kind.API, name="old", scopes=frozenset({Scope.ACT}), projects=frozenset(), **facts))
    ledger.of(Access).revoke("2" * 12)


def dump(path: Path) -> Iterator[str]:
    """The file as SQL. `iterdump` leaves the schema's number out."""
    with closing(sqlite3.connect(path)) as db:
        yield from db.iterdump()
    yield f"PRAGMA user_version={sqlite.SCHEMA};"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        write(Path(directory) / "ledger.db")
        sys.stdout.write("\n".join(dump(Path(directory) / "ledger.db")) + "\n")
