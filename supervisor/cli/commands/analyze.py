"""`nightcrew analyze [PATH]`."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from supervisor.cli import common, follow
from supervisor.core.analysis.crew import PHASE
from supervisor.core.analysis.figures import Phase
from supervisor.core.analysis.nouns import Perspective
from supervisor.core.errors import NotFound, UsageError
from supervisor.core.states import TaskState
from supervisor.host.paths import home

if TYPE_CHECKING:
    from supervisor.daemon.analysis import Analysis


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


@click.command()
@click.argument("path", type=click.Path(path_type=Path), required=False)
@click.option("-C", "--repo", type=click.Path(path_type=Path), help="The same as PATH, as the other verbs have it.")
@click.option("-a", "--agents", type=_Agents(), help=f"Which analysts, separated by commas (default: {', '.join(Perspective)}).")
@click.option("--base", help="The commit to look at: a branch, tag or commit (default: the project's base, else HEAD).")
@click.option("--baseline", is_flag=True, help="Run each analyst alone first, and compare: benchmark_results.json.")
@click.option("--together", is_flag=True, help="Let all begin at the same moment, once all are up.")
@click.option("--exclude", multiple=True, metavar="PATTERN", help="Leave out files, such as 'vendor/*' (again for more).")
@click.option("--timeout", type=common.Duration(), help='Of each analyst: "90s", "10m" (default: 10m).')
@click.option("--model", help="Let this model write the summary in prose; it is sent what was found, and your API key pays for it.")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path, file_okay=False), help="Where to write the report (default: with the run's records)."
)
@click.option("-d", "--detach", is_flag=True, help="Do not follow it; nightcrew report RUN shows it later.")
@click.option("--open/--no-open", "opened", default=None, help="Open the report in a browser (default: on a graphical desktop).")
@common.json_option
def command(
    path: Path | None,
    repo: Path | None,
    agents: tuple[Perspective, ...] | None,
    base: str | None,
    baseline: bool,
    together: bool,
    exclude: tuple[str, ...],
    timeout: float | None,
    model: str | None,
    output: Path | None,
    detach: bool,
    opened: bool | None,
    as_json: bool,
) -> int:
    """Look at a Python repository from five perspectives at once, and write a report.

    Each analyst has its own session and worktree; nothing of the repository is run and nothing leaves the machine, unless --model
    asks for it. Ctrl-C only stops following: the analysts go on. Exit code 1 when an analyst did not end well; the others are
    reported all the same.

    \b
    nightcrew analyze
    nightcrew analyze ../shop --agents security,complexity
    nightcrew analyze --baseline --together --json
    """
    from supervisor.cli import progress, prose, reporting
    from supervisor.core.analysis.crew import Wanted
    from supervisor.daemon import analysis, submit

    if path is not None and repo is not None:
        raise UsageError("PATH and -C are the same", why="give one of them", hint="nightcrew analyze --help")
    if timeout is not None and not 0 < timeout <= 86400:
        raise UsageError("bad value for --timeout", why="it is more than nothing and at most a day", hint="nightcrew analyze --timeout 10m")
    asked = path or repo
    place = submit.workplace(asked or Path())
    if asked is not None and asked.resolve() != place.repository.root:
        common.say(f"{asked} is inside {place.repository.root}: all of that is looked at; --exclude leaves parts out")
    given = place.project.analyze
    wanted = Wanted(
        perspectives=agents or given.agents,
        baseline=baseline,
        together=together,
        timeout_s=timeout or given.timeout_s,
        exclude=exclude or given.exclude,
    )
    where = home()
    prepared = analysis.prepare(place, wanted, base, None, os.environ)
    at = f"{place.repository.root.name} at {prepared.submission.base_oid[:7]}"
    if not prepared.extent.files:
        raise NotFound(f"no Python files in {at}", why="there is nothing to analyze", hint="nightcrew analyze PATH, or --base REV")
    output = reporting.place_for(output)
    model = prose.ready(model or place.settings.lead_model)
    accepted = follow.hand_over(where, prepared.submission, place.repository.notes)
    if detach:
        common.say(f"to see what they find: nightcrew report {accepted.run}")
        return follow.say_accepted(accepted, as_json=as_json)
    try:
        views = progress.watch(where, accepted.run, _heading(at, prepared))
    except KeyboardInterrupt:
        common.say(f"the analysts go on; to end them: nightcrew kill {accepted.run}")
        common.say(f"to see what they found: nightcrew report {accepted.run}")
        raise
    prose.write(where, accepted.run, model)
    published = reporting.publish(where, accepted.run, output)
    if as_json:
        click.echo(json.dumps(published.report, indent=2))
    else:
        reporting.print_summary(published)
        reporting.show_in_browser(published.page, wanted=opened)
    return 0 if all(view.state is TaskState.DONE for view in views) else 1


def _heading(at: str, prepared: Analysis) -> str:
    """What is looked at, and by how many: `flask at 5ecf997: 83 Python files, 5 perspectives, 8 tasks (security in 3 parts)`."""
    tasks = prepared.submission.spec.tasks
    parts = Counter(task.params["ANALYST"] for task in tasks if task.params.get(PHASE) == Phase.CREW)
    split = ", ".join(f"{name} in {count} parts" for name, count in parts.items() if count > 1)
    counted = (_count(prepared.extent.files, "Python file"), _count(len(parts), "perspective"), _count(len(tasks), "task"))
    return f"{at}: {', '.join(counted)}" + (f" ({split})" if split else "")


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
