"""A night in virtual time, with everything that a night must get through: the real decisions, ledger, account, journal and clocks' watch;
agents and the provider are entries of a heap.

`Diary` is what the agents, the provider and the machine would say themselves. Nothing of it is read from the ledger, and the ledger reads
nothing of it: whoever compares the two compares the supervisor with the world.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

from supervisor.features.night import service as night_service
from supervisor.gateway.account.writer import Account
from supervisor.gateway.admission.types import Usage
from supervisor.host import files
from supervisor.host.paths import Home
from supervisor.kernel import recovery
from supervisor.kernel.crew import Crew, Order
from supervisor.kernel.decide import decide
from supervisor.kernel.decision import Collect, Command, Pause, Start, Stop
from supervisor.kernel.events import (
    Event,
    NightsSpent,
    PersonNeeded,
    ProviderChanged,
    Question,
    Secured,
    Started,
    StoodStill,
    Submitted,
    TrafficChanged,
    TreeGone,
)
from supervisor.kernel.night import NightOrder, NightSpent, NightTerms
from supervisor.kernel.states import AttemptState, End
from supervisor.server.attempts.collect import AFTER_S
from supervisor.server.machine import Outages, Timekeeping
from supervisor.store.ledger import Ledger
from tests.gateway.account.kit import opened, served, unpriced
from tests.store.kit import spec, submission
from tests.virtual_crew import LAUNCH_S, SECURE_S, VirtualCrew

SLOTS = 12
TICK_S = 30.0
MINUTE_S = 60.0
CAP_USD = 60.0
CHEAP_USD, DEAR_USD = 0.02, 5.0
REQUESTS = 6
REQUEST_S = 20.0
RUN = "0328-n1gh"
MODELS = ("claude-opus-4-8", "claude-haiku-4-5")
OTHER_BOOT = "11111111-2222-3333-4444-555555555555"
Key = tuple[str, int]


@dataclass
class Diary:
    """The world's own account of the night. Moments are wall-clock seconds."""

    started: dict[Key, float] = field(default_factory=dict)
    ended: dict[Key, tuple[End, float]] = field(default_factory=dict)
    requests: list[tuple[Key, float, str, Usage, float]] = field(default_factory=list)
    """Who asked, when, which model, and what that took."""
    refused: int = 0
    """Requests that did not fit below the cap."""
    asked: list[str] = field(default_factory=list)
    """Tasks whose agent asked a person and was not answered."""
    over: float = 0.0
    """When nothing of the night was left to do."""

    @property
    def usd(self) -> float:
        return sum(cost for *_, cost in self.requests)


class QuickLedger(Ledger):
    """Waits for no disk: in a virtual night no power is cut."""

    @contextlib.contextmanager
    def _writing(self, *, durable: bool = True, accepts: bool = False) -> Iterator[None]:  # noqa: ARG002 - as it says
        with super()._writing(durable=False):
            yield


class Clocks:
    """The machine's."""

    def __init__(self, night: VirtualNight) -> None:
        self._night = night

    def wall(self) -> float:
        return self._night.wall

    def monotonic(self) -> float:
        return self._night.now

    def boottime(self) -> float:
        return self._night.now + self._night.slept


