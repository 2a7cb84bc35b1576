"""More words for the agent of a task, and questions to an agent whose work has ended."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from agents.kinds import of_task, to_run
from supervisor.client import submit
from supervisor.kernel import prompt
from supervisor.kernel.conversations import How
from supervisor.kernel.errors import NotFound, Refused
from supervisor.kernel.spec import RunSpec, Submission
from supervisor.snapshots import order
from supervisor.store import conversations, queries, rows
from supervisor.store.queries import TaskView

if TYPE_CHECKING:
    from supervisor.store.queries import TaskView


# Follow up
# ---------
# More words for the agent of a task: a living one gets them as its next prompt, of one that has ended a task of its own continues
# the conversation. Where the kind cannot, a new agent of that kind begins with the work. Runs in the process of the command.


TITLE_MAX = 100


def refuse_without_prompt(db: sqlite3.Connection, task: str) -> None:
    """Raises Refused for a task (full id) that takes no prompt: nobody is there to read one."""
    kind = rows.launch(db, task).spec.kind
    if not of_task(kind).is_agent:
        why = f"a task of kind {kind} runs a command, and reads no prompt"
        raise Refused("cannot ask for more", on=task, why=why, hint=f"nightcrew diff {task}, and change it yourself")


def submission(db: sqlite3.Connection, view: TaskView, text: str, key: str, environ: Mapping[str, str]) -> Submission:
    """The run of one task that goes on where the task `view`, which has ended, ended: with its work, and with its conversation where its
    kind can fork one. The same `key` twice is one run. Raises Refused for a task that takes no prompt."""
    refuse_without_prompt(db, view.id)
    launch = rows.launch(db, view.id)
    held = conversations.newest(db, view.id)
    continues = held is not None and to_run(launch.spec.kind).continues(How.FORK, interactive=launch.spec.interactive)
    place = submit.workplace(Path(queries.run(db, view.run).root))
    task = replace(
        launch.spec.alone, name=f"{view.name}-more"[:64], title=f"more on {view.title}"[:TITLE_MAX], after=(), after_any=(),
        after_on="done", after_memory=(), together="", environment="",
        prompt=text if continues else prompt.follow_up(launch.spec.prompt or "", text),
        continue_from=view.id if continues else "", continue_how=How.FORK,
    )  # fmt: skip
    base = order.tip(place.repository, view)
    return submit.submission(RunSpec(task.title, (task,)), place, base, key, {**environ, **same_place(launch.env)})


def reviewed(made: Submission, task: str, comments: Sequence[int]) -> Submission:
    """The same run, which a person's review of the result of `task` asks for: with it these comments are sent, in one commit."""
    return replace(made, reviewed=task, comments=tuple(comments))


def answering(made: Submission, pull: int, remarks: Sequence[str]) -> Submission:
    """The same run, which goes on with a pull request: with it these remarks are given, in one commit."""
    return replace(made, pull=pull, remarks=tuple(remarks))


def same_place(env: Mapping[str, str]) -> dict[str, str]:
    """The agent is looked for where the first one was, and finds its conversation in the same home."""
    return {name: env[name] for name in ("PATH", "HOME", "CLAUDE_CONFIG_DIR", "CODEX_HOME") if name in env}


# Asking
# ------
# A question to an agent whose work has ended: a task of its own that continues its conversation. Runs in the process of the
# command.
#
# A task ends once, and others may have begun with what it came to; so a question never changes it (docs/decisions/0023).


def question(db: sqlite3.Connection, view: TaskView, text: str, environ: Mapping[str, str]) -> Submission:
    """The run of one task that asks the agent of `view`, where its conversation ended. Raises Refused while that goes on, or when its kind
    cannot continue one; NotFound when nobody knows the conversation."""
    launch = rows.launch(db, view.id)
    if not view.final:
        raise Refused("cannot ask", on=view.id, why=f"it is {view.state}", hint=f"nightcrew send {view.id}, or nightcrew wait {view.id}")
    if not to_run(launch.spec.kind).continues(How.RESUME, interactive=False):
        raise Refused("cannot ask", on=view.id, why=f"kind {launch.spec.kind} cannot continue a conversation", hint="nightcrew kinds ls")
    held = conversations.newest(db, view.id)
    if held is None:
        raise NotFound("no conversation of", on=view.id, why="its agent never said how it is called", hint=f"nightcrew logs {view.id}")
    had = conversations.of_session(db, held.session)
    if (open_one := next((one for one in had if one.end is None), None)) is not None:
        raise Refused(
            "cannot ask", on=view.id, why=f"{open_one.task} goes on with its conversation", hint=f"nightcrew wait {open_one.task}"
        )
    place = submit.workplace(Path(queries.run(db, view.run).root))
    task = replace(
        launch.spec.alone, name=f"{view.name}-ask", title=" ".join(text.split())[:TITLE_MAX], prompt=text, after=(), after_on="done",
        together="", interactive=False, retries=0, environment="", continue_from=view.id, continue_how=How.RESUME,
    )  # fmt: skip
    base = order.tip(place.repository, queries.one(db, had[0].task))
    return submit.submission(RunSpec(task.title, (task,)), place, base, None, {**environ, **same_place(launch.env)})
