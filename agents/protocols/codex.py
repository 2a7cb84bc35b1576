"""`codex exec --json`: threads, turns and items. Nobody is there to be asked, so it has no denials; its cost it does not say."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from agents.protocols.lines import (
    MESSAGE_MAX,
    TEXT_MAX,
    Entry,
    Object,
    Outcome,
    Usage,
    What,
    count,
    inner,
    is_spent,
    name_of,
    short,
    text,
    wanted,
)
from supervisor.kernel.result import json_value

_ITEM = ("item.started", "item.updated", "item.completed")
_TALK = ("agent_message", "reasoning", "error", "todo_list")


def outcome(objects: Iterable[Object]) -> Outcome | None:
    """See the package."""
    thread = message = error = ""
    usage: Usage | None = None
    end, known = "", False
    for one in _own(objects):
        known = True
        match text(one, "type"):
            case "thread.started":
                thread = name_of(one, "thread_id")
            case "turn.started":
                end = error = ""
            case "turn.completed" | "turn.failed" as end:
                usage = usage_of(inner(one, "usage")) if inner(one, "usage") else usage
                error = _told(inner(one, "error")) or error
            case "error":
                error = _told(one)
            case "item.completed" if text(inner(one, "item"), "type") == "agent_message":
                message = text(inner(one, "item"), "text")
    if not known:
        return None
    failed = end == "turn.failed"
    reason = short(error or "its turn failed") if failed else ""
    return Outcome(
        ended=bool(end),
        is_error=failed,
        reason=reason,
        message=message[:MESSAGE_MAX],
        usage=usage,
        session=thread,
        began=bool(thread),
        spent=error if failed and is_spent(error) else "",
    )


def _own(objects: Iterable[Object]) -> Iterator[Object]:
    """Of the first thread. No other line names its thread, so all until the next thread begins are its own, and none after that
    until the other's turn has ended."""
    own, others = "", 0
    for one in objects:
        kind = text(one, "type")
        if kind == "thread.started" and (found := name_of(one, "thread_id")) != own:
            others += bool(own)
            own = own or found
        if not others and (kind.startswith(("thread.", "turn.")) or kind in (*_ITEM, "error")):
            yield one
        elif others and kind in ("turn.completed", "turn.failed"):
            others -= 1


def usage_of(said: Object) -> Usage:
    """Its `input_tokens` holds what was read from the cache and written to it."""
    read, written = count(said, "cached_input_tokens"), count(said, "cache_write_input_tokens")
    return Usage(max(0, count(said, "input_tokens") - read - written), count(said, "output_tokens"), read, written)


def entries(objects: Iterable[Object]) -> Iterator[Entry]:
    """See the package."""
    for one in _own(objects):
        match text(one, "type"):
            case "thread.started":
                yield Entry("start", "system", f"thread {name_of(one, 'thread_id')}")
            case "item.started" if text(inner(one, "item"), "type") not in _TALK:
                yield _call(inner(one, "item"))
            case "item.completed":
                yield from _done(inner(one, "item"))
            case "error":
                yield Entry("error", "system", short(_told(one)))
            case "turn.completed":
                yield Entry("end", "agent", ok=True)
            case "turn.failed":
                yield Entry("end", "agent", short(_told(inner(one, "error"))), ok=False)


def _told(error: Object) -> str:
    """Its message; of a provider's answer as JSON the message in it."""
    said = text(error, "message")
    answer = json_value(said.encode("utf-8", "replace")) if said.startswith("{") else None
    return (text(inner(answer, "error"), "message") if isinstance(answer, dict) else "") or said


def _call(item: Object) -> Entry:
    return Entry("tool", "agent", _about(item), tool=short(text(item, "tool") or text(item, "type")), call=name_of(item, "id"))


def _done(item: Object) -> Iterator[Entry]:
    match text(item, "type"):
        case "agent_message":
            yield Entry("message", "agent", text(item, "text")[:TEXT_MAX])
        case "error":
            yield Entry("error", "system", short(text(item, "message")))
        case kind if kind not in _TALK:
            failed = text(item, "status") in ("failed", "declined")
            said = text(item, "aggregated_output") or text(inner(item, "error"), "message")
            outcome_kind: What = "denied" if text(item, "status") == "declined" else "outcome"
            yield Entry(outcome_kind, "agent", said[:TEXT_MAX], tool=short(kind), call=name_of(item, "id"), ok=not failed)


def _about(item: Object) -> str:
    changes = item.get("changes")
    paths = [text(one, "path") for one in changes if isinstance(one, dict)] if isinstance(changes, list) else []
    return short(", ".join(paths)) if paths else wanted({name: item[name] for name in ("command", "query", "arguments") if name in item})
