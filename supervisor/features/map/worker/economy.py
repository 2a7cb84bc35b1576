"""The prompts of a map by the provider's batches, at half the price (`nightcrew map --prompt --economy`).

A worker takes all items of its group at once, asks for them in a few batches, waits until those have ended, and judges each answer as if it
had been asked for alone. What has no answer yet, or a wrong one, is asked for in a next round.

    plan kept -> batch made -> its id kept -> ... ended -> answers judged -> next round

What was planned is kept with the map before a batch is made, under the number of the group, so whoever has the group next goes on with its
batches: it asks for them with the same idempotency key, and gets the batch that was made, if it was (docs/gateway.md says of which crash
that cannot be known). A batch that nobody waits for any more goes on by itself, and the same map takes its results.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import anthropic

from agents import model_api as api
from agents.model_api import Failure, Reply
from supervisor.features.map.worker import worker
from supervisor.features.map.worker.prompt import Answered, Prompt, Prompter, Unfit, first, request, result, settings
from supervisor.features.map.worker.prompt import make as make_prompt
from supervisor.features.map.worker.worker import Item, Result, ShardToRun, failed
from supervisor.gateway.admission.types import Usage
from supervisor.kernel import codec

PART_BYTES = 4 * 2**20
"""Of one batch: the gateway reads it while others wait. A single larger request is a batch of its own."""
MISSES_MAX = 3
"""Rounds in which an item may get no answer at all: expired, or the provider failed."""
LOOK_S, LOOK_MAX_S = 0.5, 60.0
PATIENCE_S = 24 * 3600.0
"""Other batches may hold the room below a cap for so long."""
BEAT_S = 1.0
_GONE, _ITEMS_OWN = 404, 400
_STATUS = {"authentication_error": 401, "billing_error": 402, "permission_error": 403, "not_found_error": 404}
"""Of errors inside a batch that every item would meet."""
_KINDS = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
T = TypeVar("T")


class Refused(Exception):
    """A batch that no other try will make."""

    def __init__(self, why: Failure) -> None:
        super().__init__(why.message)
        self.why = why


class Gone(Exception):
    """A batch that the provider does not have any more."""


@dataclass(slots=True)
class Part:
    """One batch. `items` are its custom ids, which tell an item and what was asked of it: one that has changed is another."""

    key: str
    items: list[str]
    id: str = ""


@dataclass(slots=True)
class Plan:
    """What was asked for so far: a list of batches for each round. `numbers`: how many batches were ever planned."""

    rounds: list[list[Part]] = field(default_factory=list)
    numbers: int = 0
    failures: dict[str, int] = field(default_factory=dict)
    """How often an item failed for good, by its first custom id: who runs the map again wants other answers."""


class Store:
    """Where a group's plan is kept."""

    def __init__(self, group: int) -> None:
        self._as = f"group {group}"

    def load(self) -> Plan:
        return codec.load(Plan, worker.until_answered({"op": "kept", "as": self._as}).get("kept") or {})

    def save(self, plan: Plan) -> None:
        worker.until_answered({"op": "keep", "as": self._as, "data": json.loads(codec.dumps(plan))})


class Batches:
    """The way to the batches of this attempt."""

    def __init__(self, client: anthropic.AsyncAnthropic) -> None:
        self._client = client

    async def make(self, key: str, requests: list[dict[str, Any]]) -> str:
        """The id of the batch of this key, which is made unless there is one. Raises Refused."""
        made = await _patiently(
            lambda: self._client.messages.batches.create(requests=requests, extra_headers={"Idempotency-Key": key})  # type: ignore[arg-type]  # the SDK's own TypedDicts
        )
        return made.id

    async def ended(self, batch: str) -> bool:
        """Whether it has. Raises Gone."""
        found = await _patiently(lambda: self._client.messages.batches.retrieve(batch))
        return found.processing_status == "ended"

    async def results(self, batch: str) -> AsyncIterator[tuple[str, Reply | Failure]]:
        """By custom id what each request came to. Raises Gone."""
        async for line in await _patiently(lambda: self._client.messages.batches.results(batch)):
            yield line.custom_id, _reply(line.result.model_dump(mode="json"))

    async def close(self) -> None:
        await self._client.close()


