"""Whether a plan can go well tonight, looked at before anyone sleeps."""

from __future__ import annotations

import functools
import os
import secrets
import sqlite3
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, replace
from typing import Any

from agents import trust
from agents.conversation import DEFAULT_MODEL
from agents.kinds import kinds, of_task
from supervisor.client import protocol
from supervisor.doctor import examine, machine
from supervisor.doctor import state_directory as state
from supervisor.doctor.examine import Check, CheckContext, Checked, Finding, State, fail, ok, unknown, warn
from supervisor.gateway.account.charges import Prices
from supervisor.gateway.admission.types import Agent, Usage
from supervisor.gateway.proxy.forward import Way, way
from supervisor.host import untrusted_fs, usage
from supervisor.host.paths import Home
from supervisor.kernel import account, capacity
from supervisor.kernel.account import Expected, Forecast, Misfit, Range
from supervisor.kernel.capacity import AGENT, COMMAND, Means, Need
from supervisor.kernel.errors import NightcrewError, one_line
from supervisor.kernel.format import duration, listed, money
from supervisor.kernel.gateway_settings import Api, GatewaySettings
from supervisor.kernel.kind import Kind
from supervisor.kernel.night import NightTerms
from supervisor.kernel.pressure import Verdict
from supervisor.kernel.spec import RunSpec, Submission, TaskSpec
from supervisor.kernel.states import TaskClass, TaskState
from supervisor.store import journal, queries, sqlite
from worktrees.changes import observe
from worktrees.repository import Repository, current_branch

# Preflight fit
# -------------
# Whether a plan fits into its night: its predicted end and cost, from what such tasks took before, against its deadline and its
# cap.


CLASSES = ("interactive", "normal", "batch")
SHOWN = 5
"""Tasks that a finding names; `--json` names all."""


@dataclass(frozen=True, slots=True)
class Predicted:
    """What is known of the night before it begins."""

    forecast: Forecast
    slots: int
    slots_by: str
    late: Misfit
    """Against the deadline and the grace; nothing without one."""
    dear: Misfit
    """Against the cap; nothing without one."""
    samples: Mapping[str, int]
    """Tasks from which each kind was learned."""

    def shape(self) -> dict[str, Any]:
        """For programs; times are seconds from the start, null is what nobody knows."""
        return {
            "slots": self.slots,
            "slots_by": self.slots_by,
            "binding": self.forecast.binding,
            "end_s": asdict(self.forecast.end),
            "cost_usd": asdict(self.forecast.cost),
            "learned_from": dict(self.samples),
            "late": asdict(self.late),
            "over_the_cap": asdict(self.dear),
            "tasks": {
                name: {"end_s": asdict(end), "cost_until_usd": asdict(self.forecast.costs[name])}
                for name, end in self.forecast.ends.items()
            },
        }


def predict(home: Home, submission: Submission, terms: NightTerms, start: float, machine: Mapping[str, Any]) -> Predicted:
    """`start`: when the night begins, seconds since 1970. `machine`: what the supervisor says of its capacity (`daemon.capacity.shape`)."""
    with closing(sqlite.connect_readonly(home.ledger)) as db:
        expected, samples = _expected(db, submission)
    slots, by = _slots(submission.spec.tasks, machine, terms.parallel)
    found = account.forecast(expected, slots, by)
    late = account.misfit(found.ends, terms.until + terms.grace_s - start) if terms.until else Misfit()
    dear = account.misfit(found.costs, terms.cost_max) if terms.cost_max else Misfit()
    return Predicted(found, slots, by, late, dear, samples)


def _expected(db: sqlite3.Connection, submission: Submission) -> tuple[list[Expected], dict[str, int]]:
    tasks = sorted(submission.spec.tasks, key=lambda task: (CLASSES.index(task.task_class), -task.priority))
    of_kind = functools.cache(lambda kind: journal.of_kind(db, kind))
    found = []
    for task in tasks:
        if task.decide:  # a group of candidates, which never starts
            found.append(Expected(task.name, task.after, account.NOTHING, account.NOTHING))
            continue
        same = journal.history_of_task(db, submission.project, task.name, task.kind)
        taken = same if len(same) >= capacity.KNOWN else of_kind(task.kind)
        seconds = account.measured([one.seconds for one in taken], task.longest_s * (1 + task.retries))
        found.append(Expected(task.name, task.after, seconds, _dollars(task, taken)))
    return found, {kind: len(of_kind(kind)) for kind in sorted({task.kind for task in tasks})}


