"""The trace of a run: its spans and their facts. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from supervisor.gateway.admission.types import Usage
from supervisor.kernel.gateway_settings import Api
from supervisor.kernel.names import attempt_span, span_id, trace_id
from supervisor.kernel.states import End

# Trace facts
# -----------
# What the trace of a run is made of, see `supervisor.features.trace.rules`. Pure. Moments are seconds since 1970.


Value = str | int | float | bool


class What(StrEnum):
    """What a span is."""

    RUN = "run"
    TASK = "task"
    QUEUE = "queue"
    ATTEMPT = "attempt"
    LAUNCH = "launch"
    GATE = "gate"
    SECURING = "securing"
    PAUSE = "pause"
    WAIT = "wait"
    TOKENS = "tokens"
    MODEL = "model"
    TOOL = "tool"


_NOTHING = Usage()


@dataclass(frozen=True, slots=True)
class Life:
    """A task, or a run, from where it began to where nothing of it was left to do. A retry after that begins the next one."""

    number: int
    """0 is the first."""
    begin: float
    end: float | None = None
    first: int = 0
    """The row of the journal that began it; 0 of the first."""
    last: int = 0
    """The row of the journal that ended it; 0: it goes on."""
    outcome: str = ""
    """The state that it ended in."""
    of: int = 0
    """Of a task's: the number of its run's life."""


@dataclass(frozen=True, slots=True)
class TaskFacts:
    """What spans of a task tell."""

    id: str
    name: str
    kind: str
    agent: bool
    """Its kind is a kind of agent."""
    title: str = ""


@dataclass(frozen=True, slots=True)
class Request:
    """A sending of a request, as a row of the account has it; of one that we answered ourselves `sent` is False."""

    number: int
    at: float
    """When it was sent, or turned away."""
    queued_s: float
    """How long it had waited for that."""
    total_s: float | None
    """From its arrival to its end; None: nobody knows."""
    end: str
    """As `gateway.account.charges` has it; empty: it is under way."""
    model: str
    asked: str
    api: str
    sent: bool = True
    batch: bool = False
    status: int | None = None
    usage: Usage = _NOTHING
    cost_usd: float | None = None
    first_byte_s: float | None = None
    attempt_no: int = 1
    session: str = ""
    upstream: str = ""
    why: str = ""
    """What was odd, or why it was turned away."""

    @property
    def ended(self) -> float | None:
        """When it was over; None while it is under way."""
        if self.sent and not self.end:
            return None
        return self.at + max(0.0, (self.total_s or 0.0) - self.queued_s) if self.sent else self.at


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call of a tool, as an agent's transcript tells it."""

    number: int
    """Its place in the transcript."""
    tool: str
    begin: float
    end: float
    ok: bool
    call: str = ""
    about: str = ""
    """What it was about, in the agent's words."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Some time of an attempt in which it waited or stood still."""

    what: What
    name: str
    begin: float
    end: float | None
    number: int = 0
    attributes: Mapping[str, Value] = field(default_factory=dict)
    content: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AttemptFacts:
    """One attempt: a row of the ledger, and when it could have started (`ready`) and its end was committed (`closed`)."""

    task: TaskFacts
    epoch: int
    life: Life
    """Its task's, in which it began."""
    ready: float
    created: float
    started: float | None = None
    ended: float | None = None
    closed: float | None = None
    end: str = ""
    cause: str = ""
    """Why it ended so."""
    gate_s: float = 0.0
    gate_passed: bool = True
    session: str = ""
    last_request: float = 0.0
    """When the last of its requests was over, batches left out; 0: it made none."""
    account: Mapping[str, Value | None] = field(default_factory=dict)
    """Of its result: where its time went."""

    @property
    def bounds(self) -> tuple[float, float | None]:
        """From when to when its span goes."""
        begin = max(self.created, self.life.begin)
        return begin, None if self.closed is None else max(begin, self.closed, self.ended or 0.0, self.last_request)


Moment = tuple[int, float, str, str]
"""A row of the journal: its number, when, the task, and the final state that the task came to; empty: it began again."""


