"""`run`, `add`, `start`, `ask`, `send` and `answer`: give work and words to agents."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from supervisor.client import common, follow
from supervisor.client.resolving import agent_name, any_name, ended_name, kind_name, running_name, snapshot_name
from supervisor.host.paths import Home, home
from supervisor.kernel import spec
from supervisor.kernel.errors import NotFound, TimedOut, UsageError, one_line
from supervisor.kernel.kind import Kind, version
from supervisor.kernel.spec import By, Key, TaskSpec
from supervisor.kernel.states import AttemptState, TaskState
from supervisor.store import queries
from supervisor.views import status

if TYPE_CHECKING:
    from supervisor.store.queries import TaskView


# Options
# -------
# Options of the verbs that give a task, made from its keys.


_SHORT = {"priority": ["-p"]}
_COMPLETE = {"kind": kind_name, "snapshot": snapshot_name}
Command = TypeVar("Command", bound=Callable[..., Any])


def task_options(by: By) -> Callable[[Command], Command]:
    """An option for each key of a task that may be given there; None is passed for one that was not given."""

    def decorate(command: Command) -> Command:
        for key in reversed(spec.given_by(TaskSpec, by).values()):
            command = _option(key)(command)
        return command

    return decorate


def _option(key: Key) -> Callable[[Command], Command]:
    how: dict[str, Any] = {"type": click.Choice(key.choices)} if key.choices else {}
    if key.unit == "s":
        how["type"] = common.Duration()
    elif key.type in (int, float) and not key.unit:  # what must be above a bound is refused where plans are read
        kind: Any = click.IntRange if key.type is int else click.FloatRange
        how["type"] = kind(key.least, key.most)
    if key.type is bool:
        how |= {"is_flag": True, "default": None}
    if key.many:
        how |= {"multiple": True, "callback": lambda _ctx, _param, value: list(value) or None}
    words = f"{key.help.removesuffix('.')}; may be repeated." if key.many else key.help
    if key.unset and key.type is not bool and not key.many:
        how["show_default"] = str(key.unset)
    names = [*_SHORT.get(key.name, ()), f"--{key.name.replace('_', '-')}", key.parameter]
    return click.option(*names, help=words, metavar=key.metavar or None, shell_complete=_COMPLETE.get(key.name), **how)


# Run
# ---
# `nightcrew run PLAN`.


@click.command()
@click.argument("plan", type=click.Path(path_type=Path))
@click.option("-C", "--repo", type=click.Path(path_type=Path), default=Path(), help="The repository to work on (default: here).")
@click.option("--base", help="Where worktrees start: a branch, tag or commit (default: the plan's base, else HEAD).")
@click.option("-d", "--detach", is_flag=True, help="Do not follow the run; return when it is accepted.")
@click.option("--key", help="Idempotency key: the same key twice is one run.")
@common.json_option
def command_run(plan: Path, repo: Path, base: str | None, detach: bool, key: str | None, as_json: bool) -> int:
    """Run a plan of tasks and follow it to its end.

    Starts the supervisor when none runs. Ctrl-C only stops following: the tasks go on. Exit code 1 when a task did not end well.

    \b
    nightcrew run plan.toml
    nightcrew run plan.toml -C ../shop --base main
    nightcrew run plan.toml -d --json
    """
    from supervisor.client import submit

    submission, notes = submit.from_plan(plan, repo, base, key, os.environ)
    return follow.submit_and_follow(home(), submission, notes, detach=detach, as_json=as_json)


# Add
# ---
# `nightcrew add COMMAND...`.


@click.command(context_settings={"allow_interspersed_args": False})
@click.argument("words", nargs=-1, metavar="COMMAND...", type=click.UNPROCESSED)
@click.option("-C", "--repo", type=click.Path(path_type=Path), default=Path(), help="The repository to work on (default: here).")
@click.option("--base", help="Where the worktree starts (default: HEAD).")
@click.option("--id", default="task", show_default=True, help="Its name, for the other verbs.")
@task_options(By.ADD)
@click.option("--prompt-file", type=click.Path(), help="What an agent is to do, in place of words.")
@click.option("--gate", metavar="CMD", help="A command that must exit with 0 where the agent was, once that is done.")
@click.option("--best-of", type=click.IntRange(2, 16), help="So many agents try the same; one result counts.")
@click.option("--decide", type=click.Choice(["person", "gate"]), help="Who chooses it, with --best-of (default: person).")
@click.option("--after", multiple=True, metavar="NAME", shell_complete=any_name, help="A task that must be done first; may be repeated.")
@common.network_option
@click.option("-f", "--follow", "following", is_flag=True, help="Follow it to its end.")
@click.option("--key", help="Idempotency key: the same key twice is one task.")
@common.json_option
def command_add(
    words: tuple[str, ...], after: tuple[str, ...], repo: Path, following: bool, key: str | None, as_json: bool, base: str | None,
    **options: object,
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
    from supervisor.client import submit

    _refuse_options_in_a_prompt(words, str(options["kind"] or ""))
    options["after"] = common.tasks_named(home(), after) if after else None
    submission, notes = submit.from_words(words, options, repo, base, key, os.environ)
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


# Start
# -----
# `nightcrew start PROMPT`.


SLOT_S = 30.0
"""An agent that has no pane after this long waits for a slot or for its snapshot: the person is not kept."""
LOOK_S = 0.05
VERSION_S = 10.0
"""Time limit for a program to print its version: command lines in Node take a second on a busy machine."""


@click.command()
@click.argument("prompt", required=False)
@click.option("--kind", shell_complete=kind_name, help="The kind of agent (default: `[agents] kind` of config.toml, claude).")
@click.option("--name", help="Its name, for the other verbs (default: its kind).")
@task_options(By.START)
@click.option("--base", help="Where its worktree starts (default: HEAD).")
@click.option("--headless", is_flag=True, help="It works by itself; its own interface is not shown.")
@click.option("-C", "--repo", type=click.Path(path_type=Path), default=Path(), help="The repository to work on (default: here).")
@common.json_option
def command(prompt: str | None, kind: str | None, headless: bool, repo: Path, base: str | None, as_json: bool, **options: object) -> int:
    """Start an agent with PROMPT, in a worktree of its own, and go into its pane. Ctrl-b d leaves it; it goes on.

    PROMPT - is read from stdin. Without PROMPT your editor asks for it; what is saved empty starts an agent without one. Without a
    terminal, or with --headless or --json, the agent works by itself and its full name is printed.

    \b
    nightcrew start 'Find out why the tests are slow.'
    nightcrew start --kind codex --headless 'Add type hints, and commit.'
    nightcrew start --headless - < task.md
    """
    from agents.kinds import kinds
    from supervisor.client import submit

    attended = not headless and not as_json and prompt != "-" and sys.stdin.isatty() and sys.stdout.isatty()
    text = _prompt(prompt, attended)
    place = submit.workplace(repo)
    chosen = kind or place.settings.agent_kind
    own = {"kind": chosen, "id": options.pop("name") or chosen, "interactive": attended}
    attended_too = {"task_class": "interactive", "retries": 0} if attended else {}
    submission, notes = submit.of_prompt(text, {**options, **own, **attended_too}, place, base, os.environ)
    asked = _ask_version(kinds()[chosen])
    accepted = follow.hand_over(home(), submission, notes)
    if asked is not None and (older := _older(kinds()[chosen], asked)):
        common.say(older)
    if not attended:
        return follow.say_accepted(accepted, as_json=as_json)
    return _attach(accepted.tasks[0])


def _ask_version(kind: Kind) -> subprocess.Popen[str] | None:
    """Ask a kind's program which version it is, while the task is handed over; None for one of ours, and for one that cannot be asked."""
    program = shutil.which(kind.binary) if kind.version else None
    if program is None:
        return None
    quiet = subprocess.DEVNULL
    with contextlib.suppress(OSError):
        return subprocess.Popen([program, "--version"], stdin=quiet, stdout=subprocess.PIPE, stderr=quiet, text=True)
    return None


