"""`nightcrew add COMMAND...`."""

from __future__ import annotations

import os
from pathlib import Path

import click

from supervisor.cli import common, follow
from supervisor.cli.isolation import network_option
from supervisor.cli.names import any_name, kind_name, snapshot_name
from supervisor.core.errors import UsageError
from supervisor.core.states import TaskClass
from supervisor.host.paths import home


@click.command(context_settings={"allow_interspersed_args": False})
@click.argument("words", nargs=-1, metavar="COMMAND...", type=click.UNPROCESSED)
@click.option("-C", "--repo", type=click.Path(path_type=Path), default=Path(), help="The repository to work on (default: here).")
@click.option("--base", help="Where the worktree starts (default: HEAD).")
@click.option("--id", "name", default="task", show_default=True, help="Its name, for the other verbs.")
@click.option("--title", help="Any text (default: the command).")
@click.option(
    "--kind", show_default="shell", shell_complete=kind_name, help="shell: works by itself. terminal: owns the pane. Others: kinds ls."
)
@click.option("--prompt-file", type=click.Path(), help="What an agent is to do, in place of words.")
@click.option("--model", help="What the agent calls the model that it is to use.")
@click.option("--size", type=click.Choice(["small", "medium", "large", "auto"]), help="How much work it is; auto: measured.")
@click.option("--steps-max", type=click.IntRange(1), help="Turns that the agent may take.")
@click.option("--allow", multiple=True, metavar="TOOL", help="A tool that the agent uses without asking; may be repeated.")
@click.option("--interactive", is_flag=True, default=None, help="The agent's own interface: attach and type.")
@click.option("-p", "--priority", type=click.IntRange(0, 100), show_default="50")
@click.option("--class", "task_class", type=click.Choice([str(item) for item in TaskClass]), show_default="normal")
@click.option("--timeout", type=common.Duration(), help='Stop it after this long: "90s", "30m", "2h".')
@click.option("--gate", metavar="CMD", help="A command that must exit with 0 where the agent was, once that is done.")
@click.option("--gate-timeout", type=common.Duration(), help="Stop the gate after this long (default: 10m).")
@click.option("--retries", type=click.IntRange(0, 100), show_default="0")
@click.option("--best-of", type=click.IntRange(2, 16), help="So many agents try the same; one result counts.")
@click.option("--decide", type=click.Choice(["person", "gate"]), help="Who chooses it, with --best-of (default: person).")
@click.option("--submitter", help="Whose fair share of the starts it counts for (default: the project's).")
@click.option("--not-after", help='Not started after this: "2h", "06:30".')
@click.option("--deadline", help="It goes before others as this gets near.")
@click.option("--after", multiple=True, metavar="NAME", shell_complete=any_name, help="A task that must be done first; may be repeated.")
@click.option("--paths", multiple=True, metavar="GLOB", help="Files that it writes; no other task does meanwhile. May be repeated.")
@click.option("--children-max", type=click.IntRange(1), help="How many tasks its agent may add itself.")
@click.option("--snapshot", shell_complete=snapshot_name, help="Start from this snapshot; it is made when it is not there.")
@click.option("--sandbox", type=click.IntRange(0, 2), help="Isolation tier that it must have (default: 1 where that works).")
@network_option
@click.option("-f", "--follow", "following", is_flag=True, help="Follow it to its end.")
@click.option("--key", help="Idempotency key: the same key twice is one task.")
@common.json_option
def command(
    words: tuple[str, ...], allow: tuple[str, ...], paths: tuple[str, ...], after: tuple[str, ...], repo: Path, following: bool,
    key: str | None, as_json: bool, base: str | None, **options: object,
) -> int:  # fmt: skip
    """Run one command as a task, in a worktree of its own. One word is given to the shell, several are run as they are. For a kind of
    agent that takes a prompt, the words are the prompt.

    \b
    nightcrew add 'make test && make lint'
    nightcrew add --id fix --kind terminal claude
    nightcrew add --kind claude 'Add discounts to prices.py, and commit.'
    nightcrew add --timeout 30m -- ./nightly.sh --all
    nightcrew add --network registry.npmjs.org 'npm ci && npm test'
    """
    from supervisor.daemon import submit

    _refuse_options_in_a_prompt(words, str(options["kind"] or ""))
    options["after"] = common.tasks_named(home(), after) if after else None
    submission, notes = submit.from_words(
        words, {**options, "allow": list(allow) or None, "paths": list(paths) or None}, repo, base, key, os.environ
    )
    return follow.submit_and_follow(home(), submission, notes, detach=not following, as_json=as_json)


def _refuse_options_in_a_prompt(words: tuple[str, ...], kind: str) -> None:
    """A command has options of its own behind it; of a prompt they would become a part, and nobody would notice."""
    from agents.kinds import kinds

    known = {name for option in click.get_current_context().command.params for name in option.opts}
    behind = [word for word in words[1:] if word.partition("=")[0] in known]
    if behind and kind in kinds() and kinds()[kind].is_agent:
        raise UsageError(
            f"{behind[0]} is behind the prompt", why="options go before it", hint="within the quotes of the prompt it is a part of it"
        )
