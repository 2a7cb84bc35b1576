"""The crew in lines of text, one a task; used by `status`, `up` and `run`."""

from __future__ import annotations

import stat
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from memory.mail import Mail
from supervisor.host.untrusted_fs import open_plain
from supervisor.kernel import errors, names
from supervisor.kernel.conversations import Delivery
from supervisor.kernel.errors import one_line
from supervisor.kernel.format import age, date_time, many, moment, rfc3339
from supervisor.kernel.pressure import Verdict
from supervisor.kernel.result import TAMPERING, tampering
from supervisor.kernel.states import TaskState, Until
from supervisor.store.queries import RunView, TaskView

SIGNS = {
    TaskState.WAITING: ("·", "a", "2"),
    TaskState.READY: ("○", "q", "36"),
    TaskState.RUNNING: ("●", "W", "32"),
    TaskState.PAUSED: ("‖", "p", "33"),
    TaskState.PARKED: ("‖", "l", "33"),
    TaskState.DONE: ("✓", "D", "32"),
    TaskState.FAILED: ("✗", "F", "31"),
    TaskState.CANCELLED: ("−", "C", "33"),
    TaskState.EXPIRED: ("−", "E", "33"),
    TaskState.SKIPPED: ("−", "S", "2"),
    TaskState.QUARANTINED: ("!", "!", "31"),
}
"""A shape, a letter and a colour for each state: the shape, or the letter, is enough where there is no colour."""
RESTS = "◦"
"""In the place of a running task's sign: its agent has nothing to do."""
RESTING = ("idle", "interrupted")
"""States of an agent that has nothing to do."""
_AGENT_WORDS = {"rate_limited": "limited"}
"""Of an agent's state, where the column is too narrow for it."""
ASKS = ("?", "35")
"""Of an agent that waits for a person."""

IDS = 28
"""Columns for a task's id where there is room."""
LINE, TAIL = 2048, 256 * 1024
"""Bytes of the end of a log in which its last line is looked for, and of a stream of JSON what its agent said last."""
ATTENDED = "terminal"
"""The kind of agent that a person sits at."""
TIERS = {
    0: "none (tier 0): it can do all that you can",
    1: "tier 1: it writes its own files only, and sees none of the other agents'; the network is open",
    2: "tier 2: the same, and no network but the gateway and the hosts that its task names",
}
"""Isolation, in words; docs/environments.md has the whole table."""

_ORDER = (TaskState.RUNNING, TaskState.QUARANTINED, TaskState.FAILED, TaskState.PARKED, TaskState.PAUSED)


