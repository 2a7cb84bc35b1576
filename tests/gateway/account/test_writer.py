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
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.gateway.account.charges import NEVER_SENT
from supervisor.gateway.account.writer import Account
from supervisor.gateway.admission.types import Usage
from tests.gateway.account.kit import AGENT, Wall, account, away, change, opened, price, rows, served, unpriced, until_saved, usd

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
async def test_no_write_is_overlooked_whenever_it_comes(path: Path, seed: int) -> None:
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
async def test_rows_that_are_open_at_the_start_are_charged_what_was_expected_and_marked(path: Path) -> None:
    async with account(path) as book:
        settled = await book.open(opened())
        book.settle(settled, served())
        left = [opened(), opened(agent="1121-k3f9/other", model="unknown", bound_usd=None), opened(model="unknown")]
        for row in left:
            await book.open(row)
    again = Account(path, Wall())
    assert again.start(price) == left
    new = await again.open(opened())
    await again.close()
    first, *crashed, last = rows(path)
    assert first["end"] == "served" and last["id"] == new == 5
    assert {(row["end"], row["input"], row["output"], row["cache_read"], row["estimated"]) for row in crashed} == {
        ("crashed", 6000, 300, 4000, 1)
    }
    assert [row["cost_usd"] for row in crashed] == [usd(Usage(6000, 300, 4000)), None, 1.7], "a price that was lost is not 0"
    assert {(row["bound_input"], row["bound_output"]) for row in crashed} == {(20_000, 64_000)}, "it is kept beside"
    third = Account(path, Wall())
    assert [row.agent for row in third.start(price)] == [AGENT], "only the one that was open then"
    await third.close()


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("said", "passed", "charged"),
    [
        (None, 0, Usage(6000, 300, 4000)),
        (None, 700, Usage(6000, 700, 4000)),
        (Usage(2000, 1, 8000, 100), 20, Usage(2000, 300, 8000, 100)),
        (Usage(2000, 900, 8000, 100), 950, Usage(2000, 950, 8000, 100)),
        (Usage(2000, 1, 8000, 100, 60), 20, Usage(2000, 300, 8000, 100, 60)),
    ],
)
async def test_what_was_seen_of_an_open_row_is_charged(path: Path, said: Usage | None, passed: int, charged: Usage) -> None:
    async with account(path) as book:
        book.watch(await book.open(opened()), lambda: (said, passed))
        for _ in range(3):
            book.note()
    await reopened(path)
    (row,) = rows(path)
    assert Usage(*(row[kind] for kind in ("input", "output", "cache_read", "cache_write", "cache_write_1h"))) == charged
    assert row["cost_usd"] == pytest.approx(usd(charged))


async def reopened(path: Path) -> None:
    async with account(path):
        pass


@pytest.mark.asyncio
async def test_what_is_seen_is_written_once_and_not_after_the_end(path: Path) -> None:
    asked: list[str] = []

    def seen() -> tuple[Usage, int]:
        asked.append("")
        return Usage(5, 1), len(asked)

    async with account(path) as book:
        row_id = await book.open(opened())
        book.watch(row_id, seen)
        book.note()
        book.settle(row_id, served())
        book.note()
    assert (len(asked), rows(path)[0]["seen_output"], rows(path)[0]["output"]) == (1, 1, 50)


@pytest.mark.asyncio
async def test_the_answer_to_the_same_body_says_what_the_lost_one_took(path: Path) -> None:
    """The prompt of 9000 was written to the cache by the one, and read from it by the other; 4000 had been there before both. For how
    long it is kept nobody says, so it is charged as for an hour."""
    told: list[tuple[str, float]] = []
    async with account(path) as book:
        await book.open(opened())
        book.watch(await book.open(opened(body_key="other")), lambda: (Usage(50, 1, 0, 9000), 800))
        book.note()
    async with account(path) as book:
        book.recosted = lambda *said: told.append(said[:2])
        for facts in ({"agent": "1121-k3f9/other"}, {"model": "claude-haiku-4-5"}):
            book.settle(await book.open(opened(**facts)), served())
        book.settle(await book.open(opened()), served(end="cut", estimated=True))
        assert told == []
    async with account(path) as book:  # killed again before it was answered
        book.recosted = lambda *said: told.append(said[:2])
        for key in ("21600:1", "21600:1", "other"):
            book.settle(await book.open(opened(body_key=key)), served(usage=Usage(50, 640, 8950, 0)))
    lost, seen, *_ = rows(path)
    assert (lost["input"], lost["output"], lost["cache_read"], lost["cache_write"]) == (50, 640, 4000, 4950)
    assert (seen["input"], seen["output"], seen["cache_read"], seen["cache_write"]) == (50, 800, 0, 9000)
    assert [(row["end"], row["estimated"], row["flags"]) for row in (lost, seen)] == [("crashed", 1, "told_by_retry")] * 2
    assert [agent for agent, _ in told] == [AGENT, AGENT]
    changes = usd(Usage(50, 640, 4000, 4950, 4950)) - usd(Usage(6000, 300, 4000)), 0.0
    assert [usd for _, usd in told] == [pytest.approx(change) for change in changes]


@pytest.mark.asyncio
async def test_what_was_lost_long_ago_is_not_asked_for_again(path: Path) -> None:
    wall = Wall()
    async with account(path, wall) as book:
        await book.open(opened())
    wall.now += 3700
    async with account(path, wall) as book:
        book.settle(await book.open(opened()), served())
    assert [row["flags"] for row in rows(path)] == ["", ""]


PROGRAM = """
import asyncio, sys
from pathlib import Path
from supervisor.gateway.account.writer import Account
from tests.gateway.account.kit import Wall, opened, served, unpriced

async def main():
    book = Account(Path(sys.argv[1]), Wall())
    book.start(unpriced)
    async def client(number):
        while True:
            row = await book.open(opened(agent=f"run/agent-{number}", bound_usd=1.0))
            print("opened", row, flush=True)
            await asyncio.sleep(0)
            book.settle(row, served(cost_usd=0.25))
    await asyncio.gather(*(client(number) for number in range(20)))

asyncio.run(main())
"""


def test_kill_9_loses_no_request_that_was_opened(path: Path, seed: int) -> None:
    child = subprocess.Popen([sys.executable, "-c", PROGRAM, str(path)], stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[3])
    assert child.stdout is not None
    lines = [child.stdout.readline() for _ in range(random.Random(seed).randrange(200, 600))]
    os.kill(child.pid, signal.SIGKILL)
    lines += child.communicate()[0].splitlines(keepends=True)
    said = {int(line.split()[1]) for line in lines if line.endswith("\n")}
    book = Account(path, Wall())
    crashed = book.start(unpriced)
    asyncio.run(book.close())
    found = {row["id"]: row for row in rows(path)}
    assert len(said) >= 200 and said <= found.keys(), "what was acknowledged is there"
    assert all(row["end"] in ("served", "crashed") for row in found.values())
    assert len(crashed) == sum(row["end"] == "crashed" for row in found.values()) <= 20 * 2
    assert sum(row["cost_usd"] for row in found.values()) == 0.25 * (len(found) - len(crashed)) + 1.0 * len(crashed)
