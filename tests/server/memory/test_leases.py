"""Who gets a lease and who waits, by the desk with a real ledger, real waits and clocks that are moved by hand."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from memory.lease_rows import LEASES_KEPT, TTL_S, Leases, Waits
from memory.service import leases
from memory.service.leases import Asker, Doors, LeaseDesk
from memory.service.waits import WaitDesk
from supervisor.host.paths import Home
from supervisor.kernel.crew import Crew
from supervisor.kernel.decide import decide
from supervisor.kernel.decision import MarkRunning, Start
from supervisor.kernel.errors import Deadlock, NightcrewError, Refused, StaleEpoch, TimedOut, UsageError
from supervisor.kernel.events import Event, LeasesChanged
from supervisor.kernel.leases import GLOBS_MAX, HOLDS_S, Lease, Mode, WaitKind
from supervisor.kernel.settings import LeaseRule
from supervisor.server.request_table import work
from supervisor.store.ledger import Ledger
from tests.server.memory.wait_kit import PROJECT, in_a_loop
from tests.store.kit import RUN, Wall, ended, spec, submit

ALL = ("a", "b", "c", "d")


class Hands:
    """The monotonic clock and the wall's, moved by hand."""

    def __init__(self, wall_at: Wall) -> None:
        self.wall_at, self.now = wall_at, 1000.0

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return self.wall_at.now

    def boottime(self) -> float:
        return self.now

    def pass_(self, seconds: float) -> None:
        self.now += seconds
        self.wall_at.now += seconds


async def parked(*waits: asyncio.Task[Any]) -> None:
    """Until each of them waits."""
    for _ in range(5):
        await asyncio.sleep(0)
    assert not any(wait.done() for wait in waits)


@dataclass
class There:
    desk: LeaseDesk
    ledger: Ledger
    crew: Crew
    clock: Hands
    waits: WaitDesk
    told: list[Event] = field(default_factory=list)

    def who(self, name: str, epoch: int = 1, *kin: str) -> Asker:
        return Asker(PROJECT, f"{RUN}/{name}", epoch, tuple(f"{RUN}/{one}" for one in kin))

    async def take(self, name: str, *globs: str, mode: str = "exclusive", wait_s: float = 0.0, **more: Any) -> list[Lease]:
        return await self.desk.take(self.who(name), globs, Mode(mode), wait_s, **more)

    def waiting(self, name: str, *globs: str, mode: str = "exclusive", wait_s: float = 60.0) -> asyncio.Task[list[Lease]]:
        return asyncio.get_running_loop().create_task(self.take(name, *globs, mode=mode, wait_s=wait_s))

    def held(self) -> list[tuple[str, str]]:
        return [(lease.task.partition("/")[2], lease.glob) for lease in self.desk.held(PROJECT)]

    def history(self, event: str) -> list[str]:
        return [str(data) for (data,) in self.ledger.db.execute("SELECT data FROM journal WHERE event = ?", (event,))]


@contextlib.contextmanager
def leasing(path: Path, *, paths: dict[str, tuple[str, ...]] | None = None, rule: LeaseRule = LeaseRule.WARN) -> Iterator[There]:
    wall = Wall()
    with closing(Ledger(path / "ledger.db", wall)) as ledger:
        names = submit(ledger, *(spec(name, paths=(paths or {}).get(name, ())) for name in ALL), run=RUN)
        ledger.commit([command for name in names for command in (Start(name, 1, ""), MarkRunning(name, 1))])
        with again(ledger, wall, rule) as there:
            yield there


@contextlib.contextmanager
def again(ledger: Ledger, wall: Wall, rule: LeaseRule = LeaseRule.WARN) -> Iterator[There]:
    """Another supervisor with the same ledger."""
    clock = Hands(wall)
    crew = Crew(ledger.unfinished(0.0))
    waits = WaitDesk(ledger.of(Waits), crew, clock, lambda _: None)
    waits.begin()
    told: list[Event] = []
    desk = LeaseDesk(Doors(ledger.of(Leases), crew, waits, clock, told.append, lambda *line: ledger.journal(*line)), rule)
    try:
        yield There(desk, ledger, crew, clock, waits, told)
    finally:
        waits.close()


