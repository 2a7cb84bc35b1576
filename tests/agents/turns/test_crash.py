"""An agent that was killed: who looks at what drives it must see that."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize(("ends", "code"), [("kill -KILL $$", -9), ("kill -SEGV $$", -11), ("kill -TERM $$", 143), ("exit 3", 3)])
def test_it_ends_as_the_agent_ended(tmp_path: Path, ends: str, code: int) -> None:
    (tmp_path / "prompt").write_text("x")
    words = ["-m", "agents.turns", "claude", "--prompt-file", str(tmp_path / "prompt"), "--", "/bin/sh", "-c", ends]
    done = subprocess.run([sys.executable, "-I", *words], stdin=subprocess.DEVNULL, check=False, capture_output=True, timeout=60)
    assert done.returncode == code
