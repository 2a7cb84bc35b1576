"""Which tier a task gets, what its policy says, and the order of the mounts."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.kernel.errors import Refused
from supervisor.sandbox import policy as sandbox
from supervisor.sandbox.policy import Act, Mount, Network, Places, Policy, Tier, choose, mounts, network_of, policy_for, variables

ALL = frozenset(Tier)
PLACES = Places(
    worktree="/home/u/state/worktrees/p/run/a.1",
    attempt="/home/u/state/runs/run/a/1",
    state="/home/u/state",
    run_dir="/tmp/nc",
    agents_socket="/tmp/nc/agents/agents.sock",
    gateway_socket="/tmp/nc/gateway.sock",
    common_dir="/home/u/repo/.git",
    private_dir="/home/u/state/worktrees/p/run/.a.1/git",
    admin="a.1",
    homes=(("/home/u/.claude", "/home/u/state/runs/run/a/1/home/home/u/.claude"),),
    homes_shown=("/home/u/.claude/plugins",),
    caches=("/home/u/.cargo/registry", "/home/u/go/pkg/mod"),
    agent_caches=("/home/u/.npm", "/home/u/.cache/pip"),
    cache_home="/home/u/.cache",
    cache_shown=("/home/u/.cache/pre-commit",),
    cache_store="/home/u/state/projects/p/caches",
    doors_out=("/home/u/.gnupg",),
    foreign_sockets=(
        "/home/u/editor.sock",
        "/home/u/.gnupg/S.agent",
        "/tmp/x.sock",
        "/tmp/nc/daemon.sock",
        "/home/u/.claude/s",
        "/home/u/.claude/plugins/s",
    ),
    program=("/usr/lib/python3", "/tmp/checkout"),
)


def built(tier: Tier = Tier.FILES, network: bool | tuple[str, ...] = True, port: int = 7777, places: Places = PLACES) -> Policy:
    return policy_for(places, tier, network, port, lambda _: True)


@pytest.mark.parametrize(
    ("asked", "works", "network", "tier"),
    [
        (None, ALL, True, Tier.FILES),
        (None, ALL, False, Tier.OFFLINE),
        (None, ALL, ("example.org",), Tier.OFFLINE),
        (None, {Tier.NONE}, True, Tier.NONE),
        (Tier.NONE, ALL, True, Tier.NONE),
        (Tier.NONE, set(), True, Tier.NONE),
        (Tier.FILES, ALL, True, Tier.FILES),
        (Tier.OFFLINE, ALL, True, Tier.OFFLINE),
        (Tier.OFFLINE, ALL, False, Tier.OFFLINE),
    ],
)
def test_what_a_task_gets(asked: Tier | None, works: frozenset[Tier], network: bool | tuple[str, ...], tier: Tier) -> None:
    assert choose(asked, works, network) is tier


@pytest.mark.parametrize(
    ("asked", "works", "network"),
    [
        (Tier.FILES, {Tier.NONE}, True),
        (Tier.OFFLINE, {Tier.NONE, Tier.FILES}, True),
        (None, {Tier.NONE, Tier.FILES}, False),
        (None, {Tier.NONE, Tier.FILES}, ("example.org",)),
        (Tier.FILES, ALL, False),
        (Tier.NONE, ALL, ("example.org",)),
    ],
)
def test_never_less_than_asked(asked: Tier | None, works: frozenset[Tier], network: bool | tuple[str, ...]) -> None:
    with pytest.raises(Refused) as refused:
        choose(asked, works, network)
    assert refused.value.why and refused.value.hint


@given(st.sampled_from([None, *Tier]), st.sets(st.sampled_from(Tier)), st.sampled_from([True, False, ("a.example",)]))
def test_a_choice_is_what_was_asked_or_nothing(asked: Tier | None, works: set[Tier], network: bool | tuple[str, ...]) -> None:
    try:
        tier = choose(asked, works, network)
    except Refused:
        return
    assert tier is Tier.NONE or tier in works
    assert asked is None or tier is asked
    assert network is True or tier is Tier.OFFLINE


def test_what_each_tier_connects_to() -> None:
    assert network_of(Tier.FILES, True) == (Network.HOST, ())
    assert network_of(Tier.OFFLINE, True) == (Network.GATEWAY, ())
    assert network_of(Tier.OFFLINE, ["a.example"]) == (Network.GATEWAY, ("a.example",))
    assert network_of(Tier.OFFLINE, False) == (Network.NONE, ())


def test_doors_of_the_policy() -> None:
    policy = built(Tier.OFFLINE)
    assert (policy.gateway_socket, policy.gateway_port, policy.proxy_port) == (PLACES.gateway_socket, 7777, 0)
    assert built(Tier.OFFLINE, port=0).gateway_socket == ""
    closed = built(Tier.OFFLINE, False)
    assert (closed.gateway_socket, closed.gateway_port) == ("", 0)
    assert PLACES.gateway_socket not in closed.readable
    assert "/tmp/nc/agents" in closed.readable, "with whatever listens there later"


def test_the_proxy_is_told_and_never_meets_the_gateway() -> None:
    assert variables(built(Tier.OFFLINE)) == {}
    policy = built(Tier.OFFLINE, ("a.example",), port=sandbox.PROXY_PORT)
    assert policy.proxy_port == sandbox.PROXY_PORT + 1
    told = variables(policy)
    assert told["HTTPS_PROXY"] == told["https_proxy"] == f"http://127.0.0.1:{policy.proxy_port}"
    assert "127.0.0.1" in told["NO_PROXY"]
    assert built(Tier.OFFLINE, ("a.example",)).proxy_port == sandbox.PROXY_PORT
    assert replace(policy, network=Network.NONE).proxy_port == 0


def fate(policy: Policy, path: str) -> Act:
    """What the deepest rule around a path does to it."""
    found = Act.READ
    for mount in mounts(policy):
        if path == mount.path or path.startswith(mount.path + "/"):
            found = mount.act
    return found


@pytest.mark.parametrize(
    ("path", "act"),
    [
        ("/etc/passwd", Act.READ),
        ("/home/u/.bashrc", Act.READ),
        ("/home/u/.claude/history", Act.WRITE),
        ("/home/u/.claude/plugins/p", Act.READ),
        ("/home/u/.gnupg/private", Act.HIDE),
        ("/home/u/.cache/pip/x", Act.WRITE),
        ("/home/u/.cache/p10k-instant-prompt-u.zsh", Act.WRITE),
        ("/home/u/.cache/pre-commit/db.db", Act.READ),
        ("/home/u/go/pkg/mod/a@v1/a.go", Act.WRITE),
        ("/home/u/go/bin/tool", Act.READ),
        ("/home/u/state/ledger.db", Act.HIDE),
        ("/home/u/state/worktrees/p/run/b.1", Act.HIDE),
        ("/home/u/state/worktrees/p/run/a.1/x", Act.WRITE),
        ("/home/u/state/worktrees/p/run/a.1/.git", Act.READ),
        ("/home/u/state/runs/run/a/1/exit.json", Act.HIDE),
        ("/home/u/state/runs/run/a/1/launch.spec", Act.HIDE),
        ("/home/u/state/runs/run/a/1/out/x", Act.WRITE),
        ("/home/u/state/runs/run/a/1/prompt.md", Act.READ),
        ("/tmp/nc/daemon.sock", Act.HIDE),
        ("/tmp/nc/agents", Act.READ),
        ("/tmp/checkout/x.py", Act.READ),
        ("/home/u/editor.sock", Act.MASK),
        ("/home/u/.claude/s", Act.WRITE),
        ("/home/u/.claude/plugins/s", Act.MASK),
        ("/run/docker.sock", Act.HIDE),
        ("/run/systemd/resolve/stub-resolv.conf", Act.READ),
        ("/home/u/repo/.git/config", Act.WRITE),
        ("/home/u/repo/.git/objects/pack/p.pack", Act.WRITE),
        ("/home/u/repo/.git/shared-objects/pack/p.pack", Act.READ),
        ("/home/u/repo/.git/hooks/pre-commit", Act.READ),
        ("/home/u/repo/.git/info/exclude", Act.READ),
        ("/home/u/repo/.git/refs/heads/main", Act.WRITE),
        ("/home/u/repo/.git/worktrees/a.1/HEAD", Act.WRITE),
        ("/home/u/repo/.git/worktrees/a.1/commondir", Act.READ),
        ("/home/u/repo/README", Act.READ),
    ],
)
def test_what_becomes_of_a_path(path: str, act: Act) -> None:
    assert fate(built(), path) is act


def test_nothing_of_the_persons_repository_is_writable() -> None:
    for mount in mounts(built()):
        if mount.act is Act.WRITE:
            assert not mount.source.startswith("/home/u/repo") and not "/home/u/repo/.git".startswith(f"{mount.source}/"), mount
    assert Mount(Act.WRITE, PLACES.common_dir, PLACES.private_dir) in mounts(built())
    assert Mount(Act.READ, f"{PLACES.common_dir}/shared-objects", f"{PLACES.common_dir}/objects") in mounts(built())


def test_only_root_is_kept_from_the_files_that_steer_the_kernel() -> None:
    assert Mount(Act.READ, "/proc/sys", "/proc/sys") in mounts(built(places=replace(PLACES, root=True)))
    assert not [mount for mount in mounts(built()) if mount.path.startswith("/proc")]


def test_the_private_tmp_and_what_lies_below_it() -> None:
    steps = {mount.path: mount for mount in mounts(built())}
    assert steps["/tmp"] == Mount(Act.WRITE, "/tmp", "/home/u/state/runs/run/a/1/tmp")
    assert "/tmp/x.sock" not in steps  # it is not there any more
    assert "/usr/lib/python3" not in steps  # read-only as all of the host


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("store", ["/home/u/state/projects/p/caches", ""])
def test_who_owns_what_stands_at_each_cache(shared: bool, store: str) -> None:
    policy = built(places=replace(PLACES, shared_caches=shared, cache_store=store))
    steps, own = {mount.path: mount for mount in mounts(policy)}, f"{PLACES.attempt}/tmp/.caches"
    agents = store if shared and store else own
    for path in PLACES.agent_caches:
        assert (path, f"{agents}{path}") in policy.private
    for path in PLACES.caches:
        assert steps[path] == Mount(Act.WRITE, path, path if shared else f"{own}{path}")
    assert steps[PLACES.cache_home] == Mount(Act.WRITE, PLACES.cache_home, f"{own}{PLACES.cache_home}")
    assert {path for path in policy.writable if path.startswith("/home/u/.")} == ({"/home/u/.cargo/registry"} if shared else set())


def test_what_lies_in_a_cache_of_its_own_and_is_needed_is_seen() -> None:
    inside = replace(PLACES, foreign_sockets=("/home/u/.cache/s", "/home/u/.cache/pre-commit/s"), program=("/home/u/.cache/venv",))
    steps = {mount.path: mount for mount in mounts(built(places=inside))}
    assert "/home/u/.cache/s" not in steps, "it is not there any more"
    assert steps["/home/u/.cache/pre-commit/s"].act is Act.MASK
    assert steps["/home/u/.cache/venv"] == Mount(Act.READ, "/home/u/.cache/venv", "/home/u/.cache/venv")


def test_git_signs_nothing_and_collects_nothing() -> None:
    assert sandbox.git_settings({}) == {
        "GIT_CONFIG_COUNT": "5",
        "GIT_CONFIG_KEY_0": "commit.gpgsign", "GIT_CONFIG_VALUE_0": "false",
        "GIT_CONFIG_KEY_1": "tag.gpgsign", "GIT_CONFIG_VALUE_1": "false",
        "GIT_CONFIG_KEY_2": "gc.auto", "GIT_CONFIG_VALUE_2": "0",
        "GIT_CONFIG_KEY_3": "maintenance.auto", "GIT_CONFIG_VALUE_3": "false",
        "GIT_CONFIG_KEY_4": "core.logallrefupdates", "GIT_CONFIG_VALUE_4": "true",
    }  # fmt: skip
    assert sandbox.git_settings({"GIT_CONFIG_COUNT": ""}) == sandbox.git_settings({})


def test_what_the_environment_says_of_git_stays() -> None:
    said = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "user.name", "GIT_CONFIG_VALUE_0": "x"}
    more = sandbox.git_settings(said)
    assert not more.keys() & (said.keys() - {"GIT_CONFIG_COUNT"})
    assert (more["GIT_CONFIG_COUNT"], more["GIT_CONFIG_KEY_1"], more["GIT_CONFIG_KEY_4"]) == ("6", "commit.gpgsign", "maintenance.auto")
    asked = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "commit.gpgSign", "GIT_CONFIG_VALUE_0": "true"}
    more = sandbox.git_settings(asked)
    assert (more["GIT_CONFIG_COUNT"], more["GIT_CONFIG_KEY_1"]) == ("5", "tag.gpgsign") and "commit.gpgsign" not in more.values()
    for broken in ("x", "-1", "9" * 9):
        assert sandbox.git_settings({"GIT_CONFIG_COUNT": broken}) == {}, "git refuses it"


def test_devices_are_shown() -> None:
    assert fate(built(places=replace(PLACES, devices=("/dev/nvidia0",))), "/dev/nvidia0") is Act.DEVICE


names = st.lists(st.sampled_from(["a", "b", "a-b", "c"]), min_size=1, max_size=4).map(lambda parts: "/" + "/".join(parts))


@given(st.lists(names), st.lists(names), st.lists(names), st.lists(names))
def test_the_deepest_and_strictest_rule_holds(writable: list[str], readable: list[str], hidden: list[str], probes: list[str]) -> None:
    policy = Policy(tuple(writable), tuple(readable), tuple(hidden), "")
    rules = {**dict.fromkeys(writable, Act.WRITE), **dict.fromkeys(readable, Act.READ), **dict.fromkeys(hidden, Act.HIDE)}
    for probe in probes:
        around = [path for path in rules if probe == path or probe.startswith(path + "/")]
        assert fate(policy, probe) is (rules[max(around, key=len)] if around else Act.READ)
    order = [mount.path for mount in mounts(policy)]
    assert all(not above.startswith(below + "/") for at, above in enumerate(order) for below in order[at + 1 :])


@pytest.mark.parametrize("path", ["relative", "/a/../b", "/a//b", "/a/.", "/", "/a\0b", ""])
def test_a_path_that_is_not_plain_is_refused(path: str) -> None:
    with pytest.raises(Refused):
        mounts(Policy((path,), (), (), ""))
