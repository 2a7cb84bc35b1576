"""The door to the providers: one pool of kept-alive connections each, and plain words for what goes wrong before an answer comes.

Nothing in an agent's or the daemon's environment turns this traffic elsewhere: there are no proxies, redirects and cookies here, since
aiohttp's connections, TLS and parser are used without its session. That does all these for whoever wants them, and took 15 % of the
gateway's time. `pyproject.toml` names the versions of aiohttp in which these parts are as they are used here.
"""

from __future__ import annotations

import asyncio
import errno
import functools
import os
import re
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import Connection
from aiohttp.http import RawResponseMessage
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.streams import StreamReader
from multidict import CIMultiDict
from yarl import URL

from supervisor.gateway import provider_keys
from supervisor.gateway.wire.headers import CLIENT_AUTH_HEADERS, HOP_BY_HOP, KeyFilter, auth_headers, carried, passable, reason
from supervisor.gateway.wire.metering import BadEncoding, Decoder, decoder
from supervisor.gateway.wire.requests import Endpoint, sent_body, target
from supervisor.host import attempt_tokens
from supervisor.kernel.engines import EngineKind
from supervisor.kernel.format import duration
from supervisor.kernel.gateway_settings import Upstream
from supervisor.kernel.states import TaskClass

if TYPE_CHECKING:
    from supervisor.gateway.proxy.forward import ProxiedRequest

_KEPT_ALIVE_S = 30.0
_HEADER_MAX = 64 * 2**10
"""Bytes of one header of an answer: some providers send long policies."""
_BUFFER = 2**14
"""Bytes of an answer that are read ahead: at twice this, or at 1,024 chunks of its framing, reading and parsing pause."""
_PIECE_MAX = 2**14
"""Bytes of an answer that are passed on at once. 16 KiB of events of 22 bytes take about a millisecond (measured)."""
_NO_TEXT = re.compile(rb"[\x00-\x08\x0e-\x1f]")
"""What stands in no JSON and in no server-sent event, and among the first bytes of anything compressed."""
_PAUSE_S = 0.002
"""Between two full pieces of all answers together. So floods take at most about half of the loop's time, however many they are, and all
answers that are larger than a piece pass at up to 8 MB/s; a stream of a model is a thousandth of that."""


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds. They are apart because thinking takes minutes before the first byte, while a stream that has begun sends pings."""

    connect_s: float = 10.0
    first_byte_s: float = 600.0
    """From sending to the answer's headers. Providers end a request that is not streamed after ten minutes."""
    idle_s: float = 300.0
    """Between two pieces of an answer. Clients give a silent stream up after five minutes (measured: Claude Code, Codex)."""
    batches_s: float = 60.0
    """Between two looks at batches that live, whoever asks for them."""


