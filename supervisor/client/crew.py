"""What `top` and the page look at and do."""

from __future__ import annotations

import contextlib
import os
import shlex
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from supervisor.client import common, protocol, reading
from supervisor.features.landing import rows as landing_rows
from supervisor.features.landing import view as landing_view
from supervisor.features.landing.rows import Outcome
from supervisor.features.landing.rules import EntryState
from supervisor.features.review import commands as review_commands
from supervisor.host import untrusted_fs
from supervisor.host.paths import Home
from supervisor.kernel.errors import ConfigError, NightcrewError, NotFound, Refused, UsageError, one_line
from supervisor.kernel.format import many
from supervisor.kernel.kind import COMMAND
from supervisor.kernel.names import attempt_name
from supervisor.kernel.states import TaskState
from supervisor.results import conflicts, reviews, taking, verdicts
from supervisor.results.reviews import Review
from supervisor.results.verdicts import Decision, Verdict
from supervisor.server import gateway_report, lock
from supervisor.store import journal, queries, rows, sqlite
from supervisor.store.queries import TaskView
from supervisor.views import status
from supervisor.views.crew import Crew, Number, Page, Seen, TaskId, Tasks, Text, Words
from supervisor.views.crew import crew as grouped
from supervisor.views.places import Train

if TYPE_CHECKING:
    from supervisor.results.trial_merges import Standing


# Takable
# -------
# Results by where they are: those that can be taken, done with something that the checkout of their project lacks and not rejected
# as they are now, and those that it has.


LOOKED_AT = 200
"""Branches of one project."""
PROJECTS = 5
"""The newest runs' projects are looked at, this many."""


@dataclass(frozen=True, slots=True)
class Results:
    """What a look found."""

    to_take: list[TaskView] = field(default_factory=list)
    """Newest first in each project."""
    merged: dict[str, str] = field(default_factory=dict)
    """By task, the branch that is checked out and has its result."""
    conflicts: dict[str, str] = field(default_factory=dict)
    """Of those that can be taken with whom they conflict, as the supervisor found it last and as far as that still holds."""


def find(where: Home) -> Results:
    """By three gits a project; a repository that cannot be read has none."""
    found = Results()
    with contextlib.closing(sqlite.connect_readonly(where.ledger)) as db:
        for run in _newest_of_projects(db):
            every = journal.of_project(db, run.project, LOOKED_AT)[0]
            ended = [one.task for one in every if not one.living]
            views = {view.id: view for view in queries.several(db, ended) if (view.result or {}).get("commits")}
            if views:
                known = _Known(every, views, verdicts.decisions(db, list(views)), landing_rows.outcomes(db, views))
                with contextlib.suppress(NightcrewError):
                    _look(where, found, known)
    return found


@dataclass(frozen=True, slots=True)
class _Known:
    """Of one project, by task."""

    every: Sequence[journal.Branch]
    done: Mapping[str, TaskView]
    decided: Mapping[str, Decision]
    outcomes: Mapping[str, Outcome]


def _newest_of_projects(db: sqlite3.Connection) -> list[queries.RunView]:
    runs = queries.runs(db, 20, gates=False)
    return list({run.project: run for run in reversed(runs)}.values())[:PROJECTS]


def _look(where: Home, found: Results, known: _Known) -> None:
    from supervisor.results import trial_merges

    view = next(iter(known.done.values()))
    stands = trial_merges.standing(taking.repository_of(where, view), [one.name for one in known.every])
    done = [one for one in known.every if one.task in known.done]
    merged = {one.task for one in done if one.name in stands.merged or _has_landed(known.outcomes.get(one.task), stands.on)}
    lacking = [one.task for one in done if one.task not in merged and _is_whole(one, stands, known.decided.get(one.task))]
    found.to_take.extend(known.done[task] for task in lacking)
    found.merged.update(dict.fromkeys(merged, stands.on))
    tips = {one.task: stands.tips[one.name] for one in known.every if one.name in stands.tips and one.task not in merged}
    found.conflicts.update(_conflicts(where, view.project, stands, tips, lacking))


def _has_landed(outcome: Outcome | None, on: str) -> bool:
    """Also as other commits than its own."""
    return outcome is not None and outcome.branch == on and outcome.state in (EntryState.LANDED, EntryState.CONTAINED)


