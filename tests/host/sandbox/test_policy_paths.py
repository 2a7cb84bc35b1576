"""What a policy is built from: real paths, and directories that nobody else may write."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from supervisor.core.errors import HostError
from supervisor.core.sandbox import Tier
from supervisor.host.sandbox import policy_paths
from supervisor.host.sandbox.executors import Executor
from tests.host.sandbox.kit import House, need


def test_a_home_with_links_is_bound_where_it_really_lies(crew: House) -> None:
    real = crew.root / "dotfiles" / "codex"
    real.mkdir(parents=True)
    (crew.user / ".codex").rmdir()
    (crew.user / ".codex").symlink_to(real)
    assert str(real.resolve()) in dict(crew.policy(Tier.FILES).private)


def test_sockets_of_the_host_are_found(crew: House) -> None:
    assert str((crew.elsewhere / "s").resolve()) in crew.policy(Tier.FILES).masked


def test_caches_where_they_usually_are_and_no_place_of_commands(tmp_path: Path) -> None:
    for name in (".cache/pip", ".npm/_cacache", ".cargo/bin", ".cargo/registry", "go/bin", "go/pkg/mod", ".gradle/init.d", ".bun/bin"):
        (tmp_path / name).mkdir(parents=True)
    assert policy_paths.caches(tmp_path, {}) == tuple(
        str(tmp_path.resolve() / name) for name in (".cache", ".cargo/registry", ".npm", "go/pkg/mod")
    )


def test_caches_where_the_environment_says(tmp_path: Path) -> None:
    home, big = tmp_path / "home", tmp_path / "big"
    for place in (home / ".cache", home / ".cargo" / "registry", home / "bin", big / "cargo" / "git", big / "cargo" / "bin", big / "mod"):
        place.mkdir(parents=True)
    (tmp_path / "link").symlink_to(big)
    said = {"CARGO_HOME": f"{tmp_path}/link/cargo", "GOMODCACHE": f"{big}/mod/", "NUGET_PACKAGES": f"{big}/absent"}
    assert policy_paths.caches(home, said) == tuple(
        sorted(str(path.resolve()) for path in (big / "cargo" / "git", big / "mod", home / ".cache"))
    )
    usual = (str((home / ".cache").resolve()),)
    harmful = {str(home): (), str(tmp_path): (), "/": (), f"{home}/bin/..": (), "bin": usual}
    for named, left in harmful.items():
        assert policy_paths.caches(home, {"XDG_CACHE_HOME": named, "CARGO_HOME": "/absent"}) == left


def test_what_an_agent_linked_from_a_cache_is_not_opened_to_the_next(tmp_path: Path) -> None:
    cache, keys = tmp_path / "cache", tmp_path / ".ssh"
    for place in (cache, keys / "pkg" / "mod", tmp_path / ".claude"):
        place.mkdir(parents=True)
    (tmp_path / "way").symlink_to(cache)
    (cache / "go").symlink_to(keys)  # where a directory was: the agent may rename what it may write
    (tmp_path / ".claude" / "store").symlink_to(keys)
    for name in ("cache", "way"):
        for variable in ("GOPATH", "GOMODCACHE"):
            said = {"XDG_CACHE_HOME": str(cache), variable: f"{tmp_path}/{name}/go"}
            assert policy_paths.caches(tmp_path, said) == (str(cache.resolve()),)
    beside = {"PNPM_HOME": f"{tmp_path}/.claude"}
    assert policy_paths.caches(tmp_path, beside, [str((tmp_path / ".claude").resolve())]) == ()
    assert policy_paths.caches(tmp_path, beside) == (str(keys.resolve()),), "which is what it would have opened"


@pytest.mark.parametrize(
    ("link", "env"),
    [
        (("npm", ".npm"), {}),
        (("mod", "go/pkg/mod"), {}),
        (("registry", ".cargo/registry"), {}),
        (("ci", ""), {"XDG_CACHE_HOME": "ci"}),
        (("npm", ""), {"npm_config_cache": "npm"}),
    ],
)
def test_a_link_that_an_agent_put_into_a_shared_cache_opens_no_other_directory(
    tmp_path: Path, link: tuple[str, str], env: dict[str, str]
) -> None:
    """`.npm -> .cache/npm` is the person's; then an agent puts `.cache/npm -> .config`. Or a variable names a directory of the cache."""
    cache, name, at = tmp_path / ".cache", *link
    for place in (cache, tmp_path / ".config"):
        place.mkdir()
    if at:
        (tmp_path / at).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / at).symlink_to(cache / name)
    (cache / name).symlink_to(tmp_path / ".config")
    said = {variable: str(cache / below) for variable, below in env.items()}
    assert policy_paths.caches(tmp_path, said) == (str(cache.resolve()),)


def test_a_cache_that_a_variable_moves_into_a_usual_place_is_opened_with_that_place(tmp_path: Path) -> None:
    (tmp_path / ".cache" / "ci").mkdir(parents=True)
    assert policy_paths.caches(tmp_path, {"XDG_CACHE_HOME": f"{tmp_path}/.cache/ci"}) == (str(tmp_path.resolve() / ".cache"),)


def test_a_link_on_the_way_to_an_agents_own_cache_is_not_followed(crew: House) -> None:
    """As an earlier try of the same attempt could have left it."""
    (crew.user / ".npm").mkdir()
    (crew.attempt / "tmp" / ".caches").symlink_to(crew.elsewhere)
    before = sorted(crew.elsewhere.rglob("*"))
    git = (crew.repo / ".git", crew.repo / ".git" / "worktrees" / "mine.1", "nightcrew/run/mine/work")
    seen = policy_paths.survey(crew.home, crew.attempt, crew.worktree, git, crew.user)
    seen = replace(seen, caches=policy_paths.caches(crew.user, {}), shared_caches=False)
    with pytest.raises(HostError, match="cannot prepare a sandbox"):
        policy_paths.policy(seen, Tier.FILES, True, 0)
    assert sorted(crew.elsewhere.rglob("*")) == before


@pytest.mark.in_turns
@pytest.mark.parametrize("tier", [Tier.FILES, Tier.OFFLINE], ids=str)
@pytest.mark.parametrize("executor", Executor, ids=str)
@pytest.mark.parametrize("shared", [True, False], ids=["shared", "own"])
def test_what_an_agent_does_to_a_cache(crew: House, executor: Executor, tier: Tier, shared: bool) -> None:
    need(executor, tier)
    fetched = crew.user / ".cargo" / "registry" / "src" / "build.rs"
    command = crew.user / ".cargo" / "bin" / "cargo"
    for file in (fetched, command):
        file.parent.mkdir(parents=True)
        file.write_text("good")
    common = crew.repo / ".git"
    git = (common, common / "worktrees" / "mine.1", "nightcrew/run/mine/work")
    seen = policy_paths.survey(crew.home, crew.attempt, crew.worktree, git, crew.user)
    seen = replace(seen, caches=policy_paths.caches(crew.user, {}), shared_caches=shared, foreign_sockets=())
    prefix = crew.prefix(executor, policy_paths.policy(seen, tier, True, 7777))
    crew.run(prefix, "sh", "-c", f"echo evil > {command}; mkdir -p {fetched.parent} && echo evil > {fetched}")
    assert command.read_text() == "good"
    assert fetched.read_text() == ("evil\n" if shared else "good")
    again = crew.run(prefix, "cat", str(fetched))
    assert again.stdout == "evil\n", "it finds what it left itself, in either"
