"""The account on a disk that is full, and as a file that is damaged, newer or gone."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.gateway.account import schema
from supervisor.gateway.account.writer import Account
from supervisor.kernel.errors import DiskFull, LedgerError
from tests import support
from tests.gateway.account.kit import Wall, account, opened, rows, served, unpriced, until_saved


@pytest.mark.asyncio
async def test_an_account_that_cannot_grow_refuses_new_requests(path: Path) -> None:
    book = Account(path, Wall())
    book.start(unpriced)
    ids = [await book.open(opened()) for _ in range(20)]
    await book.written("PRAGMA max_page_count=1", ())  # SQLite takes as many as there are
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
    assert len(again.start(unpriced)) == len(ids), "what could not be settled is charged what was expected"
    await again.close()


async def open_for_ever(book: Account, ids: list[int]) -> None:
    for _ in range(10_000):
        ids.append(await book.open(opened(session="x" * 300)))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Two megabytes, mounted."""
    with support.small_disk(tmp_path / "small", "size=2m") as place:
        yield place


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
    book.start(unpriced)
    path.rename(path.with_name("elsewhere.db"))
    with pytest.raises(LedgerError, match="the account was moved or removed"):
        await book.open(opened())
    path.with_name("elsewhere.db").rename(path)
    await book.open(opened())
    await book.close()


@pytest.mark.asyncio
async def test_a_request_that_comes_after_the_end_does_not_wait_for_ever(path: Path) -> None:
    book = Account(path, Wall())
    book.start(unpriced)
    row_id = await book.open(opened())
    await book.close()
    with pytest.raises(LedgerError, match="the account is closed"):
        await book.open(opened())
    book.settle(row_id, served())  # too late, and no reason to fail: the next start charges what was expected
    assert [row["end"] for row in rows(path)] == [None]


@pytest.mark.parametrize("content", [b"", b"no database at all" * 1000])
def test_a_damaged_account_is_refused_and_left_as_it_was(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    book = Account(path, Wall())
    with pytest.raises(LedgerError, match="the account is damaged") as caught:
        book.start(unpriced)
    assert "the ledger, branches and worktrees are untouched" in caught.value.line()
    assert path.read_bytes() == content


def test_a_newer_account_is_refused(path: Path) -> None:
    schema.connect(path).close()
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA user_version=7")
    with pytest.raises(LedgerError, match="the account is newer"):
        Account(path, Wall()).start(unpriced)
