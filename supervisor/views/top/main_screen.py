"""The keys that act, and the threads that look while the screen stays free."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar, cast

from textual.binding import Binding, BindingType
from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.screen import Screen

from supervisor.kernel.errors import NightcrewError
from supervisor.kernel.states import TaskState
from supervisor.store.queries import TaskView
from supervisor.views.crew import Crew, Group, Page, Row, Text

if TYPE_CHECKING:
    from supervisor.client.crew import Lookout
    from supervisor.views.top.app import TopApp

# Looking
# -------
# The threads that look while the screen stays free: one at the crew, one at the page of the selected task.


CREW_S = 1.0
FAST_S = 0.25
"""Between two looks at a page that changes: nobody reads faster, and far terminals have little room."""
SLOW_S = {Page.SCREEN: 1.0, Page.DIFF: 10.0, Page.LOG: 1.0, Page.TALK: 2.0, Page.HISTORY: 2.0, Page.USE: 2.0}
"""The same when it does not change."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the page is to show."""

    view: TaskView
    page: Page

    @property
    def key(self) -> str:
        """Which task, attempt and page."""
        return f"{self.view.id} {self.view.epoch} {self.view.state} {self.page}"


class Looker(threading.Thread):
    """Looks again and again, at once when it is woken."""

    def __init__(self, name: str, look: Callable[[], float]) -> None:
        """`look` returns the seconds until the next one."""
        super().__init__(name=name, daemon=True)
        self._look = look
        self._wake, self._rests, self._ended = threading.Event(), threading.Event(), threading.Event()

    def run(self) -> None:
        """Until `end`."""
        while not self._ended.is_set():
            pause_s = 3600.0 if self._rests.is_set() else self._look()
            self._wake.wait(pause_s)
            self._wake.clear()

    def wake(self) -> None:
        """Look now."""
        self._wake.set()

    def rest(self, *, now: bool) -> None:
        """Look no more while a person is elsewhere, and again."""
        if now:
            self._rests.set()
        else:
            self._rests.clear()
            self.wake()

    def end(self) -> None:
        """Look no more; returns at once."""
        self._ended.set()
        self.wake()


class Lookers:
    """Both of them, and what they look at."""

    def __init__(self, reading: Lookout, crew: Callable[[Crew], object], page: Callable[[str, Text], object]) -> None:
        """`crew` and `page` take what was seen, in the thread that saw it."""
        self._reading = reading
        self._tell_crew, self._tell_page = crew, page
        self.visible: frozenset[str] = frozenset()
        self._wanted: Wanted | None = None
        self._shown, self._mark, self._pause_s = "", "", FAST_S
        self.crew = Looker("crew", self._look_at_crew)
        self.page = Looker("page", self._look_at_page)

    def begin(self) -> None:
        """Start looking."""
        self.crew.start()
        self.page.start()

    def show(self, wanted: Wanted | None, *, anew: bool = False) -> None:
        """From now on this page; `anew`: whatever was seen of it."""
        changed = anew or wanted is None or self._wanted is None or wanted.key != self._wanted.key
        self._wanted = wanted
        if anew:
            self._shown = ""
        if changed:
            self.page.wake()

    def rest(self, *, now: bool) -> None:
        """Both."""
        self.crew.rest(now=now)
        self.page.rest(now=now)

    def end(self) -> None:
        """Both."""
        self.crew.end()
        self.page.end()

    def _look_at_crew(self) -> float:
        self._tell_crew(self._reading.crew(self.visible))
        return CREW_S

    def _look_at_page(self) -> float:
        wanted = self._wanted
        if wanted is None:
            return 3600.0
        if wanted.key != self._shown:
            self._shown, self._mark = wanted.key, ""
        found = self._reading.page(wanted.view, wanted.page, self._mark)
        if found is None or found.mark == self._mark:
            self._pause_s = min(SLOW_S[wanted.page], 2 * self._pause_s)
        else:
            self._mark, self._pause_s = found.mark, FAST_S
            self._tell_page(wanted.key, found)
        return self._pause_s if wanted.page is Page.SCREEN else SLOW_S[wanted.page]


