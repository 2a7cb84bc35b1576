"""The figures of `nightcrew bench memory`: each file beside this one that has a `measure(quick)` gives its keys."""

from __future__ import annotations

import importlib
import json
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from supervisor.bench import memory
from supervisor.bench.aims import Aim, rows
from supervisor.bench.workspace import machine

AIMS = (
    Aim("wake_ms.p50", 120, name="a person's write until whoever waits is awake, p50", unit="ms"),
    Aim("wake_ms.p99", 700, name="the same, p99", unit="ms"),
    Aim("storm.files", name="files made below the watched root"),
    Aim("storm.settled_s", 30, name="quiet until all is known", unit="s"),
    Aim("storm.equal", 1, at_least=True, name="what is known is what is there"),
    Aim("index_10k_s", 0.5, name="10,000 notes indexed", unit="s"),
    Aim("search_ms_p50", 3, name="a search of them, p50", unit="ms"),
    Aim("recall_at_10", 0.57, at_least=True, name="the wanted note among ten"),
    Aim("semantic.recall_at_10", name="the same by meaning, where that is installed"),
    Aim("semantic.search_ms_p50", name="a search by meaning, p50", unit="ms"),
    Aim("lease_ms_p50", 2, name="a lease, of 8 agents that ask, p50", unit="ms"),
    Aim("lease_lost", 0, name="leases lost"),
    Aim("wait_check_ms", 0.1, name="may this wait, beside 200 agents", unit="ms"),
    Aim("appends.written", name="lines added by 8 processes at once"),
    Aim("appends.corrupt", 0, name="of them corrupt or lost"),
    Aim("idle_cpu_percent", 0.5, name="of a core while nothing happens", unit="%"),
)


def measure(quick: bool, say: Callable[[str], None]) -> dict[str, Any]:
    """The report; docs/bench.md describes every key. A key that no part gave is None. Raises what a part raises."""
    say(json.dumps(machine()))
    report: dict[str, Any] = dict.fromkeys(aim.figure.partition(".")[0] for aim in AIMS)
    for name, part in _parts():
        say(name)
        report |= part(quick)
    return report


def _parts() -> Iterator[tuple[str, Callable[[bool], Mapping[str, Any]]]]:
    for found in sorted(pkgutil.iter_modules(memory.__path__), key=lambda module: module.name):
        if found.name != "measure":
            part = getattr(importlib.import_module(f"{memory.__name__}.{found.name}"), "measure", None)
            if part is not None:
                yield found.name, part


def table(report: Mapping[str, Any]) -> str:
    """The report for people."""
    return "\n".join(rows(AIMS, report))
