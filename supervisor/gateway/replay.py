"""Keep what was asked and answered, and answer a run again from it."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import io
import json
import os
import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import quote

import zstandard
from aiohttp import web

from supervisor.gateway.account.charges import RecordingRow
from supervisor.gateway.wire.errors import error as api_error
from supervisor.gateway.wire.requests import Endpoint, Recognised, recognise
from supervisor.host import files
from supervisor.host.clock import Clock
from supervisor.kernel.errors import NightcrewError, NotFound, Refused, ToolFailed
from supervisor.kernel.gateway_settings import Api

# Recording
# ---------
# What was asked and answered, kept on disk when `record` is on, so that a run can be answered again without a provider.
#
# One file a sending, `<run>/<row>.tape`, zstd, readable by its owner only. In it: a line of JSON (`schema`, `endpoint`, `status`,
# `headers`, `body_bytes`), the request's body, then for each piece of the answer a line of JSON (`ms` since the first byte,
# `bytes`) and the piece, last a line with `end`. A file without that line was not finished, and is not used.
#
# Headers that carry a login are not among those that are kept; keys and tokens are taken out of bodies. What identifies a client
# without letting anybody in (`metadata.user_id`) stays.


SCHEMA = 1
SUFFIX = ".tape"
_PART = ".part"
_KEPT_HEADERS = frozenset({"content-type", "request-id", "x-request-id", "retry-after", "openai-version", "anthropic-version"})
_TOKEN = re.compile(rb"\bnc[ta]_[A-Za-z0-9_-]+|\bsk-[A-Za-z0-9_-]{16,}|\bAIza[A-Za-z0-9_-]{20,}")
_HIDDEN = b"[hidden]"
_FILE_MAX = 256 * 2**20
"""Bytes of one tape, unpacked, that are read."""


def endpoint(method: str, recognised: Recognised) -> str:
    """By what a request is found again, beside its body: `POST /v1/messages?beta=true`."""
    return f"{method} {recognised.path}{'?' if recognised.query else ''}{recognised.query}"


@dataclass(frozen=True, slots=True)
class Request:
    """What is recorded of a request. `body` is as the client sent it."""

    row_id: int
    run: str
    endpoint: str
    body: bytes


class Recorder:
    """Makes tapes below one private directory."""

    def __init__(self, directory: Path, index: Callable[[RecordingRow], None], clock: Clock, secrets: Iterable[str] = ()) -> None:
        """`index` is told of each finished tape; `secrets` never get into one."""
        self._directory = directory
        self._index = index
        self._clock = clock
        self._secrets = [secret.encode("utf-8", "surrogateescape") for secret in secrets if secret]
        self.trouble = ""
        """Why the last tape was given up; empty when it was not."""

    def begin(self, request: Request, status: int, headers: Mapping[str, str]) -> Tape:
        """Record an answer from its first byte on. Never raises: a tape that cannot be written is given up, and the stream goes on."""
        return Tape(self, request, status, headers)

    def clean(self, data: bytes) -> bytes:
        """`data` without keys and tokens."""
        for secret in self._secrets:
            data = data.replace(secret, _HIDDEN)
        return _TOKEN.sub(_HIDDEN, data)

    def path(self, request: Request) -> Path:
        """Where its tape is."""
        return self._directory / quote(request.run, safe="") / f"{request.row_id}{SUFFIX}"

    def finished(self, request: Request, status: int, path: Path) -> None:
        """A tape is whole."""
        file = str(path.relative_to(self._directory))
        sha256 = hashlib.sha256(request.body).hexdigest()
        self._index(RecordingRow(request.row_id, request.run, request.endpoint, sha256, status, file, self._clock.wall()))

    def now_ms(self) -> float:
        """For the distances between pieces."""
        return 1000 * self._clock.monotonic()


class Tape:
    """One sending being recorded. Belongs to one task; nothing here raises."""

    def __init__(self, recorder: Recorder, request: Request, status: int, headers: Mapping[str, str]) -> None:
        self._recorder = recorder
        self._request = request
        self._status = status
        self._began = recorder.now_ms()
        self._packer = zstandard.ZstdCompressor(level=3, write_checksum=True).compressobj()
        self._file: BinaryIO | None = None
        self._path = recorder.path(request)
        kept = {name.lower(): text for name, text in headers.items() if name.lower() in _KEPT_HEADERS}
        body = recorder.clean(request.body)
        head = {"schema": SCHEMA, "endpoint": request.endpoint, "status": status, "headers": kept, "body_bytes": len(body)}
        with self._given_up_on_error():
            files.private_dir(self._path.parent)
            self._file = _private(self._part)
            self._write(head, body)

    @property
    def _part(self) -> Path:
        return self._path.with_name(self._path.name + _PART)

    def piece(self, data: bytes) -> None:
        """A piece of the answer, as the client gets it."""
        with self._given_up_on_error():
            clean = self._recorder.clean(data)
            self._write({"ms": round(self._recorder.now_ms() - self._began, 1), "bytes": len(clean)}, clean)

    def end(self, how: str) -> None:
        """The answer is over, whole or cut."""
        with self._given_up_on_error():
            if self._file is None:
                return
            self._write({"end": how})
            self._file.write(self._packer.flush())
            self._file.close()
            self._file = None
            self._part.rename(self._path)
            self._recorder.finished(self._request, self._status, self._path)

    def _write(self, line: Mapping[str, Any], data: bytes = b"") -> None:
        if self._file is not None:
            self._file.write(self._packer.compress(json.dumps(line, separators=(",", ":")).encode() + b"\n" + data))

    @contextlib.contextmanager
    def _given_up_on_error(self) -> Iterator[None]:
        try:
            yield
        except (OSError, NightcrewError) as error:
            self._recorder.trouble = str(error)
            file, self._file = self._file, None
            with contextlib.suppress(OSError):  # closing writes what it holds, to the same full disk
                if file is not None:
                    file.close()
            with contextlib.suppress(OSError):
                self._part.unlink()


def _private(path: Path) -> BinaryIO:
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600), "wb")


@dataclass(frozen=True, slots=True)
class Played:
    """One tape, read."""

    endpoint: str
    status: int
    headers: Mapping[str, str]
    body: bytes
    pieces: tuple[tuple[float, bytes], ...]
    """Each with its seconds after the first byte."""
    end: str


def read(path: Path) -> Played:
    """A tape. Raises Refused when it is not a whole one."""
    try:
        with path.open("rb") as file, zstandard.ZstdDecompressor().stream_reader(file) as reader:
            return _parsed(io.BytesIO(reader.read(_FILE_MAX)))
    except (OSError, ValueError, KeyError, TypeError, zstandard.ZstdError) as error:
        raise Refused("will not play the recording", on=str(path), why=f"it is not a whole one ({error})") from None


def _parsed(file: BinaryIO) -> Played:
    head = json.loads(file.readline())
    if head["schema"] != SCHEMA:
        raise ValueError(f"schema {head['schema']}")
    body, pieces = file.read(head["body_bytes"]), []
    while "end" not in (line := json.loads(file.readline())):
        pieces.append((line["ms"] / 1000, file.read(line["bytes"])))
    return Played(head["endpoint"], head["status"], head["headers"], body, tuple(pieces), line["end"])


# Replay
# ------
# The recorded answers of a run, to the same requests, with no provider and no key: `nightcrew gateway replay RUN`.


BODY_MAX = 64 * 2**20
HEADER = "x-nightcrew-replay"
"""On every answer, with the run that it was recorded in."""


class Shelf:
    """What a run recorded, found by endpoint and body. The same request asked again gets its next answer, at the end the last one again."""

    def __init__(self, db: sqlite3.Connection, recordings: Path, run: str) -> None:
        """Raises NotFound when nothing of the run was recorded."""
        self.run = run
        self._files: dict[tuple[str, str], list[Path]] = {}
        self._played: dict[tuple[str, str], int] = {}
        rows = db.execute("SELECT endpoint, body_sha256, file FROM recording WHERE run = ? ORDER BY request", (run,)).fetchall()
        for row in rows:
            self._files.setdefault((row["endpoint"], row["body_sha256"]), []).append(recordings / row["file"])
        if not rows:
            why = "recording was off, or it was pruned"
            raise NotFound("no recording of", on=run, why=why, hint="set record = true under [gateway], then run it again")

    def __len__(self) -> int:
        """How many answers there are."""
        return sum(map(len, self._files.values()))

    def take(self, endpoint: str, body_sha256: str) -> Path | None:
        """The tape of the next answer to this request; None when it was not recorded."""
        key = (endpoint, body_sha256)
        files = self._files.get(key)
        if files is None:
            return None
        at = self._played[key] = min(self._played.get(key, -1) + 1, len(files) - 1)
        return files[at]


def application(shelf: Shelf, *, paced: bool = False) -> web.Application:
    """Answers any client, whatever its key. `paced`: each piece as long after the first as it came then."""

    async def answer(request: web.Request) -> web.StreamResponse:
        way = recognise(request.method, request.raw_path)
        if way is not None and way.endpoint is Endpoint.PROBE:
            return web.Response(headers={HEADER: shelf.run})
        body = await request.read()
        name = f"{request.method} {request.path}" if way is None else endpoint(request.method, way)
        path = shelf.take(name, hashlib.sha256(body).hexdigest())
        if path is None:
            return _missing(shelf, way.api if way else None, f"run {shelf.run} recorded no such request: {name}")
        try:
            tape = await asyncio.to_thread(read, path)
        except Refused as error:
            return _missing(shelf, way.api if way else None, str(error))
        return await _play(request, shelf, tape, paced=paced)

    app = web.Application(client_max_size=BODY_MAX)
    app.router.add_route("*", "/{path:.*}", answer)
    return app


def _missing(shelf: Shelf, api: Api | None, why: str) -> web.Response:
    headers, body = api_error(api or Api.ANTHROPIC, 404, why, None)
    return web.Response(status=404, headers={**headers, HEADER: shelf.run}, body=body)


async def _play(request: web.Request, shelf: Shelf, tape: Played, *, paced: bool) -> web.StreamResponse:
    loop = asyncio.get_running_loop()
    response = web.StreamResponse(status=tape.status, headers={**tape.headers, HEADER: shelf.run})
    await response.prepare(request)
    began = loop.time()
    for after_s, piece in tape.pieces:
        if paced:
            await asyncio.sleep(began + after_s - loop.time())
        await response.write(piece)
    if tape.end == "cut" and request.transport is not None:  # as it was then
        request.protocol.force_close()
        return response
    await response.write_eof()
    return response


async def serve(shelf: Shelf, port: int, ready: Callable[[int], None], *, paced: bool = False) -> None:
    """Serve on 127.0.0.1 until cancelled; `ready` is told the port. Raises ToolFailed when the port is taken."""
    runner = web.AppRunner(application(shelf, paced=paced), access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", port)
        try:
            await site.start()
        except OSError as error:
            raise ToolFailed(
                "cannot listen", on=f"127.0.0.1:{port}", why=error.strerror or str(error), hint="give another --port"
            ) from None
        ready(runner.addresses[0][1])
        await asyncio.Event().wait()
    finally:
        await runner.cleanup()
