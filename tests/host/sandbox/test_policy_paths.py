"""What a policy is built from: real paths, and directories that nobody else may write."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from supervisor.kernel.errors import HostError
from supervisor.sandbox import executors, policy
from supervisor.sandbox.executors import Executor
from supervisor.sandbox.policy import Act, Mount, Tier, mounts
from tests.host.sandbox.kit import House, need

TABLES = (policy.CACHES, policy.AGENT_CACHES, (policy.CACHE_HOME,))


def opened(home: Path, env: dict[str, str]) -> tuple[str, ...]:
    """Return every cache of an agent with that home and environment."""
    return tuple(path for table in TABLES for path in executors.caches(home, env, table))


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
    found = {table: executors.caches(tmp_path, {}, table) for table in TABLES}
    assert found == {
        policy.CACHES: tuple(str(tmp_path.resolve() / name) for name in (".cargo/registry", "go/pkg/mod")),
        policy.AGENT_CACHES: (str(tmp_path.resolve() / ".npm"),),
        (policy.CACHE_HOME,): (str(tmp_path.resolve() / ".cache"),),
    }


def test_caches_where_the_environment_says(tmp_path: Path) -> None:
    home, big = tmp_path / "home", tmp_path / "big"
    for place in (home / ".cache", home / ".cargo" / "registry", home / "bin", big / "cargo" / "git", big / "cargo" / "bin", big / "mod"):
        place.mkdir(parents=True)
    (tmp_path / "link").symlink_to(big)
    said = {"CARGO_HOME": f"{tmp_path}/link/cargo", "GOMODCACHE": f"{big}/mod/", "NUGET_PACKAGES": f"{big}/absent"}
    assert executors.caches(home, said) == tuple(sorted(str(path.resolve()) for path in (big / "cargo" / "git", big / "mod")))
    usual = (str((home / ".cache").resolve()),)
    harmful = {str(home): (), str(tmp_path): (), "/": (), f"{home}/bin/..": (), "bin": usual}
    for named, left in harmful.items():
        assert executors.caches(home, {"XDG_CACHE_HOME": named}, (policy.CACHE_HOME,)) == left


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
            assert opened(tmp_path, said) == (str(cache.resolve()),)
    beside = {"PNPM_HOME": f"{tmp_path}/.claude"}
    taken = [str((tmp_path / ".claude").resolve())]
    assert executors.caches(tmp_path, beside, policy.AGENT_CACHES, taken) == ()
    assert executors.caches(tmp_path, beside, policy.AGENT_CACHES) == (str(keys.resolve()),), "which is what it would have opened"


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
    assert opened(tmp_path, said) == (str(cache.resolve()),)


def test_a_cache_that_a_variable_moves_into_a_usual_place_is_opened_with_that_place(tmp_path: Path) -> None:
    (tmp_path / ".cache" / "ci").mkdir(parents=True)
    assert opened(tmp_path, {"XDG_CACHE_HOME": f"{tmp_path}/.cache/ci"}) == (str(tmp_path.resolve() / ".cache"),)


def test_a_link_on_the_way_to_an_agents_own_cache_is_not_followed(crew: House) -> None:
    """An earlier start of the attempt can have left one, and an agent without a sandbox one in the state directory."""
    (crew.attempt / "tmp" / ".caches").symlink_to(crew.elsewhere)
    before = sorted(crew.elsewhere.rglob("*"))
    crew.policy(Tier.FILES)
    assert (crew.attempt / "tmp" / ".caches").is_dir() and not (crew.attempt / "tmp" / ".caches").is_symlink()
    shutil.rmtree(crew.store)
    crew.store.symlink_to(crew.elsewhere)
    with pytest.raises(HostError, match="cannot prepare a sandbox"):
        crew.policy(Tier.FILES)
    assert sorted(crew.elsewhere.rglob("*")) == before


@pytest.mark.in_turns
@pytest.mark.parametrize("named", ["state", "", "repo", "repo/.git", "user/.docker/run", "/run", "/tmp", "/var/tmp"])
def test_a_cache_in_which_something_must_stay_out_of_sight_is_not_opened(crew: House, named: str) -> None:
    place = str((crew.root / named).resolve())
    made, without = (
        crew.policy(Tier.FILES, env=dict.fromkeys(("XDG_CACHE_HOME", "npm_config_cache", "GOMODCACHE"), named))
        for named in (place, "/absent")
    )
    assert set(made.writable) <= set(without.writable)
    assert set(made.private) <= set(without.private) and set(made.shown) <= set(without.shown)


def test_what_is_in_the_cache_of_the_person_is_seen_and_not_written(crew: House) -> None:
    """Directories alone, and no link: it could lead to what is hidden. A directory of package managers is the agents' own."""
    cache = crew.user.resolve() / ".cache"
    (cache / "link").symlink_to(crew.home.root)
    steps = {mount.path: mount for mount in mounts(crew.policy(Tier.FILES)) if Path(mount.path).is_relative_to(cache)}
    own, agents = f"{crew.attempt.resolve()}/tmp/.caches", str(crew.store.resolve())
    shown = {str(cache / name) for name in ("ms-playwright", "nightcrew", "pre-commit")}
    assert steps == {
        str(cache): Mount(Act.WRITE, str(cache), f"{own}{cache}"),
        **{path: Mount(Act.READ, path, path) for path in shown},
        **{f"{cache}/{name}": Mount(Act.WRITE, f"{cache}/{name}", f"{agents}{cache}/{name}") for name in policy.PACKAGES},
    }


