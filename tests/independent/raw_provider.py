"""A provider that sends any bytes as its answer, a client that keeps every byte it receives, and the shapes of the three APIs.

The provider listens on 127.0.0.1. It knows no HTTP beyond where a request ends: a test writes the answer down to the chunk.
"""

from __future__ import annotations

import gzip
import json
import re
import socket
import socketserver
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.support import wait_until


@dataclass(frozen=True)
class Reply:
    """The bytes of an answer, in pieces that reach the gateway one by one. `closes`: the connection ends after them."""

    pieces: tuple[bytes, ...]
    closes: bool = False

    @property
    def raw(self) -> bytes:
        """Return all bytes together."""
        return b"".join(self.pieces)


@dataclass(frozen=True)
class Request:
    """A request as the provider got it."""

    head: bytes
    body: bytes


class _Connection(socketserver.BaseRequestHandler):
    """One connection of the gateway to the provider."""

    server: RawProvider

    def handle(self) -> None:
        """Answer requests until one side leaves."""
        self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._held = b""
        try:
            while (request := self._read()) is not None:
                self.server.requests.append(request)
                if not self._answer(self.server.reply):
                    return
        except OSError:  # the gateway left: some answers are refused before their end
            return

    def _read(self) -> Request | None:
        """Return the next request, None when there is none."""
        while b"\r\n\r\n" not in self._held:
            if not self._receive():
                return None
        head, _, self._held = self._held.partition(b"\r\n\r\n")
        length = re.search(rb"content-length: *(\d+)", head, re.IGNORECASE)
        size = int(length[1]) if length else 0
        while len(self._held) < size:
            if not self._receive():
                return None
        body, self._held = self._held[:size], self._held[size:]
        return Request(head, body)

    def _receive(self) -> bool:
        """Read more, and return whether there was more."""
        data = self.request.recv(65536)
        self._held += data
        return bool(data)

    def _answer(self, reply: Reply) -> bool:
        """Send the answer, and return whether the connection stays open."""
        for piece in reply.pieces:
            self.request.sendall(piece)
            if len(reply.pieces) > 1:
                wait_until(self._is_taken, "the gateway to read a piece", every_s=0.0002)
        return not reply.closes

    def _is_taken(self) -> bool:
        """Return whether the other side has read what was sent: the kernel lists how much waits for it."""
        ours = f":{self.request.getsockname()[1]:04X}"
        theirs = f":{self.request.getpeername()[1]:04X}"
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
            columns = line.split()
            if columns[1].endswith(theirs) and columns[2].endswith(ours):
                return columns[4].endswith(":00000000")
        return True  # it has left


class RawProvider(socketserver.ThreadingTCPServer):
    """Sends `reply` to whoever asks, and remembers what was asked."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        self.reply = Reply(())
        self.requests: list[Request] = []

    @property
    def url(self) -> str:
        """Return the address for a gateway's settings."""
        return f"http://127.0.0.1:{self.server_address[1]}"


@contextmanager
def raw_provider() -> Iterator[RawProvider]:
    """Run a provider until the end of the block."""
    with RawProvider() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def http_reply(
    body: bytes | str,
    kind: str = "application/json",
    *,
    status: str = "200 OK",
    fields: Sequence[tuple[str, str]] = (),
    encoding: str = "",
    chunk: int = 0,
    piece: int = 0,
    trailers: Sequence[tuple[str, str]] = (),
) -> Reply:
    """Return an answer of HTTP/1.1.

    `chunk`: bytes in each chunk of a chunked body; 0 sends a length instead, unless there are trailers. `piece`: bytes in each piece
    of the whole answer; 0 sends it at once.
    """
    data = body.encode() if isinstance(body, str) else body
    lines = [f"HTTP/1.1 {status}", f"Content-Type: {kind}"]
    if encoding:
        lines.append(f"Content-Encoding: {encoding}")
    lines += [f"{name}: {value}" for name, value in fields]
    if chunk or trailers:
        lines.append("Transfer-Encoding: chunked")
        lines += [f"Trailer: {name}" for name, _ in trailers]
        data = chunked(data, chunk or 65536, trailers)
    else:
        lines.append(f"Content-Length: {len(data)}")
    raw = "\r\n".join([*lines, "", ""]).encode() + data
    return Reply(tuple(slices(raw, piece)) if piece else (raw,))


