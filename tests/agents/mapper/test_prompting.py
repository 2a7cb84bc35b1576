"""One-shot model calls for the items of a map, against the simulated provider."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from supervisor.features.map.prompts import SCHEMA_MAX, AnswerSchema, PromptTerms, load
from supervisor.features.map.worker.prompt import CONTENT_MAX, Answered, Prompter, Unfit, api, content
from supervisor.kernel.errors import ConfigError, NeedsHuman, UsageError
from supervisor.kernel.gateway_settings import Limits
from tests.gateway.simulator import Fault, Running, SimSettings, running

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"score": {"type": "integer"}},
    "required": ["score"],
    "additionalProperties": False,
}
TERMS = PromptTerms("Rate {file}: {content}", schema=SCHEMA)


def ask(terms: PromptTerms, *faults: Fault, values: Any = None) -> tuple[Answered, Running]:
    """What one item came to, and the provider that was asked."""

    async def go() -> tuple[Answered, Running]:
        async with running(SimSettings(limits=Limits(rpm=1e5, itpm=1e9, otpm=1e9))) as sim:
            sim.provider.fault(faults)
            caller = api({"ANTHROPIC_BASE_URL": sim.url, "ANTHROPIC_AUTH_TOKEN": "t"})
            try:
                return await Prompter(terms, caller).ask(values if values is not None else {"file": "a.py", "content": "x = 1"}), sim
            finally:
                await caller.close()

    return asyncio.run(go())


def test_an_answer_that_matches_is_the_result() -> None:
    made, sim = ask(TERMS, Fault(contains="Rate a.py: x = 1", text='```json\n{"score": 3}\n```'))
    assert (made.value, made.error, made.asks) == ({"score": 3}, "", 1)
    assert made.usage.input > 0 and made.usage.output > 0
    assert len(sim.provider.stats.last) == 1


def test_a_wrong_answer_is_asked_again_with_what_was_wrong() -> None:
    made, _ = ask(
        TERMS,
        Fault(text='{"score": "high"}', times=1),
        Fault(contains="$.score: 'high' is not of type 'integer'", text="Sorry: 3", times=1),
        Fault(contains="it is not JSON", text='{"score": 3}', times=1),
    )
    assert (made.value, made.asks) == ({"score": 3}, 3)


def test_garbage_to_the_end_fails_with_the_reason_and_the_last_answer() -> None:
    made, sim = ask(TERMS, Fault(text='{"score": 1, "more": 2}'))
    assert made.value is None and "'more' was unexpected" in made.error
    assert (made.last, made.asks, len(sim.provider.stats.last)) == ('{"score": 1, "more": 2}', 3, 3)


def test_text_is_an_answer_where_there_is_no_schema() -> None:
    made, _ = ask(PromptTerms("Say {item}"), Fault(text="hello\n"), values={"item": "hello"})
    assert made.value == "hello\n"


def test_an_answer_that_was_cut_off_is_none() -> None:
    made, _ = ask(PromptTerms("Say {item}", max_tokens=5, asks=2), values={"item": "much"})
    assert made.error == "it was cut off at 5 tokens: answer shorter" and made.asks == 2 and made.last


def test_an_outage_is_waited_out_and_a_refusal_is_the_reason() -> None:
    made, sim = ask(TERMS, Fault(status=529, times=1), Fault(text='{"score": 3}'))
    assert (made.value, made.asks, len(sim.provider.stats.last)) == ({"score": 3}, 1, 2)
    made, _ = ask(TERMS, Fault(status=400, message="too strange"))
    assert "too strange" in made.error and made.asks == 0


@pytest.mark.parametrize("fault", [{"status": 401}, {"status": 404}, {"status": 503, "headers": {"x-should-retry": "false"}}])
def test_what_every_item_would_meet_is_no_items_failure(fault: dict[str, Any]) -> None:
    with pytest.raises(NeedsHuman, match="no model answers"):
        ask(TERMS, Fault(**fault))


def test_an_item_without_a_field_is_not_asked_for() -> None:
    made, sim = ask(TERMS, values={"file": "a"})
    assert made.error == "it has no field content" and not sim.provider.stats.last
    assert ask(PromptTerms("{item}"), values={"item": " "})[0].error == "its prompt is empty"


def test_without_a_way_to_the_models_it_says_so() -> None:
    with pytest.raises(UsageError, match="no key"):
        api({})


def test_the_content_of_a_file_is_text_of_a_bounded_size(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("ü\n")
    assert content(tmp_path, "a") == "ü\n"
    (tmp_path / "binary").write_bytes(b"\x7fELF\0")
    (tmp_path / "latin").write_bytes(b"\xfc")
    (tmp_path / "large").write_bytes(b"x" * (CONTENT_MAX + 1))
    (tmp_path / "link").symlink_to("a")
    os.mkfifo(tmp_path / "pipe")
    said = {
        "binary": "binary",
        "latin": "UTF-8",
        "large": "bytes",
        "link": "symbolic link",
        "pipe": "no plain file",
        "none": "No such file",
    }
    for name, why in said.items():
        with pytest.raises(Unfit, match=why):
            content(tmp_path, name)


def test_a_schema_is_checked_when_it_is_read(tmp_path: Path) -> None:
    file = tmp_path / "schema.json"
    file.write_text('{"type": "object"}')
    assert load(file) == {"type": "object"}
    for text, why in (('{"type": "nope"}', r"\$\.type"), ("[]", "no JSON object"), ("{", "Expecting"), (" " * SCHEMA_MAX + "{}", "larger")):
        file.write_text(text)
        with pytest.raises(ConfigError, match=why):
            load(file)
    with pytest.raises(ConfigError, match="No such file"):
        load(tmp_path / "none")


def test_a_schema_fetches_nothing() -> None:
    with pytest.raises(ConfigError, match="Unresolvable"):
        AnswerSchema({"$ref": "http://127.0.0.1:9/s.json"}).faults(1)
