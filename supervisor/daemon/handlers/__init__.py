"""Verbs that change something, one a file, named as on the command line; they run inside the daemon.

A handler is `async handle(loop, args) -> value`; it raises our errors, and returns only what is committed.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from supervisor.daemon.handlers import (
    answer,
    capacity,
    choose,
    clean,
    down,
    evidence,
    keep,
    kill,
    needs,
    night_refused,
    notify_test,
    pause,
    ping,
    pr,
    quota,
    resume,
    retry,
    review,
    send,
    snapshot,
    submit,
    token,
)
from supervisor.daemon.loop import Loop

Handler = Callable[[Loop, dict[str, Any]], Coroutine[Any, Any, dict[str, Any]]]

HANDLERS: Mapping[str, Handler] = {
    "answer": answer.handle,
    "capacity": capacity.handle,
    "choose": choose.handle,
    "clean": clean.handle,
    "down": down.handle,
    "evidence": evidence.handle,
    "keep": keep.handle,
    "kill": kill.handle,
    "needs": needs.handle,
    "night_refused": night_refused.handle,
    "notify_test": notify_test.handle,
    "ping": ping.handle,
    "quota": quota.handle,
    "resume": resume.handle,
    "retry": retry.handle,
    "pr": pr.handle,
    "review": review.handle,
    "send": send.handle,
    "snapshot": snapshot.handle,
    "submit": submit.handle,
    "token": token.handle,
    "pause": pause.handle,
}

ENDS_WITH_ITS_CLIENT = frozenset({"quota"})
"""Verbs that wait, and stop waiting when whoever asked is gone; all others are done to their end."""