def _dollars(task: TaskSpec, taken: Sequence[journal.Taken]) -> Range:
    if not of_task(task.kind).is_agent and not any(one.dollars for one in taken):
        return account.NOTHING  # a command that has never asked a model
    return account.measured([one.dollars for one in taken if one.dollars is not None], task.cost_max)


def _slots(tasks: Sequence[TaskSpec], machine: Mapping[str, Any], parallel: int) -> tuple[int, str]:
    """How many of the plan's tasks live at once, and what limits them."""
    needs = {kind: Need(**{key: value for key, value in need.items() if key != "assumed"}) for kind, need in machine["needs"].items()}
    waiting = [
        (needs.get(kind) or (AGENT if of_task(kind).is_agent else COMMAND), count) for kind, count in Counter(t.kind for t in tasks).items()
    ]
    if machine["means"] is None:
        slots, by = int(machine["slots"]), "cap"
    else:
        carried = capacity.capacity(Means(**machine["means"]), [], waiting)
        slots, by = carried.slots, carried.binding
    return (parallel, "parallel") if 0 < parallel < slots else (slots, by)


_ALLOWS = {"cap": "the setting `slots` allows", "parallel": "--parallel allows", "cores": "the cores allow", "tokens": "the tokens allow"}


# What a person reads --------------------------------------------------------------------------------------------------------------------


def end(found: Predicted, terms: NightTerms) -> Finding:
    """The predicted end against the deadline."""
    binds = "" if found.forecast.binding == found.slots_by else f", as many as {_ALLOWS.get(found.slots_by, f'{found.slots_by} allows')}"
    seen = f"{_times(found.forecast.end)} on {found.slots} slots{binds}; {_binding(found)}"
    if not terms.until:
        return ok(f"{seen}; no deadline") if found.forecast.end.likely is not None else unknown(f"{seen}; no deadline", _why_unknown(found))
    return _judged(
        found.late, seen, "will not have ended by the deadline and the grace", "a later --until, more --parallel, or fewer tasks", found
    )


def cost(found: Predicted, terms: NightTerms) -> Finding:
    """The predicted cost against the cap."""
    span = found.forecast.cost
    seen = (
        f"{money(span.likely)} ({money(span.low)} to {'not known' if span.high is None else money(span.high)})"
        if span.likely is not None
        else "not known"
        if span.high is None
        else f"not known; at most {money(span.high)}"
    )
    if not terms.cost_max:
        return ok(f"{seen}; no cap") if span.likely is not None else unknown(f"{seen}; no cap", _why_unknown(found))
    return _judged(
        found.dear,
        f"{seen} of {money(terms.cost_max)}",
        "pass the cap, which holds all the same: they will not start",
        "a higher --cost-max, or fewer tasks",
        found,
    )


def _judged(fits: Misfit, seen: str, means: str, fix: str, found: Predicted) -> Finding:
    if fits.out:
        return fail(f"{seen}. {len(fits.out)} of {len(found.forecast.ends)} do not fit: {_some(fits.out)}", f"they {means}", fix)
    if fits.unknown:
        return unknown(f"{seen}. Of {len(fits.unknown)} nobody knows whether they fit: {_some(fits.unknown)}", _why_unknown(found))
    if fits.maybe:
        return warn(f"{seen}. {len(fits.maybe)} may not fit: {_some(fits.maybe)}", f"if they take as long as few did, they {means}", fix)
    return ok(seen)


def _why_unknown(found: Predicted) -> str:
    few = [f"{kind} ({count})" for kind, count in found.samples.items() if count < capacity.KNOWN]
    return (
        f"fewer than {capacity.KNOWN} tasks of a kind were done here: {', '.join(few)}" if few else "the price of some models is not known"
    )