class _Failure(Exception):
    """`why` is for people."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


class Unreachable(_Failure):
    """No answer came, or it broke off before anything of it was passed on."""


class _Closed(Unreachable):
    """The connection was closed before anything of an answer came."""


class Cut(_Failure):
    """An answer broke off."""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """What is sent. `headers` are all that the upstream gets, but Host and the framing."""

    method: str
    url: str
    headers: CIMultiDict[str]
    body: bytes | None
    key: str = field(default="", repr=False)
    """Ours, which the answer must not carry to a client; empty: none was sent."""


class Reply:
    """An upstream's answer, read piece by piece, without our key, without headers that no client could take (see `wire.scrub`), and
    decoded of a Content-Encoding.

    Leaving it before the answer's end closes the connection, which is how a provider learns that nobody listens.
    """

    def __init__(
        self, connection: Connection, head: RawResponseMessage, body: StreamReader, timeouts: Timeouts, key: str, pause: asyncio.Lock
    ) -> None:
        """Whoever holds `pause` may read more of an answer that comes faster than it is passed on."""
        self._connection = connection
        self._body = body
        self._timeouts = timeouts
        self._key = key
        self._pause = pause
        self._filter = KeyFilter(key)
        self._more = False
        """The last piece was full: the next one may be there already."""
        self.status = head.code
        self.reason = reason(head.reason, key)
        """None: the one that the standard has for the status."""
        self.headers: Mapping[str, str] = passable(head.headers, key)
        self.unreadable = ""
        """Why its body cannot be decoded; it then reads as empty."""
        self._decoder: Decoder | None = None
        coded = ",".join(head.headers.getall("Transfer-Encoding", ())).lower().replace(" ", "")
        if coded not in ("", "chunked", "identity"):
            self.unreadable = f"cannot be read here: {coded[:60]!r} on its way"
        if encodings := head.headers.getall("Content-Encoding", ()):
            try:
                self._decoder = decoder(",".join(encodings), _PIECE_MAX)
            except BadEncoding as error:
                self.unreadable = str(error)
            left_out = ("content-encoding", "content-length") if self._decoder or self.unreadable else ("content-encoding",)
            self.headers = CIMultiDict((name, text) for name, text in self.headers.items() if name.lower() not in left_out)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if _is_out(self._connection):
            if isinstance(protocol := self._connection.protocol, _Protocol):
                protocol.is_kept = True
            self._connection.release()  # it is kept alive only when all of the answer has come
        else:
            _abandon(self._connection)

    @property
    def is_whole(self) -> bool:
        """All of it has been read."""
        return self._body.at_eof() and (self._decoder is None or self._decoder.is_done)

    def lower(self) -> dict[str, str]:
        """The headers with lower-case names; of one that came twice, the last."""
        return {name.lower(): value for name, value in self.headers.items()}

    def hang_up(self) -> None:
        """Let whoever waits for a piece get Cut: aiohttp's own `close` leaves them waiting."""
        if self._connection.transport is not None:
            self._connection.transport.abort()

    async def chunk(self) -> bytes:
        """The next piece as it came; empty at the end. Raises Cut."""
        while came := await self._piece():
            if _NO_TEXT.search(came):
                raise Cut("it is no text, as one that is compressed and does not say so")
            if self.is_whole:
                return self._filter.feed(came) + self._filter.finish()
            if passed := self._filter.feed(came):
                return passed
        return self._filter.finish()

    async def _piece(self) -> bytes:
        """The next bytes, decoded; empty at the end. Raises Cut."""
        if self.unreadable:
            return b""
        if self._decoder is None:
            return await self._read()
        await self._paused()
        try:
            while not (decoded := self._decoder.take()):
                if not (came := await self._read()):
                    break
                self._decoder.give(came)
        except BadEncoding as error:
            raise Cut(f"its body is not encoded as it says: {error}") from None
        if not decoded and not self._decoder.is_done:
            raise Cut("it broke off before its end")
        self._more = len(decoded) == _PIECE_MAX
        return decoded

    async def _paused(self) -> None:
        if self._more:
            self._more = False
            async with self._pause:
                await asyncio.sleep(_PAUSE_S)

    async def _read(self) -> bytes:
        await self._paused()
        try:
            piece = await self._body.read(_PIECE_MAX)
        except aiohttp.SocketTimeoutError:
            raise Cut(f"it sent nothing for {duration(self._timeouts.idle_s)}") from None
        except (aiohttp.ClientError, OSError) as error:
            raise Cut(_cut_words(error)) from None
        self._more = len(piece) == _PIECE_MAX
        return piece

    async def start(self, limit: int) -> bytes:
        """At least `limit` bytes of an error's body, or all of it, without our key in any disguise. Raises Cut."""
        parts = bytearray()
        while len(parts) < limit and (chunk := await self.chunk()):
            parts += chunk
        return provider_keys.masked(bytes(parts), self._key)


class _Protocol(ResponseHandler):
    """One connection. aiohttp's reader asks it to read on after each chunk of an answer, also when it never stopped."""

    is_kept = False
    """It has had an answer already."""

    def resume_reading(self, resume_parser: bool = True) -> None:
        if self._reading_paused:
            super().resume_reading(resume_parser)


class _Pool(aiohttp.TCPConnector):
    """The kept-alive connections of one upstream."""

    def __init__(self) -> None:
        super().__init__(limit=0, keepalive_timeout=_KEPT_ALIVE_S)
        self._factory = functools.partial(_Protocol, loop=self._loop)  # type: ignore[assignment]  # a function that makes one


