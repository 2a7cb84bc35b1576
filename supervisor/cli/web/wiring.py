"""The features of the server, with what they read by and act by. A page or an API that is added is a line of `features`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from supervisor.cli.crew.acting import VerbActs
from supervisor.cli.crew.reading import Lookout
from supervisor.faces.web import crew_page
from supervisor.faces.web.feature import Feature
from supervisor.faces.web.sessions import NoTokens, Tokens
from supervisor.host.paths import Home


def features(where: Home, verbs: Mapping[str, str]) -> Sequence[Feature]:
    """In the order of the navigation."""
    acts = VerbActs(where, verbs)
    return (crew_page.feature(lambda: Lookout(where), acts),)


def tokens(where: Home) -> Tokens:  # noqa: ARG001 - nobody can make one yet
    """Those that a person made."""
    return NoTokens()
