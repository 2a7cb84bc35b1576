"""Running every check, whatever is broken."""

from __future__ import annotations

import importlib
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from supervisor.core.errors import NightcrewError, one_line
from supervisor.doctor.check_context import CheckContext
from supervisor.doctor.finding import Checked, Finding, State, unknown

GROUPS = ("software", "machine", "environments", "state", "crew", "night")
DEADLINE_S = 45.0
"""Of a whole examination. A check that has not answered by then is unknown and left behind: its thread ends with the process."""

Check = Callable[[CheckContext], Finding]


def examine(
    context: CheckContext, checks: Mapping[str, Mapping[str, Check]] | None = None, deadline_s: float = DEADLINE_S
) -> list[Checked]:
    """Every finding, in the order of the groups. Takes at most about `deadline_s` seconds and raises nothing that a check can raise."""
    found = [(group, name, check) for group, named in (checks or _all()).items() for name, check in named.items()]
    slots: list[Finding | None] = [None] * len(found)

    def look(index: int, check: Check) -> None:
        slots[index] = _guarded(check, context)

    threads = [threading.Thread(target=look, args=(index, check), daemon=True) for index, (_, _, check) in enumerate(found)]
    for thread in threads:
        thread.start()
    ends_at = time.monotonic() + deadline_s
    for thread in threads:
        thread.join(max(0.0, ends_at - time.monotonic()))
    late = unknown(f"no answer in {deadline_s:g} s", "something that it looks at hangs", "look at the disks: dmesg, df")
    return [Checked(group, name, slots[index] or late) for index, (group, name, _) in enumerate(found)]


def _all() -> dict[str, Mapping[str, Check]]:
    return {group: _group(group) for group in GROUPS}


def _group(name: str) -> Mapping[str, Check]:
    """The checks of a group; when it cannot be imported, one that says why."""
    try:
        checks: Mapping[str, Check] = importlib.import_module(f"supervisor.doctor.{name}").CHECKS
    except Exception as error:  # noqa: BLE001 - a foreign or half-installed package can raise anything, and is what doctor is asked about
        return {name: _broken(error)}
    return checks


def _broken(error: Exception) -> Check:
    why = one_line(f"{type(error).__name__}: {error}")

    def check(context: CheckContext) -> Finding:  # noqa: ARG001 - the shape of every check
        return Finding(State.FAIL, why, "nightcrew's own files, or what it needs, are not all here", "install nightcrew anew")

    return check


def _guarded(check: Check, context: CheckContext) -> Finding:
    try:
        return check(context)
    except NightcrewError as error:
        return unknown(one_line(": ".join(part for part in (error.what, error.on, error.why) if part)), fix=error.hint)
    except Exception as error:  # noqa: BLE001 - one check that no one foresaw to fail must not hide the others
        return unknown(one_line(f"{type(error).__name__}: {error}"))


def mend(checked: list[Checked]) -> list[dict[str, Any]]:
    """Do everything that is safe. Returns for each `group`, `name`, `done` (whether it worked) and `what`."""
    return [{"group": one.group, "name": one.name, **_mended(one.finding.mend)} for one in checked if one.finding.mend is not None]


def without_failed(checked: list[Checked], mended: list[dict[str, Any]]) -> list[Checked]:
    """The findings of a second examination, without the mendings that have just failed: they would fail again."""
    failed = {(one["group"], one["name"]) for one in mended if not one["done"]}
    return [replace(one, finding=replace(one.finding, mend=None)) if (one.group, one.name) in failed else one for one in checked]


def _mended(act: Callable[[], str]) -> dict[str, Any]:
    try:
        return {"done": True, "what": act()}
    except NightcrewError as error:
        return {"done": False, "what": error.line()}
    except OSError as error:
        return {"done": False, "what": one_line(str(error))}