def _is_whole(one: journal.Branch, stands: Standing, decision: Decision | None) -> bool:
    """Whether its branch is there, and was not rejected as it is."""
    tip = stands.tips.get(one.name)
    return tip is not None and (decision is None or not decision.rejects(tip))


def _conflicts(where: Home, project: str, stands: Standing, tips: Mapping[str, str], wanted: Collection[str]) -> Iterator[tuple[str, str]]:
    """Of commits that have moved since nothing is said."""
    matrix = conflicts.known(where, project)
    still = {side.task for side in matrix.sides if tips.get(side.task) == side.tip}
    holds = [one for one in matrix.conflicts() if still.issuperset(one.tasks) and (one.two or matrix.base == stands.head)]
    yield from ((task, words) for task, words in conflicts.beside(holds, matrix.on).items() if task in wanted)


# Pages
# -----
# What is shown of one task beside the list: its live screen, diff, log, transcript, history and resources, in lines of text.


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
        """A page of a task, None when it is still as `mark` says. Never raises: what is wrong is on the page."""
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
        from agents import tmux

        shown = tmux.look(self._where.tmux_socket, view.pane_id, attempt_name(view.id, view.epoch), os.environ)
        made = str(hash((view.pane_id, shown)))
        return None if made == mark else Text(shown.lines, made, ends=True)

    def _speaks_json(self, view: TaskView) -> bool:
        """Whether what it prints is for programs: a person reads it as a transcript."""
        log = self._where.attempt(view.id, view.epoch) / "stdout.log"
        try:
            with untrusted_fs.open_plain(log) as file:
                if (head := file.read(1)) != b"{":
                    return False
                from agents import protocols  # a start has no time for them

                return bool(protocols.recognised(head + file.read(protocols.HEAD)))
        except OSError:
            return False

    def _not_started(self, view: TaskView) -> str:
        return f"it has not started: {status.why(view) or view.state}"

    def _last_screen(self, view: TaskView, mark: str) -> Text | None:
        """What it showed last; of one without a terminal the end of its log."""
        kept = untrusted_fs.read_plain(self._where.attempt(view.id, view.epoch) / "screen.txt", TAIL)
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
        from supervisor.client import transcript

        data, size = _tail(self._where.attempt(view.id, view.epoch) / "stdout.log", TALK)
        made = f"{view.epoch} {size}"
        if made == mark:
            return None
        whole = data if size <= TALK else data.partition(b"\n")[2]  # it begins in the middle of a line
        found = transcript.entries(view, iter([whole]))
        if size <= TALK:
            with contextlib.closing(common.ledger(self._where, view.id)) as db:
                found = transcript.with_prompt(found, rows.launch(db, view.id).spec.prompt or "")
        return Text(list(transcript.lines(found, color=True))[-LINES:], made, ends=True)

    def _diff(self, view: TaskView, mark: str) -> Text | None:
        from supervisor.views import diff_lines

        seen = self.result(view, mark)
        if seen is None:
            return None
        found, made = seen
        head = [*diff_lines.styled(islice(reviews.head(found), 1, None), color=True), *reviews.stat(found)]
        return Text([*head, *diff_lines.lines(found.diffs, reviews.beside(found), color=True)], made)

    def result(self, view: TaskView, mark: str) -> tuple[Review, str] | None:
        """What it changed, and of what that was made; None when it is still as `mark` says. Raises NightcrewError."""

        if not view.branch:
            raise NotFound("no branch yet of", on=view.id)
        with contextlib.closing(common.ledger(self._where, view.id)) as db:
            repository, tip = taking.seen(db, view)
            said = verdicts.comments(db, view.id), verdicts.decision(db, view.id)
            made = f"{tip} {view.state} {view.epoch} {hash(str(said))}"
            if made == mark:
                return None
            found = reviews.gather(db, view, repository, tip, conflicts.known(self._where, view.project))
            return replace(found, left_out=taking.left_out(db, view, repository) if view.final else ()), made

    def view(self, task: str) -> TaskView:
        """A task by its full id, also an archived one. Raises NotFound."""
        with contextlib.closing(common.ledger(self._where, task)) as db:
            return queries.one(db, task)

    def _history(self, view: TaskView) -> Text:
        with contextlib.closing(common.ledger(self._where, view.id)) as db:
            lines = [status.history(entry) for entry in journal.journal_of_task(db, view.id)[-LINES:]]
        return Text(lines, str(len(lines)), ends=True)

    def _facts(self, view: TaskView) -> Text:
        from supervisor.client import reading

        with contextlib.closing(common.ledger(self._where, view.id)) as db:
            fresh = queries.one(db, view.id)
            lines = list(self._agent(fresh)) + list(reading.lines(self._where, db, fresh))
        return Text(lines, str(hash(tuple(lines))))

    def _agent(self, view: TaskView) -> Iterator[str]:
        """How it is, with all that speaks for it."""
        from supervisor.client import reading
        from supervisor.views import agent_status

        now = time.time()
        found = reading.explained(self._where, [view], now)
        yield from agent_status.lines(view, found[view.id], now)


