"""What an agent reads, word for word: each case below has its text in `prompts.txt`, a section with its name."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from supervisor.kernel.conversations import How, Origin
from supervisor.kernel.prompt import ARGUMENT_MAX, Parts, Where, as_argument, compose_prompt, follow_up, handed_over
from supervisor.kernel.retry import Missed

EXAMPLES = Path(__file__).with_name("prompts.txt")
PLAIN = Parts("Fix the parser.")
HERE = Where("/work/tree", "nightcrew/0731-aaaa/fix/work", moved=False)
OWN = Origin(How.RESUME, "session", "0731-aaaa/fix", 1, "c0ffee")
BRIEF = "Notes that may help with your task:\n\n[begin of note semantic/parser.md]\n| It is slow.\n[end of note semantic/parser.md]"
MISSED = replace(PLAIN, missed=Missed("exit code 1", "3 tests fail", "c0ffee"), gate="make test", has_work=True)
RESUMED = replace(PLAIN, origin=OWN, is_own=True, where=HERE)
CASES: dict[str, Parts] = {
    "the prompt of its task alone": PLAIN,
    "after what the memory says": replace(PLAIN, brief=BRIEF),
    "a missed gate whose work is here": MISSED,
    "a missed gate whose work is not here, and which printed nothing": replace(MISSED, missed=Missed("time-out", "", ""), has_work=False),
    "a missed gate of a task without a prompt": replace(MISSED, prompt=None),
    "stopped for its memory": replace(PLAIN, memory="9 GiB"),
    "stopped for its memory and a missed gate, after what the memory says": replace(MISSED, memory="9 GiB", brief=BRIEF),
    "its own conversation, interrupted": RESUMED,
    "its own conversation, at another place": replace(RESUMED, where=replace(HERE, moved=True)),
    "its own conversation, stopped for its memory": replace(RESUMED, memory="9 GiB"),
    "its own conversation, a missed gate": replace(MISSED, origin=OWN, is_own=True, where=HERE),
    "its own conversation, attended, a missed gate": replace(MISSED, origin=OWN, is_own=True, where=HERE, is_attended=True),
    "the conversation of another task": replace(RESUMED, is_own=False),
    "a copy of the conversation of another task": replace(RESUMED, is_own=False, origin=replace(OWN, how=How.FORK)),
}
MADE = {
    "a task that goes on with the work of another": follow_up("Fix the parser.", "Now make it fast."),
    "a task that begins with a handoff": handed_over("01AB", "0731-aaaa/fix", "the parser", "| It is done.", "Finish it."),
    "a prompt that is too long for an argument": as_argument("x" * (ARGUMENT_MAX + 1), "/run/prompt.md"),
}


def all_texts() -> dict[str, str]:
    return {**{name: compose_prompt(parts) or "" for name, parts in CASES.items()}, **MADE}


def test_every_prompt_is_as_its_example() -> None:
    """`NIGHTCREW_WRITE=1` writes the examples anew; read the difference."""
    text = "".join(f"=== {name}\n{said}\n\n" for name, said in all_texts().items())
    if os.environ.get("NIGHTCREW_WRITE"):
        EXAMPLES.write_text(text)
    assert text == EXAMPLES.read_text()


def test_nothing_is_told_to_an_agent_at_which_a_person_sits_and_to_one_without_a_prompt() -> None:
    assert compose_prompt(replace(RESUMED, is_attended=True)) is None
    assert compose_prompt(Parts(None)) is None and compose_prompt(Parts(None, memory="9 GiB")) is None


@pytest.mark.parametrize("size", [0, 1, ARGUMENT_MAX])
def test_a_prompt_that_fits_is_its_own_argument(size: int) -> None:
    assert as_argument("x" * size, "/run/prompt.md") == "x" * size
