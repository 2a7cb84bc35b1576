"""Types the texts that people send into their agents: each at most once, in the order in which they were sent, when the agent can take it.

The ledger says that a text is about to be typed before tmux is asked, and tmux notes on the pane, in the same command, which text it typed:
so a supervisor that was killed in between leaves the next one able to tell. `agents/delivery.py` decides, this file asks and acts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from agents import delivery
from agents.delivery import Known
from agents.status import Evidence
from agents.tmux import Tmux
from supervisor.core.crew import Crew
from supervisor.core.deliveries import Delivery, DeliveryState
from supervisor.core.errors import NightcrewError, NotFound
from supervisor.core.records import attempt_name
from supervisor.core.states import FINAL, AttemptState
from supervisor.daemon.agent_evidence import AgentEvidence
from supervisor.daemon.jobs import Doors, Jobs
from supervisor.host import foreign, terminals
from supervisor.host.clock import Clock
from supervisor.host.failpoint import failpoint

Key = tuple[str, int]
EVERY_S = 0.5
"""Between two tries with texts that wait."""
POLL_S = 0.05
"""Between two looks for a confirmation."""
_RECORD_MAX = 64 * 1024
_BEHIND = "a text that was sent before it waits"


class Sending:
    """The typist of one supervisor. Belongs to the loop's thread."""

    def __init__(self, doors: Doors, jobs: Jobs, clock: Clock, evidence: AgentEvidence) -> None:
        self._rows = doors.ledger.deliveries
        self._observer = doors.observer
        self._tmux = doors.tmux
        self._evidence = evidence
        self._jobs = jobs
        self._clock = clock
        self._waiting: dict[str, list[int]] | None = None
        """Texts that wait, by task, oldest first; None until the ledger was read."""
        self._rounds: dict[str, asyncio.Task[None]] = {}
        self._stepped = -EVERY_S

    async def send(self, crew: Crew, tasks: Collection[str], text: str, *, now: bool) -> list[Delivery]:
        """Keep the text for each task, try to type it, and return what came of it. With `now` nothing waits: it is dropped instead."""
        kept = self._rows.keep(tasks, text)
        failpoint("send.kept")
        waiting = self._known()
        for one in kept:
            waiting.setdefault(one.task, []).append(one.id)
        await asyncio.gather(*(self._try(crew, one.task) for one in kept))
        if now:
            await self._give_up(kept)
        return [self._rows.one(one.id) for one in kept]

    def step(self, crew: Crew) -> None:
        """Try again with the texts that wait, unless that was a moment ago; those of tasks that have ended are dropped."""
        now = self._clock.monotonic()
        if now - self._stepped < EVERY_S:
            return
        self._stepped = now
        for task in [task for task, texts in self._known().items() if texts and not self._under_way(task)]:
            if task not in crew.tasks or crew.tasks[task].state in FINAL:
                self._drop(task, "its task ended first")
            elif (key := typable(crew, task)) is not None:
                self._round(key)

    def _known(self) -> dict[str, list[int]]:
        if self._waiting is None:
            self._waiting = {}
            for one in self._rows.unfinished():
                self._waiting.setdefault(one.task, []).append(one.id)
        return self._waiting

    def _drop(self, task: str, why: str) -> None:
        for number in self._known().pop(task):
            # One that was being typed as the supervisor and then its task ended may have been read.
            typing = self._rows.one(number).state is DeliveryState.TYPING
            self._rows.ended(number, DeliveryState.UNCONFIRMED if typing else DeliveryState.DROPPED, why)

    async def _give_up(self, kept: list[Delivery]) -> None:
        for sent in kept:
            await self._round_ended(sent.task)
            one = self._rows.one(sent.id)
            if one.state is DeliveryState.PENDING:
                self._known()[one.task].remove(one.id)
                self._rows.ended(one.id, DeliveryState.DROPPED, one.reason)

    async def _round_ended(self, task: str) -> None:
        while self._under_way(task):
            await asyncio.wait([self._rounds[task]])

    def _under_way(self, task: str) -> bool:
        return task in self._rounds and not self._rounds[task].done()

    async def _try(self, crew: Crew, task: str) -> None:
        await self._round_ended(task)
        key = typable(crew, task)
        if key is None:
            for number in self._known().get(task, ()):
                self._rows.waits(number, "its agent does not run now")
        else:
            await asyncio.wait([self._round(key)])

    def _round(self, key: Key) -> asyncio.Task[None]:
        """Type what waits for one attempt, as far as it goes; one round a time for one task."""
        if not self._under_way(key[0]):
            self._rounds[key[0]] = asyncio.get_running_loop().create_task(self._type_all(key))
        return self._rounds[key[0]]

    async def _type_all(self, key: Key) -> None:
        texts = self._known()[key[0]]
        try:
            while texts and not (why := await self._type(key, self._rows.one(texts[0]))):
                texts.pop(0)
            for place, number in enumerate(texts):
                self._rows.waits(number, _BEHIND if place else why)
        except NightcrewError as error:
            self._jobs.say(f"{attempt_name(*key)}: a text could not be sent yet: {error.line()}")

    async def _type(self, key: Key, one: Delivery) -> str:
        """Why it must wait; empty when it came to its end."""
        place = await self._jobs.within(self._jobs.stoppers, self._observer.place, key)
        if one.state is DeliveryState.TYPING and not await self._again(place, one):
            return ""
        if place is None:
            return "it has no pane"
        before = await self._look(key, place[1])
        if why := delivery.why_not(before, one.text):
            return why
        self._rows.typing(one.id, key[1])
        failpoint("send.committed")
        await self._act(key, place[1], one, before)
        return ""

    async def _again(self, place: tuple[str, str] | None, one: Delivery) -> bool:
        """Whether a text that a supervisor was about to type as it ended was not typed. tmux knows, as long as the pane is there."""
        pane = await self._jobs.within(self._jobs.stoppers, self._tmux.pane_input, place[1]) if place is not None else None
        if pane is not None and not pane.dead and pane.mark != str(one.id):
            self._rows.back(one.id)
            return True
        why = "the supervisor ended before anything confirmed it"
        self._rows.ended(one.id, DeliveryState.UNCONFIRMED, why if pane is not None else f"{why}, and its pane is gone")
        return False

    async def _act(self, key: Key, pane: str, one: Delivery, before: Known) -> None:
        try:
            await self._jobs.within(self._jobs.stoppers, self._type_text, pane, one.text, str(one.id))
            failpoint("send.typed")
            after = await self._looked_for(key, pane, before)
            if delivery.may_press_again(before, after):
                await self._jobs.within(self._jobs.stoppers, self._type_text, pane, "", str(one.id))
                failpoint("send.pressed-again")
                after = await self._looked_for(key, pane, before)
        except NightcrewError as error:  # what tmux was asked for may still happen, so it is not asked again
            self._rows.ended(one.id, DeliveryState.UNCONFIRMED, error.line())
            return
        if delivery.confirmed(before, after):
            self._rows.ended(one.id, DeliveryState.CONFIRMED)
        else:
            self._rows.ended(one.id, DeliveryState.UNCONFIRMED, delivery.why_unconfirmed(after))

    def _type_text(self, pane: str, text: str, mark: str) -> None:
        self._tmux.send_text(pane, text, mark=mark)

    async def _looked_for(self, key: Key, pane: str, before: Known) -> Known:
        """What is known when it is confirmed, or when there was time enough for that."""
        until = self._clock.monotonic() + (delivery.CONFIRM_S if before.words else delivery.READ_S)
        while True:
            await asyncio.sleep(POLL_S)  # tmux has answered before it writes to the terminal
            after = await self._look(key, pane)
            if delivery.settled(before, after) or self._clock.monotonic() > until:
                return after

    async def known(self, key: Key) -> Known | None:
        """What is known now of an agent that owns its pane, its hooks and its screen among that; None when that cannot be looked at."""
        try:
            place = await self._jobs.within(self._jobs.stoppers, self._observer.place, key)
            return await self._look(key, place[1]) if place is not None else None
        except NightcrewError:  # it ended, or tmux does not answer: who asks is told what else is known
            return None

    async def _look(self, key: Key, pane: str) -> Known:
        seen: Known = await self._jobs.within(self._jobs.stoppers, look, self._tmux, pane, self._clock.wall())
        session, heard, _ = self._evidence.of(key)
        return replace(seen, words=(*seen.words, *heard), session=session)