def _tail(path: Path, most: int) -> tuple[bytes, int]:
    """The end of a log and its size; nothing when there is none."""
    try:
        with untrusted_fs.open_plain(path) as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(0, size - most))
            return file.read(most), size
    except OSError:
        return b"", 0


def _headed(name: str, data: bytes, *, several: bool) -> list[str]:
    lines = data.decode("utf-8", "replace").rstrip("\n").split("\n")
    return [f"\x1b[1m-- {name} --\x1b[0m", *lines] if several else lines


# Reading
# -------
# The crew for a screen that is looked at for hours: each source is asked as often as it is worth it, and an answer is kept until
# then.


SHOWN, ENDED = 100, 50
"""Tasks that wait, and tasks that ended."""
ROWS_S, NEEDS_S, SLOW_S, TAKE_S = 5.0, 1.0, 2.0, 10.0
"""Seconds between two looks: at a ledger where nothing was written, at who needs a person, at the gateway and the machine, at branches."""
ABSENT = "no supervisor: agents that live go on, nothing new starts; nightcrew up -d"
STOPPED = "everything is stopped; nightcrew thaw"
T = TypeVar("T")


class Kept(Generic[T]):
    """An answer that is asked for again after some seconds."""

    def __init__(self, every_s: float, ask: Callable[[], T]) -> None:
        self._every_s, self._ask = every_s, ask
        self._next = 0.0
        self._value: T | None = None

    def get(self) -> T:
        """The answer, at most as old as that."""
        if self._value is None or time.monotonic() >= self._next:
            self._value = self._ask()
            self._next = time.monotonic() + self._every_s
        return self._value

    def forget(self) -> None:
        """Ask at the next `get`."""
        self._next = 0.0


@dataclass(frozen=True, slots=True)
class _Rows:
    """What the ledger says."""

    views: list[TaskView]
    counts: Counter[TaskState]
    waits: status.Waiting
    trains: Mapping[str, Train] = field(default_factory=dict)
    """By task, the train of each gate."""


