"""Each attack of the table, in each tier of each executor, and without a sandbox, where it must succeed (battery X11)."""

from __future__ import annotations

import os

import pytest

from supervisor.core.sandbox import Tier
from supervisor.host.sandbox.executors import Executor
from tests.host.sandbox.attacks import ATTACKS, Attack
from tests.host.sandbox.conftest import OUTCOMES
from tests.host.sandbox.kit import TIERS, house, need, without_private_tmp

PLACES = [(Tier.NONE, None), *((tier, executor) for tier in TIERS for executor in Executor)]


@pytest.fixture(scope="module", params=PLACES, ids=lambda place: f"tier{int(place[0])}-{place[1] or 'none'}")
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Tier, str, dict[str, str], dict[str, str]]:
    """Tier, column of the table, and what came of the attacks: with the policy as it is, and with the host's /tmp."""
    tier, executor = request.param
    if executor is not None:
        need(executor, tier)
    found = []
    for private in (True, False):
        with house(tmp_path_factory.mktemp("h")) as made:
            policy = made.policy(tier or Tier.FILES)
            found.append(made.attack(executor, policy if private else without_private_tmp(policy)))
    return tier, f"tier {int(tier)}, {executor}" if executor else "tier 0", found[0], found[1]


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name.replace(" ", "-"))
def test_an_attack(attack: Attack, place: tuple[Tier, str, dict[str, str], dict[str, str]]) -> None:
    tier, column, as_it_is, with_tmp = place
    whys = [as_it_is[attack.name]] if attack.by_tmp else [as_it_is[attack.name], with_tmp[attack.name]]
    OUTCOMES[attack.name, column] = "denied" if all(whys) else "**succeeds**"
    if tier >= attack.denied_from:
        assert all(whys), "the sandbox let it pass"
    elif attack.as_root and os.geteuid() != 0:
        pytest.skip("without a sandbox only root could")
    else:
        assert whys == [""] * len(whys), "it must succeed here, or it proves nothing where it is denied"