def _some(names: Sequence[str]) -> str:
    return listed(names, SHOWN)


def _binding(found: Predicted) -> str:
    match found.forecast.binding:
        case "chain":
            return "the longest chain of tasks binds"
        case "parallel":
            return "--parallel binds"
        case "cap":
            return "the number of slots binds"
        case name:
            return f"{name} {'bind' if name in ('cores', 'tokens') else 'binds'}"


def _times(span: Range) -> str:
    if span.likely is None:
        least = f"at least {duration(span.low)}" if span.low else "not known"
        return f"{least}{f', at most {duration(span.high)}' if span.high is not None else ''}"
    return f"{duration(span.likely)} ({duration(span.low)} to {duration(span.high) if span.high is not None else 'not known'})"


# Preflight models
# ----------------
# Which API each kind of agent speaks, and whether the gateway serves, and prices, the models that a plan names.


_SPEAKS = {
    "claude": (Api.ANTHROPIC,),
    "builtin": (Api.ANTHROPIC,),
    "codex": (Api.OPENAI,),
    "qwen": (Api.OPENAI,),
    "gemini": (Api.GEMINI,),
}
"""By a kind's protocol; the others can be set to speak any."""


def spoken(kind: Kind) -> tuple[Api, ...]:
    """The APIs that its agents may speak."""
    return _SPEAKS.get(kind.protocol, tuple(Api))


def keyed(models: GatewaySettings, kind: Kind) -> bool:
    """Whether the gateway has a credential of its own for an API that the kind speaks."""
    return any(upstream.api in spoken(kind) and upstream.key.kind != "client" for upstream in models.upstreams)


def asked(task: TaskSpec) -> str:
    """The full name of the model that its requests will have; empty: its client chooses, as it does for a word like `sonnet`."""
    kind = kinds()[task.kind]
    if not kind.is_agent:
        return ""
    name = task.model or (DEFAULT_MODEL if kind.protocol == "builtin" else "")
    return name if kind.protocol != "claude" or any(letter.isdigit() for letter in name) else ""


def way_of(models: GatewaySettings, api: Api, task: TaskSpec) -> Way:
    """Where the gateway would send its requests, every upstream taken for usable."""
    agent = Agent(task.name, 1, TaskClass(task.task_class), size=task.size or "")
    return way(models, api, asked(task), {upstream.name for upstream in models.upstreams}, agent)


def checks(models: GatewaySettings, tasks: Sequence[TaskSpec], terms: NightTerms, prices: Prices) -> dict[str, Check]:
    """One for each model that the plan names, by its name. Nothing is said of an agent that asks its provider by itself."""
    tasks_of: dict[str, list[TaskSpec]] = {}
    for task in tasks:
        if asked(task) and any(upstream.api in spoken(kinds()[task.kind]) for upstream in models.upstreams):
            tasks_of.setdefault(asked(task), []).append(task)
    return {name: functools.partial(_model, models, same, terms, prices) for name, same in tasks_of.items()}


def _model(models: GatewaySettings, tasks: Sequence[TaskSpec], terms: NightTerms, prices: Prices, _context: CheckContext) -> Finding:
    """The worst that is so of one of the tasks, which all name the same model."""
    found = [_of_task(models, task, terms, prices) for task in tasks]
    return next((one for one in found if one.state == "fail"), next((one for one in found if one.state == "unknown"), found[0]))


