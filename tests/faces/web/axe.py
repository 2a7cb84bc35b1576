"""axe-core, where `make clients` could fetch it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nightcrew/clients"
AXE = Path(os.environ.get("NIGHTCREW_CLIENTS") or CACHE) / "axe/node_modules/axe-core/axe.min.js"
NEEDS_AXE = pytest.mark.skipif(not AXE.exists(), reason="axe-core is not installed: make clients")


def serious(page: Any) -> list[str]:
    """What it finds that is serious or worse: the rule, and where."""
    page.evaluate(AXE.read_text(encoding="utf-8"))
    found = page.evaluate("axe.run(document, { resultTypes: ['violations'] })")["violations"]
    bad = [one for one in found if one["impact"] in ("serious", "critical")]
    return [f"{one['id']}: {node['target']} {node['failureSummary']}" for one in bad for node in one["nodes"]]
