"""The requests of both sockets are the parameters of their handlers; whatever does not fit is refused in one shape."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

import pytest

from memory.service import desk
from supervisor.contract import Verb
from supervisor.features.registry import BUILT_IN
from supervisor.kernel import codec
from supervisor.kernel.errors import UsageError
from supervisor.server import agent_requests, request_table
from supervisor.server.hooks import Hooks
from supervisor.server.request_table import HANDLERS

HOOKS = Hooks(BUILT_IN)
VERBS: dict[str, Verb] = {
    **HANDLERS,
    **{f"memory {verb}": handler for verb, handler in desk.VERBS.items()},
    **{f"agents {verb}": handler for verb, handler in agent_requests.VERBS.items()},
    **HOOKS.requests,
    **{f"agents {verb}": handler for verb, handler in HOOKS.agent_requests.items()},
}


def handlers() -> Iterator[tuple[str, codec.Handler]]:
    for verb, handler in VERBS.items():
        if isinstance(handler, Mapping):
            yield from ((f"{verb} {op}", one) for op, one in handler.items())
        else:
            yield verb, handler


@pytest.mark.parametrize(("verb", "handler"), list(handlers()), ids=[verb for verb, _ in handlers()])
def test_every_request_has_parameters_of_known_types(verb: str, handler: codec.Handler) -> None:
    with contextlib.suppress(codec.Mismatch):
        assert codec.arguments(handler, {}) == {}, verb


@pytest.mark.parametrize("verb", [verb for verb, handler in VERBS.items() if isinstance(handler, Mapping)])
@pytest.mark.parametrize("op", [None, 3, [], "nothing"], ids=str)
def test_an_operation_that_there_is_not_is_refused(verb: str, op: object) -> None:
    with pytest.raises(UsageError, match="op: it is one of"):
        _ = request_table.work(VERBS[verb], None, {"op": op})


WRONG = [
    ("kill", {}, "tasks: it must be given"),
    ("kill", {"tasks": "run/a"}, "tasks: it must be a list"),
    ("kill", {"tasks": [3]}, "tasks.0: it must be text"),
    ("kill", {"tasks": [], "signal": 9}, "signal: there is none of that name; there are tasks"),
    ("quota", {"quota": "a", "wait_s": -1}, "wait_s: it must be a number, at least 0"),
    ("clean", {"attempts": [["run/a", True]], "remove": True, "ignored": True, "discard": True}, "attempts.0.1: it must be a whole number"),
    ("review", {"op": "decide", "task": "run/a", "epoch": 1, "verdict": "maybe", "tip": ""}, "verdict: it must be one of"),
    ("agents wait", {"tasks": ["a"], "timeout_s": 1e9}, "timeout_s: it must be a number, 0 to 600"),
    ("agents wait", {"tasks": []}, "tasks: it must be of a length, at least 1"),
    ("agents hook", {"name": "Stop", "event": "text"}, "event: it must be an object"),
]


@pytest.mark.parametrize(("verb", "args", "why"), WRONG, ids=str)
def test_a_request_that_does_not_fit_is_refused_before_anything_is_done(verb: str, args: dict[str, object], why: str) -> None:
    with pytest.raises(UsageError) as wrong:
        _ = request_table.work(VERBS[verb], None, args)
    assert wrong.value.what == "not a request" and why in f"{wrong.value.on}: {wrong.value.why}"
