"""`nightcrew bench SUITE`: one command a suite.

A suite is a module with `Options`, `QUICK` (options of a short run), `measure(options, root, say)`, which returns its figures, and either
`AIMS`, whose figures are the table, or a `table(report)` of its own.
"""

from __future__ import annotations

import dataclasses
import importlib
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click

from supervisor.client import common

Option = Callable[[Any], Any]
_UNDER = click.option(
    "--dir",
    "under",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Where to work; removed again (default: the system's temporary directory).",
)


@click.group(name="bench")
def command() -> None:
    """Measure nightcrew on this machine, apart from your own supervisor, tasks and repositories.

    \b
    nightcrew bench spawn --quick
    """


def _run(module: str, *, as_json: bool, quick: bool = False, under: Path | None = None, **wanted: Any) -> None:
    """Measure a suite and print its report. `wanted` are fields of its options."""
    for number in (signal.SIGTERM, signal.SIGHUP):  # leave as after Ctrl-C, so that nothing stays behind
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    suite = importlib.import_module(f"nightcrew.plugins.bench.{module}")
    crews = importlib.import_module("nightcrew.plugins.bench.crews")
    options = dataclasses.replace(suite.QUICK if quick else suite.Options(), **wanted)
    report = crews.report(suite, options, under, common.say)
    if as_json:
        common.print_json(**report)
    elif hasattr(suite, "table"):
        click.echo(suite.table(report))
    else:
        figures = importlib.import_module("nightcrew.plugins.bench.figures")
        click.echo("\n".join(figures.rows(suite.AIMS, report)))


def _suite(name: str, module: str, about: str, *options: Option) -> None:
    wrapped: Any = partial(_run, module)
    for option in reversed((*options, common.json_option)):
        wrapped = option(wrapped)
    text = f"{about} It measures and never judges: the exit code says only whether it ran.\n\n\b\nnightcrew bench {name} --json"
    command.command(name=name, help=text)(wrapped)


def _quick(what: str) -> Option:
    return click.option("-q", "--quick", is_flag=True, help=f"A short run: {what}.")


def _seed(of: str) -> Option:
    return click.option("--seed", type=int, default=1, show_default=True, help=f"Of {of}.")


_suite(
    "spawn",
    "spawn",
    "How fast agents come up, beside plain git and tmux; what 200 idle agents cost, and how fast they are adopted after kill -9; no-"
    "op tasks while up to 20,000 others wait; `status` over 100,000 tasks; `clean` over 2,700 worktrees. A full run takes some "
    "minutes and 5 GB.",
    _quick("1 and 10 agents, 20 that idle for 5 s, 90 worktrees"),
    _seed("the generated repository's content"),
    _UNDER,
)
_suite(
    "fork",
    "fork",
    "What a warm start saves: environments beside copied and linked dependencies, forks beside cold starts. A full run takes some "
    "minutes and 3 GB.",
    _quick("a tenth of the dependencies, 10 agents at once"),
    _seed("the generated files' content"),
    _UNDER,
)
_suite(
    "fairness",
    "fairness",
    "How the gateway shares a provider's limit, and what the crew meets without it: one virtual hour of 50 agents that want far more "
    "than there is; and how it learns limits that nobody told it, in ten virtual minutes for each kind of provider. Nothing is sent "
    "anywhere and no time passes: it is a simulation, in which the gateway's admission is the real one.",
    _quick("10 virtual minutes instead of an hour; too short for the aims of fairness"),
    click.option("--seeds", type=click.IntRange(1, 99), default=3, show_default=True, help="How many seeds, from 1 on."),
)
_suite(
    "status",
    "status",
    "How soon it is known how an agent is, what that costs beside 50 live agents, how soon a text is delivered, how fast the built-in"
    " agent starts. The provider is a process of this machine, nothing leaves it. What needs Claude Code is not measured where `make "
    "clients` has not installed it. A full run takes some minutes.",
    _quick("10 live agents for 5 s"),
    _UNDER,
)
_suite(
    "queue",
    "queue",
    "The queue of tasks: how fast 10,000 are accepted, how soon a free slot is taken, what a person feels of 50 busy agents. A full "
    "run takes some minutes.",
    _quick("500 attempts, 10 busy agents"),
    _seed("the generated repository's content"),
    _UNDER,
)
_suite(
    "map",
    "map",
    "A large workload over many workers: 10,000 files over 50 agents, where 2 % of the files kill a process at their first try, "
    "beside a plain pool of processes. An output that is not that of a sequential run is an error. A full run takes about four minutes "
    "on two cores.",
    _quick("600 files, 10 workers, 4 s of work; too short for the aim of efficiency"),
    _seed("the generated repository's content"),
    _UNDER,
)
_suite(
    "memory",
    "memory",
    "What agents know together: how soon a change wakes who waits for it, how fast notes are found and how well, leases, waits, and "
    "what the watching costs while nothing happens. Real files, sockets and processes.",
    _quick("fewer files, notes and processes; too short for some of the aims"),
    _UNDER,
)
_suite(
    "land",
    "land",
    "What it takes to know which results conflict: 50 branches of a repository of 2,000 files with each other, and anew when one of "
    "them moved; and to land a train of results. Conflicts that are not those that were planted are an error.",
    _quick("10 branches of 200 files"),
    _seed("the generated repository's content"),
    _UNDER,
)
_suite(
    "faces",
    "views",
    "What the screen of nightcrew top costs beside 200 agents that work, how soon it is up and answers a key, the same of the server "
    "of nightcrew web with 20 browsers, and how long the line of nightcrew statusline takes. A full run takes some minutes.",
    _quick("20 agents, 10 seconds, 10 keys"),
    _UNDER,
)


_suite(
    "gateway",
    "gateway",
    "What the gateway costs: CPU, time added to a request, memory; beside LiteLLM's proxy where `make bench-peers` installed it. Real"
    " sockets and a real account; the provider is a process of this machine. A full run takes some minutes.",
    _quick("5,000 requests instead of 100,000"),
    _UNDER,
)
_suite(
    "local",
    "local",
    "What an inference engine of yours gives with 1 to 16 streams, what the gateway before it costs, and whether `nightcrew capacity "
    "--what-if` predicts it. The engine must run and speak the Messages API; it is kept busy for some minutes.",
    _quick("2 x 2 s for each number of streams"),
    click.option("--url", default="", help="Where the engine answers, such as http://127.0.0.1:8080."),
    click.option("--engine", default="", help="Or its name in the settings."),
    _UNDER,
)
