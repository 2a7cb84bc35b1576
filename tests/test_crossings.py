"""How many modules a request, a prompt and a result pass through. These numbers may only fall."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent / "tools" / "crossings.py"
MOST = {"request": {"request": 15}, "prompt": {"launch": 44, "prompt": 14}, "result": {"take": 32, "result": 9}}


@pytest.mark.parametrize("walk", list(MOST))
def test_no_walk_passes_through_more_modules_than_before(walk: str) -> None:
    done = subprocess.run([sys.executable, SCRIPT, walk, "--json"], check=True, stdout=subprocess.PIPE)
    found = json.loads(done.stdout)
    assert found.keys() == MOST[walk].keys()
    assert {name: modules for name, modules in found.items() if len(modules) > MOST[walk][name]} == {}
