"""When a change of each setting takes effect. `tests/config/test_taking_up.py` demands that every key of the file is classed here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from supervisor.config.user import UserModel

LIVE = frozenset(
    {
        *("pass_env", "agents.kind", "lead.model"),
        *(f"assign.{key}" for key in ("class", "size", "tags", "kind", "model")),
        *(f"size.{key}" for key in ("cores", "memory_max", "model")),
        *(f"night.{key}" for key in ("until", "grace", "cost_max", "parallel", "on_cap")),
        *(f"gateway.{key}" for key in ("hold", "patient_hold", "queue_max", "headroom", "batch_share", "margin")),
        *(f"gateway.{key}" for key in ("cost_per_night", "fallback_at", "record")),
        *(f"upstream.{key}" for key in ("api", "key", "url", "key_file", "key_command", "account", "models", "learn", "burst")),
        *(f"upstream.{key}" for key in ("reserve_max_tokens", "cached_counts")),
        *(f"upstream.{table}{key}" for table in ("", "classes.") for key in ("rpm", "itpm", "otpm", "tpm")),
        *(f"route.{key}" for key in ("model", "upstream", "as", "class", "size", "fallback")),
        *(f"prices.{key}" for key in ("input", "output", "cache_read", "cache_write", "cache_write_1h")),
    }
)
"""Read again by the next verb that needs them, or by the running supervisor and gateway within seconds."""

RESTART = frozenset(
    {
        *("slots", "grace", "nice", "sandbox", "shared_caches", "log_format", "gateway.keep"),
        *(f"limits.{key}" for key in ("log_max", "memory_max", "file_max", "open_files", "memory_warn", "memory_restart", "disk_free_min")),
        *(f"cores.{key}" for key in ("reserve", "lanes", "per_lane")),
        *(f"queue.{key}" for key in ("ageing", "weights", "grow_above", "shrink_below", "preempt_within", "park_after")),
        *(f"queue.{key}" for key in ("load_max", "waiting_max")),
        *(f"batch.{key}" for key in ("window", "when_idle")),
        *(f"night.{key}" for key in ("inhibit_sleep", "ask_max", "quiet_hours")),
        *(f"keep.{table}.{key}" for table in ("results", "logs", "recordings", "history") for key in ("age", "size")),
        *(f"memory.{key}" for key in ("brief", "trust", "approval", "leases", "tools", "meaning", "semantic_max", "episodic", "unread")),
        "memory.tell_conflicts",
        *(f"notify.{key}" for key in ("here", "here_on", "urls", "on", "urgent", "quiet_hours", "text")),
        *(f"telemetry.{key}" for key in ("endpoint", "headers", "content", "sample")),
        *(f"quota.{key}" for key in ("rate", "burst")),
    }
)
"""Held by the supervisor from its start to its end."""

PORT = "gateway.port"
"""Held by the gateway from its start to its end, since agents that live send there."""


def restart_needed(before: UserModel, after: UserModel) -> list[str]:
    """Return the keys of RESTART whose values differ, sorted."""
    return sorted(key for key in RESTART if _value(before, key.split(".")) != _value(after, key.split(".")))


def words(keys: Sequence[str]) -> str:
    """Say that these keys of RESTART changed, and what takes them up."""
    return f"{', '.join(keys)} changed since the supervisor started; to take it up: nightcrew down && nightcrew up -d (agents go on)"


PORT_WORDS = f"{PORT} changed; to take it up, once no agent lives: nightcrew down && nightcrew up -d"


def _value(found: object, path: Sequence[str]) -> object:
    """The value at a dotted key. A dictionary of tables gives a value for each name."""
    if not path or found is None:
        return found
    if isinstance(found, Mapping):
        return {name: _value(table, path) for name, table in found.items()}
    return _value(getattr(found, path[0]), path[1:])