def _older(kind: Kind, asked: subprocess.Popen[str]) -> str:
    """Return what to say of a program that is older than what its kind was tried with; empty when it is not, or does not answer."""
    try:
        said, _ = asked.communicate(timeout=VERSION_S)
    except subprocess.TimeoutExpired:
        asked.kill()
        asked.communicate()
        return ""
    if not version(said) or version(said) >= version(kind.version):
        return ""
    found = one_line(said.strip().splitlines()[0])[:60]
    return (
        f"{kind.binary} is {found}, older than {kind.version}, with which nightcrew was tried: its dialogs may not be understood, and its "
        f"conversations may not go on; update it, then nightcrew kinds test {kind.name}"
    )


def _prompt(given: str | None, attended: bool) -> str | None:
    """What was typed; from stdin for `-`; else from the editor where there is a person. None: no prompt."""
    if given == "-":
        return sys.stdin.buffer.read().decode("utf-8", "replace")
    if given is not None:
        return given
    if not attended:
        raise UsageError("there is no prompt", why="and no terminal to ask at", hint="nightcrew start 'PROMPT', or - for stdin")
    written: str | None = click.edit()
    return (written or "").strip() or None


def _attach(task: str) -> int:
    """Into its pane as soon as there is one. Raises TimedOut when it has none for a while, NotFound when it ended before."""
    from supervisor.client import attach

    view = _running(task)
    code = attach.attach(home(), view.id, view.epoch)
    view = queries.one(common.ledger(home()), task)
    why = f" ({status.why(view)})" if status.why(view) else ""
    common.say(f"{view.id} is {view.state}{why}; nightcrew {'diff' if view.final else 'attach'} {view.name}")
    return code


