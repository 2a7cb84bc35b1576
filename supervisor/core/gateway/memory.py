"""What the gateway knows of its limits, carried over a restart."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from supervisor.core.gateway.budget import Budgets
from supervisor.core.gateway.network import Network
from supervisor.core.gateway.types import Api, LaneKey, PoolKey, Usage


def pools(network: Network) -> list[dict[str, Any]]:
    """JSON: each pool's key, margin, and limits with their capacities."""
    return [
        {
            "account": pool.key.account,
            "api": str(pool.key.lane.api),
            "model_class": pool.key.lane.model_class,
            "long_context": pool.key.lane.long_context,
            **pool.learned(),
        }
        for pool in network.pools()
    ]


def recall_pools(network: Network, learned: object, now: float) -> None:
    """Give pools what they knew. Entries that are not understood, and accounts that are gone, are left out."""
    for entry in learned if isinstance(learned, list) else ():
        try:
            lane = LaneKey(Api(entry["api"]), str(entry["model_class"]), bool(entry["long_context"]))
            pool = network.pool(PoolKey(str(entry["account"]), lane), now)
            if pool is not None:
                pool.recall(entry, now)
        except (KeyError, TypeError, ValueError):
            continue


def restore(network: Network, crew: Budgets, charges: Iterable[tuple[PoolKey, float, Usage, str]], now: float) -> None:
    """Charge what was spent before now to pools and agents: (pool, seconds ago, usage, agent; "" for none)."""
    by_pool: defaultdict[PoolKey, list[tuple[float, Usage]]] = defaultdict(list)
    for key, age_s, usage, agent in sorted(charges, key=lambda charge: -charge[1]):
        age_s = max(0.0, age_s)
        by_pool[key].append((age_s, usage))
        if agent and (pool := network.pool(key, now)):
            crew.took(agent, pool.limited_input(usage) + max(0, usage.output), now - age_s)
    for key, spent in by_pool.items():
        if pool := network.pool(key, now):
            pool.restore(spent, now)
