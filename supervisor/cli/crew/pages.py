"""What is shown of one task beside the list: its live screen, diff, log, transcript, history and resources, in lines of text."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from supervisor.cli import common
from supervisor.core.errors import NightcrewError, NotFound, one_line
from supervisor.core.records import attempt_name
from supervisor.core.states import TaskState
from supervisor.faces import status as text
from supervisor.faces.doors import Page, Text
from supervisor.host import foreign
from supervisor.host.paths import Home
from supervisor.ledger import journal, queries, reviews, rows
from supervisor.ledger.queries import TaskView

if TYPE_CHECKING:
    from supervisor.faces.review import Review  # a start has no time for it

TAIL = 256 * 2**10
"""Bytes of the end of a log that are read."""
TALK = 2**20
"""The same of a stream of JSON."""
LINES = 2000
"""Lines of a page."""


class PageReader:
    """Belongs to one thread."""

    def __init__(self, where: Home) -> None:
        self._where = where

    def page(self, view: TaskView, page: Page, mark: str) -> Text | None:
        """As `Reading.page`."""
        try:
            return self._page(view, page, mark)
        except (NightcrewError, OSError) as error:
            said = error.line() if isinstance(error, NightcrewError) else str(error)
            return Text((f"\x1b[2m{one_line(said)}\x1b[0m",), said)

    def _page(self, view: TaskView, page: Page, mark: str) -> Text | None:
        match page:
            case Page.SCREEN:
                return self._screen(view, mark)
            case Page.DIFF:
                return self._diff(view, mark)
            case Page.LOG:
                return self._log(view, mark)
            case Page.TALK:
                return self._talk(view, mark)
            case Page.HISTORY:
                return self._history(view)
            case Page.USE:
                return self._facts(view)

    def _screen(self, view: TaskView, mark: str) -> Text | None:
        if not view.epoch:
            return Text((f"\x1b[2m{one_line(self._not_started(view))}\x1b[0m",), "not started")
        if self._speaks_json(view):
            return self._talk(view, mark)
        if view.state is not TaskState.RUNNING or not view.pane_id:
            return self._last_screen(view, mark)
        from agents.tmux import screens

        shown = screens.look(self._where.tmux_socket, view.pane_id, attempt_name(view.id, view.epoch), os.environ)
        made = str(hash((view.pane_id, shown)))
        return None if made == mark else Text(shown.lines, made, ends=True)

    def _speaks_json(self, view: TaskView) -> bool:
        """Whether what it prints is for programs: a person reads it as a transcript."""
        log = self._where.attempt(view.id, view.epoch) / "stdout.log"
        try:
            with foreign.open_plain(log) as file:
                if (head := file.read(1)) != b"{":
                    return False
                from agents import protocols  # a start has no time for them

                return bool(protocols.recognised(head + file.read(protocols.HEAD)))
        except OSError:
            return False

    def _not_started(self, view: TaskView) -> str:
        return f"it has not started: {text.why(view) or view.state}"

    def _last_screen(self, view: TaskView, mark: str) -> Text | None:
        """What it showed last; of one without a terminal the end of its log."""
        kept = foreign.read_plain(self._where.attempt(view.id, view.epoch) / "screen.txt", TAIL)
        if not kept or not kept.strip():
            return self._log(view, mark)
        return Text(kept.decode("utf-8", "replace").rstrip("\n").split("\n"), "last screen", ends=True)

    def _log(self, view: TaskView, mark: str) -> Text | None:
        directory = self._where.attempt(view.id, view.epoch)
        parts = {name: _tail(directory / f"{name}.log", TAIL) for name in ("stdout", "stderr")}
        made = f"{view.epoch} {[(name, size) for name, (_, size) in parts.items()]}"
        if made == mark:
            return None
        lines = [
            line for name, (data, _) in parts.items() if data for line in _headed(name, data, several=all(d for d, _ in parts.values()))
        ]
        return Text(lines[-LINES:] or ["\x1b[2mit has printed nothing\x1b[0m"], made, ends=True)

    def _talk(self, view: TaskView, mark: str) -> Text | None:
        from supervisor.cli import transcript
        from supervisor.faces import transcript as lines

        data, size = _tail(self._where.attempt(view.id, view.epoch) / "stdout.log", TALK)
        made = f"{view.epoch} {size}"
        if made == mark:
            return None
        whole = data if size <= TALK else data.partition(b"\n")[2]  # it begins in the middle of a line
        found = transcript.entries(view, iter([whole]))
        if size <= TALK:
            with contextlib.closing(common.ledger(self._where, view.id)) as db:
                found = transcript.with_prompt(found, rows.launch(db, view.id).spec.prompt or "")
        return Text(list(lines.lines(found, color=True))[-LINES:], made, ends=True)

    def _diff(self, view: TaskView, mark: str) -> Text | None:
        from supervisor.cli import colored_diff
        from supervisor.faces import review

        seen = self.result(view, mark)
        if seen is None:
            return None
        found, made = seen
        head = [*colored_diff.styled(islice(review.head(found), 1, None), color=True), *review.stat(found)]
        return Text([*head, *colored_diff.lines(found.diffs, review.beside(found), color=True)], made)

    def result(self, view: TaskView, mark: str) -> tuple[Review, str] | None:
        """As `Looking.result`."""
        from supervisor.daemon import offers, results
        from supervisor.faces import conflicts, review

        if not view.branch:
            raise NotFound("no branch yet of", on=view.id)
        with contextlib.closing(common.ledger(self._where, view.id)) as db:
            repository, tip = results.seen(db, view)
            said = reviews.comments(db, view.id), reviews.decision(db, view.id)
            made = f"{tip} {view.state} {view.epoch} {hash(str(said))}"
            if made == mark:
                return None
            found = review.gather(db, view, repository, tip, conflicts.known(self._where, view.project))
            return replace(found, left_out=offers.left_out(db, view, repository) if view.final else ()), made

    def view(self, task: str) -> TaskView:
        """As `Looking.view`."""
        with contextlib.closing(common.ledger(self._where, task)) as db:
            return queries.one(db, task)

    def _history(self, view: TaskView) -> Text:
        with contextlib.closing(common.ledger(self._where, view.id)) as db:
            lines = [text.history(entry) for entry in journal.of_task(db, view.id)[-LINES:]]
        return Text(lines, str(len(lines)), ends=True)

    def _facts(self, view: TaskView) -> Text:
        from supervisor.cli import task_facts

        with contextlib.closing(common.ledger(self._where, view.id)) as db:
            fresh = queries.one(db, view.id)
            lines = list(self._agent(fresh)) + list(task_facts.lines(self._where, db, fresh))
        return Text(lines, str(hash(tuple(lines))))

    def _agent(self, view: TaskView) -> Iterator[str]:
        """How it is, with all that speaks for it."""
        from supervisor.cli import looking
        from supervisor.faces import agent_status

        now = time.time()
        found = looking.explained(self._where, [view], now)
        yield from agent_status.lines(view, found[view.id], now)


def _tail(path: Path, most: int) -> tuple[bytes, int]:
    """The end of a log and its size; nothing when there is none."""
    try:
        with foreign.open_plain(path) as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(0, size - most))
            return file.read(most), size
    except OSError:
        return b"", 0


def _headed(name: str, data: bytes, *, several: bool) -> list[str]:
    lines = data.decode("utf-8", "replace").rstrip("\n").split("\n")
    return [f"\x1b[1m-- {name} --\x1b[0m", *lines] if several else lines
