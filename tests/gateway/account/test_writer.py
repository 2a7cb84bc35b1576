"""The account's writer: durable before it says so, nothing lost, nothing counted twice."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from supervisor.core.errors import DiskFull, LedgerError
from supervisor.core.gateway import commands
from supervisor.core.gateway.nouns import BreakerState, PoolKey, Usage
from supervisor.gateway.account import schema
from supervisor.gateway.account.rows import NEVER_SENT, REFUSED, OpenRow, RecordingRow, SettledRow, TurnedAwayRow
from supervisor.gateway.account.writer import Account
from tests.gateway.account.kit import AGENT, LANE, NOW, Wall, away, opened, rows, served


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "gateway.db"


@contextlib.asynccontextmanager
async def account(path: Path, wall: Wall | None = None) -> AsyncIterator[Account]:
    made = Account(path, wall or Wall())
    made.start()
    try:
        yield made
    finally:
        await made.close()


async def until_saved(path: Path, sql: str, number: int) -> None:
    while rows(path, sql)[0]["n"] != number:  # pytest's own time limit ends a wait in vain
        await asyncio.sleep(0.005)


# Requests ---------------------------------------------------------------------------------------------------------------------------


@pytest.mark.asyncio
async def test_a_request_is_on_disk_when_open_returns(path: Path) -> None:
    async with account(path) as book:
        row_id = await book.open(opened())
        (row,) = rows(path)
        assert (row["id"], row["agent"], row["model"], row["account"], row["end"]) == (row_id, AGENT, "claude-opus-4-8", "work", None)
        assert (row["bound_input"], row["bound_output"], row["bound_usd"], row["input"], row["cost_usd"]) == (
            20_000,
            64_000,
            1.7,
            None,
            None,
        )


@pytest.mark.asyncio
async def test_a_settled_row_says_what_it_took(path: Path) -> None:
    async with account(path) as book:
        row_id = await book.open(opened(attempt_no=3))
        book.settle(row_id, served(retries=2, flags=("partial", "usage duplicated"), breaker="half-open"))
        await until_saved(path, "SELECT count(end) AS n FROM request", 1)
        (row,) = rows(path)
    wanted = {
        "end": "served", "status": 200, "input": 1000, "output": 50, "cache_read": 4000, "cache_write": 300, "estimated": 0,
        "cost_usd": 0.02, "queued_ms": 1500.0, "first_byte_ms": 2500.0, "total_ms": 6500.0, "retries": 2, "attempt_no": 3,
        "breaker": "half-open", "flags": "partial,usage duplicated", "class": "normal", "model_class": "opus-4",
    }  # fmt: skip
    assert {key: row[key] for key in wanted} == wanted


@pytest.mark.asyncio
async def test_what_nobody_learned_is_charged_at_its_bound_and_says_so(path: Path) -> None:
    async with account(path) as book:
        book.settle(await book.open(opened()), served(usage=None, cost_usd=0.5, end="cut"))
        book.settle(await book.open(opened(bound_usd=None)), served(usage=None, cost_usd=None, end="cut"))
        book.settle(await book.open(opened()), served(usage=Usage(10, 7), cost_usd=0.001, end="client gone", estimated=True))
    known, unpriced, seen = rows(path)
    assert [(row["input"], row["output"], row["estimated"], row["cost_usd"]) for row in (known, unpriced, seen)] == [
        (20_000, 64_000, 1, 1.7),
        (20_000, 64_000, 1, None),
        (10, 7, 1, 0.001),
    ]


@pytest.mark.asyncio
async def test_a_cost_that_nobody_knows_is_null_and_never_zero(path: Path) -> None:
    async with account(path) as book:
        book.settle(await book.open(opened(bound_usd=None)), served(cost_usd=None))
    assert rows(path)[0]["cost_usd"] is None


@pytest.mark.asyncio
async def test_the_first_settling_counts(path: Path) -> None:
    async with account(path) as book:
        row_id = await book.open(opened())
        book.settle(row_id, served())
        book.settle(row_id, served(usage=Usage(9, 9), cost_usd=9.0))
        book.settle(12345, served())
    assert [(row["input"], row["cost_usd"]) for row in rows(path)] == [(1000, 0.02)]


@pytest.mark.asyncio
async def test_a_client_that_leaves_before_the_sending_costs_nothing(path: Path) -> None:
    async with account(path) as book:
        with writing_blocked(path):
            asked = asyncio.create_task(book.open(opened()))
            await asyncio.sleep(0)
            asked.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asked
    (row,) = rows(path)
    assert (row["end"], row["input"], row["output"], row["cost_usd"], row["estimated"]) == (NEVER_SENT, 0, 0, 0.0, 0)


@contextlib.contextmanager
def writing_blocked(path: Path) -> Iterator[None]:
    """Somebody else holds the file's lock."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


