"""Snapshots through a real supervisor: made, cut off in the middle, damaged, replaced, taken away."""

from __future__ import annotations

import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from supervisor.host import processes
from tests.server.snapshot_kit import (
    SETUP,
    SHOW,
    assert_nothing_left,
    commit,
    create,
    files_of_snapshots,
    rows,
    run,
    states,
    with_dependencies,
)
from tests.support import House, git, wait_until


@pytest.fixture
def house(house: House) -> House:
    return with_dependencies(house)


# Made -----------------------------------------------------------------------------------------------------------------------------


def test_a_task_starts_with_what_set_up_made(house: House) -> None:
    house.start_daemon()
    made = create(house)
    assert run(house, SHOW) == "dependency\n", "the file is there, and git sees nothing new"
    row = rows(house)[0]
    assert (row.id, row.state, row.uses) == (f"{row.project}/{made}", "ready", 1)
    assert row.setup_s > 0 and row.freeze_s > 0 and row.disk > 0
    assert git(house.repo, "worktree", "list", "--porcelain").count("worktree ") == 2, "the person's and the task's, none of the template"
    assert create(house) == made and [(row.state, row.epoch) for row in rows(house)] == [("ready", 1)], "made again of the same"
    commit(house, "later", "of a later commit\n")
    assert run(house, f"cat later; {SHOW}", name="later") == "of a later commit\ndependency\n"
    assert states(house) == ["ready"], "not made again for that"
    assert "the base commit is" in house.ok("snapshot", "show", "deps")


CANNOT: list[tuple[tuple[str, ...], str]] = [
    (("--setup", "echo broken pipe dreams; exit 7"), "set-up failed echo broken pipe dreams; exit 7: exit 7: broken pipe dreams"),
    (("--setup", SETUP, "--verify", "test -f .venv/nothing"), "a check failed test -f .venv/nothing: exit 1"),
    (("--setup", SETUP, "--setup", "kill -9 $$"), "set-up failed kill -9 $$: killed by signal 9"),
    (("--setup", "echo new > new-file"), "set-up left new files that git does not ignore new-file"),
    (("--setup", "git -c user.name=a -c user.email=a@b commit -q --allow-empty -m x"), "set-up made a commit"),
    (("--setup", SETUP, "--copy", "uv.lock"), "a file to copy must be ignored by git uv.lock"),
    (("--kind", "memory", "--preload", "no_such_module_here"), "no_such_module_here"),
]


def test_what_cannot_be_made_leaves_nothing_and_says_why(house: House) -> None:
    house.start_daemon()
    for words, why in CANNOT:
        done = house.run("snapshot", "create", "deps", *words)
        assert done.returncode != 0 and done.stdout == "", words
        last = done.stderr.splitlines()[-1]
        assert last.startswith("nightcrew: no snapshot was made deps: ") and why in last, words
        assert set(states(house)) == {"failed"} and why in rows(house)[0].reason, words
        assert_nothing_left(house)
    create(house)
    house.ok("snapshot", "prune", "--yes")
    assert states(house) == ["ready"]
    assert len(list(house.home.root.glob("projects/*/snapshots/*.log"))) == 1, "the logs of the failed ones went with them"


def test_what_set_up_left_running_is_ended_before_anything_is_frozen(house: House, tmp_path: Path) -> None:
    house.start_daemon()
    began = f"while [ ! -s {tmp_path}/pid ]; do sleep 0.02; done"
    house.ok("snapshot", "create", "deps", "--setup", f"{SETUP}; (setsid sh -c 'echo $$ > {tmp_path}/pid; sleep 600') & {began}")
    assert processes.identity(int((tmp_path / "pid").read_text())) is None


