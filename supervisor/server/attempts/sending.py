"""Type texts of people into agents, each at most once."""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Collection, Coroutine, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agents import typing_rules as delivery
from agents.agent_state import Evidence
from agents.kinds import of_task
from agents.protocols import Live
from agents.tmux import Tmux
from agents.typing_rules import Known
from supervisor.host import files, processes, untrusted_fs
from supervisor.host.clock import Clock
from supervisor.host.failpoint import failpoint
from supervisor.host.paths import Home
from supervisor.host.processes import Groups
from supervisor.kernel.conversations import Delivery, DeliveryState, Remarks
from supervisor.kernel.crew import Crew
from supervisor.kernel.errors import NightcrewError, NotFound, Refused
from supervisor.kernel.spec import TaskSpec
from supervisor.kernel.states import FINAL, AttemptState
from supervisor.sandbox import homes as agent_homes
from supervisor.server.attempts.agent_environment import INBOX
from supervisor.server.attempts.jobs import Doors, Jobs
from supervisor.server.attempts.observe import AgentEvidence, AgentStreams, Stream

if TYPE_CHECKING:
    from supervisor.server.loop import Loop


# Inboxes
# -------
# Texts for headless agents: a file each in the attempt's inbox, which the agent's driver reads when a turn ends (`agents.turns`).
#
# The files and what the agent printed are all that tells: each step finds out what was done and goes on from there, so no text is
# given to an agent twice, whoever dies between two steps. All functions read and write files: call them in a thread.


Key = tuple[str, int]


def reads(spec: TaskSpec) -> bool:
    """Whether its agent has an inbox."""
    kind = of_task(spec.kind)
    return kind.takes_input and not kind.owns_terminal(interactive=spec.interactive)


def put(home: Home, key: Key, number: int, text: str) -> None:
    """Put a text into the inbox of an attempt; nothing when it is there already. Raises HostError, DiskFull."""
    file = _file(home, key, number)
    if not file.exists():
        files.atomic_write(file, text.encode("utf-8", "replace"), durable=False)


def there(home: Home, key: Key, number: int) -> bool:
    """Whether it was put there."""
    return _file(home, key, number).exists()


def take_back(home: Home, task: str, number: int) -> None:
    """Remove a text that `fate` knows nothing of from the inboxes of a task's attempts."""
    for epoch in _epochs(home, task):
        _file(home, (task, epoch), number).unlink(missing_ok=True)


def fate(home: Home, task: str, protocol: str, number: int) -> tuple[int, Live] | None:
    """The newest attempt of a task that was given the text, and what it said; None when none was. Raises ToolFailed."""
    for epoch in _epochs(home, task):
        if not there(home, (task, epoch), number):
            continue
        stream = Stream(home.attempt(task, epoch) / "stdout.log", protocol)
        while stream.read():
            pass
        if stream.live.given >= number:
            return epoch, stream.live
    return None


def _epochs(home: Home, task: str) -> list[int]:
    """Of its attempts that have records, the newest first."""
    attempts = home.attempt(task, 0).parent
    if not attempts.is_dir():
        return []
    return sorted((int(folder.name) for folder in attempts.iterdir() if folder.name.isdecimal()), reverse=True)


def _file(home: Home, key: Key, number: int) -> Path:
    return home.attempt(*key) / INBOX / f"{number}.txt"


# Sending
# -------
# Types the texts that people send into their agents: each at most once, in the order in which they were sent, when the agent can
# take it.
#
# The ledger says that a text is about to be typed before tmux is asked, and tmux notes on the pane, in the same command, which text
# it typed: so a supervisor that was killed in between leaves the next one able to tell. `agents/typing_rules.py` decides, this file
# asks and acts.


EVERY_S = 0.5
"""Between two tries with texts that wait."""
POLL_S = 0.05
"""Between two looks for a confirmation."""
_RECORD_MAX = 64 * 1024
_BEHIND = "a text that was sent before it waits"
_NEXT_TURN = "it works; it gets the text when its turn ends"
_CUT_OFF = "its agent was given the text, and ended before it said anything more"


