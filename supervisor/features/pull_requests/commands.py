"""`nightcrew pr`."""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

from supervisor.client import common, follow, follow_up
from supervisor.client.resolving import done_name
from supervisor.features.pull_requests import description, forge, rules
from supervisor.features.pull_requests import push as pushing
from supervisor.features.pull_requests import remarks as pull_requests_remarks
from supervisor.features.pull_requests import rows as pull_requests_rows
from supervisor.features.pull_requests import rules as pull_requests_rules
from supervisor.features.pull_requests.forge import PAGE, PAGES_MAX, ForgeTool, Found, Listed
from supervisor.features.pull_requests.push import Pusher
from supervisor.features.pull_requests.remarks import Remark, Round
from supervisor.features.pull_requests.rules import Forge, PullRequest, RemoteUrl, State, Tool, short_branch
from supervisor.gateway.provider_keys import Redactor
from supervisor.host import files
from supervisor.host.failpoint import failpoint
from supervisor.host.paths import Home, home
from supervisor.kernel.errors import NeedsHuman, NotFound, Refused, UsageError, one_line
from supervisor.kernel.format import many
from supervisor.results import candidates, conflicts, reviews, taking
from supervisor.results.candidates import Standing
from supervisor.results.reviews import Review
from supervisor.results.verdicts import Verdict, key
from supervisor.store import queries, rows, sqlite
from worktrees.repository import Repository

# Pr
# --
# `nightcrew pr push`, `pr sync` and `pr ls`.


class _Pr(click.Group):
    """A name that is no verb of the group is a result to push."""

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in self.commands:
            args = ["push", *args]
        return super().resolve_command(ctx, args)


@click.group(name="pr", cls=_Pr)
def command() -> None:
    """Push a result to a remote with your own git, and open a pull request; docs/pull-requests.md.

    \b
    nightcrew pr lint            push its branch, open a draft (pr push lint)
    nightcrew pr sync lint       give its agent what came back
    nightcrew pr ls              the pull requests of this repository
    """


@command.command()
@click.argument("name", shell_complete=done_name)
@click.option("--remote", default="", metavar="NAME", help="Where to (default: what the base branch tracks, else origin).")
@click.option("--branch", default="", metavar="NAME", help="Its name on the remote (default: the task's branch).")
@click.option("--base", default="", metavar="BRANCH", help="What it is to be merged into (default: the branch of your checkout).")
@click.option("--title", default="", metavar="TEXT", help="Of the pull request (default: the task's).")
@click.option("--ready", is_flag=True, help="Not as a draft.")
@click.option("--no-prompt", is_flag=True, help="Leave the prompt out of the description.")
@click.option("--with", "tool", type=click.Choice(["gh", "glab", "link"]), help="What opens it (default: what knows the host).")
@click.option("--force", is_flag=True, help="Also a result that was rejected, that failed, or that nobody chose.")
@click.option("--yes", is_flag=True, help="Agree to push to that remote.")
@click.option("--dry-run", is_flag=True, help="Only say what would be pushed where, and the description.")
@click.option("--status", "only_status", is_flag=True, help="Only show what is known of its pull request.")
@common.json_option
def push_command(name: str, as_json: bool, only_status: bool, **options: Any) -> None:
    """Push the commits of one task to a branch of a remote, and open a pull request or bring it up to date.

    What goes where is shown, and asked for the first time of each remote. git runs with your own login and settings; gh or glab open the
    pull request where they know the host, else a link is printed. Nothing is overwritten that was not pushed by this command.

    \b
    nightcrew pr push lint
    nightcrew pr lint --remote fork --branch tidy --ready
    nightcrew pr lint --dry-run
    """

    environ = dict(os.environ)  # before anything of ours takes git's variables out of it
    where = home()
    if only_status:
        show(where, name, as_json=as_json)
        return
    said = push(where, name, Options(**options), environ)
    if as_json:
        common.print_json(**said)
    elif said["link"]:
        click.echo(said["link"])


