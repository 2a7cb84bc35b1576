"""The verbs of the person's socket that belong to no feature, and how a request becomes a call. Features add their verbs by the contract.

A handler is `async handle(loop, *, name: type, ...) -> value`: its keyword-only parameters are the request, see `kernel/codec.py`. It
raises our errors, and returns only what is committed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Coroutine, Iterator, Mapping
from typing import Any, TypeVar

from supervisor.contract import Verb
from supervisor.kernel import codec
from supervisor.kernel.errors import UsageError
from supervisor.server import capacity, requests
from supervisor.server.attempts import sending


def work(verb: Verb, context: Any, args: Mapping[str, Any]) -> Coroutine[Any, Any, Any]:
    """What a request asks for. Its handler gets `context`, and the arguments as keywords of their types. Raises UsageError for an argument
    that is missing, unknown, of another type or out of bounds, and for an `op` that there is not."""
    if isinstance(verb, Mapping):
        op = args.get("op")
        if not isinstance(op, str) or op not in verb:
            raise UsageError("not a request", on="op", why=f"it is one of {', '.join(verb)}")
        verb, args = verb[op], {name: value for name, value in args.items() if name != "op"}
    with refusing():
        return verb(context, **codec.arguments(verb, args))


def checked(kind: type[T], args: Mapping[str, Any]) -> T:
    """The arguments as a dataclass. Raises UsageError as `work` does."""
    with refusing():
        return codec.check(kind, args)


@contextlib.contextmanager
def refusing() -> Iterator[None]:
    """Turn a mismatch into UsageError."""
    try:
        yield
    except codec.Mismatch as error:
        raise UsageError("not a request", on=".".join(map(str, error.where)), why=str(error)) from None


T = TypeVar("T")

HANDLERS: Mapping[str, Verb] = {
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