def test_a_program_in_a_cache_of_the_agents_is_not_mounted_upon_their_files(crew: House) -> None:
    """As when `uvx` started the supervisor."""
    program = crew.user / ".cache" / "uv" / "archive-v0" / "a"
    made = crew.policy(Tier.FILES, program=(str(program.resolve()),))
    assert not [path for path in dict(made.private) if path.endswith("/.cache/uv")]
    assert {str(program.resolve())} <= {mount.path for mount in mounts(made) if mount.act is Act.READ}


@pytest.mark.in_turns
@pytest.mark.parametrize("tier", [Tier.FILES, Tier.OFFLINE], ids=str)
@pytest.mark.parametrize("executor", Executor, ids=str)
@pytest.mark.parametrize("shared", [True, False], ids=["shared", "own"])
def test_what_an_agent_does_to_a_cache(crew: House, executor: Executor, tier: Tier, shared: bool) -> None:
    need(executor, tier)
    fetched, command, npx = (crew.user / name for name in (".cargo/registry/src/build.rs", ".cargo/bin/cargo", ".npm/_npx/1/tool"))
    wheel, clients, own = (crew.user / ".cache" / name for name in ("pip/w.whl", "nightcrew/clients/bin/claude", "new/file"))
    for file in (fetched, command, npx, wheel):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("good")
    prefix = crew.prefix(executor, crew.policy(tier, shared_caches=shared))
    said = crew.run(prefix, "cat", str(clients))
    assert said.stdout == clients.read_text(), "what the person has there is seen"
    each = (fetched, command, npx, wheel, clients, own)
    crew.run(prefix, "sh", "-c", 'for file; do mkdir -p "${file%/*}"; echo evil > "$file"; done', "sh", *map(str, each))
    left = [file.read_text() if file.exists() else "" for file in each]
    assert left == ["evil\n" if shared else "good", "good", "good", "good", clients.read_text(), ""]
    again = crew.run(prefix, "cat", *map(str, (fetched, npx, wheel, own)))
    assert again.stdout == "evil\n" * 4, "it finds what it left itself, in either"
    crew.policy(tier, shared_caches=shared)  # another start
    later = crew.run(prefix, "cat", *map(str, (npx, wheel, own)))
    assert later.stdout == ("evil\n" * 2 if shared else ""), "and the agents of a project share what package managers keep"


@pytest.mark.parametrize("tier", [Tier.FILES, Tier.OFFLINE])
def test_kept_answers_are_out_of_sight(crew: House, tier: Tier) -> None:
    found, place = crew.policy(tier), crew.home.answers
    opened = [*found.writable, *found.readable, *(path for pair in (*found.private, *found.shown) for path in pair)]
    assert str(place.parent.resolve()) in found.hidden
    assert not [path for path in opened if place.resolve().is_relative_to(path) or Path(path).is_relative_to(place.resolve())]