@in_a_loop
async def test_all_or_nothing_and_the_refusal_names_the_holder(tmp_path: Path) -> None:
    with leasing(tmp_path) as there:
        first = await there.take("a", "src/api", "doc")
        with pytest.raises(Refused, match=rf"{RUN}/a has src/api \(exclusive\)"):
            await there.take("b", "web", "src")
        assert there.held() == [("a", "src/api"), ("a", "doc")]
        assert await there.take("a", "src/api") == first[:1], "asking again changes nothing"
        assert there.told == [LeasesChanged(f"{RUN}/a", 1, ("src/api", "doc"))] or set(there.told[0].globs) == {"src/api", "doc"}  # type: ignore[union-attr]
        later = await there.take("b", "web")
        assert later[0].fence > max(lease.fence for lease in first)
        there.desk.release(there.who("a"), ["src/api"], [])
        assert (await there.take("b", "src"))[0].fence > later[0].fence


@in_a_loop
async def test_shared_ones_go_together_and_do_not_starve_an_exclusive_one(tmp_path: Path) -> None:
    with leasing(tmp_path) as there:
        await there.take("a", "src", mode="shared")
        await there.take("b", "src/x", mode="shared")
        await parked(writer := there.waiting("c", "src"))
        with pytest.raises(Refused, match=rf"{RUN}/c waits for src"):
            await there.take("d", "src", mode="shared")
        await parked(reader := there.waiting("d", "src", mode="shared"))
        there.desk.release(there.who("a"), [], [])
        await parked(writer, reader)
        there.desk.release(there.who("b"), [], [])
        assert [lease.task for lease in await writer] == [f"{RUN}/c"]
        assert not reader.done()
        there.desk.release(there.who("c"), [], [])
        assert [lease.task for lease in await reader] == [f"{RUN}/d"]
        assert not there.desk.waiting(PROJECT)


@in_a_loop
async def test_who_is_waited_for_need_not_wait_behind_who_waits(tmp_path: Path) -> None:
    with leasing(tmp_path) as there:
        await there.take("a", "src/x", mode="shared")
        await parked(writer := there.waiting("b", "src"))
        assert (await there.take("a", "src/y", mode="shared"))[0].glob == "src/y", "b waits for a in any case"
        there.desk.release(there.who("a"), [], [])
        assert (await writer)[0].task == f"{RUN}/b"


@in_a_loop
async def test_who_waits_is_woken_when_the_attempt_ends(tmp_path: Path) -> None:
    with leasing(tmp_path, paths={"a": ("src",)}) as there:
        assert there.held() == [("a", "src")], "taken with the start"
        async with there.desk.kept():
            await parked(waiter := there.waiting("b", "src/x"))
            there.ledger.commit(ended(f"{RUN}/a", 1))
            assert (await asyncio.wait_for(waiter, 0.9))[0].task == f"{RUN}/b", "before it looks by itself"
        why = there.ledger.db.execute("SELECT why FROM lease WHERE task = ?", (f"{RUN}/a",)).fetchone()[0]
        assert why == "its attempt ended"


@in_a_loop
async def test_two_that_cross_hold_are_refused_in_time_with_the_whole_cycle(tmp_path: Path) -> None:
    with leasing(tmp_path) as there:
        await there.take("a", "one.py")
        await there.take("b", "two.py")
        await parked(first := there.waiting("a", "two.py"))
        with pytest.raises(Deadlock, match=rf"{RUN}/b waits for {RUN}/a .*one\.py.*{RUN}/a waits for {RUN}/b .*two\.py"):
            await there.take("b", "one.py", wait_s=60)
        there.desk.release(there.who("b"), [], [])
        assert (await first)[0].glob == "two.py"


