"""How much of the processor an agent gets beside you, by the class of its task. Pure.

Three things hold it, since none works everywhere (measured with 50 busy agents on 2 cores, decision 0030): the policy and niceness of its
processes count beside processes of the same control group or session; the niceness of its session counts where the kernel shares time
between sessions (`sched_autogroup_enabled`), which makes the former mean nothing beside yours; and the weight of a control group of its
class holds in both cases, whatever sessions it starts.
"""

from __future__ import annotations

from dataclasses import dataclass

from supervisor.core.states import TaskClass

FULL = 100
"""The weight of a control group that nobody changed, and of a session."""
_NORMAL, _BATCH = 50, 5
_NICEST = 19


@dataclass(frozen=True, slots=True)
class ProcessorShare:
    """The share of one agent's processes."""

    nice: int = 0
    """Added to the niceness of its processes, and that of its session. Its I/O priority follows: the kernel derives it from niceness and
    policy where nobody sets it."""
    idle: bool = False
    """Its processes give way to every other one at once (SCHED_IDLE)."""
    weight: int = FULL
    """Of all agents of its class together, as `cpu.weight` of a control group counts."""

    def of_one(self, slots: int) -> int:
        """The weight of an agent that has a group of its own, so that `slots` of them weigh what their class does."""
        return max(1, self.weight // max(1, slots))


def of(task_class: TaskClass, nice: int) -> ProcessorShare:
    """The share of a class; `nice` is the settings' for normal tasks. A person waits for interactive ones: those are like your own
    commands. Batch tasks get what is left, and a twentieth of a session's share while nothing is."""
    match task_class:
        case TaskClass.INTERACTIVE:
            return ProcessorShare()
        case TaskClass.NORMAL:
            return ProcessorShare(nice, weight=_NORMAL)
        case TaskClass.BATCH:
            return ProcessorShare(_NICEST, idle=True, weight=_BATCH)
