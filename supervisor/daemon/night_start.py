"""The start of an installed night, at night: by its consent, or not at all. Runs in the process of the command that a timer starts."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from supervisor.config import places
from supervisor.config.reading import Once
from supervisor.core import timetable
from supervisor.core.errors import NightcrewError, Refused
from supervisor.core.spec import Submission
from supervisor.daemon import installed_nights, night_terms, protocol, start, submit
from supervisor.daemon.installed_nights import Consent, Last
from supervisor.host.paths import Home


class Missed(Refused):
    """It is too late for this night."""


class NotDue(Refused):
    """Nothing was missed: it was installed after its time of day, and its first start is still to come."""


def begin(home: Home, name: str, now: datetime, hand_over: Callable[[Submission, tuple[str, ...]], str]) -> str:
    """Start the night whose time came last, within what was consented to. `now`: local time with its zone. `hand_over` gives the run's id.

    Returns that. Raises Refused for a plan that changed, Missed when it is too late, and whatever keeps it from starting; each is kept for
    `night list`, and told to the supervisor once a night. Raises NotDue, which is neither, when it is too late for a start that lies before
    the night was installed.
    """
    consent = installed_nights.load(home, name)
    due = consent.table.newest(now.replace(tzinfo=None))
    os.environ.update(consent.env)  # a timer's own PATH finds no agent
    try:
        submission, notes = _prepared(consent, due, now)
        run = hand_over(submission, notes)
    except NotDue:
        raise
    except NightcrewError as error:
        _refuse(home, name, Last(f"{due:%Y-%m-%d %H:%M}", _outcome(error), _why(error, name)))
        raise
    installed_nights.note(home, name, Last(f"{due:%Y-%m-%d %H:%M}", "started", run=run))
    return run


def _prepared(consent: Consent, due: datetime, now: datetime) -> tuple[Submission, tuple[str, ...]]:
    files = Once()  # no file is read again: one that is swapped after this look changes nothing
    _refuse_changed(consent, files)
    plan = Path(consent.plan)
    order = night_terms.order(plan, consent.terms, files, timer=consent.name, due=due.astimezone())
    until = datetime.fromtimestamp(order.terms.until).astimezone().replace(tzinfo=None) if order.terms.until else None
    if why := timetable.too_late(due, now.replace(tzinfo=None), until):
        _refuse_early(consent, due, now)
        raise Missed("will not start the night", on=consent.name, why=why, kept="the plan", hint=f"nightcrew night run {consent.plan}")
    submission, notes = submit.from_plan(plan, Path(consent.repo), consent.base, consent.key(due), os.environ, files)
    _refuse_changed(consent, files)  # a file that the consent does not name, of a repository that was moved
    return replace(submission, night=replace(order, plan_hash=consent.digest)), notes


def _refuse_early(consent: Consent, due: datetime, now: datetime) -> None:
    if due.timestamp() < consent.at:
        first = consent.table.next(now.replace(tzinfo=None))
        raise NotDue(
            "will not start the night",
            on=consent.name,
            why=f"it was installed after {due:%Y-%m-%d %H:%M}; its first start is at {first:%Y-%m-%d %H:%M}",
            kept="the plan",
            hint=f"nightcrew night run {consent.plan}",
        )


def _refuse_changed(consent: Consent, files: Once) -> None:
    if names := installed_nights.changed(consent, files):
        raise Refused(
            "will not start the night",
            on=consent.name,
            why=f"changed since it was installed: {', '.join(names)}",
            kept="everything; nothing was started",
            hint=f"look at it, then nightcrew night install {consent.plan}, anew",
        )


def _outcome(error: NightcrewError) -> str:
    return "missed" if isinstance(error, Missed) else "refused" if isinstance(error, Refused) else "failed"


def _why(error: NightcrewError, name: str) -> str:
    """Without what whoever lists it says already."""
    return error.why if error.on == name and error.why else ": ".join(filter(None, [error.what, error.on, error.why]))


def _refuse(home: Home, name: str, found: Last) -> None:
    """Keep why it did not start, and tell the supervisor, which is started when none runs: once for the same night and reason."""
    before = installed_nights.last(home, name)
    installed_nights.note(home, name, found)
    if before is not None and (before.due, before.why) == (found.due, found.why):
        return
    with contextlib.suppress(NightcrewError, OSError):  # nobody to tell: `night list`, `status` and `doctor` say it
        start.ensure_running(home, places.path(), lambda _: None)
        protocol.call(home.daemon_socket, "night_refused", {"name": name, "outcome": found.outcome, "why": found.why}, timeout_s=30.0)
