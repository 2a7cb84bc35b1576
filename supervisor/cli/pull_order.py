"""Deciding one push of `nightcrew pr`: which commit goes to which branch of which remote, what a person should know before, and what the
pull request says."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from supervisor.core import pull_body, remotes
from supervisor.core.errors import Refused, UsageError, one_line
from supervisor.core.forges import Found
from supervisor.core.pull_requests import PullRequest, Tool, short_branch
from supervisor.core.remotes import Forge, RemoteUrl
from supervisor.core.reviews import Verdict
from supervisor.daemon import offers
from supervisor.faces import review as review_face
from supervisor.faces.review import Review
from supervisor.gateway.redact import Redactor
from supervisor.host import forge_tools
from supervisor.host.paths import Home
from supervisor.ledger import pull_requests as book
from supervisor.ledger import rows
from supervisor.ledger.choices import Standing
from worktrees import pushing
from worktrees.repository import Repository

_CLOSES = re.compile(r"(?i)\b(?:close[sd]?|fix(?:e[sd])?|resolve[sd]?)\b:?\s+(\S*#\d+|[A-Z][A-Z0-9_]+-\d+|https?://\S+/issues/\d+)")
_COMMITS_READ = 500


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
    commits: int
    target: RemoteUrl
    """Where git pushes to."""
    branch: str
    base: str
    tool: Tool
    known: PullRequest | None
    title: str
    body: str

    @property
    def repository(self) -> Repository:
        return self.review.repository

    @property
    def commit(self) -> str:
        return self.review.tip

    @property
    def task(self) -> str:
        return self.review.view.id

    @property
    def compare_url(self) -> str:
        """Where a person opens the pull request by hand; may be empty."""
        return remotes.compare_url(self.target, self.base, self.branch)

    def shape(self, found: Found | None, *, pushed: bool) -> dict[str, Any]:
        """As `--json` has it, with the pull request that the host knows."""
        host = (
            (found.number, found.link, found.state, found.draft, found.base) if found else (None, self.compare_url, None, None, self.base)
        )
        number, link, state, draft, base = host
        return {
            "task": self.task, "commit": self.commit, "commits": self.commits, "remote": self.target.plain, "branch": self.branch,
            "base": base, "pushed": pushed, "tool": self.tool, "number": number, "link": link or None, "state": state, "draft": draft,
            "title": self.title, "body": self.body,
        }  # fmt: skip


def refuse(review: Review, standing: Standing | None, *, force: bool) -> None:
    """Raises Refused for a result that a person has to decide on first, and for one that holds nothing. `standing`: of a candidate."""
    view, decision = review.view, review.decision
    if review.tip in (review.base, view.base_oid):
        raise Refused("nothing to push", on=view.id, why="it holds no commit that its base lacks", hint=f"nightcrew status {view.id}")
    if force:
        return
    hint = f"nightcrew review {view.id}; or --force"
    if decision is not None and decision.verdict is Verdict.REJECTED:
        why = f"it was rejected{f': {decision.why}' if decision.why else ''}"
        raise Refused("not pushed", on=view.id, why=why, kept="the result", hint=hint)
    if standing is not None and not standing.chosen:
        why = f"nobody has chosen a candidate of {standing.group}" if standing.open else f"it was not chosen of {standing.group}"
        raise Refused("not pushed", on=view.id, why=why, kept="the result", hint=hint)
    if view.final:
        offers.refuse_unfit(view, "not pushed")


def decide(db: sqlite3.Connection, review: Review, target: RemoteUrl, options: Options, choose: Callable[[str | None], Tool]) -> Order:
    """Choose branch, base and title: first what the options say, then what the task's pull request at that remote has, then a short name
    and the checkout's branch.
    `choose`: as `tool_for`. Raises Refused and UsageError."""
    view, git = review.view, review.repository.git
    of_task = book.of_task(db, view.id)
    known = of_task if of_task is not None and of_task.remote == target.plain else None
    branch = pushing.checked_branch(
        review.repository, options.branch or (known.branch if known is not None else _short(db, view.id, target))
    )
    base = options.base or (known.base if known is not None else _base(review.repository))
    if branch == base:
        raise Refused(
            "not pushed", on=branch, why="that is the branch that it is to be merged into", kept="everything", hint="--branch OTHER"
        )
    prompt = "" if options.no_prompt else rows.launch(db, view.id).spec.prompt or ""
    commits = int(git.run(review.repository.store, "rev-list", "--count", f"{review.base}..{review.tip}").text)
    there = book.at(db, target.plain, branch)
    if there is not None and there.task != view.id and not options.force:
        _refuse_other(review, there)
    tool = choose(options.tool or (there.tool if there is not None and there.number else None))
    title = pull_body.title(Redactor().clean(options.title or view.title), view.id)
    return Order(review, commits, target, branch, base, tool, there, title, _body(review, prompt, commits))


def _short(db: sqlite3.Connection, task: str, target: RemoteUrl) -> str:
    short = short_branch(task, taken=False)
    there = book.at(db, target.plain, short)
    return short_branch(task, taken=there is not None and there.task != task)


def _refuse_other(review: Review, there: PullRequest) -> None:
    """Raises Refused when the branch holds work of another task that this result lacks."""
    git, store = review.repository.git, review.repository.store
    has = not there.pushed or git.run(store, "merge-base", "--is-ancestor", there.pushed, review.tip, accept=(0, 1, 128)).code == 0
    if not has:
        why = f"{there.branch} holds the work of {there.task}, which this result has not"
        raise Refused("not pushed", on=review.view.id, why=why, kept="that branch", hint=f"nightcrew pr {there.task}; or --branch OTHER")


def _base(repository: Repository) -> str:
    if repository.branch is None:
        raise UsageError("say what it is to be merged into", why="your checkout is on no branch", hint="--base BRANCH")
    return pushing.base_on_remote(repository, repository.branch)


def tool_for(where: Home, target: RemoteUrl, asked: str | None, environ: Mapping[str, str]) -> Tool:
    """What was asked for; else what the host's name says, or who of the two is logged in there, where it is installed. Raises Refused."""
    if asked is not None:
        if Tool(asked) is not Tool.LINK and not target.name:
            raise Refused("no host to ask", on=target.plain, why="that is no address of a host", kept="everything", hint="--with link")
        return Tool(asked)
    named = {Forge.GITHUB: Tool.GH, Forge.GITLAB: Tool.GLAB}.get(target.forge)
    if named is not None:
        return named if target.name and forge_tools.there(named, environ) else Tool.LINK
    if target.forge is not Forge.UNKNOWN or not target.name:
        return Tool.LINK
    tries = (tool for tool in (Tool.GH, Tool.GLAB) if forge_tools.there(tool, environ))
    return next((tool for tool in tries if forge_tools.knows(tool, target.web_host, environ, forge_tools.folder(where))), Tool.LINK)


