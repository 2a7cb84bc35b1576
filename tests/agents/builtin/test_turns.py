"""What the built-in agent does with each kind of answer, and that it says how it ended."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agents import protocols
from agents.printing import read_back
from tests.agents.builtin.kit import KEY, Bench, Ran
from tests.support import git, make_repository


def test_every_tool_in_turn(bench: Bench) -> None:
    bench.tools(("write", {"path": "src/a.py", "content": "one = 1\ntwo = 2\n"}))
    bench.tools(("edit", {"path": "src/a.py", "old": "two = 2", "new": "two = 22"}))
    bench.tools(("read", {"path": "src/a.py"}))
    bench.tools(("glob", {"pattern": "*.py"}))
    bench.tools(("grep", {"pattern": "^two", "glob": "*.py"}))
    bench.tools(("bash", {"command": "git add -A && git commit -qm done && cat src/a.py"}))
    bench.says("Both are there.")
    ran = bench.run("Count.")
    assert ran.code == 0
    assert [result["content"] for result in ran.tool_results] == [
        "made src/a.py, 2 lines",
        "changed src/a.py at line 2",
        "1\tone = 1\n2\ttwo = 22\n",
        "src/a.py",
        "src/a.py:2:two = 22",
        "one = 1\ntwo = 22\n",
    ]
    result = ran.result
    assert (result["subtype"], result["is_error"], result["num_turns"], result["result"]) == ("success", False, 7, "Both are there.")
    assert git(bench.repo, "show", "HEAD:src/a.py") == "one = 1\ntwo = 22"
    assert "> edit src/a.py" in ran.pane and "Both are there." in ran.pane
    assert ran.lines[0]["subtype"] == "init" and ran.lines[0]["tools"] == ["bash", "read", "write", "edit", "grep", "glob", "memory"]


def test_what_it_counts_is_what_the_provider_reported(bench: Bench) -> None:
    before = bench.sim.tally(KEY).reported
    bench.tools(("bash", {"command": "true"}))
    bench.says()
    usage = bench.run().result["usage"]
    names = {"input": "input_tokens", "output": "output_tokens", "cache_read": "cache_read_input_tokens"}
    after = bench.sim.tally(KEY).reported
    assert {kind: after[kind] - before.get(kind, 0) for kind in names} == {kind: usage[name] for kind, name in names.items()}
    assert usage["cache_read_input_tokens"] > 0, "the second request found the first one's prefix"


def test_calls_of_one_turn_run_at_once_and_come_back_in_order(bench: Bench) -> None:
    """The first waits for what the second does; one after the other they would never end."""
    wait, make = "until [ -e flag ]; do sleep 0.01; done; echo first", "touch flag; echo second"
    bench.tools(("bash", {"command": wait}), ("bash", {"command": make}))
    bench.says()
    ran = bench.run()
    assert [result["content"] for result in ran.tool_results] == ["first\n", "second\n"]


def test_a_change_comes_before_what_could_see_it(bench: Bench) -> None:
    bench.tools(
        ("write", {"path": "a", "content": "one two\n"}),
        ("edit", {"path": "a", "old": "one", "new": "1"}),
        ("edit", {"path": "./a", "old": "two", "new": "2"}),
        ("bash", {"command": "cat a"}),
    )
    bench.says()
    assert bench.run().tool_results[-1]["content"] == "1 2\n"


def test_the_transcript_can_be_read_back(bench: Bench) -> None:
    bench.tools(("read", {"path": "README"}), ("bash", {"command": "exit 3"}))
    bench.says("It is short.")
    ran = bench.run("Look.")
    transcript = bench.out / "transcript.jsonl"
    with transcript.open("a") as file:
        file.write('{"type": "assis')  # as a power cut leaves it
    messages = read_back(transcript)
    assert [message["role"] for message in messages] == ["user", "assistant", "user", "assistant"]
    assert messages[0]["content"][0]["text"] == "Look."
    assert messages[2]["content"] == ran.tool_results
    assert messages[2]["content"][1] | {"tool_use_id": ""} == {
        "type": "tool_result",
        "tool_use_id": "",
        "content": "[exit status 3]",
        "is_error": True,
    }
    assert messages[3]["content"] == [{"type": "text", "text": "It is short."}]


def test_the_prefix_is_the_same_bytes_in_every_directory(bench: Bench, tmp_path: Path) -> None:
    """By the provider's own cache: the first request in another place, with another prompt, reads the whole prefix."""
    bench.says()
    first = bench.run("One thing.")
    bench.repo = make_repository(tmp_path / "elsewhere" / "deeper", {"other": "file\n"})
    bench.says()
    second = bench.run("Something quite different, and longer.")
    read = second.result["usage"]["cache_read_input_tokens"]
    assert read > 1000, "system prompt and tools, which are nearly all of it"
    assert str(bench.repo) in json.dumps(second.lines[1]) and str(bench.repo) not in json.dumps(first.lines)


