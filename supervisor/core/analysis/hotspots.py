"""Where findings gather: files with how many they have of each severity."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

Hot = tuple[int, int, int]
"""How many high, medium and low findings."""


def summed(parts: Iterable[tuple[str, Hot]]) -> dict[str, Hot]:
    """The numbers of each file added up, by name: the order of `parts` changes nothing."""
    found: dict[str, Hot] = {}
    for file, (high, medium, low) in parts:
        before = found.get(file, (0, 0, 0))
        found[file] = (before[0] + high, before[1] + medium, before[2] + low)
    return dict(sorted(found.items()))


def hottest(hot: Mapping[str, Hot]) -> list[tuple[str, Hot]]:
    """Files with the worst first: by high, then medium, then low findings, then by name."""
    return sorted(hot.items(), key=lambda item: (*(-number for number in item[1]), item[0]))
