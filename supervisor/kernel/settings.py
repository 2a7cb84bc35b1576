"""The settings of a supervisor, and their defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from supervisor.kernel.capacity import Growth
from supervisor.kernel.night import NightDefaults, Window
from supervisor.kernel.path_globs import Kind
from supervisor.kernel.pressure import Limits
from supervisor.kernel.retention import Keep

# Notes
# -----
# What the settings say of what agents know together and how they keep out of each other's way: `[memory]` of config.toml.


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


# Settings
# --------
# What a person's config.toml says of the crew.


@dataclass(frozen=True, slots=True)
class Settings:
    """The user's settings, each with its default. `config.toml` keys have these names."""

    slots: int = 8
    """Attempts alive at once: the most where the user set it, else what the crew begins with."""
    grows: bool = True
    """The user did not set `slots`: there may be more once what agents need is known."""
    growth: Growth = field(default_factory=Growth)
    """When the crew grows and shrinks within what the machine and the limits carry."""
    admission: Limits = field(default_factory=Limits)
    log_format: str = "text"
    """As `core.log_lines.LogFormat`."""
    grace_s: float = 5.0
    """Between TERM and KILL."""
    nice: int = 5
    """Niceness of normal agents; see `processor_share`."""
    log_max: int = 64 * 2**20
    """Bytes kept of each output stream of an attempt."""
    memory_max: int = 0
    """Address space of each process of an agent, bytes; 0 is no limit."""
    file_max: int = 20 * 2**30
    """Largest file an agent may write, bytes; 0 is no limit."""
    open_files: int = 0
    """Open files of each process of an agent; 0 leaves the system's limit."""
    memory_warn: float = 0.8
    """Share of its `memory_max` from which an attempt is named; 0: never."""
    memory_restart: float = 0.95
    """Share from which an agent is stopped and goes on in a new attempt; 0: never."""
    disk_free_min: int = 512 * 2**20
    """Below this much free space under the state directory nothing new starts."""
    ageing_s: float = 3600.0
    """A task that has waited this long for a start gets one of four, whatever its class and priority."""
    weights: Mapping[str, float] = field(default_factory=dict)
    """A submitter's share of the starts of its class, beside the others'; 1 for one that is not listed."""
    preempt_within_s: float = 30.0
    """An agent that makes room for another is paused at the latest after this, with its requests under way."""
    park_after_s: float = 600.0
    """An agent that made room for another and has stood still for so long is ended, and goes on with its conversation later; 0: none."""
    batch_window: Window | None = None
    """When batch tasks start; None: always."""
    batch_when_idle: bool = False
    """Batch tasks start also outside their window, or only, while no other task runs or waits."""
    night: NightDefaults = field(default_factory=NightDefaults)
    """What a night is that does not say it."""
    cores_reserve: int | None = None
    """Cores kept from agents; None means one from 4 cores on and none below."""
    lanes: int = 0
    """Sets into which the agents' cores are cut; 0: as `per_lane` says, else one."""
    per_lane: int = 0
    """Agents that fill a lane; 0: no number does."""
    agent_kind: str = "claude"
    """Kind of agent that `nightcrew start` starts when it is not told which."""
    lead_model: str = ""
    """Model that writes the prose of an analysis; empty: nobody does."""
    sandbox: int | None = None
    """Isolation tier of tasks that ask for none; None: the best that works, and none for those that a person sits at."""
    shared_caches: bool = True
    """Agents in a sandbox share caches with each other, and some with the person. False: each attempt begins with empty ones of its own."""
    keep: Keep = field(default_factory=Keep)
    """What of the past goes, and when."""
    memory: MemoryTerms = field(default_factory=MemoryTerms)
    """How agents use what they know together."""
    pass_env: tuple[str, ...] = ()
    """Names of further variables of the submitting shell that agents may see."""
