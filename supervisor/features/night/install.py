"""Nights that start by themselves, and the start of one at night."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from supervisor.client import protocol, start, submit
from supervisor.config import user
from supervisor.config.task_keys import moment
from supervisor.config.toml import Once, into
from supervisor.host import autostart, cores, files, paths
from supervisor.host.autostart import Entry
from supervisor.host.paths import Home, settings_file
from supervisor.kernel.errors import NightcrewError, NotFound, Refused, ToolFailed, UsageError
from supervisor.kernel.night import NightDefaults, NightOrder, NightTerms, Timetable, too_late
from supervisor.kernel.spec import ABSOLUTE_FROM, Submission

# Installed nights
# ----------------
# Nights that start by themselves: what a person consented to, kept in private files of the state, `nights/NAME.json`.
#
# A consent is for the plan as it was then: its text, that of every `prompt_file`, of the repository's nightcrew.toml, and the
# terms. At night what changed is not started.


_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")


@dataclass(frozen=True, slots=True)
class Consent:
    """One night as it was installed."""

    name: str
    plan: str
    repo: str
    base: str | None
    table: Timetable
    terms: Mapping[str, Any]
    """The options of `night run` as they were typed."""
    files: Mapping[str, str]
    """SHA-256 of each file that makes the plan, by its path; empty for one that was not there."""
    by: str
    """`autostart.SYSTEMD` or CRON."""
    env: Mapping[str, str] = field(default_factory=dict)
    """The environment of the shell that consented, as far as agents may see it. No secret is in it."""
    at: float = 0.0
    """When, seconds since 1970."""

    @property
    def digest(self) -> str:
        """SHA-256 of what was consented to."""
        said = {"files": dict(self.files), "terms": dict(self.terms), "repo": self.repo, "base": self.base, "when": asdict(self.table)}
        return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()

    def entry(self, home: Home) -> Entry:
        """What starts it."""
        return autostart.night(home, self.name, self.table, self.by)

    def key(self, due: datetime) -> str:
        """The idempotency key of the night that begins at `due`: one date is one night, however often it is started."""
        return f"night {self.name} {due:%Y-%m-%d} {self.digest[:16]}"


@dataclass(frozen=True, slots=True)
class Last:
    """What came of the newest start."""

    due: str
    """Local date and time at which it was due."""
    outcome: str
    """`started`, `refused`, `missed` or `failed`."""
    why: str = ""
    run: str = ""
    at: float = 0.0


def name_of(plan: Path, wish: str | None) -> str:
    """The name of a night of `plan`: as wished, or made of the file's name. Raises UsageError."""
    if wish is not None and not _NAME.fullmatch(wish):
        raise UsageError(
            "bad value", on="--name", why="a name has 1 to 40 small letters, digits and '-', and starts with a letter or digit"
        )
    return wish or re.sub(r"[^a-z0-9]+", "-", plan.stem.lower()).strip("-")[:40].strip("-") or "night"


def changed(consent: Consent, files: Once) -> list[str]:
    """The files that are not as they were at the consent, of those that it names and of all that `files` was asked for: whoever parses
    what `files` has parses what was looked at here."""
    for name in consent.files:
        with contextlib.suppress(OSError, ValueError):  # its digest is that of no file
            files.raw(Path(name))
    return [name for name, digest in files.digests().items() if consent.files.get(name) != digest]


# The records -----------------------------------------------------------------------------------------------------------------------------


def save(home: Home, consent: Consent) -> None:
    """Keep it, in place of one of the same name. Raises Refused where the directory is not ours, DiskFull, ToolFailed."""
    _write(home, f"{consent.name}.json", {"schema": 1, **asdict(consent), "digest": consent.digest})


def load(home: Home, name: str) -> Consent:
    """Raises NotFound, and Refused for a record that is not as it was written."""
    file = home.root / "nights" / f"{name}.json"
    known = _NAME.fullmatch(name)
    try:
        shape = json.loads(file.read_bytes()) if known else None
    except FileNotFoundError:
        shape = None
    except (OSError, ValueError) as error:
        raise _damaged(file, str(error)) from error
    if shape is None:
        raise NotFound("no installed night is called", on=name, hint="nightcrew night list")
    try:
        table = Timetable(int(shape["table"]["minute"]), tuple(map(int, shape["table"]["days"])))
        consent = Consent(**{key: shape[key] for key in Consent.__dataclass_fields__ if key != "table"}, table=table)
        whole = consent.digest == shape["digest"]
    except (KeyError, TypeError, ValueError) as error:
        raise _damaged(file, f"{type(error).__name__}: {error}") from error
    if not whole:
        raise _damaged(file, "its digest is not that of what it says")
    return consent


def _damaged(file: Path, why: str) -> Refused:
    return Refused("cannot use the consent", on=str(file), why=why, kept="nothing was started", hint="nightcrew night install PLAN, anew")


def names(home: Home) -> list[str]:
    """Of all nights that are installed."""
    with contextlib.suppress(OSError):
        return sorted(file.stem for file in (home.root / "nights").glob("*.json") if _NAME.fullmatch(file.stem))
    return []


def forget(home: Home, name: str) -> None:
    """Remove the consent and what came of its starts; the log stays until the next night of that name."""
    for suffix in ("json", "last"):
        with contextlib.suppress(FileNotFoundError):
            (home.root / "nights" / f"{name}.{suffix}").unlink()


def note(home: Home, name: str, last: Last) -> None:
    """Keep what came of a start."""
    _write(home, f"{name}.last", asdict(replace(last, at=time.time())))


