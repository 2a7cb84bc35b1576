"""A model call for each item."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from agents.conversation import DEFAULT_MODEL, Budget, Settings
from agents.model_api import Api, Failure, Reply
from supervisor.features.map.prompts import KEPT_MAX, AnswerSchema, NoJson, PromptTerms, asked_again, fields, instruction, json_of, render
from supervisor.features.map.worker.worker import Item, Result, ShardToRun, done, failed
from supervisor.gateway.admission.types import Usage
from supervisor.host.clock import Clock, SystemClock
from supervisor.kernel.errors import NeedsHuman, UsageError

# Prompting
# ---------
# One item's model call: the prompt from the template, the answer checked, asked again with what was wrong. No tools, no
# conversation kept.
#
# The gateway holds a call that must wait, and `Api` waits out what passes; so a rate limit is never an item's fault. What a call's
# answer is worth is decided here once, for calls made one by one and for those that came back in a batch: `first` is what to send,
# `judged` says what becomes of an answer.


CONTENT_MAX = 512 * 2**10
"""Bytes of a file whose content a prompt may hold: some 150,000 tokens, which is what most models take at once."""
_OF_NO_ITEM = frozenset({401, 402, 403, 404, 429})
"""Statuses that every item would meet: who asks is refused, there is no such model, or no budget is left."""
_BINARY_IN = 8000
"""Bytes at the beginning of a file in which git, too, looks for a NUL."""


class Unfit(ValueError):
    """An item that no prompt can be made of; its text is the reason."""


@dataclass(frozen=True, slots=True)
class Answered:
    """What became of one item. `error` empty: `value` is its result."""

    value: Any = None
    error: str = ""
    last: str = ""
    """Of a failed one: the last answer, at most KEPT_MAX characters."""
    asks: int = 0
    """Calls that were answered."""
    usage: Usage = field(default_factory=Usage)
    again: tuple[dict[str, Any], ...] = ()
    """The messages to go on with, when it is worth asking again; the result is not there yet then."""


class Caller(Protocol):
    """What answers a request; `Api` is one."""

    async def ask(self, body: Mapping[str, Any], say: Any, retry: Any) -> Reply | Failure: ...


def settings(environ: Mapping[str, str]) -> Settings:
    """How an attempt's environment says that the models are reached. Raises UsageError when it does not."""
    token, key = environ.get("ANTHROPIC_AUTH_TOKEN", ""), environ.get("ANTHROPIC_API_KEY", "")
    if not token and not key:
        hint = "ANTHROPIC_API_KEY=... nightcrew up -d"
        raise UsageError("no key for a model", why="ANTHROPIC_AUTH_TOKEN and ANTHROPIC_API_KEY are not set", hint=hint)
    url = environ.get("ANTHROPIC_BASE_URL") or "https://api.anthropic.com"
    return Settings("", DEFAULT_MODEL, url, "" if token else key, token, Budget())


