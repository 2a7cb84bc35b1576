"""What becomes of mail after it was taken: handed to agents at their next turn, followed until it is read, sent back where nobody will read
it; and what a supervisor before us left undone."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from agents.kinds import of_task
from agents.tmux import typed_text
from memory import maildir
from memory.maildir import Box
from memory.plain_text import quoted
from supervisor.core import mail as rules
from supervisor.core.deliveries import Delivery, DeliveryState
from supervisor.core.errors import NightcrewError
from supervisor.core.mail import PERSON, SUPERVISOR, Mail, MailState
from supervisor.daemon.memory.adopting import Adopting
from supervisor.daemon.memory.mail import MailDesk
from supervisor.daemon.wakeups import was_set
from supervisor.host.failpoint import failpoint
from supervisor.ledger import mail as rows

STEP_S = 0.5
"""Between two looks at what became of texts, and at who has ended."""
SCAN_EVERY = 10
"""Steps between two looks for files that came by no door and that no event told of."""
_LOST = "somebody removed its file, or made something else of it"


class MailKeeper:
    """Follows the mail of a desk. Belongs to the loop's thread; `keep` runs it."""

    def __init__(self, desk: MailDesk) -> None:
        self._desk = desk
        self._loop = desk.loop
        self._adopting = Adopting(desk)
        self.scan = self._adopting.scan
        self._came = asyncio.Event()
        desk.give = self.give

    async def keep(self) -> None:
        """Find what a supervisor before us left, then follow texts, ends and files until cancelled."""
        while not self._loop.ready:
            await asyncio.sleep(STEP_S / 10)
        while not await self._tried(self.recover):
            await asyncio.sleep(STEP_S)
        turn = 0
        while True:
            came = self._came.is_set()
            self._came.clear()
            await self._tried(self.step)
            if came or self._adopting.unfinished or turn % SCAN_EVERY == 0:
                await self._tried(self.scan)
            turn += 1
            if came:  # a flood of files costs a look each step, and no more
                await asyncio.sleep(STEP_S)
            else:
                await was_set(self._came, STEP_S)

    def found(self, paths: Iterable[str]) -> None:
        """Files of mailboxes changed, by their paths: look at once for those that came by no door."""
        if any(rows.one(self._desk.db, maildir.id_of(path.rpartition("/")[2])) is None for path in paths):
            self._came.set()

    async def _tried(self, work: Callable[[], Coroutine[Any, Any, None]]) -> bool:
        """Whether it was done: a full disk, most often, and it is tried again with the next step."""
        try:
            await work()
        except NightcrewError as error:
            self._loop.alert(f"mail waits: {error.line()}")
            return False
        return True

    async def recover(self) -> None:
        """Each message that nobody has read lies in `new/` again. A draft without a row was never accepted: nobody was told so."""
        for mail in rows.unread(self._desk.db):
            self._desk.open[mail.recipient][mail.id] = mail
            await self._desk.on_thread(functools.partial(self._put_back, mail))
        for (project,) in self._desk.db.execute("SELECT id FROM project").fetchall():
            await self._desk.on_thread(functools.partial(self._forget_drafts, str(project)))
        accepted = [mail.id for mails in self._desk.open.values() for mail in mails.values() if mail.state is MailState.ACCEPTED]
        self._loop.ledger.mails.filed(accepted)
        for name in accepted:
            self._desk.look_again(name)
        self._desk.ready.set()

    def _put_back(self, mail: Mail) -> None:
        box = self._desk.box(mail)
        match box.where(mail.id):
            case Box.CUR:  # it was claimed, and who claimed it did not get it
                box.give_back(mail.id)
            case Box.TMP:
                box.deliver(mail.id)

    def _forget_drafts(self, project: str) -> None:
        for owner in maildir.owners(self._desk.mail_root(project)):
            box, ours = self._desk.mailbox(project, owner), self._desk.ours(project, owner)
            for name in box.drafts():
                if name not in ours:
                    box.forget(name)

    async def step(self) -> None:
        """One look at what became of the texts of agents that live, and at who has ended."""
        for task in [name for name, mails in self._desk.open.items() if mails and name != PERSON]:
            if task in self._loop.crew.living or self._desk.has_ended(task):
                await self._follow(task)
        for name in [name for name, mails in self._desk.open.items() if not mails]:
            del self._desk.open[name]

    # An agent's next turn --------------------------------------------------------------------------------------------------------------

    async def give(self, task: str) -> None:
        """Hand what waits for an agent to its next turn, if its kind takes texts. A notice of the supervisor begins no turn: it goes with
        the first message of another sender, or the agent reads it at the socket or with a tool's hook."""
        if task == PERSON or self._desk.has_ended(task) or not self._takes_texts(task):
            return
        if all(mail.sender == SUPERVISOR or not self._can_be_given(mail) for mail in self._desk.unread_of(task)):
            return
        notices = [mail for mail in self._desk.unread_of(task) if mail.sender == SUPERVISOR]
        beside: list[tuple[Mail, str]] = []
        for mail in [*notices, *(mail for mail in self._desk.unread_of(task) if mail.sender != SUPERVISOR)]:
            if not self._can_be_given(mail):
                continue
            body = await self._desk.body(mail)
            now = self._desk.open[task].get(mail.id)
            if now is None or now.state is not MailState.NEW:
                continue
            if body is None:
                await self._over(mail, MailState.LOST, _LOST)
                continue
            beside.append((mail, rules.notice(mail, quoted(body, f"{mail.sender}, message {mail.id}"))))
            if mail.sender != SUPERVISOR:
                self._post(task, beside)
                beside = []

    def _can_be_given(self, mail: Mail) -> bool:
        return mail.state is MailState.NEW and not self._desk.is_awaited(mail)

    def _post(self, task: str, beside: list[tuple[Mail, str]]) -> None:
        """Keep one text with these messages, of which the last begins the turn; those that another reader took meanwhile are left out."""
        waiting = self._desk.open[task]
        still = [(mail, text) for mail, text in beside if mail.id in waiting and waiting[mail.id].state is MailState.NEW]
        if beside[-1] not in still:
            return
        self._loop.sending.post(task, typed_text("\n\n".join(text for _, text in still)), [mail.id for mail, _ in still])
        failpoint("mail.given")
        for mail, _ in still:
            self._desk.look_again(mail.id)

    async def notices(self, task: str, epoch: int) -> str:
        """Claim the notices of the supervisor that wait for an agent, for a hook's answer that goes out anyway: their text, or ""."""
        found = []
        for mail in [mail for mail in self._desk.unread_of(task) if mail.sender == SUPERVISOR and self._can_be_given(mail)]:
            if (body := await self._desk.take(mail, epoch)) is not None:
                found.append(rules.notice(mail, quoted(body, f"{mail.sender}, message {mail.id}")))
        return "\n\n".join(found)

    def _takes_texts(self, task: str) -> bool:
        """Whether its agent reads what is typed or put into its inbox as a prompt. A program that owns its pane and is no agent could be a
        shell, which would run what it is told."""
        spec = self._loop.ledger.launch_row(task).spec
        kind = of_task(spec.kind)
        return kind.is_agent and (kind.takes_input or kind.owns_terminal(interactive=spec.interactive))

    async def _follow(self, task: str) -> None:
        """What became of the texts of an agent that lives, or has ended."""
        ended, living = self._desk.has_ended(task), self._loop.crew.living.get(task)
        for mail in self._desk.unread_of(task):
            if mail.state is MailState.GIVEN and mail.delivery is not None:
                await self._settle(mail, self._loop.ledger.deliveries.one(mail.delivery), living.epoch if living is not None else None)
        if not ended:
            await self.give(task)
            return
        for mail in self._desk.unread_of(task):
            if self._is_settled(mail) and await self._desk.on_thread(functools.partial(self._claimed, mail)):
                why = f"{task} has ended and did not read it"
                if mail.epoch is not None:
                    why = f"{task} was given it and has ended; nothing says that it read it"
                await self._over(mail, MailState.BOUNCED, why)

    def _is_settled(self, mail: Mail) -> bool:
        """Whether nothing more becomes known of a message to a task that has ended: what became of a text is found out after that."""
        if mail.state is MailState.GIVEN and mail.delivery is not None:
            return self._loop.ledger.deliveries.one(mail.delivery).state not in (DeliveryState.PENDING, DeliveryState.TYPING)
        return mail.state is MailState.NEW

    async def _settle(self, mail: Mail, text: Delivery, epoch: int | None) -> None:
        """`epoch`: of the attempt that lives now."""
        tokens = rules.tokens("x" * (mail.bytes if mail.sender == SUPERVISOR else text.size))
        if text.state is DeliveryState.CONFIRMED:
            if not await self._desk.on_thread(functools.partial(self._claimed, mail)):
                return
            failpoint("mail.claimed")
            self._loop.ledger.mails.read(mail.id, text.epoch, tokens)
        elif text.state is DeliveryState.DROPPED or (text.state is DeliveryState.UNCONFIRMED and epoch not in (None, text.epoch)):
            self._loop.ledger.mails.hold(mail.id)
        elif text.state is DeliveryState.UNCONFIRMED and mail.epoch != text.epoch:
            self._loop.ledger.mails.typed(mail.id, text.epoch, tokens)
        else:
            return
        self._desk.look_again(mail.id)

    def _claimed(self, mail: Mail) -> bool:
        """Whether it is ours to end: nobody who reads it was faster. One whose file is gone is."""
        box = self._desk.box(mail)
        return box.claim(mail.id) or box.where(mail.id) is None

    async def _over(self, mail: Mail, state: MailState, why: str) -> None:
        """Nobody will read it: whoever sent it is told, once."""
        if mail.sender != SUPERVISOR:
            subject, text = f"not read: {mail.subject}", f"Message {mail.id}: {why}."
            await self._desk.tell(mail.project, mail.sender, subject, text, about=mail.id, key=f"over {mail.id}")
        self._loop.ledger.mails.ended(mail.id, state, why)
        self._desk.look_again(mail.id)
