"""What `nightcrew pr` does: which commit goes to which branch of which remote, the person's consent, the push, and the pull request.

Each step can be repeated: what is about to be pushed is in the ledger before it is pushed, and a pull request is looked for by its branch
before one is made. A command that was killed is given again, and goes on.
"""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

from supervisor.cli import common
from supervisor.core import forges, pull_body, pull_requests, remotes
from supervisor.core.errors import NeedsHuman, NotFound, Refused, UsageError, one_line
from supervisor.core.forges import Found, GitHub, GitLab
from supervisor.core.pull_requests import PullRequest, State, Tool
from supervisor.core.remotes import RemoteUrl
from supervisor.core.reviews import Verdict
from supervisor.core.states import TaskState
from supervisor.daemon import results
from supervisor.faces import conflicts
from supervisor.faces import review as review_face
from supervisor.faces.review import Review
from supervisor.gateway.redact import Redactor
from supervisor.host import files, forge_tools
from supervisor.host.failpoint import failpoint
from supervisor.host.forge_tools import ForgeTool
from supervisor.host.paths import Home
from supervisor.ledger import pull_requests as book
from supervisor.ledger import queries, rows, store
from worktrees import pushing
from worktrees.pushing import Pusher
from worktrees.repository import Repository

LISTED_MAX = 200
_CLOSES = re.compile(r"(?i)\b(?:close[sd]?|fix(?:e[sd])?|resolve[sd]?)\b:?\s+(\S*#\d+|[A-Z][A-Z0-9_]+-\d+|https?://\S+/issues/\d+)")


@dataclass(frozen=True, slots=True)
class Options:
    """What the person said."""

    remote: str = ""
    branch: str = ""
    base: str = ""
    title: str = ""
    ready: bool = False
    no_prompt: bool = False
    tool: str | None = None
    force: bool = False
    yes: bool = False
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class Order:
    """One push, decided."""

    review: Review
    repository: Repository
    commits: int
    remote: str
    """Name of the remote."""
    target: RemoteUrl
    """Where git pushes to."""
    branch: str
    base: str
    tool: Tool
    known: PullRequest | None
    title: str
    body: str

    @property
    def commit(self) -> str:
        return self.review.tip

    @property
    def task(self) -> str:
        return self.review.view.id


def push(where: Home, name: str, options: Options, environ: Mapping[str, str]) -> dict[str, Any]:
    """Push, and open or update the pull request; what `--json` prints. Raises Refused, NeedsHuman, and as the doors."""
    with contextlib.closing(common.ledger(where)) as db:
        view = common.task_named(where, name, archived=False)
        repository, tip = results.seen(db, view)
        review = review_face.gather(db, view, repository, tip, conflicts.known(where, view.project))
        _refuse(review, force=options.force)
        base = options.base or repository.branch or ""
        remote = pushing.remote_of(repository, base, options.remote)
        pusher = Pusher(repository, remote, environ, terminal=sys.stdin.isatty())
        order = _order(where, db, review, repository, remote, pusher.target(), options, environ)
        _say(order, options)
        if options.dry_run:
            return _shape(order, None, pushed=False)
        _consent(where, db, order, yes=options.yes)
    with _only_one(where, repository):
        return _carry_out(where, order, pusher, options, environ)


def _refuse(review: Review, *, force: bool) -> None:
    """Raises Refused for what a person has to decide first."""
    view, decision = review.view, review.decision
    if review.tip in (review.base, view.base_oid):
        raise Refused("nothing to push", on=view.id, why="it holds no commit that its base lacks", hint=f"nightcrew status {view.id}")
    if force:
        return
    hint = f"nightcrew review {view.id}; or --force"
    if decision is not None and decision.verdict is Verdict.REJECTED:
        why = f"it was rejected{f': {decision.why}' if decision.why else ''}"
        raise Refused("not pushed", on=view.id, why=why, kept="the result", hint=hint)
    if view.final and view.state is not TaskState.DONE:
        raise Refused("not pushed", on=view.id, why=f"it is {view.state}: {view.end_cause or view.reason}", kept="the result", hint=hint)


