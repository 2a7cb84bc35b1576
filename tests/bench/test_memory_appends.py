"""The figure of the lines that many add at once counts what is lost, torn, doubled or out of order."""

from __future__ import annotations

import json

import pytest

from supervisor.bench.memory import appends


def lines(each: int) -> list[bytes]:
    writers = range(appends.AGENTS + appends.DIRECT)
    return [json.dumps({"text": appends._text(writer, at)}).encode() + b"\n" for at in range(each) for writer in writers]


def test_what_counts_as_corrupt() -> None:
    whole = lines(3)
    assert appends._corrupt(b"".join(whole), 3) == 0
    for wrong in (whole[:-1], [*whole, whole[0]], [*whole[:-1], whole[-1][:-2]], [whole[8], *whole[:8], *whole[9:]]):
        assert appends._corrupt(b"".join(wrong), 3) > 0


@pytest.mark.soak
def test_measured_quickly_nothing_is_lost() -> None:
    found = appends.measure(quick=True)["appends"]
    assert (found["written"], found["corrupt"]) == (800, 0)
