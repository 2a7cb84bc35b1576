"""Spans as OTLP has them in JSON: one document of any length, a span at a time."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from supervisor import __version__
from supervisor.core.trace_facts import Value, What
from supervisor.core.traces import CONVENTIONS, Span

SCHEMA_URL = f"https://opentelemetry.io/schemas/{CONVENTIONS}"
SERVICE = "nightcrew"
_INTERNAL, _CLIENT = 1, 3
_ERROR = 2
_TEXT_MAX = 4000
"""Characters of one value."""


def document(spans: Iterable[Span], *, content: bool) -> Iterator[str]:
    """The pieces of the document. A span that goes on is left out: OTLP has none."""
    resource = {"attributes": _attributes({"service.name": SERVICE, "service.version": __version__})}
    scope = {"name": SERVICE, "version": __version__}
    head = f'"resource":{json.dumps(resource)},"schemaUrl":{json.dumps(SCHEMA_URL)}'
    yield f'{{"resourceSpans":[{{{head},"scopeSpans":[{{"scope":{json.dumps(scope)},"spans":['
    first = True
    for span in spans:
        if span.end is not None:
            yield ("" if first else ",") + "\n" + json.dumps(shape(span, content=content), separators=(",", ":"))
            first = False
    yield "\n]}]}]}\n"


def shape(span: Span, *, content: bool) -> dict[str, Any]:
    """One span that has ended."""
    found: dict[str, Any] = {
        "traceId": span.trace,
        "spanId": span.id,
        "name": plain(span.name),
        "kind": _CLIENT if span.what is What.MODEL else _INTERNAL,
        "startTimeUnixNano": str(nanoseconds(span.start)),
        "endTimeUnixNano": str(nanoseconds(span.end or span.start)),
        "attributes": _attributes(attributes(span, content=content)),
    }
    return {**found, **({"parentSpanId": span.parent} if span.parent else {}), **({"status": {"code": _ERROR}} if span.error else {})}


def attributes(span: Span, *, content: bool) -> dict[str, Value]:
    """Those that leave the machine: with `content` also what a person or an agent wrote."""
    error: dict[str, Value] = {"error.type": span.error} if span.error else {}
    every = {**span.attributes, **(span.content if content else {}), **error}
    return {name: plain(value) if isinstance(value, str) else value for name, value in every.items()}


def nanoseconds(seconds: float) -> int:
    """Since 1970, without what a float cannot say: it is right to a microsecond."""
    return round(seconds * 1_000_000) * 1000


def plain(text: str) -> str:
    """What UTF-8 can hold, and not too long."""
    return text[:_TEXT_MAX].encode("utf-8", "backslashreplace").decode()


def _attributes(values: Mapping[str, Value]) -> list[dict[str, Any]]:
    return [{"key": name, "value": _value(value)} for name, value in values.items()]


def _value(value: Value) -> dict[str, Any]:
    match value:
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue": str(value)}
        case float():
            return {"doubleValue": value}
        case _:
            return {"stringValue": value}
