"""Prompts of a map, the groups that an agent makes, and what a map's prompts are said to take."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.features.map.prompts import (
    NoJson,
    PromptTerms,
    Seen,
    answers,
    asked_again,
    check_fields,
    fields,
    for_agent,
    forecast,
    instruction,
    json_of,
    render,
    shards,
    where_to_answer,
)
from supervisor.features.map.rules import prompt, read
from supervisor.gateway.admission.types import Usage
from supervisor.kernel.errors import UsageError
from supervisor.kernel.gateway_settings import Limits


def test_a_template_is_filled_once_and_shows_json() -> None:
    template = 'Rate {file} as {"score": 1} or {{file}}:\n{content}{author.name} {deep}'
    values = {"file": "a.py", "content": "x = '{file}'", "author": {"name": "Ada"}, "deep": {"k": [1, "ü"]}}
    assert render(template, values) == 'Rate a.py as {"score": 1} or {file}:\nx = \'{file}\'Ada {"k": [1, "ü"]}'
    assert fields(template) == ("file", "content", "author.name", "deep")
    with pytest.raises(KeyError, match=r"author\.age"):
        render("{author.age}", values)
    with pytest.raises(KeyError, match=r"file\.name"):
        render("{file.name}", values)
    assert render("{a.b}", {"a.b": 7}) == "7"


def test_a_field_that_no_item_has_is_refused_before_anything_runs() -> None:
    check_fields("{file} {content} {}", ("file", "content"), open_ended=False)
    with pytest.raises(UsageError, match="fiel"):
        check_fields("{fiel}", ("file",), open_ended=False)
    check_fields("{whatever}", ("item",), open_ended=True)
    with pytest.raises(UsageError, match="empty"):
        check_fields(" \n", ("file",), open_ended=False)


@pytest.mark.parametrize(
    ("answer", "value"),
    [
        (' {"a": 1}\n', {"a": 1}),
        ("Here you are:\n```json\n[1]\n```\nDone.", [1]),
        ('"text with ```\\nfence"', "text with ```\nfence"),
        ("3", 3),
    ],
)
def test_json_is_found_in_an_answer(answer: str, value: object) -> None:
    assert json_of(answer) == value


@pytest.mark.parametrize("answer", ["", "  ", "Sure!", '{"a": NaN}', "```\n1\n```\n```\n2\n```", "[" * 100_000, '{"a": 1} trailing'])
def test_what_is_no_json_says_why(answer: str) -> None:
    with pytest.raises(NoJson, match=r"^it is"):
        json_of(answer)


def test_a_model_is_told_the_schema_and_what_was_wrong() -> None:
    terms = PromptTerms("{item}", schema={"type": "integer"}, asks=2)
    assert '{"type": "integer"}' in instruction(terms) and instruction(PromptTerms("x")) == ""
    said = asked_again([f"fault {number}" for number in range(9)])
    assert "- fault 4" in said and "fault 5" not in said
    assert PromptTerms.from_shape({**terms.to_shape(), "newer": 1}) == PromptTerms("{item}", schema={"type": "integer"})


def test_groups_as_answered() -> None:
    found = read({"groups": [{"about": "core", "items": [3, "1-2"]}, {"items": ["4"]}]}, 4)
    assert [(group.items, group.about) for group in found.groups] == [((0, 1, 2), "core"), ((3,), "")]
    assert found.repairs == ()
    assert "2\t7\tb.py" in prompt("Add types.", ["a.py", "b.py"], [5, 7])


def test_groups_are_mended_and_it_is_said() -> None:
    found = read([[1, 2, True, 9, "x"], [2, "3-1", 4], [], "?", [2]], 5)
    assert [group.items for group in found.groups] == [(0, 1), (3,), (2,), (4,)]
    assert found.repairs == (
        "named twice: 2 and 2 (stay where they were named first)",
        "no items: True, 9, x and 3-1 (left out)",
        "named nowhere: 3 and 5 (each got a group of its own)",
    )


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 12) | st.text(max_size=4) | st.sampled_from(["1-3", "2 - 9", "7"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["groups", "items", "about"]), inner, max_size=3),
    max_leaves=12,
)


@given(_JSON, st.integers(0, 9))
def test_whatever_is_answered_every_item_is_in_one_group(answer: object, count: int) -> None:
    found = read(answer, count)
    assert sorted(item for group in found.groups for item in group.items) == list(range(count))
    assert found == read(answer, count)


def cost(usage: Usage) -> float:
    return (3 * usage.input + 15 * usage.output) / 1e6


def test_a_forecast_has_bounds_and_names_the_limit() -> None:
    found = forecast([3600] * 100, 2000, Limits(itpm=50_000, otpm=100_000, rpm=1000), cost)
    assert (found.input.low, found.input.expected, found.input.high) == pytest.approx((80_000, 100_000, 120_000))
    assert (found.output.expected, found.output.high) == (120_000, 200_000)
    assert found.cost_usd is not None and found.cost_usd.expected == pytest.approx(0.3 + 1.8)
    assert found.minutes is not None and found.binding == "input"
    assert (found.minutes.expected, found.minutes.high) == pytest.approx((2.0, 2.4))
    assert found.to_shape()["input"] == {"low": 80_000, "expected": 100_000, "high": 120_000}


def test_what_was_seen_narrows_a_forecast() -> None:
    found = forecast([3600] * 100, 2000, Limits(tpm=10_000), cost, Seen(items=100, input=120_000, output=1000, sizes=360_000))
    assert found.input.expected == pytest.approx(120_000) and found.input.high < 130_000
    assert (found.output.expected, found.output.high) == pytest.approx((1000, 1100))
    assert found.minutes is not None and found.minutes.expected == pytest.approx(12.1) and found.binding == "tokens"


def test_what_nobody_knows_is_not_said() -> None:
    found = forecast([], 10, None, lambda _: None)
    assert (found.calls, found.cost_usd, found.minutes, found.to_shape()["minutes"]) == (0, None, None, None)
    assert forecast([10], 10, Limits(), cost).minutes is None


def test_shards_of_a_size_or_of_the_groups() -> None:
    assert shards([1, 2, 3], 2) == [[1, 2], [3]] and shards([], 2) == []
    assert shards([1, 2, 3], 9, [(0,), (3, 1), (2,)]) == [[3, 1], [2]]


def test_the_prompt_of_an_agent_names_its_items_and_where_to_answer() -> None:
    items = [{"item": "a.py", "file": "a.py"}, {"item": "b.py", "file": "b.py"}]
    assert for_agent(PromptTerms("Mend {file}."), items[:1]) == "Mend a.py."
    assert "[2 of 2: b.py]\nMend b.py." in for_agent(PromptTerms("Mend {file}."), items)
    told = where_to_answer(["a.py", "b.py"], {"type": "integer"})
    assert '["a.py", "b.py"]' in told and '{"type": "integer"}' in told
    assert "a JSON value matching" in where_to_answer(["a.py"], {})


def test_an_agents_answers_are_found_by_item() -> None:
    assert answers(b"[1]", ["a"]) == [[1]]
    assert answers(b'{"b": 2, "a": 1}', ["a", "b"]) == [1, 2]
    for data, why in ((None, "not there"), (b"\xff", "not JSON"), (b"[1]", "one member for each"), (b'{"a": 1}', "without b")):
        with pytest.raises(NoJson, match=why):
            answers(data, ["a", "b"])