def lives(tasks: Iterable[str], created: float, moments: Iterable[Moment]) -> tuple[dict[str, list[Life]], list[Life]]:
    """The lives of these tasks, and those of their run, which was handed over at `created`. `moments` are in the journal's order."""
    found = {task: [Life(0, created)] for task in tasks}
    run, left = [Life(0, created)], len(found)
    for number, at, task, state in moments:
        life = found[task][-1] if task in found else None
        if life is None or bool(state) == bool(life.last):
            continue
        if state:
            found[task][-1] = replace(life, end=max(life.begin, at), last=number, outcome=state)
            left -= 1
            run[-1] = run[-1] if left else _closed(run[-1], found, number)
        else:
            run += [] if left else [Life(run[-1].number + 1, at, first=number)]
            found[task].append(Life(life.number + 1, max(at, run[-1].begin), first=number, of=run[-1].number))
            left += 1
    return found, run


def _closed(run: Life, tasks: Mapping[str, list[Life]], number: int) -> Life:
    outcome = next((every[-1].outcome for every in tasks.values() if every[-1].outcome != End.DONE), str(End.DONE))
    own = (life.end or 0.0 for every in tasks.values() for life in every if life.of == run.number)
    return replace(run, end=max(run.begin, *own), last=number, outcome=outcome)


def life_at(every: Sequence[Life], number: int) -> Life:
    """The one to which a row of the journal belongs."""
    return next(life for life in reversed(every) if life.first <= number)


# Traces
# ------
# The trace of a run: its spans, made of what the ledger, the gateway's account and the transcripts say. Pure.
#
#     run            `invoke_workflow`
#     └ task         `task NAME`, once more for each time that a person had it run again
#       ├ queue      `wait for a slot`, before each attempt
#       └ attempt    `invoke_agent NAME`, or `attempt NAME` of what is no agent
#         ├ launch, gate, securing, pause, wait
#         ├ tokens   `wait for tokens`, of a request at the gateway
#         ├ model    `chat MODEL`, one for each sending
#         └ tool     `execute_tool TOOL`
#
# Ids follow from the ids and epochs of the rows, so whoever makes the same span again gives it the same id. A span lies within its
# parent, and none has a negative duration, whatever the clock did: what a row says beyond that is cut off, and the span says by how
# much (`CUT`). Names and attributes are those of the GenAI semantic conventions, as of `CONVENTIONS`; ours begin with `nightcrew.`.
# What a person or an agent wrote is in `content`, apart from the rest: exporters leave it out unless they are asked for it.


CONVENTIONS = "1.41.0"
"""Of the semantic conventions: the last release that has the GenAI ones among the others."""
CUT = "nightcrew.cut_s"
"""Seconds that were cut off so that a span lies within its parent."""
SEEN_S = 0.001
"""A shorter wait for tokens is no span of its own: every request waits for some microseconds."""


@dataclass(frozen=True, slots=True)
class Span:
    """One span. Moments are seconds since 1970."""

    id: str
    """16 hex digits."""
    parent: str
    """The id of the span that it lies in; empty: it is the run's."""
    trace: str
    """32 hex digits, see `audit_events.trace_id`."""
    what: What
    name: str
    start: float
    end: float | None
    """None: it goes on."""
    attributes: Mapping[str, Value] = field(default_factory=dict)
    content: Mapping[str, Value] = field(default_factory=dict)
    error: str = ""
    """Why it is a failure, a word or a few that are the same each time (`error.type`); empty: it is none."""

    def seconds(self, now: float) -> float:
        """How long it took, or takes by `now`."""
        return max(0.0, (now if self.end is None else self.end) - self.start)


def run_id(run: str, life: int) -> str:
    """The id of the span of a run's life."""
    return span_id("run", run, life)


def task_id(task: str, life: int) -> str:
    """The id of the span of a task's life."""
    return span_id("task", task, life)


def of_run(run: str, title: str, life: Life, tasks: int, reach: float = 0.0) -> Span:
    """The span of a run's life; `reach`: when the last of its tasks' spans ends."""
    told: dict[str, Value] = {"nightcrew.run": run, "nightcrew.tasks": tasks, **_lived(life)}
    return Span(
        run_id(run, life.number), "", trace_id(run), What.RUN, "invoke_workflow", life.begin, _end(life, reach),
        {"gen_ai.operation.name": "invoke_workflow", **told}, {"gen_ai.workflow.name": title}, _unless_done(life.outcome),
    )  # fmt: skip


