#!/usr/bin/env python3
"""Print a row for each key of a task that the table in docs/plan.md lacks; exit 1 when it lacks one."""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))


def missing(page: str) -> list[str]:
    """The rows that the page lacks, from the schema of a task."""
    from supervisor.kernel import spec
    from supervisor.kernel.spec import TaskSpec

    first = "\n".join(re.findall(r"^\| (.*?) \|", page, re.MULTILINE))
    known = set(re.findall(r"`([a-z_]+)`", first))
    return [
        f"| `{key.name}` | {key.words} | {f'`{key.unset}`' if key.unset else 'none'} | {key.help} |"
        for key in spec.of(TaskSpec).values()
        if key.name not in known
    ]


if __name__ == "__main__":
    found = missing((ROOT / "docs/plan.md").read_text(encoding="utf-8"))
    print("\n".join(found))
    sys.exit(bool(found))
