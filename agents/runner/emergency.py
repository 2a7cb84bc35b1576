"""The emergency stop, as a runner honours it: while the sentinel file exists its agent stands still, whether or not a supervisor lives."""

import os
import time

from supervisor.host.procfs import lives, send

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Callable

    from supervisor.host.procfs import Seen
else:
    import _signal as signal

LOOK_S = 0.5  # between two looks for the sentinel; an idle look costs a system call
_ROUNDS = 100  # of stopping what a tree forks meanwhile; the next look goes on
_STOPPED, _NO_CODE_RUNS = "Tt", "TtDZX"
RECORD = "stopped"  # in the attempt's directory, while its tree stands still because of the sentinel


class EmergencyStop:
    """Of one attempt. `near` gives the living processes below the runner, parents before children; `far` others of the attempt, and costs a
    look at all of the machine's processes: it is asked once a stop."""

    def __init__(self, sentinel: bytes, near: "Callable[[], list[Seen]]", far: "Callable[[], list[Seen]]") -> None:
        self._sentinel = sentinel
        self._near, self._far = near, far
        self._sent: dict[tuple[int, int], Seen] = {}
        self._since = 0.0
        self._still_s = 0.0

    def ordered(self) -> bool:
        """Whether everything is to stand still."""
        return bool(self._sentinel) and os.path.exists(self._sentinel)

    def step(self) -> None:
        """Stop what moves while the sentinel is there; let go what was stopped once it is not."""
        if self.ordered():
            still = self._stop(self._near)
            if not self._since:
                self._since = time.monotonic()
                still = self._stop(self._far) and still
            if still and not os.path.lexists(RECORD):
                os.close(os.open(RECORD, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        elif self._since:
            self._let_go()

    def stood_still(self) -> float:
        """Seconds for which it was stopped: no part of its time, unless it was paused meanwhile, which is counted by itself."""
        return self._still_s + (time.monotonic() - self._since if self._since else 0.0)

    def _stop(self, find: "Callable[[], list[Seen]]") -> bool:
        """Stop whoever moves; whether a look found nobody."""
        for _ in range(_ROUNDS):
            moving = [seen for seen in find() if seen.state not in (_NO_CODE_RUNS if seen.key in self._sent else _STOPPED)]
            if not moving:
                return True
            for seen in moving:
                if send(seen, signal.SIGSTOP):
                    self._sent[seen.key] = seen
        return False

    def _let_go(self) -> None:
        """Children first, so that no shell with job control sees a stopped child."""
        for seen in reversed(self._sent.values()):
            if lives(seen):
                send(seen, signal.SIGCONT)
        self._sent.clear()
        self._still_s, self._since = self.stood_still(), 0.0
        if os.path.exists(RECORD):
            os.unlink(RECORD)