@command.command()
@click.argument("name", shell_complete=done_name)
@click.option("--rounds", type=int, metavar="N", help="How often its agent may be given what came back (default: 5).")
@click.option("--everyone", is_flag=True, help="Also what people wrote who may not write to that repository.")
@click.option("--with", "tool", type=click.Choice(["gh", "glab"]), help="What asks the host (default: what opened it).")
@click.option("--dry-run", is_flag=True, help="Only print what its agent would be given.")
@common.json_option
def sync_command(name: str, as_json: bool, **options: Any) -> None:
    """Give the agent of a pull request what came back: reviews, comments, failed checks. Each once, and only when you say so.

    A living agent gets it as its next prompt; one that has ended goes on in a task of its own, with its work. Then nightcrew pr
    pushes what it made to the same pull request.

    \b
    nightcrew pr sync lint --dry-run
    nightcrew pr sync lint
    """

    environ = dict(os.environ)
    said = sync(home(), name, {**options, "json": as_json}, environ)
    if as_json:
        common.print_json(**said)
    elif said["to"]:
        click.echo(said["to"])


@command.command(name="ls")
@common.json_option
def list_command(as_json: bool) -> None:
    """List the pull requests of the repository around you, as they were known last; the newest first.

    \b
    nightcrew pr ls --json
    """

    list_all(home(), as_json=as_json)


# Pull order
# ----------
# Deciding one push of `nightcrew pr`: which commit goes to which branch of which remote, what a person should know before, and what
# the pull request says.


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
        return rules.compare_url(self.target, self.base, self.branch)

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
        taking.refuse_unfit(view, "not pushed")


def decide(db: sqlite3.Connection, review: Review, target: RemoteUrl, options: Options, choose: Callable[[str | None], Tool]) -> Order:
    """Choose branch, base and title: first what the options say, then what the task's pull request at that remote has, then a short name
    and the checkout's branch.
    `choose`: as `tool_for`. Raises Refused and UsageError."""
    view, git = review.view, review.repository.git
    of_task = pull_requests_rows.of_task(db, view.id)
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
    there = pull_requests_rows.at(db, target.plain, branch)
    if there is not None and there.task != view.id and not options.force:
        _refuse_other(review, there)
    tool = choose(options.tool or (there.tool if there is not None and there.number else None))
    title = description.title(Redactor().clean(options.title or view.title), view.id)
    return Order(review, commits, target, branch, base, tool, there, title, _body(review, prompt, commits))


def _short(db: sqlite3.Connection, task: str, target: RemoteUrl) -> str:
    short = short_branch(task, taken=False)
    there = pull_requests_rows.at(db, target.plain, short)
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
        return named if target.name and forge.there(named, environ) else Tool.LINK
    if target.forge is not Forge.UNKNOWN or not target.name:
        return Tool.LINK
    tries = (tool for tool in (Tool.GH, Tool.GLAB) if forge.there(tool, environ))
    return next((tool for tool in tries if forge.knows(tool, target.web_host, environ, forge.folder(where))), Tool.LINK)


def _body(review: Review, prompt: str, commits: int) -> str:
    clean, said = Redactor().clean, review.result.get("gate")
    gate = f"{review.gate}: {_gate_words(review, said)}" if review.gate else ""
    notes = [f"{reviews.size(review.diffs)}, {many(commits, 'commit')}", *reviews.spent(review.result)]
    notes += [f"conflicts {text}" for text in review.conflicts]
    message = clean(str((review.result.get("agent") or {}).get("message") or ""))
    facts = description.Facts(
        task=review.view.id, prompt=clean(prompt), message=message,
        commit=review.tip, warnings=tuple(warnings(review)), gate=clean(gate),
        gate_passed=bool(said and said["passed"] and not review.judged), notes=tuple(notes),
    )  # fmt: skip
    return description.body(facts)


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
    yield f"{view.id}: commit {order.commit[:12]}, {order.commits} over {order.base}, {reviews.size(review.diffs)}"
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


# Pulling
# -------
# What `nightcrew pr` does: the person's consent, the push, and the pull request.
#
# Each step can be repeated: what is about to be pushed is in the ledger before it is pushed, and a pull request is looked for by
# its branch before one is made. A command that was killed is given again, and goes on.


LISTED_MAX = 200


