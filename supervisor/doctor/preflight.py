"""`nightcrew night check`: whether a plan can go well tonight, looked at before anyone sleeps.

Each group is a list of checks like doctor's, and uses its probes. What has to be tried out runs first, as tasks of the crew
(`preflight_tasks`); the prediction is in `preflight_fit`.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from agents import trust
from agents.kinds import kinds
from supervisor.core.errors import one_line
from supervisor.core.gateway.settings import GatewaySettings
from supervisor.core.kind import Kind
from supervisor.core.night import NightTerms
from supervisor.core.spec import Submission, TaskSpec
from supervisor.core.states import TaskState
from supervisor.doctor import examine, machine, preflight_fit, preflight_models, software, state
from supervisor.doctor.check_context import CheckContext
from supervisor.doctor.examine import Check
from supervisor.doctor.finding import Checked, Finding, State, fail, ok, unknown, warn
from supervisor.doctor.preflight_fit import Predicted
from supervisor.doctor.preflight_tasks import Tried
from supervisor.gateway.prices import Prices
from supervisor.host import power
from worktrees.changes import observe
from worktrees.repository import Repository, current_branch

_WAITS = "what it waits for would hold the night's tasks too"
_KEYS = frozenset({"ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"})
"""With one of them the built-in agent asks the provider by itself."""
DEADLINE_S = 60.0
"""Of the checks together, without what is tried out."""


@dataclass(frozen=True, slots=True)
class Evening:
    """What is looked at."""

    context: CheckContext
    submission: Submission
    terms: NightTerms
    repository: Repository
    tried: Sequence[Tried]
    """What was tried out; each is named `gate-N` or `call-API`."""
    models: GatewaySettings
    """Of the gateway."""
    predicted: Predicted | None
    """None: the supervisor did not say how many agents the machine carries."""

    @property
    def slots(self) -> int:
        """Return how many agents live at once, the same figure for each check: as predicted, else as the terms and the settings say."""
        if self.predicted is not None:
            return self.predicted.slots
        return min(self.terms.parallel or self.context.slots, self.context.slots)


def look(evening: Evening) -> list[Checked]:
    """Every finding. Raises nothing that a check can raise."""
    context = replace(evening.context, settings=replace(evening.context.settings, slots=evening.slots))
    groups: dict[str, Mapping[str, Check]] = {
        "agents": {name: functools.partial(_kind, evening, kind) for name, kind in _kinds(evening.submission).items()},
        "credentials": _credentials(evening),
        "models": preflight_models.checks(evening.models, evening.submission.spec.tasks, evening.terms, _prices(evening)),
        "machine": {
            "disk": state.disk,
            "memory": machine.memory,
            "inotify": machine.inotify,
            "open files": machine.open_files,
            "power": powered,
        },
        "repository": {"base": functools.partial(_base, evening), **_gates(evening)},
        "prediction": {"end": functools.partial(_end, evening), "cost": functools.partial(_cost, evening)},
    }
    return examine.examine(context, {name: checks for name, checks in groups.items() if checks}, DEADLINE_S)


def ready(checked: Sequence[Checked]) -> bool:
    """Whether nothing is known that keeps the night from going well. What nobody knows is said beside it."""
    return not any(one.finding.state is State.FAIL for one in checked)


def _prices(evening: Evening) -> Prices:
    return Prices.load(evening.context.home.prices, evening.models.prices)


def _kinds(submission: Submission) -> dict[str, Kind]:
    """The agents, and what a person has to sit at."""
    attended = {task.kind for task in submission.spec.tasks if _owns_terminal(task)}
    used = sorted({task.kind for task in submission.spec.tasks})
    return {name: kinds()[name] for name in used if kinds()[name].is_agent or name in attended}


def _owns_terminal(task: TaskSpec) -> bool:
    return kinds()[task.kind].owns_terminal(interactive=task.interactive)


def _kind(evening: Evening, kind: Kind, context: CheckContext) -> Finding:
    """Its program, the version of that, who is logged in, and whether it would ask."""
    attended = [task.name for task in evening.submission.spec.tasks if task.kind == kind.name and _owns_terminal(task)]
    if attended:
        names = ", ".join(attended[:3])
        if kind.mode == "terminal":
            return fail(
                f"{names}: kind {kind.name} owns its pane", "it ends when a person ends it, and at night nobody does", "another kind"
            )
        return fail(f"{names}: interactive", "a person must sit at it, and at night nobody does", "interactive = false")
    if not kind.binary:
        return _ours(evening, kind)
    path = context.which(kind.binary)
    if path is None:
        return fail(f"{kind.binary} is not on the PATH", "its tasks are refused", f"install {kind.binary}")
    said = software.asked(context, {"version": (path, "--version"), **({"login": (path, *kind.login)} if kind.login else {})})
    if said["version"].is_late:
        return unknown(said["version"].text, "the machine may only be busy", f"{kind.binary} --version")
    if said["version"].code != 0:
        return fail(
            f"{kind.binary} --version fails: {one_line(said['version'].text)[:100]}",
            "an agent that does not start ends its tasks",
            kind.binary,
        )
    seen = f"{software.version_line(said['version'].text)}"
    if kind.version and software.is_older(said["version"].text, kind.version):
        why = "its arguments were tried with that one"
        return warn(f"{seen}, older than {kind.version}", why, f"update it, then nightcrew kinds test {kind.name}")
    return _logged_in(evening, kind, context, seen, said["login"].code if kind.login else 0)


def _ours(evening: Evening, kind: Kind) -> Finding:
    """Of a kind without a program of others': what it needs is a credential."""
    given = [evening.submission.env, *(task.params for task in evening.submission.spec.tasks if task.kind == kind.name)]
    if kind.protocol != "builtin" or preflight_models.keyed(evening.models, kind) or any(not _KEYS.isdisjoint(one) for one in given):
        return ok("nightcrew's own")
    why = "no gateway with a key for Anthropic's API, and none of its own"
    return fail(why, "its tasks end at once", "ANTHROPIC_API_KEY=... nightcrew up -d; or an [upstream] in config.toml")


