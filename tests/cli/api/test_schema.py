"""The server against its own OpenAPI: whatever schemathesis makes up, no answer is one that the description does not have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.strategies import SearchStrategy
from schemathesis import Case as AnyCase
from schemathesis.specs.openapi import checks

from tests.cli.api.kit import Served

Case = AnyCase[Any]
CHECKS = [
    schemathesis.checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
    checks.response_headers_conformance,
    checks.negative_data_rejection,
]


def drawn(strategy: SearchStrategy[Case], ask: Callable[[Case], None], examples: int) -> None:
    """Ask with so many cases."""

    @settings(max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(case=strategy)
    def test(case: Case) -> None:
        ask(case)

    test()


def asked(served: Served, token: str, examples: int) -> int:
    """How many requests of each operation and of both kinds, right and wrong, were answered as described."""
    schema = schemathesis.openapi.from_url(f"{served.url}/api/v1/openapi.json")
    count = 0

    def ask(case: Case) -> None:
        nonlocal count
        if [] in (case.query or {}).values():
            return  # an empty list is not sent, so the server sees another request than the one that was made up
        count += 1
        if "timeout" in (case.query or {}):
            case.query["timeout"] = 0  # nobody waits here
        answer = case.call(headers={"Authorization": f"Bearer {token}"}, timeout=60)
        # What is too large is not looked at, and so not called wrong either.
        case.validate_response(answer, checks=CHECKS[:-1] if answer.status_code == 413 else CHECKS)

    for found in schema.get_all_operations():
        operation = found.ok()  # type: ignore[union-attr]  # the other has raised by then
        if not operation.definition.raw["operationId"].startswith("stream"):  # a stream of events goes on
            for mode in schemathesis.GenerationMode:
                drawn(operation.as_strategy(generation_mode=mode), ask, examples)
    return count


def test_no_answer_that_the_description_does_not_have(served: Served, token: str) -> None:
    assert asked(served, token, 2) > 30


@pytest.mark.soak
def test_no_answer_that_the_description_does_not_have_at_length(served: Served, token: str) -> None:
    assert asked(served, token, 200) > 2000