@in_a_loop
async def test_three_parties_in_a_ring_of_a_lease_a_mail_and_a_task(tmp_path: Path) -> None:
    with leasing(tmp_path) as there:
        await there.take("c", "x")
        await parked(there.waiting("b", "x"))
        loop = asyncio.get_running_loop()

        async def wait(name: str, kind: WaitKind, holder: str) -> None:
            async with there.waits.waiting(PROJECT, f"{RUN}/{name}", 1, kind, "it", [f"{RUN}/{holder}"], 60):
                await asyncio.sleep(60)

        await parked(loop.create_task(wait("a", WaitKind.MAIL, "b")))
        with pytest.raises(Deadlock):
            await wait("c", WaitKind.TASK, "a")


@in_a_loop
async def test_both_cannot_make_a_shared_one_exclusive(tmp_path: Path) -> None:
    with leasing(tmp_path) as there:
        await there.take("a", "src", mode="shared")
        await there.take("b", "src", mode="shared")
        await parked(there.waiting("a", "src"))
        with pytest.raises(Deadlock):
            await there.take("b", "src", wait_s=60)


@in_a_loop
async def test_a_wait_has_an_end_and_leaves_nothing(tmp_path: Path) -> None:
    with leasing(tmp_path) as there:
        await there.take("a", "src")
        await parked(waiter := there.waiting("b", "src", wait_s=5))
        there.clock.pass_(6)
        there.waits.step()
        with pytest.raises(TimedOut):
            await waiter
        assert not there.desk.waiting(PROJECT)


@in_a_loop
async def test_a_stale_epoch_gets_nothing_and_holds_nothing(tmp_path: Path) -> None:
    with leasing(tmp_path) as there:
        with pytest.raises(StaleEpoch):
            await there.desk.take(there.who("a", 2), ["src"], Mode.EXCLUSIVE)
        await there.take("a", "src")
        there.ledger.commit(ended(f"{RUN}/a", 1))
        assert there.held() == []


@in_a_loop
async def test_a_lease_is_renewed_while_its_attempt_lives_and_expires_otherwise(tmp_path: Path) -> None:
    with leasing(tmp_path) as there:
        await there.take("a", "src")
        await there.take("b", "doc", ttl_s=30.0)
        there.clock.pass_(31)
        assert there.held() == [("a", "src")], "who asked for 30 seconds has them"
        there.clock.pass_(10 * TTL_S)
        assert there.held() == [("a", "src")], "a supervisor that stood still ends no lease of a living agent"
        there.desk.renew()
        del there.crew.tasks[f"{RUN}/a"]
        there.clock.pass_(TTL_S - 1)
        assert there.held() == [("a", "src")]
        there.clock.pass_(2)
        assert there.held() == []
        assert "not renewed" in there.history("lease expired")[-1]


@in_a_loop
async def test_a_clock_that_is_set_anew_ends_no_lease(tmp_path: Path) -> None:
    with leasing(tmp_path) as there:
        await there.take("a", "src", ttl_s=60.0)
        for jump in (3600.0, -7200.0, -3e8):
            there.clock.wall_at.now += jump
            assert there.held() == [("a", "src")]
        there.clock.pass_(61)
        assert there.held() == []


@in_a_loop
async def test_after_a_restart_what_lives_keeps_its_lease_and_what_is_over_is_over(tmp_path: Path) -> None:
    with leasing(tmp_path) as there:
        await there.take("a", "src")
        await there.take("b", "doc", ttl_s=30.0)
        await there.take("c", "web", ttl_s=5000.0)
        there.clock.wall_at.now += 2 * TTL_S
        with again(there.ledger, there.clock.wall_at) as next_one:
            assert next_one.held() == [("a", "src"), ("c", "web")]
            assert next_one.crew.tasks[f"{RUN}/a"].attempt.leases == ("src",)  # type: ignore[union-attr]
            next_one.clock.pass_(5000.0 - 2 * TTL_S + 1)
            assert next_one.held() == [("a", "src")]