def of_task(task: TaskFacts, life: Life, reach: float = 0.0) -> Span:
    """The span of a task's life; `reach`: when the last of its attempts' spans ends."""
    return Span(
        task_id(task.id, life.number), run_id(_run(task.id), life.of), trace_id(task.id), What.TASK, f"task {task.name}",
        life.begin, _end(life, reach), {**_of(task), **_lived(life)}, {"nightcrew.title": task.title}, _unless_done(life.outcome),
    )  # fmt: skip


def _lived(life: Life) -> dict[str, Value]:
    return {"nightcrew.life": life.number, **({"nightcrew.state": life.outcome} if life.outcome else {})}


def _end(life: Life, reach: float) -> float | None:
    return None if life.end is None else max(life.end, reach)


def of_attempt(facts: AttemptFacts, stretches: Iterable[Stretch] = (), tools: Iterable[ToolCall] = ()) -> list[Span]:
    """The span of an attempt, that of its wait for a slot before it, and those of what it did but its requests."""
    own = _attempt(facts)
    waited = Stretch(What.QUEUE, "wait for a slot", max(facts.life.begin, min(facts.ready or own.start, own.start)), own.start)
    queue = _span(facts.task, own.parent, waited, span_id("queue", own.id))
    inner = [*_phases(facts), *stretches]
    spans = [_within(own, _span(facts.task, own.id, one, span_id(one.what, own.id, one.number))) for one in inner]
    return [queue, own, *spans, *(_within(own, _tool(facts.task, own.id, call)) for call in tools)]


def of_request(task: TaskFacts, epoch: int, bounds: tuple[float, float | None], request: Request) -> list[Span]:
    """The spans of a request: its wait for tokens, where it can be seen, and its time at the provider. `bounds`: its attempt's."""
    parent, trace = attempt_span(task.id, epoch), trace_id(task.id)
    own = Span(parent, "", trace, What.ATTEMPT, "", bounds[0], bounds[1])
    word = "request" if request.sent else "turned away"
    mine = span_id(word, parent, request.number, repr(request.at))
    spans = []
    if request.queued_s >= SEEN_S or not request.sent:
        waited = Stretch(What.TOKENS, "wait for tokens", request.at - request.queued_s, request.at)
        span = _span(task, parent, waited, span_id("tokens", mine))
        spans.append(span if request.sent else _turned_away(span, request))
    if request.sent:
        attributes = {**_of(task), "nightcrew.epoch": epoch, **_chat(request)}
        name = f"chat {request.asked or request.model}".strip()
        spans.append(
            Span(mine, parent, trace, What.MODEL, name, request.at, request.ended, attributes, {}, _failure(request))
        )  # fmt: skip
    return [_within(own, span) for span in spans]


