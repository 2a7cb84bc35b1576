"""Every verb, found by its letters: the one that is chosen stands on the line below, ready to be finished and run."""

from __future__ import annotations

from functools import partial
from typing import cast

from textual.command import DiscoveryHit, Hit, Hits, Provider

from supervisor.faces.top.main_screen import Top


class Verbs(Provider):
    """As `nightcrew --help` lists them."""

    @property
    def _top(self) -> Top:
        return cast("Top", self.app)

    async def discover(self) -> Hits:
        """Of Textual."""
        for verb, line in self._top.acts.verbs.items():
            yield DiscoveryHit(verb, partial(self._top.begin_command, verb), help=line)

    async def search(self, query: str) -> Hits:
        """Of Textual."""
        matcher = self.matcher(query)
        for verb, line in self._top.acts.verbs.items():
            if (score := matcher.match(f"{verb} {line}")) > 0:
                yield Hit(score, matcher.highlight(verb), partial(self._top.begin_command, verb), help=line)