def last(home: Home, name: str) -> Last | None:
    """What came of the newest start; None when there was none."""
    try:
        return Last(**json.loads((home.root / "nights" / f"{name}.last").read_bytes()))
    except (OSError, ValueError, TypeError):
        return None


def _write(home: Home, name: str, shape: Mapping[str, Any]) -> None:
    directory = files.private_dir(files.private_dir(home.root) / "nights")
    files.atomic_write(directory / name, json.dumps(shape, indent=2).encode() + b"\n")


def install(home: Home, consent: Consent) -> None:
    """Keep the consent, then write what starts it, in place of an older one of that name. Raises what the doors raise; then neither is
    there."""
    files.private_dir(home.root)
    if consent.name in names(home):
        uninstall(home, consent.name)
    save(home, consent)
    try:
        autostart.write(home, consent.entry(home))
    except (Refused, ToolFailed, OSError):
        forget(home, consent.name)
        raise


def uninstall(home: Home, name: str) -> bool:
    """Take away what starts it, then the consent, whole or damaged. Whether something started it until now. Raises NotFound, and Refused
    with both kept."""
    try:
        entries = [load(home, name).entry(home)]
    except Refused:
        ways = (autostart.SYSTEMD, *([autostart.CRON] if autostart.has_crontab() else []))
        entries = [autostart.night(home, name, Timetable(0), by) for by in ways]
    there = [autostart.remove(home, entry) for entry in entries]
    forget(home, name)
    return any(there)


# Night start
# -----------
# The start of an installed night, at night: by its consent, or not at all. Runs in the process of the command that a timer starts.


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
    consent = load(home, name)
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
    note(home, name, Last(f"{due:%Y-%m-%d %H:%M}", "started", run=run))
    return run


def _prepared(consent: Consent, due: datetime, now: datetime) -> tuple[Submission, tuple[str, ...]]:
    files = Once()  # no file is read again: one that is swapped after this look changes nothing
    _refuse_changed(consent, files)
    plan = Path(consent.plan)
    night = order(plan, consent.terms, files, timer=consent.name, due=due.astimezone())
    until = datetime.fromtimestamp(night.terms.until).astimezone().replace(tzinfo=None) if night.terms.until else None
    if why := too_late(due, now.replace(tzinfo=None), until):
        _refuse_early(consent, due, now)
        raise Missed("will not start the night", on=consent.name, why=why, kept="the plan", hint=f"nightcrew night run {consent.plan}")
    submission, notes = submit.from_plan(plan, Path(consent.repo), consent.base, consent.key(due), os.environ, files)
    _refuse_changed(consent, files)  # a file that the consent does not name, of a repository that was moved
    return replace(submission, night=replace(night, plan_hash=consent.digest)), notes


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
    if names := changed(consent, files):
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
    before = last(home, name)
    note(home, name, found)
    if before is not None and (before.due, before.why) == (found.due, found.why):
        return
    with contextlib.suppress(NightcrewError, OSError):  # nobody to tell: `night list`, `status` and `doctor` say it
        start.ensure_running(home, paths.settings_file(), lambda _: None)
        protocol.call(home.daemon_socket, "night_refused", {"name": name, "outcome": found.outcome, "why": found.why}, timeout_s=30.0)


# Terms
# -----


def order(plan: Path, said: Mapping[str, Any], files: Once, *, timer: str = "", due: datetime | None = None) -> NightOrder:
    """The night that the file `plan` shall be. `said`: texts by the keys of `[night]`, None for what was not said. `files` has
    the plan.

    `until` is resolved here, once: a time of day means the next time that this machine's clock shows it, after `due` when that is given:
    when the night should have begun, local time. Raises UsageError for a text that is no such term, ConfigError for the settings.
    """
    terms = resolve(said, user.load(settings_file(), len(cores.usable())).night, due)
    return NightOrder(terms, str(plan.absolute()), hashlib.sha256(files.raw(plan)).hexdigest(), timer)


def resolve(said: Mapping[str, Any], defaults: NightDefaults, due: datetime | None = None) -> NightTerms:
    """The terms, of texts as `order` says and the user's defaults."""
    given = {name: text for name, text in said.items() if text is not None}
    try:
        model = user.NightModel.model_validate({name: _typed(name, text) for name, text in given.items()})
        until = _until((model.until if "until" in given else defaults.until) or "", due)
    except ValidationError as error:
        wrong = error.errors()[0]
        raise UsageError(
            "not a night", on=f"--{str(wrong['loc'][0]).replace('_', '-')}", why=wrong["msg"].removeprefix("Value error, ")
        ) from None
    chosen = into(NightDefaults, model)
    return NightTerms(
        until=until,
        grace_s=chosen.grace_s if "grace" in given else defaults.grace_s,
        cost_max=chosen.cost_max or defaults.cost_max,
        parallel=chosen.parallel or defaults.parallel,
        on_cap=chosen.on_cap if "on_cap" in given else defaults.on_cap,
    )


def _typed(name: str, text: str) -> Any:
    number = {"cost_max": float, "parallel": int}.get(name)
    try:
        return number(text) if number is not None else text
    except ValueError:
        return text  # the model says what is wrong with it


def _until(text: str, due: datetime | None) -> float:
    """Seconds since 1970; 0 for no such time."""
    at = float(moment(text, due)) if text else 0.0
    return at if not at or at >= ABSOLUTE_FROM else (time.time() if due is None else due.timestamp()) + at
