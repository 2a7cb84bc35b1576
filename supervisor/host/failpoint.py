"""Named places at which a test can kill this process, so that recovery is tried at every step and not only at lucky moments.

`NIGHTCREW_DIE_AT=name` makes the process kill itself with SIGKILL the first time that it passes `failpoint(name)`;
`NIGHTCREW_DIE_AT=name:3` the third time. Unset, a failpoint is one dictionary look-up.
"""

from __future__ import annotations

import os
import signal

FAILPOINTS = (
    "launch.committed",
    "launch.environment",
    "launch.spec",
    "launch.noted",
    "launch.spawned",
    "finish.tree-gone",
    "finish.collect-committed",
    "finish.secured",
    "finish.result",
    "finish.noted",
    "finish.committed",
    "finish.session-killed",
    "gate.secured",
    "stop.committed",
    "stop.stopped",
    "submit.committed",
    "conversation.begun",
    "begin.committed",
    "choice.compare",
    "choice.committed",
    "pause.committed",
    "pause.stopped",
    "resume.committed",
    "resume.started",
    "send.kept",
    "send.committed",
    "send.typed",
    "send.pressed-again",
    "review.commented",
    "review.kept",
    "review.decided",
    "mail.accepted",
    "mail.filed",
    "mail.given",
    "mail.withdrawn",
    "mail.read",
    "snapshot.committed",
    "snapshot.prepared",
    "snapshot.frozen",
    "snapshot.removed",
    "securing.answered",
    "intake.received",
    "intake.unpacked",
    "intake.connected",
    "intake.migrated",
    "intake.moved",
    "securing.taken",
    "recover.kept",
    "recover.moved",
    "clean.removed",
    "archive.marked",
    "archive.copied",
    "archive.removed",
    "archive.rest-copied",
    "train.begun",
    "train.staged",
    "train.saved",
    "train.gate-submitted",
    "train.repair-submitted",
    "train.moved",
    "note.pending",
    "note.drafted",
    "note.replaced",
    "note.appended",
    "note.moved",
    "note.done",
    "pr.intended",
    "pr.pushed",
    "pr.noted",
    "pr.opened",
    "pr.heard",
    "pr.handed",
)
"""Every name there is: of an attempt's life in its order, then the others."""

_passed: dict[str, int] = {}


def failpoint(name: str) -> None:
    """Die here if the environment says so."""
    wanted = os.environ.get("NIGHTCREW_DIE_AT")
    if wanted is None:
        return
    at, _, count = wanted.partition(":")
    if at == name:
        _passed[name] = _passed.get(name, 0) + 1
        if _passed[name] == int(count or 1):
            os.kill(os.getpid(), signal.SIGKILL)
