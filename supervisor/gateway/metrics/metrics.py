"""The page and who may see it. It costs the requests of agents next to nothing: what is counted is read by a thread, and the page is made
by one, at most once a second."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from supervisor.core.errors import NightcrewError
from supervisor.core.gateway.types import TrafficView
from supervisor.gateway.metrics import gauges
from supervisor.gateway.metrics.gauges import Caps
from supervisor.gateway.metrics.looks import Looks, Said
from supervisor.host import secrets
from supervisor.host.clock import Clock

if TYPE_CHECKING:
    from supervisor.core.metrics.counts import Counts
    from supervisor.gateway.metrics import page

SHOWN_S = 1.0
"""A page is given again for so long, whoever asks."""


@dataclass(frozen=True, slots=True)
class Live:
    """How the page asks what is so now at the gateway."""

    view: Callable[[], TrafficView]
    caps: Callable[[], Caps]


class Metrics:
    """Belongs to one event loop."""

    def __init__(self, looks: Looks, live: Live, token: Path, clock: Clock) -> None:
        """`token`: the file that holds what a scraper sends."""
        self._looks, self._live, self._token, self._clock = looks, live, token, clock
        self._page = b""
        self._made_at = -SHOWN_S
        self._lock = asyncio.Lock()

    def may_scrape(self, sent: str) -> bool:
        """Whether it is the token of the file as it is now; nobody's while there is none, or others can read it."""
        try:
            own = secrets.key(self._token)
        except NightcrewError:
            return False
        return hmac.compare_digest(sent.encode("utf-8", "replace"), own.encode())

    def told(self, said: Said) -> None:
        """As `Looks.told`."""
        self._looks.told(said)

    async def render(self) -> bytes:
        """The page, in the text format of `page.CONTENT_TYPE`. Raises NightcrewError as `Looks.fresh` does."""
        async with self._lock:
            if self._clock.monotonic() - self._made_at >= SHOWN_S:
                found = await self._looks.fresh()
                now = gauges.of_page(found, self._looks.said, self._live.view(), self._live.caps(), self._clock.wall())
                self._page = await asyncio.to_thread(_rendered, found.counts, now)
                self._made_at = self._clock.monotonic()
        return self._page

    async def look(self) -> None:
        """Count what is new although nobody asks, before the rows are old enough to go. Raises as `render` does."""
        await self._looks.fresh()

    async def close(self) -> None:
        """Let the look under way end."""
        await self._looks.close()


def _rendered(counts: Counts, now: page.Values) -> bytes:
    from supervisor.gateway.metrics import page  # late: a tenth of a gateway's start, and nobody may ever ask for one

    return page.render(counts, now)