def _reply(said: Mapping[str, Any]) -> Reply | Failure:
    """As one call would have given it. A failure that is `passing` is asked for again."""
    match said["type"]:
        case "succeeded":
            message = said["message"]
            usage = Usage(*(int(message["usage"].get(kind) or 0) for kind in _KINDS))
            return Reply(message["id"], message["model"], message["content"], str(message["stop_reason"] or ""), usage)
        case "errored":
            error = said["error"]["error"]
            return Failure(str(error["message"]), _STATUS.get(error["type"], _ITEMS_OWN), passing=error["type"] in api.PASSING)
        case "expired":
            return Failure("its batch expired before its turn came", _ITEMS_OWN, passing=True)
        case _:
            return Failure("its batch was cancelled", _ITEMS_OWN)


async def _patiently(call: Callable[[], Awaitable[T]]) -> T:
    """What a call gives. What time mends is waited out, as long as a batch may take; raises Gone, and Refused for the rest."""
    until, wait_s = time.monotonic() + PATIENCE_S, api.FIRST_WAIT_S
    while True:
        try:
            return await call()
        except anthropic.APIStatusError as error:
            if error.status_code == _GONE:
                raise Gone from None
            why = api.status_failure(error, Usage())
        except anthropic.APIConnectionError as error:
            why = Failure(f"no connection: {error.__cause__ or error}", passing=True)
        if not why.passing or time.monotonic() > until:
            raise Refused(why) from None
        await asyncio.sleep(min(wait_s if why.wait_s is None else why.wait_s, api.WAIT_MAX_S))
        wait_s = min(2 * wait_s, api.WAIT_MAX_S)


@dataclass(slots=True)
class Economy:
    """An executor that works on all items of a shard at once."""

    prompt: Prompt
    group: int
    """Items of a group, by their numbers: the same for every attempt."""
    name: str
    """Of the map."""
    run_id: str
    """Of the run: a map that is begun afresh asks anew."""

    def begin(self) -> None:
        """Nothing is kept between shards."""

    def end(self) -> None:
        """Nothing is left."""

    def run(self, item: Item, still: Callable[[], None]) -> Result:
        """An item alone: as a call of its own."""
        return self.prompt.run(item, still)

    def work(self, shard: ShardToRun) -> None:
        """All items of a shard, each written as soon as it is answered."""
        asyncio.run(self._work(shard))

    async def _work(self, shard: ShardToRun) -> None:
        items = []
        while (item := shard.next()) is not None:
            items.append(item)
        if not items:
            return
        group = items[0].index // self.group
        batches = Batches(api.client(settings(self.prompt.environ)))
        beat = asyncio.create_task(_beat(shard))
        try:
            await Rounds(f"{self.name} {group} {self.run_id}", self.prompt, batches, Store(group), shard).work(items)
        finally:
            beat.cancel()
            await batches.close()


async def _beat(shard: ShardToRun) -> None:
    while True:
        await asyncio.sleep(BEAT_S)
        shard.still()


@dataclass(slots=True)
class _Open:
    """An item that has no result yet."""

    item: Item
    now: Answered
    misses: int = 0
    failures: int = 0
    first: str = ""
    """Its first custom id, if it had not failed before."""