def _of_task(models: GatewaySettings, task: TaskSpec, terms: NightTerms, prices: Prices) -> Finding:
    name, apis = asked(task), spoken(kinds()[task.kind])
    if len(apis) > 1:
        return unknown(f"which API {task.name} asks, its own settings say", "so nobody knows who serves it")
    to = way_of(models, apis[0], task)
    if not to.upstreams:
        return fail(
            "no upstream serves it", f"every request of {task.name} is refused", "models of [upstream], a [[route]], or another model"
        )
    served = f"served by {', '.join(to.upstreams)}"
    cap = (
        "the night"
        if terms.cost_max
        else "the crew"
        if models.policy.cost_per_night
        else task.name
        if task.cost_max and "cost_max" not in task.assumed
        else ""
    )
    if prices.cost(to.as_model or name, Usage()) is not None or not cap:
        return ok(served)
    if prices.trouble:
        return unknown(f"{served}; the prices cannot be read", f"of a model without a price the cap of {cap} refuses every request")
    return fail(
        f"{served}; nobody knows its price", f"the cap of {cap} refuses every request of it", f'[prices."{name}"] in config.toml, or no cap'
    )


# Preflight tasks
# ---------------
# What a look before a night has to try out: each gate on the base commit, and one call with each credential.
#
# They run as tasks of the crew, so that they meet what the agents will meet: an environment of their own, its snapshot, its
# sandbox, the gateway. The person's checkout is not touched. Their worktrees are removed afterwards.


START_S = 120.0
"""How long such a task may wait for a slot while none of the others runs."""
BLOCKED_S = 10.0
"""The same for what does not pass by itself: a full disk, a crew that is stopped, a window that is shut."""
_PASSES = ("", "after", "slots", "turn", "backoff", "paths", "unknown")
"""Codes of `waits_for` that pass while the crew works."""
_END_S = 10.0
"""For the ends of what is stopped, so that their worktrees can go."""
Reasons = Callable[[sqlite3.Connection, Sequence[queries.TaskView]], Mapping[str, Verdict]]
"""By task, what those wait for that have not started (`faces.waits`)."""
_LOOK_S = 0.1
_MODELS = {Api.ANTHROPIC: "claude-haiku-4-5", Api.GEMINI: "gemini-2.5-flash", Api.OPENAI: ""}
"""Whose tokens are counted; a provider that does not know it has taken the credential all the same."""
CALL_S = 90.0
TITLE = "a look before the night"


@dataclass(frozen=True, slots=True)
class Tried:
    """What came of one task."""

    name: str
    words: str
    """What was tried: the gate as a person would type it, or the API."""
    state: TaskState | None
    """None: it had not ended in time."""
    why: str
    seconds: float | None
    dollars: float | None
    said: str
    """The last line of its output."""
    waited: str = ""
    """Why it did not start, in words; empty: it did."""
    code: int | None = None
    """Its exit code, where it exited by itself."""


def untried(tasks: Sequence[TaskSpec], why: str) -> list[Tried]:
    """Of tasks that are not even begun."""
    return [Tried(task.name, _words(task), None, why, None, None, "", why) for task in tasks]


def gates(tasks: Iterable[TaskSpec]) -> list[TaskSpec]:
    """One task for each gate in each environment that the plan has it in."""
    found: dict[tuple[Any, ...], TaskSpec] = {}
    for task in tasks:
        if task.gate:
            where = (task.gate, task.snapshot, task.sandbox, task.network, task.gpus, task.memory_max, tuple(sorted(task.params.items())))
            found.setdefault(where, task)
    return [_plain(task, f"gate-{index}", task.gate, task.gate_timeout_s) for index, task in enumerate(found.values(), 1)]


def calls(models: GatewaySettings, tasks: Sequence[TaskSpec]) -> list[TaskSpec]:
    """One task for each API that the plan's agents speak and for which the gateway has a credential of its own, and for each model that the
    plan names there; a client's own login is nobody's to try."""
    found = []
    argv = (sys.executable, "-I", "-m", "agents.credential_call")
    place = replace(tasks[0], network=True, snapshot="", snapshot_id="")
    used = {task.kind for task in tasks if kinds()[task.kind].is_agent}
    for api in sorted({upstream.api for upstream in models.upstreams if upstream.key.kind != "client"}):
        if any(api in spoken(kinds()[kind]) for kind in used):
            for number, words in enumerate(_questions(models, api, tasks), 1):
                found.append(_plain(place, f"call-{api}" + (f"-{number}" if number > 1 else ""), (*argv, str(api), *words), CALL_S))
    return found


