"""What we want of a figure, on two quiet cores, and the lines that show both. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


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
