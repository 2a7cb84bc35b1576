"""`nightcrew analyze [PATH]`."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from agents.kinds import kinds
from supervisor.client import common, follow, submit
from supervisor.client.submit import Workplace
from supervisor.host import cores
from supervisor.host.paths import Home, home
from supervisor.kernel.errors import NotFound, UsageError
from supervisor.kernel.format import many
from supervisor.kernel.spec import RunSpec, Submission
from supervisor.results import analysis as results
from supervisor.results.analysis import PHASE, Phase, Wanted
from supervisor.results.findings import Perspective
from worktrees.repository import Extent, extent, resolve

if TYPE_CHECKING:
    from supervisor.config.project import Analyze
    from supervisor.store.queries import TaskView
    from worktrees.repository import Repository


# Commands
# --------


class _Agents(click.ParamType[tuple[Perspective, ...]]):
    """Names of perspectives, separated by commas."""

    name = "names"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[Perspective, ...]:
        if isinstance(value, tuple):
            return value
        names = [name.strip() for name in str(value).split(",") if name.strip()]
        unknown = [name for name in names if name not in set(Perspective)]
        if unknown or not names:
            self.fail(f"{unknown[0] if unknown else value!r} is no analyst; there are {', '.join(Perspective)}", param, ctx)
        return tuple(name for name in Perspective if name in names)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG002 - click's signature
        before, comma, last = incomplete.rpartition(",")
        given = before.split(",")
        return [CompletionItem(before + comma + name) for name in Perspective if name.startswith(last) and name not in given]


class _Timeout(common.Duration):
    """A duration that an analyst can have."""

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        seconds = super().convert(value, param, ctx)
        if not 0 < seconds <= 86400:
            self.fail("it is more than nothing and at most a day", param, ctx)
        return seconds


@dataclass(frozen=True, slots=True)
class _Asked:
    """The command line, as click read it."""

    path: Path | None
    repo: Path | None
    agents: tuple[Perspective, ...] | None
    base: str | None
    baseline: bool
    together: bool
    exclude: tuple[str, ...]
    timeout: float | None
    """Seconds."""
    model: str | None
    output: Path | None
    detach: bool
    opened: bool | None
    as_json: bool


@click.command()
@click.argument("path", type=click.Path(path_type=Path), required=False)
@click.option("-C", "--repo", type=click.Path(path_type=Path), help="The same as PATH, as the other verbs have it.")
@click.option("-a", "--agents", type=_Agents(), help=f"Which analysts, separated by commas (default: {', '.join(Perspective)}).")
@click.option("--base", help="The commit to look at: a branch, tag or commit (default: the project's base, else HEAD).")
@click.option("--baseline", is_flag=True, help="Run each analyst alone first, and compare: benchmark_results.json.")
@click.option("--together", is_flag=True, help="Let all begin at the same moment, once all are up.")
@click.option("--exclude", multiple=True, metavar="PATTERN", help="Leave out files, such as 'vendor/*' (again for more).")
@click.option("--timeout", type=_Timeout(), help='Of each analyst: "90s", "10m" (default: 10m).')
@click.option("--model", help="Let this model write the summary in prose; it is sent what was found, through the gateway.")
@common.output_option
@click.option("-d", "--detach", is_flag=True, help="Do not follow it; nightcrew report RUN shows it later.")
@click.option("--open/--no-open", "opened", default=None, help="Open the report in a browser (default: on a graphical desktop).")
@common.json_option
def command(**typed: Any) -> int:
    """Look at a Python repository from five perspectives at once, and write a report.

    Each analyst has its own session and worktree; nothing of the repository is run and nothing leaves the machine, unless --model
    asks for it. Ctrl-C only stops following: the analysts go on. Exit code 1 when an analyst did not end well; the others are
    reported all the same.

    \b
    nightcrew analyze
    nightcrew analyze ../shop --agents security,complexity
    nightcrew analyze --baseline --together --json
    """
    from supervisor.cli import reporting

    asked, where = _Asked(**typed), home()
    place = _workplace(asked.path, asked.repo)
    prepared = _prepared(place, asked)
    output = reporting.place_for(asked.output)
    accepted = follow.hand_over(where, prepared.submission, place.repository.notes)
    if asked.detach:
        common.say(f"to see what they find: nightcrew report {accepted.run}")
        return follow.say_accepted(accepted, as_json=asked.as_json)
    views = _follow(where, accepted.run, _heading(place, prepared))
    published = reporting.publish(where, _report(where, accepted.run, asked.model or place.settings.lead_model), output)
    reporting.show(published, as_json=asked.as_json, opened=asked.opened)
    return follow.exit_code(views)


def _workplace(path: Path | None, repo: Path | None) -> Workplace:
    """Where to look. What is around a directory is looked at whole, and that is said."""
    from supervisor.client import submit

    if path is not None and repo is not None:
        raise UsageError("PATH and -C are the same", why="give one of them", hint="nightcrew analyze --help")
    asked = path or repo
    place = submit.workplace(asked or Path())
    if asked is not None and asked.resolve() != place.repository.root:
        common.say(f"{asked} is inside {place.repository.root}: all of that is looked at; --exclude leaves parts out")
    return place


def _prepared(place: Workplace, asked: _Asked) -> Analysis:
    """The analysis to hand over. Raises NotFound when there is nothing to look at."""
    from nightcrew.plugins.analyze import commands

    prepared = commands.prepare(place, _wanted(asked, place.project.analyze, place.settings.lead_model), asked.base, None, os.environ)
    if not prepared.extent.files:
        raise NotFound(
            f"no Python files in {_at(place, prepared)}", why="there is nothing to analyze", hint="nightcrew analyze PATH, or --base REV"
        )
    if without := _without_a_match(place.repository, prepared.submission.base_oid, asked.exclude):
        common.say(f"no Python file matches --exclude {', '.join(map(repr, without))}")
    return prepared


def _wanted(asked: _Asked, given: Analyze, model: str) -> Wanted:
    """What was typed, and what the project or the settings (`model`) say where nothing was."""
    from supervisor.results.analysis import Wanted

    return Wanted(
        perspectives=asked.agents or given.agents,
        baseline=asked.baseline,
        together=asked.together,
        timeout_s=asked.timeout or given.timeout_s,
        exclude=asked.exclude or given.exclude,
        model=asked.model or model,
    )


def _without_a_match(repository: Repository, commit: str, patterns: Sequence[str]) -> list[str]:
    """The patterns by which no Python file of the commit is left out."""
    from nightcrew.plugins.analyze.analyst import Excluded
    from nightcrew.plugins.analyze.sources import Source, tracked
    from worktrees.git import BULK_S

    if not patterns:
        return []
    listed = repository.git.run(repository.store, "ls-tree", "-r", "-z", "--full-tree", commit, deadline_s=BULK_S)
    names = [Source(name, 0).shown for name in tracked(listed.out)]  # an entry of ls-tree has its mode and name where one of ls-files has
    return [pattern for pattern in patterns if not any(map(Excluded([pattern]), names))]


def _follow(where: Home, run: str, heading: str) -> list[TaskView]:
    from supervisor.client import follow

    try:
        return follow.watch(where, run, heading)
    except KeyboardInterrupt:
        common.say(f"the analysts go on; to end them: nightcrew kill {run}")
        common.say(f"to see what they found: nightcrew report {run}")
        raise


def _report(where: Home, run: str, model: str) -> dict[str, Any]:
    """The report of the run. Where `model` was to write prose and did not, that is said."""
    from supervisor.cli import reporting

    report = reporting.build(where, run)
    if model and report["prose"] is None:
        common.say(f"no prose; nightcrew logs {run}/lead says why, and the report is whole without it")
    return report


def _heading(place: Workplace, prepared: Analysis) -> str:
    """What is looked at, and by how many: `flask at 5ecf997: 83 Python files, 5 perspectives, 8 tasks (security in 3 parts)`."""
    tasks = prepared.submission.spec.tasks
    parts = Counter(task.params["ANALYST"] for task in tasks if task.params.get(PHASE) == Phase.CREW)
    split = ", ".join(f"{name} in {count} parts" for name, count in parts.items() if count > 1)
    counted = (many(prepared.extent.files, "Python file"), many(len(parts), "perspective"), many(len(tasks), "task"))
    return f"{_at(place, prepared)}: {', '.join(counted)}" + (f" ({split})" if split else "")


def _at(place: Workplace, prepared: Analysis) -> str:
    return f"{place.repository.root.name} at {prepared.submission.base_oid[:7]}"


# Submission
# ----------
# From `nightcrew analyze` to a submission: how large the repository is decides how many analysts share it.


@dataclass(frozen=True, slots=True)
class Analysis:
    """What will be handed over, and what was seen of the repository to decide it."""

    submission: Submission
    extent: Extent
    cores: int
    """That the analysts may use."""


def prepare(place: Workplace, wanted: Wanted, base: str | None, key: str | None, environ: Mapping[str, str]) -> Analysis:
    """The crew for the repository at `place`. Raises NotFound when `base` names no commit, ToolFailed when git cannot read it."""
    base = base if base is not None else place.project.base or "HEAD"
    commit = resolve(place.repository, base)
    seen = extent(place.repository, commit, ".py")
    mine = usable_cores(place)
    shards = results.shards(wanted.perspectives, seen.files, seen.size, mine, place.settings.slots)
    tasks = results.crew(wanted, shards, mine, {name: kinds()[name].program for name in ("analyst", "lead")})
    spec = RunSpec(title=f"analysis of {place.repository.root.name}", tasks=tasks, base=base)
    return Analysis(submit.submission(spec, place, None, key, environ), seen, mine)


def usable_cores(place: Workplace) -> int:
    """How many cores the analysts have: all that agents may use."""
    return len(cores.for_agents(place.settings.cores_reserve))
