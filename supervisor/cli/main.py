"""`nightcrew`: find a verb, run it, and turn errors into one line and an exit code."""

from __future__ import annotations

import difflib
import importlib
import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from typing import Any

import click
from click.shell_completion import CompletionItem

from supervisor import __version__
from supervisor.client import terminal
from supervisor.host.import_guard import check_packages
from supervisor.kernel.errors import ConfigError, NightcrewError, UsageError, one_line

# Lazy group
# ----------
# A group of verbs that are imported when they are used, so that no verb and no completion pays for the others.


class LazyGroup(click.Group):
    """A group whose verbs are imported when they are used."""

    def __init__(self, places: Mapping[str, str], verbs: Mapping[str, str], **more: Any) -> None:
        """`places`: the command of each verb as `module:name`; `verbs`: its line in `--help`, in the order in which that shows them."""
        super().__init__(**more)
        self._places, self._verbs = places, verbs

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(self._verbs)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        place = self._places.get(cmd_name) or self.other_places().get(cmd_name)
        if place is None:
            return None
        module, _, name = place.partition(":")
        command: click.Command = getattr(importlib.import_module(module), name)
        return command

    def other_places(self) -> Mapping[str, str]:
        """Return the commands that other packages add, as `module:name` by verb."""
        return {}

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        verbs = [CompletionItem(name, help=text) for name, text in self._verbs.items() if name.startswith(incomplete)]
        return [*verbs, *super(click.Group, self).shell_complete(ctx, incomplete)]  # click.Group's own would import every verb

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError:
            close = difflib.get_close_matches(args[0], self._verbs, n=1)
            known = f"; did you mean {close[0]}?" if close else ""
            raise click.UsageError(f"no verb is called {args[0]!r}{known}", ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's signature
        with formatter.section("Commands"):
            formatter.write_dl(list(self._verbs.items()))
        if others := self.other_places():
            with formatter.section("Commands of other packages"):
                formatter.write_dl([(verb, place.partition(":")[0].partition(".")[0]) for verb, place in sorted(others.items())])


# Main
# ----
# `nightcrew`: finds the verb's file, runs it, and turns errors into one line and an exit code.
#
# Verbs are loaded when they are used, so that `status` and completion do not pay for the others.


_TABLE = {
    "run": ("supervisor.cli.start:command_run", "Run a plan of tasks and follow it to its end."),
    "night": ("supervisor.features.night.commands:command_night", "Run a plan through the night, within a deadline and a cost cap."),
    "analyze": ("nightcrew.plugins.analyze.commands:command", "Look at a repository from five perspectives, and write a report."),
    "add": ("supervisor.cli.start:command_add", "Run one command, or an agent, as a task."),
    "start": ("supervisor.cli.start:command", "Start an agent with a prompt, and go into its pane."),
    "status": ("supervisor.cli.status:command", "Show what every agent does."),
    "top": ("supervisor.cli.attach:command_top", "Run the crew from one screen."),
    "web": ("supervisor.cli.attach:command_web", "Show the crew on a page of this machine, and act there."),
    "popup": ("supervisor.cli.attach:command_popup", "Print the tmux binding that opens the screen in a popup."),
    "statusline": ("supervisor.cli.status:command_statusline", "Print the crew in a few characters, for tmux or a prompt."),
    "attach": ("supervisor.cli.attach:command", "Look into an agent's pane, live."),
    "shell": ("supervisor.cli.attach:command_shell", "Open a shell where an agent works."),
    "send": ("supervisor.cli.start:command_send", "Type a text into an agent's terminal."),
    "answer": ("supervisor.cli.start:command_answer", "Allow or deny what an agent asks on its screen."),
    "mail": ("memory.mail_commands:command", "Write to agents, and read what they write."),
    "ask": ("supervisor.cli.start:command_ask", "Ask an agent whose work has ended."),
    "logs": ("supervisor.cli.logs:command", "Show what an agent said and did, or printed."),
    "wait": ("supervisor.cli.tasks:command_wait", "Wait until tasks have ended."),
    "kill": ("supervisor.cli.tasks:command_kill", "End tasks and everything that they started."),
    "pause": ("supervisor.cli.tasks:command_pause", "Hold tasks back; agents stand still with all their memory."),
    "resume": ("supervisor.cli.tasks:command_resume", "Let paused tasks go on."),
    "stop-all": ("supervisor.cli.emergency:command_stop_all", "Stop everything at once: no agent moves, no model is asked."),
    "thaw": ("supervisor.cli.emergency:command_thaw", "Let everything go on that stop-all stopped."),
    "map": ("supervisor.features.map.commands:command", "Do the same with each of many items, by many workers."),
    "retry": ("supervisor.cli.tasks:command_retry", "Run finished tasks again."),
    "trace": ("supervisor.features.trace.commands:command", "Show what took the time of a task or a run, as a waterfall."),
    "report": ("supervisor.cli.logs:command_report", "Write the report of a run, as it stands."),
    "diff": ("supervisor.cli.logs:command_diff", "Show what a task changed."),
    "conflicts": ("supervisor.features.conflicts:command", "Show which results would conflict."),
    "review": ("supervisor.features.review.commands:command", "Look at a result before it is merged, and comment it."),
    "compare": ("supervisor.features.best_of:command_compare", "Rank the candidates of a task that is tried several times."),
    "choose": ("supervisor.features.best_of:command_choose", "Choose the candidate whose result counts."),
    "take": ("supervisor.features.landing.commands:command_take", "Merge a task's result into the current branch."),
    "land": ("supervisor.features.landing.commands:command_land", "Merge results in a train: gated together, moved at the end."),
    "pr": ("supervisor.features.pull_requests.commands:command", "Push a task's result, and open a pull request."),
    "restore": ("supervisor.features.landing.commands:command_restore", "Bring back what a task left, as a branch."),
    "clean": ("supervisor.features.retention.commands:command", "Remove worktrees whose work is safe."),
    "kinds": ("supervisor.cli.setup:command_kinds", "Show the kinds of agent, and try them."),
    "trust": ("supervisor.cli.setup:command_trust", "Tell agents that you trust a repository, once."),
    "snapshot": ("supervisor.snapshots.commands:command_snapshot", "Prepare environments once, and start tasks from them."),
    "fork": ("supervisor.snapshots.commands:command_fork", "Open environments of a snapshot, to work in by hand."),
    "capacity": ("supervisor.features.capacity.commands:command", "Show how many agents the machine and the models carry."),
    "gateway": ("supervisor.cli.gateway:command", "Show how the models' limits are shared, and what it costs."),
    "engine": ("supervisor.features.engines.commands:command", "Show the engines that serve models on this machine."),
    "metrics": ("supervisor.features.metrics.commands:command", "Let Prometheus scrape the crew."),
    "mcp": ("supervisor.features.mcp.commands:command", "Serve the crew as tools to a coding agent of yours."),
    "mem": ("memory.mem_commands:command", "Show and change what agents know together."),
    "token": ("supervisor.features.api.commands:command", "Let programs hand tasks over by HTTP, and take that back."),
    "quota": ("supervisor.features.quotas.commands:command", "Take a ticket of a named quota, or wait for one."),
    "notify": ("supervisor.features.notify.commands:command", "Show how you are told of what matters, and try it."),
    "init": ("supervisor.cli.setup:command_init", "Write a commented nightcrew.toml into a repository."),
    "doctor": ("supervisor.cli.setup:command_doctor", "Check this machine and what nightcrew keeps on it."),
    "up": ("supervisor.cli.crew:command_up", "Start the supervisor."),
    "service": ("supervisor.features.service:command", "Have the supervisor start at login, and again after a crash."),
    "down": ("supervisor.cli.crew:command_down", "Stop the supervisor; agents go on."),
    "audit": ("supervisor.features.audit.commands:command", "Show what was done and why, and check the record of it."),
    "completion": ("supervisor.cli.setup:command_completion", "Print what makes a shell complete verbs and names."),
    "bench": ("nightcrew.plugins.bench.commands:command", "Measure nightcrew on this machine."),
}
"""Every verb in the order in which `--help` shows them: its command as `module:name`, which is imported when the verb is used, and its line
there."""
PLACES = {verb: place for verb, (place, _) in _TABLE.items()}
VERBS = {verb: line for verb, (_, line) in _TABLE.items()}


class _Verbs(LazyGroup):
    """All of them; what they print may go to somebody who leaves."""

    def other_places(self) -> Mapping[str, str]:
        from supervisor import contract

        return {verb: place for feature in contract.others() for verb, place in feature.commands.items() if verb not in PLACES}

    def invoke(self, ctx: click.Context) -> Any:
        try:
            code = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            # The reader of our output left (`nightcrew status | head`): nothing is wrong, and Python must not complain at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        return code


@click.command(
    cls=_Verbs,
    places=PLACES,
    verbs=VERBS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
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
    """The console script. Exits with the error's own code (see supervisor/kernel/errors.py)."""
    words = list(sys.argv[1:] if argv is None else argv) or _alone()
    terminal.guard()
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


def _alone() -> list[str]:
    """What `nightcrew` without a verb means: the screen where somebody sits and there is a crew, else the help."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()) or os.environ.get("TERM", "dumb") == "dumb":
        return []
    from supervisor.host.paths import home

    return ["top"] if home().ledger.exists() else []


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
    from supervisor.store import sqlite

    if isinstance(error, sqlite3.Error):  # a ledger that turns out damaged while it is read is explained as when it is opened
        try:
            with sqlite.explained(home().ledger):
                raise error
        except NightcrewError as ours:
            return ours
    why = one_line(f"{type(error).__name__}: {error}")
    return NightcrewError("nightcrew itself failed", why=why, kept="everything that was acknowledged", hint="again, with nightcrew --debug")


if __name__ == "__main__":
    main()
