"""The figure of the lines that many add at once counts what is lost, torn, doubled or out of order."""

from __future__ import annotations

import json

import pytest

from nightcrew.plugins.bench import memory


def lines(each: int) -> list[bytes]:
    writers = range(memory.APPENDS_AGENTS + memory.DIRECT)
    return [json.dumps({"text": memory._text(writer, at)}).encode() + b"\n" for at in range(each) for writer in writers]


def test_what_counts_as_corrupt() -> None:
    whole = lines(3)
    assert memory._corrupt(b"".join(whole), 3) == 0
    for wrong in (whole[:-1], [*whole, whole[0]], [*whole[:-1], whole[-1][:-2]], [whole[8], *whole[:8], *whole[9:]]):
        assert memory._corrupt(b"".join(wrong), 3) > 0


@pytest.mark.soak
def test_measured_quickly_nothing_is_lost() -> None:
    found = memory.measure_appends(quick=True)["appends"]
    assert (found["written"], found["corrupt"]) == (800, 0)
