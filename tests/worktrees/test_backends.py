"""The contract that every file backend keeps, on every one that this machine can run (S05, S10, S19, X08)."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from supervisor.kernel.errors import DiskFull, NotFound, Refused, Tampered
from supervisor.sandbox import executors
from supervisor.sandbox.executors import Executor
from tests.support import small_disk
from tests.worktrees.conftest import make_world
from tests.worktrees.killing import died_at
from tests.worktrees.workshop import FILES, Workshop, at_work, contents, make_workshop
from worktrees import collect_work, commit_work, landing, merge, removal, templates
from worktrees.backends import BACKENDS, best, mounts, named, survey
from worktrees.environments import Environment, Warm, create, environment_path, open_env, release
from worktrees.private_repository import beside
from worktrees.repository import discover

NAMES = [backend.name for backend in BACKENDS]
Alive = Callable[[Path], Sequence[int]]


@contextlib.contextmanager
def clone_ground(place: Path) -> Iterator[Path]:
    """A directory on a file system that can share blocks; skips where there is none."""
    place.mkdir()
    if named("reflink").probe(place) is None:
        yield place
        return
    if os.geteuid() != 0 or shutil.which("mkfs.xfs") is None:
        pytest.skip("this file system does not share blocks, and only root with mkfs.xfs can make one that does")
    image = place.with_name("xfs.img")
    with image.open("wb") as file:
        file.truncate(320 * 2**20)  # the least that mkfs.xfs takes
    subprocess.run(["mkfs.xfs", "-q", image], check=True)
    if subprocess.run(["mount", "-o", "loop", image, place], capture_output=True, check=False).returncode:
        pytest.skip("this root may not mount a loop device")
    try:
        yield place
    finally:
        subprocess.run(["umount", place], check=True)


pytestmark = pytest.mark.in_turns
"""Each test in each backend, one with agents in a sandbox and the next without."""


@pytest.fixture(params=[form for name in NAMES for form in (name, f"{name}, confined")])
def shop(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workshop]:
    with contextlib.ExitStack() as stack:
        name, _, confined = request.param.partition(", ")
        ground = stack.enter_context(clone_ground(tmp_path / "ground")) if name == "reflink" else tmp_path
        backend = named(name)
        reason = backend.probe(ground)
        if reason is not None:
            pytest.skip(f"{name} does not work here: {reason}")
        if confined and not executors.known().works[Executor.NAMESPACES]:
            pytest.skip("no sandbox of our own works here")
        made = make_workshop(make_world(ground, monkeypatch), backend)
        made.world.confined = bool(confined)
        stack.callback(made.unmount_everything)
        yield made


def save(env: Environment) -> commit_work.Secured:
    return collect_work.secure(env, "leftover work")


@pytest.mark.in_turns
def test_a_fresh_environment_is_clean_and_git_need_not_read_its_files_again(shop: Workshop) -> None:
    env = shop.env()
    assert env.layers is not None and env.layers.backend == shop.backend.name
    with at_work(env) as agent:
        assert agent.git("diff-files", "--name-only") == "", "stats in the index do not fit the files"
        assert agent.git("status", "--porcelain") == ""
        assert agent.git("rev-parse", "--abbrev-ref", "HEAD") == "nightcrew/r1/fix/work"
        assert agent.run("cat", "src/app.py", ".env.local") == "print('one')\nKEY=1\n"
        assert agent.run(".venv/bin/tool") == "tool\n"
        assert agent.run("cat", "node_modules/right/index.js") == "module.exports = 1\n"
        assert agent.git("check-ignore", ".venv", "node_modules", ".env.local").splitlines() == [".venv", "node_modules", ".env.local"]
    assert shop.env() == env


def test_pipes_where_git_opens_files_are_set_aside_in_every_backend(shop: Workshop, nobody_alive: Alive) -> None:
    """In place of files of the template and beside them; what git never opens stays."""
    before, env = shop.lower(), shop.env()
    with at_work(env) as agent:
        agent.sh("rm .gitignore src/app.py; mkfifo .gitignore src/.gitignore docs/.gitattributes docs/mine; echo new > src/new.txt")
    done = save(env)
    assert len([note for note in done.notes if "was a pipe" in note]) == 3, done.notes
    assert not [note for note in done.notes if "was stopped" in note], done.notes
    files = shop.world.blobs(shop.repo, env.branch)
    assert files["src/new.txt"] == "new" and "src/app.py" not in files
    with at_work(env) as agent:
        assert agent.sh("ls -A src docs | grep -c aside; test -p docs/mine").strip() == "2"
    release(env)
    removal.remove(env, nobody_alive, discard=True)
    assert shop.lower() == before


@pytest.mark.in_turns
def test_a_life_from_work_to_merge_and_removal_leaves_the_template_as_it_was(shop: Workshop, nobody_alive: Alive) -> None:
    before, env = shop.lower(), shop.env()
    with at_work(env) as agent:
        agent.sh(
            "echo two > src/app.py; rm docs/a.txt; echo new > new.txt; mv src/deep src/deeper; rm -rf docs; mkdir docs; echo c > docs/c.txt"
        )
        agent.git("add", "-A")
        agent.git("commit", "-qm", "work")
        agent.sh("echo left > left.txt; echo three >> src/app.py; ln -s /etc/passwd outside; echo noise > x.log; echo KEY=2 > .env.local")
    done = save(env)
    assert (done.commits, done.rescue) == (2, done.tip)
    files = shop.world.blobs(shop.repo, env.branch)
    assert files["src/app.py"] == "two\nthree" and files["src/deeper/more.py"] == "more = 1" and files["left.txt"] == "left"
    assert files["outside"] == "/etc/passwd"
    assert not {"docs/a.txt", "docs/b.txt", "src/deep/more.py", "x.log", ".env.local"} & set(files)
    assert "+three" in merge.diff(shop.repo, env.base, done.tip)
    with at_work(env) as agent:
        assert agent.git("status", "--porcelain") == ""
    shop.world.sh(shop.repo.root, "gc", "-q", "--prune=now")
    assert shop.world.sh(shop.repo.root, "fsck", "--no-dangling") == ""
    assert isinstance(landing.take(shop.repo, env.branch), landing.Moved)
    release(env)
    verdict = removal.inspect(env, nobody_alive)
    assert isinstance(verdict, removal.Keep)
    assert [(reason.why, reason.paths) for reason in verdict.reasons] == [(collect_work.Why.IGNORED, (".env.local", "x.log"))]
    with pytest.raises(Refused, match=str(env.path)):
        templates.refuse_used(shop.template)
    removal.remove(env, nobody_alive, discard=True)
    assert shop.world.leftovers(shop.repo) in ([], [str(env.path.parent)])
    templates.refuse_used(shop.template)
    assert shop.lower() == before
    templates.load(shop.template.place)


def test_an_untouched_one_is_swept(shop: Workshop, nobody_alive: Alive) -> None:
    env = shop.env()
    assert not removal.sweep(env, nobody_alive), "it is locked"
    release(env)
    assert removal.sweep(env, nobody_alive)
    assert shop.world.leftovers(shop.repo) in ([], [str(env.path.parent)])


@pytest.mark.in_turns
def test_two_environments_of_one_template_do_not_see_one_another(shop: Workshop) -> None:
    one, two = shop.env("r1/one"), shop.env("r1/two")
    with at_work(one) as agent:
        agent.sh("echo mine > README; echo mine > mine.txt; rm -r docs")
    with at_work(two) as agent:
        assert agent.run("cat", "README") == "read me\n"
        assert agent.git("status", "--porcelain") == ""
        agent.sh("test ! -e mine.txt; echo b2 > docs/b.txt")
    assert save(one).files == 4
    assert save(two).files == 1
    assert shop.world.sh(shop.repo.root, "cat-file", "-p", f"{two.branch}:docs/b.txt") == "b2"


@pytest.mark.in_turns
def test_when_every_mount_is_gone_rescue_and_removal_go_on(shop: Workshop, nobody_alive: Alive) -> None:
    env = shop.env()
    with at_work(env) as agent:
        agent.sh("echo two > README; rm docs/a.txt")
    shop.unmount_everything()
    done = save(env)
    assert (done.files, done.plus, done.minus) == (2, 1, 2)
    release(env)
    shop.unmount_everything()
    with open_env(env) as seen:
        if env.private is not None:  # what a confined agent wrote is opened in a sandbox only
            with at_work(env) as agent:
                assert agent.run("cat", "README") == "two\n" and agent.git("status", "--porcelain") == ""
        else:
            assert (seen.place.top / "README").read_text() == "two\n"
            assert shop.repo.git.run(seen.place, "status", "--porcelain").out == b""
    shop.unmount_everything()
    removal.remove(env, nobody_alive, discard=True)
    assert shop.world.reachable(shop.repo, done.tip)


@pytest.mark.in_turns
def test_dependencies_that_name_their_own_place_name_that_of_the_environment(shop: Workshop) -> None:
    """As the scripts of a virtual environment and editable installs do: else agents would run the template's code, not their own."""

    def prepare(tree: Path) -> None:
        for name, text in {
            "bin/tool": f"#!{tree}/.venv/bin/python\n",
            "lib/editable.pth": f"{tree}/src\n",
            "lib/other.py": "x = 1\n",
        }.items():
            (tree / ".venv" / name).parent.mkdir(parents=True, exist_ok=True)
            (tree / ".venv" / name).write_text(text)
        (tree / ".venv" / "bin" / "tool").chmod(0o755)
        (tree / ".venv" / "bin" / "binary").write_bytes(b"\0" + os.fsencode(tree))

    template = templates.build(shop.repo, shop.repo.head, shop.world.tmp / "second", prepare)
    assert template.anchored == (".venv/bin/tool", ".venv/lib/editable.pth")
    before = contents(template.files)
    env = create(shop.repo, "r1/venv", 1, shop.repo.head, shop.world.root, warm=Warm(template, shop.backend))
    with at_work(env) as agent:
        assert agent.run("cat", ".venv/bin/tool", ".venv/lib/editable.pth") == f"#!{env.path}/.venv/bin/python\n{env.path}/src\n"
        agent.sh("test -x .venv/bin/tool; test -e .venv/bin/binary; test -e .venv/lib/other.py")
        assert agent.git("status", "--porcelain") == ""
    assert contents(template.files) == before
    release(env)
    assert removal.sweep(env, lambda _path: ())