class Lookout(PageReader):
    """What `top` and the page look at. One thread looks at the crew, and one at the pages."""

    def __init__(self, where: Home) -> None:
        super().__init__(where)
        self._db: sqlite3.Connection | None = None
        self._version = -1
        self._rows = Kept(ROWS_S, self._read)
        self._asked = Kept(NEEDS_S, lambda: common.needs(where, watches=True))
        self._heard = Kept(SLOW_S, lambda: gateway_report.hear(where))
        self._gateway = Kept(SLOW_S, self._look_at_gateway)
        self._capacity = Kept(SLOW_S, self._look_at_capacity)
        self._takable = Kept(TAKE_S, lambda: find(where))
        self._done = 0

    def crew(self, visible: Collection[str]) -> Crew:
        """The crew now; what was said last of the `visible` tasks alone. Never raises."""
        try:
            return self._crew(visible)
        except (NightcrewError, sqlite3.Error, OSError) as error:
            self._close()
            return grouped(Seen(supervisor=error.line() if isinstance(error, NightcrewError) else str(error)))

    def forget(self) -> None:
        """Look at everything anew: a person just changed something."""
        for one in (self._rows, self._asked, self._heard, self._takable):
            one.forget()
        self._version = -1

    def stirred(self) -> bool:
        """Whether something was committed since the last look; costs next to nothing."""
        if self._db is None:
            return self._where.ledger.exists()
        return bool(self._db.execute("PRAGMA data_version").fetchone()[0] != self._version)

    def close(self) -> None:
        """Let the ledger go; a later look opens it again."""
        self._close()

    def _crew(self, visible: Collection[str]) -> Crew:
        runs = lock.holder(self._where.lock) is not None
        self._notice_changes()
        rows = self._rows.get()
        needs = self._asked.get() if runs else common.Needs()
        gateway, capacity = self._gateway.get(), self._capacity.get() if runs else None
        found = self._takable.get() if self._db is not None else Results()
        held = replace(
            rows.waits,
            asked={one["task"]: one for one in needs.asked},
            states={**needs.states, **reading.limited(gateway)},
            conflicts={**found.conflicts, **rows.waits.conflicts},
        )
        branches = found.to_take
        known = {view.id for view in rows.views}
        others = self._others([task for task in held.asked if task not in known])
        views = [*rows.views, *(view for view in branches if view.id not in known), *others]
        said = STOPPED if self._where.sentinel.exists() else "" if runs else ABSENT
        troubles = [f"the gateway: {one}" for one in self._heard.get().troubles] if runs else []
        seen = Seen(views, rows.counts, held, {view.id for view in branches}, found.merged, rows.trains, said, troubles, gateway, capacity)
        crew = grouped(seen, lambda view: status.detail(view, self._where.root) if view.id in visible else "")
        return replace(crew, told=needs.told, told_line=needs.line)

    def _others(self, tasks: list[str]) -> list[TaskView]:
        """Those that need a person and for which there is no room among those that wait."""
        return queries.several(self._db, tasks) if self._db is not None and tasks else []

    def _notice_changes(self) -> None:
        """SQLite counts what others committed: while that stands still, rows need not be read."""
        if self._db is None and self._where.ledger.exists():
            self._db = sqlite.connect_readonly(self._where.ledger)
        if self._db is not None and (version := self._db.execute("PRAGMA data_version").fetchone()[0]) != self._version:
            self._version = version
            self._rows.forget()

    def _read(self) -> _Rows:
        if self._db is None:
            return _Rows([], Counter(), status.NOTHING_WAITS)
        views, counts = queries.foremost(self._db, SHOWN), queries.unfinished_counts(self._db)
        ended = queries.ended_lately(self._db, ENDED)
        known = {view.id for view in ended}
        ended += [view for view in queries.failed_before(self._db, "", ENDED) if view.id not in known]
        views += ended
        counts += status.counted(ended)
        done = sum(view.state is TaskState.DONE for view in views)
        if done != self._done:
            self._done = done
            self._takable.forget()
        runs = lock.holder(self._where.lock) is not None
        heard = self._heard.get() if runs and any(view.state is TaskState.READY for view in views) else gateway_report.Heard()
        held = reading.waiting(self._where, self._db, views, heard, common.Needs())
        return _Rows(views, counts, held, landing_view.of_gates(self._db, views))

    def _look_at_gateway(self) -> dict[str, Any] | None:
        if not self._where.gateway_record.exists():
            return None
        from supervisor.views import gateway  # a fifth of what a start imports, and only for who has a gateway

        try:
            return gateway.look(self._where, time.time(), timeout_s=reading.GATEWAY_S)
        except NightcrewError as error:
            return {"running": False, "why": error.line(), "agents": [], "figures": {"unpriced": 0, "known_usd": 0.0, "window_s": 0.0}}

    def _look_at_capacity(self) -> dict[str, Any] | None:
        with contextlib.suppress(NightcrewError):
            return protocol.call(self._where.daemon_socket, "capacity", {}, timeout_s=common.NEEDS_S)
        return None

    def _close(self) -> None:
        if self._db is not None:
            self._db.close()
        self._db, self._version = None, -1
        self._rows.forget()


# Acting
# ------
# What a person does on the screen: each act is what the verb of the same name does.


PROJECTS_OF = 200
"""Newest runs whose repositories are offered for a new task."""


