"""The threads that look while the screen stays free: one at the crew, one at the page of the selected task."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from supervisor.faces.crew import Crew
from supervisor.faces.doors import Page, Reading, Text
from supervisor.ledger.queries import TaskView

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

    def __init__(self, reading: Reading, crew: Callable[[Crew], object], page: Callable[[str, Text], object]) -> None:
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