def _questions(models: GatewaySettings, api: Api, tasks: Sequence[TaskSpec]) -> list[tuple[str, ...]]:
    """The model of each call and whether the provider must know it: those that the plan names and the gateway serves, else a common one."""
    ways = {asked(task): way_of(models, api, task) for task in tasks if asked(task) and spoken(kinds()[task.kind]) == (api,)}
    names = {to.as_model or name if api is Api.OPENAI else name for name, to in ways.items() if to.upstreams}
    return [(name, "--known") for name in sorted(names)] or [(_MODELS[api],)]


def _plain(task: TaskSpec, name: str, argv: Sequence[str], timeout_s: float) -> TaskSpec:
    """A command in the environment of `task`."""
    kept = ("params", "cores", "snapshot", "snapshot_id", "sandbox", "network", "gpus", "memory_max", "disk_max", "processes_max")
    return TaskSpec(
        name=name,
        title=f"{TITLE}: {name}",
        kind="shell",
        argv=tuple(argv),
        timeout_s=timeout_s,
        priority=100,
        submitter=journal.TRIED_OUT,
        task_class=TaskClass.NORMAL,
        **{key: getattr(task, key) for key in kept},
    )


def run(home: Home, like: Submission, tasks: Sequence[TaskSpec], reasons: Reasons, blocked_s: float = BLOCKED_S) -> list[Tried]:
    """Have the supervisor, which must run, run the tasks where `like` would, and wait for their ends. What has not ended in time, or waits
    for something that does not pass by itself, is stopped. Raises what the supervisor raises."""
    if not tasks:
        return []
    order = replace(like, key=secrets.token_hex(16), spec=RunSpec(TITLE, tuple(tasks), like.spec.base), night=None)
    run_id = str(protocol.call(home.daemon_socket, "submit", order, timeout_s=60.0)["run"])
    with closing(sqlite.connect_readonly(home.ledger)) as db:
        views, waits = _awaited(db, run_id, START_S + max(task.timeout_s for task in tasks), reasons, blocked_s)
        late = [view.id for view in views if not view.final]
        with suppress(NightcrewError):  # they end by their own timeouts
            if late:
                protocol.call(home.daemon_socket, "kill", {"tasks": late}, timeout_s=60.0)
        ends_at = time.monotonic() + _END_S
        ended = views
        while not all(view.final for view in ended) and time.monotonic() < ends_at:
            time.sleep(_LOOK_S)
            ended = queries.of_run(db, run_id)
    _clean(home, [(view.id, view.epoch) for view in ended if view.final and view.epoch])
    return [_tried(home, view, task, waits.get(view.id)) for view, task in zip(views, tasks, strict=True)]


def _awaited(
    db: sqlite3.Connection, run_id: str, most_s: float, reasons: Reasons, blocked_s: float
) -> tuple[list[queries.TaskView], Mapping[str, Verdict]]:
    """The tasks as they were last seen, and what those wait for that have not started."""
    ends_at, quiet_since = time.monotonic() + most_s, time.monotonic()
    while True:
        views, now = queries.of_run(db, run_id), time.monotonic()
        if all(view.final for view in views):
            return views, {}
        if any(view.started and not view.final for view in views):
            quiet_since = now
        if now >= ends_at or now - quiet_since >= blocked_s:
            waits = reasons(db, views)
            if now >= ends_at or now - quiet_since >= START_S or not any(one.code in _PASSES for one in waits.values()):
                return views, waits
        time.sleep(_LOOK_S)


def _clean(home: Home, attempts: list[tuple[str, int]]) -> None:
    with suppress(NightcrewError):  # `nightcrew clean` finds them
        args = {"attempts": attempts, "remove": True, "ignored": True, "discard": True, "forget": True}
        protocol.call(home.daemon_socket, "clean", args, timeout_s=60.0)


def _words(task: TaskSpec) -> str:
    return replace(task, gate=task.argv).gate_words


