"""Measured figures: how they are summed up, shown and held against their aims. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

# Aims
# ----
# What we want of a figure, on two quiet cores, and the lines that show both. Pure.


@dataclass(frozen=True, slots=True)
class Aim:
    """One figure of a report. One without a bound is only shown."""

    figure: str
    """Where it stands: the keys of the report that lead to it, joined by dots."""
    bound: float | None = None
    at_least: bool = False
    """More is better."""
    name: str = ""
    unit: str = ""

    def met(self, value: float | None) -> bool:
        """Whether `value` is good enough; one that was not measured misses nothing."""
        if value is None or self.bound is None:
            return True
        return value >= self.bound if self.at_least else value <= self.bound

    def worst(self, values: Sequence[float]) -> float:
        """The value that says least in our favour."""
        return min(values) if self.at_least else max(values)

    def value(self, report: Any) -> Any:
        """The figure in `report`; None when it was not measured."""
        for key in self.figure.split("."):
            report = None if report is None else report.get(key)
        return report

    def __str__(self) -> str:
        return f"{'>=' if self.at_least else '<='} {self.bound:g}"


def missed(aims: Iterable[Aim], figures: Mapping[str, Any]) -> list[str]:
    """The figures that are not what we want."""
    return [aim.figure for aim in aims if not aim.met(aim.value(figures))]


def of_learning(most_429: int, phantom: str) -> tuple[Aim, ...]:
    """What we want of a gateway that learns its limits, in virtual time and over sockets. `phantom` is the key of the outside use that it
    claimed and that was not there, as a part of the limit."""
    return (
        Aim("upstream_429", most_429),
        Aim("utilisation_after_1min", 0.95, at_least=True),
        Aim(phantom, 0.02),
        Aim("stalls_s", 5.0),
    )


def rows(aims: Iterable[Aim], *reports: Mapping[str, Any] | None) -> Iterator[str]:
    """A line for each: its value in each report, its unit, and whether the first report misses the aim."""
    for aim in aims:
        values = [aim.value(report) for report in reports]
        line = f"{aim.name:<46}{''.join(f'{_shown(value):>13}' for value in values)} {aim.unit:<5}"
        if aim.bound is not None:
            line += f" aim {aim}"
        yield (line + ("" if aim.met(values[0]) else "  MISSED")).rstrip()


def _shown(value: float | None) -> str:
    if value is None:
        return "not measured"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"


# Figures
# -------
# What was measured, as values, and how it is summed up and shown. Pure.


@dataclass(frozen=True, slots=True)
class Spawn:
    """One agent on its way from the order to its first byte: consecutive stages, in seconds, so that their sum is the whole.

    Agents that are ordered together are all counted from the one order, so `env` also holds the wait for one's turn.
    """

    env: float
    """Ours: until `launch.spec` was written (the submission and the attempt committed, the worktree made). Plain: until
    `git worktree add` returned."""
    tmux: float
    """Ours: until tmux opened the pane's terminal (`launch.spec` synced before that). Plain: until `tmux new-session` returned, or the
    first byte when that was earlier."""
    runner: float
    """Ours: until the runner claimed the attempt (`at` of `started.json`): the start of Python. Plain: there is none."""
    first_byte: float
    """Until the agent, a shell, had written a line that a reader of its FIFO got. Ours: the claim made durable and the fork before it."""

    @classmethod
    def between(cls, ordered: float, has_env: float, has_pane: float, claimed: float, first_byte: float) -> Spawn:
        """From the moments at which the stages end, in seconds of one clock."""
        return cls(env=has_env - ordered, tmux=has_pane - has_env, runner=claimed - has_pane, first_byte=first_byte - claimed)

    @property
    def whole(self) -> float:
        return self.env + self.tmux + self.runner + self.first_byte


STAGES = tuple(field.name for field in fields(Spawn))

Burst = tuple[Spawn, ...]
"""Agents that were ordered together."""


def quantile(values: Sequence[float], share: float) -> float:
    """The smallest of `values` that at least `share` (0 to 1) of them do not exceed (nearest rank). Raises ValueError for no values."""
    if not values:
        raise ValueError("no values")
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def summary(bursts: Sequence[Burst]) -> dict[str, Any]:
    """One size: times of single agents over all bursts together, and the median burst's time until all were up."""
    spawns = [spawn for burst in bursts for spawn in burst]
    whole = [spawn.whole for spawn in spawns]
    return {
        "ms_p50": milli(statistics.median(whole)),
        "ms_p99": milli(quantile(whole, 0.99)),
        "all_up_s": round(statistics.median(max(spawn.whole for spawn in burst) for burst in bursts), 4),
        "stages": {name: milli(statistics.median(getattr(spawn, name) for spawn in spawns)) for name in STAGES},
        "rounds": len(bursts),
    }


