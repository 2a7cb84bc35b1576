"""From what a person wrote to an order for a snapshot: everything that can be wrong is found here, before a supervisor is asked.

Runs in the process of the command, where the repository, its project file and the environment are.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from agents.kinds import kinds
from supervisor.client import submit
from supervisor.client.submit import Workplace
from supervisor.config import plan, task_keys
from supervisor.host import scratch
from supervisor.host.paths import Home
from supervisor.host.untrusted_fs import open_plain
from supervisor.kernel import codec
from supervisor.kernel.errors import NotFound, UsageError
from supervisor.kernel.kind import allowed
from supervisor.kernel.names import nearest
from supervisor.kernel.path_globs import is_below, names_files
from supervisor.kernel.snapshots import SnapshotSpec
from supervisor.kernel.spec import RunSpec, Submission, TaskSpec, already_open
from supervisor.store import queries, sqlite
from supervisor.store.queries import TaskView
from worktrees.repository import Repository, refuse_absent, resolve

# Order
# -----


@dataclass(frozen=True, slots=True)
class Order:
    """A snapshot to be made, complete."""

    project: str
    root: str
    common_dir: str
    spec: SnapshotSpec
    base_oid: str
    digests: Mapping[str, str]
    """Path of each lock file at the base commit, and git's id of its content."""
    copies: tuple[str, ...]
    """What the patterns of `copy` match in the person's checkout, relative to it."""
    env: Mapping[str, str]
    """The allow-listed environment of the shell that asked: set-up commands get its PATH and HOME."""


def order(spec: SnapshotSpec, place: Workplace, base: str | None, environ: Mapping[str, str]) -> Order:
    """`spec` at `place`. Raises NotFound when `base` names no commit, Refused when a partial clone lacks files of it, UsageError when
    `copy` matches too much."""
    repository = place.repository
    oid = resolve(repository, next((given for given in (base, place.project.base) if given is not None), "HEAD"))
    refuse_absent(repository, oid)
    copies = _copies(repository.root, spec.copy)
    return Order(
        project=repository.project,
        root=os.fspath(repository.root),
        common_dir=os.fspath(repository.common_dir),
        spec=spec,
        base_oid=oid,
        digests=lock_digests(repository, oid, spec.lock_files) | _copy_digests(repository.root, copies),
        copies=copies,
        env=allowed(environ, place.settings.pass_env),
    )


def asked_for(name: str, place: Workplace, options: Mapping[str, Any]) -> SnapshotSpec:
    """The snapshot `name` as `[snapshot.NAME]` says, or as the command's `options` do when any is given: then they are all of it.

    Raises NotFound when neither says anything, UsageError for what the project file would refuse too.
    """
    from pydantic import ValidationError

    from supervisor.config.task_keys import SnapshotModel, check_name, to_spec

    given = {key: value for key, value in options.items() if value not in (None, ())}
    known = place.project.snapshots
    if not given and name in known:
        return known[name]
    if not given:
        why = f"nightcrew.toml has no [snapshot.{name}]; {nearest(name, known)}" if known else f"nightcrew.toml has no [snapshot.{name}]"
        raise NotFound("nobody said what is in the snapshot", on=name, why=why, hint=f"nightcrew snapshot create {name} --setup COMMAND")
    shape = {key: list(value) if isinstance(value, tuple) else value for key, value in given.items()}
    try:
        return to_spec(check_name(name), SnapshotModel.model_validate(shape))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = str((*first["loc"], "")[0]).replace("_", "-")
        raise UsageError("bad value", on=f"--{key}" if key else name, why=first["msg"].removeprefix("Value error, ")) from None
    except ValueError as error:
        raise UsageError("bad value", on="NAME", why=str(error)) from None


def lock_digests(repository: Repository, oid: str, patterns: Iterable[str]) -> dict[str, str]:
    """Each file at commit `oid` that one of `patterns` matches, and git's id of its content."""
    patterns = tuple(patterns)
    deep = ("-r",) if any("/" in pattern or is_below(pattern) for pattern in patterns) else ()
    wanted = [names_files(pattern) for pattern in patterns]
    found = repository.run("ls-tree", "-z", *deep, oid).out.split(b"\0")
    digests: dict[str, str] = {}
    for entry in filter(None, found):
        facts, _, name = entry.partition(b"\t")
        _, kind, blob = facts.split(b" ")
        path = os.fsdecode(name)
        if kind == b"blob" and any(named(path) for named in wanted):
            digests[path.encode("utf-8", "backslashreplace").decode()] = blob.decode()
    return digests


