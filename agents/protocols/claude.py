"""Claude Code's `--output-format stream-json`, and `json` with or without `--verbose`; our own agent prints the same shape.

One process may print several results: a task that ended in the background starts another turn. Each result's `usage` and `num_turns` are
that turn's, `modelUsage` and `total_cost_usd` are the session's so far (seen in 2.1.329). `subtype` says "success" of a call that the
provider refused, so it is `is_error` and `terminal_reason` that count. The first session id is the agent's own: what an agent inside it
prints has another, and is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from agents.protocols.lines import (
    DENIALS_MAX,
    MESSAGE_MAX,
    SMALL_MAX,
    TEXT_MAX,
    Entry,
    Object,
    Outcome,
    Usage,
    amount,
    count,
    inner,
    is_spent,
    name_of,
    several,
    short,
    text,
    wanted,
)
from supervisor.kernel.leases import SAID

_TYPES = ("system", "assistant", "user", "result", "rate_limit_event")
_COMPLETED = ("", "completed")


@dataclass(slots=True)
class _Said:
    """What was said until now."""

    init: Object = field(default_factory=dict)
    message: str = ""
    background: tuple[str, ...] = ()
    denials: dict[str, str] = field(default_factory=dict)
    leased: set[str] = field(default_factory=set)
    """Calls that our hook denied, since the file is another's: the agent was told why, and it is nothing that a person could allow."""
    steps: int | None = None
    usage: Usage | None = None
    result: Object | None = None
    limit: Object = field(default_factory=dict)
    """The newest that it said of its account's limits."""


def outcome(objects: Iterable[Object]) -> Outcome | None:
    """See the package."""
    said, session = None, ""
    for one in _own(objects):
        said, session = said or _Said(), session or name_of(one, "session_id")
        _hear(said, one)
    return _outcome(said, session) if said is not None else None


def _own(objects: Iterable[Object]) -> Iterator[Object]:
    """Without the lines of other sessions."""
    own = ""
    for one in objects:
        session = name_of(one, "session_id")
        own = own or session
        if session in ("", own) and text(one, "type") in _TYPES:
            yield one


def _hear(said: _Said, one: Object) -> None:
    match text(one, "type"), text(one, "subtype"):
        case "system", "init":
            said.init = one
        case "system", "background_tasks_changed":
            said.background = tuple(short(text(task, "description")) for task in several(one, "tasks")[:SMALL_MAX])
        case "assistant", _ if not one.get("parent_tool_use_id"):
            said.message = _spoken(one) or said.message
        case "user", _:
            _hear_results(said, one)
        case "rate_limit_event", _:
            said.limit = inner(one, "rate_limit_info")
        case "result", _:
            _hear_result(said, one)


def _hear_results(said: _Said, one: Object) -> None:
    by_hook = {
        name_of(meta, "id") for meta in several(one, "tool_result_meta") if text(inner(meta, "permission_decision"), "source") == "hook"
    }
    for block in several(inner(one, "message"), "content") if by_hook else ():
        if name_of(block, "tool_use_id") in by_hook and SAID in text(block, "content") and len(said.leased) < DENIALS_MAX:
            said.leased.add(name_of(block, "tool_use_id"))


def _hear_result(said: _Said, one: Object) -> None:
    said.result = one
    said.message = text(one, "result") or said.message
    for denied in several(one, "permission_denials"):
        if len(said.denials) < DENIALS_MAX and text(denied, "tool_use_id") not in said.leased:
            said.denials[text(denied, "tool_use_id") or str(len(said.denials))] = _denial(denied)
    if type(one.get("num_turns")) is int:
        said.steps = (said.steps or 0) + count(one, "num_turns")
    if inner(one, "usage"):
        said.usage = (said.usage or Usage()) + usage_of(inner(one, "usage"))


def _outcome(said: _Said, session: str) -> Outcome:
    result = said.result or {}
    per_model = inner(result, "modelUsage")
    reason = _reason(result) if said.result is not None else ""
    spent = reason if reason and (text(result, "api_error") == "usage_limit_reached" or is_spent(reason)) else ""
    return Outcome(
        ended=said.result is not None,
        is_error=bool(reason),
        reason=reason,
        denials=tuple(said.denials.values()),
        message=said.message[:MESSAGE_MAX],
        structured=result.get("structured_output"),
        steps=said.steps,
        usage=_total(per_model) if per_model else said.usage,
        cost_usd=amount(result, "total_cost_usd"),
        session=session,
        began=bool(said.init),
        models=tuple(short(name) for name in [*per_model][:SMALL_MAX]) or tuple(filter(None, [name_of(said.init, "model")])),
        transcript=_transcript(said.init, session),
        spent=spent,
        resets_at=float(count(said.limit, "resetsAt")) if spent and text(said.limit, "status") == "rejected" else 0.0,
        unfinished=said.background,
    )


