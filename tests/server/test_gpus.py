"""Which graphics processors an agent sees. No machine of ours has one: what stands for one here is some other device that is there."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from supervisor.host import files
from supervisor.host.paths import Home
from supervisor.host.usage import Found, GpusGpu
from supervisor.kernel.spec import TaskSpec
from supervisor.sandbox.policy import Tier
from supervisor.server.attempts.isolation import Attempt, Confined, Isolation
from tests.support import House, make_repository, shell_task
from worktrees import environments
from worktrees.git import Git
from worktrees.repository import discover

USUAL = {"null", "zero", "full", "random", "urandom", "tty", "console", "ptmx"}


@pytest.fixture(scope="module")
def devices() -> tuple[str, ...]:
    """Two character devices that no sandbox shows by itself."""
    found = sorted(str(path) for path in Path("/dev").iterdir() if path.is_char_device() and path.name not in USUAL)
    if len(found) < 2:
        pytest.skip("this /dev has the usual devices only")
    return found[0], found[1]


@pytest.fixture
def isolation(tmp_path: Path, devices: tuple[str, ...]) -> Isolation:
    made = Isolation(Home(files.private_dir(tmp_path / "home")), None)
    made.gpus = Found(tuple(GpusGpu("nvidia", index, "x", (device,)) for index, device in enumerate(devices)), "")
    return made


def confined(isolation: Isolation, tmp_path: Path, **keys: object) -> tuple[Confined, Path]:
    home = Home(tmp_path / "home")
    repo = discover(Git(home.root / "git"), make_repository(tmp_path / "repo", {"file": "text"}))
    root, confined = files.private_dir(home.worktrees / "p"), environments.Confined()
    made = environments.create(repo, "1121-aaaa/task", 1, repo.head, root, confined=confined)
    directory = home.attempt("1121-aaaa/task", 1)
    for folder in ("out", "tmp"):
        files.private_dir(directory / folder)
    spec = TaskSpec("task", "task", "shell", ("true",), **keys)  # type: ignore[arg-type]
    return isolation.confine(Attempt(spec, directory, made, tmp_path, attended=False), 0, warm=False), made.path


@pytest.mark.parametrize(
    ("gpus", "seen", "variable"), [(True, (0, 1), None), (False, (), "-1"), ((1,), (1,), "1")], ids=["all", "none", "one"]
)
@pytest.mark.parametrize("tier", [Tier.FILES, Tier.OFFLINE])
def test_in_a_sandbox_the_files_of_the_others_are_not_there(
    isolation: Isolation, tmp_path: Path, devices: tuple[str, ...], tier: Tier, gpus: object, seen: tuple[int, ...], variable: str | None
) -> None:
    if tier not in isolation.support.tiers:
        pytest.skip("this host cannot")
    how, cwd = confined(isolation, tmp_path, sandbox=int(tier), gpus=gpus)
    looks = 'for device in "$@"; do test -c "$device" && echo "$device"; done; true'
    done = subprocess.run([*how.wrap, "/bin/sh", "-c", looks, "sh", *devices], cwd=cwd, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [devices[index] for index in seen]
    assert dict(how.variables).get("CUDA_VISIBLE_DEVICES") == variable


def test_without_a_sandbox_variables_say_so(isolation: Isolation, tmp_path: Path) -> None:
    how, _ = confined(isolation, tmp_path, sandbox=0, gpus=(0,))
    assert dict(how.variables)["CUDA_VISIBLE_DEVICES"] == "0" and dict(how.variables)["HIP_VISIBLE_DEVICES"] == "-1"


@pytest.mark.skipif(bool(list(Path("/dev").glob("nvidia[0-9]*"))) or os.path.exists("/dev/kfd"), reason="there is a GPU here")
def test_a_task_that_asks_for_one_that_is_not_there_is_told(house: House) -> None:
    house.start_daemon()
    house.run("run", house.plan(shell_task("train", "true", gpus=[0])))
    assert house.state("train") == "failed"
    assert "no such GPU gpus = [0]: unavailable: no NVIDIA or AMD device here" in house.ok("status", "train")
    house.ok("run", house.plan(shell_task("plain", 'test -z "$CUDA_VISIBLE_DEVICES"', gpus=False)))