def test_a_commit_other_than_the_templates(shop: Workshop) -> None:
    tip = shop.world.commit(shop.repo.root, "src/app.py", "print('two')\n")
    env = shop.env(base=tip)
    with at_work(env) as agent:
        assert agent.git("status", "--porcelain") == ""
        assert agent.git("rev-parse", "HEAD") == tip
        assert agent.run("cat", "src/app.py") == "print('two')\n"
    assert save(env).commits == 0


@pytest.mark.in_turns
def test_its_git_link_is_watched(shop: Workshop, nobody_alive: Alive) -> None:
    env = shop.env()
    evil = shop.world.make("evil")
    with at_work(env) as agent:
        agent.sh(f"echo 'gitdir: {evil}/.git' > .git || true; echo work > work.txt")
    if shop.world.confined:  # it is read-only in a sandbox
        with open_env(env):
            assert save(env).files == 1
        return
    with pytest.raises(Tampered), open_env(env):
        pass
    assert save(env).files == 1
    release(env)
    assert "not ours" in str(removal.inspect(env, nobody_alive))


def test_files_that_somebody_removed_are_missing_and_nothing_is_called_deleted(shop: Workshop) -> None:
    env = shop.env()
    assert env.layers is not None
    shop.unmount_everything()
    shutil.rmtree(env.layers.upper or env.path)
    with pytest.raises(NotFound), open_env(env):
        pass
    if env.layers.upper:
        with pytest.raises(NotFound):
            save(env)


