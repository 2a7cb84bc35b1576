"""`nightcrew clean`."""

from __future__ import annotations

import click

from supervisor.cli import common
from supervisor.cli.names import ended_name
from supervisor.core.errors import Refused, UsageError, one_line
from supervisor.host.paths import home


@click.command()
@click.argument("names", nargs=-1, shell_complete=ended_name)
@click.option("-y", "--yes", is_flag=True, help="Remove what can be removed.")
@click.option("--ignored", is_flag=True, help="Also those that hold ignored files only: caches, build output.")
@click.option("--discard", is_flag=True, help="Also remove the named ones whose work is only on their rescue ref.")
@common.json_option
def command(names: tuple[str, ...], yes: bool, ignored: bool, discard: bool, as_json: bool) -> None:
    """Show which worktrees can be removed and why not the rest; with --yes remove them.

    A worktree can be removed when its task has ended, it is clean, its work is merged (a squash merge counts) or empty, and nothing
    runs inside. Ignored files are a reason to stay unless --ignored is given. All the rest stays reachable under
    refs/nightcrew/rescue/.

    \b
    nightcrew clean
    nightcrew clean --yes 1121-k3f9
    """
    from supervisor.daemon import protocol, start

    if discard and not names:
        raise UsageError("--discard needs names", why="it removes worktrees whose work is not merged", hint="nightcrew clean")
    where = home()
    wanted = common.tasks_named(where, names) if names else None
    start.ensure_running(where, common.settings_file(), common.say)
    answer = protocol.call(
        where.daemon_socket, "clean", {"tasks": wanted, "remove": yes, "ignored": ignored, "discard": discard}, timeout_s=600.0
    )
    if as_json:
        common.print_json(**answer)
    else:
        _print(answer, yes)
    if yes and names and answer["kept"]:
        raise Refused(
            "not removed",
            on=f"{len(answer['kept'])} of the named worktrees",
            why=answer["kept"][0]["why"],
            kept="them as they were",
            hint="nightcrew take NAME, or nightcrew clean --yes --discard NAME",
        )


def _print(answer: dict[str, list[dict[str, str]]], yes: bool) -> None:
    for item in answer["removable"]:
        click.echo(f"{'removed' if yes else 'would remove'}  {item['attempt']}  {item['path']}")
    for item in answer["kept"]:
        click.echo(f"keep          {item['attempt']}  {one_line(item['why'])}")
    if answer["removable"] and not yes:
        common.say("nothing was removed; next: nightcrew clean --yes")
    if not answer["removable"] and not answer["kept"]:
        common.say("no worktrees")
