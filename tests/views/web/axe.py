"""axe-core, where `make clients` could fetch it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nightcrew/clients"
AXE = Path(os.environ.get("NIGHTCREW_CLIENTS") or CACHE) / "axe/node_modules/axe-core/axe.min.js"
NEEDS_AXE = pytest.mark.skipif(not AXE.exists(), reason="axe-core is not installed: make clients")


def serious(page: Any, *, colours: bool = False) -> list[str]:
    """What it finds that is serious or worse: the rule, and where. `colours`: only by the rules about them."""
    page.evaluate(AXE.read_text(encoding="utf-8"))
    rules = {"runOnly": ["color-contrast", "link-in-text-block"]} if colours else {}
    found = page.evaluate("options => axe.run(document, options)", {"resultTypes": ["violations"], **rules})["violations"]
    bad = [one for one in found if one["impact"] in ("serious", "critical")]
    return [f"{one['id']}: {node['target']} {node['failureSummary']}" for one in bad for node in one["nodes"]]
