"""`nightcrew capacity --what-if`: finds the premises, given or known here or assumed, and prints what follows from them."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from supervisor.client import common
from supervisor.config.user import load_gateway
from supervisor.features.capacity.rules import GB, PREMISES, Figure, Sheet, Speed, measured
from supervisor.gateway.account.charges import Prices
from supervisor.host import cores, model_shapes, usage
from supervisor.host.paths import Home, home
from supervisor.kernel.errors import ConfigError, UsageError
from supervisor.kernel.format import UNKNOWN
from supervisor.kernel.gateway_settings import GatewaySettings, Quota
from supervisor.store import sqlite

_LIMIT = re.compile(r"(requests|input|output|tokens)=(\d+(?:\.\d+)?)/(s|min|h|day)")
_PERIODS = {"s": 1.0, "min": 60.0, "h": 3600.0, "day": 86400.0}
_USE = """
WITH taken AS (
    SELECT (SELECT total(json_extract(value, '$.requests')) FROM json_each(a.result, '$.models')) AS requests,
           coalesce(json_extract(a.result, '$.tokens.cache_read'), 0.0) AS cached,
           coalesce(json_extract(a.result, '$.tokens.output'), 0.0) AS output,
           coalesce(json_extract(a.result, '$.tokens.input'), 0.0) + coalesce(json_extract(a.result, '$.tokens.cache_read'), 0.0)
               + coalesce(json_extract(a.result, '$.tokens.cache_write'), 0.0) AS prompt,
           json_extract(a.account, '$.wall_s') AS wall_s, json_extract(a.account, '$.model_s') AS model_s
    FROM attempt a JOIN task t ON t.id = a.task
    WHERE t.state = 'done' AND json_extract(t.spec, '$.kind') = :kind AND a.account IS NOT NULL AND a.result IS NOT NULL
    ORDER BY t.ord DESC LIMIT 1000
)
SELECT avg(requests) AS requests, total(prompt) / total(requests) AS input, total(output) / total(requests) AS output,
       total(cached) / total(prompt) AS cached, avg(wall_s) AS seconds, 1 - total(model_s) / total(wall_s) AS tools,
       (SELECT nullif(cores, 0) FROM need WHERE kind = :kind) AS agent_cores,
       (SELECT nullif(memory, 0) / 1e9 FROM need WHERE kind = :kind) AS agent_memory
FROM taken WHERE requests > 0 AND wall_s > 0
"""
"""Read the use of the newest tasks of a kind: their results have it from the gateway's account."""


def show(given: Mapping[str, Any], *, as_json: bool) -> None:
    """Answer and print. `given`: the command's options. Raises UsageError for an option that says nothing, and ConfigError for a file that
    cannot be read."""
    where = home()
    settings = load_gateway(common.settings_file(), where.keys)
    speed, prompt_speed = _measured(given["measured"]) if given["measured"] else (None, None)
    sources: dict[str, Mapping[str, float | None]] = {
        "this machine": {"cores": len(cores.for_agents(None)), "memory": usage.machine_memory() / GB},
        f"measured, {given['kind']}": _use(where, given["kind"]),
        f"price of {given['model']}": _price(where, settings, given["model"]),
        f"model {given['local']}": _local(settings, given["local"]) if given["local"] else {},
        str(given["measured"]): {"prompt_speed": prompt_speed},
        "given": {name: given[name] for name in PREMISES},
    }
    found = {name: (value, source) for source, values in sources.items() for name, value in values.items() if value is not None}
    sheet = Sheet({name: value for name, (value, _) in found.items()}, _limits(given["limit"], settings), speed)
    figures = []
    for name, (assumed, about) in PREMISES.items():
        value, source = found.get(name, (assumed, "assumed"))
        figures.append(Figure(name, about, source, value=value))
    figures += sheet.steps
    if as_json:
        sides = {side: [asdict(one) for one in sheet.carries(side)] for side in sheet.sides}
        common.print_json(figures=[asdict(one) for one in figures], **sides)
        return
    for figure in figures:
        click.echo(f"{figure.name:<24}{UNKNOWN if figure.value is None else f'{figure.value:,.6g}':>14}  {figure.unit} <- {figure.formula}")
    for side in sheet.sides:
        click.echo(f"{side}:")
        for one in sheet.carries(side):
            click.echo(f"  beyond {one.agents:>8,} agents: {one.more} ({one.name})")


def _use(where: Home, kind: str) -> Mapping[str, Any]:
    if not where.ledger.exists():
        return {}
    with closing(sqlite.connect_readonly(where.ledger)) as db:
        return dict(db.execute(_USE, {"kind": kind}).fetchone())


def _price(where: Home, settings: GatewaySettings, model: str | None) -> Mapping[str, float]:
    if model is None:
        return {}
    if (rates := Prices.load(where.prices, settings.prices).rates(model)) is None:
        hint = "nightcrew up, which writes the table of prices, or --price-input, --price-output and --price-cache-read"
        raise UsageError("its price is not known", on=model, hint=hint)
    return {f"price_{kind}": rate for kind, rate in rates.items()}


def _limits(texts: tuple[str, ...], settings: GatewaySettings) -> Iterator[Quota]:
    """Yield the limits that are given, or else those of the settings' accounts together."""
    for text in texts:
        if not (found := _LIMIT.fullmatch(text)):
            raise UsageError("no limit", on=text, why="a limit is such as requests=60/min, input=80000/min or tokens=1000000/day")
        yield Quota(found[1], float(found[2]), _PERIODS[found[3]])
    if not texts:
        accounts = {upstream.account: upstream.limits.known() for upstream in settings.upstreams}
        together: Counter[str] = sum((Counter(known) for known in accounts.values()), Counter())
        yield from (Quota(name, limit, 60.0) for name, limit in together.items())


def _local(settings: GatewaySettings, name: str) -> Mapping[str, float]:
    """Return the premises of an engine of the settings, or of a model as of `model_shapes.shape`."""
    engine = next((upstream.engine for upstream in settings.upstreams if upstream.engine and upstream.known_as == name), None)
    if engine is None:
        return model_shapes.shape(name)
    return {"slots": engine.slots, "context": engine.context, **model_shapes.shape(engine.model)}


def _measured(file: Path) -> tuple[Speed, float | None]:
    """Return what `nightcrew bench local --json` wrote of an engine."""
    try:
        report = json.loads(file.read_bytes())
        return measured({int(n): float(tokens) for n, tokens in report["tokens_per_s"].items()}), report.get("prompt_tokens_per_s")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError("cannot read the measured speed", on=str(file), why=repr(error), hint="nightcrew bench local --json") from None
