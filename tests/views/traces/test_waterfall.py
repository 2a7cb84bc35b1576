"""The waterfall: it fits every terminal, hides nothing in a bar, and puts together what is too much."""

from __future__ import annotations

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from supervisor.features.trace import rules as trace_rules
from supervisor.features.trace import view as trace_view
from supervisor.features.trace.rules import AttemptFacts, Life, Request, TaskFacts, ToolCall
from supervisor.features.trace.view import Lived, Ran
from supervisor.kernel.errors import one_line
from supervisor.views.status import columns

LIFE = Life(0, 100.0)
TASK = TaskFacts("1125-abcd/fix", "fix", "claude", True)


def _lived(tools: int, *, name: str = "Bash", model: str = "m", closed: float | None = 400.0) -> Lived:
    facts = AttemptFacts(TASK, 1, LIFE, 100.0, 110.0, 115.0, 390.0, closed, "done" if closed else "")
    calls = [ToolCall(number, name, 120.0 + number, 120.5 + number, number % 2 > 0) for number in range(1, tools + 1)]
    queue, own, *inner = trace_rules.of_attempt(facts, tools=calls)
    inner += trace_rules.of_request(TASK, 1, facts.bounds, Request(1, 130.0, 5.0, 15.0, "served", model, model, "anthropic"))
    return Lived(trace_rules.of_task(TASK, LIFE), (Ran(facts, queue, own, tuple(inner), {"wall_s": 275.0, "model_s": 10.0}),))


def _plain(text: str, code: str) -> str:
    return text


@settings(max_examples=50)
@given(st.integers(24, 220), st.text(max_size=60), st.text(max_size=60), st.integers(0, 80), st.booleans())
def test_every_line_fits(width: int, name: str, model: str, tools: int, over: bool) -> None:
    rows = trace_view.of_task([_lived(tools, name=name, model=model, closed=400.0 if over else None)], every=False)
    for line in trace_view.lines(rows, 500.0, width, _plain):
        assert columns(line) <= width
        assert one_line(line) == line, "nothing in it drives a terminal"


def test_many_calls_of_a_sort_are_one_row() -> None:
    rows = trace_view.of_task([_lived(200), _lived(3)], every=False)
    (folded,) = [row for row in rows if "x200" in row.label]
    assert folded.label == "execute_tool Bash x200" and abs(folded.seconds(0.0) - 100.0) < 1e-6, "seconds in which at least one went on"
    assert sum("execute_tool" in row.label for row in rows) == 1 + 3
    assert len(trace_view.of_task([_lived(200)], every=True)) > 200


def test_bars_lie_where_their_time_is() -> None:
    lines = [*trace_view.lines(trace_view.of_task([_lived(1)], every=True), 500.0, 100, _plain)]
    bars = {line[: line.index("  ", 4)].strip() if "  " in line[4:] else line: line for line in lines[1:]}
    task, chat = bars["task fix"], bars["chat m"]
    assert task.count("=") > 60 and task.rstrip().endswith("5m") is False
    begin, end = chat.index("#"), chat.rindex("#")
    wide = task.rindex("=") - task.index("=") + 1
    assert abs((begin - task.index("=")) / wide - 30 / 290) < 0.03 and end - begin < wide / 10
    assert "t" in bars["wait for tokens"].removeprefix("    wait for tokens") and "10s" in chat
    failed = [line for line in trace_view.lines(trace_view.of_task([_lived(2)], every=True), 500.0, 100, _plain) if line.endswith("!")]
    assert len(failed) == 1
    going = [
        *trace_view.lines(
            trace_view.of_task([_lived(0, closed=None)], every=True), 500.0, 100, lambda text, code: f"\x1b[{code}m{text}\x1b[0m"
        )
    ]
    assert ">" in going[1] and re.search(r"\x1b\[1m=+", going[1])


def test_in_words() -> None:
    said = "\n".join(trace_view.words([_lived(4)], 500.0))
    assert "attempt 1 done: 4m35s: 10s at models" in said
    assert "1 model call (10s added up), 4 tool calls (2s added up, 2 failed), 1 token wait (5s added up)" in said
    assert trace_view.together([_lived(1), _lived(1)]) == "all attempts together: 9m10s: 20s at models"
    assert trace_view.together([]) == ""


def test_a_task_of_a_run_says_what_it_waited_for() -> None:
    own = trace_rules.of_task(TASK, Life(0, 50.0))
    lines = [*trace_view.lines(trace_view.of_run([], [[Lived(own, _lived(1).attempts)], [Lived(own, ())]]), 400.0, 100, _plain)]
    bars = [re.sub(r"(.)\1*", r"\1", "".join(re.findall(r"[w.=]", line))) for line in lines[1:3]]
    assert bars == ["w.=", "w"]
