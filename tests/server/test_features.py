"""The contract of a feature: what the supervisor makes of it."""

from __future__ import annotations

from typing import Any

import pytest

from supervisor.contract import Feature, Proof, Services
from supervisor.features.registry import BUILT_IN
from supervisor.kernel.errors import ConfigError
from supervisor.server import hooks
from supervisor.server.hooks import Hooks
from supervisor.server.request_table import HANDLERS

ASK = f"{__name__}:ask"


async def ask(loop: Any, args: dict[str, Any]) -> dict[str, Any]:
    return args


def test_every_part_of_every_feature_is_there_and_no_verb_is_given_twice() -> None:
    found = Hooks(BUILT_IN)
    assert not found.requests.keys() & HANDLERS.keys()
    assert found.interrupted <= found.requests.keys()
    assert len(found.services) == sum(bool(feature.service) for feature in BUILT_IN)


def test_a_verb_that_two_features_add_is_refused() -> None:
    with pytest.raises(ConfigError, match="the verb x of the feature b: another feature has that verb"):
        Hooks([Feature("a", requests={"x": ASK}), Feature("b", requests={"x": ASK})])


def test_a_service_begins_after_those_that_it_names() -> None:
    given = [Feature("c", after=("b", "not installed")), Feature("b", after=("a",)), Feature("a")]
    assert [feature.name for feature in hooks._in_order(given)] == ["a", "b", "c"]
    with pytest.raises(ConfigError, match="x, y: these features wait for one another"):
        hooks._in_order([Feature("x", after=("y",)), Feature("y", after=("x",))])


def test_a_part_that_cannot_be_imported_is_named() -> None:
    with pytest.raises(ConfigError, match=r"cannot import nothing\.here:x: ModuleNotFoundError"):
        Hooks([Feature("a", service="nothing.here:x")])


def test_an_object_is_found_by_its_class_or_by_the_class_that_it_stands_for() -> None:
    class Anchors(Proof):
        pass

    services, made = Services(), Anchors()
    services.put(made, Proof)
    assert services.get(Proof) is made
    assert services.find(Anchors) is None
    with pytest.raises(LookupError, match="no service has put a Anchors"):
        services.get(Anchors)