def chunked(data: bytes, size: int, trailers: Iterable[tuple[str, str]] = ()) -> bytes:
    """Return a body in chunks of that many bytes, with its end."""
    parts = [b"%x\r\n%b\r\n" % (len(part), part) for part in slices(data, size)]
    ends = [f"{name}: {value}\r\n".encode() for name, value in trailers]
    return b"".join([*parts, b"0\r\n", *ends, b"\r\n"])


def slices(data: bytes, size: int) -> list[bytes]:
    """Cut bytes into parts of that size."""
    return [data[at : at + size] for at in range(0, len(data), size)]


def cut(text: str, size: int) -> list[str]:
    """Cut a text into parts of that many characters."""
    return [text[at : at + size] for at in range(0, len(text), size)]


def ask(port: int, path: str, body: str, token: str, method: str = "POST") -> bytes:
    """Send one request to the gateway, and return every byte until it closes the connection."""
    data = body.encode()
    lines = [
        f"{method} {path} HTTP/1.1",
        f"Host: 127.0.0.1:{port}",
        f"Authorization: Bearer {token}",
        "anthropic-version: 2023-06-01",
        "Content-Type: application/json",
        f"Content-Length: {len(data)}",
        "Connection: close",
    ]
    with socket.create_connection(("127.0.0.1", port), timeout=120) as connection:
        connection.sendall("\r\n".join([*lines, "", ""]).encode() + data)
        received = b""
        while more := connection.recv(65536):
            received += more
    return received


@dataclass(frozen=True)
class Answer:
    """An answer taken apart. The body is out of its chunks and decompressed as its head says."""

    head: bytes
    body: bytes

    @property
    def status(self) -> int:
        """Return the status code, 0 where there is none."""
        found = re.match(rb"HTTP/1\.\d (\d{3})", self.head)
        return int(found[1]) if found else 0


def taken_apart(raw: bytes) -> Answer:
    """Take an answer of the gateway apart, after interim ones (1xx)."""
    head, _, body = raw.partition(b"\r\n\r\n")
    while head.startswith(b"HTTP/1.1 1"):
        head, _, body = body.partition(b"\r\n\r\n")
    if re.search(rb"^transfer-encoding:.*chunked", head, re.IGNORECASE | re.MULTILINE):
        body = _unchunked(body)
    if re.search(rb"^content-encoding: *gzip\r?$", head, re.IGNORECASE | re.MULTILINE):
        with suppress(gzip.BadGzipFile):
            body = gzip.decompress(body)
    return Answer(head, body)


def _unchunked(body: bytes) -> bytes:
    """Return what the chunks hold, also when the last ones are missing."""
    whole = b""
    while body:
        line, _, body = body.partition(b"\r\n")
        size = int(line.partition(b";")[0] or b"0", 16)
        if size == 0:
            break
        whole += body[:size]
        body = body[size + 2 :]
    return whole


# Shapes ---------------------------------------------------------------------------------------------------------------------------

MODEL = "trial-model"
PATHS = {
    "anthropic": "/v1/messages",
    "openai": "/v1/chat/completions",
    "gemini": f"/v1beta/models/{MODEL}:streamGenerateContent?alt=sse",
}


def question(api: str, path: str, *, stream: bool) -> str:
    """Return the body of a request."""
    asked = [{"role": "user", "content": "x"}]
    if api == "gemini":
        return json.dumps({"contents": [{"role": "user", "parts": [{"text": "x"}]}]})
    if "responses" in path:
        return json.dumps({"model": MODEL, "stream": stream, "input": "x"})
    if api == "openai":
        usage = {"stream_options": {"include_usage": True}} if stream else {}
        return json.dumps({"model": MODEL, "stream": stream, "messages": asked, **usage})
    return json.dumps({"model": MODEL, "max_tokens": 50, "stream": stream, "messages": asked})


def message(text: str) -> str:
    """Return a whole answer of Anthropic's with this text."""
    return _message([{"type": "text", "text": text}])


def message_of_raw(raw: str) -> str:
    """Return a whole answer of Anthropic's with this text as it stands in JSON, escapes included."""
    return message("@@").replace("@@", raw)


def message_of_blocks(*texts: str) -> str:
    """Return a whole answer of Anthropic's with a block for each text."""
    return _message([{"type": "text", "text": text} for text in texts])


def _message(content: list[dict[str, str]]) -> str:
    usage = {"input_tokens": 3, "output_tokens": 5}
    ends = {"stop_reason": "end_turn", "stop_sequence": None, "usage": usage}
    return json.dumps({"id": "msg_1", "type": "message", "role": "assistant", "model": MODEL, "content": content, **ends})