@pytest.mark.asyncio
async def test_all_that_wait_are_committed_at_once(path: Path) -> None:
    """While the disk is busy with one commit, the others gather: a thousand requests are not a thousand syncs."""
    async with account(path) as book:
        await book.open(opened())
        before = commits(path)
        ids = await asyncio.gather(*(book.open(opened()) for _ in range(1000)))
        assert len(set(ids)) == 1000 and len(rows(path)) == 1001
        assert 1 <= commits(path) - before <= 20


def commits(path: Path) -> int:
    """Transactions in SQLite's log: frames that say how large the database is after them (https://sqlite.org/fileformat2.html#walformat)."""
    log = path.with_name(f"{path.name}-wal").read_bytes()
    salt, page = log[16:24], int.from_bytes(log[8:12], "big")
    frames = [log[at : at + 24] for at in range(32, len(log), 24 + page)]
    return sum(int.from_bytes(frame[4:8], "big") > 0 for frame in frames if frame[8:16] == salt)


@pytest.mark.asyncio
async def test_what_nobody_waits_for_is_saved_soon_by_itself(path: Path) -> None:
    async with account(path) as book:
        row_id = await book.open(opened())
        book.settle(row_id, served())
        book.turned_away(away())
        await until_saved(path, "SELECT count(end) + (SELECT count(*) FROM turned_away) AS n FROM request", 2)


# Whatever a client or a provider says -------------------------------------------------------------------------------------------------


@pytest.mark.asyncio
async def test_no_write_is_overlooked_whenever_it_comes(path: Path) -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    chance = random.Random(seed)
    async with account(path) as book:
        for number in range(1, 60):  # the writer is asleep, awake, or on its way between the two
            await asyncio.sleep(chance.choice((0.0, 0.0, 0.002, 0.051, 0.06)))
            row_ids = await asyncio.gather(*(book.open(opened(agent=f"r/{number}")) for _ in range(chance.choice((1, 1, 2, 5)))))
            if chance.random() < 0.5:
                await asyncio.sleep(chance.choice((0.0, 0.049, 0.05, 0.1)))
            for row_id in row_ids:
                book.settle(row_id, served())
            if chance.random() < 0.3:
                await until_saved(path, "SELECT count(*) AS n FROM request WHERE end IS NULL", 0)
        await until_saved(path, "SELECT count(*) AS n FROM request WHERE end IS NULL", 0)


@pytest.mark.asyncio
async def test_strange_names_and_numbers_take_down_no_row(path: Path) -> None:
    nan, far = float("nan"), 10**30
    async with account(path) as book:
        strange = opened(model="m\ud800\x00" + "x" * 10_000, session="\udcff", queued_ms=nan, bound=Usage(far, -5), bound_usd=float("inf"))
        odd, plain = await asyncio.gather(book.open(strange), book.open(opened()))
        book.settle(odd, served(usage=Usage(-1, far), cost_usd=nan, first_byte_ms=nan, flags=("\ud800",)))
        book.settle(plain, served())
        book.turned_away(away(why="\ud800", waited_ms=nan))
        book.journal(change(numbers={"x": nan}))
    first, second = rows(path)
    assert (first["input"], first["cost_usd"], first["first_byte_ms"], first["bound_usd"]) == (0, None, None, None)
    assert len(first["model"]) <= 310 and first["output"] == 2**53
    assert second["input"] == 1000
    assert len(rows(path, "SELECT * FROM turned_away")) == 1