@dataclass(frozen=True, slots=True)
class Waiting:
    """What waits for a person, or for an agent: beside the ledger's rows of tasks."""

    asked: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Of each task whose agent waits for a person, longest first: `state`, `detail` and `since` (wall-clock seconds)."""
    unsent: Mapping[str, str] = field(default_factory=dict)
    """Of each task that texts wait for, how many, and why."""
    states: Mapping[str, str] = field(default_factory=dict)
    """Of each task that runs how its agent is, where more than its process says so."""
    reasons: Mapping[str, Verdict] = field(default_factory=dict)
    """Of each task that waits for its start what it waits for."""
    mail: Sequence[Mail] = ()
    """What a person is asked by mail and has not read, oldest first."""
    conflicts: Mapping[str, str] = field(default_factory=dict)
    """Of each task with whom its work conflicts."""
    trains: Mapping[str, str] = field(default_factory=dict)
    """By task, what became of a result that was in a train, or that a person took."""

    def first(self, views: Iterable[TaskView]) -> list[TaskView]:
        """Sort tasks: first those that wait for a person, longest first; then by urgency, idle agents after working ones."""
        order = {task: place for place, task in enumerate(self.asked)}

        def place(view: TaskView) -> tuple[int, bool, bool]:
            return order.get(view.id, len(order)), view.state is not TaskState.RUNNING, self.states.get(view.id) in RESTING

        return sorted(by_urgency(views), key=place)

    def tally(self) -> str:
        """`2 need you`; empty when nobody does."""
        number = len(self.asked) + len(self.mail)
        return f"{number} {'needs' if number == 1 else 'need'} you" if number else ""


NOTHING_WAITS = Waiting()


@dataclass(frozen=True, slots=True)
class Layout:
    """How a line is laid out."""

    width: int
    """Columns of the whole line; what is beyond is cut."""
    color: bool
    ids: int = IDS
    """Columns for the id."""
    took: bool = False
    """Show how long a task took that has ended, instead of the time of its end."""


def line(view: TaskView, now: float, layout: Layout, *, detail: str = "", waits: Waiting = NOTHING_WAITS) -> str:
    """`● running   1121-k3f9/lint   12s   title   detail`. Of an agent that waits for a person
    `? needs you   1121-k3f9/lint   3m20s   what it asks   title`, and since when. Of a task that ended the time of its end."""
    sign, _, code = SIGNS[TaskState.PAUSED if view.paused else view.state]
    state = view.attempt_state if view.state is TaskState.RUNNING and view.attempt_state not in (None, "running") else view.state
    state, since = "paused" if view.paused else state, seconds(view, now)
    if state is TaskState.RUNNING and view.id in waits.states:
        state = _AGENT_WORDS.get(waits.states[view.id], waits.states[view.id])
        sign = RESTS if waits.states[view.id] in RESTING else sign
    if (asked := waits.asked.get(view.id)) is not None:
        (sign, code), state, since = ASKS, "needs you", now - asked["since"]
    shown_age = moment(view.ended or view.changed, now) if view.final and not layout.took else age(since)
    head = f"{sign} {state:<11} {view.id:<{layout.ids}} {shown_age:>7}  "
    texts = one_line(waits.unsent.get(view.id, ""))
    foremost = [texts] if texts else []
    if asked is not None:  # then that is why the texts wait, too
        foremost = [one_line(asked["detail"] or asked["state"]), *([texts.partition(":")[0]] if texts else [])]
    if view.id in waits.reasons and (reason := one_line(waits.reasons[view.id].words)) not in detail and reason not in foremost:
        foremost = [reason, *foremost]
    if view.id in waits.conflicts:
        foremost = [*foremost, waits.conflicts[view.id]]
    if view.id in waits.trains:
        foremost = [*foremost, waits.trains[view.id]]
    title, more = one_line(view.title), one_line(detail)
    parts = [title] if title and (title != view.name or not (more or foremost)) else []
    shown = cut(head + "  ".join([*foremost, *parts, *([more] if more and more != title else [])]), layout.width).rstrip()
    return f"\x1b[{code}m{shown[:13]}\x1b[0m{shown[13:]}" if layout.color else shown


def heading(said: str, layout: Layout) -> str:
    """The line above the tasks of one repository or run."""
    shown = cut(said, layout.width)
    return f"\x1b[1m{shown}\x1b[0m" if layout.color else shown


def seconds(view: TaskView, now: float) -> float | None:
    """How long the newest attempt has run or ran; None when there was none. Waiting for a disk before or after that is no part of it."""
    start = view.started or view.created
    return None if start is None else max(0.0, (view.ended or now) - start)


def counted(views: Iterable[TaskView]) -> Counter[TaskState]:
    """How many are in each state."""
    return Counter(view.state for view in views)


def tally(counts: Mapping[TaskState, int], idle: int = 0) -> str:
    """`3 running, 2 waiting, 5 done`; `idle`: how many of those that run have nothing to do, which are not counted among them."""
    words = {**{str(state): counts.get(state, 0) for state in TaskState}, "idle": idle}
    words[TaskState.RUNNING] -= min(idle, words[TaskState.RUNNING])
    return ", ".join(f"{number} {word}" for word, number in words.items() if number)


def more(shown: Iterable[TaskView], counts: Counter[TaskState]) -> str:
    """`19950 more: 19900 waiting, 50 ready`: what of `counts` is not among those shown; empty when all are."""
    left = counts - counted(shown)
    return f"{left.total()} more: {tally(left)}" if left else ""


def idle(views: Iterable[TaskView], states: Mapping[str, str]) -> int:
    """Count running tasks whose agent has nothing to do; `states` as `Waiting.states`."""
    return sum(view.state is TaskState.RUNNING and states.get(view.id) in RESTING for view in views)


def unconfined(views: Iterable[TaskView]) -> int:
    """Count unattended running tasks without a sandbox."""
    return sum(view.state is TaskState.RUNNING and view.tier == 0 and view.kind != ATTENDED for view in views)


def by_urgency(views: Iterable[TaskView]) -> list[TaskView]:
    """Running first, then what went wrong, then the rest in order."""
    return sorted(views, key=lambda view: _ORDER.index(view.state) if view.state in _ORDER else len(_ORDER))


def detail(view: TaskView, root: Path) -> str:
    """What is worth saying beside the title: tampering, why it ended or waits, or the last line that it printed."""
    return "; ".join(filter(None, (*(f"{TAMPERING}{what}" for what in tampering(view.result)[:1]), _detail(view, root))))


def _detail(view: TaskView, root: Path) -> str:
    if view.state is TaskState.RUNNING:
        last = last_line(root / f"runs/{view.id}/{view.epoch}/stdout.log")
        gate = "its gate runs" if (root / f"runs/{view.id}/{view.epoch}/gate.log").exists() else ""
        return "; ".join(filter(None, (pause(view), gate, (view.account or {}).get("warning"), last)))
    if view.state is TaskState.DONE:
        commits = (view.result or {}).get("commits")
        work = f"{many(commits, 'commit')} on {view.branch}" if commits else ""
        return "; ".join(filter(None, (work, last_message(view.result))))
    if view.state is TaskState.FAILED and view.epoch and not (view.result or {}).get("agent"):  # its own words are in the reason already
        said = last_line(root / f"runs/{view.id}/{view.epoch}/stderr.log")
        return f"{why(view)}: {said}" if said else why(view)
    return why(view)


def pause(view: TaskView) -> str:
    """Whom a paused agent makes room for, and what lets it go on; empty when that is a person, or it goes on."""
    if view.paused != Until.SLOT:
        return ""
    return f"made room for {view.paused_for}, waits for a slot" if view.paused_for else "waits for a slot"


def unsent(pending: Iterable[Delivery]) -> dict[str, str]:
    """Of each task that texts wait for, how many and why the first of them waits."""
    by_task: dict[str, list[Delivery]] = {}
    for one in pending:
        by_task.setdefault(one.task, []).append(one)
    return {
        task: f"{len(texts)} text{'s wait' if len(texts) > 1 else ' waits'}" + (f": {texts[0].reason}" if texts[0].reason else "")
        for task, texts in by_task.items()
    }


def sent(one: Delivery) -> str:
    """`unconfirmed, 12 bytes, sha256 03982e2a: why`: a text without its words."""
    return f"{one.state}, {one.size} bytes, sha256 {one.digest[:8]}" + (f": {one_line(one.reason)}" if one.reason else "")


def made_of(view: TaskView) -> list[tuple[str, str]]:
    """What its newest attempt started from and what it is kept from, a name and a text each; empty before it started."""
    facts = [("assigned", view.assigned)] if view.assigned else []
    if view.snapshot:
        facts.append(("snapshot", view.snapshot.partition("/")[2] + (f" ({view.backend})" if view.backend else "")))
    if view.tier is not None:
        facts.append(("isolation", TIERS.get(view.tier, f"tier {view.tier}")))
    if view.port is not None and not view.final:
        facts.append(("ports", names.shown(view.port)))
    if view.environment:
        facts.append(("name", f"{view.environment}: nightcrew fork --reopen {view.environment}"))
    return facts


def last_message(result: Mapping[str, Any] | None) -> str:
    """The first line of an agent's last message, from its `result.json`; empty without a protocol, and in older results."""
    return str(((result or {}).get("agent") or {}).get("message", "")).strip().partition("\n")[0]


