"""The verbs of the person's socket that belong to no feature. Features add theirs by the contract."""

from __future__ import annotations

from collections.abc import Mapping

from supervisor.contract import Request
from supervisor.server import capacity, requests
from supervisor.server.attempts import sending

HANDLERS: Mapping[str, Request] = {
    "answer": requests.handle_answer,
    "capacity": capacity.handle,
    "down": requests.handle_down,
    "evidence": requests.handle_evidence,
    "kill": requests.handle_kill,
    "needs": requests.handle_needs,
    "ping": requests.handle_ping,
    "resume": requests.handle_resume,
    "retry": requests.handle_retry,
    "send": sending.handle,
    "submit": requests.handle_submit,
    "pause": requests.handle_pause,
}
