"""Blocks of ports."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from supervisor.kernel.names import BLOCKS, FIRST, SIZE, block, variables

starts = st.integers(0, BLOCKS - 1).map(lambda number: FIRST + SIZE * number)


@given(st.sets(starts, max_size=50), st.sets(st.integers(FIRST, FIRST + 40 * SIZE), max_size=20))
def test_no_two_agents_and_no_other_server_share_a_port(taken: set[int], busy: set[int]) -> None:
    found = block(taken, lambda port: port not in busy)
    assert found is not None
    assert found not in taken
    assert not busy & set(range(found, found + SIZE))
    lower = set(range(FIRST, found, SIZE)) - taken
    assert all(busy & set(range(start, start + SIZE)) for start in lower), "the lowest that is left"


def test_when_all_are_taken_there_is_none_and_nothing_is_said() -> None:
    assert block({FIRST + SIZE * number for number in range(BLOCKS)}, lambda _: True) is None
    assert block((), lambda _: False) is None
    assert variables(None) == {}
    assert variables(20_010) == {"NIGHTCREW_PORT": "20010", "NIGHTCREW_PORTS": "20010-20019"}
