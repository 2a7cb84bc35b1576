"""The keys that act: each asks for what the verb of the same name does, in a thread, or on the terminal itself."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import ClassVar, Protocol, cast

from textual.binding import Binding, BindingType
from textual.screen import Screen

from supervisor.core.errors import NightcrewError
from supervisor.core.states import TaskState
from supervisor.faces.crew import Group, Row
from supervisor.faces.doors import Acts, NewTask, Page
from supervisor.faces.top.crew_list import CrewList
from supervisor.faces.top.looking import Lookers


class Top(Protocol):
    """What it asks of the app."""

    acts: Acts
    list: CrewList
    lookers: Lookers

    def say(self, text: str, *, bad: bool = False) -> None: ...

    async def ask_line(self, prompt: str, value: str, done: Callable[[str], None]) -> None: ...

    async def begin_command(self, verb: str) -> None: ...

    def choose(self, page: Page) -> None: ...

    def action_anew(self) -> None: ...


def key(keys: str, action: str) -> Binding:
    """One that no footer shows."""
    return Binding(keys, action, show=False)


def _outcome(work: Callable[[], str]) -> tuple[str, bool]:
    """What came of an act in one sentence, and whether it is bad."""
    try:
        return work(), False
    except NightcrewError as error:
        return error.line(), True
    except Exception as error:  # noqa: BLE001 - what no act foresaw is said, and the screen goes on
        return f"nightcrew itself failed: {type(error).__name__}: {error}", True


def _tasks(rows: Sequence[Row]) -> list[str]:
    """Full ids of all tasks that the rows stand for."""
    return [task for row in rows for task in row.tasks or (row.id,)]


class Main(Screen[None]):
    """Nothing on it has the keys for itself: those that Textual gives to what has them move the selection."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *(key(name, f"app.move({by})") for name, by in (("up", -1), ("down", 1), ("pageup", -10), ("pagedown", 10))),
        *(key(name, f"app.move({by})") for name, by in (("home", -100_000), ("end", 100_000))),
        key("tab", "app.page_by(1)"),
        key("shift+tab", "app.page_by(-1)"),
        key("enter", "attach"),
        key("s", "send"),
        key("a", "answer(True)"),
        key("d", "answer(False)"),
        key("n", "new"),
        key("f", "go_on"),
        key("t", "take"),
        key("p", "hold"),
        key("k", "kill"),
        key("r", "retry"),
        key("g", "open_pr"),
    ]

    @property
    def top(self) -> Top:
        """The app: it is a screen of that one alone."""
        return cast("Top", self.app)

    def _rows(self) -> list[Row]:
        rows = self.top.list.chosen()
        if not rows:
            self.top.say("no task is selected", bad=True)
        return rows

    def _row(self) -> Row | None:
        """The selected one, whatever is marked."""
        if self.top.list.row is None:
            self.top.say("no task is selected", bad=True)
        return self.top.list.row

    def _act(self, work: Callable[[], str]) -> None:
        """In a thread; what came of it is said."""

        self.run_worker(lambda: self.app.call_from_thread(self._acted, *_outcome(work)), thread=True)

    def _acted(self, said: str, bad: bool) -> None:
        self.top.say(said, bad=bad)
        self.top.action_anew()

    def elsewhere(self, work: Callable[[], str], *, wait: bool = False) -> None:
        """On the terminal itself, without this screen. `wait`: until a person has read what it said."""
        self.top.lookers.rest(now=True)
        try:
            with self.app.suspend():
                said, bad = self._outside(work, wait=wait)
        finally:
            self.top.lookers.rest(now=False)
        self._acted(said, bad)

    def _outside(self, work: Callable[[], str], *, wait: bool) -> tuple[str, bool]:
        done = _outcome(work)
        if wait:
            with contextlib.suppress(EOFError, KeyboardInterrupt):
                input("\n[Enter goes back to nightcrew top] ")
        return done

    def action_attach(self) -> None:
        """Into its pane; of one that ended, the page of its diff."""
        if (row := self._row()) is not None:
            if row.view.state is TaskState.RUNNING:
                self.elsewhere(lambda: self.top.acts.attach(row.view))
            else:
                self.top.choose(Page.DIFF if row.view.branch else Page.HISTORY)

    async def action_send(self) -> None:
        """One line to all that are chosen."""
        if rows := self._rows():
            tasks = _tasks(rows)
            whom = rows[0].view.name if len(tasks) == 1 else f"{len(tasks)} agents"
            await self.top.ask_line(f"to {whom}:", "", lambda text: self._act(lambda: self.top.acts.send(tasks, text)))

    def action_answer(self, allow: bool) -> None:
        """What the selected agent asks."""
        if (row := self._row()) is not None:
            if row.group is not Group.NEEDS_ME:
                self.top.say(f"{row.view.name} asks nothing", bad=True)
                return
            self._act(lambda: self.top.acts.answer(row.id, row.asks, allow=allow))

    def action_hold(self) -> None:
        """Pause, or let go on what is paused."""
        if rows := self._rows():
            back = not all(row.view.paused or row.view.state is TaskState.PAUSED for row in rows)
            self._act(lambda: self.top.acts.hold(_tasks(rows), back=back))

    def action_retry(self) -> None:
        """Run again."""
        if rows := self._rows():
            self._act(lambda: self.top.acts.retry(_tasks(rows)))

    def action_kill(self) -> None:
        """After a yes."""
        if rows := self._rows():
            tasks = _tasks(rows)
            what = f"{tasks[0]} and everything that it" if len(tasks) == 1 else f"{len(tasks)} tasks and everything that they"
            self._confirm(f"End {what} started? What was done so far is kept.", lambda: self.top.acts.kill(tasks))

    def action_take(self) -> None:
        """After a yes; the question says into which branch, and how large it is."""
        if (row := self._row()) is not None:
            self.run_worker(lambda: self.app.call_from_thread(self._asked_to_take, row.id, *_outcome(self._question(row.id))), thread=True)

    def _question(self, task: str) -> Callable[[], str]:
        return lambda: self.top.acts.merge_question(task)

    def _asked_to_take(self, task: str, said: str, bad: bool) -> None:
        if bad:
            self._acted(said, bad)
        else:
            self._confirm(said, lambda: self.top.acts.take(task))

    def action_open_pr(self) -> None:
        """As a pull request; what it asks, it asks on the terminal."""
        if (row := self._row()) is not None:
            self.elsewhere(lambda: self.top.acts.run(["pr", row.id]), wait=True)

    def _confirm(self, question: str, work: Callable[[], str]) -> None:
        from supervisor.faces.top.asking import Confirm

        self.app.push_screen(Confirm(question), lambda yes: self._act(work) if yes else None)

    def action_new(self) -> None:
        """Kind, base and name, then the prompt in the person's editor."""
        from supervisor.faces.top.asking import Form

        kinds = self.top.acts.kinds()
        fields = (("kind", kinds[0] if kinds else ""), ("base (empty: HEAD)", ""), ("name (empty: its kind)", ""))
        self.app.push_screen(
            Form("A new task", fields, f"kinds: {', '.join(kinds)}   Enter: next, then your editor   Esc: leave"), self._new
        )

    def _new(self, fields: tuple[str, ...] | None) -> None:
        if fields is not None:
            kind, base, name = (field.strip() for field in fields)
            # The form goes only when this returns, and the editor would wait for it.
            self.call_later(self._edit, "", lambda prompt: self.top.acts.start(NewTask(prompt, kind, base, name)))

    def action_go_on(self) -> None:
        """More words for the selected agent."""
        if (row := self._row()) is not None:
            self._edit("", lambda prompt: self.top.acts.go_on(row.id, prompt))

    def _edit(self, text: str, work: Callable[[str], str]) -> None:
        """Ask for a prompt in the editor, and act on it in a thread; nothing when it is left empty."""
        import click

        written: list[str] = []

        def edit() -> str:
            written.append((click.edit(text) or "").strip())
            return ""

        self.elsewhere(edit)
        if written and written[0]:
            self._act(lambda: work(written[0]))
        else:
            self.top.say("nothing was written")
