"""What only mounted layers have: mounts that outlive their makers, namespaces, owners."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from supervisor.kernel.errors import HostError, Refused
from supervisor.sandbox import exec_step
from tests.worktrees.conftest import World
from tests.worktrees.workshop import Workshop, at_work, make_workshop
from worktrees import collect_work, removal, templates
from worktrees.backends import Backend, best, mounts, named
from worktrees.environments import Environment, Warm, create, open_env, release
from worktrees.locks import MountNamespace, entered
from worktrees.private_repository import beside

Alive = Callable[[Path], Sequence[int]]


def make(world: World, name: str) -> Iterator[Workshop]:
    backend: Backend = named(name)
    reason = backend.probe(world.tmp)
    if reason is not None:
        pytest.skip(f"{name} does not work here: {reason}")
    shop = make_workshop(world, backend)
    yield shop
    shop.unmount_everything()


@pytest.fixture
def rooted(world: World) -> Iterator[Workshop]:
    yield from make(world, "overlay")


@pytest.fixture
def userns(world: World) -> Iterator[Workshop]:
    yield from make(world, "overlay-userns")


# --- mounted for everybody ---------------------------------------------------------------------------------------------


def test_a_directory_of_the_template_can_be_renamed(rooted: Workshop) -> None:
    env = rooted.env()
    (env.path / "src").rename(env.path / "source")
    with at_work(env) as agent:
        agent.git("add", "-A")
        assert agent.git("diff", "--cached", "--name-status", "-M").splitlines() == [
            "R100\tsrc/app.py\tsource/app.py",
            "R100\tsrc/deep/more.py\tsource/deep/more.py",
        ]
    rooted.unmount_everything()
    with open_env(env) as seen:
        assert (seen.path / "source" / "deep" / "more.py").read_text() == "more = 1\n"
    assert (rooted.template.files / "src" / "app.py").exists()


def test_a_mount_whose_maker_was_killed_is_found_and_released(rooted: Workshop) -> None:
    pid = os.fork()
    if pid == 0:
        try:
            rooted.env()
            os.kill(os.getpid(), 9)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -9
    env = rooted.env()
    assert [(mount.path, mount.upper) for mount in mounts(rooted.world.root)] == [(env.path, str(beside(env.path) / "upper"))]
    rooted.backend.close(env)
    assert not mounts(rooted.world.root) and not rooted.backend.is_open(env)
    rooted.backend.close(env)


def test_when_somebody_removed_the_bare_directory_the_work_is_still_kept(rooted: Workshop) -> None:
    env = rooted.env()
    (env.path / "README").write_text("mine\n")
    release(env)
    rooted.unmount_everything()
    (env.path / ".git").unlink()
    env.path.rmdir()
    done = removal.forget(env)
    assert done is not None and done.rescue is not None
    assert rooted.world.sh(rooted.repo.root, "cat-file", "-p", f"{done.rescue}:README") == "mine"
    assert not mounts(rooted.world.root) and not beside(env.path).exists() and not env.admin_dir.exists()


def test_a_tree_is_not_deleted_through_a_mount(rooted: Workshop) -> None:
    env = rooted.env()
    for top in (env.path, env.path.parent):
        with pytest.raises(OSError, match="another file system"):
            templates.remove_trees(top)
    assert (env.path / "README").exists()


def test_what_vanishes_while_a_tree_is_deleted_stops_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "top" / "inner").mkdir(parents=True)
    (tmp_path / "top" / "file").write_text("x")
    listed = os.listdir
    monkeypatch.setattr(os, "listdir", lambda where: ["just gone", *listed(where)])
    templates.remove_trees(tmp_path / "top")
    assert not (tmp_path / "top").exists()


def test_what_was_never_there_need_not_be_deleted(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    templates.remove_trees(tmp_path / "nothing")
    templates.remove_trees(tmp_path / "nowhere" / "nothing")
    templates.remove_trees(tmp_path / "file" / "nothing")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_neither_modes_nor_links_nor_depth_stop_the_deletion(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("x")
    top = tmp_path / "top"
    (top / "closed" / "inner").mkdir(parents=True)
    (top / "link").symlink_to(tmp_path)
    (top / "closed").chmod(0)
    templates.remove_trees(top)
    templates.remove_trees(top)
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    here = os.open(tmp_path, os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("deep", dir_fd=here)
        here, above = os.open("deep", os.O_RDONLY, dir_fd=here), here
        os.close(above)
    os.close(here)
    templates.remove_trees(tmp_path / "deep")
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def test_who_stands_in_the_mount_keeps_it_and_lazy_is_the_last_resort(rooted: Workshop, nobody_alive: Alive) -> None:
    env = rooted.env()
    (env.path / "README").write_text("mine\n")
    release(env)
    with subprocess.Popen(["sleep", "100"], cwd=env.path) as someone:
        try:
            with pytest.raises(Refused, match="not unmounted"):
                rooted.backend.close(env)
            with pytest.raises(Refused, match="not unmounted"):
                removal.remove(env, nobody_alive, discard=True)
            assert (env.path / "README").read_text() == "mine\n"
            assert (env.path / "src" / "app.py").exists()
            rooted.backend.close(env, lazy=True)
            assert not mounts(rooted.world.root)
        finally:
            someone.kill()
    removal.remove(env, nobody_alive, discard=True)
    assert (rooted.template.files / "README").read_text() == "read me\n"


def test_a_foreign_mount_in_the_place_is_refused_and_nothing_is_deleted_through_it(rooted: Workshop, nobody_alive: Alive) -> None:
    env, other = rooted.env(), rooted.env("r1/other")
    release(env)
    rooted.unmount_everything()
    assert other.layers is not None
    exec_step.new_mount("overlay", env.path, other.layers.options(user=False))
    with pytest.raises(Refused, match="something else is mounted"), open_env(env):
        pass
    assert isinstance(removal.inspect(env, nobody_alive), removal.Keep)
    with pytest.raises(Refused):
        removal.remove(env, nobody_alive, discard=True)
    assert (env.path / "README").exists()


def test_below_a_mounted_environment_nothing_is_write_protected_and_a_plain_one_gets_a_copy(rooted: Workshop) -> None:
    rooted.env()
    plain = create(rooted.repo, "r1/plain", 1, rooted.repo.head, rooted.world.root, warm=Warm(rooted.template, named("plain")))
    assert not rooted.template.is_protected
    links = [path for name in rooted.template.extras for path in (plain.path / name).rglob("*") if path.is_symlink()]
    assert not [path for path in links if os.path.realpath(path).startswith(str(rooted.template.files))], "nothing leads into the template"
    copied = [path for name in rooted.template.extras for path in (plain.path / name).rglob("*") if path.is_file()]
    assert copied, "its dependencies are there"
    copied[0].write_text("changed\n")
    assert templates.load(rooted.template.place) == rooted.template


def test_on_a_template_that_others_are_linked_to_no_user_mounts_an_overlay(userns: Workshop) -> None:
    create(userns.repo, "r1/plain", 1, userns.repo.head, userns.world.root, warm=Warm(userns.template, named("plain")))
    assert userns.template.is_protected
    assert "write-protected" in (named("overlay-userns").refuses(userns.template) or "")


# --- mounted in a user namespace ---------------------------------------------------------------------------------------


def test_it_is_mounted_nowhere_but_in_the_namespace_and_looking_leaves_nothing(userns: Workshop) -> None:
    env = userns.env()
    with at_work(env) as agent:
        agent.sh("echo two > README")
        assert not mounts(userns.world.tmp)
        with open_env(env) as seen:  # beside a live agent: the view writes nothing
            assert (seen.place.top / "README").read_text() == "two\n"
            with pytest.raises(OSError, match="Read-only"):
                (seen.place.top / "README").write_text("three\n")
    before = len(os.listdir("/proc/self/fd"))
    assert collect_work.secure(env, "left").files == 1
    assert len(os.listdir("/proc/self/fd")) == before
    assert sorted(path.name for path in env.path.iterdir()) == [".git"]


def test_renaming_a_directory_of_the_template_answers_as_between_file_systems(userns: Workshop) -> None:
    """The stated limit of this backend: rename(2) says EXDEV, and mv copies instead."""
    with at_work(userns.env()) as agent:
        assert "EXDEV" in agent.run("python3", "-c", _RENAME)
        agent.sh("mv src source; test -e source/app.py; test ! -e src")


_RENAME = """
import errno, os
try:
    os.rename("src", "source")