def said_of_itself(result: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    """What an agent with a protocol said of its work, a name and a text each: its last message, what it was not allowed, its session."""
    said = (result or {}).get("agent") or {}
    denied = [("denied", one) for one in said.get("denials", ())]
    return [
        fact for fact in [("said", last_message(result)), *denied, ("session", said.get("session")), ("gate", _gate(result))] if fact[1]
    ]


def _gate(result: Mapping[str, Any] | None) -> str:
    """What came of its gate; empty when it has none, or that did not run."""
    gate = (result or {}).get("gate")
    if not gate:
        return ""
    return "passed" if gate["passed"] else f"{gate['why']}; what it printed: nightcrew logs --stream gate {(result or {})['task']}"


def why(view: TaskView) -> str:
    """The reason of its state, without the state itself, which stands beside it already."""
    return view.reason.removeprefix(f"{view.state}: ").removeprefix(str(view.state)).strip()


def last_line(path: Path) -> str:
    """The last non-empty line of a log, or nothing; of a stream of JSON what its agent said or did last."""
    try:
        state = path.lstat()
    except OSError:
        return ""
    if not stat.S_ISREG(state.st_mode):  # an agent put it there: a pipe never ends, a link shows a file of the reader's
        return ""
    return _last_line(path, state.st_size, state.st_mtime_ns)


@lru_cache(maxsize=1024)  # a screen shows the same logs every second, and most of them did not grow
def _last_line(path: Path, size: int, changed: int) -> str:  # noqa: ARG001 - `changed` is a part of the key
    try:
        with open_plain(path) as file:  # it may have been replaced since it was looked at
            file.seek(max(0, size - LINE))
            said = errors.last_line(file.read(LINE).decode("utf-8", "replace"))
            if not said.endswith("}"):
                return said
            file.seek(max(0, size - TAIL))
            tail = file.read(TAIL)
    except OSError:
        return ""
    from agents import protocols  # only for who prints such streams

    return errors.last_line(protocols.latest(tail)) or said


def history(entry: Mapping[str, Any]) -> str:
    """One line of a task's journal in plain words: `2026-11-21 06:59:34  attempt 1 ended: done`."""
    data, attempt = entry["data"], f"attempt {entry['epoch']}"
    match entry["event"]:
        case "start":
            said = f"{attempt} starts"
            data = {"cause": data.get("cause")}
        case "begin":
            said = f"{attempt}: its command begins, with the others"
        case "stopping":
            said = f"{attempt} is being stopped"
        case "tree gone":
            said = f"{attempt}: no process is left, its work is being secured"
            data = {}
        case event if event.startswith("end "):
            said = f"{attempt} ended: {event.removeprefix('end ')}"
            data = {"cause": data.get("cause"), "the task is": data.get("task")}
        case "retry":
            said = "a person asked for it again"
            data = {}
        case event:
            said = event if entry["epoch"] is None else f"{attempt}: {event}"
    facts = "".join(f"; {value if key in ('cause', 'why', 'reason') else f'{key} {value}'}" for key, value in data.items() if value)
    return f"{date_time(entry['at'], seconds=True)}  {one_line(said + facts)}"


def cut(text: str, width: int) -> str:
    """The beginning of `text` that fits into `width` columns of a terminal, with an ellipsis when some is left out."""
    if columns(text) <= width:
        return text
    shown, room = "", width - 1
    for char in text:
        room -= _columns_of(char)
        if room < 0:
            break
        shown += char
    return shown + "…"


def columns(text: str) -> int:
    """How many columns a terminal takes for it: two for a wide character, none for one that combines with the one before."""
    if text.isascii():
        return len(text)
    return sum(map(_columns_of, text))


@lru_cache(maxsize=4096)  # every line has a sign that is not ASCII, and the same few characters fill all lines
def _columns_of(char: str) -> int:
    if unicodedata.category(char) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


# JSON
# ----
# Tasks and runs as `--json` prints them: times are RFC 3339 UTC, what is unknown is null.


def task_shape(view: TaskView) -> dict[str, Any]:
    """One task with its newest attempt, as `--json` prints it (schema 1)."""
    return {
        "id": view.id,
        "run": view.run,
        "name": view.name,
        "title": view.title,
        "project": view.project,
        "state": str(view.state),
        "reason": view.reason,
        "class": view.task_class,
        "priority": view.priority,
        "epoch": view.epoch,
        "submitted": rfc3339(view.submitted),
        "started": rfc3339(view.started or view.created),
        "ended": rfc3339(view.ended),
        "end": view.end,
        "cause": view.end_cause or "",
        "branch": view.branch,
        "worktree": view.worktree,
        "environment": view.environment or None,
        "assigned": view.assigned or None,
        "snapshot": view.snapshot,
        "backend": view.backend,
        "tier": view.tier,
        "port": view.port,
        "paused": {"until": view.paused, "for": view.paused_for or None} if view.paused else None,
        "trace": names.trace_id(view.id),
        "parent": f"{view.parent}:{view.parent_epoch}" if view.parent else None,
        "account": view.account,
        "memory_expected": view.memory_expected,
        "result": view.result,
    }


def run_shape(view: RunView) -> dict[str, Any]:
    """One run and the states of its tasks, as `--json` prints it."""
    return {
        "id": view.id,
        "title": view.title,
        "project": view.project,
        "root": view.root,
        "base": view.base,
        "base_oid": view.base_oid,
        "submitted": rfc3339(view.created),
        "counts": view.counts,
    }