def _logged_in(evening: Evening, kind: Kind, context: CheckContext, seen: str, login: int | None) -> Finding:
    through = "its calls go through the gateway" if preflight_models.keyed(evening.models, kind) else ""
    if login is None:
        return unknown(f"{seen}; whether somebody is logged in it does not say in time", "", kind.binary)
    if login != 0 and not through:
        return fail(f"{seen}; nobody is logged in", "it stops at its first question", f"{kind.binary}, and log in")
    asks = kind.trust is not None and not trust.look(kind.trust, evening.repository.root, context.environ).is_there
    rest = ["logged in" if kind.login and login == 0 else "", through, "trusts the repository" if kind.trust and not asks else ""]
    return ok("; ".join(filter(None, [seen, *rest, "does not know the repository, which headless it does not ask about" if asks else ""])))


def _credentials(evening: Evening) -> dict[str, Check]:
    found: dict[str, Check] = {
        one.name.removeprefix("call-"): functools.partial(_call, one) for one in evening.tried if one.name.startswith("call-")
    }
    for name in (upstream.name for upstream in evening.models.upstreams if upstream.key.kind == "client"):
        found[name] = lambda _: unknown(
            "it passes the agents' own login on", "that is not nightcrew's to try", "start one such agent before you go"
        )
    if not found:
        found["gateway"] = lambda _: ok("none is set: agents use their own logins")
    return found


def _call(one: Tried, _context: CheckContext) -> Finding:
    cost = f"cost ${one.dollars:.4f}" if one.dollars else "cost nothing"
    match one.state:
        case TaskState.DONE if '"listed": false' in one.said:
            seen = f"the credential was taken; {one.words.split()[-2]} is not among the models that it lists"
            return unknown(seen, "a provider may serve what it does not list", "another model, unless you know that it is served")
        case TaskState.DONE:
            return ok(f"the credential was taken; the call {cost}")
        case None if one.waited:
            return unknown(f"the call did not start: {one.waited}", "so nobody knows whether the credential is taken", _WAITS)
        case None:
            return unknown(f"no answer in time: {one.why}", "agents would wait as this call did", "nightcrew gateway status")
        case _:
            return fail(f"the call failed: {one.said or one.why}", "no agent of this provider would work", "nightcrew gateway status")