class Sending:
    """The typist of one supervisor. Belongs to the loop's thread."""

    def __init__(self, doors: Doors, jobs: Jobs, clock: Clock, evidence: AgentEvidence, streams: AgentStreams) -> None:
        self._ledger = doors.ledger
        self._home = doors.home
        self._streams = streams
        self._rows = doors.ledger.deliveries
        self._observer = doors.observer
        self._tmux = doors.tmux
        self._evidence = evidence
        self._jobs = jobs
        self._clock = clock
        self._waiting: dict[str, list[int]] | None = None
        """Texts that wait, by task, oldest first; None until the ledger was read."""
        self._rounds: dict[str, asyncio.Task[None]] = {}
        self._inboxes: dict[str, bool] = {}
        """Whether the agent of a task has an inbox, by task."""
        self.answering: set[str] = set()
        """Tasks whose dialog is being answered."""
        self._stepped = -EVERY_S

    async def send(
        self,
        crew: Crew,
        tasks: Collection[str],
        text: str,
        *,
        now: bool,
        comments: Collection[int] | None = None,
        remarks: Remarks | None = None,
    ) -> list[Delivery]:  # fmt: skip
        """Keep the text for each task, try to type it, and return what came of it. With `now` nothing waits: it is dropped instead.
        `comments` and `remarks` as of `Deliveries.keep`."""
        kept = self._rows.keep(tasks, text, comments=comments, remarks=remarks)
        failpoint("send.kept")
        waiting = self._known()
        for one in kept:
            waiting.setdefault(one.task, []).append(one.id)
        await asyncio.gather(*(self._try(crew, one.task) for one in kept))
        if now:
            await self._give_up(kept)
        return [self._rows.one(one.id) for one in kept]

    def post(self, task: str, text: str, mails: Collection[str]) -> Delivery:
        """Keep a text with these messages for a task, and hand it over in a later step; see `Deliveries.keep`."""
        waiting = self._known()
        kept = self._rows.keep([task], text, mails)[0]
        failpoint("send.kept")
        waiting.setdefault(task, []).append(kept.id)
        return kept

    async def withdraw(self, number: int, why: str) -> bool:
        """Drop a text that waits. False, with nothing done, when an agent was given it, or may have been."""
        task = self._rows.one(number).task
        await self._round_ended(task)
        one = self._rows.one(number)
        if one.state is not DeliveryState.PENDING or number not in self._known().get(task, ()):
            return False
        self._known()[task].remove(number)
        if self._has_inbox(task):
            if await self._given(one):
                return False
            await self._jobs.within(self._jobs.stoppers, take_back, self._home, task, number)
        self._rows.ended(number, DeliveryState.DROPPED, why)
        return True

    def step(self, crew: Crew) -> None:
        """Try again with the texts that wait, unless that was a moment ago; those of tasks that have ended are dropped."""
        now = self._clock.monotonic()
        if now - self._stepped < EVERY_S:
            return
        self._stepped = now
        for task in [task for task, texts in self._known().items() if texts and not self._under_way(task)]:
            if task not in crew.tasks or crew.tasks[task].state in FINAL:
                self._start(task, self._close(task))
            elif (key := typable(crew, task)) is not None:
                self._round(key)

    def _known(self) -> dict[str, list[int]]:
        if self._waiting is None:
            self._waiting = {}
            for one in self._rows.unfinished():
                self._waiting.setdefault(one.task, []).append(one.id)
        return self._waiting

    def _has_inbox(self, task: str) -> bool:
        if task not in self._inboxes:
            self._inboxes[task] = reads(self._ledger.launch_row(task).spec)
        return self._inboxes[task]

    async def _close(self, task: str) -> None:
        """The task has ended: what became of the texts that waited for it."""
        texts, why = self._known()[task], "its task ended first"
        while texts:
            one = self._rows.one(texts[0])
            if not (self._has_inbox(task) and await self._given(one)):
                # One that was being typed as the supervisor and then its task ended may have been read.
                typing = one.state is DeliveryState.TYPING
                self._rows.ended(one.id, DeliveryState.UNCONFIRMED if typing else DeliveryState.DROPPED, why)
            texts.pop(0)
        self._known().pop(task, None)
        self._inboxes.pop(task, None)

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
        return self._start(key[0], self._hand_over(key) if self._has_inbox(key[0]) else self._type_all(key))

    def _start(self, task: str, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        if self._under_way(task):
            work.close()
        else:
            self._rounds[task] = asyncio.get_running_loop().create_task(self._said(task, work))
        return self._rounds[task]

    async def _said(self, task: str, work: Coroutine[None, None, None]) -> None:
        try:
            await work
        except NightcrewError as error:
            self._jobs.say(f"{task}: a text could not be sent yet: {error.line()}")

    async def _type_all(self, key: Key) -> None:
        texts = self._known()[key[0]]
        while texts and not (why := await self._type(key, self._rows.one(texts[0]))):
            texts.pop(0)
        for place, number in enumerate(texts):
            self._rows.waits(number, _BEHIND if place else why)

    # Headless agents -----------------------------------------------------------------------------------------------------------------

    async def _hand_over(self, key: Key) -> None:
        """Put what waits for one attempt into its inbox, all of it: turns may be short. What it has taken is done with."""
        texts = self._known()[key[0]]
        await self._streams.fresh([key])
        for number in list(texts):
            one, heard = self._rows.one(number), self._streams.of(key)
            if heard.taken >= number:
                self._took(one, key[1], confirmed=True)
                texts.remove(number)
            elif heard.given >= number:
                if one.state is not DeliveryState.TYPING:
                    self._rows.typing(number, key[1])
            elif await self._put(key, one):
                self._rows.waits(number, _NEXT_TURN)
            else:
                texts.remove(number)

    async def _put(self, key: Key, one: Delivery) -> bool:
        """Whether it waits in the attempt's inbox; else an earlier attempt was given it, and that was said."""
        if await self._jobs.within(self._jobs.stoppers, there, self._home, key, one.id):
            return True
        if await self._given(one):
            return False
        await self._jobs.within(self._jobs.stoppers, put, self._home, key, one.id, one.text)
        failpoint("send.put")
        return True

    async def _given(self, one: Delivery) -> bool:
        """Whether an attempt was given the text, by its files; then what became of it is committed."""
        protocol = of_task(self._ledger.launch_row(one.task).spec.kind).protocol
        found = await self._jobs.within(self._jobs.stoppers, fate, self._home, one.task, protocol, one.id)
        if found is not None:
            self._took(one, found[0], confirmed=found[1].taken >= one.id)
        return found is not None

    def _took(self, one: Delivery, epoch: int, *, confirmed: bool) -> None:
        if one.state is not DeliveryState.TYPING:
            self._rows.typing(one.id, epoch)
        self._rows.ended(one.id, *((DeliveryState.CONFIRMED, "") if confirmed else (DeliveryState.UNCONFIRMED, _CUT_OFF)))

    # Typing --------------------------------------------------------------------------------------------------------------------------

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
            after = await self._confirmed(key, pane, one, before)
        except NightcrewError as error:  # what tmux was asked for may still happen, so it is not asked again
            self._rows.ended(one.id, DeliveryState.UNCONFIRMED, error.line())
            return
        if delivery.confirmed(before, after):
            self._rows.ended(one.id, DeliveryState.CONFIRMED)
        else:
            self._rows.ended(one.id, DeliveryState.UNCONFIRMED, delivery.why_unconfirmed(after))

    def _type_text(self, pane: str, text: str, mark: str) -> None:
        self._tmux.send_text(pane, text, mark=mark)

    async def _confirmed(self, key: Key, pane: str, one: Delivery, before: Known) -> Known:
        """What is known when it is confirmed, or when there was time enough for that. Enter is pressed once more where the agent has read
        all of it for a while and does not begin."""
        until = self._clock.monotonic() + (delivery.CONFIRM_S if before.words else delivery.READ_S)
        read_at, pressed = math.inf, False
        while True:
            await asyncio.sleep(POLL_S)  # tmux has answered before it writes to the terminal
            after, now = await self._look(key, pane), self._clock.monotonic()
            if delivery.settled(before, after) or now > until:
                return after
            read_at = math.inf if after.unread else min(read_at, now)
            if not pressed and now - read_at >= delivery.PRESS_AGAIN_S and delivery.may_press_again(before, after):
                await self._jobs.within(self._jobs.stoppers, self._type_text, pane, "", str(one.id))
                failpoint("send.pressed-again")
                pressed = True

    async def press(self, key: Key, keys: Sequence[str]) -> None:
        """Press keys in an agent's pane, once. Raises NotFound, ToolFailed."""
        place = await self._jobs.within(self._jobs.stoppers, self._observer.place, key)
        if place is None:
            raise NotFound("no pane of", on=key[0], hint="nightcrew status")
        await self._jobs.within(self._jobs.stoppers, self._tmux.press, place[1], keys)

    async def known(self, key: Key, together: Groups | None = None) -> Known | None:
        """Look at an agent that owns its pane, its hooks and its screen included; return None when that fails.
        `together` as of `terminals.look`."""
        try:
            seen = await self._jobs.within(self._jobs.stoppers, self._known_now, key, self._clock.wall(), together)
        except NightcrewError:  # it ended, or tmux does not answer: who asks is told what else is known
            return None
        return None if seen is None else self._with_hooks(key, seen)

    def _known_now(self, key: Key, wall: float, together: Groups | None) -> Known | None:
        place = self._observer.place(key)
        return look(self._tmux, place[1], wall, self._home.attempt(*key), together) if place is not None else None

    async def _look(self, key: Key, pane: str) -> Known:
        attempt = self._home.attempt(*key)
        return self._with_hooks(key, await self._jobs.within(self._jobs.stoppers, look, self._tmux, pane, self._clock.wall(), attempt))

    def _with_hooks(self, key: Key, seen: Known) -> Known:
        session, heard, _ = self._evidence.of(key)
        return replace(seen, words=(*seen.words, *heard), session=session)


def typable(crew: Crew, task: str) -> Key | None:
    """The attempt of a task whose program runs and is not paused; None when there is none."""
    found = crew.tasks.get(task)
    attempt = found.attempt if found is not None else None
    if attempt is None or attempt.state is not AttemptState.RUNNING or attempt.paused or attempt.held:
        return None
    return task, attempt.epoch


def look(tmux: Tmux, pane_id: str, wall: float, attempt: Path, together: Groups | None = None) -> Known:
    """Return what is known of the agent in a pane, but for its hooks. `attempt` is the directory of its records, `together` as of
    `terminals.look`. Raises NotFound when its program has ended, ToolFailed when tmux cannot be asked."""
    pane, screen = tmux.pane_and_screen(pane_id)
    if pane.dead:
        raise NotFound("its program has ended", on=pane_id)
    terminal = processes.look(pane.tty, pane.pid, together)
    if terminal is None:
        raise NotFound("no terminal can be looked at", on=pane.tty)
    claude = [pid for pid in terminal.foreground if processes.name(pid) == delivery.CLAUDE]
    said, prompted = [], 0.0
    for pid in claude:
        piece, at = _record(pid, attempt)
        prompted = max(prompted, at)
        if piece is not None:
            said.append(piece)
    return Known(
        looked=wall,
        prompted=prompted,
        words=tuple(said[:1]),
        begins=bool(claude) and not said,
        unread=terminal.unread,
        age_s=processes.age_s(terminal.foreground),
        line_max=processes.LINE_MAX if terminal.by_lines else 0,
        screen=screen,
        title=pane.title,
        printed=float(pane.printed),
        person_s=wall - pane.key_at if pane.key_at is not None else None,
    )


def _record(pid: int, attempt: Path) -> tuple[Evidence | None, float]:
    """Return what Claude Code says of its session in its record, and when that session took its last prompt (0: not known)."""
    folder, number = processes.claude_folder(pid), processes.inner_pid(pid)
    if folder is None:
        return None, 0.0
    place = Path(os.path.realpath(folder))
    data = _read_home(place / "sessions", f"{number}.json", attempt)
    history = _read_home(place, "history.jsonl", attempt)
    return delivery.session_file(data, number, processes.start_ticks(pid)), delivery.last_prompt(history or b"", data)


def _read_home(place: Path, name: str, attempt: Path) -> bytes | None:
    """Return the end of a file in Claude Code's home, from the attempt's own copy of that directory when it has a copy."""
    homes = agent_homes.of(attempt)
    own = homes.own(str(place)) if homes is not None else ""
    if not own:
        return untrusted_fs.read_plain(place / name, _RECORD_MAX, tail=True)
    try:
        with untrusted_fs.folder(attempt, own) as here:
            return here.read(name, _RECORD_MAX, tail=True)
    except OSError:
        return None


# Send
# ----
# Give a text to agents: typed into those that own their panes, by their protocol to those that take it so; or keep it until they
# can.


async def handle(loop: Loop, *, tasks: list[str], text: str, now: bool = False, some: bool = False) -> dict[str, Any]:
    """See `send`."""
    return await send(loop, tasks, text, now=now, some=some)


async def send(
    loop: Loop, tasks: Sequence[str], text: str, *, now: bool = False, some: bool = False, comments: Sequence[int] | None = None,
    remarks: Remarks | None = None,
) -> dict[str, Any]:  # fmt: skip
    """`tasks`: full ids; `text`: as it will be typed; `now`: keep nothing for later; `some`: leave out those that cannot be typed into;
    `comments`: numbers of the comments to the one task's result that the text holds; `remarks`: what came back from a pull request.
    Returns what became of each. Raises Refused, and keeps nothing, when one of them has no terminal or has ended, and
    BudgetSpent when one has used up a cap past the gateway.
    """
    loop.refuse_early()
    names = list(dict.fromkeys(tasks))
    await loop.agents.sessions.fresh([key for name in names if (key := typable(loop.crew, name)) is not None])
    await loop.jobs.refuse_used_up(names, "cannot send to")
    never = {name: why for name in names if (why := _why_never(loop, name, text, now=now))}
    wanted = [name for name in names if name not in never]
    if never and (not some or not wanted):
        name, why = next(iter(never.items()))
        raise Refused("cannot send to", on=name, why=why, kept="nothing was typed", hint="nightcrew status")
    done = await loop.agents.sending.send(loop.crew, wanted, text, now=now, comments=comments, remarks=remarks)
    refused = [one for one in done if one.state is DeliveryState.DROPPED]
    if refused and len(refused) == len(done):
        raise Refused("not sent to", on=refused[0].task, why=refused[0].reason, kept="nothing was typed", hint="without --now it is kept")
    return {"deliveries": [one.shape() for one in done], "left_out": never}


def _why_never(loop: Loop, name: str, text: str, *, now: bool) -> str:
    try:
        spec = loop.ledger.launch_row(name).spec
    except KeyError:
        raise NotFound("no task", on=name, hint="nightcrew status") from None
    if reads(spec):
        if now:
            return "it works by itself: it gets a text when its turn ends, and not now"
        if not text:
            return "an empty text presses Enter, and it works by itself"
    elif not of_task(spec.kind).owns_terminal(interactive=spec.interactive):
        return f"it is headless: a task of kind {spec.kind} reads no terminal, and takes no text while it works"
    state = loop.crew.tasks[name].state if name in loop.crew.tasks else loop.ledger.task(name, 0.0).state
    return f"it has ended: {state}" if state in FINAL else ""