@pytest.mark.in_turns
@pytest.mark.parametrize("stride", [16, pytest.param(1, marks=pytest.mark.soak)])
def test_a_kill_between_any_two_steps_leaves_nothing_that_create_cannot_mend(shop: Workshop, stride: int, seed: int) -> None:
    before, ended = shop.lower(), False
    number = (0 if shop.backend.name == "plain" else 12) - seed % stride  # the first steps are the same for all
    while not ended:
        number += stride
        assert number < 400, "it never came to its end"
        ended = died_at(number, shop.env)
        env = shop.env()
        with at_work(env) as agent:
            assert agent.git("status", "--porcelain") == ""
        release(env)
        assert removal.sweep(env, lambda _path: ())
    assert number > 20, "the kills did not reach the steps"
    assert shop.lower() == before
    assert not mounts(shop.world.tmp)


def test_a_full_disk_leaves_nothing_and_the_retry_succeeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the disk that holds worktrees and template, for every backend that works there."""
    tried = []
    with small_disk(tmp_path / "small", "size=6m") as small:
        world = make_world(tmp_path, monkeypatch)
        for backend in BACKENDS:
            if backend.probe(small) is not None:
                continue
            repo = discover(world.git, world.make(f"repo-{backend.name}", files=400))
            template = templates.build(repo, repo.head, small / backend.name, lambda _tree: None)
            root = small / "work"
            filler = small / "filler"
            with filler.open("wb", buffering=0) as out, contextlib.suppress(OSError):
                while True:
                    out.write(b"x" * 4096)
            with pytest.raises(DiskFull):
                create(repo, "r1/fix", 1, repo.head, root, warm=Warm(template, backend))
            filler.unlink()
            assert world.sh(repo.root, "for-each-ref", "refs/heads/nightcrew") == ""
            assert not list((repo.common_dir / "worktrees").glob("*")) and not list(root.rglob("*"))
            env = create(repo, "r1/fix", 1, repo.head, root, warm=Warm(template, backend))
            release(env)
            removal.remove(env, lambda _path: ())
            templates.remove_template(template)
            tried.append(backend.name)
    assert "plain" in tried


@pytest.mark.in_turns
def test_fifty_at_once(shop: Workshop) -> None:
    with ThreadPoolExecutor(10) as pool:
        made = list(pool.map(lambda number: shop.env(f"r1/t{number}"), range(50)))
    assert len({env.admin_dir for env in made}) == len(templates._users(shop.template.place)) == 50
    for env in made[::7]:
        with at_work(env) as agent:
            assert agent.git("status", "--porcelain") == ""
    with pytest.raises(Refused, match="in use"):
        templates.remove_template(shop.template)
    (shop.template.place / "template.json").unlink()
    with pytest.raises(Refused, match="in use"):
        templates.clear(shop.repo, shop.template.place)
    assert (shop.template.files / "README").exists()


def test_best_is_the_first_that_works_and_every_other_says_why(tmp_path: Path) -> None:
    found = survey(tmp_path)
    assert [verdict.backend.name for verdict in found] == NAMES
    working = [verdict.backend.name for verdict in found if verdict.reason is None]
    assert best(tmp_path).name == working[0]
    assert working[-1] == "plain"
    assert all(verdict.reason for verdict in found if verdict.backend.name not in working)
    assert not list(tmp_path.iterdir()), "a probe left something"
    assert not mounts(tmp_path)


@pytest.mark.in_turns
def test_directory_of_the_snapshot_is_renamed_or_the_backend_says_that_it_cannot_be(shop: Workshop) -> None:
    with at_work(shop.env()) as agent:
        tried = "import os\ntry: os.rename('src', 'moved'); print('renamed')\nexcept OSError as error: print(error.strerror)"
        said = agent.run("python3", "-c", tried).strip()
        agent.sh("test -d moved || mv src moved")
        assert said == ("Invalid cross-device link" if shop.backend.caveat else "renamed")
        assert agent.sh("cat moved/app.py") == FILES["src/app.py"]


# --- what a repository may hold ------------------------------------------------------------------------------------------


@pytest.mark.in_turns
def test_submodules_links_and_lfs_pointers(shop: Workshop) -> None:
    world, path = shop.world, shop.repo.root
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "0" * 64 + "\nsize 9\n"
    world.make("other")
    world.sh(path, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(world.tmp / "other"), "sub")
    (path / "link").symlink_to("src/app.py")
    (path / ".gitignore").write_text("/deps\n")
    world.sh(path, "config", "index.version", "4")
    (path / ".gitattributes").write_text("*.bin filter=lfs diff=lfs merge=lfs -text\n")
    (path / "large.bin").write_text(pointer)
    world.commit(path, "more.txt")
    for key, program in {"clean": "false", "smudge": "false", "required": "true"}.items():
        world.sh(path, "config", f"filter.lfs.{key}", program)
    repo = discover(world.git, path)
    template = templates.build(repo, repo.head, world.tmp / "second", lambda tree: (tree / "deps").symlink_to("/usr"))
    env = create(repo, "r1/more", 1, repo.head, world.root, warm=Warm(template, shop.backend))
    with at_work(env) as agent:
        assert agent.run("cat", "large.bin") == pointer
        agent.sh('test "$(readlink deps)" = /usr; test "$(readlink link)" = src/app.py; test -d sub')
    assert save(env).commits == 0


@pytest.mark.in_turns
def test_sparse_checkout(shop: Workshop) -> None:
    world, path = shop.world, shop.repo.root
    world.sh(path, "sparse-checkout", "set", "src")
    repo = discover(world.git, path)
    template = templates.build(repo, repo.head, world.tmp / "second", lambda _tree: None)
    env = create(repo, "r1/sparse", 1, repo.head, world.root, warm=Warm(template, shop.backend))
    with at_work(env) as agent:
        assert agent.git("status", "--porcelain") == ""
        agent.sh("test -e src/app.py; test ! -e docs")
    assert save(env).commits == 0


def test_a_path_with_everything_that_options_split_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    odd = tmp_path / "a, b:c\\d e"
    odd.mkdir()
    backend = best(odd)
    shop = make_workshop(make_world(odd, monkeypatch), backend)
    try:
        env = shop.env()
        with at_work(env) as agent:
            assert agent.git("status", "--porcelain") == ""
            agent.sh("echo two > README")
        assert save(env).files == 1
        if backend.name == "overlay":
            assert [mount.path for mount in mounts(odd)] == [env.path]
    finally:
        shop.unmount_everything()


def test_the_place_of_the_layers_is_never_taken_from_somebody(shop: Workshop) -> None:
    path = environment_path(shop.world.root, "r1/fix", 1)
    beside(path).mkdir(parents=True)
    (beside(path) / "precious").write_text("x")
    with pytest.raises(Refused, match="something else"):
        shop.env()
    assert (beside(path) / "precious").read_text() == "x"