def _reason(result: Object) -> str:
    """Why a result is an error, or nothing. Without `is_error` it is the subtype that decides."""
    subtype, terminal = text(result, "subtype"), text(result, "terminal_reason")
    failed = result.get("is_error", subtype != "success")
    if not failed and not subtype.startswith("error") and terminal in _COMPLETED:
        return ""
    kind = next((said for said in (terminal, subtype) if said not in (*_COMPLETED, "success")), "error")
    status = count(result, "api_error_status")
    errors = result.get("errors")
    told = next((one for one in errors if isinstance(one, str)), "") if isinstance(errors, list) else ""
    return short(f"{kind}{f' {status}' if status else ''}: {told or text(result, 'result')}".removesuffix(": "))


def _denial(denied: Object) -> str:
    about = wanted(denied.get("tool_input"))
    return short(text(denied, "tool_name") or "a tool") + (f": {about}" if about else "")


def usage_of(said: Object) -> Usage:
    names = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    return Usage(*(count(said, name) for name in names))


def _total(per_model: Object) -> Usage:
    names = ("inputTokens", "outputTokens", "cacheReadInputTokens", "cacheCreationInputTokens")
    models = [inner(per_model, model) for model in per_model]
    return Usage(*(sum(count(model, name) for model in models) for name in names))


def _transcript(init: Object, session: str) -> str:
    """Claude Code keeps it beside its memory of the project: the stream names that one only."""
    path = text(init, "transcript_path")
    memory = PurePosixPath(text(inner(init, "memory_paths"), "auto"))
    if not path and session and memory.is_absolute() and memory.parent.parent.name == "projects":
        path = str(memory.parent / f"{session}.jsonl")
    return path if len(path) < 4096 and path.isprintable() else ""


def entries(objects: Iterable[Object]) -> Iterator[Entry]:
    """See the package."""
    denied = set[str]()
    for one in _own(objects):
        inside = name_of(one, "parent_tool_use_id")
        match text(one, "type"), text(one, "subtype"):
            case "system", "init":
                yield Entry("start", "system", short(text(one, "model")))
            case "system", "api_retry":
                yield Entry("retry", "system", short(f"{text(one, 'error')} {count(one, 'error_status') or ''}".strip()))
            case "system", "permission_denied":
                denied.add(text(one, "tool_use_id"))
            case "assistant", _:
                yield from _acts(one, f"agent/{inside}" if inside else "agent")
            case "user", _:
                yield from _answers(one, denied, inside)
            case "result", _:
                reason = _reason(one)
                yield Entry("end", "agent", reason, ok=not reason)


def _acts(one: Object, who: str) -> Iterator[Entry]:
    for block in several(inner(one, "message"), "content"):
        if text(block, "type") == "text":
            yield Entry("error" if one.get("is_api_error_message") else "message", who, text(block, "text")[:TEXT_MAX])
        elif text(block, "type") == "tool_use":
            yield Entry("tool", who, wanted(block.get("input")), tool=short(text(block, "name")), call=name_of(block, "id"))


def _answers(one: Object, denied: set[str], inside: str) -> Iterator[Entry]:
    """What came back of tools, and what somebody said: a person, or to the agent inside the one that started it."""
    who = "agent" if inside else "user"
    content = inner(one, "message").get("content")
    if isinstance(content, str):
        yield Entry("message", who, content[:TEXT_MAX])
    refused = denied | {
        text(meta, "id") for meta in several(one, "tool_result_meta") if text(meta, "non_execution_kind") == "user-rejected"
    }
    for block in several(inner(one, "message"), "content"):
        if text(block, "type") == "text":
            yield Entry("message", who, text(block, "text")[:TEXT_MAX])
        elif text(block, "type") == "tool_result":
            call, ok = name_of(block, "tool_use_id"), not block.get("is_error")
            by = f"agent/{inside}" if inside else "agent"
            yield Entry("denied" if call in refused else "outcome", by, _flat(block.get("content")), call=call, ok=ok)


def _spoken(one: Object) -> str:
    return _flat(inner(one, "message").get("content"))


def _flat(content: Any) -> str:
    """The texts of a message or of an outcome."""
    if isinstance(content, str):
        return content[:TEXT_MAX]
    return "\n".join(text(block, "text") for block in several({"content": content}, "content") if text(block, "type") == "text")[:TEXT_MAX]
