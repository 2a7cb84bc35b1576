"""Names that nightcrew makes are harmless in tmux, git and the file system, whatever the user's text is."""

from __future__ import annotations

import re
from collections.abc import Container

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.tmux import session_name
from supervisor.kernel.names import MAX_SLUG, RUN_ALPHABET, attempt_name, branch_name, rescue_ref, run_id, slug, tag, tips_ref

PLAIN = re.compile(r"[a-z0-9][a-z0-9_-]*")
RUN = "0731-k3qz"
LAST_EPOCH = 9_999_999_999


def slugs(*texts: str) -> list[str]:
    made: list[str] = []
    for text in texts:
        made.append(slug(text, made))
    return made


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("lint", "lint"),
        ("a.b", "a-b"),
        ("A  B", "a-b"),
        ("-x", "x"),
        ("_x_", "x"),
        ("", "task"),
        ("../..", "task"),
        ("$(touch X)", "touch-x"),
        ("#(touch X)", "touch-x"),
        ("a\0b\nc", "a-b-c"),
        ("Crème brûlée", "creme-brulee"),
        ("任务", "task"),
        ("🦊", "task"),
        ("\u202eevil", "evil"),
        ("x" * 10_000, "x" * MAX_SLUG),
        ("a" * (MAX_SLUG - 1) + "--b", "a" * (MAX_SLUG - 1)),
    ],
)
def test_slugs(text: str, expected: str) -> None:
    assert slug(text, ()) == expected


def test_near_names_do_not_collide() -> None:
    assert slugs("a.b", "a_b", "a:b", "a b", "A.B") == ["a-b", "a_b", "a-b-2", "a-b-3", "a-b-4"]
    assert slugs("agent-1", "agent-10", "agent.1") == ["agent-1", "agent-10", "agent-1-2"]
    assert slugs("z" * 23 + "-bc", "z" * 23 + "-bc.") == ["z" * 23 + "-bc", "z" * 23 + "-2"]
    assert slugs("x" * 30, "x" * 31, "x" * 32) == ["x" * 26, "x" * 24 + "-2", "x" * 24 + "-3"]


def test_a_number_that_a_person_took_is_left_to_them() -> None:
    assert slugs("a-2", "a", "a.", "a..") == ["a-2", "a", "a-3", "a-4"]


class Counting(Container[str]):
    """What is taken, and how often somebody asked."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.asked = 0

    def __contains__(self, name: object) -> bool:
        self.asked += 1
        return name in self.names


def test_thousands_of_ids_with_one_long_beginning_cost_few_looks_each() -> None:
    taken = Counting()
    for number in range(5000):
        taken.names.add(slug(f"move-the-users-module-to-the-new-store-{number}", taken))  # type: ignore[arg-type]
    assert len(taken.names) == 5000
    assert taken.asked < 5000 * 40


@given(st.lists(st.text(max_size=60), max_size=30))
def test_any_texts_give_distinct_plain_names(texts: list[str]) -> None:
    made = slugs(*texts)
    assert len(set(made)) == len(made)
    for name in made:
        assert PLAIN.fullmatch(name) and len(name) <= MAX_SLUG


@given(st.text(), st.integers(1, LAST_EPOCH))
def test_any_text_gives_a_session_name_that_tmux_takes(text: str, epoch: int) -> None:
    name = session_name(f"{RUN}/{slug(text, ())}", epoch)
    assert re.fullmatch(r"[a-z0-9_-]{1,48}", name)
    assert name.startswith(RUN), "so it is never the name of a session of our own"


names = st.from_regex(r"[a-z0-9][a-z0-9_-]{0,9}", fullmatch=True)


@given(names, st.integers(1, 99), names, st.integers(1, 99))
def test_two_attempts_never_share_a_session(one: str, epoch: int, other: str, other_epoch: int) -> None:
    same = (one, epoch) == (other, other_epoch)
    assert (session_name(f"{RUN}/{one}", epoch) == session_name(f"{RUN}/{other}", other_epoch)) == same


def test_what_is_derived_from_a_task() -> None:
    task = f"{RUN}/lint"
    assert attempt_name(task, 2) == "0731-k3qz/lint:2"
    assert session_name(task, 2) == "0731-k3qz_lint_2"
    assert branch_name(task) == "nightcrew/0731-k3qz/lint/work"
    assert rescue_ref(task, 2) == "refs/nightcrew/rescue/0731-k3qz/lint/2"
    assert tips_ref(task, 2) == "refs/nightcrew/rescue/0731-k3qz/lint/2-tips"
    assert re.fullmatch(r"[0-9a-f]{16}:0731-k3qz/lint:2", tag("/home/a", task, 2))
    assert tag("/home/a", task, 2) != tag("/home/b", task, 2)
    assert tag("/home/\udcff", task, 2)


@given(st.integers(1, 12), st.integers(1, 31), st.integers(min_value=0))
def test_run_ids_are_short_and_sort_by_day(month: int, day: int, draw: int) -> None:
    made = run_id(month, day, draw)
    assert re.fullmatch(rf"{month:02}{day:02}-[{RUN_ALPHABET}]{{4}}", made)
    assert PLAIN.fullmatch(made) and len(made) == 9


def test_neighbouring_draws_are_different_runs() -> None:
    assert len({run_id(7, 31, draw) for draw in range(len(RUN_ALPHABET) ** 2)}) == len(RUN_ALPHABET) ** 2
    assert set(RUN_ALPHABET).isdisjoint("01loiu")
