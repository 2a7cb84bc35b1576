"""Gemini CLI's `--output-format stream-json`, as version 0.61.0 writes it. It says no cost and no structured output."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from agents.protocols.lines import (
    DENIALS_MAX,
    MESSAGE_MAX,
    SMALL_MAX,
    TEXT_MAX,
    Entry,
    Object,
    Outcome,
    Usage,
    What,
    count,
    inner,
    name_of,
    short,
    text,
    wanted,
)

_TYPES = ("init", "message", "tool_use", "tool_result", "error", "result")
_REFUSED = "policy_violation"


def outcome(objects: Iterable[Object]) -> Outcome | None:
    """See the package."""
    init: Object = {}
    result: Object | None = None
    error, known = "", False
    message: list[str] = []
    calls, denials = dict[str, str](), list[str]()
    for one in objects:
        known |= text(one, "type") in _TYPES
        match text(one, "type"):
            case "init":
                init = init or one
            case "message" if text(one, "role") == "assistant":
                message.append(text(one, "content"))
            case "tool_use":
                message.clear()
                calls[name_of(one, "tool_id")] = ": ".join(filter(None, (short(text(one, "tool_name")), wanted(one.get("parameters")))))
            case "tool_result":
                call = calls.pop(name_of(one, "tool_id"), "a tool")
                denials += [call] if text(inner(one, "error"), "type") == _REFUSED and len(denials) < DENIALS_MAX else []
            case "error" if text(one, "severity") == "error":
                error = text(one, "message")
            case "result":
                result = one
    return _outcome(init, result, error, "".join(message), tuple(denials)) if known else None


def _outcome(init: Object, result: Object | None, error: str, message: str, denials: tuple[str, ...]) -> Outcome:
    stats = inner(result or {}, "stats")
    failed = result is not None and text(result, "status") != "success"
    return Outcome(
        ended=result is not None,
        is_error=failed,
        reason=short(text(inner(result or {}, "error"), "message") or error or "its result is an error") if failed else "",
        denials=denials,
        message=message[:MESSAGE_MAX],
        usage=_usage(stats) if stats else None,
        session=name_of(init, "session_id"),
        began=bool(init),
        models=tuple(short(name) for name in [*inner(stats, "models")][:SMALL_MAX]) or tuple(filter(None, [name_of(init, "model")])),
    )


def _usage(stats: Object) -> Usage:
    """Its `input_tokens` holds what was read from the cache."""
    cached = count(stats, "cached")
    return Usage(max(0, count(stats, "input_tokens") - cached), count(stats, "output_tokens"), cached)


def entries(objects: Iterable[Object]) -> Iterator[Entry]:
    """See the package. An answer comes in parts: they are put together."""
    answer: list[str] = []
    for one in objects:
        if text(one, "type") == "message" and text(one, "role") == "assistant":
            answer.append(text(one, "content"))
            continue
        if answer and text(one, "type") in _TYPES:
            yield Entry("message", "agent", "".join(answer)[:TEXT_MAX])
            answer = []
        yield from _entry(one)
    if answer:
        yield Entry("message", "agent", "".join(answer)[:TEXT_MAX])


def _entry(one: Object) -> Iterator[Entry]:
    match text(one, "type"):
        case "init":
            yield Entry("start", "system", short(text(one, "model")))
        case "message":
            yield Entry("message", "user", text(one, "content")[:TEXT_MAX])
        case "tool_use":
            yield Entry("tool", "agent", wanted(one.get("parameters")), tool=short(text(one, "tool_name")), call=name_of(one, "tool_id"))
        case "tool_result":
            error = inner(one, "error")
            kind: What = "denied" if text(error, "type") == _REFUSED else "outcome"
            said = (text(one, "output") or text(error, "message"))[:TEXT_MAX]
            yield Entry(kind, "agent", said, call=name_of(one, "tool_id"), ok=text(one, "status") == "success")
        case "error":
            yield Entry("error", "system", short(text(one, "message")))
        case "result":
            failed = text(one, "status") != "success"
            yield Entry("end", "agent", short(text(inner(one, "error"), "message")) if failed else "", ok=not failed)
