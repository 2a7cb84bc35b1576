"""`nightcrew doctor --recover-ledger` and `--recover-account`: what can be read of a damaged file, as a whole new one."""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import closing
from pathlib import Path

from supervisor.core.errors import NightcrewError, NotFound
from supervisor.daemon.environments import facts
from supervisor.daemon.lock import DaemonLock
from supervisor.gateway import process_lock
from supervisor.gateway.account.schema import ACCOUNT
from supervisor.host import secrets
from supervisor.host.audit import Audit
from supervisor.host.clock import SystemClock
from supervisor.host.paths import Home
from supervisor.ledger import mending
from supervisor.ledger.salvage.recover import Report, recover
from supervisor.ledger.store import LEDGER
from worktrees import environments
from worktrees.environment import environment_path
from worktrees.git import Git
from worktrees.repository import discover


def ledger(home: Home) -> Report:
    """Recover the ledger. Raises Refused while a supervisor lives, NotFound when there is no ledger, LedgerError when nothing whole can be
    made of it; then nothing was changed."""
    if not home.root.is_dir():
        raise NotFound("no ledger", on=str(home.ledger), why=LEDGER.absent, hint=LEDGER.first)
    with closing(DaemonLock(home.lock)):
        report = recover(home.ledger, LEDGER, _stamp(), lambda db: [*mending.mend(db), *_find_worktrees(db, home)], mending.check)
        return _noted(home, "ledger", report)


def account(home: Home) -> Report:
    """Recover the gateway's account. Raises Refused while a gateway lives, else as `ledger`."""
    if not home.gateway_account.parent.is_dir():
        raise NotFound("no account", on=str(home.gateway_account), why=ACCOUNT.absent, hint=ACCOUNT.first)
    handle = process_lock.lock(home)
    try:
        return _noted(home, "account", recover(home.gateway_account, ACCOUNT, _stamp(), lambda _: [], lambda _: None))
    finally:
        os.close(handle)


def _stamp() -> str:
    return time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())


def _noted(home: Home, name: str, report: Report) -> Report:
    if report.kept is not None:
        said = {"kept": str(report.kept), "saved": sum(report.saved.values()), "lost": "; ".join(report.lost)}
        Audit(home.audit, secrets.own(home.secret), SystemClock(), "doctor").note(f"{name} recovered", said)
    return report


def _find_worktrees(db: sqlite3.Connection, home: Home) -> list[str]:
    """Where attempts worked whose rows were lost: by the same look that a supervisor takes for what a killed one did not write down."""
    said = []
    unknown = db.execute("""SELECT a.task, a.epoch, r.base_oid, p.id AS project, p.root FROM attempt a JOIN task t ON t.id = a.task
                            JOIN run r ON r.id = t.run JOIN project p ON p.id = t.project
                            WHERE a.worktree IS NULL AND a.removed IS NULL AND a.end IS NOT NULL""").fetchall()
    for task, epoch, base, project, root in unknown:
        place = home.worktrees / project
        if not environment_path(place, task, epoch).is_dir():
            continue
        try:
            made = environments.left(discover(Git(home.root / "git"), Path(root)), task, epoch, base, place)
        except NightcrewError as error:
            said.append(f"attempt {task}:{epoch}: its worktree lies below {place} and could not be looked at: {error.line()}")
            continue
        if made is not None:
            known = facts(made)
            names = ", ".join(f"{name} = ?" for name in known)
            db.execute(f"UPDATE attempt SET {names} WHERE task = ? AND epoch = ?", (*known.values(), task, epoch))  # noqa: S608 - our own names
    return said
