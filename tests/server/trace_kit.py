"""A real run and what `nightcrew trace` tells of it: an agent of ours that asks a simulated provider and calls tools, and a task that a
person retries."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from supervisor.kernel import account
from supervisor.kernel.names import trace_id
from tests.gateway.simulator import Simulator
from tests.support import House, shell_task

HOSTILE = "\x1b[31mred\u202e"
AGENT = '[[tasks]]\nid = "agent"\nkind = "builtin"\nprompt = "Make the file."\nsandbox = 0\n'
PLAN = AGENT + shell_task("fails", "echo $TRACEPARENT; exit 3", title=HOSTILE)


def script(sim: Simulator) -> None:
    """What the provider has the agent do: two tools, of which the second fails."""
    sim.faults(tool="write", tool_input={"path": "made", "content": "it\n"}, times=1)
    sim.faults(tool="bash", tool_input={"command": "git add made; false"}, times=1)
    sim.faults(text="The file is there.")


def check_trace(house: House, run: str, file: Path) -> None:
    """Of a run of PLAN that has ended, a retry of `fails` by a person too; `file` is written."""
    shape = json.loads(house.ok("trace", run, "--json"))
    spans: list[dict[str, Any]] = shape["spans"]
    assert (shape["trace"], shape["left_out"]) == (trace_id(run), 0)
    names = [span["name"] for span in spans if span["attributes"].get("nightcrew.task", "").endswith("/agent")]
    assert sorted(names) == sorted(
        ["task agent", "wait for a slot", "invoke_agent agent", "launch", *["chat claude-sonnet-5-5"] * 3, "execute_tool write",
         "execute_tool bash", "secure its work", *[name for name in names if name == "wait for tokens"]]
    )  # fmt: skip
    ids = {span["id"]: span for span in spans}
    assert len(ids) == len(spans) and all(span["parent"] in ids or span["what"] == "run" for span in spans)
    assert [span["name"] for span in spans if span["what"] == "run"] == ["invoke_workflow"] * 2, "the retry began it anew"
    assert [span["error"] for span in spans if span["name"] == "attempt fails"] == ["failed", "failed"]
    (agent,) = [span["attributes"] for span in spans if span["name"] == "invoke_agent agent"]
    assert agent["gen_ai.conversation.id"] == _session(house), "the conversation, by which it can be gone on with"
    assert [span["error"] for span in spans if span["what"] == "tool"] == [None, "tool_error"]
    _adds_up(house, spans)
    newest = next(span["id"] for span in reversed(spans) if span["name"] == "attempt fails")
    assert house.ok("logs", "fails").split() == [f"00-{trace_id(run)}-{newest}-01"], "its tools can continue the trace"
    _is_drawn(house, run)
    _is_written(house, run, {span["id"] for span in spans}, file)


def _session(house: House) -> str:
    return str(json.loads(house.ok("logs", "--stream", "stdout", "agent").splitlines()[-1])["session_id"])


def _adds_up(house: House, spans: list[dict[str, Any]]) -> None:
    """What spans cover is what the account of the result says, and the requests are those of the result."""
    from supervisor.features.trace import view as trace_view
    from supervisor.store import sqlite

    view = house.task("agent")
    books = trace_view.Books(house.home, sqlite.connect_readonly(house.home.ledger), trace_view.account_of(house.home))
    facts = books.run(view.run)
    assert facts is not None and view.account is not None and view.result is not None
    (ran,) = trace_view.task(books, facts, view.id, 0.0, calls=True)[0].attempts
    computed = trace_view._so_far(ran.facts, ran.inner, 0.0)
    books.close()
    wall = (ran.facts.started or 0.0, ran.facts.ended or 0.0)
    models = [(span.start, span.end or 0.0) for span in ran.inner if span.what == "model"]
    assert abs(account.covered(models, wall) - view.account["model_s"]) < 0.002
    assert abs(ran.queue.seconds(0.0) - view.account["slot_queue_s"]) < 0.002
    assert abs(computed["launch_s"] - view.account["launch_s"]) < 0.002
    costs = [span["attributes"]["nightcrew.cost_usd"] for span in spans if span["what"] == "model"]
    assert abs(sum(costs) - view.result["cost_usd"]) < 1e-6
    tokens = view.result["tokens"]
    chats = [span["attributes"] for span in spans if span["what"] == "model"]
    assert sum(chat["gen_ai.usage.input_tokens"] for chat in chats) == tokens["input"] + tokens["cache_read"] + tokens["cache_write"]


def _is_drawn(house: House, run: str) -> None:
    text = house.ok("trace", "agent")
    assert "chat claude-sonnet-5-5" in text and "3 model calls" in text and "\x1b" not in text
    assert "\\x1b[31mred\\u202e" in house.ok("trace", "fails"), "hostile titles are shown as escapes"
    assert "all attempts together" in house.ok("trace", run)
    assert "\x1b[" in house.run("trace", run, env={"FORCE_COLOR": "1"}).stdout


def _is_written(house: House, run: str, ids: set[str], file: Path) -> None:
    house.ok("trace", run, "--otlp", str(file))
    (resource,) = json.loads(file.read_text())["resourceSpans"]
    written = resource["scopeSpans"][0]["spans"]
    assert {span["spanId"] for span in written} == ids
    assert all(int(span["startTimeUnixNano"]) <= int(span["endTimeUnixNano"]) for span in written)
    assert HOSTILE not in json.loads(json.dumps(file.read_text())) and "red" not in file.read_text(), "no content unless it is asked for"
    house.ok("trace", run, "--otlp", str(file), "--content")
    assert "red" in file.read_text() and "git add made; false" in file.read_text()
