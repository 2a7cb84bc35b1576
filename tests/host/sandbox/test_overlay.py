"""Files that only the agent's own namespace shows: an overlay mounted there."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from supervisor.kernel.errors import Refused
from supervisor.sandbox import executors
from supervisor.sandbox.executors import Executor
from supervisor.sandbox.policy import Policy, Tier
from tests.host.sandbox.kit import need


@pytest.fixture
def policy(tmp_path: Path) -> Policy:
    for name in ("lower", "upper", "work", "tree", "tmp"):
        (tmp_path / name).mkdir()
    (tmp_path / "lower" / "below").write_text("below\n")
    layers = f"lowerdir={tmp_path / 'lower'},upperdir={tmp_path / 'upper'},workdir={tmp_path / 'work'},index=off,userxattr"
    return Policy(
        writable=(str(tmp_path / "tree"),),
        readable=executors.program(),
        hidden=(str(tmp_path / "lower"), str(tmp_path / "upper")),
        tmp=str(tmp_path / "tmp"),
        overlay=(str(tmp_path / "tree"), layers),
    )


def test_the_agent_works_on_an_overlay_that_nobody_else_sees(policy: Policy, tmp_path: Path) -> None:
    need(Executor.NAMESPACES, Tier.FILES)
    script = "cat below; echo changed > below; echo new > new; ls -A ../lower ../upper"
    done = subprocess.run(
        [*executors.argv(policy, Executor.NAMESPACES), "/bin/sh", "-ec", script],
        cwd=tmp_path / "tree", capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["below", "../lower:", "", "../upper:"], "and it cannot go past it"
    assert list((tmp_path / "tree").iterdir()) == []
    assert (tmp_path / "lower" / "below").read_text() == "below\n"
    assert {path.name: path.read_text() for path in (tmp_path / "upper").iterdir()} == {"below": "changed\n", "new": "new\n"}


def test_who_cannot_do_it_says_so(policy: Policy) -> None:
    with pytest.raises(Refused, match="bubblewrap cannot mount"):
        executors.argv(policy, Executor.BUBBLEWRAP)
    executors.argv(replace(policy, overlay=None), Executor.BUBBLEWRAP)


def test_without_the_layers_nothing_runs(policy: Policy, tmp_path: Path) -> None:
    need(Executor.NAMESPACES, Tier.FILES)
    (tmp_path / "upper").rename(tmp_path / "gone")
    command = [*executors.argv(policy, Executor.NAMESPACES), "/bin/sh", "-c", "echo ran"]
    done = subprocess.run(command, cwd=tmp_path / "tree", capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (126, "")
    assert f"{tmp_path / 'tree'}: No such file or directory" in done.stderr