except OSError as error:
    print(errno.errorcode[error.errno])
"""


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_of_another_owner_is_named_and_another_backend_serves(userns: Workshop) -> None:
    def foreign(tree: Path) -> None:
        (tree / ".venv").mkdir()
        (tree / ".venv" / "theirs").write_text("x")
        (tree / ".venv" / "theirs").chmod(0o666)
        os.chown(tree / ".venv" / "theirs", 4242, 4242)

    template = templates.build(userns.repo, userns.repo.head, userns.world.tmp / "foreign", foreign)
    with pytest.raises(Refused, match=r"\.venv/theirs is not owned") as caught:
        create(userns.repo, "r1/fix", 1, userns.repo.head, userns.world.root, warm=Warm(template, userns.backend))
    assert userns.world.leftovers(userns.repo) == []
    assert caught.value.kept
    assert best(userns.world.tmp, template).name != "overlay-userns"
    layers = userns.backend.plan(userns.world.root / "x", template)
    for folder in (layers.upper, layers.work, str(userns.world.root / "x")):
        Path(folder).mkdir(parents=True)
    with entered(userns.world.root / "x", layers.options(user=True), readonly=False) as inside:
        assert "too large" in _append(inside, userns.world.root / "x" / ".venv" / "theirs"), "the kernel no longer refuses it"


def _append(inside: MountNamespace, file: Path) -> str:
    command = [*inside.command, "sh", "-c", 'echo more >> "$1"', "sh", str(file)]
    return subprocess.run(command, pass_fds=inside.handles, capture_output=True, text=True, check=False).stderr


def test_layers_that_cannot_be_mounted_say_at_which_step(userns: Workshop) -> None:
    env: Environment = userns.env()
    with at_work(env) as agent:
        agent.sh("echo two > README")
    away = userns.template.files.with_name("away")
    userns.template.files.rename(away)
    with pytest.raises(HostError, match="mount: No such file") as caught:
        collect_work.secure(env, "left")
    assert "layers" in caught.value.kept
    away.rename(userns.template.files)
    assert collect_work.secure(env, "left").files == 1
