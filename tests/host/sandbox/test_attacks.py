"""Each attack of the table, in each tier of each executor, and without a sandbox, where it must succeed (battery X11)."""

from __future__ import annotations

import os
from typing import NamedTuple

import pytest

from supervisor.sandbox.executors import Executor
from supervisor.sandbox.policy import Tier
from tests.host.sandbox.attacks import ATTACKS, Attack
from tests.host.sandbox.conftest import OUTCOMES
from tests.host.sandbox.kit import TIERS, house, need, without_private_tmp

PLACES = [(Tier.NONE, None), *((tier, executor) for tier in TIERS for executor in Executor)]


class Place(NamedTuple):
    """Where the attacks ran, and what came of them: with the policy as it is, and with the host's /tmp."""

    tier: Tier
    column: str
    as_it_is: dict[str, str]
    with_tmp: dict[str, str]
    changed: list[str]
    """Files outside."""


@pytest.fixture(scope="module", params=PLACES, ids=lambda place: f"tier{int(place[0])}-{place[1] or 'none'}")
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Place:
    tier, executor = request.param
    if executor is not None:
        need(executor, tier)
    found = dict[bool, dict[str, str]]()
    touched = list[str]()
    for private in (True, False) if executor is not None else (True,):
        with house(tmp_path_factory.mktemp("h")) as made:
            policy = made.policy(tier or Tier.FILES)
            found[private] = made.attack(executor, policy if private else without_private_tmp(policy))
            touched += made.changed
    return Place(tier, f"tier {int(tier)}, {executor}" if executor else "tier 0", found[True], found.get(False, found[True]), touched)


def test_each_attack_and_that_all_together_changed_no_file_outside(place: Place) -> None:
    """All of a place in one test: what they share is made once, however many processes share the tests."""
    wrong = [f"{attack.name}: {why}" for attack in ATTACKS if (why := what_is_wrong(attack, place))]
    assert wrong == []
    if place.tier is not Tier.NONE:  # there they succeed
        assert place.changed == []


def what_is_wrong(attack: Attack, place: Place) -> str:
    """Empty when it was denied where it should be, and succeeded where it should."""
    tier, column, as_it_is, with_tmp, _ = place
    whys = [as_it_is[attack.name]] if attack.by_tmp else [as_it_is[attack.name], with_tmp[attack.name]]
    OUTCOMES[attack.name, column] = "denied" if all(whys) else "**succeeds**"
    if tier >= attack.denied_from:
        return "" if all(whys) else "the sandbox let it pass"
    if attack.as_root and os.geteuid() != 0:
        return ""  # without a sandbox only root could
    return "" if whys == [""] * len(whys) else f"it must succeed here, or it proves nothing where it is denied: {whys}"