class Upstreams:
    """Belongs to one event loop; `close` it."""

    def __init__(self, timeouts: Timeouts) -> None:
        self._timeouts = timeouts
        self._pools: dict[str, _Pool] = {}
        self._origins: dict[URL, aiohttp.ClientRequest] = {}
        self._pause = asyncio.Lock()

    async def send(self, name: str, outgoing: Outgoing) -> Reply:
        """Send it over the connections of the upstream `name`, at once; what it answers, to be left by `with`. Raises Unreachable.

        A kept-alive connection that is closed before anything of an answer came was closed by its server, most likely before it read the
        request: that is sent once more, over a new connection. This costs no more than today's error would: the queue sends a request again
        that found nobody, later, and counts it against the upstream.
        """
        url = URL(outgoing.url, encoded=True)
        connection = await self._connected(name, url)
        if not _is_kept(connection):
            return await self._replied(connection, outgoing, url)
        try:
            return await self._replied(connection, outgoing, url)
        except _Closed:
            while _is_kept(connection := await self._connected(name, url)):
                _abandon(connection)
            return await self._replied(connection, outgoing, url)

    async def _replied(self, connection: Connection, outgoing: Outgoing, url: URL) -> Reply:
        try:
            head, body = await self._asked(connection, outgoing, url)
            return Reply(connection, head, body, self._timeouts, outgoing.key, self._pause)
        except BaseException as error:
            _abandon(connection)
            if _is_closed(error):
                raise _Closed(_words(error)) from None
            if isinstance(error, aiohttp.SocketTimeoutError):
                raise Unreachable(f"no answer within {duration(self._timeouts.first_byte_s)}") from None
            if isinstance(error, aiohttp.ClientError | HttpProcessingError | OSError):
                raise Unreachable(_words(error)) from None
            raise

    async def close(self) -> None:
        """Close every connection."""
        for pool in self._pools.values():
            await pool.close()

    async def _connected(self, name: str, url: URL) -> Connection:
        pool, origin = self._pools.get(name), url.origin()
        if pool is None:
            pool = self._pools[name] = _Pool()
        place = self._origins.get(origin)
        if place is None:
            place = self._origins[origin] = aiohttp.ClientRequest("GET", origin, loop=asyncio.get_running_loop())
        try:
            return await pool.connect(place, [], aiohttp.ClientTimeout(sock_connect=self._timeouts.connect_s))
        except TimeoutError:
            raise Unreachable(f"no connection within {duration(self._timeouts.connect_s)}") from None
        except (aiohttp.ClientError, OSError) as error:
            raise Unreachable(_words(error)) from None

    async def _asked(self, connection: Connection, outgoing: Outgoing, url: URL) -> tuple[RawResponseMessage, StreamReader]:
        """Send it; the head of the answer, and the body that is to come. Raises what aiohttp raises."""
        protocol, transport = connection.protocol, connection.transport
        if protocol is None or transport is None:
            raise aiohttp.ServerDisconnectedError
        protocol.set_response_params(
            skip_payload=outgoing.method == "HEAD",
            read_until_eof=True,
            auto_decompress=False,
            read_timeout=self._timeouts.first_byte_s,
            max_line_size=_HEADER_MAX,
            max_field_size=_HEADER_MAX,
            read_bufsize=_BUFFER,
        )
        transport.write(_head(outgoing, url))
        if outgoing.body:
            transport.write(outgoing.body)
        protocol.start_timeout()
        head, body = await protocol.read()
        while 100 <= head.code < 200 and head.code != 101:
            head, body = await protocol.read()
        if not body.is_eof():
            protocol.read_timeout = self._timeouts.idle_s
            protocol.start_timeout()
        return head, body


def _is_kept(connection: Connection) -> bool:
    return isinstance(connection.protocol, _Protocol) and connection.protocol.is_kept


def _is_closed(error: BaseException) -> bool:
    """Whether a connection was closed with nothing of an answer on it: aiohttp gives the head that had begun, if one had."""
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return isinstance(error.message, str)
    return isinstance(error, aiohttp.ClientOSError) and error.errno in (errno.ECONNRESET, errno.EPIPE)


def _is_out(connection: Connection) -> bool:
    """All of the request has left: an answer may come before that."""
    return connection.transport is None or not connection.transport.get_write_buffer_size()


def _abandon(connection: Connection) -> None:
    """Close it, and do not wait for a provider that reads no more."""
    if connection.transport is not None and not _is_out(connection):
        connection.transport.abort()
    connection.close()


def _head(outgoing: Outgoing, url: URL) -> bytes:
    lines = [f"{outgoing.method} {url.raw_path_qs} HTTP/1.1", f"Host: {url.host_port_subcomponent}"]
    lines += [f"{name}: {value}" for name, value in outgoing.headers.items()]
    if outgoing.body is not None:
        lines.append(f"Content-Length: {len(outgoing.body)}")
    text = "\r\n".join(lines)
    if text.count("\r") != len(lines) - 1 or text.count("\n") != len(lines) - 1 or "\0" in text:
        raise ValueError("a header holds a line break")  # whatever let it in: it could be the beginning of another request
    return f"{text}\r\n\r\n".encode()


def _words(error: BaseException) -> str:
    """What kept an answer from coming, so that a person knows where to look."""
    match error:
        case aiohttp.ClientConnectorDNSError():
            return f"the name {error.host} does not resolve"
        case aiohttp.ClientConnectorCertificateError():
            return f"TLS: its certificate is not trusted ({_tls(error.certificate_error)})"
        case aiohttp.ClientSSLError():
            return f"TLS: {_tls(error)}"
        case aiohttp.ClientConnectorError():
            return "connection refused" if error.errno == errno.ECONNREFUSED else f"no connection: {_system(error.os_error)}"
        case aiohttp.ServerDisconnectedError():
            return "it closed the connection without an answer"
        case aiohttp.ClientOSError():
            return f"the connection broke: {_system(error)}"
        case HttpProcessingError() | aiohttp.ClientPayloadError():
            return "what it answered is no HTTP"
        case _:
            return f"no answer: {type(error).__name__}"