@in_a_loop
async def test_a_person_ends_a_lease_with_a_word(tmp_path: Path) -> None:
    with leasing(tmp_path) as there:
        taken = await there.take("a", "src")
        await parked(waiter := there.waiting("b", "src"))
        assert there.desk.force(PROJECT, [taken[0].fence], "it went home")
        assert (await waiter)[0].task == f"{RUN}/b"
        assert "it went home" in there.history("lease ended by a person")[0]
        assert there.desk.force(PROJECT, [taken[0].fence], "again") == []
        for _ in range(LEASES_KEPT + 1):
            await there.take("a", "doc")
            there.desk.release(there.who("a"), [], [])
        there.desk.release(there.who("b"), [], [])
        for glob in ("src", "src/api", "*"):
            with pytest.raises(Refused, match="a person took it from this task"):
                await there.take("a", glob)


@in_a_loop
async def test_what_an_agent_took_keeps_no_task_from_starting_for_long(tmp_path: Path) -> None:
    with leasing(tmp_path, paths={"b": ("lib",)}) as there:
        await there.take("a", "src")
        there.clock.pass_(HOLDS_S - 60)
        await there.take("a", "doc")
        there.desk.renew()
        assert there.told[-1] == LeasesChanged(f"{RUN}/a", 1, ("src", "doc"))
        there.crew.apply(decide(there.crew, there.told, there.clock.now)[0])
        there.clock.pass_(60)
        there.desk.renew()
        assert there.told[-1] == LeasesChanged(f"{RUN}/a", 1, ("doc",))
        assert there.held() == [("b", "lib"), ("a", "src"), ("a", "doc")], "it has them all the same"


@in_a_loop
async def test_an_attempt_holds_a_bounded_number_and_old_rows_are_forgotten(tmp_path: Path) -> None:
    with leasing(tmp_path) as there:
        await there.take("a", *(f"f{number}" for number in range(GLOBS_MAX)))
        with pytest.raises(Refused, match="at most"):
            await there.take("a", "one more")
        for _ in range(LEASES_KEPT):
            await there.take("b", "doc")
            fence = there.desk.release(there.who("b"), [], [])[0].fence
        for _ in range(10):
            await there.take("b", "doc")
            there.desk.release(there.who("b"), [], [])
        rows = there.ledger.db.execute("SELECT count(*), max(fence) FROM lease WHERE task = ?", (f"{RUN}/b",)).fetchone()
        assert rows[0] <= LEASES_KEPT + 1
        assert rows[1] == fence + 10


@in_a_loop
async def test_a_project_holds_a_bounded_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "PROJECT_MAX", 3)
    with leasing(tmp_path) as there:
        await there.take("a", "f1", "f2")
        with pytest.raises(Refused, match="3 are held in a project at most"):
            await there.take("b", "f3", "f4")
        assert there.held() == [("a", "f1"), ("a", "f2")]
        await there.take("b", "f3")


@in_a_loop
async def test_what_a_write_is_told(tmp_path: Path) -> None:
    with leasing(tmp_path) as there:
        await there.take("a", "src/api")
        said = there.desk.write(there.who("b"), "src/api/x.py")
        assert (said.decision, said.is_new) == ("warn", True)
        assert f"{RUN}/a" in said.why
        assert "\n" not in said.why
        assert not there.desk.write(there.who("b"), "src/api/x.py").is_new
        assert len(there.history("write beside a lease")) == 1
        assert there.desk.write(there.who("a"), "src/api/x.py").decision == ""
        assert there.desk.write(there.who("b", 1, "a"), "src/api/x.py").decision == "", "what its parent holds is no obstacle"
        assert there.desk.write(there.who("b"), "src/x.py").decision == ""
        await there.take("c", "doc", mode="shared")
        assert there.desk.write(there.who("b"), "doc/x").decision == ""
        there.desk.rule = LeaseRule.STRICT
        assert there.desk.write(there.who("b"), "src/api/x.py").decision == "deny"
        there.desk.rule = LeaseRule.OFF
        assert there.desk.write(there.who("b"), "src/api/x.py").decision == ""


