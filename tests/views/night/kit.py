"""A night to report on, written row by row: the ledger and the account that a supervisor and a gateway would leave."""

from __future__ import annotations

import contextlib
import json
import random
import re
import sqlite3
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from supervisor.features.night import morning_json as night_report
from supervisor.features.night.morning_rows import Diff, Found
from supervisor.gateway.account import schema
from supervisor.host import files
from supervisor.host.paths import Home
from supervisor.kernel import codec
from supervisor.kernel.format import rfc3339
from supervisor.kernel.spec import TaskSpec
from supervisor.store import sqlite
from tests.views.report.kit import group

RUN = "1122-n1gh"
BEGAN = 1_795_386_600.0
"""2026-11-22 22:30 UTC, in seconds since 1970."""
HOUR = 3600.0
MODELS = ("claude-opus-4-8", "claude-haiku-4-5", "gpt-5.2")


@dataclass
class Books:
    """Both files of one home, open for writing."""

    home: Home
    ledger: sqlite3.Connection
    account: sqlite3.Connection
    names: list[str] = field(default_factory=list)

    def run(
        self, run: str = RUN, *, title: str = "night of the 22nd", root: str = "/srv/shop", created: float = BEGAN, oid: str = "ba5e"
    ) -> None:
        self.ledger.execute("INSERT OR REPLACE INTO project VALUES ('p', ?, ?, 0)", (root, f"{root}/.git"))
        shape = {"id": run, "key": run, "project": "p", "title": title, "base": "main", "base_oid": oid, "env": "{}", "created": created}
        _insert(self.ledger, "run", shape)

    def task(
        self, name: str, state: str = "done", reason: str = "", *, run: str = RUN, title: str = "", epoch: int = 0, **spec: Any
    ) -> str:
        """A task without an attempt; its full id."""
        task = f"{run}/{name}"
        shape = codec.dumps(TaskSpec(name, title or name, spec.pop("kind", "claude"), (), prompt="do it", **spec))
        self.ledger.execute(
            "INSERT INTO task (id, run, project, name, title, spec, state, reason, epoch, changed) VALUES (?, ?, 'p', ?, ?, ?, ?, ?, ?, ?)",
            (task, run, name, title or name, shape, state, reason, epoch, BEGAN),
        )
        self.note(task, None, "submitted", at=BEGAN)
        return task

    def attempt(self, task: str, epoch: int, created: float, ended: float | None, end: str | None = "done", **more: Any) -> None:
        """One attempt, with `result`, `account` and `cause` where they are given."""
        wanted = {"state": "released" if end else "running", "started": created + 1.0, "base_oid": "ba5e", **more}
        shape = {name: json.dumps(value) if isinstance(value, dict) else value for name, value in wanted.items()}
        _insert(self.ledger, "attempt", {"task": task, "epoch": epoch, "created": created, "ended": ended, "end": end, **shape})
        self.ledger.execute("UPDATE task SET epoch = max(epoch, ?) WHERE id = ?", (epoch, task))

    def note(self, task: str | None, epoch: int | None, event: str, at: float, **data: Any) -> None:
        self.ledger.execute(
            "INSERT INTO journal (at, task, epoch, event, data) VALUES (?, ?, ?, ?, ?)", (at, task, epoch, event, json.dumps(data))
        )

    def request(self, task: str, epoch: int, at: float, **more: Any) -> None:
        """A request that was served; `more` are other columns of its row."""
        tokens = {"input": 100, "output": 50, "cache_read": 800, "cache_write": 100, "cost_usd": 0.01}
        row: dict[str, Any] = {"at": at, "agent": task, "epoch": epoch, "class": "batch", "model": MODELS[0], "model_class": "opus"}
        row |= {"api": "anthropic", "account": "a", "upstream": "anthropic", "session": "", "body_key": "", "attempt_no": 1}
        row |= {"long_context": 0, "queued_ms": 0.0, "bound_usd": 0.1, "end": "served", "status": 200, "total_ms": 4000.0}
        row |= {f"bound_{kind}": 1 for kind in ("input", "output", "cache_read", "cache_write")}
        _insert(self.account, "request", row | tokens | more)


def _insert(db: sqlite3.Connection, table: str, row: dict[str, Any]) -> None:
    marks = ", ".join("?" * len(row))
    db.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})", tuple(row.values()))  # noqa: S608 - names of ours


