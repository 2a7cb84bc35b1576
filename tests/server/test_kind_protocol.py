"""An attempt of a kind with a protocol is judged by its exit record and its own words together."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agents.kinds import Kind
from agents.protocols import Outcome, Usage
from agents.runner.loop import Log
from supervisor.kernel.result import Spent
from supervisor.kernel.states import End
from supervisor.server.attempts import kind_protocol
from tests.agents.protocols.scenarios import DATA
from tests.agents.protocols.test_protocols import ME, OTHER, result, start, stream

CLAUDE = Kind(name="claude", description="", mode="headless", protocol="claude")
NOTHING = "it exited with 0 but printed no result, so nobody knows whether its work is complete"
DENIED = "it was not allowed to use Bash: python3 -c 'print(1)'"
OVERLOADED = "api_error 529: API Error: 529 Overloaded."


def judge(directory: Path, stdout: bytes, end: End, cause: str = "", kind: Kind = CLAUDE) -> tuple[End, str]:
    (directory / "stdout.log").write_bytes(stdout)
    return kind_protocol.judge(kind, directory, end, cause)


@pytest.mark.parametrize(
    ("name", "end", "cause"),
    [
        ("claude-2.1.329/tool", End.DONE, ""),
        ("claude-2.1.329/json", End.DONE, ""),
        ("claude-2.1.329/background", End.DONE, ""),
        ("claude-2.1.329/denied", End.FAILED, DENIED),
        ("claude-2.1.329/529", End.FAILED, OVERLOADED),
        ("claude-2.1.329/max-turns", End.FAILED, "max_turns: Reached maximum number of turns (2)"),
        ("codex-0.169.0/tool", End.DONE, ""),
        ("qwen-0.15.10/denied", End.FAILED, "it was not allowed to use run_shell_command"),
        ("qwen-0.15.10/failed", End.FAILED, "API Error: 400 "),
        ("gemini-0.61.0/failed", End.FAILED, "[API Error: "),
        ("opencode-1.18.33/tool", End.DONE, ""),
        ("opencode-1.18.33/denied", End.FAILED, "it was not allowed to use bash"),
        ("codex-0.169.0/failed", End.FAILED, "invalid request"),
    ],
)
def test_an_exit_status_of_0_is_not_enough(tmp_path: Path, name: str, end: End, cause: str) -> None:
    stdout = (DATA / f"{name}.jsonl").read_bytes()
    kind = replace(CLAUDE, protocol=name.partition("-")[0])
    judged, why = judge(tmp_path, stdout, End.DONE, kind=kind)
    assert (judged, why[: len(cause)]) == (end, cause)
    assert bool(why) == (end is End.FAILED)
    failed, both = judge(tmp_path, stdout, End.FAILED, "exit status 1", kind)
    assert (failed, both) == (End.FAILED, f"exit status 1: {why}" if why else "exit status 1")
    assert judge(tmp_path, stdout, End.TIMEOUT, "60 s", kind) == (End.TIMEOUT, "60 s"), "somebody else ended it"


@pytest.mark.parametrize(
    "stdout",
    [b"", b"Invalid API key\n", stream(start()), stream(start(), result())[:-10], stream(start(), result(OTHER))],
    ids=["nothing", "words", "no result", "cut off", "another's result"],
)
def test_without_a_result_nobody_knows(tmp_path: Path, stdout: bytes) -> None:
    assert judge(tmp_path, stdout, End.DONE) == (End.FAILED, NOTHING)
    assert judge(tmp_path, stdout, End.FAILED, "exit status 1") == (End.FAILED, "exit status 1")


def test_who_owns_its_terminal_is_judged_by_its_exit_status(tmp_path: Path) -> None:
    assert kind_protocol.judge(CLAUDE, tmp_path, End.DONE, "") == (End.DONE, "")
    assert kind_protocol.heard(Kind(name="shell", description="", mode="headless"), tmp_path) is None


def test_a_link_in_the_place_of_its_log_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_bytes(stream(start(), result()))
    (tmp_path / "stdout.log").symlink_to(tmp_path / "elsewhere")
    assert kind_protocol.heard(CLAUDE, tmp_path) is None


def test_the_result_of_a_long_log_is_read(tmp_path: Path) -> None:
    """The runner keeps a beginning and an end of 11 MiB, and of what it keeps we read a beginning and an end."""
    log = Log(str(tmp_path / "stdout.log"), 9 * 2**20)
    log.add(stream(start(), start(OTHER)))
    for _ in range(176):
        log.add(stream({"type": "user", "session_id": OTHER, "text": "x" * 65536}))
    log.add(stream(result(OTHER, result="not mine"), result(result="m" * 400_000, num_turns=7), result(OTHER)))
    log.close()
    assert log.lost > 0
    said = kind_protocol.heard(CLAUDE, tmp_path)
    assert said is not None
    assert (said.ended, said.session, said.steps, said.message) == (True, ME, 7, "m" * 8000)


def test_what_the_result_holds() -> None:
    refused = ("Bash: a", "Bash: b", "Write: c", "Write: d")
    said = Outcome(ended=True, denials=refused, message="Done.", usage=Usage(1, 2, 3, 4), cost_usd=0.12345678, session=ME, models=("m",))
    shape: dict[str, Any] = json.loads(json.dumps(kind_protocol.shape(said)))
    assert shape == {
        "message": "Done.", "denials": list(refused), "reason": "", "steps": None, "cost_usd": 0.123457, "models": ["m"], "session": ME,
        "transcript": None, "tokens": {"input": 1, "output": 2, "cache_read": 3, "cache_write": 4},
    }  # fmt: skip
    assert kind_protocol.notes(said, Spent()) == ()


def test_a_difference_to_the_gateways_account_is_noted() -> None:
    said = Outcome(usage=Usage(10, 20, 30, 40), cost_usd=0.5)
    same = Spent(input=10, output=20, cache_read=30, cache_write=40, estimated=0, cost_usd=0.50004)
    assert kind_protocol.notes(said, same) == ()
    more = Spent(input=10, output=1020, cache_read=30, cache_write=40, estimated=0, cost_usd=0.75)
    assert kind_protocol.notes(said, more) == (
        "its own account differs from the gateway's: output 20 against 1,020 tokens, $0.50 against $0.75",
    )
    saved = Spent(input=0, output=0, cache_read=0, cache_write=0, estimated=0, cost_usd=0.0, kept=100)
    assert kind_protocol.notes(said, saved) == (), "kept answers took nothing"
    guessed = Spent(input=10, output=1020, cache_read=30, cache_write=40, estimated=1)
    assert kind_protocol.notes(said, guessed) == (), "an estimate proves nothing"


def test_what_is_too_large_or_unfinished_is_noted() -> None:
    said = Outcome(structured=["x" * kind_protocol.STRUCTURED_MAX], unfinished=("make test",))
    assert kind_protocol.structured(said) is None
    assert kind_protocol.structured(Outcome(structured={"a": 1})) == {"a": 1}
    assert kind_protocol.notes(said, Spent()) == (
        "it ended while this went on in its background: make test",
        "its structured output is larger than 65536 bytes and is in stdout.log only",
    )