def _error(ran: Ran) -> tuple[int, str, str]:
    assert ran.result["is_error"] is True
    return ran.code, ran.result["subtype"], ran.result["terminal_reason"]


@pytest.mark.parametrize(("limit", "value"), [("STEPS", "3"), ("TOKENS", "40000"), ("COST", "0.4")])
def test_a_budget_ends_with_a_last_message(bench: Bench, limit: str, value: str) -> None:
    bench.env[f"NIGHTCREW_{limit}_MAX"] = value
    bench.sim.faults(contains="[nightcrew] The", text="Half of it is done.", output_tokens=1000)
    bench.sim.faults(tool="bash", tool_input={"command": "true"}, output_tokens=1000)
    ran = bench.run()
    subtype = {"STEPS": "error_max_turns", "TOKENS": "error_max_tokens", "COST": "error_max_budget_usd"}[limit]
    assert _error(ran)[:2] == (1, subtype)
    assert ran.result["result"].endswith("Half of it is done.")
    assert 2 <= ran.result["num_turns"] <= 40 and bench.sim.stats()["faults_done"] == [1, ran.result["num_turns"] - 1]
    assert limit != "STEPS" or ran.result["num_turns"] == 3
    assert limit != "COST" or ran.result["total_cost_usd"] <= 0.4


def test_a_cost_that_nobody_can_count_is_refused(bench: Bench) -> None:
    bench.env |= {"NIGHTCREW_COST_MAX": "1", "NIGHTCREW_MODEL": "llama-of-my-own"}
    ran = bench.run()
    assert _error(ran) == (2, "error_during_execution", "bad_settings") and "nobody knows its price" in ran.result["result"]


def test_options_go_before_the_environment(bench: Bench) -> None:
    bench.env |= {"NIGHTCREW_MODEL": "llama-of-my-own"}
    bench.says()
    ran = bench.run(words=("--model", "claude-haiku-5-5", "--session-id", "a-b-1"))
    assert list(ran.result["modelUsage"]) == ["claude-haiku-5-5"] and ran.code == 0
    assert {line["session_id"] for line in ran.lines} == {"a-b-1"}


@pytest.mark.parametrize(
    "words", [("--allow", "bash,Write"), ("--model",), ("--what", "x"), ("--steps-max", "-1"), ("--session-id", "../a")]
)
def test_options_that_are_off_are_refused(bench: Bench, words: tuple[str, ...]) -> None:
    assert _error(bench.run(words=words)) == (2, "error_during_execution", "bad_settings")


def test_a_tool_that_the_task_does_not_allow_is_not_run_and_said(bench: Bench) -> None:
    bench.tools(("bash", {"command": "touch never"}), ("read", {"path": "README"}))
    bench.says("I could only read.")
    ran = bench.run(words=("--allow", "read,grep"))
    denied, read = ran.tool_results
    assert denied["is_error"] and denied["content"] == "this task does not allow bash, only read, grep"
    assert read["content"] == "1\thello\n" and not (bench.repo / "never").exists()
    assert [denial["tool_name"] for denial in ran.result["permission_denials"]] == ["bash"] and ran.code == 0


def test_the_parser_of_its_protocol_reads_what_it_prints(bench: Bench) -> None:
    bench.tools(("bash", {"command": "true"}), ("read", {"path": "README"}))
    bench.says("Read.")
    ran = bench.run(words=("--allow", "read"))
    outcome = protocols.read("builtin", (bench.out / "stdout").read_bytes())
    assert outcome is not None and outcome.usage is not None
    assert (outcome.ended, outcome.is_error, outcome.message, outcome.steps) == (True, False, "Read.", 2)
    assert outcome.denials and outcome.denials[0].startswith("bash")
    assert outcome.cost_usd == ran.result["total_cost_usd"] and outcome.session == ran.result["session_id"]
    assert outcome.models == ("claude-sonnet-5-5",) and outcome.usage.output == ran.result["usage"]["output_tokens"]
    bench.sim.faults(status=400, message="no such thing")
    bench.run()
    outcome = protocols.read("builtin", (bench.out / "stdout").read_bytes())
    assert outcome is not None and outcome.is_error and "no such thing" in outcome.reason