class Rounds:
    """The items of one group until each has a result."""

    def __init__(self, name: str, prompt: Prompt, batches: Batches, store: Store, shard: ShardToRun) -> None:
        """`name` tells the group from those of all maps."""
        self._name = name
        self._prompt = prompt
        self._prompter = Prompter(prompt.terms)
        self._batches = batches
        self._store = store
        self._shard = shard
        self._open: dict[int, _Open] = {}
        self._began = time.monotonic()

    async def work(self, items: Iterable[Item]) -> None:
        """See the class. Goes on with what was planned before. Raises NeedsHuman when no item would be answered, as `Prompter` does."""
        plan, number = self._store.load(), 0
        for item in items:
            self._enter(item, plan)
        while self._open:
            failures = dict(plan.failures)
            await self._round(plan, number)
            if plan.failures != failures:
                self._store.save(plan)
            number += 1

    def _enter(self, item: Item, plan: Plan) -> None:
        try:
            message = first(self._prompt.terms, self._prompt.values(item))
        except (Unfit, ValueError, KeyError) as error:
            why = f"it has no field {error.args[0]}" if isinstance(error, KeyError) else str(error)
            self._shard.write(item, failed(why), 0.0)
            return
        one = self._open[item.index] = _Open(item, Answered(again=(message,)))
        one.first = self._custom_id(one)
        one.failures = plan.failures.get(one.first, 0)

    async def _round(self, plan: Plan, number: int) -> None:
        """All that is open is asked for once, by the batches that were planned for it and by new ones."""
        parts = plan.rounds[number] if number < len(plan.rounds) else []
        planned = {name for part in parts for name in part.items}
        new = self._parts(plan, [one for one in self._open.values() if self._custom_id(one) not in planned])
        if new:
            plan.rounds[number:] = [[*parts, *new], *plan.rounds[number + 1 :]]
            self._store.save(plan)
        made = [part for part in list(plan.rounds[number]) if await self._make(plan, part)]
        for part in made:
            await self._take(plan, number, part)

    def _parts(self, plan: Plan, asked: list[_Open]) -> list[Part]:
        found: list[Part] = []
        room = 0
        for one in asked:
            size = len(json.dumps(self._request(one)))
            if not found or room < size:
                plan.numbers += 1
                found.append(Part(f"{self._name} {plan.numbers}", []))
                room = PART_BYTES
            found[-1].items.append(self._custom_id(one))
            room -= size
        for part in found:
            part.key = f"map {hashlib.sha256(f'{part.key} {part.items}'.encode()).hexdigest()[:40]}"
        return found

    def _request(self, one: _Open) -> dict[str, Any]:
        return {"custom_id": self._custom_id(one), "params": self._params(one)}

    def _params(self, one: _Open) -> dict[str, Any]:
        return request(self._prompt.terms, one.now.again)

    def _custom_id(self, one: _Open) -> str:
        digest = hashlib.sha256(json.dumps(self._params(one)).encode()).hexdigest()
        return f"{one.item.index}-{one.failures}-{one.misses}-{digest[:16]}"

    def _mine(self, part: Part) -> dict[str, _Open]:
        """Its items that have no result yet, by custom id: of a batch that was made before others may have one, or have changed."""
        mine = {self._custom_id(one): one for one in self._open.values()}
        return {name: mine[name] for name in part.items if name in mine}

    async def _make(self, plan: Plan, part: Part) -> bool:
        """Whether there is such a batch, and somebody waits for it."""
        if (mine := self._mine(part)) and not part.id:
            try:
                part.id = await self._batches.make(part.key, [self._request(one) for one in mine.values()])
            except (Refused, Gone) as error:
                why = error.why if isinstance(error, Refused) else Failure("nobody makes batches there", _GONE)
                self._judge(plan, mine.values(), why)
                return False
            self._store.save(plan)
        return bool(mine)

    async def _take(self, plan: Plan, number: int, part: Part) -> None:
        """Wait for the answers of a batch."""
        mine = self._mine(part)
        try:
            await self._ended(part)
            async for custom_id, reply in self._batches.results(part.id):
                if (one := mine.pop(custom_id, None)) is not None:
                    self._judge(plan, [one], reply)
        except Refused as error:
            self._judge(plan, mine.values(), error.why)
        except Gone:
            plan.rounds[number].remove(part)
            self._store.save(plan)
            self._judge(plan, mine.values(), Failure("its batch is gone", _ITEMS_OWN, passing=True))
        else:
            self._judge(plan, mine.values(), Failure("its batch has no result of it", _ITEMS_OWN, passing=True))

    async def _ended(self, part: Part) -> None:
        wait_s = LOOK_S
        while not await self._batches.ended(part.id):
            await asyncio.sleep(wait_s)
            wait_s = min(1.5 * wait_s, LOOK_MAX_S)

    def _judge(self, plan: Plan, ones: Iterable[_Open], reply: Reply | Failure) -> None:
        for one in ones:
            if isinstance(reply, Failure) and reply.passing and one.misses + 1 < MISSES_MAX:
                one.misses += 1
                continue
            one.now = self._prompter.judged(one.now, reply)
            if not one.now.again:
                del self._open[one.item.index]
                if one.now.error:
                    plan.failures[one.first] = one.failures + 1
                self._shard.write(one.item, result(one.now), time.monotonic() - self._began)


def make(what: Mapping[str, Any], environ: Mapping[str, str]) -> Economy:
    """`what` as `prompt.make` has it, with `group`: how many items a group has."""
    return Economy(make_prompt(what, environ), int(what["group"]), environ.get("NIGHTCREW_MAP", ""), environ.get("NIGHTCREW_RUN", ""))
