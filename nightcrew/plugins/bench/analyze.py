"""`nightcrew bench analyze`: what the analysts gain by working at once, beside a pool of processes."""

from __future__ import annotations

import json
import shutil
import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nightcrew.plugins.analyze.analyst import Progress, read_parameters, survey
from nightcrew.plugins.bench import pool
from nightcrew.plugins.bench.crews import Say, SupervisedRun, by_hand, commit_all, timed
from supervisor.host import cgroups, cores
from supervisor.host.clock import SystemClock
from supervisor.kernel import limits
from supervisor.kernel.errors import ToolFailed
from supervisor.kernel.spec import Settings
from supervisor.kernel.states import TaskClass
from supervisor.results import findings
from supervisor.store import queries

# Corpus
# ------
# What an analysis is measured on: a repository or another directory, copied so that nothing of the user's is touched.


def bring(source: Path, place: Path) -> Path:
    """Make a repository of one commit at `place` with the files of a directory: those of HEAD when it is a repository. Raises ToolFailed
    when git cannot."""
    if (source / ".git").exists():
        by_hand(["git", "clone", "-q", "--no-local", "--depth", "1", source.resolve().as_uri(), str(place)], place.parent)
    else:
        shutil.copytree(source, place, symlinks=True)
        commit_all(place)
    return place


# Pool
# ----


def of_analysts(checkout: Path, jobs: Sequence[Mapping[str, str]], workers: int) -> tuple[float, float]:
    """Return the seconds that a pool takes for the analysts with these environments, and its processor time. It has a crew's share of the
    processor: the same cores, niceness and control group."""
    share = limits.processor_share_of(TaskClass.NORMAL, Settings().nice)
    group = cgroups.of_class(cgroups.probe(), TaskClass.NORMAL, share.weight)
    join = group.join_files if group is not None else ()
    on = cores.choose(0, None, cores.topology())
    found = pool.run(checkout, "nightcrew.plugins.bench.analyze:analyst", jobs, workers, nice=share.nice, cores=on, join=join)
    return found["took"], found["cpu_s"]


def analyst(job: dict[str, str]) -> int:
    """Do one piece as `nightcrew.plugins.analyze` does it; return the length of its answer."""
    parameters = read_parameters(job)
    facts = survey(parameters, Path.cwd(), Progress(parameters.perspective, SystemClock(), sys.stderr))
    return len(findings.write(facts))


# Analyze
# -------
# `nightcrew bench analyze`: what the five analysts gain by working at once, beside a plain pool of the same pieces.
#
# Everything happens on a copy and in a directory of its own; the user's supervisor, state and repositories are not touched.


@dataclass(frozen=True, slots=True)
class Options:
    """What is measured, and how often; of several rounds the one with the median work at once is reported."""

    source: str = "."
    rounds: int = 3


def measure(options: Options, root: Path, say: Say) -> dict[str, Any]:
    """Return the figures; docs/bench.md describes every key. Raises what a tool raises."""
    source = Path(options.source).resolve()
    repo = bring(source, root / "repo")
    found: list[dict[str, Any]] = []
    with SupervisedRun(root / "home", Settings().slots, sandboxed=True) as run:
        for number in range(options.rounds):
            say(f"round {number + 1} of {options.rounds}: one by one, at once, and by a plain pool")
            found.append(_round(repo, run))
    found.sort(key=lambda one: float(one["work_s"]))
    return {
        **found[(len(found) - 1) // 2],
        "repo": source.name,
        "rounds": [{key: one[key] for key in ("sequential_s", "parallel_s", "setup_s", "work_s", "pool_s")} for one in found],
        "ratio_to_pool": round(statistics.median(one["work_s"] / one["pool_s"] for one in found), 3),
    }


def table(report: Mapping[str, Any]) -> str:
    """The report for people."""
    return "\n".join(
        [
            f"{report['repo']}: {report['files']:,} Python files, {report['agents']} analysts, {report['usable_cores']} usable cores",
            f"one by one  {report['sequential']['elapsed_s']:8.1f} s, of that work {report['sequential']['work_s']:.1f} s",
            f"at once     {report['parallel']['elapsed_s']:8.1f} s, of that work {report['parallel']['work_s']:.1f} s",
            f"plain pool  {report['pool_s']:8.1f} s of work (at once / pool: {report['ratio_to_pool']:.2f})",
            report["plainly"],
        ]
    )


def _round(repo: Path, run: SupervisedRun) -> dict[str, Any]:
    _, said = timed(run.home.root, "analyze", str(repo), "--baseline", "--together", "--json", cwd=repo, judges=True)
    report = json.loads(said)
    if report["run"]["state"] != "done":
        raise ToolFailed("an analyst failed", on=str(repo), why=str(report["summary"]["failed"]))
    with run.ledger() as db:
        crew = orders(report, queries.outcomes(db, report["run"]["id"]))
    return {
        "files": report["summary"]["files"],
        **report["figures"],
        "plainly": report["summary"]["parallel"],
        "pool_s": round(of_analysts(repo, crew, report["figures"]["usable_cores"])[0], 3),
    }


def orders(report: Mapping[str, Any], outcomes: Iterable[Mapping[str, Any]]) -> list[dict[str, str]]:
    """What each analyst of the crew was asked for, as its environment: the one that took longest alone comes first. `outcomes` are those of
    the report's run. Raises ToolFailed when its times cannot be compared with anything."""
    figures = report["figures"]
    if figures is None or figures["sequential"] is None:
        raise ToolFailed("nothing to compare", on=report["repository"]["name"], why=report["summary"]["parallel"])
    alone_s = {one["name"]: one["alone_s"] for one in figures["per_agent"]}
    crew = [one for one in outcomes if one["name"] in alone_s]
    return [one["params"] for one in sorted(crew, key=lambda one: alone_s[one["name"]], reverse=True)]
