"""What a policy is built from: real paths, and directories that nobody else may write."""

from __future__ import annotations

import os
from pathlib import Path

from supervisor.core.sandbox import Tier
from supervisor.host.sandbox import places
from tests.host.sandbox.kit import House


def test_what_is_made_for_a_branch_is_closed_to_others_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        places.prepare_branch(str(tmp_path), "nightcrew/run/task/work")
    finally:
        os.umask(before)
    modes = {path.stat().st_mode & 0o022 for path in tmp_path.rglob("*")}
    assert modes == {0}
    assert len(list(tmp_path.rglob("*.lock"))) == 2


def test_a_home_with_links_is_bound_where_it_really_lies(crew: House) -> None:
    real = crew.root / "dotfiles" / "codex"
    real.mkdir(parents=True)
    (crew.user / ".codex").symlink_to(real)
    (crew.user / ".aider.conf.yml").touch()
    policy = crew.policy(Tier.FILES)
    assert str(real.resolve()) in policy.writable
    assert str((crew.user / ".aider.conf.yml").resolve()) in policy.readable


def test_sockets_of_the_host_are_found(crew: House) -> None:
    assert str((crew.elsewhere / "s").resolve()) in crew.policy(Tier.FILES).masked
