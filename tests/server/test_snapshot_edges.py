"""What came of reading the code of snapshots with hostile eyes: each was a defect once."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from supervisor.host.paths import FAR, SET_UP
from tests.gateway.kit import upstream
from tests.server.snapshot_kit import SETUP, commit, create, place, rows, run, states, unmounted, with_dependencies
from tests.support import House, git, mounted_below, wait_until
from worktrees import templates
from worktrees.git import Git
from worktrees.private_repository import beside
from worktrees.repository import discover

ORDINARY = pytest.mark.skipif(os.geteuid() == 0, reason="root has overlays that everybody sees")


@pytest.fixture
def house(house: House) -> House:
    with_dependencies(house)
    house.start_daemon()
    return house


def test_the_commit_that_it_was_made_at_may_be_gone(house: House) -> None:
    create(house)
    (house.repo / "README").write_text("amended\n")
    git(house.repo, "commit", "-q", "-a", "--amend", "-m", "amended")
    git(house.repo, "reflog", "expire", "--expire=now", "--all")
    git(house.repo, "gc", "-q", "--prune=now")
    assert run(house, "cat README .venv/module; git status --porcelain") == "amended\ndependency\n"


def test_on_a_commit_that_does_not_ignore_them_dependencies_are_no_work(house: House) -> None:
    git(house.repo, "rm", "-q", ".gitignore")
    git(house.repo, "commit", "-q", "-m", "without")
    old = git(house.repo, "rev-parse", "HEAD")
    commit(house, ".gitignore", ".venv/\n")
    create(house)
    run(house, "test -f .venv/module", "--base", old)
    assert (house.task("agent").result or {})["commits"] == 0


def test_what_keeps_it_from_beginning_fails_it_and_is_not_for_ever(house: House) -> None:
    project = discover(Git(house.home.root / "git"), house.repo).project
    where = house.home.root / "projects" / project / "snapshots"
    where.parent.mkdir(parents=True)
    where.write_text("in the way")
    assert house.run("snapshot", "create", "deps", "--setup", SETUP).returncode != 0
    assert states(house) == ["failed"]
    where.unlink()
    house.ok("snapshot", "create", "deps", "--setup", SETUP)


def test_temporary_files_of_set_up_go_with_it(house: House) -> None:
    house.ok("snapshot", "create", "deps", "--setup", f"{SETUP} && echo x > $TMPDIR/cache && test ${{#TMPDIR}} -le 40")
    assert sorted(path.name for path in place(house, rows(house)[0]).iterdir()) == ["files", "index", "template.json"]
    assert house.run("snapshot", "create", "fails", "--setup", "echo x > $TMPDIR/cache && false").returncode != 0
    assert list(FAR.glob(f"{house.home.short_tmp_prefix(SET_UP)}*")) == []


def test_the_state_directory_may_be_a_link(tmp_path: Path, repo: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    house = with_dependencies(House(tmp_path / "link", repo))
    try:
        house.start_daemon()
        house.ok("snapshot", "create", "deps", "--setup", "mkdir -p .venv && pwd > .venv/where")
        here, there = run(house, "pwd; cat .venv/where").split()
        assert here == there
    finally:
        house.reap()
        for mount in mounted_below(tmp_path / "real"):
            subprocess.run(["umount", "-l", mount], check=False)


def test_who_is_refused_has_lost_nothing(house: House) -> None:
    create(house)
    stranger = house.home.worktrees / "x" / "y.1"
    with templates.leased(templates.read(place(house, rows(house)[0])), stranger):
        beside(stranger).mkdir(parents=True)
    refused = house.run("snapshot", "rm", "deps")
    assert refused.returncode == 6 and "kept: it" in refused.stderr
    assert states(house) == ["ready"]


def test_a_copied_file_that_changed_is_copied_again(house: House) -> None:
    commit(house, "nightcrew.toml", '[snapshot.deps]\ncopy = [".env.local"]\n')
    for text in ("old\n", "new\n"):
        (house.repo / ".env.local").write_text(text)
        assert run(house, "cat .env.local", name=text.strip()) == text
    assert states(house) == ["ready", "stale"] and rows(house)[1].reason == ".env.local changed"


def test_set_up_gets_no_key_that_the_gateway_holds(house: House, tmp_path: Path) -> None:
    house.ok("down")
    house.config.write_text(
        'sandbox = 0\npass_env = ["ANTHROPIC_API_KEY"]\n[limits]\ndisk_free_min = 0\n' + upstream(house.home, "http://127.0.0.1:9")
    )
    house.start_daemon()
    house.ok("snapshot", "create", "deps", "--setup", f"mkdir .venv; env > {tmp_path}/env", env={"ANTHROPIC_API_KEY": "canary"})
    assert "PATH=" in (tmp_path / "env").read_text() and "canary" not in (tmp_path / "env").read_text()


def test_the_cores_of_a_snapshot_are_those_of_its_tasks(house: House) -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one core is all there is")
    (house.repo / "tell.py").write_text("import os\nprint(len(os.sched_getaffinity(0)))\n")
    commit(house, "nightcrew.toml", '[snapshot.deps]\nkind = "memory"\npreload = ["colorsys"]\ncores = 1\n')
    house.ok("snapshot", "create", "deps")
    house.ok("add", "-f", "--id", "agent", "--snapshot", "deps", "--", sys.executable, "tell.py")
    assert house.ok("logs", "agent") == "1\n"


def test_a_worktree_of_which_somebody_removed_everything_holds_it_no_longer(house: House) -> None:
    create(house)
    run(house, "true")
    where = Path(house.task("agent").worktree or "")
    unmounted(house)
    for left in (where, beside(where)):
        shutil.rmtree(left, ignore_errors=True)
    house.ok("clean", "--yes")
    assert str(where) not in git(house.repo, "worktree", "list", "--porcelain")
    house.ok("snapshot", "rm", "deps")


@ORDINARY
def test_what_one_snapshot_needs_decides_nothing_for_another(house: House) -> None:
    house.config.write_text("[limits]\ndisk_free_min = 0\n")
    for name in ("deps", "other"):
        create(house, name)
    house.ok("fork", "deps", "--", "true")  # without a sandbox it is linked, so `deps` is write-protected
    house.wait_final()
    house.ok("down")
    house.start_daemon()
    for name in ("deps", "other"):
        house.ok("add", "-f", "--id", f"on-{name}", "--snapshot", name, "true")
    if house.task("on-other").tier == 0:
        pytest.skip("no sandbox works here")
    assert (house.task("on-deps").backend, house.task("on-other").backend) != ("overlay-userns", "plain")
    assert house.task("on-other").backend in ("overlay-userns", "reflink")


@ORDINARY
def test_files_that_only_a_sandbox_can_show_are_not_started_in_without_one(house: House) -> None:
    house.ok("down")
    house.config.write_text("[limits]\ndisk_free_min = 0\n")
    house.start_daemon()
    create(house)
    house.ok("down")
    dying = house.start_daemon(die_at="launch.noted")
    house.run("add", "--id", "agent", "--snapshot", "deps", "ls; echo work > work")
    dying.wait(60)
    house.config.write_text("sandbox = 0\n[limits]\ndisk_free_min = 0\n")
    house.start_daemon()
    wait_until(lambda: house.task("agent").final, "it to end")
    assert "README" in house.ok("logs", "agent") and (house.task("agent").result or {})["diff"]["files"] == 1