def milli(seconds: float) -> float:
    """Seconds as milliseconds with two decimals."""
    return round(seconds * 1000, 2)


AIMS = (
    Aim("spawn.1.ms_p50", 120, name="one agent to its first byte, p50", unit="ms"),
    Aim("spawn.50.all_up_s", 5, name="50 agents up", unit="s"),
    Aim("spawn.200.all_up_s", 20, name="200 agents up", unit="s"),
    Aim("idle.cpu_percent", 3, name="supervisor with idle agents, of one core", unit="%"),
    Aim("idle.rss_mb", 100, name="supervisor's memory", unit="MB"),
    Aim("idle.runner_unshared_mb", 6, name="a runner's own memory", unit="MB"),
    Aim("adopt_s", 5, name="agents adopted after kill -9", unit="s"),
    Aim("clean.ms_each", 30, name="`nightcrew clean`, each worktree looked at", unit="ms"),
    Aim("clean.confined.ms_each", 30, name="the same where agents were confined", unit="ms"),
    Aim("clean.first_line_s", 2, name="its first line", unit="s"),
    Aim("status_ms", 150, name="`nightcrew status` over a long history", unit="ms"),
    Aim("scale.ratio.tasks_per_s", 1.3, name="a no-op task, most waiting over fewest", unit="x"),
    Aim("scale.ratio.daemon_cpu_ms_per_task", 1.3, name="CPU for one, most waiting over fewest", unit="x"),
    Aim("scale.ratio.status_ms", 1.3, name="`status`, most waiting over fewest", unit="x"),
    Aim("scale.ratio.tick_ms_p99", 1.3, name="tick, p99, most waiting over fewest", unit="x"),
    Aim("scale.ms_per_task", 25, name="a no-op task, fewest waiting", unit="ms"),
)
"""The full run's aims; a quick run is smaller and says so."""


def table(report: Mapping[str, Any]) -> str:
    """The report for people."""
    lines = [f"{'agents':>10}  {'':6}{'p50 ms':>9}{'p99 ms':>9}{'all up s':>10}   median ms of each stage"]
    for size, ours in report["spawn"].items():
        lines += [_row(size, "ours", ours), _row("", "plain", report["plain"][size])]
    lines += ["", f"one agent, ours over plain: {report['ratio']:.2f}", ""]
    lines += [*_scale(report["scale"]["waiting"]), ""] if "scale" in report else []
    return "\n".join([*lines, *rows((aim for aim in AIMS if aim.value(report) is not None), report)])


def _row(size: str, who: str, figures: Mapping[str, Any]) -> str:
    stages = "  ".join(f"{name} {figures['stages'][name]:.1f}" for name in STAGES)
    return f"{size:>10}  {who:6}{figures['ms_p50']:>9.1f}{figures['ms_p99']:>9.1f}{figures['all_up_s']:>10.2f}   {stages}"


def _scale(waiting: Mapping[str, Mapping[str, float]]) -> list[str]:
    names = {
        "tasks_per_s": "no-op tasks/s",
        "daemon_cpu_ms_per_task": "CPU ms/task",
        "status_ms": "status ms",
        "tick_ms_p99": "tick p99 ms",
    }
    rows = [f"{size:>10}" + "".join(f"{figures[name]:>15.1f}" for name in names) for size, figures in waiting.items()]
    return [f"{'waiting':>10}" + "".join(f"{text:>15}" for text in names.values()), *rows]
