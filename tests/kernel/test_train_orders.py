"""The order of a train's results, its gates, and what it is told once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from supervisor.kernel.spec import TaskSpec
from supervisor.kernel.train_orders import Candidate, GeneratedRule, Method, Orders, Person, Terms, gates, ordered, repair_words


@given(st.lists(st.tuples(st.integers(0, 5), st.sets(st.integers(0, 9))), max_size=8))
def test_each_comes_after_what_it_needs_and_the_smallest_first(drawn: list[tuple[int, set[int]]]) -> None:
    """Needs are drawn of earlier ones alone, as a plan's are no circle."""
    given_ = [Candidate(f"t{at}", lines, frozenset(f"t{need}" for need in needs if need < at)) for at, (lines, needs) in enumerate(drawn)]
    found = ordered(given_[::-1])
    assert sorted(one.task for one in found) == sorted(one.task for one in given_)
    done: set[str] = set()
    for at, one in enumerate(found):
        assert one.needs <= done
        could = [other.lines for other in found[at:] if other.needs <= done]
        assert one.lines == min(could)
        done.add(one.task)


def test_which_gates() -> None:
    assert gates(("a", "b", "a"), "c", ["d"]) == (("a", "b"), "as you said")
    assert gates((), "c", ["d"])[0] == ()
    assert gates(None, "c", ["d"]) == (("c",), "nightcrew.toml")
    assert gates(None, "", ["d", "", "e", "d"])[0] == ("d", "e")
    assert gates(None, "", ["", ""])[0] == ()


def test_orders_are_read_as_they_were_written() -> None:
    rules = (GeneratedRule(("a", "b/*"), "make b"),)
    terms = Terms("train-1", Person("Å", "a@b"), 7.0, Method.REBASE, gated=True, into="main", generated=rules)
    orders = Orders("/r", "/r/.git", terms, TaskSpec("gate", "gate", "landing-gate", ("true",), timeout_s=5.0), {"PATH": "/bin"})
    assert Orders.from_json(orders.to_json()) == orders


def test_an_agent_is_told_what_to_mend_and_where() -> None:
    said = repair_words("main", "c0ffee", "it conflicts in a", ["a", "b"])
    assert "git merge c0ffee" in said and "was left out: it conflicts in a." in said and "\n- b" in said
