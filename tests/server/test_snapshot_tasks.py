"""Tasks that start from snapshots: what they find, what keeps the snapshot meanwhile, and what becomes of both without files or mounts."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.server.snapshot_kit import (
    SHOW,
    commit,
    create,
    files_of_snapshots,
    place,
    rows,
    run,
    states,
    unmounted,
    with_dependencies,
)
from tests.support import House, git, mounted_below, plan_of, shell_task, signal_if_there, wait_until


@pytest.fixture
def house(house: House) -> House:
    return with_dependencies(house)


# Lent -----------------------------------------------------------------------------------------------------------------------------


def test_files_that_copy_names_are_there_and_nothing_that_a_link_leads_to(house: House, tmp_path: Path) -> None:
    house.start_daemon()
    (house.repo / ".env.local").write_text("KEY=1\n")
    (house.repo / "secrets").mkdir()
    (house.repo / "secrets" / "own").write_text("own\n")
    (tmp_path / "outside").write_text("outside\n")
    (house.repo / "secrets" / "link").symlink_to(tmp_path / "outside")
    create(house, "deps", "--copy", ".env.local", "--copy", "secrets/*")
    assert run(house, "cat .env.local; ls secrets; git status --porcelain") == "KEY=1\nown\n"


def test_it_stays_while_an_environment_stands_on_it(house: House) -> None:
    house.start_daemon()
    create(house)
    run(house, "cat .venv/module; echo work > file")
    refused = house.run("snapshot", "rm", "deps")
    assert refused.returncode == 6 and "environments that stand on it: 1" in refused.stderr
    assert "nothing to prune" in house.run("snapshot", "prune", "--yes").stderr
    house.ok("take", "agent")
    house.ok("clean", "--yes", "--ignored")
    house.ok("snapshot", "rm", "deps")
    assert rows(house) == [] and files_of_snapshots(house) == [] and mounted_below(house.home.root) == []


def test_it_stays_while_a_task_works_in_it(house: House, tmp_path: Path) -> None:
    house.start_daemon()
    create(house)
    house.ok("add", "--snapshot", "deps", "--id", "agent", f"while [ ! -e {tmp_path}/go ]; do sleep 0.05; done; {SHOW}")
    wait_until(lambda: house.task("agent").attempt_state == "running", "it to run")
    assert house.run("snapshot", "rm", "deps").returncode == 6
    (tmp_path / "go").touch()
    house.wait_final()
    assert house.ok("logs", "agent") == "dependency\n"


def test_a_task_whose_snapshot_was_removed_while_it_waited_says_so(house: House, tmp_path: Path) -> None:
    house.start_daemon()
    create(house)
    first = shell_task("first", f"while [ ! -e {tmp_path}/go ]; do sleep 0.05; done")
    house.ok("run", "-d", house.plan(plan_of([first, shell_task("second", SHOW, snapshot="deps", after=["first"])])))
    wait_until(lambda: house.state("first") == "running", "the first to run")
    house.ok("snapshot", "rm", "deps")
    (tmp_path / "go").touch()
    house.wait_final()
    view = house.task("second")
    assert (view.state, view.epoch) == ("failed", 1)
    assert "could not start: cannot start from the snapshot deps: there is none of this name" in view.reason


@pytest.mark.in_turns
@pytest.mark.parametrize("harm", ["gone", "files", "record", "changed"])
def test_a_task_whose_snapshot_is_damaged_says_so_and_making_it_again_mends_it(house: House, harm: str) -> None:
    daemon = house.start_daemon()
    create(house)
    where = place(house, rows(house)[0])
    match harm:
        case "gone":
            shutil.rmtree(where)
        case "files":
            shutil.rmtree(where / "files")
        case "record":
            (where / "template.json").write_text("{")
        case _:
            (where / "files" / ".venv" / "module").write_text("something else altogether")
    done = house.run("add", "-f", "--snapshot", "deps", "--id", "agent", SHOW)
    assert done.returncode == 1
    view = house.task("agent")
    assert view.state == "failed" and "could not start: cannot start from the snapshot deps: " in view.reason, view.reason
    assert "next: nightcrew snapshot create deps" in view.reason
    assert states(house) == ["failed"] and rows(house)[0].reason
    create(house)
    assert run(house, SHOW, name="again") == "dependency\n"
    assert daemon.poll() is None


def test_a_retry_starts_from_it_anew(house: House) -> None:
    house.start_daemon()
    create(house)
    spoil = "cat .venv/module; rm .venv/module; test $NIGHTCREW_EPOCH = 2"
    house.ok("add", "-f", "--retries", "1", "--snapshot", "deps", "--id", "agent", spoil)
    view = house.task("agent")
    assert (view.state, view.epoch) == ("done", 2) and house.ok("logs", "agent") == "dependency\n"


def test_tasks_behind_and_beside_one_another_start_from_it(house: House) -> None:
    house.start_daemon()
    create(house)
    tasks = [
        shell_task("first", "echo '{\"answer\": 42}'", snapshot="deps"),
        shell_task("second", 'cat .venv/module; grep -o "answer.: 42" "$NIGHTCREW_AFTER"', snapshot="deps", after=["first"]),
        *(shell_task(name, SHOW, snapshot="deps", together="both") for name in ("left", "right")),
    ]
    house.ok("run", house.plan(plan_of(tasks)))
    assert {view.name: view.state for view in house.tasks()} == dict.fromkeys(("first", "second", "left", "right"), "done")
    assert house.ok("logs", "second") == 'dependency\nanswer": 42\n'
    assert house.ok("logs", "left") == house.ok("logs", "right") == "dependency\n"


def test_a_plan_that_names_none_there_is_says_which_line(house: House) -> None:
    house.start_daemon()
    create(house)
    path = house.plan(shell_task("a", "true", snapshot="dpes"))
    done = house.run("run", path)
    assert done.returncode == 3 and f"{path}:4 tasks.snapshot" in done.stderr and "deps" in done.stderr, done.stderr
    assert house.tasks() == []


def test_a_task_cannot_change_what_a_memory_snapshot_was_frozen_with(house: House) -> None:
    house.start_daemon()
    commit(house, "nightcrew.toml", '[snapshot.deps]\nkind = "memory"\npreload = ["json"]\nmemory_max = "1GiB"\n')
    done = house.run("run", house.plan(shell_task("a", "true", snapshot="deps", memory_max="2GiB")))
    assert done.returncode == 6 and "cannot change memory_max of a memory snapshot deps" in done.stderr, done.stderr
    assert states(house) == [] and house.tasks() == [], "nothing was made for it"
    house.ok("snapshot", "create", "deps")
    house.ok("run", house.plan(shell_task("b", "true", snapshot="deps", memory_max="1GiB")))


# Without mounts -------------------------------------------------------------------------------------------------------------------


def test_with_every_mount_gone_work_is_shown_taken_and_cleaned(house: House) -> None:
    """As after a reboot: what `diff`, `take` and `clean` need is mounted again, and goes with the worktree."""
    daemon = house.start_daemon()
    create(house)
    run(house, "echo work > file; rm README; git add -A; git -c user.name=a -c user.email=a@b commit -qm work; echo more > left", name="a")
    run(house, "echo other > other", name="b")
    daemon.terminate()
    daemon.wait()
    unmounted(house)
    house.start_daemon()
    assert "+work" in house.ok("diff", "a") and "+more" in house.ok("diff", "a")
    house.ok("take", "a")
    assert (house.repo / "file").read_text() == "work\n" and not (house.repo / "README").exists()
    house.ok("clean", "--yes", "--discard", "a", "b")
    assert mounted_below(house.home.root) == [] and list(house.home.worktrees.rglob("*.1")) == []
    house.ok("snapshot", "rm", "deps")


def test_an_attempt_that_lost_its_files_while_nobody_watched_keeps_its_work(house: House) -> None:
    """The machine went down in the middle: no runner, no mount; the upper layer has what the agent wrote."""
    daemon = house.start_daemon()
    create(house)
    house.ok(
        "add", "--retries", "1", "--snapshot", "deps", "--id", "agent", "test $NIGHTCREW_EPOCH = 2 || { echo precious > file; sleep 600; }"
    )
    wait_until(lambda: (where := house.task("agent").worktree) and Path(where, "file").exists(), "it to write")
    daemon.kill()
    daemon.wait()
    for pid in house.tagged():
        signal_if_there(pid)  # a client ends with its runner
    wait_until(lambda: not house.tagged(), "all to be dead")
    unmounted(house)
    house.start_daemon()
    house.wait_final()
    assert (house.state("agent"), house.task("agent").epoch) == ("done", 2), house.task("agent").reason
    rescued = git(house.repo, "for-each-ref", "--format=%(refname)", "refs/nightcrew").split()
    assert any("precious" in git(house.repo, "show", f"{ref}:file") for ref in rescued if ref.endswith("/1")), rescued
    house.ok("clean", "--yes", "--discard", "agent")
    assert mounted_below(house.home.root) == []