def _order(
    where: Home, db: Any, review: Review, repository: Repository, remote: pushing.Remote, target: RemoteUrl, options: Options,
    environ: Mapping[str, str],
) -> Order:  # fmt: skip
    view = review.view
    of_task = book.of_task(db, view.id)
    same = of_task is not None and of_task.remote == target.plain
    branch = options.branch or (of_task.branch if of_task is not None and same else view.branch or "")
    pushing.checked_branch(repository, branch)
    base = options.base or (of_task.base if of_task is not None and same else _base(repository))
    if branch == base:
        raise Refused(
            "not pushed", on=branch, why="that is the branch that it is to be merged into", kept="everything", hint="--branch OTHER"
        )
    text = "" if options.no_prompt else rows.launch(db, view.id).spec.prompt or ""
    commits = int(repository.git.run(repository.store, "rev-list", "--count", f"{review.base}..{review.tip}").text)
    return Order(
        review, repository, commits, remote.name, target, branch, base, _tool(where, target, options.tool, environ),
        book.at(db, target.plain, branch), pull_body.title(options.title or view.title, view.id), _body(review, text, commits),
    )  # fmt: skip


def _base(repository: Repository) -> str:
    if repository.branch is None:
        raise UsageError("say what it is to be merged into", why="your checkout is on no branch", hint="--base BRANCH")
    return pushing.base_on_remote(repository, repository.branch)


def _tool(where: Home, target: RemoteUrl, asked: str | None, environ: Mapping[str, str]) -> Tool:
    """What was asked for; else what the host's name says, or who of the two is logged in there, if it is installed."""
    if asked is not None:
        if Tool(asked) is not Tool.LINK and not target.name:
            raise Refused("no host to ask", on=target.plain, why="that is no address of a host", kept="everything", hint="--with link")
        return Tool(asked)
    if not target.name:
        return Tool.LINK
    named = {remotes.Forge.GITHUB: Tool.GH, remotes.Forge.GITLAB: Tool.GLAB}.get(target.forge)
    if named is not None:
        return named if forge_tools.there(named, environ) else Tool.LINK
    if target.forge is not remotes.Forge.UNKNOWN:
        return Tool.LINK
    tries = (tool for tool in (Tool.GH, Tool.GLAB) if forge_tools.there(tool, environ))
    return next((tool for tool in tries if forge_tools.knows(tool, target.web_host, environ, where.root / "git" / "empty")), Tool.LINK)


def _body(review: Review, prompt: str, commits: int) -> str:
    clean = Redactor().clean
    result = review.result
    said = result.get("gate")
    gate = f"{review.gate}: {'passed' if said['passed'] else said['why']}" if review.gate and said else ""
    gate = gate or (f"{review.gate}: it has not run" if review.gate else "")
    notes = [f"{review_face.size(review.diffs)}, {commits} commit{'s' if commits != 1 else ''}", *review_face.spent(result)]
    notes += [f"conflicts {text}" for text in review.conflicts]
    message = str((result.get("agent") or {}).get("message") or "")
    facts = pull_body.Facts(
        task=review.view.id, title=review.view.title, prompt=clean(prompt), message=clean(message),
        commit=review.tip, warnings=tuple(f"{flag.path}: {flag.why}" for flag in review.flags if flag.weakens), gate=clean(gate),
        gate_passed=bool(said and said["passed"]), notes=tuple(notes),
    )  # fmt: skip
    return pull_body.body(facts)


def _say(order: Order, options: Options) -> None:
    """On stderr: what goes where, and what a person should know before."""
    view = order.review.view
    again = f"; our last push left it at {order.known.pushed[:12]}" if order.known is not None and order.known.pushed else ""
    common.say(f"{view.id}: commit {order.commit[:12]}, {order.commits} over {order.base}, {review_face.size(order.review.diffs)}")
    common.say(f"goes to {one_line(order.target.plain)} as branch {one_line(order.branch)}{again}")
    if not view.final:
        common.say("its agent works: what it has committed by now is pushed")
    for flag in order.review.flags:
        if flag.weakens:
            common.say(f"this may make its gate say less: {one_line(flag.path)}: {one_line(flag.why)}")
    for text in order.review.conflicts:
        common.say(f"it conflicts {text}")
    for text in _closes(order):
        common.say(f"the message of a commit would close {one_line(text)} when it is merged")
    if names := pushing.unused(order.repository):
        common.say(f"of no effect, since only the repository says it, which agents can write: {', '.join(map(one_line, names))}")
    if options.dry_run:
        click.echo(f"{order.title}\n\n{order.body}", err=True)


