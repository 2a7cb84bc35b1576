"""The door to the providers: one pool of kept-alive connections each, and plain words for what goes wrong before an answer comes.

Nothing in an agent's or the daemon's environment turns this traffic elsewhere: proxy variables are ignored, redirects are not followed,
and no cookie of a provider is kept.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from supervisor.gateway import redact, wire

_KEPT_ALIVE_S = 30.0
_HEADER_MAX = 64 * 2**10
"""Bytes of one header of an answer: some providers send long policies."""
_BUFFER = 2**14
"""Bytes of an answer that are read ahead: at twice this, or at 1,024 chunks of its framing, reading and parsing pause."""
_PIECE_MAX = 2**14
"""Bytes of an answer that are passed on at once. 16 KiB of events of 22 bytes take about a millisecond (measured)."""
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


class Unreachable(Exception):
    """No answer came, or it broke off before anything of it was passed on. `why` is for people."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


class Cut(Exception):
    """An answer broke off. `why` is for people."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


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
    """An upstream's answer, read piece by piece, without our key and without headers that no client could take (see `wire.scrub`)."""

    def __init__(self, response: aiohttp.ClientResponse, timeouts: Timeouts, key: str, pause: asyncio.Lock) -> None:
        """Whoever holds `pause` may read more of an answer that comes faster than it is passed on."""
        self._response = response
        self._timeouts = timeouts
        self._key = key
        self._pause = pause
        self._filter = wire.KeyFilter(key)
        self._more = False
        """The last piece was full: the next one may be there already."""
        self.status = response.status
        self.reason = wire.reason(response.reason, key)
        """None: the one that the standard has for the status."""
        self.headers: Mapping[str, str] = wire.passable(response.headers, key)

    @property
    def is_whole(self) -> bool:
        """All of it has been read."""
        return self._response.content.at_eof()

    def lower(self) -> dict[str, str]:
        """The headers with lower-case names; of one that came twice, the last."""
        return {name.lower(): value for name, value in self.headers.items()}

    async def chunk(self) -> bytes:
        """The next piece as it came; empty at the end. Raises Cut."""
        while came := await self._piece():
            if self.is_whole:
                return self._filter.feed(came) + self._filter.finish()
            if passed := self._filter.feed(came):
                return passed
        return self._filter.finish()

    async def _piece(self) -> bytes:
        if self._more:
            async with self._pause:
                await asyncio.sleep(_PAUSE_S)
        try:
            piece = await self._response.content.read(_PIECE_MAX)
        except aiohttp.SocketTimeoutError:
            raise Cut(f"it sent nothing for {self._timeouts.idle_s:g} s") from None
        except (aiohttp.ClientError, OSError) as error:
            raise Cut(_cut_words(error)) from None
        self._more = len(piece) == _PIECE_MAX
        return piece

    async def start(self, limit: int) -> bytes:
        """At least `limit` bytes of an error's body, or all of it, without our key in any disguise. Raises Cut."""
        parts = bytearray()
        while len(parts) < limit and (chunk := await self.chunk()):
            parts += chunk
        return redact.masked(bytes(parts), self._key)


class Upstreams:
    """Belongs to one event loop; `close` it."""

    def __init__(self, timeouts: Timeouts) -> None:
        self._timeouts = timeouts
        self._sessions: dict[str, aiohttp.ClientSession] = {}
        self._pause = asyncio.Lock()

    @asynccontextmanager
    async def send(self, name: str, outgoing: Outgoing) -> AsyncIterator[Reply]:
        """Send it over the connections of the upstream `name`, at once; give what it answers. Raises Unreachable.

        Leaving the context before the answer's end closes the connection, which is how a provider learns that nobody listens.
        """
        response = await self._ask(self._session(name), outgoing)
        try:
            if response.connection is not None and (protocol := response.connection.protocol) is not None:
                protocol.read_timeout = self._timeouts.idle_s
                protocol.start_timeout()
            yield Reply(response, self._timeouts, outgoing.key, self._pause)
        finally:
            response.close() if not response.content.at_eof() else response.release()

    async def close(self) -> None:
        """Close every connection."""
        for session in self._sessions.values():
            await session.close()

    async def _ask(self, session: aiohttp.ClientSession, outgoing: Outgoing) -> aiohttp.ClientResponse:
        url = URL(outgoing.url, encoded=True)
        try:
            return await session.request(outgoing.method, url, headers=outgoing.headers, data=outgoing.body, allow_redirects=False)
        except aiohttp.ConnectionTimeoutError:
            raise Unreachable(f"no connection within {self._timeouts.connect_s:g} s") from None
        except (aiohttp.SocketTimeoutError, TimeoutError):
            raise Unreachable(f"no answer within {self._timeouts.first_byte_s:g} s") from None
        except (aiohttp.ClientError, OSError, asyncio.IncompleteReadError) as error:
            raise Unreachable(_words(error)) from None

    def _session(self, name: str) -> aiohttp.ClientSession:
        found = self._sessions.get(name)
        if found is None:
            found = self._sessions[name] = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEPT_ALIVE_S),
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(
                    total=None, connect=None, sock_connect=self._timeouts.connect_s, sock_read=self._timeouts.first_byte_s
                ),
                skip_auto_headers=("User-Agent", "Accept", "Content-Type"),
                auto_decompress=False,
                trust_env=False,
                max_line_size=_HEADER_MAX,
                max_field_size=_HEADER_MAX,
                read_bufsize=_BUFFER,
            )
        return found


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
        case aiohttp.ClientResponseError() | aiohttp.InvalidURL() | aiohttp.ClientPayloadError():
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