def _copy_digests(root: Path, copies: Iterable[str]) -> dict[str, str]:
    """Each file to copy, and the digest of its content now: a copy of what it was before is stale."""
    found = {}
    for name in copies:
        with contextlib.suppress(OSError), open_plain(root / name) as data:  # what cannot be read is refused by the build
            found[name.encode("utf-8", "backslashreplace").decode()] = hashlib.sha256(data.read()).hexdigest()
    return found


def _copies(root: Path, patterns: Iterable[str]) -> tuple[str, ...]:
    try:
        return scratch.files(root, patterns)
    except ValueError as error:
        raise UsageError("what copy matches cannot be copied", on=os.fspath(root), why=str(error), hint="let setup make them") from None


# Forks
# -----
# Environments for a person: forks of a snapshot, and named ones that are opened again. Runs in the process of the command.
#
# Every attempt has a worktree of its own (docs/decisions/0011), so opening an environment again does not take the old directory: a new
# attempt, of the same snapshot, starts where the newest one of that name ended.


@dataclass(frozen=True, slots=True)
class Asked:
    """What a person typed, beside the name."""

    words: tuple[str, ...]
    """The command; empty: their shell."""
    base: str | None = None
    sandbox: int | None = None
    network: bool | tuple[str, ...] | None = None
    number: int = 1
    environment: str = ""


def forks(snapshot: str, asked: Asked, place: Workplace, environ: Mapping[str, str]) -> Submission:
    """One run of `asked.number` tasks that start from `snapshot`. Raises UsageError for what a plan would refuse too, NotFound for a base
    that is no commit."""
    options: dict[str, Any] = {
        "id": asked.environment or snapshot, "kind": "terminal", "task_class": "interactive", "retries": 0,
        "snapshot": snapshot, "sandbox": asked.sandbox, "network": asked.network,
        "title": " ".join(asked.words) or f"shell in {asked.environment or snapshot}",
    }  # fmt: skip
    shell = _shell(environ)
    spec = plan.single(asked.words or shell, kinds(), options, place.project.defaults, place.project.base)
    task = replace(spec.tasks[0], environment=asked.environment)
    if not asked.words:
        task = replace(task, argv=shell)  # a path with a space in it is one word all the same
    names = [task.name] if asked.number == 1 else [f"{task.name}-{index}" for index in range(1, asked.number + 1)]
    return submit.submission(replace(spec, tasks=tuple(replace(task, name=name) for name in names)), place, asked.base, None, environ)


def reopened(found: tuple[TaskView, str], asked: Asked, place: Workplace, environ: Mapping[str, str]) -> Submission:
    """A run of one task in the environment that `newest` gave: what it was made with, where it ended. Raises Refused while it is open,
    UsageError for what a plan would refuse too."""
    view, text = found
    refuse_open(view)
    task = codec.loads(TaskSpec, text)
    argv = _argv(asked.words) if asked.words else _shell(environ)
    task = replace(
        task, argv=argv, title=" ".join(asked.words) or f"shell in {task.environment}",
        sandbox=task.sandbox if asked.sandbox is None else asked.sandbox,
        network=task.network if asked.network is None else asked.network,
        snapshot_id=view.snapshot or task.snapshot_id,
    )  # fmt: skip
    if why := task_keys.contradiction(task):
        raise UsageError("bad value", on="--sandbox", why=why)
    return submit.submission(RunSpec(task.title, (task,)), place, tip(place.repository, view), None, environ)


def newest(home: Home, name: str, project: str) -> tuple[TaskView, str] | None:
    """The task that last had the environment `name`, and its spec as JSON."""
    if not home.ledger.exists():
        return None
    with contextlib.closing(sqlite.connect_readonly(home.ledger)) as db:
        return queries.environment(db, name, project)


def refuse_open(view: TaskView) -> None:
    """Raises Refused unless the task has ended; the ledger looks again, in the transaction that opens it."""
    if not view.final:
        raise already_open(view.environment, view.id, view.state)


def tip(repository: Repository, view: TaskView) -> str:
    """The commit that an ended task came to: its branch where that holds all it left, also when a person went on there; else what
    its rescue ref keeps; its base when it never began. Raises NotFound when none of them is there any more."""
    left = (view.result or {}).get("tip")
    try:
        branch = resolve(repository, view.branch) if view.branch else None
    except NotFound:  # cleaned away, together with its worktree
        branch = None
    if branch is None or left is None:
        return resolve(repository, branch or left or view.base_oid or "HEAD")
    return branch if repository.has(branch, left) else resolve(repository, left)


def _shell(environ: Mapping[str, str]) -> tuple[str, ...]:
    return (environ.get("SHELL") or "/bin/sh",)


def _argv(words: tuple[str, ...]) -> tuple[str, ...]:
    return ("/bin/sh", "-c", words[0]) if len(words) == 1 else words
