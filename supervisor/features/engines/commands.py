"""`nightcrew engine ls`, `show`, `log` and `stop`."""

from __future__ import annotations

import json

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
from supervisor.views.gateway import aligned

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
    found = _engines().values()
    if as_json:
        common.print_json(engines=list(map(_shape, found)))
    else:
        common.show("\n".join(aligned([HEADS, *map(_row, found)])))


@command.command()
@click.argument("name")
@common.json_option
def show(name: str, as_json: bool) -> None:
    """Show what was asked of an engine, what it says of itself, and what of that differs.

    \b
    nightcrew engine show small
    """
    shape = _shape(_named(name))
    if as_json:
        common.print_json(**shape)
    else:
        rows = [(key, one_line(value if isinstance(value, str) else json.dumps(value))) for key, value in shape.items()]
        common.show("\n".join(aligned(rows)))


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


def _shape(engine: Engine) -> dict[str, object]:
    shape: dict[str, object] = json.loads(codec.dumps({**codec.shape(_record(engine)), "asked": engine}))
    return shape


def _row(engine: Engine) -> tuple[str, ...]:
    record = _record(engine)
    if record.state is not EngineState.READY:
        return (engine.name, engine.kind, record.state, "-", "-", "-", one_line(record.why))
    return (engine.name, engine.kind, record.state, str(record.slots), str(record.context), "yes" if record.tools else "no", record.url)
