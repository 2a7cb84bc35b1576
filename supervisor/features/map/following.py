"""Hand a map over, and follow it to its end."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from agents.conversation import DEFAULT_MODEL
from supervisor.client import common, follow, protocol
from supervisor.config import user
from supervisor.features.map import commands as map_commands
from supervisor.features.map import open_map
from supervisor.features.map import rules as map_rules
from supervisor.features.map.prompts import ANSWER, Forecast, NoJson, PromptTerms, Seen, answers, fields, forecast, instruction, render
from supervisor.features.map.worker.check import ANSWER_MAX
from supervisor.gateway import pages
from supervisor.gateway.account import charges, schema
from supervisor.gateway.account import queries as reading
from supervisor.gateway.admission.types import Usage, model_class
from supervisor.host import untrusted_fs
from supervisor.host.paths import settings_file
from supervisor.kernel.errors import DiskFull, NightcrewError, NotRunning, Refused, TimedOut
from supervisor.kernel.format import duration, many, money
from supervisor.kernel.gateway_settings import Api, GatewaySettings, Limits
from supervisor.kernel.states import TaskState

if TYPE_CHECKING:
    from supervisor.client.submit import Workplace
    from supervisor.features.map.open_map import Item
    from supervisor.features.map.rules import Groups
    from supervisor.host.paths import Home
    from supervisor.kernel.spec import Submission, TaskSpec


# Following
# ---------
# Handing a map over, and following it to its end.


LOOK_S = 0.25
SAY_S = 10.0
"""Between two lines where nothing can be redrawn."""
OPEN_S = 600.0
SHOWN = 5


@dataclass(frozen=True, slots=True)
class Prepared:
    """A map that is to be handed over."""

    name: str
    about: dict[str, Any]
    items: list[Item]
    submission: Submission
    fresh: bool
    notes: tuple[str, ...]


def run(home: Home, prepared: Prepared, *, detach: bool, as_json: bool) -> int:
    """Hand it over and follow it. Returns the exit code."""
    for note in prepared.notes:
        common.say(note)
    answer = _open(home, prepared)
    _say_begun(home, prepared, answer)
    if detach:
        return _say_detached(prepared, answer, as_json=as_json)
    try:
        _follow(home, prepared.name, str(answer["run"]))
        while not answer["new"] and not answer["same"]:
            answer = _open(home, prepared)
            _say_begun(home, prepared, answer)
            _follow(home, prepared.name, str(answer["run"]))
    except KeyboardInterrupt:
        common.say("the workers go on; the same command again follows them")
        common.say(f"to end them: nightcrew kill {answer['run']}")
        raise
    return _say_ended(home, prepared, as_json=as_json)


def _open(home: Home, prepared: Prepared) -> dict[str, Any]:
    from supervisor.client import submit

    submission = submit.with_snapshots(home, prepared.submission)
    incoming = open_map.prepare(home, prepared.name, prepared.items)
    try:
        about = {**prepared.about, **{name: json.dumps(prepared.about[name]) for name in ("what", "source")}}
        args = {"op": "open", "id": prepared.name, "incoming": str(incoming), "about": about, "fresh": prepared.fresh}
        return common.ask(home, "map", {**args, "submission": submission}, timeout_s=OPEN_S)
    finally:
        incoming.unlink(missing_ok=True)


def _say_begun(home: Home, prepared: Prepared, answer: dict[str, Any]) -> None:
    with contextlib.closing(open_map.connect_readonly(open_map.file(home, prepared.name))) as db:
        counts = open_map.counts(db)
    if not answer["new"]:
        then = "" if answer["same"] else "; what changed since it began comes after that"
        common.say(f"map {prepared.name} runs already, as run {answer['run']}: following it{then}")
    elif answer["run"]:
        known = f"; {counts['done']} are done already" if counts["done"] else ""
        common.say(f"map {prepared.name}: {many(counts['total'], 'item')}{known}; run {answer['run']}")
    else:
        common.say(f"map {prepared.name}: {many(counts['total'], 'item')}, nothing to do")


def _say_detached(prepared: Prepared, answer: dict[str, Any], *, as_json: bool) -> int:
    common.say("the same command again follows it, and says what came of it")
    if as_json:
        common.print_json(map=prepared.name, run=answer["run"] or None, new=answer["new"])
    else:
        click.echo(answer["run"] or prepared.name)
    return 0


def _follow(home: Home, name: str, run: str) -> None:
    """Until the work of that run has ended. An empty `run`: nothing was to do."""
    drawn, said_at = map_commands.Picture(), time.monotonic()
    with drawn:
        for found in _looks(home, name, run):
            drawn.show(found)
            if not drawn.live and time.monotonic() - said_at > SAY_S:
                said_at = time.monotonic()
                common.say(map_commands.line(found))


def _looks(home: Home, name: str, run: str) -> Iterator[dict[str, Any]]:
    """How it stands, again and again until it has ended, or until somebody else began it anew with another workload; the supervisor may
    come and go meanwhile."""
    supervisor = common.SupervisorWatch(home)
    while True:
        supervisor.look()
        try:
            found = protocol.call(home.daemon_socket, "map", {"op": "look", "id": name}, timeout_s=10.0)
        except (NotRunning, TimedOut, DiskFull):
            pass
        else:
            if run and found["run"] not in (run, ""):
                return
            yield found
            if found["state"] == "ended":
                return
        time.sleep(LOOK_S)


def _say_ended(home: Home, prepared: Prepared, *, as_json: bool) -> int:
    directory = open_map.directory(home, prepared.name)
    summary = json.loads((directory / open_map.SUMMARY).read_bytes())
    out = open_map.target(directory, prepared.about["out"], int(summary["missing"]))
    files = {"out": str(out), "summary": str(directory / open_map.SUMMARY), "failed_items": str(directory / open_map.FAILED)}
    if as_json:
        common.print_json(map=prepared.name, **{name: value for name, value in summary.items() if name != "schema"}, **files)
    else:
        _say_failures(directory / open_map.FAILED, int(summary["failed"]))
        missing = f", {summary['missing']} not done: {map_commands.shown(summary['why'])}" if summary["missing"] else ""
        common.say(f"{summary['done']} done, {summary['failed']} failed{missing}")
        if prepared.about["out"] and summary["missing"]:
            common.say(f"{prepared.about['out']} stays as it was: it is written when all items have ended")
        for line in map_commands.merge_lines(summary.get("merge")):
            common.say(line)
        click.echo(out)
    return 0 if not summary["failed"] and not summary["missing"] else 1


def _say_failures(path: Path, failed: int) -> None:
    if not failed:
        return
    with path.open(encoding="utf-8") as file:
        for _, line in zip(range(SHOWN), file, strict=False):
            shape = json.loads(line)
            common.say(f"failed: {map_commands.shown(shape['item'])}: {map_commands.shown(shape['error'])}")
    common.say(f"all that failed: {path}; the same command again tries them again")


def dry_run(home: Home, prepared: Prepared, *, as_json: bool) -> int:
    """Say what would be done, and do nothing. Returns 0."""
    items, item_s = _to_do(home, prepared), _seconds(open_map.file(home, prepared.name))
    todo, what = len(items), prepared.about["what"]
    done = len(prepared.items) - todo
    if what["executor"] in ("prompt", "agents"):
        return _dry_run_of_prompts(home, prepared, items, as_json=as_json)
    workers = min(int(prepared.about["agents"]), todo)
    per_shard = max(1, round(map_rules.SHARD_S / item_s)) if item_s else None
    predicted = todo * item_s / max(1, workers) if item_s else None
    shape = {
        "map": prepared.name, "items": len(prepared.items), "done": done, "to_do": todo, "workers": workers,
        "items_per_shard": per_shard, "predicted_s": round(predicted, 1) if predicted is not None else None,
    }  # fmt: skip
    if as_json:
        common.print_json(**shape)
        return 0
    click.echo(f"map {prepared.name}: {many(len(prepared.items), 'item')}, {done} done, {todo} to do by {many(workers, 'worker')}")
    click.echo(f"shards of about {many(per_shard, 'item')}" if per_shard else "shards: measured while it runs (nothing is known yet)")
    click.echo(
        f"predicted: {duration(predicted)}, by how long items took before"
        if predicted is not None
        else "predicted: unknown, nothing was measured yet"
    )
    return 0


def _dry_run_of_prompts(home: Home, prepared: Prepared, items: list[Item], *, as_json: bool) -> int:

    what = prepared.about["what"]
    shape: dict[str, Any] = {
        "map": prepared.name, "items": len(prepared.items), "done": len(prepared.items) - len(items), "to_do": len(items),
        "groups": len(what["groups"]) if what.get("groups") else None,
    }  # fmt: skip
    if what["executor"] == "prompt":
        found = of_prompts(home, prepared.name, what, items)
        shape, lines = {**shape, "prompt": found.to_shape()}, lines_predicting(found)
    else:
        told = of_agents(home, what, len(items))
        shape, lines = {**shape, "agents": told}, agent_lines(told, what["kind"])
    if as_json:
        common.print_json(**shape)
        return 0
    click.echo(f"map {prepared.name}: {many(len(prepared.items), 'item')}, {shape['done']} done, {shape['to_do']} to do")
    for line in lines:
        click.echo(line)
    return 0


def _to_do(home: Home, prepared: Prepared) -> list[Item]:
    """The items that are not done, by what was mapped so before."""
    path = open_map.file(home, prepared.name)
    if prepared.fresh or not path.exists():
        return prepared.items
    with contextlib.closing(open_map.connect_readonly(path)) as db:
        rows = db.execute("SELECT name, key, nth FROM item WHERE state = 'done'")
        done = {(bytes(row["name"]), str(row["key"]), int(row["nth"])) for row in rows}
    names = [(item.name, item.key) for item in prepared.items]
    nth = map_rules.occurrences(names)
    return [item for item, name, number in zip(prepared.items, names, nth, strict=True) if (*name, number) not in done]


def _seconds(path: Path) -> float:
    if not path.exists():
        return 0.0
    with contextlib.suppress(NightcrewError), contextlib.closing(open_map.connect_readonly(path)) as db:
        return float(db.execute("SELECT coalesce(avg(ms), 0) / 1000 FROM item WHERE state = 'done'").fetchone()[0])
    return 0.0


# Planning
# --------
# `nightcrew map --plan`: an agent splits the items by meaning before they are given out. Its plan is kept with the map, and used
# again as long as the items are the same.


def keys(home: Home, name: str, items: Sequence[Item]) -> dict[str, Any]:
    """The plan that the map has for these items, as keys of what is done with them; empty: it has none."""
    path = open_map.file(home, name)
    with contextlib.suppress(NightcrewError, OSError):
        if path.exists():
            with contextlib.closing(open_map.connect_readonly(path)) as db:
                known = json.loads(open_map.about_book(db)["what"])
            if known.get("planned_for") == digest(items):
                return {key: known[key] for key in ("groups", "planned_for")}
    return {}


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be planned."""

    base: str
    pattern: TaskSpec
    """The task of the agent, but for its prompt."""
    items: Sequence[Item]
    said: str
    """What is done with each item, in words."""
    key: str | None
    """The same key again is the same plan."""


