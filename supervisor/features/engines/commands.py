"""`nightcrew engine ls`, `show`, `log` and `stop`."""

from __future__ import annotations

import json
from collections.abc import Iterable

import click

from supervisor.client import common
from supervisor.config import user
from supervisor.gateway import engines
from supervisor.host import untrusted_fs
from supervisor.host.paths import home
from supervisor.kernel import codec
from supervisor.kernel.engines import Engine, EngineRecord, EngineState
from supervisor.kernel.errors import NotFound, one_line
from supervisor.kernel.names import nearest

_LOG_MAX = 2**20
HEADS = ("engine", "kind", "state", "slots", "context", "tools", "why or where")


@click.group(name="engine")
def command() -> None:
    """Engines that serve models on this machine: the [engine] tables of config.toml. docs/engines.md describes them.

    \b
    nightcrew engine ls
    """


@command.command()
@common.json_option
def ls(as_json: bool) -> None:
    """Show every engine, what it does now, and where it answers.

    \b
    nightcrew engine ls
    """
    found = [(engine, _record(engine)) for engine in _engines().values()]
    if as_json:
        common.print_json(engines=[_shape(engine, record) for engine, record in found])
        return
    for line in _table([HEADS, *(_row(engine, record) for engine, record in found)]):
        common.show(line)


@command.command()
@click.argument("name")
@common.json_option
def show(name: str, as_json: bool) -> None:
    """Show what was asked of an engine, what it says of itself, and what of that differs.

    \b
    nightcrew engine show small
    """
    engine = _named(name)
    shape = _shape(engine, _record(engine))
    if as_json:
        common.print_json(**shape)
        return
    for line in _table((key, one_line(value if isinstance(value, str) else json.dumps(value))) for key, value in shape.items()):
        common.show(line)


@command.command()
@click.argument("name")
@click.option("-n", "--lines", default=40, show_default=True, type=click.IntRange(1), help="So many of the last lines.")
def log(name: str, lines: int) -> None:
    """Print the end of what an engine said since its last start.

    \b
    nightcrew engine log small
    """
    text = untrusted_fs.read_plain(home().engines / f"{_named(name).name}.log", _LOG_MAX, tail=True)
    for line in (text or b"").decode("utf-8", "replace").splitlines()[-lines:]:
        click.echo(one_line(line))


@command.command()
@click.argument("name")
@common.json_option
def stop(name: str, as_json: bool) -> None:
    """Stop an engine until a request needs it again. Requests that it serves are cut.

    \b
    nightcrew engine stop small
    """
    answer = common.ask(home(), "engine_stop", {"name": _named(name).name}, timeout_s=None)
    if as_json:
        common.print_json(**answer)
    else:
        common.say(f"{name} {'is stopped' if answer['ran'] else 'did not run'}; the next request starts it")


def _engines() -> dict[str, Engine]:
    upstreams = user.load_gateway(common.settings_file(), home().keys).upstreams
    return {upstream.engine.name: upstream.engine for upstream in upstreams if upstream.engine is not None}


def _named(name: str) -> Engine:
    found = _engines()
    if name not in found:
        raise NotFound("no engine is called", on=name, why=nearest(name, found), hint="nightcrew engine ls")
    return found[name]


def _record(engine: Engine) -> EngineRecord:
    return engines.read(home(), engine.name) or EngineRecord(engine.name, EngineState.STOPPED)


def _shape(engine: Engine, record: EngineRecord) -> dict[str, object]:
    asked = {key: value for key, value in codec.shape(engine).items() if key not in ("name", "url")}
    return {
        **codec.shape(record),
        "identity": record.identity and codec.shape(record.identity),
        "asked": {**asked, "options": dict(engine.options)},
    }


def _row(engine: Engine, record: EngineRecord) -> tuple[str, ...]:
    says = record.state is EngineState.READY
    figures = (str(record.slots), str(record.context), "yes" if record.tools else "no") if says else ("-", "-", "-")
    return (engine.name, engine.kind, record.state, *figures, one_line(record.url if says else record.why))


def _table(rows: Iterable[tuple[str, ...]]) -> list[str]:
    found = list(rows)
    widths = [max(map(len, column)) for column in zip(*found, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in found]
