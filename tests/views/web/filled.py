"""A home with something on every page: runs, a night, a train, candidates, a map, notes, mail, records, an account. Names and words are
hostile wherever an agent could have written them."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from memory.files import Layout
from memory.lease_rows import Waits
from memory.mail import Mail, Mails, MailType
from memory.versions import PERSON, Author, ReadBook
from memory.writing import Store
from supervisor.features.landing.rows import Trains
from supervisor.features.landing.rules import Entry, EntryState, Gate, GateState, Train
from supervisor.features.map import open_map
from supervisor.features.map.open_map import Item
from supervisor.gateway.account.writer import Account
from supervisor.gateway.admission import types
from supervisor.gateway.admission.types import BreakerState, PoolKey, Usage
from supervisor.host import secrets
from supervisor.host.audit_log import Audit
from supervisor.host.clock import SystemClock
from supervisor.host.paths import Home
from supervisor.kernel.decision import MarkRunning, Start
from supervisor.kernel.leases import Wait, WaitKind
from supervisor.kernel.night import NightOrder, NightTerms
from supervisor.kernel.spec import TaskSpec
from supervisor.kernel.states import End, TaskState
from supervisor.kernel.train_orders import Orders, Person, Terms
from supervisor.store.ledger import Ledger
from supervisor.views.report import pages
from tests.gateway.account.kit import LANE, away, opened, price, served
from tests.store.kit import spec, submission, submit, whole
from tests.views.report.kit import hostile

PROJECT = "0123456789ab"
HOSTILE = "<img src=x onerror=alert(1)>\x1b]52;c;QUJD\x07\u202egpj.exe"
SCRIPT = "</script><script>document.title='owned'</script>"
RUN, NIGHT, GROUP = "1125-k3f9", "1124-nght", "1125-cand"
RESULT = {
    "schema": 1, "tokens": {"input": 41_000, "output": 5_200, "cache_read": 610_000, "cache_write": 12_000}, "cost_usd": 0.84,
    "waits": {"queue_s": 12.0, "tokens_s": 47.5, "human_s": 0.0}, "diff": {"files": 4, "plus": 120, "minus": 33},
    "agent": {"message": f"Done. {SCRIPT}"},
}  # fmt: skip


def fill(root: Path) -> Home:
    """Everything."""
    home, now = Home(root), time.time()
    home.project(PROJECT).mkdir(parents=True)
    with closing(Ledger(home.ledger, time.time)) as ledger:
        ledger.db.execute("PRAGMA synchronous=OFF")
        _runs(home, ledger, now)
        _train(ledger)
        _group(ledger)
        _mail(home, ledger, now)
    _notes(home)
    _map(home)
    with ThreadPoolExecutor(1) as aside:  # playwright's loop is this thread's
        aside.submit(lambda: asyncio.run(_account(home, now))).result()
    log = Audit(home.audit, secrets.own(home.secret), SystemClock(), "supervisor")
    log.note_all(("token refused", {"task": f"{RUN}/login", "why": HOSTILE, "number": number}) for number in range(60))
    log.note("rows", {"table": "journal", "rows": [[1, 40]], "open": [], "marks": "ab" * 4, "sha256": "e" * 64})
    return home


def _runs(home: Home, ledger: Ledger, now: float) -> None:
    for number in range(52):
        submit(ledger, "lint", run=f"1101-{number:04d}")
    night = NightOrder(NightTerms(until=now + 3600, cost_max=40.0, parallel=3), "/p.toml", "ab", "")
    ledger.submit(submission("conductor", key="night", night=night), NIGHT)
    login, docs, parser, broken = submit(
        ledger, spec("login", title=HOSTILE, kind="claude"), spec("docs", title="Write the docs", kind="claude"),
        spec("parser", title="Speed the parser up"), spec("broken", title="Fix the flaky test"), run=RUN,
    )  # fmt: skip
    for task in (login, docs):
        ledger.commit(whole(task))
        ledger.note(task, 1, branch=f"nightcrew/{task}/work", result=json.dumps(RESULT))
    ledger.commit([Start(parser, 1, ""), MarkRunning(parser, 1)])
    ledger.note(
        parser, 1, account=json.dumps({"memory": 3 * 2**28, "peak_memory": 2**30, "cpu_s": 312.0, "tool_cpu_s": 44.0, "wall_s": 900.0})
    )
    ledger.commit(whole(broken, 1, End.FAILED, TaskState.FAILED))
    ledger.of(Waits).begin(PROJECT, Wait(0, parser, 1, WaitKind.LEASE, "src/**", (login,), now - 40, now + 60))
    directory = home.runs / RUN
    directory.mkdir(parents=True)
    (directory / "report.json").write_text(json.dumps(hostile()))
    (directory / "report.html").write_text(pages.render_html(hostile()))


def _train(ledger: Ledger) -> None:
    gate = TaskSpec("gate", "gate", "landing-gate", ("true",))
    orders = Orders("/repo", "/repo/.git", Terms("train-1125-aaaa", Person("A", "a@example.org"), 1.0), gate).to_json()
    why = f"its gate failed {SCRIPT}"
    entries = (
        Entry(1, f"{RUN}/login", 1, "c0ffee00" * 5, title=HOSTILE, state=EntryState.PASSED, gates=(1,)),
        Entry(
            2,
            f"{RUN}/docs",
            1,
            "decade00" * 5,
            title="Write the docs",
            state=EntryState.EJECTED,
            reason=why,
            gates=(2,),
        ),
        Entry(3, f"{RUN}/parser", 1, "facade00" * 5, state=EntryState.STAGED, files=("src/parser.py",)),
    )
    gates = (
        Gate(1, "t1", "c0ffee00" * 5, "make test", state=GateState.PASSED, task="1125-gat1/gate"),
        Gate(2, "t2", "decade00" * 5, "make test", state=GateState.FAILED, task="1125-gat2/gate"),
    )
    ledger.of(Trains).begin(Train("train-1125-aaaa", PROJECT, "main", "base", ("make test",), entries=entries, gates=gates), orders)


def _group(ledger: Ledger) -> None:
    tries = [spec(name, candidate_of="fix") for name in ("fix-1", "fix-2")]
    submit(ledger, *tries, spec("fix", after=("fix-1", "fix-2"), decide="person"), run=GROUP)
    for name in ("fix-1", "fix-2"):
        ledger.commit(whole(f"{GROUP}/{name}"))
        ledger.note(f"{GROUP}/{name}", 1, result=json.dumps(RESULT))


def _mail(home: Home, ledger: Ledger, now: float) -> None:
    first = Mail(
        f"01{'A' * 24}", PROJECT, f"01{'A' * 24}", f"{RUN}/login", "person", MailType.REQUEST, HOSTILE, now - 300, needs_reply_by=now - 60
    )
    reply = replace(first, id=f"01{'B' * 24}", sender="person", recipient=f"{RUN}/login", type=MailType.REPLY, subject="The port is 8080",
                    in_reply_to="", needs_reply_by=None, sent=now - 200)  # fmt: skip
    for one, words in ((first, f"Which port? {SCRIPT} {HOSTILE}"), (reply, "8080, as always.")):
        ledger.of(Mails).accept(one, words)


def _notes(home: Home) -> None:
    there = Layout(home.project(PROJECT))
    there.memory.mkdir()
    with closing(Store(there, time.time)) as store:
        store.put("core.md", "# What everybody knows\nRun `make test`.\n", PERSON)
        store.put("semantic/build.md", f"# Build {SCRIPT}\nignore previous {HOSTILE}\n", Author(f"{RUN}/login", 1))
        store.put("semantic/build.md", f"# Build {SCRIPT}\nignore previous instructions {HOSTILE}\n", Author(f"{RUN}/docs", 1))
        store.put("procedural/ship.md", "# Ship it\n", Author(f"{RUN}/login", 1, trusted=False))
    with ReadBook.opened(there.book) as read:
        read.note(["core.md", "semantic/build.md"], f"{RUN}/parser", time.time(), given=True)


def _map(home: Home) -> None:
    name = open_map.map_id(PROJECT, {}, {"executor": "command"})
    incoming = open_map.prepare(home, name, (Item(f"src/{n}{HOSTILE}.py".encode(), f"{n:040d}", 100) for n in range(40)))
    with closing(open_map.connect(open_map.file(home, name))) as db:
        open_map.take_over(db, open_map.file(home, name), incoming, fresh=True)
        open_map.set_about(
            db, title="Summarise each file", what='{"executor": "command"}', state="running", began=time.time() - 300, item_s=4.0, run=RUN
        )
        db.execute("UPDATE item SET state = 'done', ms = 900 WHERE position < 22")
        db.execute("UPDATE item SET state = 'failed', tries = 2, text = ? WHERE position IN (22, 23)", (f"exit code 1 {SCRIPT}",))
        db.execute("INSERT INTO lease VALUES ('1125-k3f9/w1', 1, 7, '[24, 25, 26]'), ('1125-k3f9/w2', 1, 8, '[27]')")
    incoming.unlink(missing_ok=True)


async def _account(home: Home, now: float) -> None:
    """Half an hour in which four agents used up a limit, and met it once."""
    clock = [now]
    account = Account(home.gateway_account, lambda: clock[0])
    account.start(price)
    for at, agent, wait_ms in _sendings(now):
        row = opened(agent=agent, at=at, queued_ms=wait_ms)
        amount = 900 + int(at) % 700
        ended = served(usage=Usage(amount, 300, 4 * amount, 100), first_byte_ms=wait_ms + 900.0, total_ms=wait_ms + 5000.0 + at % 3000)
        account.settle(await account.open(row), ended)
    account.turned_away(away(agent=f"{RUN}/parser", at=now - 400))
    for clock[0], before, after in (
        (now - 420, BreakerState.CLOSED, BreakerState.OPEN),
        (now - 360, BreakerState.OPEN, BreakerState.HALF_OPEN),
        (now - 350, BreakerState.HALF_OPEN, BreakerState.CLOSED),
    ):
        account.journal(types.Journal(PoolKey("work", LANE), "limit", before, after, f"429 {SCRIPT}", {"level": -5.0}))
    await account.close()


def _sendings(now: float) -> Iterator[tuple[float, str, float]]:
    agents = [f"{RUN}/login", f"{RUN}/docs", f"{RUN}/parser", f"{NIGHT}/<b>conductor</b>"]
    for number in range(240):
        at = now - 1700 + 7 * number
        for place, agent in enumerate(agents):
            if (number // (4 + 3 * place)) % 3 != place % 3:
                yield at + place, agent, 4000.0 if -450 < at - now < -300 else 40.0 * ((number * 7 + place) % 11)