def make(home: Home, place: Workplace, plan: Plan) -> dict[str, Any]:
    """Have an agent make it. Raises Refused when there are too many items, or the agent made none."""
    from supervisor.client import submit
    from supervisor.kernel.spec import RunSpec

    items = plan.items
    if len(items) > map_rules.ITEMS_MAX:
        why = f"{many(len(items), 'item')}, and an agent splits at most {map_rules.ITEMS_MAX:,}"
        raise Refused("too many items to plan", why=why, hint="fewer items, or without --plan")
    names = [item.name.decode("utf-8", "backslashreplace") for item in items]
    prompt = map_rules.prompt(plan.said, names, [item.size for item in items])
    task = open_map.answering(replace(plan.pattern, name="plan", title="split the work"), prompt, ["groups"], map_rules.SCHEMA)
    spec = RunSpec(title=f"plan of {many(len(items), 'item')}", tasks=(task,), base=plan.base)
    common.say(f"an agent of kind {plan.pattern.kind} splits {many(len(items), 'item')}")
    accepted = follow.hand_over(home, submit.submission(spec, place, None, plan.key, os.environ), ())
    (view,) = follow.to_the_end(home, accepted.run, quiet=True)
    if view.state is not TaskState.DONE:
        hint = f"nightcrew logs {view.id}, then nightcrew retry {view.id}; or without --plan"
        raise Refused("the work was not split", on=view.id, why=f"it is {view.state}: {view.end_cause or view.reason}", hint=hint)
    found = _read(untrusted_fs.read_plain(home.attempt(view.id, view.epoch) / "out" / ANSWER, ANSWER_MAX), len(items))
    common.say(many(len(found.groups), "group"))
    for repair in found.repairs:
        common.say(f"the plan was mended: {repair}")
    return {"groups": [{"items": list(group.items), "about": group.about} for group in found.groups], "planned_for": digest(items)}


