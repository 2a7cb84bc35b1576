"""What the provider will have left soon. The limit breaker opens by this, before anybody is refused.

`upstream` is the provider's bucket of one dimension; amounts are tokens (or requests), `now` is monotonic seconds.
"""

from __future__ import annotations

from supervisor.core.gateway.bucket import SLACK
from supervisor.core.gateway.upstream_bucket import WINDOW_S, UpstreamBucket

RESERVE_MOST = 0.25
"""Part of the capacity that others are thought to take within the horizon at most."""
NOISE = 0.001
"""Part of the capacity by which a forecast may be below 0 and mean nothing."""
REOPEN = 0.02
"""Part of the capacity that the forecast must have again."""


def outside_use(upstream: UpstreamBucket, horizon_s: float, now: float) -> float:
    """What others take in `horizon_s` seconds when they go on; at most `RESERVE_MOST` of the capacity."""
    return min(upstream.outside(now) * horizon_s, RESERVE_MOST * upstream.capacity)


def shortage_s(upstream: UpstreamBucket, horizon_s: float, now: float) -> float:
    """Seconds until the forecast is good again, at most a minute; 0 while the provider will have something left after `horizon_s`."""
    left = upstream.level(now) - (outside_use(upstream, horizon_s, now) if upstream.in_use else 0.0)
    if left >= -NOISE * upstream.capacity:
        return 0.0
    gained_in_s = (REOPEN * upstream.capacity - left) / max(upstream.rate - upstream.outside(now), SLACK)
    return min(gained_in_s, WINDOW_S)


def exhausted_in_s(upstream: UpstreamBucket, unsettled: float, spending: float, now: float) -> float | None:
    """Seconds until the provider has nothing left, when we spend `spending` a second and others go on; None: its level is not falling.

    `unsettled` is what is under way and not counted yet.
    """
    falling = spending + upstream.outside(now) - upstream.rate
    return max(0.0, (upstream.level(now) - unsettled) / falling) if falling > 0 else None