HOSTILE: list[dict[str, Any]] = [
    {"op": "take"},
    {"op": "take", "globs": "src"},
    {"op": "take", "globs": [1]},
    {"op": "take", "globs": ["x" * 10_000]},
    {"op": "take", "globs": ["**/" * 3000 + "x"]},
    {"op": "take", "globs": ["a/**/" * 40]},
    {"op": "take", "globs": ["/etc/passwd"]},
    {"op": "take", "globs": ["src", "../../x"]},
    {"op": "take", "globs": ["a\0b"]},
    {"op": "take", "globs": ["a\x1b[2Jb"]},
    {"op": "take", "globs": ["\udc80"]},
    {"op": "take", "globs": ["src"] * 100},
    {"op": "take", "globs": ["src"], "mode": "mine"},
    {"op": "take", "globs": ["src"], "mode": ["exclusive"]},
    {"op": "take", "globs": ["src"], "wait_s": 1e999},
    {"op": "take", "globs": ["src"], "wait_s": True},
    {"op": "take", "globs": ["src"], "wait_s": -1},
    {"op": "take", "globs": ["src"], "ttl": 0},
    {"op": "take", "globs": ["src"], "ttl": float("nan")},
    {"op": "release", "fences": [2**70]},
    {"op": "release", "fences": [True]},
    {"op": "release", "fences": "all"},
    {"op": "check"},
    {"op": "check", "path": ["x"]},
    {"op": "check", "path": "x" * 5000},
    {"op": "check", "path": "x", "cwd": 1},
    {"op": ["take"]},
    {"op": "force", "fences": [1]},
    {},
]


@in_a_loop
async def test_whatever_an_agent_sends_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    with leasing(tmp_path) as there:
        await there.take("b", "src")
        loop, memory = SimpleNamespace(ledger=there.ledger), SimpleNamespace(leases=there.desk)
        asked = SimpleNamespace(loop=loop, home=Home(tmp_path), memory=memory, task=f"{RUN}/a", epoch=1)
        for args in HOSTILE:
            with pytest.raises(UsageError):
                await work(leases.OF_AGENT, asked, args)
        assert there.held() == [("b", "src")]
        fence = there.desk.held(PROJECT)[0].fence
        ask = {"op": "release", "fences": [fence]}
        assert await work(leases.OF_AGENT, asked, ask) == {"released": []}, "it is another's"
        assert there.held() == [("b", "src")]


def test_the_files_that_a_tool_is_about_to_write() -> None:
    patch = "*** Begin Patch\n*** Update File: a b.py\n*** Move to: c.py\n@@\n-x\n*** Delete File: d\n*** End Patch"
    assert leases.written({"tool_name": "apply_patch", "tool_input": {"command": patch}}) == ["a b.py", "c.py", "d"]
    assert leases.written({"tool_name": "NotebookEdit", "tool_input": {"notebook_path": "/w/x.ipynb"}}) == ["/w/x.ipynb"]
    for nothing in ({}, {"tool_name": "Bash", "tool_input": {"file_path": "x"}}, {"tool_name": ["Edit"], "tool_input": {}}):
        assert leases.written(nothing) == []
    odd_ones: list[Any] = [None, [], "x", {"file_path": 1}, {"file_path": "x" * 5000}, {"file_path": ""}]
    for odd in odd_ones:
        assert leases.written({"tool_name": "Edit", "tool_input": odd}) == []


@in_a_loop
async def test_whoever_stops_waiting_lets_the_next_one_go(tmp_path: Path) -> None:
    with leasing(tmp_path) as there:
        await there.take("a", "src", mode="shared")
        await parked(writer := there.waiting("b", "src"))
        await parked(reader := there.waiting("c", "src", mode="shared"))
        writer.cancel()
        with contextlib.suppress(asyncio.CancelledError, NightcrewError):
            await writer
        assert (await reader)[0].mode is Mode.SHARED
