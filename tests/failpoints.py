"""Find every name of a `failpoint(...)` in the product: the places at which a test can kill a process of ours."""

from __future__ import annotations

import re
from pathlib import Path

_ROOT = Path(__file__).parents[1]
_CALL = re.compile(r'\bfailpoint\("([a-z.-]+)"\)')
_SOURCES = [file for room in ("agents", "memory", "supervisor", "worktrees") for file in sorted((_ROOT / room).rglob("*.py"))]
FAILPOINTS = tuple(dict.fromkeys(name for file in _SOURCES for name in _CALL.findall(file.read_text())))
"""By the file in which they are."""