def _read(data: bytes | None, count: int) -> Groups:
    """What the agent wrote. Its gate has checked the form; whatever else it is, every item is in one group."""
    try:
        return map_rules.read(answers(data, ["groups"])[0], count)
    except NoJson:
        return map_rules.read(None, count)


def digest(items: Sequence[Item]) -> str:
    """Of names and contents: a plan holds for the same items."""
    told = hashlib.sha256()
    for item in items:
        told.update(item.name + b"\0" + item.key.encode() + b"\n")
    return told.hexdigest()[:32]


# Predicting
# ----------
# What a map's prompts will take, for `--dry-run`: tokens, cost and time, each with its bounds.


_AROUND = 160
"""Bytes of a request around its texts."""
_DIMENSIONS = {"requests": "rpm", "input": "itpm", "output": "otpm", "tokens": "tpm"}


def of_prompts(home: Home, name: str, what: dict[str, Any], items: Sequence[Item]) -> Forecast:
    """For the items that are to be asked for. Prices and limits are those that the gateway knows."""
    terms = PromptTerms.from_shape(what["terms"])
    settings = user.load_gateway(settings_file(), home.keys)
    price, model = charges.Prices.load(home.prices, settings.prices), terms.model or DEFAULT_MODEL
    sizes, in_batches = list(_sizes(terms, str(what["form"]), items)), "group" in what
    limits = None if in_batches else _limits(home, settings, model)  # a batch counts against none of them

    def cost(usage: Usage) -> float | None:
        alone = price.cost(model, usage)
        return alone * charges.BATCH_PART if alone is not None and in_batches else alone

    return forecast(sizes, terms.max_tokens, limits, cost, _seen(home, name))


