"""The gate of agents that answer by a JSON schema."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from supervisor.features.map.worker.check import ASKED, faults

SCHEMA = {"type": "integer"}


@pytest.mark.parametrize(
    ("names", "text", "wrong"),
    [
        (["a"], "3", []),
        (["a"], '"x"', ["'x' is not of type 'integer'"]),
        (["a", "b"], '{"a": 1, "b": "x"}', ["b: 'x' is not of type 'integer'"]),
        (["a"], None, ["there is no answer in OUT/answer.json"]),
        (["a"], "I wrote 3", ["the answer in OUT/answer.json: it is not JSON: Expecting value: line 1 column 1 (char 0)"]),
        (["a"], "9" * (2**20 + 1), ["the answer in OUT/answer.json is larger than 1048576 bytes"]),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, names: list[str], text: str | None, wrong: list[str]) -> None:
    if text is not None:
        (tmp_path / "answer.json").write_text(text)
    found = faults({"NIGHTCREW_OUT": str(tmp_path), ASKED: json.dumps({"schema": SCHEMA, "items": names})})
    assert [line.replace(str(tmp_path), "OUT") for line in found] == wrong


@pytest.mark.parametrize("module", ["supervisor.features.map.worker.check", "agents.mapper.check"])
def test_as_a_program(tmp_path: Path, module: str) -> None:
    """Tasks that were queued before the check moved name its old module."""
    (tmp_path / "answer.json").mkdir()
    env = {"NIGHTCREW_OUT": str(tmp_path), ASKED: json.dumps({"schema": SCHEMA, "items": ["a"]})}
    done = subprocess.run([sys.executable, "-m", module], env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, f"the answer in {tmp_path}/answer.json cannot be read: Is a directory\n")
