"""A crew without a ledger, and a screen to show it on."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, cast

from supervisor.kernel.states import TaskState
from supervisor.store.queries import TaskView
from supervisor.views import crew
from supervisor.views.crew import Page, Text
from supervisor.views.status import Waiting
from supervisor.views.top.app import TopApp

RUN = "1121-k3f9"
NOW = time.time()


def view(name: str, state: TaskState = TaskState.RUNNING, **more: Any) -> TaskView:
    """A row of the ledger."""
    given: dict[str, Any] = {one.name: None for one in fields(TaskView)}
    given |= {
        "id": f"{RUN}/{name}", "run": RUN, "name": name, "title": f"title of {name}", "project": "p", "state": state, "reason": "",
        "priority": 50, "task_class": "normal", "epoch": 0 if state in (TaskState.WAITING, TaskState.READY) else 1, "retries_used": 0,
        "submitted": NOW - 1000, "changed": NOW - 1000, "started": NOW - 1000, "kind": "claude", "interactive": False, "assigned": "",
        "environment": "", "paused": "", "paused_for": "", "parent": "", "parent_epoch": 0, "attempt_state": "running",
        "branch": "nightcrew/x", "pane_id": "%1", "root": "/home/dev/shop", "run_title": "chores",
    }  # fmt: skip
    return TaskView(**{**given, **more})


def working(count: int) -> list[TaskView]:
    return [view(f"agent-{number}") for number in range(count)]


@dataclass
class Stage:
    """Reading and acts of a test: it says what is seen, and notes what was asked."""

    seen: crew.Seen = field(default_factory=crew.Seen)
    texts: Mapping[Page, Sequence[str]] = field(default_factory=dict)
    asked: list[tuple[Any, ...]] = field(default_factory=list)
    verbs: Mapping[str, str] = field(default_factory=lambda: {"status": "Show what every agent does.", "map": "Do the same with many."})
    ends: bool = False
    looks: int = 0
    told: int | None = None
    line: str = ""
    said: str = "done"
    error: Exception | None = None
    threads: set[str] = field(default_factory=set)

    def crew(self, visible: Collection[str]) -> crew.Crew:
        self.looks += 1
        found = crew.crew(self.seen, lambda one: f"last of {one.name}" if one.id in visible else "")
        return replace(found, told=self.told, told_line=self.line)

    def page(self, view: TaskView, page: Page, mark: str) -> Text | None:
        lines = self.texts.get(page, [f"{page} of {view.name}"])
        made = f"{view.id} {page} {hash(tuple(lines))}"
        return None if made == mark else Text(lines, made, ends=self.ends)

    def kinds(self) -> Sequence[str]:
        return ["claude", "codex"]

    def repositories(self) -> Sequence[str]:
        return ["/home/dev/shop", "/home/dev/billing"]

    def merge_question(self, task: str) -> str:
        if self.error is not None:
            raise self.error
        return f"Merge {task} into main of /home/dev/shop? 2 commits, 3 files +5 -1"

    def _did(self, *what: Any) -> str:
        self.threads.add(threading.current_thread().name)
        self.asked.append(what)
        if self.error is not None:
            raise self.error
        return self.said

    def attach(self, view: TaskView) -> str:
        return self._did("attach", view.name)

    def run(self, words: Sequence[str]) -> str:
        return self._did("run", *words)

    def send(self, *, tasks: Sequence[str], text: str) -> str:
        return self._did("send", *tasks, text)

    def answer(self, *, task: str, asked: str, allow: bool) -> str:
        return self._did("answer", task, asked, allow)

    def hold(self, *, tasks: Sequence[str], back: bool) -> str:
        return self._did("hold", *tasks, back)

    def kill(self, *, tasks: Sequence[str]) -> str:
        return self._did("kill", *tasks)

    def retry(self, *, tasks: Sequence[str]) -> str:
        return self._did("retry", *tasks)

    def take(self, *, task: str) -> str:
        return self._did("take", task)

    def start(self, **asked: str) -> str:
        return self._did("start", asked)

    def go_on(self, *, task: str, text: str) -> str:
        return self._did("go_on", task, text)

    def app(self) -> TopApp:
        return TopApp(cast(Any, self), cast(Any, self))


def asks(*names: str) -> Waiting:
    """These wait for a person, the last one longest."""
    said = {"state": "waiting_permission"}
    found = {f"{RUN}/{name}": {**said, "task": f"{RUN}/{name}", "detail": f"may {name} push?", "since": NOW - 100 - at}
             for at, name in enumerate(names)}  # fmt: skip
    return Waiting(asked=found)


def text_of(app: TopApp) -> str:
    """The screen as a person reads it."""
    width, height = app.size
    rows = app.screen._compositor.render_strips()
    return "\n".join("".join(segment.text for segment in row)[:width].rstrip() for row in rows[:height])
