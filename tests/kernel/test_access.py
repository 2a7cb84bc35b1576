"""What a token may."""

from __future__ import annotations

from dataclasses import replace

import pytest

from supervisor.features.api import rules as api_rules
from supervisor.features.api.rules import Kind, Scope, Token
from supervisor.kernel.errors import UsageError

SECRET = "s" * 43
TOKEN = Token(
    "0123456789ab", api_rules.digest(SECRET), Kind.API, "anna", "ci", frozenset({Scope.READ}), frozenset({"p"}),
    others=False, confined=True, rate=10.0, quota=24,
)  # fmt: skip


def test_only_its_own_text_is_a_token() -> None:
    words = api_rules.parse(f"nck_{TOKEN.id}_{SECRET}")
    assert words is not None and words.text == f"nck_{TOKEN.id}_{SECRET}" and api_rules.is_secret_of(TOKEN, words.secret)
    for other in (
        "",
        "nck_",
        f"nct_{TOKEN.id}_{SECRET}",
        f" nck_{TOKEN.id}_{SECRET}",
        f"nck_{TOKEN.id}_{SECRET}\n",
        f"nck_{TOKEN.id}_{SECRET}x",
    ):
        assert api_rules.parse(other) is None, other
    assert not api_rules.is_secret_of(TOKEN, "t" * 43) and not api_rules.is_secret_of(None, "")
    assert TOKEN.digest != SECRET and not api_rules.is_secret_of(TOKEN, TOKEN.digest)


def test_what_it_reaches() -> None:
    assert TOKEN.sees("p", "anna") and not TOKEN.sees("p", "bert") and not TOKEN.sees("p", None) and not TOKEN.sees("q", "anna")
    assert replace(TOKEN, others=True).sees("p", None) and not replace(TOKEN, others=True).sees("q", None)
    assert replace(TOKEN, projects=frozenset()).sees("q", "anna")
    assert TOKEN.may(Scope.READ) and not TOKEN.may(Scope.ACT)


def test_when_it_holds() -> None:
    assert TOKEN.holds(1e12) and not replace(TOKEN, revoked=5.0).holds(1.0)
    assert replace(TOKEN, expires=5.0).holds(4.9) and not replace(TOKEN, expires=5.0).holds(5.0)


def test_a_quota_comes_back_evenly_and_never_by_a_clock_that_went_back() -> None:
    used = replace(TOKEN, spent=24.0, spent_at=1000.0)
    assert api_rules.wait_s(used, 1, 1000.0) == api_rules.wait_s(used, 1, 0.0) == pytest.approx(3600.0)
    assert api_rules.wait_s(used, 1, 1000.0 + 3600.0) == pytest.approx(0.0) and api_rules.spent(used, 1e9) == 0.0
    assert api_rules.wait_s(used, 25, 1e9) == float("inf") and api_rules.wait_s(replace(used, quota=0), 10**6, 0.0) == 0.0


def test_a_rate_has_a_burst() -> None:
    bucket = api_rules.bucket(TOKEN, 0.0)
    for _ in range(20):
        assert bucket.wait_s(1.0, 0.0) == 0.0
        bucket.take(1.0, 0.0)
    assert bucket.wait_s(1.0, 0.0) == pytest.approx(0.1)


@pytest.mark.parametrize(
    "facts",
    [{"user": ""}, {"name": "a\nb"}, {"name": " a"}, {"name": "x" * 65}, {"scopes": frozenset()}, {"rate": 0.0}, {"rate": float("nan")},
     {"quota": -1}],
    ids=str,
)  # fmt: skip
def test_nobody_has_a_token_like_this(facts: dict[str, object]) -> None:
    api_rules.check(TOKEN)
    with pytest.raises(UsageError):
        api_rules.check(replace(TOKEN, **facts))  # type: ignore[arg-type]  # one of them
    with pytest.raises(UsageError, match="no scope is called write"):
        api_rules.scopes(["write"])