def push(where: Home, name: str, options: Options, environ: Mapping[str, str]) -> dict[str, Any]:
    """Push, and open or update the pull request; what `--json` prints. Raises Refused, NeedsHuman, and as the doors."""
    with contextlib.closing(common.ledger(where)) as db:
        view = common.task_named(where, name, archived=False)
        repository, tip = taking.seen(db, view)
        review = reviews.gather(db, view, repository, tip, conflicts.known(where, view.project))
        refuse(review, candidates.standings(db, [view.id]).get(view.id), force=options.force)
        remote = pushing.remote_of(repository, options.base or repository.branch or "", options.remote)
        pusher = Pusher(repository, remote, environ, terminal=sys.stdin.isatty())
        target = pusher.target()
        order = decide(db, review, target, options, lambda asked: tool_for(where, target, asked, environ))
        for line in (*lines(order), *taking.left_out(db, view, repository)):
            common.say(one_line(line))
        if options.dry_run:
            click.echo(f"{order.title}\n\n{order.body}", err=True)
            return order.shape(None, pushed=False)
        _consent(where, db, order, yes=options.yes)
    with _only_one(where, repository):
        return _carry_out(where, order, pusher, options, forge.door(order.tool, order.target, environ, where))


def _consent(where: Home, db: sqlite3.Connection, order: Order, *, yes: bool) -> None:
    """Ask the person once for each URL whether to push there. Raises NeedsHuman off a terminal."""
    project, url = order.repository.project, order.target.plain
    if pull_requests_rows.may_push(db, project, url):
        return
    if not yes:
        if not sys.stdin.isatty():
            hint = f"say --yes, once: nightcrew pr {order.task} --yes"
            raise NeedsHuman(
                "this would be the first push to", on=url, why="each address needs your consent once", kept="everything", hint=hint
            )
        click.confirm("Push there, now and later?", abort=True, err=True)
    common.ask(where, "pr", {"op": "consent", "project": project, "remote": url})


@contextlib.contextmanager
def _only_one(where: Home, repository: Repository) -> Iterator[None]:
    """One command at a time pushes from a repository. Raises Refused."""
    lock = files.private_dir(where.root / "git" / "locks") / f"push-{repository.project}"
    with lock.open("a") as file:
        if not files.try_lock(file.fileno()):
            why = "another nightcrew pr is under way there"
            raise Refused("not pushed", on=str(repository.root), why=why, kept="everything", hint="repeat the command when that has ended")
        yield


def _carry_out(where: Home, order: Order, pusher: Pusher, options: Options, door: ForgeTool | None) -> dict[str, Any]:
    with contextlib.closing(sqlite.connect_readonly(where.ledger)) as db:  # as another command may have left it a moment ago
        known = pull_requests_rows.at(db, order.target.plain, order.branch)
    found = find(door, order.branch, known.number if known is not None else 0) if door is not None else None
    if found is not None:
        pull_requests_rules.refuse_ended(found.state, found.link)
    pull, pushed = _pushed(where, order, pusher, known)
    failpoint("pr.noted")
    found = _opened(door, order, found, options) if door is not None else None
    failpoint("pr.opened")
    note(where, pull, order.review.view, order.tool, found or _by_hand(order, options))
    if found is None:
        common.say("open the pull request there" if order.compare_url else "pushed; where its pull request is opened is not known")
    return order.shape(found, pushed=pushed)


def _pushed(where: Home, order: Order, pusher: Pusher, known: PullRequest | None) -> tuple[int, bool]:
    """Push what the remote lacks; the row of the pull request in the ledger, and whether anything was pushed."""
    there = pusher.tip(order.branch)
    lease = pull_requests_rules.lease(known, order.branch, there, order.commit)
    facts = {"project": order.repository.project, "remote": order.target.plain, "branch": order.branch, "base": order.base}
    named = {"task": order.task, "epoch": order.review.view.epoch}
    pull = int(common.ask(where, "pr", {"op": "intend", **named, **facts, "commit": order.commit if lease is not None else ""})["pull"])
    failpoint("pr.intended")
    if lease is not None:
        for line in pusher.push(order.commit, order.branch, lease.expected).words:
            common.say(f"the remote says: {line}")
        failpoint("pr.pushed")
    if lease is not None or (known is not None and order.commit == known.intent != known.pushed):
        common.ask(where, "pr", {"op": "pushed", **named, "pull": pull, "commit": order.commit})
    return pull, lease is not None


