"""A real receiver of OTLP over HTTP: it parses protobuf, keeps every span that came, and answers as it is told."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from types import TracebackType

from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest, ExportTraceServiceResponse
from opentelemetry.proto.trace.v1.trace_pb2 import Span

HOLD = 0
"""Instead of a status: it reads, and does not answer."""


class Receiver:
    """Listens on a port of its own while it is entered."""

    def __init__(self) -> None:
        self.status = 200
        self.posts: Counter[int] = Counter()
        """By the answer that was given."""
        self.headers: list[dict[str, str]] = []
        self.forms: dict[str, set[bytes]] = {}
        """By span id every form in which it came."""
        self.taken: Counter[str] = Counter()
        """How often a span came that was answered with 200."""
        self._events = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._ready, self._over = threading.Event(), asyncio.Event()

    def spans(self) -> list[Span]:
        """Those that were taken."""
        return [Span.FromString(next(iter(forms))) for name, forms in list(self.forms.items()) if self.taken[name]]

    def __enter__(self) -> Receiver:
        self._thread.start()
        assert self._ready.wait(30)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._events.call_soon_threadsafe(self._over.set)
        self._thread.join(30)

    def _serve(self) -> None:
        self._events.run_until_complete(self._run())
        self._events.close()

    async def _run(self) -> None:
        app = web.Application(client_max_size=2**26)
        app.router.add_post("/v1/traces", self._take)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.url = site.name if not site.name.endswith(":0") else f"http://127.0.0.1:{runner.addresses[0][1]}"
        self._ready.set()
        await self._over.wait()
        await runner.cleanup()

    async def _take(self, request: web.Request) -> web.Response:
        asked = ExportTraceServiceRequest.FromString(await request.read())
        status = self.status
        self.headers.append(dict(request.headers))
        spans = [span for resource in asked.resource_spans for scope in resource.scope_spans for span in scope.spans]
        for span in spans:
            self.forms.setdefault(span.span_id.hex(), set()).add(span.SerializeToString(deterministic=True))
        self.posts[status] += 1
        if status == HOLD:
            await asyncio.sleep(3600)
        if status == 200:
            self.taken.update(span.span_id.hex() for span in spans)
            return web.Response(body=ExportTraceServiceResponse().SerializeToString(), content_type="application/x-protobuf")
        return web.Response(status=status, text="not now")