# Death ------------------------------------------------------------------------------------------------------------------------------


@pytest.mark.asyncio
async def test_rows_that_are_open_at_the_start_are_charged_at_their_bound_and_marked(path: Path) -> None:
    async with account(path) as book:
        settled = await book.open(opened())
        book.settle(settled, served())
        left = [opened(), opened(agent="1121-k3f9/other", bound_usd=None)]
        for row in left:
            await book.open(row)
    again = Account(path, Wall())
    assert again.start() == left
    new = await again.open(opened())
    await again.close()
    first, *crashed, last = rows(path)
    assert first["end"] == "served" and last["id"] == new == 4
    assert [(row["end"], row["input"], row["output"], row["cost_usd"], row["estimated"]) for row in crashed] == [
        ("crashed", 20_000, 64_000, 1.7, 1),
        ("crashed", 20_000, 64_000, None, 1),
    ]
    third = Account(path, Wall())
    assert [row.agent for row in third.start()] == [AGENT], "only the one that was open then"
    await third.close()


PROGRAM = """
import asyncio, sys
from pathlib import Path
from supervisor.gateway.account.writer import Account
from tests.gateway.account.kit import Wall, opened, served

async def main():
    book = Account(Path(sys.argv[1]), Wall())
    book.start()
    async def client(number):
        while True:
            row = await book.open(opened(agent=f"run/agent-{number}", bound_usd=1.0))
            print("opened", row, flush=True)
            await asyncio.sleep(0)
            book.settle(row, served(cost_usd=0.25))
    await asyncio.gather(*(client(number) for number in range(20)))

asyncio.run(main())
"""


def test_kill_9_loses_no_request_that_was_opened(path: Path) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    child = subprocess.Popen([sys.executable, "-c", PROGRAM, str(path)], stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[3])
    assert child.stdout is not None
    lines = [child.stdout.readline() for _ in range(random.Random(seed).randrange(200, 600))]
    os.kill(child.pid, signal.SIGKILL)
    lines += child.communicate()[0].splitlines(keepends=True)
    said = {int(line.split()[1]) for line in lines if line.endswith("\n")}
    book = Account(path, Wall())
    crashed = book.start()
    asyncio.run(book.close())
    found = {row["id"]: row for row in rows(path)}
    assert len(said) >= 200 and said <= found.keys(), "what was acknowledged is there"
    assert all(row["end"] in ("served", "crashed") for row in found.values())
    assert len(crashed) == sum(row["end"] == "crashed" for row in found.values()) <= 20 * 2
    assert sum(row["cost_usd"] for row in found.values()) == 0.25 * (len(found) - len(crashed)) + 1.0 * len(crashed)


# Disk ---------------------------------------------------------------------------------------------------------------------------------


@pytest.mark.asyncio
async def test_an_account_that_cannot_grow_refuses_new_requests(path: Path) -> None:
    book = Account(path, Wall())
    book.start()
    ids = [await book.open(opened()) for _ in range(20)]
    await book._written("PRAGMA max_page_count=1", ())  # SQLite takes as many as there are
    with pytest.raises(DiskFull) as caught:
        await open_for_ever(book, ids)
    assert "cannot write the account" in caught.value.line() and "kept: everything committed before" in caught.value.line()
    for row_id in ids:
        book.settle(row_id, served(flags=("x" * 300,)))  # longer than before: it finds no room either
    with pytest.raises(DiskFull):
        await book.open(opened())
    assert isinstance(book.trouble, DiskFull)
    with pytest.raises(DiskFull):
        await book.close()
    again = Account(path, Wall())
    assert len(again.start()) == len(ids), "what could not be settled is charged at its bound"
    await again.close()


async def open_for_ever(book: Account, ids: list[int]) -> None:
    for _ in range(10_000):
        ids.append(await book.open(opened(session="x" * 300)))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Two megabytes, mounted."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small file system")
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", place], capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"this root may not mount: {mounted.stderr.strip()}")
    yield place
    subprocess.run(["umount", "-l", place], check=True)