class VerbActs:
    """What a person does in `top` and on the page, with the person's own rights and environment. Each act does what the verb of the same
    name does, and returns one sentence; all raise NightcrewError. `verbs`: every verb with its line of help."""

    def __init__(self, where: Home, verbs: Mapping[str, str]) -> None:
        self._where = where
        self.verbs = verbs

    def kinds(self) -> Sequence[str]:
        """The kinds of agent that are installed, the usual one first."""
        import shutil

        from agents.kinds import kinds

        usual, found = self._usual_kind(), list[str]()
        for name in kinds():
            with contextlib.suppress(ConfigError):  # a kind of theirs that is written wrongly: `nightcrew kinds ls` says how
                kind = kinds()[name]
                if kind.is_agent and COMMAND[0] not in kind.headless and (not kind.binary or shutil.which(kind.binary)):
                    found.append(name)
        return sorted(found, key=lambda name: name != usual)

    def _usual_kind(self) -> str:
        from supervisor.client import submit

        with contextlib.suppress(NightcrewError):
            return submit.workplace(Path()).settings.agent_kind
        return ""

    def repositories(self) -> Sequence[str]:
        """The checkouts in which a task can be started: the one around us, then those in which something was run, the newest first."""
        from supervisor.client import submit

        found = list[str]()
        with contextlib.suppress(NightcrewError):
            found.append(str(submit.workplace(Path()).repository.root))
        if self._where.ledger.exists():
            with contextlib.closing(common.ledger(self._where)) as db:
                found += [run.root for run in queries.runs(db, PROJECTS_OF, gates=False) if Path(run.root).is_dir()]
        return list(dict.fromkeys(found))

    def merge_question(self, task: str) -> str:
        """Return the question to ask before `take`; it names the branch and the size of the result."""

        with contextlib.closing(common.ledger(self._where, task)) as db:
            found = taking.result(db, queries.one(db, task))
            return reviews.merge_question(db, queries.one(db, found.task), found.repository, found.tip)

    def attach(self, view: TaskView) -> str:
        """Into its pane, on this terminal; returns when the person has left it."""
        return self.run(["attach", view.id])

    def run(self, words: Sequence[str]) -> str:
        """`nightcrew WORDS` on this terminal."""
        code = subprocess.run([sys.executable, "-I", "-m", "supervisor.cli.main", *words], check=False).returncode
        return f"nightcrew {' '.join(words)}" + (f" left with {code}" if code else "")

    def send(self, *, tasks: Tasks, text: Words) -> str:
        """As `nightcrew send`."""
        words = common.typable(text.encode("utf-8", "surrogateescape"))
        answer = self._ask("send", {"tasks": list(tasks), "text": words, "now": False, "some": len(tasks) > 1}, timeout_s=common.DELIVERY_S)
        states = [str(one["state"]) for one in answer["deliveries"]]
        return f"sent to {_named(tasks)}: {', '.join(sorted(set(states)))}"

    def answer(self, *, task: TaskId, asked: Words, allow: bool) -> str:
        """As `nightcrew answer`."""
        return common.answered(self._ask("answer", {"task": task, "allow": allow, "asked": asked}))

    def hold(self, *, tasks: Tasks, back: bool) -> str:
        """As `nightcrew pause` and `nightcrew resume`."""
        answer = self._ask("pause" if back else "resume", {"tasks": list(tasks)})
        not_done = dict(answer["not_paused"]) if back else {}
        why = "".join(f"; {task} was not: {said}" for task, said in not_done.items())
        if back:
            return f"paused {_named(answer['paused'] or answer['paused_before'])}{why}"
        waits = f"; {_named(answer['waiting_for_slot'])} when a slot is free" if answer["waiting_for_slot"] else ""
        return f"resumed {_named(answer['resumed'])}{waits}"

    def kill(self, *, tasks: Tasks) -> str:
        """As `nightcrew kill`, without waiting for their end."""
        answer = self._ask("kill", {"tasks": list(tasks)})
        return f"ending {_named(answer['asked'])}" if answer["asked"] else "it had ended already"

    def retry(self, *, tasks: Tasks) -> str:
        """As `nightcrew retry`."""
        return f"again: {_named(self._ask('retry', {'tasks': list(tasks)})['revived'])}"

    def take(self, *, task: TaskId) -> str:
        """As `nightcrew take`, into the checkout that the task began from."""
        with contextlib.closing(common.ledger(self._where, task)) as db:
            view = queries.one(db, task)
            taken = taking.take(db, view, Path(queries.run(db, view.run).root), taking.How())
        return "; ".join([taken.sentence, *taken.commands, *taken.notes])

    def start_offered(self, *, prompt: Words, kind: Words, base: Words, name: Words, repo: Words) -> str:
        """`start`, of a kind and in a repository that a person was offered. Raises UsageError for others."""
        if kind not in self.kinds():
            raise UsageError("no such kind of agent here", on=kind, hint="nightcrew kinds ls")
        if repo not in self.repositories():
            raise UsageError("nothing was ever run in", on=repo, hint=f"nightcrew start -C {shlex.quote(repo)}, once")
        return self.start(prompt=prompt, kind=kind, base=base, name=name, repo=repo)

    def start(self, *, prompt: str, kind: str, base: str, name: str, repo: str = "") -> str:
        """As `nightcrew start --headless`; without `repo` in the repository around us."""
        from supervisor.client import follow, submit

        if not prompt.strip():
            raise UsageError("there is no prompt", hint="say what the agent is to do")
        options: dict[str, Any] = {"kind": kind, "id": name or kind, "interactive": False}
        submission, notes = submit.of_prompt(prompt, options, submit.workplace(Path(repo)), base or None, os.environ)
        return f"added {follow.hand_over(self._where, submission, notes).tasks[0]}"

    def go_on(self, *, task: TaskId, text: Words) -> str:
        """As `nightcrew review --send -m PROMPT`."""
        from supervisor.client import follow, follow_up

        with contextlib.closing(common.ledger(self._where, task)) as db:
            view = queries.one(db, task)
            if not view.final:
                return self.send(tasks=[task], text=text)
            if not text.strip():
                raise UsageError("there is nothing to say")
            key = verdicts.key(task, f"{text}\0{os.urandom(8).hex()}")
            made = follow_up.submission(db, view, text, key, os.environ)
        return f"{view.name} goes on as {follow.hand_over(self._where, made, ()).tasks[0]}"

    def _ask(self, verb: str, args: dict[str, Any], *, timeout_s: float = 60.0) -> dict[str, Any]:
        return common.ask(self._where, verb, args, timeout_s=timeout_s)