def _cut_words(error: BaseException) -> str:
    return "it broke off before its end" if isinstance(error, aiohttp.ClientPayloadError) else _words(error)


def _system(error: OSError) -> str:
    return os.strerror(error.errno) if error.errno else error.strerror or "unknown"


def _tls(error: BaseException) -> str:
    cause = getattr(error, "os_error", error)
    words = getattr(cause, "verify_message", "") or getattr(cause, "reason", "") or type(cause).__name__
    return str(words).replace("_", " ").lower()


# Credentials
# -----------
# Where an agent's token is swapped for the provider's credential: what is sent upstream of a request, and nothing else of the
# client's.


_NOT_SENT = (
    CLIENT_AUTH_HEADERS
    | HOP_BY_HOP
    | {"host", "content-length", "accept-encoding", "expect", "forwarded", "x-goog-fieldmask", "x-http-method-override"}
    | {"x-vertex-ai-llm-request-type", "x-vertex-ai-llm-shared-request-type"}
)
"""The last four would hide the usage from us, change what the request does, and change its price."""
_OF_THE_KEY = frozenset({"openai-organization", "openai-project", "x-goog-user-project"})
"""Who pays: not the client's choice while the key is the user's."""


def outgoing(call: ProxiedRequest, upstream: Upstream, key: str) -> Outgoing:
    """What `upstream` gets: the client's body, and its headers without those that carry a key, which is replaced by the provider's.

    The answer must not be compressed, or its usage could not be read while it passes.
    """
    came = call.request.headers
    own_login = upstream.key.kind == "client"
    left_out = _NOT_SENT | _listed(came) | (frozenset() if own_login else _OF_THE_KEY)
    headers = CIMultiDict((name, value) for name, value in came.items() if _is_sent(name.lower(), left_out) and _is_text(value))
    headers["Accept-Encoding"] = "identity"
    headers.update(_own_login(came) if own_login else auth_headers(call.asked.api, key) if key else {})
    model = call.way.as_model or None
    body = sent_body(call.asked, call.body, model=model) if call.request.method == "POST" else None
    if upstream.engine and body and call.asked.endpoint is Endpoint.CHAT and call.asked.choices == 1:
        body = _in_order(body, upstream.engine.kind, call.agent.task_class)
    return Outgoing(call.request.method, target(upstream.url, call.recognised, model=model), headers, body, key)


_ORDERS = {EngineKind.VLLM: 20, EngineKind.SGLANG: -20}
"""What the priority of a less urgent request is more than that of a more urgent one: vLLM takes the smallest first, SGLang the largest, and
by default one preempts another from a difference of 10 on. (With several choices vLLM ends on a priority: vllm-project/vllm#29747.)"""
_URGENCY = (TaskClass.INTERACTIVE, TaskClass.NORMAL, TaskClass.BATCH)


def _in_order(body: bytes, kind: EngineKind, task_class: TaskClass) -> bytes:
    """A chat request with the place that its class has in the engine's own order. The last member of a name is the one that counts."""
    if kind not in _ORDERS:
        return body
    return b'%s,"priority":%d}' % (body.rstrip()[:-1], _ORDERS[kind] * _URGENCY.index(task_class))


def _is_sent(name: str, left_out: Container[str]) -> bool:
    return name not in left_out and not name.startswith("x-forwarded-")


def _is_text(value: str) -> bool:
    """Whether it can be written: bytes that are no UTF-8 come as lone surrogates, which cannot."""
    return value.isascii() or not any("\ud800" <= char <= "\udfff" for char in value)


def _listed(headers: Mapping[str, str]) -> frozenset[str]:
    """Names of headers that belong to the client's connection alone, as its `Connection` header says."""
    listed = headers.get("Connection")
    return frozenset(name.strip().lower() for name in listed.split(",")) if listed else frozenset()


def _own_login(headers: Mapping[str, str]) -> dict[str, str]:
    """The client's own keys; a header in which our token stands is not one."""
    lower = {name.lower(): value for name, value in headers.items()}
    names = [name for name in CLIENT_AUTH_HEADERS if name in lower and name not in HOP_BY_HOP and name != "cookie"]
    return {name: lower[name] for name in names if not any(text.startswith(attempt_tokens.PREFIX) for text in carried({name: lower[name]}))}