def _body(review: Review, prompt: str, commits: int) -> str:
    clean, said = Redactor().clean, review.result.get("gate")
    gate = f"{review.gate}: {_gate_words(review, said)}" if review.gate else ""
    notes = [f"{review_face.size(review.diffs)}, {commits} commit{'s' if commits != 1 else ''}", *review_face.spent(review.result)]
    notes += [f"conflicts {text}" for text in review.conflicts]
    message = clean(str((review.result.get("agent") or {}).get("message") or ""))
    facts = pull_body.Facts(
        task=review.view.id, prompt=clean(prompt), message=message,
        commit=review.tip, warnings=tuple(warnings(review)), gate=clean(gate),
        gate_passed=bool(said and said["passed"] and not review.judged), notes=tuple(notes),
    )  # fmt: skip
    return pull_body.body(facts)


def _gate_words(review: Review, said: Mapping[str, Any] | None) -> str:
    if review.judged:
        return f"it has not run on this commit, but on {review.judged[:12]}"
    return "it has not run" if said is None else "passed" if said["passed"] else str(said["why"])


def warnings(review: Review) -> Iterator[str]:
    """What may make its gate say less."""
    return (f"{flag.path}: {flag.why}" for flag in review.flags if flag.weakens)


def lines(order: Order) -> Iterator[str]:
    """What goes where, and what a person should know before."""
    view, review = order.review.view, order.review
    again = f"; our last push left it at {order.known.pushed[:12]}" if order.known is not None and order.known.pushed else ""
    yield f"{view.id}: commit {order.commit[:12]}, {order.commits} over {order.base}, {review_face.size(review.diffs)}"
    yield f"goes to {order.target.plain} as branch {order.branch}{again}"
    if not view.final:
        yield "its agent works: what it has committed by now is pushed"
    if review.verdict and review.decision is not None and not review.decision.holds(review.tip):
        yield review.verdict
    yield from (f"this may make its gate say less: {text}" for text in warnings(review))
    yield from (f"it conflicts {text}" for text in review.conflicts)
    yield from (f"the message of a commit would close {text} when it is merged" for text in _closes(order))
    if names := pushing.unused(order.repository):
        yield f"of no effect, since only the repository says it, where agents can write: {', '.join(names)}"


def _closes(order: Order) -> list[str]:
    span = f"{order.review.base}..{order.commit}"
    log = order.repository.git.run(order.repository.store, "log", f"--max-count={_COMMITS_READ}", "--format=%B", span).out[: 2**20]
    return [one_line(found) for found in dict.fromkeys(_CLOSES.findall(log.decode("utf-8", "replace")))][:10]
