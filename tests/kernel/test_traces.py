"""Spans: each lies within its parent, none has a negative duration whatever the clock did, and the same rows give the same ids."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterable
from importlib import import_module
from itertools import pairwise

import opentelemetry.semconv._incubating.attributes as incubating
import opentelemetry.semconv.attributes as stable
from hypothesis import given
from hypothesis import strategies as st

from supervisor.features.trace import rules as trace_rules
from supervisor.features.trace.rules import CUT, AttemptFacts, Life, Request, Span, Stretch, TaskFacts, ToolCall, What, life_at, lives
from supervisor.gateway.admission.types import Usage
from supervisor.kernel.names import trace_id

TASK = TaskFacts("1125-abcd/fix", "fix", "claude", True, "a title")
AT = st.floats(-1e4, 1e4) | st.floats(0, 4e9)
LONG = st.floats(0, 1e4)
TEXT = st.text(max_size=20) | st.sampled_from(["\x1b[31m", "\ud800", "a\nb", "‮"])

REQUESTS = st.builds(
    Request, number=st.integers(1, 5), at=AT, queued_s=LONG, total_s=LONG | st.none(), end=st.sampled_from(["", "served", "cut"]),
    model=TEXT, asked=TEXT, api=st.sampled_from(["anthropic", "openai", "gemini", "other"]), sent=st.booleans(), batch=st.booleans(),
    status=st.integers(100, 599) | st.none(), first_byte_s=LONG | st.none(), why=TEXT,
)  # fmt: skip
TOOLS = st.builds(ToolCall, number=st.integers(1, 9), tool=TEXT, begin=AT, end=AT, ok=st.booleans(), call=TEXT, about=TEXT)
STRETCHES = st.builds(
    Stretch, what=st.sampled_from([What.WAIT, What.PAUSE]), name=TEXT, begin=AT, end=AT | st.none(), number=st.integers(1, 9)
)
ATTEMPTS = st.builds(
    AttemptFacts, task=st.just(TASK), epoch=st.integers(1, 3), life=st.builds(Life, number=st.integers(0, 2), begin=AT),
    ready=AT, created=AT, started=AT | st.none(), ended=AT | st.none(), closed=AT | st.none(),
    end=st.sampled_from(["", "done", "failed"]), gate_s=LONG, last_request=AT,
)  # fmt: skip


def _all(one: AttemptFacts, requests: Iterable[Request], tools: Iterable[ToolCall], stretches: Iterable[Stretch]) -> list[Span]:
    reach = one.bounds[1] or 0.0
    life = Life(one.life.number, one.life.begin, None if one.closed is None else one.life.begin, last=1, outcome="done")
    spans = [trace_rules.of_run("1125-abcd", "t", Life(0, life.begin, life.end), 1, reach), trace_rules.of_task(TASK, life, reach)]
    spans += trace_rules.of_attempt(one, stretches, tools)
    return spans + [span for each in requests for span in trace_rules.of_request(TASK, one.epoch, one.bounds, each)]


@given(ATTEMPTS, st.lists(REQUESTS, max_size=4), st.lists(TOOLS, max_size=4), st.lists(STRETCHES, max_size=4))
def test_a_span_lies_within_its_parent(one: AttemptFacts, requests: list[Request], tools: list[ToolCall], found: list[Stretch]) -> None:
    spans = _all(one, requests, tools, found)
    by_id = {span.id: span for span in spans}
    for span in spans:
        assert span.end is None or span.end >= span.start, span
        assert span.seconds(0.0) >= 0.0
        assert float(span.attributes.get(CUT, 1.0)) > 0.0
        parent = by_id[span.parent] if span.parent else span
        assert parent.start <= span.start, (parent, span)
        assert parent.end is None or (span.end is not None and span.end <= parent.end), (parent, span)
        assert span.trace == trace_id("1125-abcd"), "one trace a run"
        assert len(span.id) == 16 and int(span.id, 16)
    assert spans == _all(one, requests, tools, found), "and made again they are the same"


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from(["done", "failed", ""]), AT), max_size=12))
def test_lives_follow_one_another(events: list[tuple[str, str, float]]) -> None:
    rows = [(number, at, f"r/{task}", state) for number, (task, state, at) in enumerate(events, 1)]
    found, run = lives(["r/a", "r/b"], 100.0, rows)
    for every in (*found.values(), run):
        assert [life.number for life in every] == [*range(len(every))]
        assert all(life.last and life.end is not None and life.end >= life.begin for life in every[:-1]), "only the newest goes on"
        assert all(after.first > before.last for before, after in pairwise(every))
    for every in found.values():
        for life in every:
            whole = run[life.of]
            assert whole.begin <= life.begin and (whole.end is None or (life.end is not None and life.end <= whole.end)), (life, whole)
    over = all(every[-1].last for every in found.values())
    assert bool(run[-1].last) is over


def test_a_row_belongs_to_the_life_before_the_retry() -> None:
    found, run = lives(["r/a"], 1.0, [(5, 2.0, "r/a", "failed"), (7, 3.0, "r/a", ""), (9, 4.0, "r/a", "done")])
    assert [life_at(found["r/a"], number).number for number in (5, 6, 7, 8, 9)] == [0, 0, 1, 1, 1]
    assert [life.outcome for life in run] == ["failed", "done"]


def test_names_are_those_of_the_conventions() -> None:
    known = set[str]()
    for package in (incubating, stable):
        for module in pkgutil.iter_modules(package.__path__):
            found = vars(import_module(f"{package.__name__}.{module.name}"))
            known |= {value for name, value in found.items() if name.isupper() and isinstance(value, str)}
    one = AttemptFacts(TASK, 1, Life(0, 1.0), 1.0, 2.0, 3.0, 5.0, 6.0, "failed", session="s")
    request = Request(
        1, 3.0, 0.5, 1.0, "served", "m", "asked", "gemini", status=200, usage=Usage(1, 2, 3, 4), first_byte_s=0.7, session="s"
    )
    spans = _all(one, [request], [ToolCall(1, "Bash", 3.0, 4.0, False, "c", "ls")], [])
    for span in spans:
        names = {*span.attributes, *span.content}
        assert {name for name in names if not name.startswith("nightcrew.")} <= known, span
    named = {span.what: span for span in spans}
    assert (named[What.RUN].name, named[What.ATTEMPT].name) == ("invoke_workflow", "invoke_agent fix")
    assert (named[What.MODEL].name, named[What.TOOL].name) == ("chat asked", "execute_tool Bash")
    chat = named[What.MODEL].attributes
    assert chat["gen_ai.usage.input_tokens"] == 8, "input counts what came from a cache, too"
    assert (chat["gen_ai.provider.name"], chat["gen_ai.response.time_to_first_chunk"]) == ("gcp.gemini", 0.2)
    assert not any(text in str(span.attributes) for span in spans for text in ("a title", "'ls'")), "content is apart"
