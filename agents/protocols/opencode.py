"""`opencode run --format json`: steps, each with its texts and calls of tools. No line says that the turn ended: it has when its last step
finished for any reason but a call of a tool. Of a model whose price it does not know it says that it cost nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from agents.protocols.lines import (
    DENIALS_MAX,
    MESSAGE_MAX,
    TEXT_MAX,
    Entry,
    Object,
    Outcome,
    Usage,
    What,
    amount,
    count,
    inner,
    name_of,
    short,
    text,
    wanted,
)

_TYPES = ("step_start", "step_finish", "text", "tool_use", "error")


def outcome(objects: Iterable[Object]) -> Outcome | None:
    """See the package."""
    session = message = end = error = ""
    steps, cost, usage = 0, 0.0, Usage()
    denials = list[str]()
    for one in _own(objects):
        session = session or name_of(one, "sessionID")
        part = inner(one, "part")
        match text(one, "type"):
            case "step_start":
                end = ""
            case "text":
                message = text(part, "text")
            case "tool_use" if _refused(part) and len(denials) < DENIALS_MAX:
                denials.append(f"{short(text(part, 'tool'))}: {wanted(inner(part, 'state').get('input'))}".removesuffix(": "))
            case "step_finish":
                end = text(part, "reason")
                steps, cost, usage = steps + 1, cost + (amount(part, "cost") or 0.0), usage + _usage(inner(part, "tokens"))
            case "error":
                error = _told(one)
    if not session:
        return None
    ended = end not in ("", "tool-calls")
    return Outcome(
        ended=ended or bool(error),
        is_error=bool(reason := error or (short(end) if ended and end != "stop" else "")),
        reason=reason,
        denials=tuple(denials),
        message=message[:MESSAGE_MAX],
        steps=steps,
        usage=usage if steps else None,
        cost_usd=cost or None,
        session=session,
        began=True,
    )


def _own(objects: Iterable[Object]) -> Iterator[Object]:
    own = ""
    for one in objects:
        session = name_of(one, "sessionID")
        if session and text(one, "type") in _TYPES:
            own = own or session
            if session == own:
                yield one


def _usage(tokens: Object) -> Usage:
    cache = inner(tokens, "cache")
    return Usage(count(tokens, "input"), count(tokens, "output") + count(tokens, "reasoning"), count(cache, "read"), count(cache, "write"))


def _told(one: Object) -> str:
    error = inner(one, "error")
    return short(text(inner(error, "data"), "message") or text(error, "name") or "it failed")


def _refused(part: Object) -> bool:
    """By a person, or by a rule because no person is there to be asked."""
    state = inner(part, "state")
    return text(state, "status") == "error" and text(state, "error").startswith(_REFUSALS)


_REFUSALS = ("The user rejected permission", "The user has specified a rule which prevents")


def entries(objects: Iterable[Object]) -> Iterator[Entry]:
    """See the package."""
    for one in _own(objects):
        part = inner(one, "part")
        match text(one, "type"):
            case "text":
                yield Entry("message", "agent", text(part, "text")[:TEXT_MAX])
            case "tool_use":
                state, call = inner(part, "state"), name_of(part, "callID")
                yield Entry("tool", "agent", wanted(state.get("input")), tool=short(text(part, "tool")), call=call)
                kind: What = "denied" if _refused(part) else "outcome"
                said = text(state, "output") or text(state, "error")
                yield Entry(kind, "agent", said[:TEXT_MAX], call=call, ok=text(state, "status") == "completed")
            case "error":
                yield Entry("error", "system", _told(one))
            case "step_finish" if text(part, "reason") != "tool-calls":
                reason = text(part, "reason")
                yield Entry("end", "agent", "" if reason == "stop" else short(reason), ok=reason == "stop")