@pytest.mark.root
@pytest.mark.asyncio
async def test_a_full_disk_loses_no_request_that_was_settled(small_disk: Path) -> None:
    path = small_disk / "gateway.db"
    async with account(path) as book:
        ids = [await book.open(opened()) for _ in range(20)]
        fill(small_disk / "ballast")
        with pytest.raises(DiskFull):
            await open_for_ever(book, ids)
        for row_id in ids:
            book.settle(row_id, served(flags=("x" * 300,)))
        with pytest.raises(DiskFull):
            await book.open(opened())
        assert {row["id"] for row in rows(path)} == set(ids)
        (small_disk / "ballast").unlink()
        await until_saved(path, "SELECT count(end) AS n FROM request", len(ids))
        assert book.trouble is None
        await book.open(opened())


def fill(ballast: Path) -> None:
    with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(bytes(4096)):
            pass


@pytest.mark.asyncio
async def test_a_file_that_is_taken_away_is_noticed_before_the_next_sending(path: Path) -> None:
    book = Account(path, Wall())
    book.start()
    path.rename(path.with_name("elsewhere.db"))
    with pytest.raises(LedgerError, match="the account was moved or removed"):
        await book.open(opened())
    path.with_name("elsewhere.db").rename(path)
    await book.open(opened())
    await book.close()


@pytest.mark.asyncio
async def test_a_request_that_comes_after_the_end_does_not_wait_for_ever(path: Path) -> None:
    book = Account(path, Wall())
    book.start()
    row_id = await book.open(opened())
    await book.close()
    with pytest.raises(LedgerError, match="the account is closed"):
        await book.open(opened())
    book.settle(row_id, served())  # too late, and no reason to fail: the next start charges it at its bound
    assert [row["end"] for row in rows(path)] == [None]