def _by_hand(order: Order, options: Options) -> Found:
    return Found(0, order.compare_url, State.NONE, not options.ready, order.branch, order.base, order.commit, order.title, order.body)


def note(where: Home, pull: int, view: queries.TaskView, tool: pull_requests_rules.Tool, found: Found) -> None:
    """Have the ledger know what the host says of a pull request."""
    facts = {"number": found.number, "link": found.link, "state": found.state, "draft": found.draft, "base": found.base}
    common.ask(where, "pr", {"op": "noted", "pull": pull, "task": view.id, "epoch": view.epoch, "tool": tool, **facts})


def find(door: ForgeTool, branch: str, number: int) -> Found | None:
    """The pull request of a branch, when there is one; `number`: the one that is known."""
    shapes = door.call(door.forge.search(branch))
    listed = [door.forge.read(one) for one in shapes] if isinstance(shapes, list) else []
    return forge.newest([one for one in listed if one.branch == branch], number)


def _opened(door: ForgeTool, order: Order, found: Found | None, options: Options) -> Found:
    """The pull request, made or brought up to date."""
    if found is None:
        try:
            return door.forge.read(door.call(door.forge.create(order.branch, order.base, order.title, order.body, draft=not options.ready)))
        except Refused:
            found = find(door, order.branch, 0)  # one was made meanwhile
            if found is None or found.state is not State.OPEN:
                raise
    body = description.merged(found.body, order.body)
    if body is not None:
        door.call(door.forge.update(found, body))
    elif description.BEGIN not in found.body:
        common.say("its description is left as it is: somebody took our part out of it")
    if options.ready and found.draft:
        door.call(door.forge.ready(found))
        found = find(door, order.branch, found.number) or found
    return found


def show(where: Home, name: str, *, as_json: bool) -> None:
    """What is known of the pull request of a task. Raises NotFound."""
    known = known_of(where, common.task_named(where, name))
    if as_json:
        common.print_json(**asdict(known))
    else:
        common.show(_line(known))


def known_of(where: Home, view: queries.TaskView) -> PullRequest:
    """The pull request of a task. Raises NotFound."""
    with contextlib.closing(common.ledger(where)) as db:
        known = pull_requests_rows.of_task(db, view.id)
    if known is None:
        raise NotFound("no pull request", on=view.id, hint=f"nightcrew pr {view.id}")
    return known


def list_all(where: Home, *, as_json: bool) -> None:
    """Those of the repository around the person."""
    with contextlib.closing(common.ledger(where)) as db:
        found = pull_requests_rows.of_project(db, queries.project_at(db, str(Path.cwd())), LISTED_MAX)
    if as_json:
        common.print_json(pull_requests=[asdict(one) for one in found])
        return
    for one in found:
        common.show(_line(one))
    common.say(f"{many(len(found), 'pull request')}, as they were known last; nightcrew pr sync NAME asks again")


def _line(known: PullRequest) -> str:
    state = str(known.state) or ("pushed" if known.pushed else "not pushed")
    if known.draft and known.state is State.OPEN:
        state = "draft"
    return one_line("  ".join((known.task, state, known.link or known.remote, f"{known.branch} -> {known.base}", known.pushed[:12] or "-")))


# Pull sync
# ---------
# What `nightcrew pr sync` does: reviews, comments and failed checks of a pull request become the next prompt of its agent, each
# once.


