"""The features of the server, with what they read by and act by. A page or an API that is added is a line of `features`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from supervisor.cli.crew.acting import VerbActs
from supervisor.cli.crew.reading import Lookout
from supervisor.cli.crew.reviewing import ReviewActs
from supervisor.cli.web.api_doors import VerbDoors
from supervisor.cli.web.devices import Devices
from supervisor.cli.web.sources import sources
from supervisor.faces.web import agent_page, crew_page, pages
from supervisor.faces.web.api import feature as api_feature
from supervisor.faces.web.feature import Feature
from supervisor.faces.web.sessions import Tokens
from supervisor.host.paths import Home


def features(where: Home, verbs: Mapping[str, str]) -> Sequence[Feature]:
    """In the order of the navigation."""
    crew = crew_page.CrewPage(lambda: Lookout(where), VerbActs(where, verbs))
    agent = agent_page.feature(lambda: Lookout(where), ReviewActs(where), crew.acted)
    return (crew.feature(), agent, pages.feature(sources(where)), api_feature.feature(where, VerbDoors(where)))


def tokens(where: Home) -> Tokens:
    """Those that a person made."""
    return Devices(where)
