"""`nightcrew analyze [PATH]`."""

from __future__ import annotations

import json
import os
from pathlib import Path

import click

from supervisor.cli import common, follow
from supervisor.core.analysis.nouns import Perspective
from supervisor.core.states import TaskState
from supervisor.host.paths import home


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


class _Duration(click.ParamType[float]):
    """`90s`, `10m`, `2h`; seconds as a number."""

    name = "duration"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        from supervisor.config.reading import duration

        try:
            seconds = float(duration(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if not 0 < seconds <= 86400:
            self.fail("it is more than nothing and at most a day", param, ctx)
        return seconds


@click.command()
@click.argument("path", type=click.Path(path_type=Path), default=Path())
@click.option("-a", "--agents", type=_Agents(), help=f"Which analysts, separated by commas (default: {', '.join(Perspective)}).")
@click.option("--base", help="The commit to look at: a branch, tag or commit (default: the project's base, else HEAD).")
@click.option("--baseline", is_flag=True, help="Run each analyst alone first, and compare: benchmark_results.json.")
@click.option("--together", is_flag=True, help="Let all begin at the same moment, once all are up.")
@click.option("--exclude", multiple=True, metavar="PATTERN", help="Leave out files, such as 'vendor/*' (again for more).")
@click.option("--timeout", type=_Duration(), help='Of each analyst: "90s", "10m" (default: 10m).')
@click.option("--model", help="Let this model write the summary in prose; it is sent what was found, and your API key pays for it.")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path, file_okay=False), help="Where to write the report (default: with the run's records)."
)
@click.option("-d", "--detach", is_flag=True, help="Do not follow it; nightcrew report shows it later.")
@click.option("--open/--no-open", "opened", default=None, help="Open the report in a browser (default: on a graphical desktop).")
@common.json_option
def command(
    path: Path,
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

    place = submit.workplace(path)
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
    accepted = follow.hand_over(where, prepared.submission, place.repository.notes)
    if detach:
        return follow.say_accepted(accepted, as_json=as_json)
    files = f"{prepared.extent.files:,} Python file{'' if prepared.extent.files == 1 else 's'}"
    heading = f"{place.repository.root.name} at {prepared.submission.base_oid[:10]}: {files}"
    try:
        views = progress.watch(where, accepted.run, heading)
    except KeyboardInterrupt:
        common.say(f"the analysts go on; nightcrew report {accepted.run}, or nightcrew kill {accepted.run}")
        raise
    prose.write(where, accepted.run, model or place.settings.lead_model)
    published = reporting.publish(where, accepted.run, output)
    if as_json:
        click.echo(json.dumps(published.report, indent=2))
    else:
        reporting.print_summary(published)
        reporting.show_in_browser(published.page, wanted=opened)
    return 0 if all(view.state is TaskState.DONE for view in views) else 1
