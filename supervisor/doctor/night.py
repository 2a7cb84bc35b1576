"""What starts by itself: the installed nights and the supervisor's service."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from supervisor.config.reading import Once
from supervisor.core.errors import NightcrewError
from supervisor.daemon import autostart, installed_nights, service
from supervisor.doctor.check_context import CheckContext
from supervisor.doctor.examine import Check
from supervisor.doctor.finding import Finding, ok, warn
from supervisor.faces import installed_nights as face


def nights(context: CheckContext) -> Finding:
    """Whether each installed night would start: what starts it, its consent, its plan, and what came of its newest start."""
    names = installed_nights.names(context.home)
    if not names:
        return ok("none is installed")
    found = {name: why for name in names if (why := _wrong(context, name))}
    for name, why in found.items():
        anew = f"nightcrew night install, anew; or nightcrew night uninstall {name}"
        return warn(f"{name}: {why}", "it does not start at night", autostart.START_CRON if why == autostart.NO_CRON else anew)
    late = face.not_started(context.home, datetime.now())
    if late:
        return warn(late[0], "its tasks did not run", "nightcrew night list")
    return ok(f"{len(names)}, each as it was installed")


def _wrong(context: CheckContext, name: str) -> str:
    try:
        consent = installed_nights.load(context.home, name)
        changed = installed_nights.changed(consent, Once())
        return f"changed since it was installed: {', '.join(changed)}" if changed else autostart.wrong(consent.entry(context.home))
    except NightcrewError as error:
        return error.line()


def supervisor(context: CheckContext) -> Finding:
    """What starts the supervisor, and whether the one that runs is watched by it."""
    shape = service.status(context.home)
    if not shape["installed"]:
        return ok("not installed: the supervisor starts with the next nightcrew run")
    if shape["wrong"]:
        fix = autostart.START_CRON if shape["wrong"] == autostart.NO_CRON else "nightcrew service install"
        return warn(shape["wrong"], "the supervisor does not start by itself", fix)
    if shape["supervisor"] and not shape["watched"]:
        why = "a crash of it is not mended before the next login or boot"
        return warn(f"pid {shape['supervisor']} was not started by {shape['by']}", why, "nightcrew down, then start the service")
    return ok(f"by {shape['by']}")


CHECKS: Mapping[str, Check] = {"nights": nights, "service": supervisor}
