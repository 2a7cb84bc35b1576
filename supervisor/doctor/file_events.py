"""Whether changes in the memories of projects are seen at once."""

from __future__ import annotations

from memory.watching import Hints, Watching
from supervisor.core.errors import NightcrewError
from supervisor.daemon import lock, protocol
from supervisor.doctor.check_context import CheckContext, existing
from supervisor.doctor.finding import Finding, ok, warn
from supervisor.host import mounts

WHY = "what you or an agent writes into a memory by hand is seen every 2 s, not at once"


def check(context: CheckContext) -> Finding:
    """Watch a directory for a moment, as the supervisor does."""
    place = existing(context.home.root)
    kind = mounts.file_system(place)
    if mounts.changes_elsewhere(kind):
        return warn(f"{kind} tells nobody what others change", WHY, "NIGHTCREW_HOME names a directory on a local disk")
    watching = Watching(Hints(lambda: None), recursive=False)
    try:
        why = watching.follow(place)
    finally:
        watching.close()
    if why:
        return warn(why, WHY, "sysctl fs.inotify shows the limits; max_user_instances and max_user_watches can be raised")
    times = _overflows(context)
    if times:
        often = "once" if times == 1 else f"{times} times"
        seen = f"changes of memories are seen at once; the kernel dropped events {often}, and all files were looked at"
        return warn(seen, "many files change at once, and each such look takes longer", "raise the sysctl fs.inotify.max_queued_events")
    return ok("changes of memories are seen at once")


def _overflows(context: CheckContext) -> int:
    """How often the supervisor was told that events were dropped; 0 when none answers."""
    if lock.holder(context.home.lock) is None:
        return 0
    try:
        return int(protocol.call(context.home.daemon_socket, "watch", {}, timeout_s=context.tool_s)["overflows"])
    except NightcrewError:  # `supervisor` says what is the matter with it
        return 0