def test_two_at_once_are_one_build_and_both_get_it(house: House, tmp_path: Path) -> None:
    house.start_daemon()
    counted = f"echo x >> {tmp_path}/builds; while [ $(wc -l < {tmp_path}/asked) -lt 2 ]; do sleep 0.05; done; {SETUP}"
    (tmp_path / "asked").touch()
    with ThreadPoolExecutor(2) as people:
        asking = [people.submit(house.run, "snapshot", "create", "deps", "--setup", counted) for _ in range(2)]
        wait_until(lambda: states(house) == ["building"], "the build to begin")
        (tmp_path / "asked").write_text("x\nx\n")
        first, second = (one.result() for one in asking)
    assert (first.returncode, second.returncode) == (0, 0) and first.stdout == second.stdout != ""
    assert (tmp_path / "builds").read_text() == "x\n"


SLOW = """
import pathlib, time
from supervisor.snapshots.service import SnapshotDesk
real, build, room = SnapshotDesk._delete, SnapshotDesk._build, pathlib.Path({room!r})
def say(word):
    with (room / "said").open("a") as said:
        said.write(word)
def delete(*args):
    (room / "deleting").touch()
    while not (room / "go").exists():
        time.sleep(0.02)
    real(*args)
    say("deleted ")
SnapshotDesk._delete, SnapshotDesk._build = delete, lambda *args: (say("built "), build(*args))[1]
"""


def test_one_that_is_made_again_while_it_is_removed_keeps_its_files(house: House, tmp_path: Path) -> None:
    house.start_daemon(first=SLOW.format(room=str(tmp_path)))
    create(house)
    with ThreadPoolExecutor(2) as people:
        removed = people.submit(house.ok, "snapshot", "rm", "deps")
        wait_until((tmp_path / "deleting").exists, "its files to be removed")
        made = people.submit(create, house)
        wait_until(lambda: states(house) in (["building"], ["ready"]), "the next build")
        (tmp_path / "go").touch()
        removed.result()
        made.result()
    assert (tmp_path / "said").read_text() == "built deleted built "
    assert run(house, SHOW) == "dependency\n"


def test_two_names_are_made_side_by_side(house: House) -> None:
    house.start_daemon()
    with ThreadPoolExecutor(2) as crowd:
        list(crowd.map(lambda number: create(house, f"deps{number}"), range(2)))
    assert [row.state for row in rows(house)] == ["ready"] * 2


# Cut off --------------------------------------------------------------------------------------------------------------------------


@pytest.mark.in_turns
@pytest.mark.parametrize("label", ["snapshot.committed", "snapshot.prepared", "snapshot.frozen"])
def test_a_supervisor_killed_while_it_makes_one(house: House, label: str) -> None:
    daemon = house.start_daemon(die_at=label)
    done = house.run("snapshot", "create", "deps", "--setup", SETUP)
    assert daemon.wait(60) == -signal.SIGKILL
    assert done.returncode == 5, done.stderr
    house.start_daemon()
    assert states(house) == ["failed"] and rows(house)[0].reason == "the supervisor ended while it was built"
    assert "snapshot deps was not finished: the supervisor ended while it was built" in house.daemon_output()
    assert_nothing_left(house)
    create(house)
    assert run(house, SHOW) == "dependency\n"


def test_what_a_killed_supervisors_set_up_left_running_is_ended_by_the_next(house: House, tmp_path: Path) -> None:
    daemon = house.start_daemon()
    endless = f"echo $$ > {tmp_path}/pid; while :; do echo x > .venv-$$; sleep 0.02; done"
    said = tmp_path / "said"
    asking = house.begin("snapshot", "create", "deps", "--setup", endless, said=said)
    wait_until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().strip(), "set-up to begin")
    daemon.kill()
    daemon.wait()
    assert asking.wait(30) == 5 and "the supervisor went away while it made deps; kept: nothing of it" in said.read_text()
    house.start_daemon()
    assert processes.identity(int((tmp_path / "pid").read_text())) is None
    assert_nothing_left(house)


def test_a_supervisor_that_leaves_ends_the_build_and_says_so(house: House, tmp_path: Path) -> None:
    daemon = house.start_daemon()
    file = tmp_path / "said"
    asking = house.begin("snapshot", "create", "deps", "--setup", f"touch {tmp_path}/begun; sleep 600", said=file)
    wait_until((tmp_path / "begun").exists, "set-up to begin")
    daemon.terminate()
    assert daemon.wait(30) == 0
    assert asking.wait(30) != 0
    said = file.read_text()
    assert "the supervisor left while it was made" in said or "the supervisor went away while it made deps" in said
    assert states(house) == ["failed"], "its own last words, not the next one's"
    assert_nothing_left(house)


