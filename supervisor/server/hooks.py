"""Find what features add to a running supervisor, by its purpose."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from supervisor.contract import Feature, Service, Verb, load
from supervisor.kernel.errors import ConfigError

if TYPE_CHECKING:
    from supervisor.kernel.decision import Command
    from supervisor.kernel.events import Event, Question
    from supervisor.server.loop import Loop
    from supervisor.store.ledger import Ledger


class Hooks:
    """The parts of all features, imported."""

    def __init__(self, features: Iterable[Feature]) -> None:
        """Raises ConfigError for a part that cannot be imported, and where two features add the same verb or wait for one another."""
        given = list(features)
        self.requests: dict[str, Verb] = _verbs(given, lambda feature: feature.requests)
        self.interrupted = frozenset().union(*(feature.interrupted for feature in given))
        self.agent_requests: dict[str, Verb] = _verbs(given, lambda feature: feature.agent_requests)
        self.services: list[Service] = [load(feature.service) for feature in _in_order(given) if feature.service]
        self._needs: list[Callable[[Loop, bool], dict[str, Any]]] = _loaded(feature.needs for feature in given)
        self._begins: list[Callable[[Ledger, str], Iterable[Event]]] = _loaded(feature.begins for feature in given)
        self._steps: list[Callable[[Loop], None]] = _loaded(feature.step for feature in given)
        self._denied: list[Callable[[Loop, str, int, list[str]], Question | None]] = _loaded(feature.denied for feature in given)
        self._acts: dict[str, list[Callable[[Loop, Command], None]]] = {}
        for feature in given:
            for command, place in feature.acts.items():
                self._acts.setdefault(command, []).append(load(place))

    def needs(self, loop: Loop, *, watches: bool) -> dict[str, Any]:
        """Return what features say of what needs a person."""
        found: dict[str, Any] = {}
        for part in self._needs:
            found |= part(loop, watches)
        return found

    def act(self, loop: Loop, command: Command) -> None:
        """Act upon a committed command."""
        for act in self._acts.get(type(command).__name__, ()):
            act(loop, command)

    def begins(self, ledger: Ledger, run: str = "") -> Iterator[Event]:
        """Return the events that belong into one decision with the tasks of a run; of all runs when `run` is empty."""
        for events in self._begins:
            yield from events(ledger, run)

    def step(self, loop: Loop) -> None:
        """Tell features that the loop made a step."""
        for step in self._steps:
            step(loop)

    def denied(self, loop: Loop, task: str, epoch: int, tools: list[str]) -> Question | None:
        """Return what a person should say of an attempt that failed since it was denied these tools."""
        for denied in self._denied:
            if (question := denied(loop, task, epoch, tools)) is not None:
                return question
        return None


def _loaded(places: Iterable[str]) -> list[Any]:
    return [load(place) for place in places if place]


def _verbs(features: list[Feature], verbs_of: Callable[[Feature], Mapping[str, str]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for feature in features:
        for verb, place in verbs_of(feature).items():
            if verb in found:
                raise ConfigError("cannot add", on=f"the verb {verb} of the feature {feature.name}", why="another feature has that verb")
            found[verb] = load(place)
    return found


def _in_order(features: list[Feature]) -> list[Feature]:
    """Return the features with each behind those that it names in `after`."""
    left, found, names = list(features), list[Feature](), set[str]()
    known = {feature.name for feature in features}
    while left:
        ready = [feature for feature in left if names.issuperset(known.intersection(feature.after))]
        if not ready:
            raise ConfigError("cannot begin", on=", ".join(feature.name for feature in left), why="these features wait for one another")
        found += ready
        names |= {feature.name for feature in ready}
        left = [feature for feature in left if feature.name not in names]
    return found