@pytest.mark.parametrize("content", [b"", b"no database at all" * 1000])
def test_a_damaged_account_is_refused_and_left_as_it_was(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    book = Account(path, Wall())
    with pytest.raises(LedgerError, match="the account is damaged") as caught:
        book.start()
    assert "the ledger, branches and worktrees are untouched" in caught.value.line()
    assert path.read_bytes() == content


def test_a_newer_account_is_refused(path: Path) -> None:
    schema.connect(path).close()
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA user_version=7")
    with pytest.raises(LedgerError, match="the account is newer"):
        Account(path, Wall()).start()


# Memory and history -----------------------------------------------------------------------------------------------------------------


def change(**facts: Any) -> commands.Journal:
    shape: dict[str, Any] = {
        "pool": PoolKey("work", LANE), "breaker": "limit", "before": BreakerState.CLOSED, "after": BreakerState.OPEN, "why": "429",
        "numbers": {"level": -5.0},
    }  # fmt: skip
    return commands.Journal(**{**shape, **facts})


@pytest.mark.asyncio
async def test_what_was_learned_is_remembered_over_a_restart(path: Path) -> None:
    async with account(path) as book:
        assert book.recall() == {}
        book.remember({"limits": [1]})
        book.remember({"limits": [1, 2]})
    async with account(path) as book:
        assert book.recall() == {"limits": [1, 2]}


@pytest.mark.asyncio
async def test_breakers_and_alerts_are_kept_with_their_numbers(path: Path) -> None:
    async with account(path) as book:
        book.journal(change())
        book.alert(commands.Alert("key of work", "the key of work was refused"))
    breaker, alert = rows(path, "SELECT * FROM journal ORDER BY seq")
    assert (breaker["about"], breaker["event"], breaker["at"]) == ("work/anthropic/opus-4", "breaker", NOW)
    assert breaker["data"] == '{"breaker": "limit", "before": "closed", "after": "open", "why": "429", "numbers": {"level": -5.0}}'
    assert (alert["about"], alert["event"], alert["data"]) == ("key of work", "alert", '{"text": "the key of work was refused"}')


class Heard:
    """A listener that keeps what it hears."""

    def __init__(self) -> None:
        self.told: list[object] = []

    def settled(self, opened: OpenRow, settled: SettledRow) -> None:
        self.told.append((opened.model, settled.end))

    def turned_away(self, row: TurnedAwayRow) -> None:
        self.told.append(row.status)

    def changed(self, change: commands.Journal) -> None:
        self.told.append(change.after)


@pytest.mark.asyncio
async def test_a_listener_hears_everything_once(path: Path) -> None:
    heard = Heard()
    book = Account(path, Wall(), heard)
    book.start()
    row_id = await book.open(opened())
    book.settle(row_id, served())
    book.settle(row_id, served())
    book.turned_away(away())
    book.journal(change())
    await book.close()
    assert heard.told == [("claude-opus-4-8", "served"), 429, BreakerState.OPEN]


# A restart, and retention --------------------------------------------------------------------------------------------------------------


@pytest.mark.asyncio
async def test_a_restart_knows_what_was_charged_lately(path: Path) -> None:
    wall = Wall()
    async with account(path, wall) as book:
        for at, facts in ((NOW - 300, {}), (NOW - 30, {}), (NOW - 90, {"total_ms": 86_500.0})):
            book.settle(await book.open(opened(at=at)), served(**facts))
        book.settle(await book.open(opened(at=NOW - 1)), served(end=REFUSED, usage=Usage(), status=429, cost_usd=0.0))
        await book.open(opened(at=NOW - 10))
    async with account(path, wall) as book:
        pool = PoolKey("work", LANE)
        assert book.recent(60.0) == [
            (pool, 30.0, Usage(input=1000, cache_read=4000, cache_write=300), AGENT),
            (pool, 25.0, Usage(output=50), AGENT),
            (pool, 10.0, Usage(input=20_000), AGENT),
            (pool, 5.0, Usage(output=50), AGENT),
            (pool, 0.0, Usage(output=3001), AGENT),
        ]
        assert book.spent(AGENT) == pytest.approx(3 * 0.02 + 1.7)
        assert book.spent("1121-k3f9/nobody") == 0.0
        assert book.spent_since(60.0) == pytest.approx(0.02 + 1.7)
        wall.now -= 3600
        assert {age for _, age, *_ in book.recent(60.0)} == {0.0}, "a clock that was set back makes nothing forgotten"


@pytest.mark.asyncio
async def test_pruning_forgets_what_is_old_and_nothing_that_is_open(path: Path) -> None:
    wall = Wall()
    async with account(path, wall) as book:
        day = 86_400.0
        ids = await asyncio.gather(*(book.open(opened(at=NOW - 40 * day)) for _ in range(1200)))
        for row_id in ids[1:]:
            book.settle(row_id, served())
            book.recorded(RecordingRow(row_id, "1121-k3f9", "POST /v1/messages", "ab", 200, "f", NOW - 40 * day))
        kept = await book.open(opened(at=NOW - day))
        book.settle(kept, served())
        book.turned_away(away(at=NOW - 40 * day))
        book.turned_away(away(at=NOW - day))
        wall.now -= 40 * day
        book.journal(change())
        wall.now = NOW
        assert await book.prune(30 * day) == 1199 + 1199 + 1 + 1
        assert [row["id"] for row in rows(path)] == [ids[0], kept]
        assert rows(path, "SELECT at FROM turned_away") == [{"at": NOW - day}]
        assert rows(path, "SELECT * FROM recording") == []
        assert await book.prune(30 * day) == 0


@pytest.mark.asyncio
async def test_the_window_is_read_beside_the_writing(path: Path) -> None:
    async with account(path) as book:
        book.settle(await book.open(opened()), served())
        await until_saved(path, "SELECT count(end) AS n FROM request", 1)
        window = await book.window(60.0)
        assert window.agents[AGENT].requests == 1


def test_nothing_is_left_of_a_start_that_failed(path: Path) -> None:
    path.mkdir()
    before = set(threading.enumerate())
    with pytest.raises(LedgerError):
        Account(path, Wall()).start()
    assert set(threading.enumerate()) == before