@contextlib.contextmanager
def books(root: Path) -> Any:
    """New ones below `root`; what is written is there when this is left."""
    home = Home(files.private_dir(root))
    with contextlib.closing(sqlite.connect(home.ledger)) as ledger, contextlib.closing(schema.connect(home.gateway_account)) as account:
        ledger.execute("BEGIN")
        account.execute("BEGIN")
        yield Books(home, ledger, account)
        ledger.execute("COMMIT")
        account.execute("COMMIT")


def account(wall_s: float, **parts: float | None) -> dict[str, Any]:
    """As `core.account.closed` makes it; what is not given is its own work."""
    known = {"slot_queue_s": 0.0, "launch_s": 1.0, "model_s": 0.0, "token_queue_s": 0.0, "human_s": None, "paused_s": 0.0, **parts}
    away = sum(known[name] or 0.0 for name in ("model_s", "token_queue_s", "human_s", "paused_s"))
    return {"wall_s": wall_s, **known, "local_s": max(0.0, wall_s - away), "cpu_s": 1.0, "samples": 3}


def result(task: str, epoch: int = 1, *, commits: int = 1, gate: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """Enough of a `result.json` for the report."""
    return {
        "schema": 1,
        "task": task,
        "epoch": epoch,
        "branch": f"nightcrew/{task}/work" if commits else None,
        "tip": "c0ffee" if commits else None,
        "commits": commits,
        "diff": {"files": 2, "plus": 30, "minus": 4},
        "tokens": {"input": None, "output": None, "cache_read": None, "cache_write": None, "estimated": None},
        "models": [],
        "cost_usd": None,
        "notes": [],
        "gate": gate,
        "agent": {"message": "All done."},
        "ended": rfc3339(BEGAN),
        **more,
    }


def random_night(root: Path, tasks: int, seed: int) -> Home:
    """A night of so many tasks: some fail, are tried again, ask, are killed, never start; with requests, pauses and outages."""
    chance = random.Random(seed)
    with books(root) as made:
        made.run()
        at = BEGAN
        for number in range(tasks):
            at = _random_task(made, chance, f"t{number:03}", at)
        made.note(None, None, "outage", at=BEGAN + HOUR, why="no provider serves anything")
        made.note(None, None, "outage over", at=BEGAN + HOUR + 900)
        made.note(None, None, "machine slept", at=BEGAN + 3 * HOUR, seconds=1800.0, **{"from": BEGAN + 2.5 * HOUR, "to": BEGAN + 3 * HOUR})
    return Home(root)


def _random_task(made: Books, chance: random.Random, name: str, at: float) -> float:
    state = chance.choice(["done"] * 6 + ["failed", "expired", "cancelled", "skipped", "quarantined"])
    reason = {"done": "", "expired": "the night ended at 06:30", "failed": f"gate: exit code {chance.randint(1, 3)}"}.get(state, state)
    task = made.task(name, state, reason, title=f"Task {name} of many")
    if state in ("expired", "skipped"):
        return at
    tries = chance.choice((1, 1, 1, 2, 3))
    for epoch in range(1, tries + 1):
        wall = chance.uniform(20, 900)
        end = "failed" if epoch < tries or state != "done" else "done"
        waits, model = chance.uniform(0, wall / 3), chance.uniform(0, wall / 3)
        paused, human = chance.choice((0.0, 5.0)), chance.choice((None, 3.0))
        own = account(wall, slot_queue_s=chance.uniform(0, 300), token_queue_s=waits, model_s=model, paused_s=paused, human_s=human)
        cause = "" if epoch == 1 else "the attempt before failed"
        shape = result(task, epoch, commits=chance.randint(0, 3), gate={"passed": end == "done", "why": "exit code 1"})
        made.attempt(
            task, epoch, at, at + wall + 1.0, end, account=own, result=shape, cause=cause, end_cause="" if end == "done" else reason
        )
        for _ in range(chance.randint(0, 8)):
            _random_request(made, chance, task, epoch, at + chance.uniform(5, wall))
        at += chance.uniform(0, wall / 4)
    return at


def _random_request(made: Books, chance: random.Random, task: str, epoch: int, at: float) -> None:
    tokens = {kind: chance.randint(0, 20_000) for kind in ("input", "output", "cache_read", "cache_write")}
    row: dict[str, Any] = {"model": chance.choice(MODELS), "queued_ms": chance.choice((0.0, 90.0, 12_000.0)), **tokens, "cost_usd": 0.0125}
    if chance.random() < 0.1:
        row |= {"end": "refused", "status": 429, "cost_usd": 0.0, **dict.fromkeys(tokens, 0)}
    elif chance.random() < 0.05:
        row |= {"cost_usd": None}
    elif chance.random() < 0.05:
        row |= {"estimated": 1, "end": "cut"}
    made.request(task, epoch, at, **row)


def sample(root: Path) -> dict[str, Any]:
    """The report of a night in which there is something of everything. Every text that an agent, a repository or a plan can choose is
    `name` or, where it may have several lines, `line`, with a number."""
    texts = iter(f"name{number}" for number in range(100))
    with books(root) as made:
        made.run("1121-0ld1", title=next(texts), created=BEGAN - 24 * HOUR)
        old = made.task("lint", run="1121-0ld1")
        made.attempt(old, 1, BEGAN - 24 * HOUR, BEGAN - 23 * HOUR, account=account(HOUR), result=result(old))
        made.run(title=next(texts), root=f"/srv/{next(texts)}")
        asks = made.task("asks", "running", title=next(texts))
        made.attempt(asks, 1, BEGAN, None, None)
        made.note(asks, 1, "set aside", BEGAN + HOUR, question="line0\nline1")
        for number in range(2):
            task = made.task(f"ready-{number}", title=next(texts))
            gate = {"passed": number == 0, "why": next(texts)}
            notes = [f"tampering: {next(texts)}"]
            made.attempt(
                task,
                1,
                BEGAN,
                BEGAN + HOUR,
                account=account(HOUR, token_queue_s=90.0),
                result=result(task, gate=gate, notes=notes, rescue="0ther"),
            )
            made.request(task, 1, BEGAN + 600, queued_ms=90_000.0, model=next(texts))
        bad = made.task("bad", "failed", f"failed: gate: {next(texts)}", title=next(texts))
        for epoch in (1, 2):
            made.attempt(
                bad,
                epoch,
                BEGAN + epoch,
                BEGAN + epoch + HOUR / 3,
                "failed",
                account=account(HOUR / 3),
                cause=next(texts),
                end_cause="gate: no",
            )
        made.task("late", "expired", next(texts), title=next(texts))
        made.note(None, None, "outage", BEGAN + 60, why=next(texts))
        made.note(None, None, "outage over", BEGAN + 960)
        made.note(None, None, "machine slept", BEGAN + 2 * HOUR, seconds=600.0, **{"from": BEGAN + HOUR, "to": BEGAN + HOUR + 600})
        made.note(None, None, "machine rebooted", BEGAN + HOUR, why=next(texts))
    night, old_night = night_report.read(made.home, RUN, BEGAN + 9 * HOUR), night_report.read(made.home, "1121-0ld1", BEGAN)
    diff = "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-line2\n+line3\n line4\n"
    ready = [f"{RUN}/ready-{number}" for number in range(2)]
    found = Found(
        on=next(texts),
        with_base={ready[0]: (next(texts),)},
        with_others={ready[0]: {ready[1]: (next(texts),)}, ready[1]: {ready[0]: (next(texts),)}},
        diffs={asks: Diff(diff, next(texts)), bad: Diff(diff)},
        printed={bad: "line5\nline6"},
        trouble=next(texts),
    )
    return night_report.of(night, found, old_night) | {"choices": [group(tuple(next(texts) for _ in range(11)))]}


def with_texts(made: Any, texts: tuple[str, ...]) -> Any:
    """The sample with these texts in turn; those with a line break are left out where several lines are meant."""
    lines = [text for text in texts if "\n" not in text]

    def put(found: re.Match[str]) -> str:
        some = lines if found[1] == "line" else texts
        return some[int(found[2]) % len(some)]

    match made:
        case str():
            return re.sub(r"\b(name|line)(\d+)\b", put, made)
        case dict():
            return {key: with_texts(value, texts) for key, value in made.items()}
        case list():
            return [with_texts(value, texts) for value in made]
        case _:
            return made
