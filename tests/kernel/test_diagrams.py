"""The page shows the tables as they are."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest

from supervisor.kernel.states import ATTEMPT_TRANSITIONS, TASK_TRANSITIONS
from tools import diagrams


def test_the_page_shows_both_tables_as_they_are() -> None:
    page = diagrams.PAGE.read_text(encoding="utf-8")
    assert page == diagrams.drawn(page), "run tools/diagrams.py"


def test_every_step_of_the_tables_is_an_arrow() -> None:
    blocks = re.findall(r"```mermaid\n(.*?)```", diagrams.drawn(diagrams.PAGE.read_text(encoding="utf-8")), re.DOTALL)
    tables: list[Mapping[Any, Mapping[str, Any]]] = [TASK_TRANSITIONS, ATTEMPT_TRANSITIONS]
    for block, table in zip(blocks, tables, strict=True):
        for state, row in table.items():
            for event, target in row.items():
                assert f"    {state} --> {target}: {event}\n" in block


def test_a_page_without_its_markers_is_loud() -> None:
    with pytest.raises(KeyError, match="task states"):
        diagrams.drawn("# Architecture\n")
