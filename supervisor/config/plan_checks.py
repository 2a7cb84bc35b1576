"""What must hold between the tasks of a plan; errors name the file's line."""

from __future__ import annotations

import graphlib
from collections.abc import Collection, Sequence
from pathlib import Path

from supervisor.config.locate import line_of
from supervisor.core.errors import ConfigError
from supervisor.core.names import nearest
from supervisor.core.spec import TaskSpec


def known_snapshots(tasks: Sequence[TaskSpec], tables: Sequence[int], snapshots: Collection[str], text: str, path: Path) -> None:
    """Raises ConfigError for a snapshot that is none of `snapshots`. `tables`: the number of each task's table."""
    for index, task in zip(tables, tasks, strict=True):
        if task.snapshot and task.snapshot not in snapshots:
            known = nearest(task.snapshot, snapshots) if snapshots else "there is none; describe it as [snapshot.NAME] in nightcrew.toml"
            on = f"{path}:{line_of(text, ['tasks', index, 'snapshot'])} tasks.snapshot"
            raise ConfigError("bad value", on=on, why=f"{task.snapshot!r} is not a snapshot; {known}")


def no_cycle(tasks: Sequence[TaskSpec], tables: Sequence[int], text: str, path: Path) -> None:
    """Raises ConfigError when tasks wait for each other. `tables`: the number of each task's table."""
    try:
        graphlib.TopologicalSorter({task.name: task.after for task in tasks}).prepare()
    except graphlib.CycleError as error:
        ring = [str(name) for name in reversed(error.args[1])]
        index = next(number for number, task in zip(tables, tasks, strict=True) if task.name == ring[0])
        on = f"{path}:{line_of(text, ['tasks', index, 'after'])} tasks.after"
        shown = ring if len(ring) <= 12 else [*ring[:10], f"({len(ring) - 11} more)", ring[-1]]
        raise ConfigError("bad value", on=on, why=f"the tasks wait for each other: {' -> '.join(shown)}") from None
