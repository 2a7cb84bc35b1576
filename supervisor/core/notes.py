"""What the settings say of what agents know together and how they keep out of each other's way: `[memory]` of config.toml."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from supervisor.core.note_paths import Kind


class Trust(StrEnum):
    """Whose notes others read at once."""

    AGENTS = "agents"
    """Those of every agent whose task has not failed before."""
    NONE = "none"
    """No agent's: each waits for a person."""


class LeaseRule(StrEnum):
    """What becomes of a change of a file that another agent has a lease on."""

    WARN = "warn"
    STRICT = "strict"
    """It is denied, where the agent's command line asks before it writes."""
    OFF = "off"
    """Nobody is told."""


@dataclass(frozen=True, slots=True)
class MemoryTerms:
    """How a crew uses its memory."""

    brief: int = 8 * 2**10
    """Bytes of what a task is told of the memory when it starts, at most; 0: nothing."""
    trust: Trust = Trust.AGENTS
    approval: frozenset[Kind] = frozenset((Kind.CORE, Kind.PROCEDURAL))
    """Kinds of which an agent's note waits for a person, whoever is trusted."""
    leases: LeaseRule = LeaseRule.WARN
    tools: bool = False
    """Command lines that take tools get those of the memory; each request of theirs then carries the tools' descriptions."""
    meaning: bool = False
    """Notes are also found by what they mean, where the extra for that is installed: see decision 0046."""
    semantic_max: int = 256 * 2**10
    """Bytes that notes of facts may take together; pruning archives those that were read longest ago."""
    episodic_s: float = 30 * 86400.0
    """How long the records of a day stay as they are; then pruning makes a summary of them."""
    unread_s: float = 60 * 86400.0
    """A note that was neither read nor changed for so long is pruned."""
    tell_conflicts: bool = False
    """Agents are told, beside their next prompt or tool, that their work conflicts with another result or with the person's branch."""