def content(root: Path, name: str) -> str:
    """The text of a file below `root`, where the item's name leads. Raises Unfit; links are not followed: they may lead anywhere."""
    try:
        handle = os.open(root / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        why = "it is a symbolic link" if (root / name).is_symlink() else error.strerror
        raise Unfit(f"cannot read it: {why}") from None
    with open(handle, "rb") as file:  # noqa: PTH123 - a handle
        facts = os.fstat(handle)
        if not stat.S_ISREG(facts.st_mode):
            raise Unfit("it is no plain file")
        if facts.st_size > CONTENT_MAX:
            raise Unfit(f"it has {facts.st_size:,} bytes, and a prompt takes at most {CONTENT_MAX:,}")
        data = file.read(CONTENT_MAX + 1)
    if b"\0" in data[:_BINARY_IN]:
        raise Unfit("it is binary")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise Unfit("it is not UTF-8 text") from None


class Prompter:
    """Asks for items, as many at once as it is called. `terms` hold for all of them."""

    def __init__(self, terms: PromptTerms, caller: Caller | None = None) -> None:
        """Without a `caller` it only judges."""
        self._terms, self._caller = terms, caller
        self._schema = None if terms.schema is None else AnswerSchema(terms.schema)

    async def ask(self, values: Mapping[str, Any]) -> Answered:
        """The item's result, or why it has none, after at most `terms.asks` calls. Raises NeedsHuman when no item would be answered: the
        key is refused, a budget is spent, or nobody has served for as long as `Api` is patient."""
        try:
            message = first(self._terms, values)
        except (Unfit, KeyError) as error:
            return Answered(error=str(error) if isinstance(error, Unfit) else f"it has no field {error.args[0]}")
        now = Answered(again=(message,))
        while now.again and self._caller is not None:
            reply = await self._caller.ask(request(self._terms, now.again), _quiet, _quiet)
            now = self.judged(now, reply)
        return now

    def judged(self, now: Answered, reply: Reply | Failure) -> Answered:
        """What `reply`, the answer to the messages `now.again`, makes of the item. Raises as `ask`."""
        usage = now.usage + reply.usage
        if isinstance(reply, Failure):
            if reply.status is None or reply.status in _OF_NO_ITEM or reply.status >= 500:
                raise NeedsHuman("no model answers", why=reply.message, kept="what was answered", hint="nightcrew gateway status")
            return Answered(error=f"no answer: {reply.message}", last=now.last, asks=now.asks, usage=usage)
        text = "".join(block["text"] for block in reply.content if block["type"] == "text")
        made = Answered(last=text[:KEPT_MAX], asks=now.asks + 1, usage=usage)
        value, faults = self._value(text, reply.stop_reason)
        if not faults:
            return replace(made, value=value, last="")
        if made.asks >= self._terms.asks or reply.stop_reason == "refusal":
            return replace(made, error="; ".join(faults))
        said = ({"role": "assistant", "content": text or "(nothing)"}, {"role": "user", "content": asked_again(faults)})
        return replace(made, again=(*now.again, *said))

    def _value(self, text: str, stop_reason: str) -> tuple[Any, list[str]]:
        if stop_reason == "refusal":
            return None, ["the model refused to answer"]
        if stop_reason == "max_tokens":
            return None, [f"it was cut off at {self._terms.max_tokens} tokens: answer shorter"]
        if self._schema is None:
            return (text, []) if text.strip() else (None, ["it is empty"])
        try:
            value = json_of(text)
        except NoJson as error:
            return None, [str(error)]
        return value, self._schema.faults(value)


def first(terms: PromptTerms, values: Mapping[str, Any]) -> dict[str, Any]:
    """The message that asks for an item. Raises Unfit, or KeyError with a field that it does not have."""
    text = render(terms.template, values)
    if not text.strip():
        raise Unfit("its prompt is empty")
    return {"role": "user", "content": text}


def request(terms: PromptTerms, messages: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The body of a call of the Messages API."""
    system = instruction(terms)
    told = {"system": [{"type": "text", "text": system}]} if system else {}
    return {"model": terms.model or DEFAULT_MODEL, "max_tokens": terms.max_tokens, "messages": list(messages), **told}


def api(environ: Mapping[str, str], clock: Clock | None = None) -> Api:
    """The way to the models of this attempt. Raises UsageError where there is none."""
    return Api(settings(environ), clock or SystemClock())


def _quiet(*_: object) -> None:
    """Nobody follows a call."""


# Prompt
# ------
# A model call for each item, several at once: `{content}` is the file's text, `{file}` `{line}` `{item}` are the item, and of a
# JSON object `{name}` is what it has under that name. See `prompting` for what an answer is.
#
# The result of an item is the answer: the JSON value when there is a schema, else its text.


BEAT_S = 1.0


def make(what: Mapping[str, Any], environ: Mapping[str, str]) -> Prompt:
    """`what`: `terms` as `PromptTerms.to_shape` gives them, `form` (file, line or jsonl), `asks` for one item, and how many calls
    `at_once`. Raises UsageError when no gateway is there."""
    settings(environ)
    terms = replace(PromptTerms.from_shape(what["terms"]), asks=int(what["asks"]))
    return Prompt(terms, str(what.get("form", "line")), int(what["at_once"]), dict(environ), Path.cwd())


@dataclass(slots=True)
class Prompt:
    """See the module."""

    terms: PromptTerms
    form: str
    at_once: int
    environ: dict[str, str]
    root: Path

    def begin(self) -> None:
        """Nothing is kept between items."""

    def end(self) -> None:
        """Nothing is left."""

    def run(self, item: Item, still: Callable[[], None]) -> Result:
        """See `Executor`; `work` is what a worker calls."""
        shard = _One(item, still)
        self.work(shard)
        return shard.result or failed("it was not asked for")

    def work(self, shard: ShardToRun) -> None:
        """All items of a shard, each written as soon as it is answered."""
        asyncio.run(self._work(shard))

    async def _work(self, shard: ShardToRun) -> None:
        caller = api(self.environ)
        prompter = Prompter(self.terms, caller)
        running: set[asyncio.Task[None]] = set()
        try:
            while True:
                while len(running) < self.at_once and (item := shard.next()) is not None:
                    running.add(asyncio.create_task(self._item(prompter, item, shard)))
                if not running:
                    return
                ended, running = await asyncio.wait(running, timeout=BEAT_S, return_when=asyncio.FIRST_COMPLETED)
                for task in ended:
                    task.result()
                if not ended:
                    shard.still()
        finally:
            for task in running:
                task.cancel()
            await caller.close()

    async def _item(self, prompter: Prompter, item: Item, shard: ShardToRun) -> None:
        began = time.monotonic()
        try:
            values = self.values(item)
        except (Unfit, ValueError) as error:
            shard.write(item, failed(str(error)), time.monotonic() - began)
            return
        shard.write(item, result(await prompter.ask(values)), time.monotonic() - began)

    def values(self, item: Item) -> dict[str, Any]:
        """By field. Raises Unfit for a file that no prompt can hold, ValueError for an object that is none."""
        text = item.text.encode("utf-8", "backslashreplace").decode()  # a name's bytes that are no UTF-8
        found: dict[str, Any] = {"index": item.index, "file": text, "line": text, "item": text}
        if self.form == "file" and "content" in fields(self.terms.template):
            found["content"] = content(self.root, item.text)
        if self.form != "jsonl":
            return found
        shape = json.loads(item.text)
        return {**found, **shape} if isinstance(shape, dict) else found


def result(made: Answered) -> Result:
    """Of an item's answer; of a failed one the last answer is kept behind the reason."""
    if not made.error:
        return done(made.value)
    last = f"; the last answer: {made.last}" if made.last else ""
    return failed(f"{made.error}{last}")


@dataclass(slots=True)
class _One:
    """A shard of one item."""

    item: Item | None
    still: Callable[[], None]
    result: Result | None = None

    def next(self) -> Item | None:
        item, self.item = self.item, None
        return item

    def write(self, item: Item, result: Result, seconds: float) -> None:  # noqa: ARG002 - as a shard takes it
        self.result = result
