"""How many agents live follows what the machine carries and what was learned; with the real ledger and a real supervisor."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from supervisor.host.usage import Memory, PressureReader
from supervisor.kernel.capacity import AGENT, COMMAND, KNOWN, Growth
from supervisor.kernel.crew import Crew
from supervisor.kernel.decide import decide
from supervisor.kernel.decision import MarkRunning, Start
from supervisor.kernel.events import Event, PressureChanged, SlotsChanged, Submitted
from supervisor.kernel.pressure import Pressure
from supervisor.kernel.settings import Settings
from supervisor.server.capacity import LOOK_S, YOUNG_S, CapacityWatch
from supervisor.store.ledger import Ledger
from tests.gateway.kit import StandingClock
from tests.store.kit import Wall, ended, spec, submission, submit
from tests.support import House, at_once, git, wait_until

GIB = 2**30


class Machine(PressureReader):
    """A machine that says what a test wants."""

    def __init__(self) -> None:
        super().__init__(2)
        self.memory = Memory(16 * GIB, 8 * GIB)
        self.stall: float | None = 0.0

    def look(self) -> tuple[Pressure, Memory | None]:
        return Pressure(load=0.1), self.memory

    def cpu_stall(self) -> float | None:
        return self.stall


class Crews:
    """A ledger with its crew, and the watch over both."""

    def __init__(self, ledger: Ledger, wall: Wall, settings: Settings) -> None:
        self.ledger, self.wall, self.settings = ledger, wall, settings
        self.clock, self.machine = StandingClock(), Machine()
        self.crew = Crew(slots=settings.slots)
        self.watch = self.anew()
        self.lived = 0

    def anew(self) -> CapacityWatch:
        """What a new supervisor knows."""
        return CapacityWatch(self.ledger.needs, self.settings, self.clock, self.machine)

    def look(self, passed_s: float = LOOK_S) -> list[Event]:
        self.clock.now += passed_s
        events = self.watch.step(self.crew)
        change, _ = decide(self.crew, events, self.clock.monotonic(), self.wall())
        self.crew.apply(change)
        return events

    def offer(self, count: int, kind: str) -> None:
        """Tasks that could start, unless all slots are taken."""
        self.lived += 1
        names = submit(self.ledger, *(spec(f"{kind}{number}", kind=kind) for number in range(count)), run=f"0731-{self.lived:04}")
        change, commands = decide(self.crew, [Submitted(self.ledger.tasks_of_run(names[0][:9], 0.0))], self.clock.monotonic(), self.wall())
        self.ledger.commit(commands)
        self.crew.apply(change)

    def live(self, kind: str, **took: Any) -> None:
        """One attempt of 100 s, from its start to what is learned of it."""
        self.lived += 1
        (task,) = submit(self.ledger, spec("t", kind=kind), run=f"0731-b{self.lived:03}")
        self.ledger.commit([Start(task, 1, ""), MarkRunning(task, 1)])
        living = self.ledger.task(task, self.clock.monotonic())
        self.crew.living[task] = living
        self.look()
        self.clock.now += 96
        self.look()
        self.ledger.commit(ended(task, 1))
        self.ledger.note(task, 1, started=self.wall() - 100, ended=self.wall(), **took)
        self.watch.ended((task, 1))
        del self.crew.living[task]


@pytest.fixture
def crews(tmp_path: Path) -> Iterator[Crews]:
    wall = Wall()
    with closing(Ledger(tmp_path / "ledger.db", wall)) as ledger:
        yield Crews(ledger, wall, Settings(slots=8, grows=True))


def account(**took: float) -> str:
    return json.dumps({"wall_s": 100.0, **took})


def test_what_agents_took_is_learned_kept_and_lets_the_crew_grow(crews: Crews) -> None:
    for _ in range(KNOWN):
        crews.live("claude", account=account(cpu_s=5.0, peak_memory=GIB // 4, tokens=10_000))
    need = crews.watch.need("claude")
    assert (round(need.cores, 3), need.memory, round(need.tpm), need.wall_s, need.assumed()) == (0.05, GIB // 4, 6000, 100.0, [])
    crews.look()
    assert crews.crew.slots == 8, "nobody waits: what one more would take is not known"
    crews.offer(100, "claude")
    crews.look()
    assert crews.crew.slots == 8 + 1
    crews.offer(1, "codex")
    crews.look()
    assert crews.crew.slots == 8, "a kind that nobody knows waits with them"
    crews.look()
    assert crews.anew().need("claude") == need, "a new supervisor knows it"
    assert crews.anew().need("codex") == AGENT and crews.anew().need("shell") == COMMAND


def test_without_an_account_the_result_teaches_what_it_has(crews: Crews) -> None:
    result = {"cpu_s": 20.0, "tokens": {"input": 100, "output": 50, "cache_read": 10**6, "cache_write": 10}}
    crews.live("claude", result=json.dumps(result))
    need = crews.watch.need("claude")
    assert (need.cores, round(need.tpm), need.memory, need.memory_from) == (0.2, 96, AGENT.memory, 0)


def test_an_attempt_on_contended_processors_does_not_make_its_kind_look_light(crews: Crews) -> None:
    crews.live("claude", account=account(cpu_s=50.0))
    crews.machine.stall = 0.95
    crews.live("claude", account=account(cpu_s=10.0))
    crews.machine.stall = None
    crews.live("claude", account=account(cpu_s=10.0))
    assert crews.watch.need("claude").cores == 0.5
    crews.machine.stall = 0.1
    crews.live("claude", account=account(cpu_s=10.0))
    assert crews.watch.need("claude").cores < 0.5


def test_slots_follow_the_memory_that_is_free(crews: Crews) -> None:
    crews.watch = CapacityWatch(crews.ledger.needs, Settings(slots=40, grows=False), crews.clock, crews.machine)
    crews.crew.slots = 40
    crews.offer(60, "claude")
    living = len(crews.crew.living)
    assert living == 40
    for each in crews.crew.living.values():
        assert each.attempt is not None
        crews.crew.living[each.id] = replace(each, attempt=replace(each.attempt, since=crews.clock.monotonic() - YOUNG_S))
    crews.machine.memory = Memory(16 * GIB, GIB)
    events = crews.look()
    assert SlotsChanged(40) not in events and crews.crew.slots == 40, "0.2 GiB are left: those that live go on, and no more start"
    crews.machine.memory = Memory(16 * GIB, 0)
    crews.look()
    assert crews.crew.slots == 39, "too many live: what ends is not refilled"
    assert crews.watch.seen is not None and crews.watch.seen.found.binding == "memory"


def test_memory_is_kept_for_those_that_have_just_started(crews: Crews) -> None:
    crews.offer(60, "claude")
    crews.look()
    assert crews.watch.seen is not None and crews.watch.seen.means.memory is not None
    kept = 8 * GIB - crews.watch.seen.means.memory - 16 * GIB // 20
    assert abs(kept - 8 * AGENT.memory) <= 1
    crews.look(YOUNG_S)
    assert abs(8 * GIB - crews.watch.seen.means.memory - 16 * GIB // 20) <= 1, "what they took is not free any more"


def test_the_crew_grows_one_by_one_by_the_rule_of_the_settings(crews: Crews) -> None:
    crews.watch = CapacityWatch(crews.ledger.needs, Settings(slots=10, grows=False, growth=Growth(50, 5)), crews.clock, crews.machine)
    start = crews.watch.start
    crews.offer(100, "shell")
    before = crews.crew.slots
    crews.look()
    crews.look(LOOK_S / 2)
    assert (before, crews.crew.slots) == (start, start + 1) == (8, 9), "on 2 to 4 cores a crew begins with eight"


def test_a_look_is_told_every_time_and_costs_nothing_in_between(crews: Crews) -> None:
    assert [type(event) for event in crews.look()] == [PressureChanged]
    assert crews.watch.step(crews.crew) == []


def test_status_and_capacity_of_a_real_supervisor(house: House) -> None:
    house.config.write_text("slots = 1\n" + house.config.read_text())
    daemon = house.start_daemon()
    gate = house.home.root.parent / "gate"
    house.ok("add", "--id", "first", f"until [ -e {gate} ]; do sleep 0.02; done")
    wait_until(lambda: house.state("first") == "running", "the first one")
    house.ok("add", "--id", "second", "true")
    wait_until(lambda: house.state("second") == "ready", "the second one")
    assert "waits for a slot (1 of 1 taken)" in house.ok("status")
    tasks = {task["name"]: task["waits_for"] for task in json.loads(house.ok("status", "--json"))["tasks"]}
    assert tasks["first"] is None and (tasks["second"]["decision"], tasks["second"]["code"]) == ("defer", "slots")
    shape = json.loads(house.ok("capacity", "--json"))
    assert (shape["slots"], shape["cap"], shape["living"], shape["waiting"], shape["binding"]) == (1, 1, 1, 1, "cap")
    assert shape["next"]["assumed"] == ["cores", "memory", "tokens"] and shape["pressure"]["load"] is not None
    said = house.ok("capacity")
    assert "1 (at most 1); 1 taken, 1 task waits" in said and "binds cap" in said and "(assumed, 0 measured)" in said
    house.ok("down")
    daemon.wait(30)
    assert "waits for a supervisor: nightcrew up -d" in house.ok("status")
    done = house.run("capacity")
    assert (done.returncode, "no supervisor" in done.stderr) == (5, True)
    house.start_daemon()
    gate.touch()
    house.wait_final()
    wait_until(lambda: json.loads(house.ok("capacity", "--json"))["needs"].get("shell", {}).get("wall_s"), "something to be learned")


def test_a_run_beyond_waiting_max_is_refused_and_the_same_key_is_not(house: House) -> None:
    house.config.write_text(house.config.read_text() + "[queue]\nwaiting_max = 1\n")
    house.start_daemon()
    plan = house.plan('[[tasks]]\nid = "one"\ncommand = "sleep 60"\n')
    house.ok("run", "--detach", "--key", "k", plan)
    done = house.run("add", "true")
    assert (done.returncode, "over waiting_max (1)" in done.stderr) == (6, True)
    house.ok("run", "--detach", "--key", "k", plan)


def test_parallel_runs_stay_below_waiting_max_until_the_loop_knows_of_them(house: House) -> None:
    """`SETTLE_S` keeps the loop from its next step, so that the second wave comes before the first one is part of the crew."""
    house.config.write_text(house.config.read_text() + "[queue]\nwaiting_max = 10\n")
    house.start_daemon(first="import supervisor.server.loop\nsupervisor.server.loop.SETTLE_S = 5.0\n")
    facts = {"root": str(house.repo), "common_dir": str(house.repo / ".git"), "base_oid": git(house.repo, "rev-parse", "HEAD")}
    runs = [submission(spec("t", argv=("sleep", "600")), key=f"k{number}", **facts) for number in range(30)]
    requests = [("submit", one) for one in runs]
    waves = [at_once(house.home.daemon_socket, wave) for wave in (requests[:10], requests[10:])]
    assert [sum(answer["ok"] for answer in wave) for wave in waves] == [10, 0]
