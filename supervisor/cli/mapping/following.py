"""Handing a map over, and following it to its end."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from supervisor.cli import common, snapshot_progress
from supervisor.cli.mapping import picture, prompts
from supervisor.core import mapping
from supervisor.core.analysis.types import many
from supervisor.core.errors import DiskFull, NightcrewError, NotRunning, TimedOut
from supervisor.core.spec import Submission
from supervisor.daemon import protocol
from supervisor.daemon.handlers import submit
from supervisor.daemon.mapping import book, output
from supervisor.daemon.mapping.book import Item
from supervisor.host.paths import Home

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
    submission = snapshot_progress.ready_for(home, prepared.submission)
    incoming = book.prepare(home, prepared.name, prepared.items)
    try:
        about = {**prepared.about, **{name: json.dumps(prepared.about[name]) for name in ("what", "source")}}
        args = {"op": "open", "id": prepared.name, "incoming": str(incoming), "about": about, "fresh": prepared.fresh}
        return common.ask(home, "map", {**args, "submission": submit.to_wire(submission)}, timeout_s=OPEN_S)
    finally:
        incoming.unlink(missing_ok=True)


def _say_begun(home: Home, prepared: Prepared, answer: dict[str, Any]) -> None:
    with contextlib.closing(book.connect_readonly(book.file(home, prepared.name))) as db:
        counts = book.counts(db)
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
    drawn, said_at = picture.Picture(), time.monotonic()
    with drawn:
        for found in _looks(home, name, run):
            drawn.show(found)
            if not drawn.live and time.monotonic() - said_at > SAY_S:
                said_at = time.monotonic()
                common.say(picture.line(found))


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
    directory = book.directory(home, prepared.name)
    summary = json.loads((directory / output.SUMMARY).read_bytes())
    out = output.target(directory, prepared.about["out"], int(summary["missing"]))
    files = {"out": str(out), "summary": str(directory / output.SUMMARY), "failed_items": str(directory / output.FAILED)}
    if as_json:
        common.print_json(map=prepared.name, **{name: value for name, value in summary.items() if name != "schema"}, **files)
    else:
        _say_failures(directory / output.FAILED, int(summary["failed"]))
        missing = f", {summary['missing']} not done: {picture.shown(summary['why'])}" if summary["missing"] else ""
        common.say(f"{summary['done']} done, {summary['failed']} failed{missing}")
        if prepared.about["out"] and summary["missing"]:
            common.say(f"{prepared.about['out']} stays as it was: it is written when all items have ended")
        for line in prompts.merge_lines(summary.get("merge")):
            common.say(line)
        click.echo(out)
    return 0 if not summary["failed"] and not summary["missing"] else 1


def _say_failures(path: Path, failed: int) -> None:
    if not failed:
        return
    with path.open(encoding="utf-8") as file:
        for _, line in zip(range(SHOWN), file, strict=False):
            shape = json.loads(line)
            common.say(f"failed: {picture.shown(shape['item'])}: {picture.shown(shape['error'])}")
    common.say(f"all that failed: {path}; the same command again tries them again")


def dry_run(home: Home, prepared: Prepared, *, as_json: bool) -> int:
    """Say what would be done, and do nothing. Returns 0."""
    items, item_s = _to_do(home, prepared), _seconds(book.file(home, prepared.name))
    todo, what = len(items), prepared.about["what"]
    done = len(prepared.items) - todo
    if what["executor"] in ("prompt", "agents"):
        return _dry_run_of_prompts(home, prepared, items, as_json=as_json)
    workers = min(int(prepared.about["agents"]), todo)
    per_shard = max(1, round(mapping.SHARD_S / item_s)) if item_s else None
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
        f"predicted: {predicted:.0f} s, by how long items took before"
        if predicted is not None
        else "predicted: unknown, nothing was measured yet"
    )
    return 0


def _dry_run_of_prompts(home: Home, prepared: Prepared, items: list[Item], *, as_json: bool) -> int:
    from supervisor.cli.mapping import predicting

    what = prepared.about["what"]
    shape: dict[str, Any] = {
        "map": prepared.name, "items": len(prepared.items), "done": len(prepared.items) - len(items), "to_do": len(items),
        "groups": len(what["groups"]) if what.get("groups") else None,
    }  # fmt: skip
    if what["executor"] == "prompt":
        found = predicting.of_prompts(home, prepared.name, what, items)
        shape, lines = {**shape, "prompt": found.to_shape()}, predicting.lines(found)
    else:
        told = predicting.of_agents(home, what, len(items))
        shape, lines = {**shape, "agents": told}, predicting.agent_lines(told, what["kind"])
    if as_json:
        common.print_json(**shape)
        return 0
    click.echo(f"map {prepared.name}: {many(len(prepared.items), 'item')}, {shape['done']} done, {shape['to_do']} to do")
    for line in lines:
        click.echo(line)
    return 0


def _to_do(home: Home, prepared: Prepared) -> list[Item]:
    """The items that are not done, by what was mapped so before."""
    path = book.file(home, prepared.name)
    if prepared.fresh or not path.exists():
        return prepared.items
    with contextlib.closing(book.connect_readonly(path)) as db:
        rows = db.execute("SELECT name, key, nth FROM item WHERE state = 'done'")
        done = {(bytes(row["name"]), str(row["key"]), int(row["nth"])) for row in rows}
    names = [(item.name, item.key) for item in prepared.items]
    nth = mapping.occurrences(names)
    return [item for item, name, number in zip(prepared.items, names, nth, strict=True) if (*name, number) not in done]


def _seconds(path: Path) -> float:
    if not path.exists():
        return 0.0
    with contextlib.suppress(NightcrewError), contextlib.closing(book.connect_readonly(path)) as db:
        return float(db.execute("SELECT coalesce(avg(ms), 0) / 1000 FROM item WHERE state = 'done'").fetchone()[0])
    return 0.0
