"""`nightcrew bench analyze`: what the analysts gain by working at once, beside a pool of processes."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import statistics
import subprocess
import tarfile
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from nightcrew.plugins.bench import analyst_pool, crews
from nightcrew.plugins.bench.crews import by_hand, commit_all
from supervisor.host.paths import Home
from supervisor.kernel.errors import NotRunning, ToolFailed, UsageError, last_line
from supervisor.store import queries, sqlite

# Corpus
# ------
# What an analysis is measured on: a repository, a directory or a source distribution, copied so that nothing of the user's is
# touched.


def bring(source: Path, place: Path) -> Path:
    """A repository of one commit at `place` with the files of `source`: a git repository (its HEAD), any other directory, or a `.tar.gz` or
    `.zip` from a package index. Raises UsageError for anything else, ToolFailed when git cannot."""
    if source.is_dir() and (source / ".git").exists():
        by_hand(["git", "clone", "-q", "--no-local", "--depth", "1", source.resolve().as_uri(), str(place)], place.parent)
        return place
    if source.is_dir():
        shutil.copytree(source, place, symlinks=True)
    else:
        _unpack(source, place)
    commit_all(place)
    return place


def _unpack(archive: Path, place: Path) -> None:
    place.mkdir()
    try:
        if tarfile.is_tarfile(archive):
            with tarfile.open(archive) as tar:
                tar.extractall(place, filter="data")
        elif zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as packed:
                packed.extractall(place)  # noqa: S202 - a zip member never leaves the directory: zipfile drops `..` and roots
        else:
            raise UsageError("nothing to measure", on=str(archive), why="it is no directory, .tar.gz or .zip")
    except (OSError, tarfile.TarError, zipfile.BadZipFile) as error:
        raise UsageError("cannot unpack", on=str(archive), why=str(error)) from error


# Analyze
# -------
# `nightcrew bench analyze`: what the five analysts gain by working at once, beside a plain pool of the same pieces.
#
# Everything happens on a copy and in a directory of its own; the user's supervisor, state and repositories are not touched.


Say = Callable[[str], None]


def measure(source: Path, rounds: int, under: Path | None, say: Say) -> dict[str, Any]:
    """Measure and return the report that `nightcrew bench analyze --json` prints; docs/bench.md describes every key. Of several rounds
    the one with the median work at once is reported. Raises what a tool raises; nothing is left running then either."""
    with crews.private_place(under) as root:
        say(f"in {root}")
        repo = bring(source, root / "repo")
        home = Home(root / "home")
        (root / "config.toml").write_text("[limits]\ndisk_free_min = 0\n")
        environ = {**os.environ, "NIGHTCREW_HOME": str(home.root), "NIGHTCREW_CONFIG": str(root / "config.toml")}
        found: list[dict[str, Any]] = []
        try:
            for number in range(rounds):
                say(f"round {number + 1} of {rounds}: one by one, at once, and by a plain pool")
                found.append(_round(repo, home, environ))
        finally:
            _nightcrew(["down", "--now"], root, environ, fine=(0, NotRunning.exit_code))
            crews.end_server(home)
    found.sort(key=lambda one: float(one["work_s"]))
    chosen = found[(len(found) - 1) // 2]
    return {
        **chosen,
        "repo": source.name,
        "rounds": [{key: one[key] for key in ("sequential_s", "parallel_s", "setup_s", "work_s", "pool_s")} for one in found],
        "ratio_to_pool": round(statistics.median(one["work_s"] / one["pool_s"] for one in found), 3),
        "machine": crews.machine(),
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


def _round(repo: Path, home: Home, environ: Mapping[str, str]) -> dict[str, Any]:
    report = json.loads(_nightcrew(["analyze", str(repo), "--baseline", "--together", "--json"], repo, environ))
    if report["run"]["state"] != "done":
        raise ToolFailed("an analyst failed", on=str(repo), why=str(report["summary"]["failed"]))
    with contextlib.closing(sqlite.connect_readonly(home.ledger)) as db:
        crew = orders(report, queries.outcomes(db, report["run"]["id"]))
    return {
        "files": report["summary"]["files"],
        **report["figures"],
        "plainly": report["summary"]["parallel"],
        "pool_s": round(analyst_pool.run(repo, crew, report["figures"]["usable_cores"])[0], 3),
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


def _nightcrew(args: Sequence[str], where: Path, environ: Mapping[str, str], *, fine: tuple[int, ...] = (0,)) -> str:
    """What it printed, also when it says by its exit code that an analyst failed. Raises ToolFailed."""
    done = subprocess.run(
        crews.nightcrew(*args), cwd=where, env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode not in fine and not done.stdout:
        raise ToolFailed(f"nightcrew {args[0]} failed", why=last_line(done.stderr))
    return done.stdout