def _attempt(facts: AttemptFacts) -> Span:
    task, (begin, end) = facts.task, facts.bounds
    told: dict[str, Value] = {**_of(task), "nightcrew.epoch": facts.epoch}
    if task.agent:
        told |= {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": task.name}
    told |= {"gen_ai.conversation.id": facts.session} if facts.session else {}
    told |= {"nightcrew.end": facts.end} if facts.end else {}
    told |= {f"nightcrew.account.{name}": value for name, value in facts.account.items() if value is not None}
    name = f"{'invoke_agent' if task.agent else 'attempt'} {task.name}"
    parent = task_id(task.id, facts.life.number)
    content: dict[str, Value] = {"nightcrew.cause": facts.cause} if facts.cause else {}
    return Span(
        attempt_span(task.id, facts.epoch), parent, trace_id(task.id), What.ATTEMPT, name, begin, end, told, content,
        _unless_done(facts.end),
    )  # fmt: skip


def _phases(facts: AttemptFacts) -> list[Stretch]:
    found = [Stretch(What.LAUNCH, "launch", facts.created, facts.started or facts.closed)]
    if facts.gate_s and facts.ended:
        passed: dict[str, Value] = {"nightcrew.passed": facts.gate_passed}
        found.append(Stretch(What.GATE, "gate", facts.ended - facts.gate_s, facts.ended, attributes=passed))
    if facts.ended and facts.closed:
        found.append(Stretch(What.SECURING, "secure its work", facts.ended, facts.closed))
    return found


def _span(task: TaskFacts, parent: str, one: Stretch, own: str) -> Span:
    attributes = {"nightcrew.run": _run(task.id), "nightcrew.task": task.id, **one.attributes}
    end = one.end if one.end is None else max(one.begin, one.end)
    return Span(own, parent, trace_id(task.id), one.what, one.name, one.begin, end, attributes, one.content)


def _tool(task: TaskFacts, parent: str, call: ToolCall) -> Span:
    told: dict[str, Value] = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": call.tool, **_of(task)}
    told |= {"gen_ai.tool.call.id": call.call} if call.call else {}
    content: dict[str, Value] = {"gen_ai.tool.call.arguments": call.about} if call.about else {}
    error = "" if call.ok else "tool_error"
    return Span(
        span_id("tool", parent, call.number), parent, trace_id(task.id), What.TOOL, f"execute_tool {call.tool}".strip(),
        call.begin, max(call.begin, call.end), told, content, error,
    )  # fmt: skip


_PROVIDERS = {Api.ANTHROPIC: "anthropic", Api.OPENAI: "openai", Api.GEMINI: "gcp.gemini"}


def _chat(request: Request) -> dict[str, Value]:
    usage, own = request.usage, "nightcrew."
    told: dict[str, Value | None] = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": _PROVIDERS.get(Api(request.api), request.api) if request.api in set(Api) else request.api,
        "gen_ai.request.model": request.asked or request.model,
        "gen_ai.response.model": request.model if request.end == _SERVED else None,
        "gen_ai.conversation.id": request.session or None,
        "gen_ai.usage.input_tokens": usage.input + usage.cache_read + usage.cache_write,
        "gen_ai.usage.output_tokens": usage.output,
        "gen_ai.usage.cache_read.input_tokens": usage.cache_read,
        "gen_ai.usage.cache_creation.input_tokens": usage.cache_write,
        "gen_ai.response.time_to_first_chunk": _since_sent(request),
        "http.response.status_code": request.status,
        f"{own}upstream": request.upstream or None,
        f"{own}wait_s": round(request.queued_s, 6),
        f"{own}resend": request.attempt_no - 1 or None,
        f"{own}cost_usd": request.cost_usd,
        f"{own}batch": request.batch or None,
        f"{own}odd": request.why or None,
    }
    return {name: value for name, value in told.items() if value is not None}


_SERVED = "served"


def _since_sent(request: Request) -> float | None:
    """Seconds to the first byte, which the account counts from a request's arrival."""
    return None if request.first_byte_s is None else round(max(0.0, request.first_byte_s - request.queued_s), 6)


def _failure(request: Request) -> str:
    if request.end in ("", _SERVED):
        return ""
    return str(request.status) if request.status is not None and request.status >= 400 else request.end


def _turned_away(span: Span, request: Request) -> Span:
    told: dict[str, Value] = {"http.response.status_code": request.status or 0, "nightcrew.why": request.why}
    return replace(span, attributes={**span.attributes, **told}, error=str(request.status))


def _within(parent: Span, span: Span) -> Span:
    """The part of it that lies within its parent."""
    latest = float("inf") if parent.end is None else parent.end
    start = min(max(span.start, parent.start), latest)
    if span.end is None:
        return replace(span, start=start, end=parent.end)
    end = min(max(span.end, start), latest)
    lost = round((span.end - span.start) - (end - start), 6)
    return replace(span, start=start, end=end, attributes={**span.attributes, **({CUT: lost} if lost > 0 else {})})


def _of(task: TaskFacts) -> dict[str, Value]:
    return {"nightcrew.run": _run(task.id), "nightcrew.task": task.id, "nightcrew.kind": task.kind}


def _run(task: str) -> str:
    return task.partition("/")[0]


def _unless_done(word: str) -> str:
    return "" if word in ("", End.DONE) else word