def _running(task: str) -> TaskView:
    db = common.ledger(home())
    ends_at = time.monotonic() + SLOT_S
    while True:
        view = queries.one(db, task)
        if view.attempt_state == AttemptState.RUNNING:
            return view
        if view.final:
            raise NotFound("no live pane of", on=task, why=f"it is {view.state}: {status.why(view)}", hint=f"nightcrew logs {task}")
        if time.monotonic() > ends_at:
            why = f"it is {view.state}: {status.why(view)}" if status.why(view) else f"it is {view.state}"
            raise TimedOut("no pane yet of", on=task, why=why, kept="it starts by itself", hint=f"nightcrew attach {task}")
        time.sleep(LOOK_S)


# Ask
# ---
# `nightcrew ask`.


@click.command()
@click.argument("name", shell_complete=ended_name)
@click.argument("question")
@common.json_option
def command_ask(name: str, question: str, as_json: bool) -> int:
    """Ask the agent of a task that has ended, and print its answer. Exit code 1 when there is none.

    Its conversation goes on, in a new worktree that begins with its work. QUESTION may be - for the standard input. The question is a
    task of its own, NAME-ask; what the agent changes is on that task's branch.

    \b
    nightcrew ask discounts 'Which of the tests covers rounding?'
    """
    from supervisor.client import follow_up

    text = sys.stdin.buffer.read().decode("utf-8", "replace") if question == "-" else question
    if not text.strip() or "\0" in text:
        raise UsageError("there is no question", why="it is empty" if not text.strip() else "it holds a NUL character")
    where = home()
    db = common.ledger(where)
    submission = follow_up.question(db, common.task_named(where, name, archived=False), text, os.environ)
    accepted = follow.hand_over(where, submission, ())
    follow.to_the_end(where, accepted.run, quiet=True)
    view = queries.one(common.ledger(where), accepted.tasks[0])
    agent = (view.result or {}).get("agent") or {}
    if as_json:
        common.print_json(task=view.id, state=view.state, answer=agent.get("message", ""), reason=status.why(view), result=view.result)
    elif agent.get("message"):
        click.echo(agent["message"])
    if view.state is not TaskState.DONE and not as_json:
        common.say(f"{view.id} is {view.state}: {status.why(view)}; nightcrew logs {view.id}")
    if (view.result or {}).get("commits"):
        common.say(f"it changed something: nightcrew diff {view.id}")
    return follow.exit_code([view])