class VirtualNight(VirtualCrew):
    """One night from `begin` until `until`. `luck` draws what agents do."""

    def __init__(self, home: Home, begin: float, until: float, luck: random.Random) -> None:
        super().__init__(SLOTS, lambda *_: 0.0, Order(jitter=0.25))
        self.wall, self.slept = begin, 0.0
        files.private_dir(home.root)
        self.home, self.luck, self.diary, self.said = home, luck, Diary(), list[str]()
        self.ledger = QuickLedger(home.ledger, lambda: self.wall)
        self.alive: dict[Key, float] = {}
        """When each agent began."""
        self._still: set[Key] = set()
        self._ended: dict[Key, tuple[End, str]] = {}
        self._generation, self._provider, self._usd = 0, "", CHEAP_USD
        self._window_opens = 0.0
        self._due: list[tuple[float, Callable[[], None]]] = []
        self._begin_watch()
        home.boot.write_text("00000000-2222-3333-4444-555555555555\n")
        self._terms = NightTerms(until=until, grace_s=600.0, cost_max=CAP_USD)
        self.at(self.now, self._tick)

    def _begin_watch(self) -> None:
        self._time = Timekeeping(self.ledger, Clocks(self), self.said.append)
        self._outages = Outages(self.ledger, self.said.append)

    # The supervisor --------------------------------------------------------------------------------------------------------------

    def submit_night(self, count: int) -> None:
        """Hand the plan over: of both kinds, every tenth task after another."""
        made = [spec(f"t{number}", kind="claude", prompt="do it", argv=(), retries=2, after=_after(number)) for number in range(count)]
        self.ledger.submit(submission(*made, key=RUN, night=NightOrder(self._terms, plan="/night.toml", plan_hash="0" * 64)), RUN)
        self.say(*night_service.begins(self.ledger), Submitted(self.ledger.tasks_of_run(RUN, self.now)))

    def say(self, *events: Event) -> None:
        """As the loop: nobody hears while no supervisor lives."""
        if not self.up:
            return
        self._time.step()
        before = bool(self.crew.nights)
        change, commands = decide(self.crew, events, self.now, self.wall)
        self.ledger.commit(commands)
        self.crew.apply(change)
        if before and not self.crew.nights:
            self.diary.over = self.wall
        for command in commands:
            self.act(command)
        self._outages.step(self.crew.health.outage)

    def act(self, command: Command) -> None:
        match command:
            case Start(task, epoch, _):
                self._job(LAUNCH_S, partial(self._launch, (task, epoch)))
            case Stop(task, epoch, why):
                self._job(SECURE_S, partial(self._stop, (task, epoch), why))
            case Pause(task, epoch, _, _, _):
                self._job(SECURE_S, partial(self._stand_still, (task, epoch)))
            case Collect(task, epoch, end, cause):
                self._job(SECURE_S, partial(self._secure, (task, epoch), end, cause))
            case _:
                pass

    def _job(self, seconds: float, work: Callable[[], None]) -> None:
        """Something that the supervisor of now has under way; it dies with it."""
        generation = self._generation
        self.at(self.now + seconds, lambda: work() if generation == self._generation else None)

    def _launch(self, key: Key) -> None:
        if key not in self.diary.started:
            assert all(task != key[0] for task, _ in self.alive), f"{key[0]} begins while an older attempt of it lives"
            self.diary.started[key] = self.alive[key] = self.wall
            work_s = self.luck.uniform(5, 25) * MINUTE_S
            for number in range(REQUESTS):
                self.at(self.now + work_s * (number + 1) / (REQUESTS + 1), partial(self._request, key))
            self.at(self.now + work_s, partial(self._end, key, self.luck.choices([End.DONE, End.FAILED], [95, 5])[0], ""))
        self.say(Started(*key))

    def _stop(self, key: Key, why: str) -> None:
        end, cause = recovery.stopped(why)
        self._end(key, end, cause)

    def _stand_still(self, key: Key) -> None:
        self._still.add(key)
        row = self.ledger.attempt(*key)
        assert row is not None and row.paused is not None
        self.ledger.note(*key, paused=json.dumps({**json.loads(row.paused), "held": True, "before": []}))
        self.say(StoodStill(*key))

    def _secure(self, key: Key, end: End, cause: str) -> None:
        began, (_, ended) = self.diary.started[key], self.diary.ended[key]
        self.ledger.note(*key, started=began, ended=ended, result=json.dumps(self._result(key, end)), account=json.dumps(self.account(key)))
        self.say(Secured(*key, end, cause))

    def _result(self, key: Key, end: End) -> dict[str, object]:
        work = {"branch": f"nightcrew/{key[0]}/work", "tip": "c0ffee", "commits": 1} if end is End.DONE else {}
        return {"agent": {"message": "Done."}, **work}

    def account(self, key: Key) -> dict[str, float]:
        """Where its time went, as whoever measured it would say."""
        wall_s = self.diary.ended[key][1] - self.diary.started[key]
        model_s = min(wall_s, REQUEST_S * sum(one[0] == key for one in self.diary.requests))
        return {"wall_s": wall_s, "model_s": model_s, "local_s": wall_s - model_s, "launch_s": LAUNCH_S}

    # Agents and their provider ---------------------------------------------------------------------------------------------------

    def _end(self, key: Key, end: End, cause: str) -> None:
        if key in self.alive and (key not in self._still or end is not End.DONE):
            del self.alive[key]
            self.diary.ended[key] = end, self.wall
            self._ended[key] = end, cause
            self.say(TreeGone(*key, end, cause))

    def _request(self, key: Key) -> None:
        if key not in self.alive or key in self._still:
            return
        if self._provider:
            self._end(key, End.LOST, "its provider failed it (unreachable): exit code 1")
        elif self._window_opens:
            self._end(key, End.LOST, recovery.spent(self._window_opens + AFTER_S))
        elif self.diary.usd + self._usd > CAP_USD:
            self.diary.refused += 1
            self._tell_spent()
            self._end(key, End.FAILED, "402: the night's cost_max was reached")
        else:
            tokens = Usage(self.luck.randrange(2000), self.luck.randrange(800), self.luck.randrange(9000), self.luck.randrange(500))
            self.diary.requests.append((key, self.wall, MODELS[len(self.diary.requests) % 2], tokens, self._usd))
            self._tell_spent()

    def _tell_spent(self) -> None:
        self.say(NightsSpent({RUN: NightSpent(self.diary.usd, refused=self.diary.refused > 0)}))

    # What befalls them -----------------------------------------------------------------------------------------------------------

    def when(self, wall: float, act: Callable[[], None]) -> None:
        """Have something happen at a moment of the wall clock."""
        self._due.append((wall, act))

    def _tick(self) -> None:
        for found in sorted(self._due, key=lambda one: one[0]):
            if found[0] <= self.wall:
                self._due.remove(found)
                found[1]()
        self.say()
        self.at(self.now + TICK_S, self._tick)

    def provider_dies(self) -> None:
        self._provider = "sim serves nothing"
        self.say(ProviderChanged(self._provider))

    def provider_is_back(self) -> None:
        self._provider = ""
        self.say(ProviderChanged(""))

    def half_of_them_die(self) -> None:
        """At one moment, of one cause."""
        dead = [key for key in self.alive if key not in self._still][: (len(self.alive) + 2) // 2]
        for key in dead:
            self._end(key, End.LOST, "its runner died")

    def window_is_spent(self, opens: float) -> None:
        self._window_opens = opens
        self.say(TrafficChanged(parked=True))

    def window_opens(self) -> None:
        self._window_opens = 0.0
        self.say(TrafficChanged())

    def becomes_dear(self) -> None:
        """From now on a request costs a twelfth of the cap."""
        self._usd = DEAR_USD

    def sleeps(self, seconds: float) -> None:
        """The lid is closed: nothing moves, and two clocks go on."""
        self.wall, self.slept = self.wall + seconds, self.slept + seconds

    def clock_is_set(self, seconds: float) -> None:
        self.wall += seconds

    def asks_a_person(self) -> None:
        key = min(key for key in self.alive if key not in self._still)
        self.diary.asked.append(key[0])
        self.say(PersonNeeded(*key, Question("May I remove build/?", 0, 3)))

    def reboots(self, down_s: float) -> None:
        """All that lives dies at one moment."""
        self.up, self._generation = False, self._generation + 1
        for key in list(self.alive):
            self._still.discard(key)
            self._end(key, End.LOST, recovery.REBOOTED)
        self.at(self.now + down_s, self._next_supervisor)

    def _next_supervisor(self) -> None:
        self.up = True
        self.home.boot.write_text(f"{OTHER_BOOT}\n")
        self._begin_watch()
        self._time.note_boot(self.home)
        self.crew = Crew(slots=SLOTS, order=self.crew.order)
        rows = [row for row in self.ledger.unreleased() if row.state is not AttemptState.ENDED]
        self.say(*night_service.begins(self.ledger), Submitted(self.ledger.unfinished(self.now)))
        self._tell_spent()
        for row in rows:
            key = row.task, row.epoch
            if row.state is AttemptState.COLLECTING:
                self._job(SECURE_S, partial(self._secure, key, End(row.judged or End.LOST), row.end_cause))
            elif key in self.diary.started:
                self.say(TreeGone(*key, *self._ended[key]))
            else:
                self._job(LAUNCH_S, partial(self._launch, key))

    # The morning -----------------------------------------------------------------------------------------------------------------

    def keep_account(self) -> None:
        """Write down what the provider served, as the gateway does."""
        asyncio.run(self._keep_account())

    async def _keep_account(self) -> None:
        book = Account(self.home.gateway_account, lambda: self.wall)
        book.start(unpriced)
        facts = [
            {"agent": task, "epoch": epoch, "model": model, "at": at, "queued_ms": 0.0}
            for (task, epoch), at, model, _, _ in self.diary.requests
        ]
        opened_rows = await asyncio.gather(*(book.open(opened(**one)) for one in facts))
        for row, (_, _, _, tokens, cost) in zip(opened_rows, self.diary.requests, strict=True):
            book.settle(row, served(usage=tokens, cost_usd=cost))
        await book.close()


def _after(number: int) -> tuple[str, ...]:
    return (f"t{number - 5}",) if number % 10 == 9 else ()