def _closes(order: Order) -> list[str]:
    log = order.repository.git.run(
        order.repository.store, "log", "--max-count=500", "--format=%B", f"{order.review.base}..{order.commit}", accept=(0, 128)
    ).out[: 2**20]
    return list(dict.fromkeys(found[1] for found in _CLOSES.finditer(log.decode("utf-8", "replace"))))[:10]


def _consent(where: Home, db: Any, order: Order, *, yes: bool) -> None:
    """Once for each URL. Raises NeedsHuman off a terminal."""
    project, url = order.repository.project, order.target.plain
    if book.may_push(db, project, url):
        return
    if not yes:
        if not sys.stdin.isatty():
            hint = f"say --yes, once: nightcrew pr {order.task} --yes"
            raise NeedsHuman("nobody has agreed to push there", on=url, why="it was not asked before", kept="everything", hint=hint)
        click.confirm("Push there, now and later?", abort=True, err=True)
    common.ask(where, "pr", {"op": "consent", "project": project, "remote": url})


@contextlib.contextmanager
def _only_one(where: Home, repository: Repository) -> Iterator[None]:
    """One command at a time pushes from a repository. Raises Refused."""
    lock = files.private_dir(where.root / "git" / "push" / repository.project) / "lock"
    with lock.open("a") as file:
        if not files.try_lock(file.fileno()):
            raise Refused(
                "not pushed", on=str(repository.root), why="another nightcrew pr is under way there", kept="everything", hint="repeat it"
            )
        yield


def _carry_out(where: Home, order: Order, pusher: Pusher, options: Options, environ: Mapping[str, str]) -> dict[str, Any]:
    door = _door(where, order.tool, order.target, environ)
    found = _found(door, order) if door is not None else None
    if found is not None and found.state is not State.OPEN:
        pull_requests.refuse_ended(_as_known(order, found))
    known = _known(where, order)
    lease = pull_requests.lease(known, pusher.tip(order.branch), order.commit)
    facts = {"project": order.repository.project, "remote": order.target.plain, "branch": order.branch, "base": order.base}
    named = {"task": order.task, "epoch": order.review.view.epoch}
    if lease is not None or known is None or known.task != order.task:
        pull = int(common.ask(where, "pr", {"op": "intend", **named, **facts, "commit": order.commit})["pull"])
    else:
        pull = known.id
    named["pull"] = pull
    failpoint("pr.intended")
    words: tuple[str, ...] = ()
    if lease is not None:
        words = pusher.push(order.commit, order.branch, lease.expected).words
        failpoint("pr.pushed")
    ours = known is not None and order.commit in (known.pushed, known.intent)
    if lease is not None or (ours and known is not None and known.pushed != order.commit):
        common.ask(where, "pr", {"op": "pushed", **named, "commit": order.commit})
    failpoint("pr.noted")
    for line in words:
        common.say(f"the remote says: {line}")
    found = _opened(door, order, found, options) if door is not None else None
    failpoint("pr.opened")
    link = found.link if found is not None else remotes.compare_url(order.target, order.base, order.branch)
    noted = {
        "tool": order.tool, "number": found.number if found else 0, "link": link, "state": found.state if found else State.NONE,
        "draft": found.draft if found else not options.ready, "base": found.base if found else order.base,
    }  # fmt: skip
    common.ask(where, "pr", {"op": "noted", **named, **noted})
    if found is None:
        common.say("open the pull request there" if link else "pushed; open the pull request on the host, whose address is not known")
    return _shape(order, found, pushed=lease is not None)


