"""`nightcrew bench spawn`, `fork`, `analyze`, `fairness`, `gateway`, `status`, `queue`, `map`, `memory`, `land` and `faces`."""

from __future__ import annotations

import dataclasses
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from supervisor.client import common
from supervisor.kernel.errors import UsageError

_under = click.option(
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


@command.command()
@click.option("-q", "--quick", is_flag=True, help="A short run: 1 and 10 agents, 20 that idle for 5 s, 90 worktrees.")
@click.option("--seed", type=int, default=1, show_default=True, help="Of the generated repository's content.")
@_under
@common.json_option
def spawn(quick: bool, seed: int, under: Path | None, as_json: bool) -> None:
    """How fast agents come up, beside plain git and tmux; what 200 idle agents cost, and how fast they are adopted after kill -9; no-op
    tasks while up to 20,000 others wait; `status` over 100,000 tasks; `clean` over 2,700 worktrees.

    A full run takes some minutes and 5 GB. It measures and never judges: the exit code says only whether it ran.

    \b
    nightcrew bench spawn --quick
    nightcrew bench spawn --dir /mnt/fast --json
    """
    from nightcrew.plugins.bench import figures
    from nightcrew.plugins.bench import spawn as bench_spawn

    _leave_on_signals()
    options = dataclasses.replace(bench_spawn.QUICK if quick else bench_spawn.Options(), seed=seed)
    report = bench_spawn.measure(options, under, common.say)
    _show(report, figures.table, as_json)


@command.command()
@click.option("-q", "--quick", is_flag=True, help="A short run: a tenth of the dependencies, 10 agents at once, 200 Python files.")
@click.option("--seed", type=int, default=1, show_default=True, help="Of the generated files' content.")
@click.option("--no-index", is_flag=True, help="Do not ask the package index for the one small package that a set-up installs.")
@_under
@common.json_option
def fork(quick: bool, seed: int, no_index: bool, under: Path | None, as_json: bool) -> None:
    """What a warm start saves: environments beside copied and linked dependencies, forks beside cold starts, analysts beside a pool.

    A full run takes some minutes and 3 GB. It measures and never judges: the exit code says only whether it ran.

    \b
    nightcrew bench fork --quick
    nightcrew bench fork --dir /mnt/fast --json
    """
    from nightcrew.plugins.bench import fork as measure
    from nightcrew.plugins.bench.fork import table

    _leave_on_signals()
    options = dataclasses.replace(measure.QUICK if quick else measure.Options(), seed=seed, index=not no_index)
    report = measure.measure(options, under, common.say)
    _show(report, table, as_json)


@command.command()
@click.argument("source", type=click.Path(path_type=Path, exists=True), default=Path())
@click.option("--rounds", type=click.IntRange(1, 99), default=3, show_default=True, help="How often; the median round is reported.")
@_under
@common.json_option
def analyze(source: Path, rounds: int, under: Path | None, as_json: bool) -> None:
    """What the analysts gain by working at once, beside a plain pool of the same pieces.

    SOURCE is a repository, another directory, or a source distribution from a package index (default: here). It is copied.

    \b
    nightcrew bench analyze
    nightcrew bench analyze django-5.2.tar.gz --rounds 1 --json
    """
    from nightcrew.plugins.bench import analyze as bench_analyze

    _leave_on_signals()
    report = bench_analyze.measure(source.resolve(), rounds, under, common.say)
    _show(report, bench_analyze.table, as_json)


@command.command()
@click.option("-q", "--quick", is_flag=True, help="10 virtual minutes instead of an hour; too short for the aims of fairness.")
@click.option("--seeds", type=click.IntRange(1, 99), default=3, show_default=True, help="How many seeds, from 1 on.")
@common.json_option
def fairness(quick: bool, seeds: int, as_json: bool) -> None:
    """How the gateway shares a provider's limit, beside what others do: one virtual hour of 50 agents that want far more than there is;
    and how it learns limits that nobody told it, in ten virtual minutes for each kind of provider.

    Nothing is sent anywhere and no time passes: it is a simulation, in which the gateway's admission is the real one. It measures and never
    judges: the exit code says only whether it ran.

    \b
    nightcrew bench fairness
    nightcrew bench fairness --quick --seeds 1 --json
    """
    from nightcrew.plugins.bench.fairness import runs
    from nightcrew.plugins.bench.fairness import runs as scenarios

    report = scenarios.measure_scenarios(range(1, seeds + 1), scenarios.SCENARIOS_QUICK_S if quick else runs.HOUR_S, common.say)
    _show(report, scenarios.table_scenarios, as_json)


@command.command()
@click.option("-q", "--quick", is_flag=True, help="A short run: 5,000 requests instead of 100,000; scenarios of 50 s.")
@click.option("--learned", is_flag=True, help="Instead: how it learns limits that nobody told it, in six scenarios of 150 s.")
@click.option("--scenario", "scenarios", multiple=True, help="With --learned: only this one (can be given again).")
@click.option("--seed", type=int, default=1, show_default=True, help="With --learned: of the provider's answers and of outside use.")
@_under
@common.json_option
def gateway(quick: bool, learned: bool, scenarios: tuple[str, ...], seed: int, under: Path | None, as_json: bool) -> None:
    """What the gateway costs: CPU, time added to a request, memory; beside LiteLLM's proxy where `make bench-peers` installed it.

    Real sockets and a real account; the provider is a process of this machine. A full run takes some minutes. It measures and never judges:
    the exit code says only whether it ran.

    \b
    nightcrew bench gateway --quick
    nightcrew bench gateway --learned --json
    """
    _leave_on_signals()
    if learned:
        _learned(quick, scenarios, seed, under, as_json)
        return
    if scenarios:
        raise UsageError("--scenario goes with --learned", hint="nightcrew bench gateway --learned")
    from nightcrew.plugins.bench.gateway import measure

    report = measure.measure(measure.QUICK if quick else measure.Options(), under, common.say)
    _show(report, measure.table, as_json)


@command.command()
@click.option("-q", "--quick", is_flag=True, help="A short run: 10 live agents for 5 s, a crew of 3.")
@_under
@common.json_option
def status(quick: bool, under: Path | None, as_json: bool) -> None:
    """How soon it is known how an agent is, what that costs beside 50 live agents, how soon a text is delivered, how fast the built-in
    agent is; and ten real Claude Code agents that share a limit of 80,000 tokens a minute, with the gateway and without.

    The provider is a process of this machine, nothing leaves it. What needs Claude Code is not measured where `make clients` has not
    installed it. A full run takes about 20 minutes. It measures and never judges: the exit code says only whether it ran.

    \b
    nightcrew bench status --quick
    nightcrew bench status --json
    """
    from nightcrew.plugins.bench.status import measure

    _leave_on_signals()
    report = measure.measure(measure.QUICK if quick else measure.Options(), under, common.say)
    _show(report, measure.table, as_json)


@command.command()
@click.option("-q", "--quick", is_flag=True, help="A short run: 500 attempts, 6 kills instead of 30, 10 busy agents.")
@click.option("--seed", type=int, default=1, show_default=True, help="Of the moments of kills.")
@_under
@common.json_option
def queue(quick: bool, seed: int, under: Path | None, as_json: bool) -> None:
    """The queue of tasks: how fast 10,000 are accepted, how soon a free slot is taken, who starts first, what 30 kills lose, what a person
    feels of 50 busy agents; and the usual Redis queue beside it where redis-server and its client are installed.

    A full run takes some minutes. It measures and never judges: the exit code says only whether it ran.

    \b
    nightcrew bench queue --quick
    nightcrew bench queue --json
    """
    from nightcrew.plugins.bench.queue import measure

    _leave_on_signals()
    options = dataclasses.replace(measure.QUICK if quick else measure.Options(), seed=seed)
    report = measure.measure(options, under, common.say)
    _show(report, measure.table, as_json)


@command.command(name="map")
@click.option("-q", "--quick", is_flag=True, help="A short run: 600 files, 10 workers, 4 s of work; too short for the aim of efficiency.")
@click.option("--seed", type=int, default=1, show_default=True, help="Of the generated repository's content.")
@_under
@common.json_option
def map_(quick: bool, seed: int, under: Path | None, as_json: bool) -> None:
    """A large workload over many workers: 10,000 files over 50 agents, where 2 % of the files kill a process at their first try, beside a
    plain pool of processes; and what is done again after everything was killed at half.

    A full run takes about six minutes on two cores. It measures and never judges, but for the output: one that is not that of a sequential
    run is an error.

    \b
    nightcrew bench map --quick
    nightcrew bench map --json
    """
    from nightcrew.plugins.bench import map as measure

    _leave_on_signals()
    report = measure.measure(dataclasses.replace(measure.QUICK if quick else measure.MeasureOptions(), seed=seed), under, common.say)
    _show(report, measure.table, as_json)


@command.command()
@click.option("-q", "--quick", is_flag=True, help="A short run: fewer files, notes and processes; too short for some of the aims.")
@common.json_option
def memory(quick: bool, as_json: bool) -> None:
    """What agents know together: how soon a change wakes who waits for it, how fast notes are found and how well, leases, waits, lines that
    are added by many at once, and what the watching costs while nothing happens.

    Real files, sockets and processes. It measures and never judges: the exit code says only whether it ran.

    \b
    nightcrew bench memory --quick
    nightcrew bench memory --json
    """
    from nightcrew.plugins.bench import memory as measure

    _leave_on_signals()
    report = measure.measure(quick, common.say)
    _show(report, measure.table, as_json)


@command.command()
@click.option("-q", "--quick", is_flag=True, help="A short run: 10 branches of 200 files.")
@click.option("--seed", type=int, default=1, show_default=True, help="Of the generated repository's content.")
@_under
@common.json_option
def land(quick: bool, seed: int, under: Path | None, as_json: bool) -> None:
    """What it takes to know which results conflict: 50 branches of a repository of 2,000 files with each other, and anew when one of them
    moved.

    It measures and never judges, but for the conflicts: if they are not those that were planted, that is an error.

    \b
    nightcrew bench land --quick
    nightcrew bench land --json
    """
    from nightcrew.plugins.bench import land as bench_land

    _leave_on_signals()
    report = bench_land.measure(dataclasses.replace(bench_land.QUICK if quick else bench_land.Options(), seed=seed), under, common.say)
    _show(report, bench_land.table, as_json)


@command.command()
@click.option("-q", "--quick", is_flag=True, help="A short run: 20 agents, 10 seconds, 10 keys.")
@_under
@common.json_option
def faces(quick: bool, under: Path | None, as_json: bool) -> None:
    """What the screen of nightcrew top costs beside 200 agents that work, how soon it is up and answers a key, the same of the server of
    nightcrew web with 20 browsers, and how long the line of nightcrew statusline takes.

    A full run takes some minutes. It measures and never judges: the exit code says only whether it ran.

    \b
    nightcrew bench faces --quick
    nightcrew bench faces --json
    """
    from nightcrew.plugins.bench import views

    _leave_on_signals()
    report = views.measure_faces(views.QUICK if quick else views.FacesOptions(), under, common.say)
    _show(report, views.table, as_json)


def _learned(quick: bool, scenarios: tuple[str, ...], seed: int, under: Path | None, as_json: bool) -> None:
    from nightcrew.plugins.bench.gateway import measure

    options = (
        measure.LearnedLimitsOptions(measure.QUICK_S, measure.QUICK_SETTLE_S, seed) if quick else measure.LearnedLimitsOptions(seed=seed)
    )
    report = measure.measure_learned_limits(options, scenarios, under, common.say)
    _show(report, measure.table_learned_limits, as_json)


def _show(report: dict[str, Any], table: Callable[[dict[str, Any]], str], as_json: bool) -> None:
    if as_json:
        common.print_json(**report)
    else:
        click.echo(table(report))


def _leave_on_signals() -> None:
    """Leave as after Ctrl-C, so that nothing stays behind."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
