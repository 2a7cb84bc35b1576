"""`nightcrew`: finds the verb's file, runs it, and turns errors into one line and an exit code.

Verbs are loaded when they are used, so that `status` and completion do not pay for the others.
"""

from __future__ import annotations

import difflib
import importlib
import os
import sys
import traceback
from collections.abc import Sequence

import click

from supervisor import __version__
from supervisor.core.errors import NightcrewError

VERBS = {
    "run": "Run a plan of tasks and follow it to its end.",
    "add": "Run one command as a task.",
    "status": "Show what every agent does.",
    "attach": "Look into an agent's pane, live.",
    "logs": "Show what an agent printed.",
    "wait": "Wait until tasks have ended.",
    "kill": "End tasks and everything that they started.",
    "retry": "Run finished tasks again.",
    "diff": "Show what a task changed.",
    "take": "Merge a task's result into the current branch.",
    "clean": "Remove worktrees whose work is safe.",
    "up": "Start the supervisor.",
    "down": "Stop the supervisor; agents go on.",
    "bench": "Measure spawning, idling and adopting on this machine.",
}
"""Every verb in the order in which `--help` shows them, with its line there."""


class _Verbs(click.Group):
    """A group that imports `supervisor.cli.commands.<verb>` when the verb is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        if cmd_name not in VERBS:
            return None
        command: click.Command = importlib.import_module(f"supervisor.cli.commands.{cmd_name}").command
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError:
            close = difflib.get_close_matches(args[0], VERBS, n=1)
            known = f"; did you mean {close[0]}?" if close else ""
            raise click.UsageError(f"no verb is called {args[0]!r}{known}", ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's signature
        with formatter.section("Commands"):
            formatter.write_dl(list(VERBS.items()))


@click.command(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, message="nightcrew %(version)s")
@click.option("--debug", is_flag=True, envvar="NIGHTCREW_DEBUG", help="Show the traceback of an error.")
@click.pass_context
def cli(ctx: click.Context, debug: bool) -> None:
    """Supervise many coding agents side by side: one tmux session and one git worktree each.

    \b
    nightcrew run plan.toml      start the plan's tasks and follow them
    nightcrew status --watch     see what everybody does
    nightcrew attach NAME        look into a pane; detach with Ctrl-b d
    """
    ctx.obj = {"debug": debug}


def main(argv: Sequence[str] | None = None) -> None:
    """The console script. Exits with the error's own code (see supervisor/core/errors.py)."""
    debug = "--debug" in (argv or sys.argv) or bool(os.environ.get("NIGHTCREW_DEBUG"))
    try:
        code = cli.main(args=None if argv is None else list(argv), prog_name="nightcrew", standalone_mode=False)
        sys.stdout.flush()
        sys.exit(code if isinstance(code, int) else 0)
    except NightcrewError as error:
        if debug:
            traceback.print_exc()
        click.echo(f"nightcrew: {error.line()}", err=True)
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)
    except click.exceptions.Exit as error:
        sys.exit(error.exit_code)
    except click.ClickException as error:
        click.echo(f"nightcrew: {error.format_message()}; next: {_help_for(error)}", err=True)
        sys.exit(2)
    except BrokenPipeError:
        # The reader of our output left (`nightcrew status | head`): nothing is wrong, and Python must not complain at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)


def _help_for(error: click.ClickException) -> str:
    context = getattr(error, "ctx", None)
    return f"{context.command_path if context else 'nightcrew'} --help"


if __name__ == "__main__":
    main()