def powered(context: CheckContext) -> Finding:
    """Mains power, batteries, and a lid."""
    found = power.look(context.sys, context.proc)
    full = ", ".join(f"{part} %" if part is not None else "not known" for part in found.batteries)
    lid = f"; the lid is {found.lid}" if found.lid else ""
    if not found.known:
        return unknown(f"the kernel does not say{lid}", "a laptop on battery does not last a night")
    if found.batteries and not found.mains:
        return fail(f"on battery ({full}){lid}", "it ends, or sleeps, before the night does", "plug it in")
    if found.lid == "closed":
        return warn(
            f"mains power{lid}",
            "many machines sleep with it, and cron and systemd start nothing then",
            "open it, or HandleLidSwitch in logind.conf",
        )
    if found.lid:
        return ok(f"mains power, battery {full or 'not known'}; the lid is open: a machine whose lid is closed may sleep")
    return ok(f"mains power{f', battery {full}' if full else ''}" if found.mains or found.batteries else "no battery and no lid")


def _base(evening: Evening, _context: CheckContext) -> Finding:
    """The commit that all start from, and what of the checkout is not in it."""
    repository, base = evening.repository, evening.submission.spec.base
    if not evening.submission.base_oid:
        return fail(f"{base} names no commit", "nothing can start from it", f"git -C {repository.root} log --oneline --all")
    branch = current_branch(repository.git, repository.checkout)
    changes = observe(repository.git, repository.checkout)
    seen = f"{base} is {evening.submission.base_oid[:12]}{f' ({branch})' if branch and base == 'HEAD' else ''}"
    changed = [os.fsdecode(path) for path in (*changes.tracked, *changes.deleted, *changes.hidden)]
    new = len(changes.untracked)
    said = [f"your checkout has changes that are in no commit: {_named(changed)}"] if changed else []
    said += [f"{new} untracked file{' is' if new == 1 else 's are'} in no commit"] if new else []
    if said:
        return warn(one_line("; ".join([seen, *said])), "agents do not see them", "git commit, or git stash")
    return ok(f"{seen}; your checkout is clean")


def _named(paths: Sequence[str]) -> str:
    return f"{', '.join(paths[:3])}{f' and {len(paths) - 3} more' if len(paths) > 3 else ''}"


_JUDGED = range(1, 126)
"""Exit codes of a gate that ran: shells say 126 and 127 of a program that cannot be started, and more of one that a signal ended."""
_MENDS = "run it in your checkout where it should pass already"


def _gates(evening: Evening) -> dict[str, Check]:
    return {one.name: functools.partial(_gate, one) for one in evening.tried if one.name.startswith("gate-")}


def _gate(one: Tried, _context: CheckContext) -> Finding:
    took = f" in {one.seconds:.0f} s" if one.seconds is not None else ""
    match one.state:
        case TaskState.DONE:
            return ok(f"{one.words}: passes on the base{took}")
        case None if one.waited:
            return unknown(f"{one.words}: did not start: {one.waited}", "so nobody knows whether it passes on the base", _WAITS)
        case None:
            return unknown(
                f"{one.words}: had not ended in time", "each task would wait for it as long", "a longer gate_timeout, or a quicker gate"
            )
        case _:
            seen = f"{one.words}: fails today{took} ({one.why}){f': {one.said}' if one.said else ''}"
            if one.code in _JUDGED:
                return warn(f"{seen}; the night is to make it pass", "if it should pass on the base, its tasks will fail", _MENDS)
            return fail(f"{seen}; it could not judge anything", "every task that has it would fail", "mend the gate, or the base")


def _end(evening: Evening, _context: CheckContext) -> Finding:
    return _predicted(evening, preflight_fit.end)


def _cost(evening: Evening, _context: CheckContext) -> Finding:
    return _predicted(evening, preflight_fit.cost)


def _predicted(evening: Evening, judge: Callable[[Predicted, NightTerms], Finding]) -> Finding:
    if evening.predicted is None:
        return unknown("the supervisor does not say how many agents the machine carries", fix="nightcrew capacity")
    return judge(evening.predicted, evening.terms)
