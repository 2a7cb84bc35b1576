"""What a person does on the screen: each act is what the verb of the same name does."""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from supervisor.cli import common
from supervisor.core.errors import ConfigError, NightcrewError, NotFound, UsageError
from supervisor.core.kind import COMMAND
from supervisor.faces.doors import NewTask
from supervisor.host.paths import Home
from supervisor.ledger import queries
from supervisor.ledger.queries import TaskView

PROJECTS_OF = 200
"""Newest runs whose repositories are offered for a new task."""


class VerbActs:
    """In the process of the command, with the person's own rights and environment."""

    def __init__(self, where: Home, verbs: Mapping[str, str]) -> None:
        self._where = where
        self.verbs = verbs

    def kinds(self) -> Sequence[str]:
        """As `Acts.kinds`."""
        import shutil

        from agents.kinds import kinds

        usual, found = self._usual_kind(), list[str]()
        for name in kinds():
            with contextlib.suppress(ConfigError):  # a kind of theirs that is written wrongly: `nightcrew kinds ls` says how
                kind = kinds()[name]
                if kind.is_agent and COMMAND[0] not in kind.headless and (not kind.binary or shutil.which(kind.binary)):
                    found.append(name)
        return sorted(found, key=lambda name: name != usual)

    def _usual_kind(self) -> str:
        from supervisor.daemon import submit

        with contextlib.suppress(NightcrewError):
            return submit.workplace(Path()).settings.agent_kind
        return ""

    def repositories(self) -> Sequence[str]:
        """As `Acts.repositories`."""
        from supervisor.daemon import submit

        found = list[str]()
        with contextlib.suppress(NightcrewError):
            found.append(str(submit.workplace(Path()).repository.root))
        if self._where.ledger.exists():
            with contextlib.closing(common.ledger(self._where)) as db:
                found += [run.root for run in queries.runs(db, PROJECTS_OF, gates=False) if Path(run.root).is_dir()]
        return list(dict.fromkeys(found))

    def merge_question(self, task: str) -> str:
        """As `Acts.merge_question`."""
        from supervisor.daemon import results
        from supervisor.faces import review

        with contextlib.closing(common.ledger(self._where, task)) as db:
            found = results.result(db, queries.one(db, task))
            return review.merge_question(db, queries.one(db, found.task), found.repository, found.tip)

    def attach(self, view: TaskView) -> str:
        """As `Acts.attach`."""
        return self.run(["attach", view.id])

    def run(self, words: Sequence[str]) -> str:
        """As `Acts.run`."""
        code = subprocess.run([sys.executable, "-I", "-m", "supervisor.cli.main", *words], check=False).returncode
        return f"nightcrew {' '.join(words)}" + (f" left with {code}" if code else "")

    def send(self, tasks: Sequence[str], line: str) -> str:
        """As `nightcrew send`."""
        words = common.typable(line.encode("utf-8", "surrogateescape"))
        answer = self._ask("send", {"tasks": list(tasks), "text": words, "now": False, "some": len(tasks) > 1}, timeout_s=common.DELIVERY_S)
        states = [str(one["state"]) for one in answer["deliveries"]]
        return f"sent to {_named(tasks)}: {', '.join(sorted(set(states)))}"

    def answer(self, task: str, asked: str, *, allow: bool) -> str:
        """As `nightcrew answer`."""
        return common.answered(self._ask("answer", {"task": task, "allow": allow, "asked": asked}))

    def hold(self, tasks: Sequence[str], *, back: bool) -> str:
        """As `nightcrew pause` and `nightcrew resume`."""
        answer = self._ask("pause" if back else "resume", {"tasks": list(tasks)})
        not_done = dict(answer["not_paused"]) if back else {}
        why = "".join(f"; {task} was not: {said}" for task, said in not_done.items())
        if back:
            return f"paused {_named(answer['paused'] or answer['paused_before'])}{why}"
        waits = f"; {_named(answer['waiting_for_slot'])} when a slot is free" if answer["waiting_for_slot"] else ""
        return f"resumed {_named(answer['resumed'])}{waits}"

    def kill(self, tasks: Sequence[str]) -> str:
        """As `nightcrew kill`, without waiting for their end."""
        answer = self._ask("kill", {"tasks": list(tasks)})
        return f"ending {_named(answer['asked'])}" if answer["asked"] else "it had ended already"

    def retry(self, tasks: Sequence[str]) -> str:
        """As `nightcrew retry`."""
        return f"again: {_named(self._ask('retry', {'tasks': list(tasks)})['revived'])}"

    def take(self, task: str) -> str:
        """As `nightcrew take`, into the checkout that the task began from."""
        from supervisor.daemon import results

        with contextlib.closing(common.ledger(self._where, task)) as db:
            view = queries.one(db, task)
            taken = results.take(db, view, Path(queries.run(db, view.run).root), results.How())
        return "; ".join([taken.sentence, *taken.commands, *taken.notes])

    def start(self, asked: NewTask) -> str:
        """As `nightcrew start --headless`."""
        from supervisor.cli import follow
        from supervisor.daemon import submit

        if asked.repo and asked.repo not in self.repositories():
            raise NotFound(
                "no repository", on=asked.repo, why="nothing was ever run there", hint=f"nightcrew start -C {shlex.quote(asked.repo)}"
            )
        if not asked.prompt.strip():
            raise UsageError("there is no prompt", hint="say what the agent is to do")
        place = submit.workplace(Path(asked.repo))
        options: dict[str, Any] = {"kind": asked.kind, "name": asked.name or asked.kind, "interactive": False}
        submission, notes = submit.of_prompt(asked.prompt, options, place, asked.base or None, os.environ)
        return f"added {follow.hand_over(self._where, submission, notes).tasks[0]}"

    def go_on(self, task: str, prompt: str) -> str:
        """As `nightcrew review --send -m PROMPT`."""
        from supervisor.cli import follow
        from supervisor.core import reviews
        from supervisor.daemon import follow_up

        with contextlib.closing(common.ledger(self._where, task)) as db:
            view = queries.one(db, task)
            if not view.final:
                return self.send([task], prompt)
            if not prompt.strip():
                raise UsageError("there is nothing to say")
            key = reviews.key(task, f"{prompt}\0{os.urandom(8).hex()}")
            made = follow_up.submission(db, view, prompt, key, os.environ)
        return f"{view.name} goes on as {follow.hand_over(self._where, made, ()).tasks[0]}"

    def _ask(self, verb: str, args: dict[str, Any], *, timeout_s: float = 60.0) -> dict[str, Any]:
        return common.ask(self._where, verb, args, timeout_s=timeout_s)


def _named(tasks: Sequence[str]) -> str:
    """`lint`, or how many."""
    return tasks[0] if len(tasks) == 1 else f"{len(tasks)} tasks"