def _tried(home: Home, view: queries.TaskView, task: TaskSpec, waits: Verdict | None) -> Tried:
    result = view.result or {}
    log = b"\n".join(
        untrusted_fs.read_plain(home.attempt(view.id, view.epoch) / name, 4096, tail=True) or b"" for name in ("stdout.log", "stderr.log")
    )
    lines = [line for line in log.decode("utf-8", "replace").splitlines() if line.strip()]
    seconds = view.ended - view.started if view.ended and view.started else None
    return Tried(
        view.name,
        _words(task),
        view.state if view.final else None,
        view.end_cause or view.reason,
        seconds,
        result.get("cost_usd"),
        lines[-1].strip()[:300] if lines else "",
        waits.words or waits.code if waits is not None and not view.final else "",
        (result.get("exit") or {}).get("code"),
    )


# Preflight
# ---------
# `nightcrew night check`: whether a plan can go well tonight, looked at before anyone sleeps.
#
# Each group is a list of checks like doctor's, and uses its probes. What has to be tried out runs first, as tasks of the crew
# (`preflight_tasks`); the prediction is in `preflight_fit`.


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
        "models": checks(evening.models, evening.submission.spec.tasks, evening.terms, _prices(evening)),
        "machine": {
            "disk": state.disk,
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
    said = machine.asked(context, {"version": (path, "--version"), **({"login": (path, *kind.login)} if kind.login else {})})
    if said["version"].is_late:
        return unknown(said["version"].text, "the machine may only be busy", f"{kind.binary} --version")
    if said["version"].code != 0:
        return fail(
            f"{kind.binary} --version fails: {one_line(said['version'].text)[:100]}",
            "an agent that does not start ends its tasks",
            kind.binary,
        )
    seen = f"{machine.version_line(said['version'].text)}"
    if kind.version and machine.is_older(said["version"].text, kind.version):
        why = "its arguments were tried with that one"
        return warn(f"{seen}, older than {kind.version}", why, f"update it, then nightcrew kinds test {kind.name}")
    return _logged_in(evening, kind, context, seen, said["login"].code if kind.login else 0)


def _ours(evening: Evening, kind: Kind) -> Finding:
    """Of a kind without a program of others': what it needs is a credential."""
    given = [evening.submission.env, *(task.params for task in evening.submission.spec.tasks if task.kind == kind.name)]
    if kind.protocol != "builtin" or keyed(evening.models, kind) or any(not _KEYS.isdisjoint(one) for one in given):
        return ok("nightcrew's own")
    why = "no gateway with a key for Anthropic's API, and none of its own"
    return fail(why, "its tasks end at once", "ANTHROPIC_API_KEY=... nightcrew up -d; or an [upstream] in config.toml")


def _logged_in(evening: Evening, kind: Kind, context: CheckContext, seen: str, login: int | None) -> Finding:
    through = "its calls go through the gateway" if keyed(evening.models, kind) else ""
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
    cost = f"cost {money(one.dollars)}" if one.dollars else "cost nothing"
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
    found = usage.look(context.sys, context.proc)
    full = ", ".join(f"{part}%" if part is not None else "not known" for part in found.batteries)
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
    return listed(paths, 3)


_JUDGED = range(1, 126)
"""Exit codes of a gate that ran: shells say 126 and 127 of a program that cannot be started, and more of one that a signal ended."""
_MENDS = "run it in your checkout where it should pass already"


def _gates(evening: Evening) -> dict[str, Check]:
    return {one.name: functools.partial(_gate, one) for one in evening.tried if one.name.startswith("gate-")}


def _gate(one: Tried, _context: CheckContext) -> Finding:
    took = f" in {duration(one.seconds)}" if one.seconds is not None else ""
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
    return _predicted(evening, end)


def _cost(evening: Evening, _context: CheckContext) -> Finding:
    return _predicted(evening, cost)


def _predicted(evening: Evening, judge: Callable[[Predicted, NightTerms], Finding]) -> Finding:
    if evening.predicted is None:
        return unknown("the supervisor does not say how many agents the machine carries", fix="nightcrew capacity")
    return judge(evening.predicted, evening.terms)