def event(name: str, data: dict[str, object]) -> str:
    """Return an event of a stream, whose type is also in its data."""
    return f"event: {name}\ndata: {json.dumps({'type': name, **data})}\n\n"


@dataclass(frozen=True)
class Block:
    """How a kind of block of Anthropic's begins in a stream, and where its deltas have their text."""

    start: dict[str, object]
    delta: str
    key: str


BLOCKS = {
    "text": Block({"type": "text", "text": ""}, "text_delta", "text"),
    "json": Block({"type": "tool_use", "id": "t1", "name": "Bash", "input": {}}, "input_json_delta", "partial_json"),
    "thinking": Block({"type": "thinking", "thinking": "", "signature": ""}, "thinking_delta", "thinking"),
    "signature": Block({"type": "thinking", "thinking": "", "signature": ""}, "signature_delta", "signature"),
}


def block_start(kind: str = "text", index: int = 0) -> str:
    """Return the event that begins a block."""
    return event("content_block_start", {"index": index, "content_block": BLOCKS[kind].start})


def block_delta(text: str, kind: str = "text", index: int = 0) -> str:
    """Return the event that adds a text to a block."""
    block = BLOCKS[kind]
    return event("content_block_delta", {"index": index, "delta": {"type": block.delta, block.key: text}})


def block_stop(index: int = 0) -> str:
    """Return the event that ends a block."""
    return event("content_block_stop", {"index": index})


def anthropic_stream(*events: str) -> str:
    """Return a stream of Anthropic's around these events."""
    usage = {"input_tokens": 3, "output_tokens": 1}
    begun = {"id": "msg_1", "type": "message", "role": "assistant", "model": MODEL, "stop_reason": None, "usage": usage}
    ended = event("message_delta", {"delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 5}})
    return "".join([event("message_start", {"message": {**begun, "content": []}}), *events, ended, event("message_stop", {})])


def anthropic_texts(texts: Iterable[str], kind: str = "text") -> str:
    """Return a stream of Anthropic's with one block, which comes in these texts."""
    return anthropic_stream(block_start(kind), *(block_delta(text, kind) for text in texts), block_stop())


def data_lines(shapes: Iterable[dict[str, object]], end: str = "\n") -> str:
    """Return events that have only data."""
    return "".join(f"data: {json.dumps(shape)}{end}{end}" for shape in shapes)


def chat_chunk(*deltas: tuple[int, Mapping[str, object]]) -> dict[str, object]:
    """Return a piece of OpenAI's chat stream; each delta is of the choice with that index."""
    choices = [{"index": index, "delta": delta, "finish_reason": None} for index, delta in deltas]
    return {"id": "c1", "object": "chat.completion.chunk", "model": MODEL, "choices": choices}


def chat_stream(chunks: Iterable[dict[str, object]]) -> str:
    """Return OpenAI's chat stream of these pieces."""
    usage = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
    last = {**chat_chunk(), "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": usage}
    return data_lines([*chunks, last]) + "data: [DONE]\n\n"


def chat_message(raw: str) -> str:
    """Return a whole answer of OpenAI's chat with this text as it stands in JSON."""
    usage = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
    choice = {"index": 0, "message": {"role": "assistant", "content": "@@"}, "finish_reason": "stop"}
    shape = {"id": "c", "object": "chat.completion", "model": MODEL, "choices": [choice], "usage": usage}
    return json.dumps(shape).replace("@@", raw)


def responses_stream(deltas: Iterable[str], name: str = "output_text") -> str:
    """Return a stream of OpenAI's Responses whose deltas are events `response.NAME.delta`."""
    usage = {"input_tokens": 3, "output_tokens": 4, "total_tokens": 7}
    begun = event("response.created", {"response": {"id": "r1", "model": MODEL, "status": "in_progress"}})
    place = {"item_id": "i", "output_index": 0, "content_index": 0}
    pieces = [event(f"response.{name}.delta", {**place, "delta": delta}) for delta in deltas]
    done = {"id": "r1", "model": MODEL, "status": "completed", "output": [], "usage": usage}
    return "".join([begun, *pieces, event("response.completed", {"response": done})])


def gemini_chunk(*candidates: Sequence[str]) -> dict[str, object]:
    """Return a piece of Gemini's stream: for each candidate the texts of its parts."""
    shapes = [
        {"index": index, "content": {"role": "model", "parts": [{"text": text} for text in texts]}}
        for index, texts in enumerate(candidates)
    ]
    return {"candidates": shapes, "usageMetadata": {"promptTokenCount": 3, "candidatesTokenCount": 4, "totalTokenCount": 7}}
