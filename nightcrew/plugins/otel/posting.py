"""Hands spans to a receiver, by OpenTelemetry's own exporter: the only place that imports it."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import requests
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

from supervisor import __version__
from supervisor.features.trace import view as trace_view
from supervisor.features.trace.rules import Span, What
from supervisor.gateway.keys import Redactor
from supervisor.kernel.errors import one_line

POST_S = 10.0
"""For one post, with what the exporter tries again by itself."""
_WHY_MAX, _READ_MAX = 200, 4000
_SAMPLED = TraceFlags(TraceFlags.SAMPLED)
_RESOURCE = Resource({"service.name": trace_view.SERVICE, "service.version": __version__})
_SCOPE = InstrumentationScope(trace_view.SERVICE, __version__, trace_view.SCHEMA_URL)


class Post:
    """One receiver. `status` and `why` tell of the newest answer: None, when nobody answered."""

    def __init__(self, endpoint: str, headers: Mapping[str, str], *, content: bool) -> None:
        self._content = content
        self.status: int | None = None
        self.why = ""
        self.rejected = 0
        """Spans of the newest post that the receiver did not want, although it took the others."""
        logging.getLogger("opentelemetry").addHandler(_Told(self))
        logging.getLogger("opentelemetry").propagate = False
        session = requests.Session()
        session.trust_env = False  # no proxy and no .netrc: the headers go to the endpoint alone
        session.max_redirects = 0
        session.hooks["response"].append(self._heard)
        self._exporter = OTLPSpanExporter(endpoint, headers=dict(headers), timeout=POST_S, compression=Compression.Gzip, session=session)

    def __call__(self, spans: Sequence[Span]) -> bool:
        """Whether they were taken."""
        self.status, self.why, self.rejected = None, "", 0
        return self._exporter.export([readable(span, content=self._content) for span in spans]) is SpanExportResult.SUCCESS

    def _heard(self, response: requests.Response, *_: Any, **__: Any) -> None:
        self.status = response.status_code
        if response.status_code >= 300:
            self.why = _harmless(f"{response.status_code} {response.reason}: {response.text[:_READ_MAX]}".strip(": "))
            return
        answer = ExportTraceServiceResponse()
        try:
            answer.ParseFromString(response.content)
        except Exception:  # noqa: BLE001 - whatever protobuf raises of an answer that is none: the spans were taken
            return
        self.rejected = answer.partial_success.rejected_spans
        self.why = _harmless(answer.partial_success.error_message)


class _Told(logging.Handler):
    """Keeps what the exporter complains of when nobody answered, instead of printing it."""

    def __init__(self, post: Post) -> None:
        super().__init__(logging.WARNING)
        self._post = post

    def emit(self, record: logging.LogRecord) -> None:
        if self._post.status is None:
            self._post.why = _harmless(record.getMessage())


def _harmless(said: str) -> str:
    """On one short line, without secrets: cleaned before it is cut, since half a secret is not known as one."""
    return one_line(Redactor().clean(said[:_READ_MAX]))[:_WHY_MAX]


def readable(span: Span, *, content: bool) -> ReadableSpan:
    """One span that has ended, as the exporter takes it."""
    trace = int(span.trace, 16)
    return ReadableSpan(
        name=trace_view.plain(span.name),
        context=SpanContext(trace, int(span.id, 16), is_remote=False, trace_flags=_SAMPLED),
        parent=SpanContext(trace, int(span.parent, 16), is_remote=False, trace_flags=_SAMPLED) if span.parent else None,
        resource=_RESOURCE,
        attributes=trace_view.attributes(span, content=content),
        kind=SpanKind.CLIENT if span.what is What.MODEL else SpanKind.INTERNAL,
        instrumentation_scope=_SCOPE,
        status=Status(StatusCode.ERROR) if span.error else Status(),
        start_time=trace_view.nanoseconds(span.start),
        end_time=trace_view.nanoseconds(span.start if span.end is None else span.end),
    )