@pytest.mark.parametrize(
    "fault",
    [
        {"status": 429, "retry_after": "0"},
        {"status": 529, "retry_after": "0"},
        {"then": "cut", "after": 3},
        {"then": "error", "after": 3, "error_status": 529},
        {"wire": "no_answer"},
    ],
    ids=["429", "529", "cut", "overloaded-in-the-stream", "no-answer"],
)
def test_what_passes_is_waited_out(bench: Bench, fault: dict[str, object]) -> None:
    bench.sim.faults(**fault, times=1)
    bench.says("After all.")
    ran = bench.run()
    assert (ran.code, ran.result["result"]) == (0, "After all.")
    assert ran.result["num_turns"] == 1
    assert [line["subtype"] for line in ran.lines if line["type"] == "system"] == ["init", "api_retry"]
    assert "; again in" in ran.pane


def test_what_a_cut_answer_took_is_counted(bench: Bench) -> None:
    bench.sim.faults(then="cut", after=3, input_tokens=7000, times=1)
    bench.says(input_tokens=7000, output_tokens=1)
    usage = bench.run().result["usage"]
    assert sum(tokens for kind, tokens in usage.items() if kind != "output_tokens") == 14_000


@pytest.mark.parametrize(
    ("fault", "reason", "words"),
    [
        ({"status": 400, "message": "messages: wrong"}, "api_error", "400: invalid_request_error: messages: wrong"),
        ({"status": 401}, "api_error", "401: authentication_error"),
        ({"status": 429, "reason": "spend_cap", "message": "cap"}, "api_error", "429: rate_limit_error: cap"),
        ({"text": "No.", "stop": "refusal"}, "refusal", "the model refused. No."),
        ({"text": "x", "stop": "quite_new"}, "stop_reason", "quite_new"),
    ],
    ids=["invalid", "key", "spend-cap", "refusal", "unknown-stop"],
)
def test_what_does_not_pass_ends_it_and_is_said(bench: Bench, fault: dict[str, object], reason: str, words: str) -> None:
    bench.sim.faults(**fault)
    ran = bench.run()
    assert _error(ran) == (1, "error_during_execution", reason)
    assert words in ran.result["result"] and words in ran.pane
    assert ran.result["api_error_status"] == fault.get("status")
    assert sum(bench.sim.stats()["faults_done"]) == 1, "asked once"


def test_an_answer_that_is_cut_off_goes_on_in_smaller_steps(bench: Bench) -> None:
    bench.tools(("bash", {"command": "touch never"}), stop="max_tokens")
    bench.sim.faults(contains="Go on in smaller steps", text="Shorter.", times=1)
    ran = bench.run()
    assert (ran.code, ran.result["result"]) == (0, "Shorter.")
    assert not (bench.repo / "never").exists(), "its input may be incomplete"
    blocks = [block["type"] for message in read_back(bench.out / "transcript.jsonl") for block in message["content"]]
    assert "tool_use" not in blocks, "a call without a result is an invalid request"


def test_answers_that_are_always_cut_off_end_it(bench: Bench) -> None:
    bench.says("and on ", stop="max_tokens")
    bench.sim.faults(text="and on ", stop="max_tokens")
    assert _error(bench.run()) == (1, "error_during_execution", "max_output_tokens")


def test_a_paused_turn_is_gone_on_with(bench: Bench) -> None:
    bench.says("First half, ", stop="pause_turn")
    bench.says("second half.")
    ran = bench.run()
    assert (ran.code, ran.result["result"]) == (0, "second half.")
    assert [message["role"] for message in read_back(bench.out / "transcript.jsonl")] == ["user", "assistant"]


def test_a_request_that_is_too_long_is_shortened_and_sent_again(bench: Bench) -> None:
    bench.tools(("bash", {"command": "seq 1 20000"}))
    bench.tools(("bash", {"command": "seq 1 20000"}))
    bench.tools(("bash", {"command": "echo short"}))
    bench.sim.faults(status=400, message="prompt is too long: 9 tokens > 8 maximum", times=1)
    bench.sim.faults(contains="characters of this old result were left out", text="Still here.", times=1)
    ran = bench.run()
    assert (ran.code, ran.result["result"]) == (0, "Still here.")
    assert "bytes of its older part were left out" in ran.pane


def test_texts_that_were_sent_are_its_next_turns(bench: Bench, tmp_path: Path) -> None:
    for number, text in ((3, "first of two"), (4, "the other")):
        (tmp_path / f"{number}.txt").write_text(text)
    for said in ("One.", "Two.", "Three."):
        bench.says(said)
    ran = bench.run(words=("--inbox", str(tmp_path)))
    given = [(line["type"], line["nightcrew_input"]) for line in ran.lines if "nightcrew_input" in line]
    assert given == [("system", 3), ("user", 3), ("system", 4), ("user", 4)], "a short line first"
    assert (ran.code, ran.result["result"], ran.result["num_turns"]) == (0, "Three.", 3)
    assert "One.\n< first of two\nTwo.\n< the other\nThree." in ran.pane
