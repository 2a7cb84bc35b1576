"""`kill`, `pause`, `resume`, `retry` and `wait`."""

from __future__ import annotations

import time

import click

from supervisor.client import common
from supervisor.client.resolving import ended_name, paused_name, unfinished_name, unpaused_name
from supervisor.host.paths import home
from supervisor.kernel.errors import TimedOut, UsageError
from supervisor.kernel.format import duration
from supervisor.store import queries

# Kill
# ----
# `nightcrew kill`.


WAIT_S = 30.0


@click.command()
@click.argument("names", nargs=-1, shell_complete=unfinished_name)
@click.option("-a", "--all", "everything", is_flag=True, help="Every unfinished task.")
@common.json_option
def command_kill(names: tuple[str, ...], everything: bool, as_json: bool) -> None:
    """End tasks or runs: those that run are stopped with everything that they started, those that wait never start.

    Their work so far is kept: committed to their branch, or under a rescue ref.

    \b
    nightcrew kill lint
    nightcrew kill 1121-k3f9
    """
    if bool(names) == everything:
        raise UsageError("say what to end", why="give names, or --all", hint="nightcrew status")
    where = home()
    db = common.ledger(where)
    wanted = queries.unfinished_ids(db) if everything else common.tasks_named(where, names)
    answer = common.ask(where, "kill", {"tasks": wanted})
    deadline = time.monotonic() + WAIT_S
    while not all(view.final for view in queries.several(db, answer["asked"])):
        if time.monotonic() > deadline:
            raise TimedOut("still stopping", on=f"after {duration(WAIT_S)}", hint="nightcrew status")
        time.sleep(0.05)
    for task in answer["ended_before"]:
        common.say(f"{task} had ended already: {queries.one(db, task).state}")
    shape = {"ended": answer["asked"], "ended_before": answer["ended_before"]}
    common.print_names(answer["asked"], shape, as_json=as_json)


# Pause
# -----
# `nightcrew pause`.


@click.command()
@click.argument("names", nargs=-1, shell_complete=unpaused_name)
@click.option("--all", "everything", is_flag=True, help="All tasks that have not ended.")
@common.json_option
def command_pause(names: tuple[str, ...], everything: bool, as_json: bool) -> None:
    """Hold tasks or runs back until nightcrew resume: agents stand still with everything that they started, and what waits does not start.

    Agents keep their memory, use no processor time, and give their slots to others. Their timeout stands still too. What is added later
    starts as it would.

    \b
    nightcrew pause lint
    nightcrew pause 1121-k3f9
    nightcrew pause --all
    """
    tasks = common.names_or_all(home(), names, queries.unfinished_ids, everything=everything)
    answer = common.ask(home(), "pause", {"tasks": tasks})
    for task in answer["paused_before"] if not everything else ():
        common.say(f"{task} was paused already")
    for task, why in answer["not_paused"].items():
        common.say(f"{task} was not paused: {why}")
    if answer["moving"]:
        common.say(f"{len(answer['moving'])} processes could not be stopped, and go on: {' '.join(map(str, answer['moving']))}")
    common.print_names(answer["paused"], answer, as_json=as_json)


# Resume
# ------
# `nightcrew resume`.


@click.command()
@click.argument("names", nargs=-1, shell_complete=paused_name)
@click.option("--all", "everything", is_flag=True, help="All tasks that a person has paused.")
@common.json_option
def command_resume(names: tuple[str, ...], everything: bool, as_json: bool) -> None:
    """Let paused tasks go on: agents where they stood still, as soon as a slot is free; what waited waits for its start again.

    \b
    nightcrew resume lint
    nightcrew resume 1121-k3f9
    nightcrew resume --all
    """
    tasks = common.names_or_all(home(), names, queries.paused_ids, everything=everything)
    answer = common.ask(home(), "resume", {"tasks": tasks})
    for task in answer["not_paused"]:
        common.say(f"{task} was not paused")
    for task in answer["waiting_for_slot"]:
        common.say(f"{task} goes on when a slot is free")
    common.print_names(answer["resumed"], answer, as_json=as_json)


# Retry
# -----
# `nightcrew retry`.


@click.command()
@click.argument("names", nargs=-1, required=True, shell_complete=ended_name)
@common.json_option
def command_retry(names: tuple[str, ...], as_json: bool) -> None:
    """Run finished tasks again from their base commit, in a new worktree; tasks that were skipped because of them wait again.

    What the earlier attempt left stays under its rescue ref and in its own worktree until `nightcrew clean`.

    \b
    nightcrew retry lint
    """
    revived = common.ask_about(home(), "retry", names)["revived"]
    common.print_names(revived, {"revived": revived}, as_json=as_json)


# Wait
# ----
# `nightcrew wait`.


_LOOK_S = 0.1


@click.command()
@click.argument("names", nargs=-1, shell_complete=unfinished_name)
@click.option("--any", "first", is_flag=True, help="Until one of them has ended, not all.")
@click.option("--timeout", type=common.Duration(), help='Give up after this long ("90s", "10m"), with exit code 124.')
@common.json_option
def command_wait(names: tuple[str, ...], first: bool, timeout: float | None, as_json: bool) -> int:
    """Wait until tasks or runs have ended; without NAMES, until nothing is unfinished. Exit code 1 when one did not end well.

    \b
    nightcrew wait
    nightcrew wait --any --timeout 1h lint types
    """
    from supervisor.client import follow
    from supervisor.views import status

    where = home()
    db = common.ledger(where)
    wanted = common.tasks_named(where, names) if names else queries.unfinished_ids(db)
    deadline = None if timeout is None else time.monotonic() + timeout
    watch = common.SupervisorWatch(where)
    followed = follow.Followed(db, lambda: queries.several(db, wanted))
    enough = max(0, len(wanted) - 1) if first else 0
    while len(followed.unfinished) > enough:
        if deadline is not None and time.monotonic() >= deadline:
            left = f"{len(followed.unfinished)} of {len(wanted)} tasks"
            raise TimedOut("still unfinished", on=left, kept="they go on", hint="nightcrew status")
        watch.look()
        time.sleep(_LOOK_S)
        followed.look()
    found = {view.id: view for view in followed.all()}
    ended = [found[name] for name in wanted if found[name].final]
    if as_json:
        common.print_json(tasks=[status.task_shape(view) for view in ended])
    elif ended:
        common.say(status.tally(status.counted(ended)))
    return follow.exit_code(ended)
