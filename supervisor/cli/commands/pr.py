"""`nightcrew pr push`, `pr sync` and `pr ls`."""

from __future__ import annotations

import os
from typing import Any

import click

from supervisor.cli import common
from supervisor.cli.names import done_name
from supervisor.host.paths import home


class _Pr(click.Group):
    """A name that is no verb of the group is a result to push."""

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in self.commands:
            args = ["push", *args]
        return super().resolve_command(ctx, args)


@click.group(name="pr", cls=_Pr)
def command() -> None:
    """Push a result to a remote with your own git, and open a pull request; docs/pull-requests.md.

    \b
    nightcrew pr lint            push its branch, open a draft (pr push lint)
    nightcrew pr sync lint       give its agent what came back
    nightcrew pr ls              the pull requests of this repository
    """


@command.command()
@click.argument("name", shell_complete=done_name)
@click.option("--remote", default="", metavar="NAME", help="Where to (default: what the base branch tracks, else origin).")
@click.option("--branch", default="", metavar="NAME", help="Its name on the remote (default: the task's branch).")
@click.option("--base", default="", metavar="BRANCH", help="What it is to be merged into (default: the branch of your checkout).")
@click.option("--title", default="", metavar="TEXT", help="Of the pull request (default: the task's).")
@click.option("--ready", is_flag=True, help="Not as a draft.")
@click.option("--no-prompt", is_flag=True, help="Leave the prompt out of the description.")
@click.option("--with", "tool", type=click.Choice(["gh", "glab", "link"]), help="What opens it (default: what knows the host).")
@click.option("--force", is_flag=True, help="Also a result that was rejected, that failed, or that nobody chose.")
@click.option("--yes", is_flag=True, help="Agree to push to that remote.")
@click.option("--dry-run", is_flag=True, help="Only say what would be pushed where, and the description.")
@click.option("--status", "only_status", is_flag=True, help="Only show what is known of its pull request.")
@common.json_option
def push(name: str, as_json: bool, only_status: bool, **options: Any) -> None:
    """Push the commits of one task to a branch of a remote, and open a pull request or bring it up to date.

    What goes where is shown, and asked for the first time of each remote. git runs with your own login and settings; gh or glab open the
    pull request where they know the host, else a link is printed. Nothing is overwritten that was not pushed by this command.

    \b
    nightcrew pr push lint
    nightcrew pr lint --remote fork --branch tidy --ready
    nightcrew pr lint --dry-run
    """
    from supervisor.cli import pull_order, pulling

    environ = dict(os.environ)  # before anything of ours takes git's variables out of it
    where = home()
    if only_status:
        pulling.show(where, name, as_json=as_json)
        return
    said = pulling.push(where, name, pull_order.Options(**options), environ)
    if as_json:
        common.print_json(**said)
    elif said["link"]:
        click.echo(said["link"])


@command.command()
@click.argument("name", shell_complete=done_name)
@click.option("--rounds", type=int, metavar="N", help="How often its agent may be given what came back (default: 5).")
@click.option("--everyone", is_flag=True, help="Also what people wrote who may not write to that repository.")
@click.option("--with", "tool", type=click.Choice(["gh", "glab"]), help="What asks the host (default: what opened it).")
@click.option("--dry-run", is_flag=True, help="Only print what its agent would be given.")
@common.json_option
def sync(name: str, as_json: bool, **options: Any) -> None:
    """Give the agent of a pull request what came back: reviews, comments, failed checks. Each once, and only when you say so.

    A living agent gets it as its next prompt; one that has ended goes on in a task of its own, with its work. Then nightcrew pr
    pushes what it made to the same pull request.

    \b
    nightcrew pr sync lint --dry-run
    nightcrew pr sync lint
    """
    from supervisor.cli import pull_sync

    environ = dict(os.environ)
    said = pull_sync.sync(home(), name, {**options, "json": as_json}, environ)
    if as_json:
        common.print_json(**said)
    elif said["to"]:
        click.echo(said["to"])


@command.command(name="ls")
@common.json_option
def list_all(as_json: bool) -> None:
    """List the pull requests of the repository around you, as they were known last; the newest first.

    \b
    nightcrew pr ls --json
    """
    from supervisor.cli import pulling

    pulling.list_all(home(), as_json=as_json)
