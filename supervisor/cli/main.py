"""`nightcrew`: finds the verb's file, runs it, and turns errors into one line and an exit code.

Verbs are loaded when they are used, so that `status` and completion do not pay for the others.
"""

from __future__ import annotations

import difflib
import importlib
import io
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Any

import click
from click.shell_completion import CompletionItem

from supervisor import __version__
from supervisor.core.errors import ConfigError, NightcrewError, UsageError, one_line
from supervisor.host.import_guard import check_packages

VERBS = {
    "run": "Run a plan of tasks and follow it to its end.",
    "analyze": "Look at a repository from five perspectives, and write a report.",
    "add": "Run one command, or an agent, as a task.",
    "start": "Start an agent with a prompt, and go into its pane.",
    "status": "Show what every agent does.",
    "attach": "Look into an agent's pane, live.",
    "shell": "Open a shell where an agent works.",
    "send": "Type a text into an agent's terminal.",
    "ask": "Ask an agent whose work has ended.",
    "logs": "Show what an agent printed.",
    "wait": "Wait until tasks have ended.",
    "kill": "End tasks and everything that they started.",
    "suspend": "Have agents stand still, with all their memory.",
    "resume": "Let suspended agents go on.",
    "retry": "Run finished tasks again.",
    "report": "Write the report of a run, as it stands.",
    "diff": "Show what a task changed.",
    "take": "Merge a task's result into the current branch.",
    "clean": "Remove worktrees whose work is safe.",
    "kinds": "Show the kinds of agent, and how each is run.",
    "snapshot": "Prepare environments once, and start tasks from them.",
    "fork": "Open environments of a snapshot, to work in by hand.",
    "gateway": "Show how the models' limits are shared, and what it costs.",
    "quota": "Take a ticket of a named quota, or wait for one.",
    "init": "Write a commented nightcrew.toml into a repository.",
    "doctor": "Check this machine and what nightcrew keeps on it.",
    "up": "Start the supervisor.",
    "down": "Stop the supervisor; agents go on.",
    "audit": "Check the record of who was refused, and of keys.",
    "completion": "Print what makes a shell complete verbs and names.",
    "bench": "Measure nightcrew on this machine.",
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

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        verbs = [CompletionItem(name, help=text) for name, text in VERBS.items() if name.startswith(incomplete)]
        return [*verbs, *super(click.Group, self).shell_complete(ctx, incomplete)]  # click.Group's own would import every verb

    def invoke(self, ctx: click.Context) -> Any:
        try:
            code = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            # The reader of our output left (`nightcrew status | head`): nothing is wrong, and Python must not complain at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        return code

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
    nightcrew analyze            look at the repository around you, and write a report
    nightcrew run plan.toml      start the plan's tasks and follow them
    nightcrew status --watch     see what everybody does
    nightcrew attach NAME        look into a pane; detach with Ctrl-b d
    """
    ctx.obj = {"debug": debug}


def main(argv: Sequence[str] | None = None) -> None:
    """The console script. Exits with the error's own code (see supervisor/core/errors.py)."""
    words = list(sys.argv[1:] if argv is None else argv)
    _show_anything()
    try:
        if words[:1] != ["doctor"]:  # which says it among all the rest
            check_packages()
        code = cli.main(args=words, prog_name="nightcrew", standalone_mode=False)
        sys.exit(code if isinstance(code, int) else 0)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)
    except click.exceptions.Exit as error:
        sys.exit(error.exit_code)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        sys.exit(error.exit_code)
    except click.ClickException as error:
        context = getattr(error, "ctx", None)
        hint = f"{context.command_path if context else 'nightcrew'} --help"
        sys.exit(_fail(UsageError(error.format_message().rstrip("."), hint=hint), words))
    except NightcrewError as error:
        sys.exit(_fail(error, words))
    except Exception as error:  # noqa: BLE001 - whatever no verb foresaw is one line too; --debug shows where it came from
        sys.exit(_fail(_as_ours(error), words))


def _show_anything() -> None:
    """A terminal that is not UTF-8 is shown `\\u25cf`, not a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _fail(error: NightcrewError, words: list[str]) -> int:
    """Say it on one line, with a next command in any case. Returns the exit code."""
    if "--debug" in words[:1] or os.environ.get("NIGHTCREW_DEBUG"):
        traceback.print_exc()
    error.hint = error.hint or _next(error, words)
    click.echo(f"nightcrew: {error.line()}", err=True)
    return error.exit_code


def _next(error: NightcrewError, words: list[str]) -> str:
    verb = next((f"nightcrew {word}" for word in words if word in VERBS), "nightcrew")
    match error:
        case UsageError():
            return f"{verb} --help"
        case ConfigError():
            return f"mend it, then {verb} again"
        case _:
            return "nightcrew status"


def _as_ours(error: Exception) -> NightcrewError:
    import sqlite3

    from supervisor.host.paths import home
    from supervisor.ledger import store

    if isinstance(error, sqlite3.Error):  # a ledger that turns out damaged while it is read is explained as when it is opened
        try:
            with store.explained(home().ledger):
                raise error
        except NightcrewError as ours:
            return ours
    why = one_line(f"{type(error).__name__}: {error}")
    return NightcrewError("nightcrew itself failed", why=why, kept="everything that was acknowledged", hint="again, with nightcrew --debug")


if __name__ == "__main__":
    main()