# Send
# ----
# `nightcrew send`.


@click.command()
@click.argument("words", nargs=-1, metavar="NAME [TEXT]", shell_complete=agent_name)
@click.option("-f", "--file", type=click.Path(path_type=Path, dir_okay=False), help="Read the text from a file.")
@click.option("--now", is_flag=True, help="Refuse when the agent cannot take it now, instead of keeping it.")
@click.option("-a", "--all", "everything", is_flag=True, help="To every agent that runs and has a terminal, instead of NAME.")
@click.option("--run", help="To every agent of a run that has a terminal, instead of NAME.")
@common.json_option
def command_send(words: tuple[str, ...], file: Path | None, now: bool, everything: bool, run: str | None, as_json: bool) -> None:
    """Type a text into the terminal of an agent, as one paste, and press Enter.

    TEXT may be - for the standard input. When the agent cannot take it now, it is kept and typed later; nightcrew status shows it.

    \b
    nightcrew send lint "please also check the tests"
    git diff | nightcrew send lint -
    nightcrew send --run 1121-k3f9 --file note.md
    """
    if everything and run is not None:
        raise UsageError("say whom to send to", why="give --all or --run, not both")
    many = everything or run is not None
    names, texts = ((), words) if many else (words[:1], words[1:])
    if not many and not names:
        raise UsageError("say whom to send to", why="give a name, --all or --run", hint="nightcrew status")
    if len(texts) + (file is not None) != 1:
        raise UsageError("say what to send", why="give one text, - for the standard input, or --file", hint="nightcrew send --help")
    text = common.typable(_given(texts, file))
    where = home()
    tasks = _wanted(where, names, run)
    answer = common.ask(where, "send", {"tasks": tasks, "text": text, "now": now, "some": many}, timeout_s=common.DELIVERY_S)
    _say(answer)
    common.print_names([one["task"] for one in answer["deliveries"]], answer, as_json=as_json)


def _given(texts: tuple[str, ...], file: Path | None) -> bytes:
    if file is None and texts[0] != "-":
        return texts[0].encode("utf-8", "surrogateescape")
    try:
        with file.open("rb") if file is not None else sys.stdin.buffer as source:
            return source.read(common.TEXT_MAX + 1)
    except OSError as error:
        raise UsageError("cannot read", on=str(file or "the standard input"), why=error.strerror or str(error)) from error


def _wanted(where: Home, names: tuple[str, ...], run: str | None) -> list[str]:
    if names:
        return [common.task_named(where, names[0], archived=False).id]
    if run is not None:
        return common.tasks_named(where, (run,))
    return [view.id for view in queries.unfinished(common.ledger(where)) if view.attempt_state == "running"]


def _say(answer: dict[str, Any]) -> None:
    for task, why in answer["left_out"].items():
        common.say(f"{task} was left out: {why}")
    for one in answer["deliveries"]:
        if one["state"] != "confirmed":
            common.say(f"{one['task']}: {_SAID[one['state']]}{one['why']}")


_SAID = {"pending": "kept, and typed when it can take it: ", "unconfirmed": "typed, not confirmed: ", "dropped": "not sent: "}


# Answer
# ------
# `nightcrew answer`.


@click.command()
@click.argument("name", shell_complete=running_name)
@click.argument("what", type=click.Choice(["yes", "no"]))
@common.json_option
def command_answer(name: str, what: str, as_json: bool) -> int:
    """Allow or deny what an agent asks for on its screen, by the key of that dialog. Only of dialogs that nightcrew knows: Claude Code's.

    Exit code 1 when the dialog is still there some seconds later.

    \b
    nightcrew answer lint yes
    """
    where = home()
    task = common.task_named(where, name, archived=False).id
    answer = common.ask(where, "answer", {"task": task, "allow": what == "yes"})
    if as_json:
        common.print_json(**answer)
    else:
        common.say(common.answered(answer))
    return 0 if answer["gone"] else 1
