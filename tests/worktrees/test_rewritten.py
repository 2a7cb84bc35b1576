"""T05: an agent amends, resets, rebases, moves branches, and fails: each tip is on a rescue ref of its task, and a retry starts."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from supervisor.kernel.errors import Refused
from tests.worktrees.rewriting import HISTORIES, Agent, amend, detached_before_its_work, rebase, reset_to_the_base
from worktrees.collect_work import Why, secure, snapshot
from worktrees.commit_work import Secured
from worktrees.environments import Environment, release
from worktrees.landing import Moved, take
from worktrees.removal import Keep, forget, inspect, remove, sweep

if TYPE_CHECKING:
    from tests.worktrees.conftest import World

Alive = Callable[[Path], Sequence[int]]
pytestmark = pytest.mark.in_turns


@pytest.fixture
def world(both: World) -> World:
    return both


@pytest.fixture
def env(world: World) -> Environment:
    return world.env(world.repo())


def save(env: Environment) -> Secured:
    return secure(env, "leftover work", {"Nightcrew-Task": "r1/fix"}, always=True)


def forget_logs(world: World, env: Environment) -> None:
    """As weeks later: only refs keep a commit."""
    world.sh(env.repo.root, "reflog", "expire", "--expire=now", "--all")
    world.sh(env.repo.root, "gc", "-q", "--prune=now")


@pytest.mark.one_in(5)
@pytest.mark.parametrize("leftover", [False, True])
@pytest.mark.parametrize("history", HISTORIES)
def test_every_tip_is_on_a_rescue_ref_and_a_retry_starts(
    world: World, env: Environment, nobody_alive: Alive, history: Callable[[Agent], None], leftover: bool
) -> None:
    agent = Agent(world, env)
    history(agent)
    if leftover:
        (env.path / "left.txt").write_text("x\n")
    done = save(env)
    branch = world.sh(env.repo.root, "for-each-ref", "--format=%(objectname)", env.branch_ref)
    assert branch in ("", done.tip), "what it left as its result stays on its branch"
    assert done.rescue == world.sh(env.repo.root, "rev-parse", env.rescue_ref)
    assert set(agent.tips) | {done.tip} <= world.kept(env)
    assert done.unkept == 0
    assert save(env) == done
    release(env)
    second = world.env(env.repo, epoch=2)
    assert world.sh(second.path, "rev-parse", "HEAD") == env.base
    remove(env, nobody_alive, discard=True)
    forget_logs(world, env)
    assert set(agent.tips) | {done.tip} <= world.kept(env)
    assert world.sh(env.repo.root, "fsck", "--no-dangling") == ""


def test_the_main_ref_is_the_result_and_holds_nothing_that_was_taken_back(world: World, env: Environment) -> None:
    """Merging it after `clean` must not bring back what the agent had amended away, a password for example."""
    agent = Agent(world, env)
    amend(agent)
    done = save(env)
    assert done.rescue == done.tip == agent.tips[-1]
    assert world.sh(env.repo.root, "rev-list", "--count", f"{env.base}..{env.rescue_ref}") == "1"
    assert any(env.tips_ref in note for note in done.notes)


def test_what_the_first_attempt_left_is_not_kept_twice(world: World, env: Environment) -> None:
    amend(Agent(world, env))
    save(env)
    second = world.env(env.repo, epoch=2)
    world.commit(second.path, "z.txt")
    save(second)
    assert world.sh(env.repo.root, "for-each-ref", "--format=%(refname)", second.tips_ref) == ""


def lines(world: World, env: Environment, count: int) -> list[str]:
    """Commits beside each other that only a log names, written by whoever may write it."""
    tree = world.sh(env.path, "rev-parse", "HEAD^{tree}")
    text = f"tree {tree}\\nparent {env.base}\\nauthor a <a@b> %s +0000\\ncommitter a <a@b> %s +0000\\n\\nnumber %s\\n"
    write = f"now=$(date +%s); mkdir .made; for n in $(seq 0 {count - 1}); do printf '{text}' $now $now $n >.made/$n; echo .made/$n; done"
    made = world.run(env.path, "sh", "-c", f"{{ {write}; }} | git hash-object -t commit -w --stdin-paths; rm -r .made").split()
    assert len(made) == count
    with world.own(env, env.admin_dir / "logs" / "HEAD").open("a") as log:
        for oid in made:
            log.write(f"{env.base} {oid} a <a@b> 1700000000 +0000\tcommit: x\n")
    return made


def test_of_many_tips_the_newest_are_kept_and_the_rest_is_said_and_keeps_the_worktree(
    world: World, env: Environment, nobody_alive: Alive
) -> None:
    made = lines(world, env, 53)
    done = save(env)
    assert set(made[3:]) <= world.kept(env)
    assert not set(made[:3]) & world.kept(env)
    assert done.unkept == 3
    assert any("3 " in note and made[0][:12] in note for note in done.notes), done.notes


def test_clean_takes_no_worktree_whose_tips_are_on_no_ref(
    world: World, env: Environment, nobody_alive: Alive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("worktrees.removal._ROUNDS", 2)
    monkeypatch.setattr("worktrees.commit_work.KEPT_AT_REMOVAL", 50)
    release(env)
    made = lines(world, env, 275)
    assert not sweep(env, nobody_alive)
    for discard in (False, True):  # twice as many as it takes at once
        with pytest.raises(Refused, match="not removed") as caught:
            remove(env, nobody_alive, discard=discard)
        assert "commits on no ref" in caught.value.why and env.path.is_dir()
        monkeypatch.setattr("worktrees.removal._ROUNDS", 1)
    remove(env, nobody_alive)
    assert not env.path.exists() and set(made) <= world.kept(env)


def test_clean_takes_all_tips_at_once_however_many(
    world: World, env: Environment, nobody_alive: Alive, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []  # each of them looks at everything again

    def counted(env: Environment, message: str) -> Secured:
        calls.append(message)
        return snapshot(env, message)

    monkeypatch.setattr("worktrees.collect_work.snapshot", counted)
    release(env)
    made = lines(world, env, 120)
    assert remove(env, nobody_alive).unkept == 0
    assert len(calls) == 1
    assert not env.path.exists() and set(made) <= world.kept(env)


def test_clean_leaves_what_it_cannot_read_to_a_person(world: World, env: Environment, nobody_alive: Alive) -> None:
    release(env)
    with world.own(env, env.admin_dir / "logs" / "HEAD").open("a") as log:
        log.write(hostile(world, env, "orphaned"))
    assert not sweep(env, nobody_alive)
    with pytest.raises(Refused, match="commits on no ref"):
        remove(env, nobody_alive)
    assert env.path.is_dir()
    remove(env, nobody_alive, discard=True)
    assert not env.path.exists()


def test_a_worktree_that_left_nothing_but_a_rewritten_commit_is_not_swept(world: World, env: Environment, nobody_alive: Alive) -> None:
    release(env)
    reset_to_the_base(Agent(world, env))
    assert not sweep(env, nobody_alive)
    save(env)
    assert sweep(env, nobody_alive)


def test_a_branch_that_head_is_not_on_is_looked_at_too(world: World, env: Environment, nobody_alive: Alive) -> None:
    agent = Agent(world, env)
    detached_before_its_work(agent)
    release(env)
    verdict = inspect(env, nobody_alive)
    assert isinstance(verdict, Keep) and [reason.why for reason in verdict.reasons] == [Why.UNMERGED]
    with pytest.raises(Refused, match="not removed"):
        remove(env, nobody_alive)
    world.sh(env.repo.root, "merge", "-q", env.branch)
    remove(env, nobody_alive)


def test_a_directory_that_somebody_removed_takes_no_tip_along(world: World, env: Environment) -> None:
    agent = Agent(world, env)
    rebase(agent)
    release(env)
    world.sh(env.repo.root, "worktree", "list")
    for path in sorted(env.path.rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    env.path.rmdir()
    forget(env)
    forget_logs(world, env)
    assert set(agent.tips) <= world.kept(env)


@pytest.mark.parametrize("what", ["blob", "nowhere", "broken", "orphaned", "long", "link", "base"])
def test_what_a_log_says_is_believed_only_of_commits_that_are_there(world: World, env: Environment, what: str) -> None:
    agent = Agent(world, env)
    amend(agent)
    log = world.own(env, env.admin_dir / "logs" / "HEAD")
    before = log.read_text()
    if what == "link":
        log.rename(world.tmp / "elsewhere")
        log.symlink_to(world.tmp / "elsewhere")
        (world.tmp / "elsewhere").write_text("")
    else:
        log.write_text(hostile(world, env, what) + before)
    done = save(env)
    assert set(agent.tips) <= world.kept(env) or what == "link"
    assert {done.tip} <= world.kept(env)
    world.sh(env.repo.root, "rev-list", "--all", "--count")
    world.env(env.repo, epoch=2)


def hostile(world: World, env: Environment, what: str) -> str:
    """Lines of a log that no git wrote."""
    zero, who = "0" * 40, "a <a@b> 1700000000 +0000\tx\n"
    match what:
        case "blob":
            oids = [world.sh(env.path, "rev-parse", "HEAD:f0.txt"), world.sh(env.path, "rev-parse", "HEAD^{tree}")]
        case "nowhere":
            oids = [os.urandom(20).hex() for _ in range(200)] + ["a" * 64]
        case "base":
            oids = [env.base, zero, "f" * 40]
        case "broken":
            oids = [world.sh(env.path, "commit-tree", env.base + "^{tree}", "-m", "soon gone")]
            file = world.own(env, env.repo.common_dir / "objects") / oids[0][:2] / oids[0][2:]
            file.chmod(0o600)
            file.write_bytes(b"no object")
        case "orphaned":
            parent = world.sh(env.path, "commit-tree", env.base + "^{tree}", "-m", "soon gone")
            oids = [world.sh(env.path, "commit-tree", env.base + "^{tree}", "-p", parent, "-m", "its parent is gone")]
            (world.own(env, env.repo.common_dir / "objects") / parent[:2] / parent[2:]).unlink()
        case _:
            return f"{zero} {env.base} {'x' * 5 * 2**20}\n" + f"{zero} {env.base} {who}"
    return "".join(f"{zero} {oid} {who}" for oid in oids)


def test_an_older_attempt_answers_for_its_own_commits_only(world: World, env: Environment, nobody_alive: Alive) -> None:
    amend(Agent(world, env))
    save(env)
    release(env)
    world.sh(env.repo.root, "merge", "-q", env.branch)
    second = world.env(env.repo, epoch=2)
    newer = world.commit(second.path, "new.txt")
    assert not isinstance(inspect(env, nobody_alive), Keep)
    remove(env, nobody_alive)
    assert newer not in world.sh(env.repo.root, "rev-list", "--glob=refs/nightcrew/rescue").split()
    assert world.sh(second.path, "rev-parse", second.branch) == newer


def test_what_was_rewritten_and_merged_goes_with_its_branch(world: World, env: Environment, nobody_alive: Alive) -> None:
    agent = Agent(world, env)
    rebase(agent)
    done = save(env)
    release(env)
    assert take(env.repo, env.branch) == Moved(done.tip, env.repo.root)
    remove(env, nobody_alive)
    assert world.leftovers(env.repo) == [str(env.path.parent)] and set(agent.tips) <= world.kept(env)


def test_whatever_was_left_is_on_the_rescue_ref_so_that_a_good_end_can_be_tried_again_too(world: World, env: Environment) -> None:
    world.commit(env.path, "a.txt")
    done = secure(env, "leftover work")
    assert done.rescue == done.tip
    world.env(env.repo, epoch=2)


@pytest.mark.in_turns
@pytest.mark.parametrize("text", ["ab" * 20, "0" * 40, "garbage", "ref: refs/heads/main", "ref: refs/heads/nightcrew/r1/fix/other", ""])
def test_what_lies_beside_the_branch_breaks_nothing(world: World, env: Environment, nobody_alive: Alive, text: str) -> None:
    agent = Agent(world, env)
    amend(agent)
    other = world.own(env, env.repo.common_dir / "refs" / "heads" / "nightcrew" / "r1" / "fix" / "other")
    other.write_text(f"{text}\n")
    own = world.own(env, env.admin_dir / "refs" / "worktree")
    own.mkdir(parents=True)
    (own / "mine").write_text(f"{text}\n")
    done = save(env)
    if text.startswith("ab"):
        assert any("which is gone" in note for note in done.notes)
    assert set(agent.tips) <= world.kept(env)
    assert done.tip == agent.tips[-1]
    release(env)
    world.env(env.repo, epoch=2)
    remove(env, nobody_alive, discard=True)


def test_another_branch_of_the_task_is_kept_with_it(world: World, env: Environment) -> None:
    """The next attempt may write there."""
    tree = world.sh(env.path, "rev-parse", "HEAD^{tree}")
    made = world.sh(env.path, "commit-tree", tree, "-p", env.base, "-m", "never checked out")
    world.sh(env.path, "branch", "nightcrew/r1/fix/other", made)
    save(env)
    assert made in world.kept(env)
