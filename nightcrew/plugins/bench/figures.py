"""Measured figures: how they are summed up, held against their aims and shown. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


def milli(seconds: float) -> float:
    """Return milliseconds with two decimals."""
    return round(seconds * 1000, 2)


def median_ms(seconds: Iterable[float]) -> float:
    """Return the median in milliseconds."""
    return milli(statistics.median(seconds))


def quantile(values: Sequence[float], share: float) -> float:
    """The smallest of `values` that at least `share` (0 to 1) of them do not exceed (nearest rank). Raises ValueError for no values."""
    if not values:
        raise ValueError("no values")
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def quantiles_ms(seconds: Sequence[float]) -> dict[str, float]:
    """Return the median and the 99th percentile in milliseconds."""
    return {"p50": median_ms(seconds), "p99": milli(quantile(seconds, 0.99))}


@dataclass(frozen=True, slots=True)
class Aim:
    """One figure of a report, and what we want of it on two quiet cores. A figure without a bound is only shown."""

    figure: str
    """The keys of the report that lead to it, joined by dots."""
    bound: float | None = None
    at_least: bool = False
    """More is better."""
    name: str = ""
    unit: str = ""

    def met(self, value: float | None) -> bool:
        """Tell whether `value` is good enough; a figure that was not measured misses nothing."""
        if value is None or self.bound is None:
            return True
        return value >= self.bound if self.at_least else value <= self.bound

    def value(self, report: Any) -> Any:
        """Return the figure in `report`; None when it was not measured."""
        for key in self.figure.split("."):
            report = None if report is None else report.get(key)
        return report

    def __str__(self) -> str:
        return f"{'>=' if self.at_least else '<='} {self.bound:g}"


def missed(aims: Iterable[Aim], figures: Mapping[str, Any]) -> list[str]:
    """Return the figures that miss their aims."""
    return [aim.figure for aim in aims if not aim.met(aim.value(figures))]


def rows(aims: Iterable[Aim], *reports: Mapping[str, Any] | None) -> Iterator[str]:
    """Yield a line for each aim: its value in each report, its unit, and whether the first report misses it."""
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


def grid(lines: Mapping[str, Mapping[str, Any]], width: int = 14) -> Iterator[str]:
    """Yield a head with the names of the columns, and a line for each row; both by their names."""
    names = list(next(iter(lines.values()), ()))
    columns = [max(width, len(name) + 2) for name in names]
    yield f"{'':{width + 18}}" + "".join(f"{name:>{column}}" for name, column in zip(names, columns, strict=True))
    for row, figures in lines.items():
        cells = [value if isinstance(value, str) else f"{value:,}" for value in figures.values()]
        yield f"{row:{width + 18}}" + "".join(f"{cell:>{column}}" for cell, column in zip(cells, columns, strict=True))