def test_ctrl_c_leaves_it_being_made(house: House, tmp_path: Path) -> None:
    house.start_daemon()
    said = tmp_path / "said"
    words = ["snapshot", "create", "deps", "--setup", f"while [ ! -e {tmp_path}/go ]; do sleep 0.05; done; {SETUP}"]
    asking = house.begin(*words, said=said)
    wait_until(lambda: states(house) == ["building"], "the build to begin")
    wait_until(lambda: "Ctrl-C leaves it being made" in said.read_text(), "it to say so")
    asking.send_signal(signal.SIGINT)
    assert asking.wait(30) == 130
    assert states(house) == ["building"]
    (tmp_path / "go").touch()
    wait_until(lambda: states(house) == ["ready"], "it to be made all the same")


def test_a_supervisor_killed_while_it_removes_one(house: House) -> None:
    house.start_daemon().kill()
    wait_until(lambda: not house.ready(), "it to be dead")
    daemon = house.start_daemon(die_at="snapshot.removed")
    create(house)
    house.run("snapshot", "rm", "deps")
    assert daemon.wait(30) == -signal.SIGKILL
    assert states(house) == [] and files_of_snapshots(house)
    house.start_daemon()
    assert_nothing_left(house)
    assert list(house.home.root.glob("projects/*/snapshots/*")) == [], "its log too"
    create(house)
    assert run(house, SHOW) == "dependency\n"


# Stale ----------------------------------------------------------------------------------------------------------------------------


def test_a_changed_lock_file_makes_it_again_and_taken_back_it_is_ready_again(house: House) -> None:
    house.start_daemon()
    (house.repo / "nightcrew.toml").write_text('[snapshot.deps]\nsetup = ["mkdir -p .venv && cp uv.lock .venv/module"]\n')
    commit(house, "nightcrew.toml", (house.repo / "nightcrew.toml").read_text())
    house.ok("snapshot", "create", "deps")
    assert run(house, SHOW, name="first") == "version 1\n"
    assert run(house, SHOW, name="second") == "version 1\n" and states(house) == ["ready"]
    commit(house, "uv.lock", "version 2\n")
    house.ok("snapshot", "create", "deps")
    assert run(house, SHOW, name="third") == "version 2\n"
    assert states(house) == ["ready", "stale"] and "uv.lock changed" in rows(house)[1].reason
    git(house.repo, "reset", "-q", "--hard", "HEAD~1")
    assert run(house, SHOW, name="fourth") == "version 1\n"
    assert states(house) == ["stale", "ready"], "the older one again, which was not made a second time"
    assert [row.epoch for row in rows(house)] == [1, 1]


def test_changed_commands_make_it_again(house: House) -> None:
    house.start_daemon()
    settings = house.repo / "nightcrew.toml"
    commit(house, "nightcrew.toml", '[snapshot.deps]\nsetup = ["mkdir -p .venv && echo one > .venv/module"]\n')
    house.ok("snapshot", "create", "deps")
    assert run(house, SHOW, name="first") == "one\n"
    settings.write_text(settings.read_text().replace("one", "two"))
    house.ok("snapshot", "create", "deps")
    assert run(house, "cat .venv/module", name="second") == "two\n"
    assert states(house) == ["ready", "stale"] and rows(house)[1].reason == "its set-up commands changed"


def test_what_cannot_be_made_hands_nothing_over(house: House) -> None:
    """The person agreed to it when it failed the first time, so it is tried again without a question."""
    house.start_daemon()
    commit(house, "nightcrew.toml", '[snapshot.deps]\nsetup = ["exit 3"]\n')
    house.run("snapshot", "create", "deps")
    done = house.run("add", "--snapshot", "deps", "true")
    assert done.returncode != 0 and "no snapshot was made deps: set-up failed exit 3: exit 3" in done.stderr
    assert house.tasks() == []