def _door(where: Home, tool: Tool, target: RemoteUrl, environ: Mapping[str, str]) -> ForgeTool | None:
    folder = where.root / "git" / "empty"
    match tool:
        case Tool.GH:
            return ForgeTool(GitHub(target), environ, folder)
        case Tool.GLAB:
            return ForgeTool(GitLab(target), environ, folder)
        case Tool.LINK:
            return None


def _known(where: Home, order: Order) -> PullRequest | None:
    """As another command may have left it a moment ago."""
    with contextlib.closing(store.connect_readonly(where.ledger)) as db:
        return book.at(db, order.target.plain, order.branch)


def _as_known(order: Order, found: Found) -> PullRequest:
    return PullRequest(
        0, order.task, order.repository.project, order.target.plain, order.branch, found.base, "", "", order.tool, found.number, found.link,
        found.state, found.draft, 0, 0.0,
    )  # fmt: skip


def _found(door: ForgeTool, order: Order) -> Found | None:
    """The pull request of the branch, when there is one."""
    shapes = door.call(door.forge.list(order.branch))
    listed = [door.forge.read(one) for one in shapes] if isinstance(shapes, list) else []
    number = order.known.number if order.known is not None else 0
    return forges.newest([one for one in listed if one.branch == order.branch], number)


def _opened(door: ForgeTool, order: Order, found: Found | None, options: Options) -> Found:
    """The pull request, made or brought up to date."""
    if found is None:
        request = door.forge.create(order.branch, order.base, order.title, order.body, draft=not options.ready)
        try:
            found = door.forge.read(door.call(request))
        except Refused:
            found = _found(door, order)  # one was made meanwhile, or by a command that was killed before it heard of it
            if found is None or found.state is not State.OPEN:
                raise
        else:
            return found
    body = pull_body.merged(found.body, order.body)
    if body is not None:
        door.call(door.forge.update(found, body))
    elif pull_body.BEGIN not in found.body:
        common.say("its description is left as it is: somebody took our part out of it")
    if options.ready and found.draft:
        door.call(door.forge.ready(found))
        found = _found(door, order) or found
    return found


def _shape(order: Order, found: Found | None, *, pushed: bool) -> dict[str, Any]:
    return {
        "task": order.task, "commit": order.commit, "commits": order.commits, "remote": order.target.plain, "branch": order.branch,
        "base": found.base if found else order.base, "pushed": pushed, "tool": order.tool, "number": found.number if found else None,
        "link": found.link if found else remotes.compare_url(order.target, order.base, order.branch) or None,
        "state": found.state if found else None, "draft": found.draft if found else None, "title": order.title, "body": order.body,
    }  # fmt: skip


def show(where: Home, name: str, *, as_json: bool) -> None:
    """What is known of the pull request of a task. Raises NotFound."""
    with contextlib.closing(common.ledger(where)) as db:
        view = common.task_named(where, name)
        known = book.of_task(db, view.id)
        if known is None:
            raise NotFound("no pull request", on=view.id, hint=f"nightcrew pr {view.id}")
        if as_json:
            common.print_json(**_row(known))
        else:
            common.show(_line(known))


def list_all(where: Home, *, as_json: bool) -> None:
    """Those of the repository around the person."""
    with contextlib.closing(common.ledger(where)) as db:
        found = book.of_project(db, queries.project_at(db, str(Path.cwd())), LISTED_MAX)
    if as_json:
        common.print_json(pull_requests=[_row(one) for one in found])
        return
    for one in found:
        common.show(_line(one))
    common.say(f"{len(found)} pull request{'s' if len(found) != 1 else ''}, as they were known last")


def _row(known: PullRequest) -> dict[str, Any]:
    return asdict(known)


def _line(known: PullRequest) -> str:
    state = (
        f"draft, {known.state}"
        if known.draft and known.state is State.OPEN
        else str(known.state) or "pushed"
        if known.pushed
        else "not pushed"
    )
    at = known.pushed[:12] or "-"
    return one_line("  ".join((known.task, state, known.link or known.remote, f"{known.branch} -> {known.base}", at)))
