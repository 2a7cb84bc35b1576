"""`nightcrew capacity`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from supervisor.client import common, protocol
from supervisor.features.capacity.rules import PREMISES
from supervisor.host.paths import home
from supervisor.kernel.errors import one_line
from supervisor.kernel.format import age, rfc3339, size

ASK_S = 5.0


_GIVEN = [
    click.Option(["--limit"], multiple=True, metavar="WHAT=NUMBER/PERIOD", help="Such as requests=60/min; several together."),
    click.Option(["--kind"], default="claude", show_default=True, help="Whose measured use is taken."),
    click.Option(["--model"], help="Take the price of this model."),
    click.Option(["--local"], help="Own engine: an [engine.NAME], a GGUF file, or a model of docs/capacity.md."),
    click.Option(["--measured"], type=click.Path(path_type=Path), help="What `nightcrew bench local --json` wrote."),
    *(click.Option([f"--{name.replace('_', '-')}"], type=click.FloatRange(min=0), help=about) for name, (_, about) in PREMISES.items()),
]


@click.command(params=_GIVEN)
@click.option("--what-if", is_flag=True, help="Reckon with the numbers below instead of those of the crew; each of them implies it.")
@common.json_option
def command(what_if: bool, as_json: bool, **given: Any) -> None:
    """Show how many agents the machine and the models carry, what binds, and what each kind of agent takes.

    \b
    nightcrew capacity
    nightcrew capacity --json
    nightcrew capacity --what-if --limit requests=60/min --model gpt-4o-mini
    """
    if what_if or any(value for name, value in given.items() if name != "kind"):
        from supervisor.features.capacity import what_if as reckoning

        reckoning.show(given, as_json=as_json)
        return
    shape = protocol.call(home().daemon_socket, "capacity", {}, timeout_s=ASK_S)
    if as_json:
        common.print_json(**printed(shape))
        return
    for line in lines(shape):
        click.echo(line)


# Text
# ----


Shape = Mapping[str, Any]
UNKNOWN = "-"
_STALLS = (("memory_stall", "waiting for memory"), ("io_stall", "waiting for disks"))


def printed(shape: Shape) -> dict[str, Any]:
    """As every `--json` has it: times are RFC 3339 in UTC."""
    held = {name: {**verdict, "since": rfc3339(verdict["since"])} for name, verdict in shape["held"].items()}
    return {**shape, "held": held}


def lines(shape: Shape) -> Iterator[str]:
    """`slots`, what each resource carries, what one more agent would take, the pressure, and a line for each kind."""
    most = f"at most {shape['cap']}" if shape["cap"] is not None else f"slots is not set, it begins with {shape['start']}"
    yield f"slots      {shape['slots']} ({most}); {shape['living']} taken, {_waiting(shape)}"
    if shape["carries"] is None:
        yield "           the machine has not been looked at yet"
        return
    for name in ("cap", "cores", "memory", "tokens"):
        yield f"{'binds' if name == shape['binding'] else '':<6}{name:<8} {_carried(shape, name)}"
    yield f"one more   {_need(shape['next'])}"
    yield f"pressure   {_pressure(shape['pressure'])}"
    for name, verdict in shape["held"].items():
        yield f"held back  {name}: {one_line(verdict['words'])}"
    if shape["needs"]:
        yield "learned    of one agent, on average; its peak of memory"
    for kind, need in shape["needs"].items():
        yield f"  {one_line(kind):<10} {_need(need)}; {age(need['wall_s'] or None)} to its end"


def _waiting(shape: Shape) -> str:
    count, predicted = shape["waiting"], shape["predicted_wait_s"]
    tasks = "1 task waits" if count == 1 else f"{count} tasks wait"
    return f"{tasks} for a start" + (f", the last one for about {age(predicted)}" if predicted else "")


def _carried(shape: Shape, name: str) -> str:
    carried, means = shape["carries"].get(name), shape["means"]
    count = f"{'-' if carried is None else carried:>4}  "
    match name:
        case "cap":
            without = "without slots in config.toml" + ("" if carried > shape["start"] else ", until the needs of what waits are known")
            return count + ("slots in config.toml" if shape["cap"] is not None else without)
        case "cores":
            return count + f"{means['cores']:.0f} for agents{', contended now' if means['contended'] else ''}{_unbound(carried)}"
        case "memory":
            return count + ("nobody knows what is free" if means["memory"] is None else f"{size(means['memory'])} free for agents")
        case _:
            limit = "no limit is known" if means["tpm"] is None else f"{means['tpm']:,.0f} a minute"
            return count + limit + ("" if means["tpm"] is None else _unbound(carried))


def _unbound(carried: int | None) -> str:
    return "; does not bind while the need is assumed" if carried is None else ""


def _need(need: Shape) -> str:
    parts = {
        "cores": f"{need['cores']:.2f} cores",
        "memory": size(need["memory"]),
        "tokens": f"{need['tpm']:,.0f} tokens/min" if need["tpm"] else f"{UNKNOWN} tokens/min",
    }
    counts = {"cores": need["cores_from"], "memory": need["memory_from"], "tokens": need["tpm_from"]}
    return ", ".join(f"{text} ({_from(counts[name], name in need['assumed'])})" for name, text in parts.items())


def _from(count: int, assumed: bool) -> str:
    return f"assumed, {count} measured" if assumed else f"of {count}"


def _pressure(found: Shape) -> str:
    parts = [
        "load not known" if found["load"] is None else f"load {found['load']:.1f} a core",
        "memory not known" if found["memory"] is None else f"{found['memory']:.0%} of memory taken",
        *(f"{found[name]:.0%} of the time {words}" for name, words in _STALLS if found[name] is not None),
        *([f"{found['processes']:.0%} of the allowed processes"] if found["processes"] is not None else []),
    ]
    return one_line(", ".join(parts) + (f"; {found['trouble']}" if found["trouble"] else ""))
