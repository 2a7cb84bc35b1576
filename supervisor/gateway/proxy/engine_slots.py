"""What an engine is sent: each request as a stream, and with llama.cpp to the slot that holds its longest beginning.

A slot of llama.cpp's server keeps its last prompt, and shares it with no other slot. `choose` is the pure decision; `Placement` keeps which
slot holds which prompt, as digests of the prompt's blocks (tools, system prompt, messages), and acts:

    shared beginning   two requests that went on differently after the same block, or the same prompt twice
    in a free slot     it is saved to a file before that slot is used, once: the server saves a busy slot only when it is free again
    in a file          it is restored into the slot that is used
    nowhere            the first that needs it has it computed alone (one token of an answer), then saved; its siblings wait for that

What is believed of a slot may be wrong (the server restarted, a request was cut): the server then computes what it lacks. `/v1/messages`
ignores `id_slot`; there the server itself takes the free slot with the longest beginning, and none is named while such a request is served.
vLLM and SGLang share beginnings by themselves.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import itertools
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from multidict import CIMultiDict

from supervisor.gateway.proxy.upstreams import Cut, Outgoing, Unreachable
from supervisor.gateway.wire.joined import as_stream
from supervisor.gateway.wire.requests import CACHE_MARKS, Asked, Endpoint
from supervisor.kernel.engines import EngineKind

if TYPE_CHECKING:
    from supervisor.gateway.proxy.forward import RequestContext
    from supervisor.kernel.gateway_settings import Upstream

SHARED_MIN = 2000
"""Characters. A shorter beginning is computed again: 500 tokens took more than a second on 2 cores, a save and a restore 20 ms."""
_COPY = 1000
"""Characters that a restore is worth."""
FILES_MAX, FILES_BYTES_MAX = 8, 2 * 2**30
"""Of one engine. 725 tokens of a model with 270 million weights were 10 MB."""
_KNOWN_MAX = 4096
"""Blocks of which is known what followed them."""


@dataclass(frozen=True, slots=True)
class Block:
    """The end of a block of a prompt: the digest of all up to it, and how many characters that are."""

    digest: bytes
    end: int


Blocks = tuple[Block, ...]


def blocks_of(shape: dict[str, Any]) -> Blocks:
    """Return the blocks of a chat or message request, in the order in which a template puts them."""
    found: list[Block] = []
    digest = b""
    end = 0
    for part in (shape.get("tools"), shape.get("system"), *(shape.get("messages") or ())):
        if part:
            text = CACHE_MARKS.sub("", json.dumps(part))
            digest = hashlib.blake2b(digest + text.encode(), digest_size=12).digest()
            end += len(text)
            found.append(Block(digest, end))
    return tuple(found)


def shared(held: Blocks, wanted: Blocks) -> int:
    """Return how many characters both begin with."""
    end = 0
    for one, other in zip(held, wanted, strict=False):
        if one.digest != other.digest:
            break
        end = one.end
    return end


@dataclass(slots=True)
class Slot:
    """What is believed of one slot."""

    held: Blocks = ()
    busy: bool = False
    used: int = 0
    """The higher, the later."""


@dataclass(frozen=True, slots=True)
class File:
    """A saved slot."""

    name: str
    held: Blocks
    size: int = 0
    """Bytes."""


def choose(slots: Sequence[Slot], files: Sequence[File], wanted: Blocks, *, named: bool) -> tuple[int | None, File | None]:
    """Return the free slot for a request, and the file to restore into it before; None for none.

    A prompt that is written over is half lost: its agent may come back. Without `named` the server takes the longest beginning.
    """
    file = max(files, key=lambda one: shared(one.held, wanted), default=None)
    copied = shared(file.held, wanted) - _COPY if file is not None else 0

    def worth(number: int) -> tuple[float, int]:
        slot = slots[number]
        own = shared(slot.held, wanted)
        lost = slot.held[-1].end - own if slot.held and named else 0
        return max(own, copied) - lost / 2, -slot.used

    best = max((number for number, slot in enumerate(slots) if not slot.busy), key=worth, default=None)
    return best, file if best is not None and copied > shared(slots[best].held, wanted) else None


class Placement:
    """The slots of one engine as they are believed to be. It belongs to one event loop."""

    def __init__(self, context: RequestContext, upstream: Upstream, slots: int, place: Path) -> None:
        self._context = context
        self.upstream = upstream
        """As it was when this was made: another process, or other settings, have another placement."""
        self._place = place
        self.slots = [Slot() for _ in range(slots)]
        self.files: list[File] = []
        """The least recently used first."""
        self._unnamed = 0
        """Requests that are served in a slot which the server chose."""
        self._followers: dict[bytes, set[object]] = {}
        """Digest of a block -> what came after it, at most two."""
        self._locks: WeakValueDictionary[bytes, asyncio.Lock] = WeakValueDictionary()
        """Of a shared beginning: held by whoever makes it available."""
        self._numbers = itertools.count(1)
        self.close()

    def close(self) -> None:
        """Remove what was saved."""
        self.files.clear()
        for old in self._place.glob("p*.bin"):
            old.unlink(missing_ok=True)

    @asynccontextmanager
    async def slot(self, sent: Outgoing, shape: dict[str, Any], *, heeds: bool) -> AsyncIterator[int | None]:
        """Take a slot for a request until this is left; None: the server is to choose. `heeds`: a request of this API may name one."""
        wanted = blocks_of(shape)
        fork = self._note(wanted)
        lock = self._locks.setdefault(fork.digest, asyncio.Lock()) if fork is not None else contextlib.nullcontext()
        taken, unnamed, served = None, 0, False
        try:
            async with lock:
                if fork is not None:
                    await self._save_free(wanted, fork)
                named = heeds and not self._unnamed
                number, file = choose(self.slots, self.files, wanted, named=named)
                unnamed = int(not named)
                self._unnamed += unnamed
                if number is not None:
                    taken = self.slots[number]
                    before, taken.held, taken.busy, taken.used = taken.held, wanted, True, next(self._numbers)
                    if file is not None:
                        await self._restore(number, file)
                    elif fork is not None and named and shared(before, wanted) < fork.end:
                        await self._prime(sent, shape, number, wanted)
            yield number if named else None
            served = True
        finally:
            self._unnamed -= unnamed
            if taken is not None:
                taken.busy = False
                taken.held = taken.held if served else ()

    def _note(self, wanted: Blocks) -> Block | None:
        """Remember what follows each block; return the end of the longest beginning that is shared and long enough."""
        found = None
        for block, after in itertools.zip_longest(wanted, wanted[1:]):
            key = block.digest if after is not None else block.digest + b"."
            followers = self._followers[key] = self._followers.pop(key, set())
            if len(followers) < 2:
                followers.add(after.digest if after is not None else next(self._numbers))
            if len(followers) > 1 and block.end >= SHARED_MIN:
                found = block
        while len(self._followers) > _KNOWN_MAX:
            del self._followers[next(iter(self._followers))]
        return found if len(self.slots) > 1 else None

    async def _save_free(self, wanted: Blocks, fork: Block) -> None:
        """Save a free slot that holds a shared beginning which no file has."""
        if any(shared(file.held, wanted) >= fork.end for file in self.files):
            return
        free = (number for number, slot in enumerate(self.slots) if not slot.busy and shared(slot.held, wanted) >= fork.end)
        if (number := next(free, None)) is not None:
            self.slots[number].busy = True
            try:
                await self._save(number, self.slots[number].held)
            finally:
                self.slots[number].busy = False

    async def _save(self, number: int, held: Blocks) -> None:
        name = f"p{next(self._numbers)}.bin"
        said = await self._ask(f"{self.upstream.url}/slots/{number}?action=save", {"filename": name})
        if said is None:
            return
        self.files.append(File(name, held, int(said.get("n_written") or 0)))
        while len(self.files) > FILES_MAX or sum(file.size for file in self.files) > FILES_BYTES_MAX:
            self._drop(self.files[0])

    async def _restore(self, number: int, file: File) -> None:
        self.files.append(self.files.pop(self.files.index(file)))
        if await self._ask(f"{self.upstream.url}/slots/{number}?action=restore", {"filename": file.name}) is None:
            self._drop(file)

    async def _prime(self, sent: Outgoing, shape: dict[str, Any], number: int, wanted: Blocks) -> None:
        """Have the prompt computed and saved before it is asked for: while it is answered, nothing can be saved."""
        once = {**shape, "n": 1, "stream": False, "stream_options": None, "id_slot": number, "max_tokens": 1, "max_completion_tokens": 1}
        if await self._ask(sent.url, once) is not None:
            await self._save(number, wanted)

    async def _ask(self, url: str, shape: dict[str, Any]) -> dict[str, Any] | None:
        """POST to the engine; None where it refuses. What fails here is only slower."""
        sent = Outgoing("POST", url, CIMultiDict({"Content-Type": "application/json"}), json.dumps(shape).encode())
        try:
            with await self._context.upstreams.send(self.upstream.name, sent) as reply:
                body = b""
                while chunk := await reply.chunk():
                    body += chunk
                said = json.loads(body)
                return said if reply.status == 200 and isinstance(said, dict) else None
        except (Unreachable, Cut, ValueError):
            return None

    def _drop(self, file: File) -> None:
        if file in self.files:
            self.files.remove(file)
            (self._place / file.name).unlink(missing_ok=True)


@asynccontextmanager
async def placed(context: RequestContext, upstream: Upstream, asked: Asked, sent: Outgoing) -> AsyncIterator[Outgoing]:
    """Give what is sent to an engine in place of `sent`; its slot is taken until this is left."""
    engine = upstream.engine
    if engine is None or sent.body is None or asked.endpoint not in (Endpoint.CHAT, Endpoint.MESSAGES):
        yield sent
        return
    shape = as_stream(asked, json.loads(sent.body))
    if engine.kind is not EngineKind.LLAMACPP:
        yield replace(sent, body=json.dumps(shape).encode())
        return
    record = context.engines.record(engine.name) if context.engines is not None else None
    slots = (record.slots if record is not None else 0) or engine.slots  # a slot that the server has not is waited for without end
    placement = context.placements.get(engine.name)
    if placement is None or (placement.upstream.engine, placement.upstream.url, len(placement.slots)) != (engine, upstream.url, slots):
        placement = context.placements[engine.name] = Placement(context, upstream, slots, context.engines_dir / f"{engine.name}.slots")
    async with placement.slot(sent, shape, heeds=asked.endpoint is Endpoint.CHAT) as number:
        yield replace(sent, body=json.dumps(shape if number is None else {**shape, "id_slot": number}).encode())