def _named(tasks: Sequence[str]) -> str:
    """`lint`, or how many."""
    return tasks[0] if len(tasks) == 1 else f"{len(tasks)} tasks"


# Reviewing
# ---------
# What a person says of a result on a page: each is what `nightcrew review` does.


class ReviewActs:
    """What a person says of a result, as `nightcrew review`. Each returns one sentence; all raise NightcrewError. `tip`: the commit that
    the person saw; Refused when it is another by now."""

    def __init__(self, where: Home) -> None:
        self._where = where

    def comment(self, *, task: TaskId, tip: Words, path: Words, line: Number, text: Words) -> str:
        """As `nightcrew review --comment`."""
        with self._gathered(task) as (_, found):
            self._check(found, tip)
            made = review_commands.comment(self._where, found, f"{path}:{line}", text)
        return f"comment {made['comment']} is kept; it is sent when you say so"

    def drop(self, *, task: TaskId, number: Number) -> str:
        """As `nightcrew review --drop`."""
        review_commands.drop(self._where, task, number)
        return f"comment {number} is removed"

    def send(self, *, task: TaskId, text: Words) -> str:
        """As `nightcrew review --send`."""
        with self._gathered(task) as (db, found):
            made = review_commands.send(self._where, db, found, text, os.environ)
        state = f" ({made['state']})" if made.get("state") else ""
        return f"{many(made['sent'], 'comment')} sent to {made['to']}{state}"

    def decide(self, *, task: TaskId, tip: Words, verdict: Words, text: Words) -> str:
        """As `nightcrew review --accept` and `--reject`."""
        if verdict not in (Verdict.ACCEPTED, Verdict.REJECTED):
            raise UsageError("no such verdict", on=verdict)
        with self._gathered(task) as (_, found):
            made = review_commands.decide(self._where, found, verdict, text, tip)
        return f"{task} is {made['verdict']} at {made['commit'][:12]}"

    @contextlib.contextmanager
    def _gathered(self, task: str) -> Iterator[tuple[sqlite3.Connection, Review]]:
        with contextlib.closing(common.ledger(self._where, task)) as db:
            view = queries.one(db, task)
            repository, tip = taking.seen(db, view)
            yield db, reviews.gather(db, view, repository, tip, conflicts.known(self._where, view.project))

    @staticmethod
    def _check(found: Review, tip: str) -> None:
        if found.tip != tip:
            why = f"its result is {found.tip[:12]} by now, and its lines may be others"
            raise Refused("not commented", on=found.view.id, why=why, hint="look at it again")
