"""Verbs that change something, one a file, named as on the command line; they run inside the daemon.

A handler is `async handle(loop, args) -> value`; it raises our errors, and returns only what is committed.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from supervisor.features.access import service as access_service
from supervisor.features.best_of import service as best_of_service
from supervisor.features.clean import service as clean_service
from supervisor.features.night import service as night_service
from supervisor.features.notify import service as notify_service
from supervisor.features.pull_requests import service as pull_requests_service
from supervisor.features.quotas import service as quotas_service
from supervisor.features.retention import service as retention_service
from supervisor.features.review import service as review_service
from supervisor.features.snapshots import service as snapshots_service
from supervisor.server import capacity, requests
from supervisor.server.attempts import sending
from supervisor.server.loop import Loop

Handler = Callable[[Loop, dict[str, Any]], Coroutine[Any, Any, dict[str, Any]]]

HANDLERS: Mapping[str, Handler] = {
    "answer": requests.handle_answer,
    "capacity": capacity.handle,
    "choose": best_of_service.handle,
    "clean": clean_service.handle,
    "down": requests.handle_down,
    "evidence": requests.handle_evidence,
    "keep": retention_service.handle,
    "kill": requests.handle_kill,
    "needs": requests.handle_needs,
    "night_refused": night_service.handle,
    "notify_test": notify_service.handle,
    "ping": requests.handle_ping,
    "quota": quotas_service.handle,
    "resume": requests.handle_resume,
    "retry": requests.handle_retry,
    "pr": pull_requests_service.handle,
    "review": review_service.handle,
    "send": sending.handle,
    "snapshot": snapshots_service.handle,
    "submit": requests.handle_submit,
    "token": access_service.handle,
    "pause": requests.handle_pause,
}

ENDS_WITH_ITS_CLIENT = frozenset({"quota"})
"""Verbs that wait, and stop waiting when whoever asked is gone; all others are done to their end."""