def _sizes(terms: PromptTerms, form: str, items: Sequence[Item]) -> Iterator[int]:
    """Bytes of each request, but for what JSON escapes."""
    around = _AROUND + len(instruction(terms).encode())
    with_content = form == "file" and "content" in fields(terms.template)
    for item in items:
        values = open_map.fields_of(item.name.decode("utf-8", "surrogateescape"), form)
        with contextlib.suppress(KeyError):  # it fails without being asked for
            text = render(terms.template, {**values, "content": "", "index": 0} if form == "file" else {"index": 0, **values})
            yield around + len(text.encode("utf-8", "replace")) + (item.size if with_content else 0)


def _limits(home: Home, settings: GatewaySettings, model: str) -> Limits | None:
    """Of all accounts together, as the running gateway has learned them, else as the settings say. None: nobody knows yet."""
    lane = f"{Api.ANTHROPIC}/{model_class(Api.ANTHROPIC, model)}"
    found: dict[str, float] = {}
    with contextlib.suppress(NightcrewError):
        for pool in pages.ask(home, pages.NOW)["pools"]:
            for one in pool["dimensions"] if pool["lane"] == lane else ():
                found[one["name"]] = found.get(one["name"], 0.0) + float(one["limit_per_minute"])
    for upstream in settings.upstreams if not found else ():
        for dimension, limit in upstream.limits.known().items():
            found[dimension] = found.get(dimension, 0.0) + limit
    return replace(Limits(), **{_DIMENSIONS[dimension]: limit for dimension, limit in found.items()}) if found else None


def _seen(home: Home, name: str) -> Seen:
    """What the calls of the map's last run put out."""
    path = open_map.file(home, name)
    if not path.exists() or not home.gateway_account.exists():
        return Seen()
    with contextlib.suppress(NightcrewError), contextlib.closing(open_map.connect_readonly(path)) as db:
        about = open_map.about_book(db)
        if "group" in json.loads(about["what"]):
            return Seen()  # the account has one row for a batch
        with contextlib.closing(schema.connect_readonly(home.gateway_account)) as account:
            workers = [reading.of_task(account, f"{about['run']}/w{number}") for number in range(1, int(about["agents"]) + 1)]
        return Seen(items=sum(one.requests for one in workers), output=sum(one.tokens.output for one in workers))
    return Seen()


def lines_predicting(found: Forecast) -> Iterator[str]:
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
    from supervisor.store import sqlite

    wanted = len(what["groups"]) if what.get("groups") else -(-items // int(what["each"]))
    found: dict[str, Any] = {"tasks": wanted, "by_attempts": 0, "tokens": None, "cost_usd": None, "task_s": None}
    if home.ledger.exists():
        with contextlib.closing(sqlite.connect_readonly(home.ledger)) as db:
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
    cost = money(found["cost_usd"]) if found["cost_usd"] is not None else "cost unknown"
    yield f"predicted: {tokens}, {cost}, {duration(found['task_s'])} a task, by the mean of {found['by_attempts']} attempts"
    yield "           (how far single ones are from it is not known)"
