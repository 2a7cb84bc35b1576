"""A model call for each item, several at once: `{content}` is the file's text, `{file}` `{line}` `{item}` are the item, and of a JSON
object `{name}` is what it has under that name. See `prompting` for what an answer is.

The result of an item is the answer: the JSON value when there is a schema, else its text.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from agents.mapper.executors import Item, Result, Shard, done, failed
from agents.mapper.prompting import Answered, Prompter, Unfit, api, content, settings
from supervisor.core.map_prompt import PromptTerms, fields

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

    def work(self, shard: Shard) -> None:
        """All items of a shard, each written as soon as it is answered."""
        asyncio.run(self._work(shard))

    async def _work(self, shard: Shard) -> None:
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

    async def _item(self, prompter: Prompter, item: Item, shard: Shard) -> None:
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