def typable(crew: Crew, task: str) -> Key | None:
    """The attempt of a task whose program runs and is not suspended; None when there is none."""
    found = crew.tasks.get(task)
    attempt = found.attempt if found is not None else None
    if attempt is None or attempt.state is not AttemptState.RUNNING or attempt.suspended or attempt.held:
        return None
    return task, attempt.epoch


def look(tmux: Tmux, pane_id: str, wall: float) -> Known:
    """What is known of the agent in a pane, but for its hooks. Raises NotFound when its program has ended, ToolFailed when tmux cannot be
    asked."""
    pane = tmux.pane_input(pane_id)
    if pane.dead:
        raise NotFound("its program has ended", on=pane_id)
    screen = tmux.capture(pane_id, history=False)
    terminal = terminals.look(pane.tty, pane.pid)
    if terminal is None:
        raise NotFound("no terminal can be looked at", on=pane.tty)
    claude = [pid for pid in terminal.foreground if terminals.name(pid) == delivery.CLAUDE]
    said = [piece for piece in map(_record, claude) if piece is not None]
    return Known(
        words=tuple(said[:1]),
        begins=bool(claude) and not said,
        unread=terminal.unread,
        age_s=terminals.age_s(terminal.foreground),
        line_max=terminals.LINE_MAX if terminal.by_lines else 0,
        screen=screen,
        person_s=wall - pane.key_at if pane.key_at is not None else None,
    )


def _record(pid: int) -> Evidence | None:
    folder, number = terminals.claude_folder(pid), terminals.inner_pid(pid)
    data = foreign.read_plain(Path(folder, "sessions", f"{number}.json"), _RECORD_MAX) if folder is not None else None
    return delivery.session_file(data, number, terminals.start_ticks(pid))