# Main screen
# -----------
# The keys that act: each asks for what the verb of the same name does, in a thread, or on the terminal itself.


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
    def top(self) -> TopApp:
        """The app: it is a screen of that one alone."""
        return cast("TopApp", self.app)

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
            await self.top.ask_line(f"to {whom}:", "", lambda text: self._act(lambda: self.top.acts.send(tasks=tasks, text=text)))

    def action_answer(self, allow: bool) -> None:
        """What the selected agent asks."""
        if (row := self._row()) is not None:
            if row.group is not Group.NEEDS_ME:
                self.top.say(f"{row.view.name} asks nothing", bad=True)
                return
            self._act(lambda: self.top.acts.answer(task=row.id, asked=row.asks, allow=allow))

    def action_hold(self) -> None:
        """Pause, or let go on what is paused."""
        if rows := self._rows():
            back = not all(row.view.paused or row.view.state is TaskState.PAUSED for row in rows)
            self._act(lambda: self.top.acts.hold(tasks=_tasks(rows), back=back))

    def action_retry(self) -> None:
        """Run again."""
        if rows := self._rows():
            self._act(lambda: self.top.acts.retry(tasks=_tasks(rows)))

    def action_kill(self) -> None:
        """After a yes."""
        if rows := self._rows():
            tasks = _tasks(rows)
            what = f"{tasks[0]} and everything that it" if len(tasks) == 1 else f"{len(tasks)} tasks and everything that they"
            self._confirm(f"End {what} started? What was done so far is kept.", lambda: self.top.acts.kill(tasks=tasks))

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
            self._confirm(said, lambda: self.top.acts.take(task=task))

    def action_open_pr(self) -> None:
        """As a pull request; what it asks, it asks on the terminal."""
        if (row := self._row()) is not None:
            self.elsewhere(lambda: self.top.acts.run(["pr", row.id]), wait=True)

    def _confirm(self, question: str, work: Callable[[], str]) -> None:
        from supervisor.views.top.dialogs import Confirm

        self.app.push_screen(Confirm(question), lambda yes: self._act(work) if yes else None)

    def action_new(self) -> None:
        """Kind, base and name, then the prompt in the person's editor."""
        from supervisor.views.top.dialogs import Form

        kinds = self.top.acts.kinds()
        fields = (("kind", kinds[0] if kinds else ""), ("base (empty: HEAD)", ""), ("name (empty: its kind)", ""))
        self.app.push_screen(
            Form("A new task", fields, f"kinds: {', '.join(kinds)}   Enter: next, then your editor   Esc: leave"), self._new
        )

    def _new(self, fields: tuple[str, ...] | None) -> None:
        if fields is not None:
            kind, base, name = (field.strip() for field in fields)
            # The form goes only when this returns, and the editor would wait for it.
            self.call_later(self._edit, "", lambda prompt: self.top.acts.start(prompt=prompt, kind=kind, base=base, name=name))

    def action_go_on(self) -> None:
        """More words for the selected agent."""
        if (row := self._row()) is not None:
            self._edit("", lambda prompt: self.top.acts.go_on(task=row.id, text=prompt))

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


# Palette
# -------
# Every verb, found by its letters: the one that is chosen stands on the line below, ready to be finished and run.


class Verbs(Provider):
    """As `nightcrew --help` lists them."""

    @property
    def _top(self) -> TopApp:
        return cast("TopApp", self.app)

    async def discover(self) -> Hits:
        """Of Textual."""
        for verb, line in self._top.acts.verbs.items():
            yield DiscoveryHit(verb, partial(self._top.begin_command, verb), help=line)

    async def search(self, query: str) -> Hits:
        """Of Textual."""
        matcher = self.matcher(query)
        for verb, line in self._top.acts.verbs.items():
            if (score := matcher.match(f"{verb} {line}")) > 0:
                yield Hit(score, matcher.highlight(verb), partial(self._top.begin_command, verb), help=line)
