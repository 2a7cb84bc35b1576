"""An agent that was killed: who looks at what drives it must see that."""

from __future__ import annotations

import os
import signal
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


def test_what_the_agent_leaves_behind_with_its_output_open_does_not_hold_its_end_back(tmp_path: Path) -> None:
    (tmp_path / "prompt").write_text("x")
    said, left = '{"type":"result","subtype":"success"}', "sleep 600 & echo $! > left"
    words = ["-m", "agents.turns", "claude", "--prompt-file", str(tmp_path / "prompt"), "--", "/bin/sh", "-c", f"{left}; echo '{said}'"]
    quiet = subprocess.DEVNULL
    with (tmp_path / "said").open("wb") as out:
        driver = subprocess.Popen([sys.executable, "-I", *words], cwd=tmp_path, stdin=quiet, stdout=out, stderr=quiet)
    try:
        assert driver.wait(60) == 0
        assert (tmp_path / "said").read_text() == f"{said}\n"
    finally:
        driver.kill()
        driver.wait()
        os.kill(int((tmp_path / "left").read_text()), signal.SIGKILL)
