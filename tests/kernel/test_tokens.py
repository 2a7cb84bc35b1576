"""Attempt tokens: only the holder of the secret can make one, and each speaks for one attempt."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.host import attempt_tokens

SECRET = b"s" * 32


@given(task=st.from_regex(r"[a-z0-9-]{1,20}/[a-z0-9_-]{1,20}", fullmatch=True), epoch=st.integers(1, 10**6))
def test_a_token_says_whose_it_is(task: str, epoch: int) -> None:
    token = attempt_tokens.derive(SECRET, task, epoch)
    assert attempt_tokens.check(SECRET, token) == (task, epoch)
    assert token.replace("-", "").replace("_", "").isalnum(), "it goes into a header and into a path"


def test_it_is_derived_again_after_a_restart() -> None:
    assert attempt_tokens.derive(SECRET, "1121-k3f9/lint", 2) == attempt_tokens.derive(SECRET, "1121-k3f9/lint", 2)


def test_another_secret_another_attempt_another_token() -> None:
    made = {attempt_tokens.derive(secret, task, epoch) for secret in (SECRET, b"t" * 32) for task in ("r/a", "r/b") for epoch in (1, 11)}
    assert len(made) == 8


@pytest.mark.parametrize("index", range(4, 60, 7))
def test_one_changed_character_is_no_token(index: int) -> None:
    token = attempt_tokens.derive(SECRET, "1121-k3f9/lint", 2)
    changed = token[:index] + ("a" if token[index] != "a" else "b") + token[index + 1 :]
    assert attempt_tokens.check(SECRET, changed) is None


@given(st.text(max_size=80))
def test_any_text_is_looked_at_without_an_error(text: str) -> None:
    assert attempt_tokens.check(SECRET, text) is None
    assert attempt_tokens.check(SECRET, "nct_" + text) is None
    assert not attempt_tokens.is_admin(SECRET, text)


def test_an_epoch_that_is_no_number_is_refused_even_when_signed() -> None:
    signature = attempt_tokens.derive(SECRET, "r/a:x", 1).rpartition("_")[2]
    assert attempt_tokens.check(SECRET, "nct_" + "ci9hOng" + "_" + signature) is None


def test_the_admin_token_opens_nothing_else() -> None:
    admin = attempt_tokens.admin(SECRET)
    assert attempt_tokens.is_admin(SECRET, admin)
    assert not attempt_tokens.is_admin(b"t" * 32, admin)
    assert attempt_tokens.check(SECRET, admin) is None
    assert not attempt_tokens.is_admin(SECRET, attempt_tokens.derive(SECRET, "admin", 1))