def sync(where: Home, name: str, options: Mapping[str, Any], environ: Mapping[str, str]) -> dict[str, Any]:
    """Ask the host, and give the agent what is new; what `--json` prints. Raises NotFound, Refused, and as the doors."""
    most = pull_requests_rules.rounds(options["rounds"])
    known = known_of(where, common.task_named(where, name, archived=False))
    view = common.task_named(where, known.task, archived=False)
    door = _door(where, known, options["tool"], environ)
    found = find(door, known.branch, known.number)
    if found is None:
        raise NotFound("the host knows no pull request", on=known.branch, kept="everything", hint=f"nightcrew pr {view.id}")
    note(where, known.id, view, door.forge.tool, found)
    failpoint("pr.heard")
    with contextlib.closing(common.ledger(where)) as db:
        asked = pull_requests_remarks.chosen(
            _remarks(door, found), pull_requests_rows.known_remarks(db, known.id), everyone=options["everyone"]
        )
    text = pull_requests_remarks.prompt(view.id, found.link, asked) if asked.remarks else ""
    said = _shape(found, view.id, asked)
    _say_left_out(asked)
    if options["dry_run"] or not asked.remarks:
        common.say(f"{len(asked.remarks)} new of {found.link}" if asked.remarks else f"nothing new of {found.link}")
        if text and not options["json"]:
            click.echo(text)
        return {**said, "to": None, "text": text or None}
    pull_requests_rules.refuse_ended(found.state, found.link)
    _refuse_rounds(known, most)
    to = _hand_over(where, view, known, asked, text, environ)
    failpoint("pr.handed")
    common.say(f"{len(asked.remarks)} given to {to}; then: nightcrew pr {to}")
    return {**said, "to": to, "text": text}


def _door(where: Home, known: PullRequest, asked: str | None, environ: Mapping[str, str]) -> ForgeTool:
    url = rules.parse(known.remote)
    tool = tool_for(where, url, asked or (known.tool if known.number else None), environ)
    door = forge.door(tool, url, environ, where)
    if door is None:
        why = "neither gh nor glab knows that host"
        raise Refused("cannot ask the host", on=known.remote, why=why, kept="everything", hint="install gh or glab, and log in; or --with")
    return door


def _remarks(door: ForgeTool, found: Found) -> list[Remark]:
    clean = Redactor().clean
    listed = door.forge.remarks({one.kind: _all(door, one) for one in door.forge.lists(found)})
    return [pull_requests_remarks.cleaned(one, clean) for one in listed]


def _all(door: ForgeTool, one: Listed) -> list[Any]:
    """Of a list the first PAGES_MAX pages."""
    entries: list[Any] = []
    for number in range(1, PAGES_MAX + 1):
        answer = door.call(one.page(number))
        page = answer.get(one.within) if one.within and isinstance(answer, dict) else answer
        if not isinstance(page, list):
            break
        entries += page
        if len(page) < PAGE:
            return entries
    common.say(f"only the first {len(entries)} entries of {one.kind} were read")
    return entries


def _say_left_out(asked: Round) -> None:
    if asked.outsiders:
        common.say(f"{asked.outsiders} left out, by people who may not write to that repository; --everyone takes them too")
    if asked.later:
        common.say(f"{asked.later} more are for the next round")


def _refuse_rounds(known: PullRequest, most: int) -> None:
    if known.rounds >= most:
        why = f"its agent was given what came back {known.rounds} times by now"
        hint = f"nightcrew pr sync {known.task} --dry-run, look yourself; or --rounds {known.rounds + 1}"
        raise Refused("not sent", on=known.link or known.branch, why=why, kept="all of it", hint=hint)


def _hand_over(where: Home, view: queries.TaskView, known: PullRequest, asked: Round, text: str, environ: Mapping[str, str]) -> str:
    """The task whose agent has it."""
    keys = [one.key for one in asked.remarks]
    with contextlib.closing(common.ledger(where)) as db:
        follow_up.refuse_without_prompt(db, view.id)
        typed = common.typable(text.encode("utf-8", "replace"))
        if not view.final:
            common.ask(where, "pr", {"op": "send", "pull": known.id, "task": view.id, "keys": keys, "text": typed})
            return view.id
        made = follow_up.submission(db, view, typed, key(view.id, "\0".join(keys)), environ)
    return follow.hand_over(where, follow_up.answering(made, known.id, keys), ()).tasks[0]


def _shape(found: Found, task: str, asked: Round) -> dict[str, Any]:
    return {
        "task": task, "link": found.link, "state": found.state, "draft": found.draft, "later": asked.later, "outsiders": asked.outsiders,
        "remarks": [{"key": one.key, "kind": one.kind, "author": one.author, "place": one.place or None, "link": one.link, "text": one.text,
                     "insider": one.insider} for one in asked.remarks],
    }  # fmt: skip
