"""The crew as it becomes during one call of `decide`, and the commands so far.

A task's dependents are looked at when it reaches a final state, never by polling.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import replace

from supervisor.core import group_rules
from supervisor.core.commands import Command, LookForNote, Pause, Resume, SetState, Stop
from supervisor.core.crew import Crew
from supervisor.core.draft import Draft
from supervisor.core.states import FINAL, AttemptState, TaskState, Until, attempt_after, task_after
from supervisor.core.task import Attempt, PauseState, Task, awaited_notes


class Board:
    """What every rule of `decide` writes on. Commands are in the order in which they must be committed."""

    def __init__(self, crew: Crew, now: float, wall: float) -> None:
        self.draft = Draft(crew)
        self.now = now
        self.wall = wall
        self.commands: list[Command] = []
        self._looked_for: set[str] = set()
        self.resumed: list[str] = []
        """Paused tasks that a person has just resumed."""

    def submitted(self, tasks: tuple[Task, ...]) -> None:
        """Take in new tasks; those that are known already stay as they are."""
        new = [task for task in tasks if self.draft.get(task.id) is None]
        for task in new:
            self.draft.put(task)
        for task in new:
            self.look_at_needs(task.id)

    def look_at_needs(self, task_id: str) -> None:
        """Judge a task by the state of everything that it comes after."""
        task = self.draft.get(task_id)
        if task is not None and self._moved_on(task, list(self.draft.known(sorted(task.after)))):
            self.final(task_id)
        elif task is not None:
            self._look_for_notes(task_id)

    def _look_for_notes(self, task_id: str) -> None:
        """Have somebody look for the notes that a task waits for, once for all tasks of this decision."""
        for task in self.draft.known([task_id]):
            for name in sorted(awaited_notes(task) - self._looked_for):
                self._looked_for.add(name)
                self.commands.append(LookForNote(name))

    def note_appeared(self, name: str) -> None:
        """Judge every task that waits for a note which is there."""
        for task in self.draft.readers(name):
            seen = replace(task, notes_seen=task.notes_seen | {name})
            self.draft.put(seen)
            self._moved_on(seen, ())

    def final(self, task_id: str) -> None:
        """Judge what comes after a task that reached a final state, and so on down the chain.

        A queue and not recursion: a plan may be a chain of thousands, and all of them are skipped when its first task fails.
        """
        queue = deque([task_id])
        while queue:
            ended = list(self.draft.known([queue.popleft()]))
            queue.extend(task.id for task in list(self.draft.unfinished_after(ended[0].id)) if self._moved_on(task, ended))

    def _moved_on(self, task: Task, news: Iterable[Task]) -> bool:
        """Whether a task reached a final state because of `news`: the tasks it comes after that ended since it was last judged."""
        if task.state is not TaskState.WAITING:
            return False
        if task.candidates:
            return group_rules.looked_at(self, task)
        lost_hope = next(filter(None, (self._lost_hope(task, need) for need in news)), "")
        if lost_hope:
            self.set_state(task, "blocked for ever", lost_hope)
            return True
        if (
            not awaited_notes(task)
            and all(need.state in FINAL for need in self.draft.known(task.after - task.after_any))
            and self._one_is_enough(task)
        ):
            self.set_state(task, "unblocked", "")
        return False

    def _lost_hope(self, task: Task, need: Task) -> str:
        """Why the task can never start now that `need` is as it is; empty while it can."""
        if need.state not in FINAL or need.state is TaskState.DONE or task.any_end:
            return ""
        if need.id not in task.after_any:
            return f"{need.id} is {need.state}"
        others = list(self.draft.known(task.after_any))
        if all(other.state in FINAL and other.state is not TaskState.DONE for other in others):
            return (
                f"{need.id} is {need.state}" if len(others) == 1 else f"none of {len(others)} tasks is done, the last one is {need.state}"
            )
        return ""

    def _one_is_enough(self, task: Task) -> bool:
        enough = FINAL if task.any_end else (TaskState.DONE,)
        return not task.after_any or any(need.state in enough for need in self.draft.known(task.after_any))

    def set_state(self, task: Task, event: str, reason: str) -> None:
        """Change the state of a task that has no attempt, for `event` of its table."""
        state = task_after(task.state, event)
        self.draft.put(replace(task, state=state, since=self.now if state is TaskState.READY else task.since))
        self.commands.append(SetState(task.id, state, reason))

    # Attempts --------------------------------------------------------------------------------------------------------------------

    def move(self, task: Task, attempt: Attempt, event: str, stop_why: str | None = None) -> None:
        """Change the state of a living attempt, for `event` of its table."""
        state = attempt_after(attempt.state, event)
        moved = replace(attempt, state=state, since=self.now, stop_why=attempt.stop_why if stop_why is None else stop_why)
        self.draft.put(replace(task, attempt=moved))

    def stop(self, task: Task, attempt: Attempt, why: str) -> None:
        """Have its whole tree stopped."""
        self.move(task, attempt, "stop", why)
        self.commands.append(Stop(task.id, attempt.epoch, why))

    def pause(self, task: Task, attempt: Attempt, until: Until, made_for: str = "", *, question: str = "") -> None:
        """Have its tree stand still, or change what it waits for. `made_for`: the task that gets its slot; `question`: what its agent
        asks."""
        before = attempt.paused or PauseState(until, self.now)
        now = replace(before, until=until, made_for=made_for, question=question or before.question)
        self.draft.put(replace(task, attempt=replace(attempt, paused=now)))
        self.commands.append(Pause(task.id, attempt.epoch, until, made_for, question))

    def await_slot(self, task: Task, attempt: Attempt) -> None:
        """From now on it goes on as soon as it may: at once while it holds its slot. `decide` commits what comes of it."""
        if attempt.paused is not None and attempt.holds_slot:
            self.go_on(task, attempt)
        elif attempt.paused is not None:
            self.draft.put(replace(task, attempt=replace(attempt, paused=replace(attempt.paused, until=Until.SLOT))))
            self.resumed.append(task.id)

    def go_on(self, task: Task, attempt: Attempt) -> None:
        """Let its tree go on. Its runner knows what is left of its time; the backstop counts anew, as after a restart."""
        since = self.now if attempt.state is AttemptState.RUNNING else attempt.since
        self.draft.put(replace(task, attempt=replace(attempt, paused=None, since=since)))
        self.commands.append(Resume(task.id, attempt.epoch))
