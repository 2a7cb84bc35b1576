"""What a map's prompts will take, for `--dry-run`: tokens, cost and time, each with its bounds."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from agents.builtin.models import DEFAULT_MODEL
from supervisor.config import user
from supervisor.core.errors import NightcrewError
from supervisor.core.gateway.models import model_class
from supervisor.core.gateway.settings import GatewaySettings, Limits
from supervisor.core.gateway.types import Api, Usage
from supervisor.core.map_forecast import Forecast, Seen, forecast
from supervisor.core.map_prompt import PromptTerms, fields, instruction, render
from supervisor.daemon.mapping import agents, book
from supervisor.daemon.mapping.book import Item
from supervisor.gateway import prices, status_client
from supervisor.gateway.account import reading, schema
from supervisor.host.paths import Home

_AROUND = 160
"""Bytes of a request around its texts."""
_DIMENSIONS = {"requests": "rpm", "input": "itpm", "output": "otpm", "tokens": "tpm"}


def of_prompts(home: Home, name: str, what: dict[str, Any], items: Sequence[Item]) -> Forecast:
    """For the items that are to be asked for. Prices and limits are those that the gateway knows."""
    terms = PromptTerms.from_shape(what["terms"])
    settings = user.load_gateway(user.path(), home.keys)
    price, model = prices.Prices.load(home.prices, settings.prices), terms.model or DEFAULT_MODEL
    sizes, in_batches = list(_sizes(terms, str(what["form"]), items)), "group" in what
    limits = None if in_batches else _limits(home, settings, model)  # a batch counts against none of them

    def cost(usage: Usage) -> float | None:
        alone = price.cost(model, usage)
        return alone * prices.BATCH_PART if alone is not None and in_batches else alone

    return forecast(sizes, terms.max_tokens, limits, cost, _seen(home, name))


def _sizes(terms: PromptTerms, form: str, items: Sequence[Item]) -> Iterator[int]:
    """Bytes of each request, but for what JSON escapes."""
    around = _AROUND + len(instruction(terms).encode())
    with_content = form == "file" and "content" in fields(terms.template)
    for item in items:
        values = agents.fields_of(item.name.decode("utf-8", "surrogateescape"), form)
        with contextlib.suppress(KeyError):  # it fails without being asked for
            text = render(terms.template, {**values, "content": "", "index": 0} if form == "file" else {"index": 0, **values})
            yield around + len(text.encode("utf-8", "replace")) + (item.size if with_content else 0)


def _limits(home: Home, settings: GatewaySettings, model: str) -> Limits | None:
    """Of all accounts together, as the running gateway has learned them, else as the settings say. None: nobody knows yet."""
    lane = f"{Api.ANTHROPIC}/{model_class(Api.ANTHROPIC, model)}"
    found: dict[str, float] = {}
    with contextlib.suppress(NightcrewError):
        for pool in status_client.ask(home, status_client.NOW)["pools"]:
            for one in pool["dimensions"] if pool["lane"] == lane else ():
                found[one["name"]] = found.get(one["name"], 0.0) + float(one["limit_per_minute"])
    for upstream in settings.upstreams if not found else ():
        for dimension, limit in upstream.limits.known().items():
            found[dimension] = found.get(dimension, 0.0) + limit
    return replace(Limits(), **{_DIMENSIONS[dimension]: limit for dimension, limit in found.items()}) if found else None


def _seen(home: Home, name: str) -> Seen:
    """What the calls of the map's last run put out."""
    path = book.file(home, name)
    if not path.exists() or not home.gateway_account.exists():
        return Seen()
    with contextlib.suppress(NightcrewError), contextlib.closing(book.connect_readonly(path)) as db:
        about = book.about(db)
        if "group" in json.loads(about["what"]):
            return Seen()  # the account has one row for a batch
        with contextlib.closing(schema.connect_readonly(home.gateway_account)) as account:
            workers = [reading.of_task(account, f"{about['run']}/w{number}") for number in range(1, int(about["agents"]) + 1)]
        return Seen(items=sum(one.requests for one in workers), output=sum(one.tokens.output for one in workers))
    return Seen()


def lines(found: Forecast) -> Iterator[str]:
    """For people."""
    yield f"predicted: {found.calls:,} calls, {_range(found.input, ',.0f')} tokens of input, {_range(found.output, ',.0f')} of output"
    yield "predicted: " + (
        f"${_range(found.cost_usd, ',.2f')}" if found.cost_usd is not None else "cost unknown, the model has no known price"
    )
    if found.minutes is not None:
        yield f"predicted: {_range(found.minutes, ',.1f')} minutes by the limit of {found.binding} alone"
    else:
        yield "predicted: time unknown, no limit is known before the first answer"


def _range(one: Any, form: str) -> str:
    return f"{one.expected:{form}} ({one.low:{form}} to {one.high:{form}})"


def of_agents(home: Home, what: dict[str, Any], items: int) -> dict[str, Any]:
    """What the tasks of agents will take, by what attempts of their kind took before; null where none was measured."""
    from supervisor.ledger import store

    wanted = len(what["groups"]) if what.get("groups") else -(-items // int(what["each"]))
    found: dict[str, Any] = {"tasks": wanted, "by_attempts": 0, "tokens": None, "cost_usd": None, "task_s": None}
    if home.ledger.exists():
        with contextlib.closing(store.connect_readonly(home.ledger)) as db:
            row = db.execute("SELECT * FROM need WHERE kind = ?", (what["kind"],)).fetchone()
        need = dict(row) if row is not None else {}
        if need.get("wall_s"):
            found |= {"by_attempts": need["tpm_from"], "task_s": round(need["wall_s"], 1)}
        if need.get("tpm_from"):
            found["tokens"] = round(wanted * need["tpm"] * need["wall_s"] / 60)
        if need.get("usd_from"):
            found["cost_usd"] = round(wanted * need["usd"], 4)
    return found


def agent_lines(found: dict[str, Any], kind: str) -> Iterator[str]:
    """For people."""
    yield f"{found['tasks']:,} tasks of kind {kind}"
    if found["task_s"] is None:
        yield "predicted: unknown, no attempt of this kind was measured yet"
        return
    tokens = f"{found['tokens']:,} tokens" if found["tokens"] is not None else "tokens unknown"
    cost = f"${found['cost_usd']:,.2f}" if found["cost_usd"] is not None else "cost unknown"
    yield f"predicted: {tokens}, {cost}, {found['task_s']:.0f} s a task, by the mean of {found['by_attempts']} attempts"
    yield "           (how far single ones are from it is not known)"
