"""What an agent reaches in each tier, as the supervisor really starts it: cold or forked, in a worktree of its own or on a snapshot."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.host import files
from supervisor.sandbox import executors
from supervisor.sandbox.policy import Tier
from tests.gateway.kit import know_prices, upstream
from tests.gateway.simulator import Simulator
from tests.server.snapshot_kit import commit, states
from tests.support import House, git, make_repository, shell_task, wait_until

AGENT = r'''
"""Tries everything in PLACES and says what it could; then does its own work."""
import json, os, socket, subprocess, sys, urllib.request
P = json.load(open("places.json"))

def read(path): open(path, "rb").read(1)
def write(path): open(path, "a").write("forged")
def connect(path):
    with socket.socket(socket.AF_UNIX) as door:
        door.settimeout(5)
        door.connect(path)
def reach(port):
    socket.create_connection(("127.0.0.1", port), timeout=5).close()
def ask():
    body = {"model": "claude-opus-4-8", "max_tokens": 50, "messages": [{"role": "user", "content": "hello"}]}
    headers = {"authorization": "Bearer " + os.environ["ANTHROPIC_AUTH_TOKEN"], "content-type": "application/json"}
    request = urllib.request.Request(os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages", json.dumps(body).encode(), headers)
    assert json.load(urllib.request.urlopen(request, timeout=60))["content"]
def sh(*words):
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
def commit():
    open("work", "w").write("work")
    sh("git", "add", "work")
    sh("git", "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "work")

own = P["attempt"] + os.environ["NIGHTCREW_TASK"] + "/" + os.environ["NIGHTCREW_EPOCH"]
tries = {
    "ledger": lambda: read(P["state"] + "/ledger.db"),
    "secret": lambda: read(P["state"] + "/secret"),
    "key": lambda: read(P["state"] + "/keys/sim.key"),
    "neighbour": lambda: read(P["neighbour"] + "/README"),
    "own orders": lambda: read(own + "/launch.spec"),
    "forge": lambda: write(own + "/exit.json.forged"),
    "checkout": lambda: write(P["repo"] + "/forged"),
    "hook": lambda: write(P["repo"] + "/.git/hooks/post-commit"),
    "daemon.sock": lambda: connect(P["run"] + "/daemon.sock"),
    "tmux.sock": lambda: connect(P["run"] + "/tmux.sock"),
    "host's loopback": lambda: reach(P["port"]),
    "commit": commit,
    "out": lambda: write(os.environ["NIGHTCREW_OUT"] + "/answer"),
    "tmp": lambda: write("/tmp/own-file") if P["tier"] else write(os.environ["TMPDIR"] + "/own-file"),
    "quota": lambda: sh(sys.executable, "-I", "-m", "supervisor.cli.main", "quota", "tickets"),
    "our packages": lambda: sh(sys.executable, "-I", "-c", "import nightcrew.plugins.analyze, supervisor, worktrees"),
    "gateway": ask,
}
could = {}
for name, attempt in tries.items():
    try:
        attempt()
        could[name] = ""
    except Exception as error:
        could[name] = f"{type(error).__name__}: {error}"
print(json.dumps({"could": could, "warm": "colorsys" in sys.modules}))
'''
KEPT_BY_FILES = {
    "ledger", "secret", "key", "neighbour", "own orders", "forge", "hook", "daemon.sock", "tmux.sock",
}  # fmt: skip
KEPT_BY_OFFLINE = KEPT_BY_FILES | {"host's loopback"}
WORK = {"commit", "out", "tmp", "quota", "our packages", "gateway"}
SNAPSHOTS = """
[snapshot.cold]
setup = ["mkdir -p .venv && echo dependency > .venv/module"]
[snapshot.warm]
kind = "memory"
preload = ["colorsys"]
"""


@pytest.fixture(scope="module")
def works() -> frozenset[Tier]:
    return executors.probe().tiers


@contextlib.contextmanager
def a_guarded(house: House) -> Iterator[House]:
    """A house with a gateway, a quota, a neighbour that has work, and what the agent needs to find it all."""
    (house.repo / ".gitignore").write_text(".venv/\n")
    commit(house, "nightcrew.toml", SNAPSHOTS)
    (house.repo / "agent.py").write_text(AGENT)
    files.private_dir(house.home.root)
    know_prices(house.home)
    with Simulator() as sim:
        more = '[quota.tickets]\nrate = "3600/min"\nburst = 100\n' + upstream(house.home, sim.url)
        house.config.write_text('grace = "1s"\n[limits]\ndisk_free_min = 0\n' + more)
        house.start_daemon()
        house.ok("add", "-f", "--id", "neighbour", "echo work > file")
        shape = {
            "state": str(house.home.root), "attempt": f"{house.home.root}/runs/", "run": str(house.home.run_dir),
            "neighbour": house.task("neighbour").worktree, "repo": str(house.repo), "port": int(sim.url.rpartition(":")[2]),
        }  # fmt: skip
        (house.repo / "places.json").write_text(json.dumps(shape))
        yield house


@pytest.fixture(scope="module")
def visited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """One for all whose agents come one after the other and leave nothing but what they were to do."""
    root = tmp_path_factory.mktemp("visited")
    house = House(root, make_repository(root / "repo"))
    try:
        with a_guarded(house):
            yield house
    finally:
        house.reap()


def tried(house: House, tier: int, snapshot: str) -> dict[str, str]:
    """What the agent came to: each attempt and why it failed, or nothing."""
    places = json.loads((house.repo / "places.json").read_text())
    commit(house, "places.json", json.dumps({**places, "tier": tier, "snapshot": snapshot}))
    start = {"snapshot": snapshot} if snapshot else {}
    if snapshot and not states(house, snapshot):
        house.ok("snapshot", "create", snapshot)
    house.ok("run", house.plan(shell_task("agent", [sys.executable, "agent.py"], sandbox=tier, **start)))
    said = json.loads(house.ok("logs", "agent").splitlines()[-1])
    assert said["warm"] == (snapshot == "warm")
    return dict(said["could"])


@pytest.mark.one_in(4)
@pytest.mark.parametrize("snapshot", ["", "cold", "warm"], ids=["plain", "files", "memory"])
@pytest.mark.parametrize("tier", [0, 1, 2])
def test_each_tier_keeps_what_it_says_and_lets_work_be_done(visited: House, works: frozenset[Tier], tier: int, snapshot: str) -> None:
    if tier not in works:
        pytest.skip("this host cannot")
    forged = visited.repo / "forged"
    forged.unlink(missing_ok=True)
    could = tried(visited, tier, snapshot)
    assert forged.exists() == (tier == 0), "inside, /tmp is another one, and it could write there"
    kept = {name for name, why in could.items() if why and name != "checkout"}
    expected = {0: set(), 1: KEPT_BY_FILES, 2: KEPT_BY_OFFLINE}[tier]
    assert kept == expected, {name: could[name] for name in kept ^ expected}
    assert not kept & WORK
    view = visited.task("agent")
    assert git(visited.repo, "show", f"{view.branch}:work") == "work"
    assert (visited.home.attempt(view.id, view.epoch) / "out" / "answer").read_text() == "forged"
    left = list((visited.repo / ".git" / "refs").rglob("*.lock"))
    assert left == [], "what kept the branch's directory goes with the attempt"


def test_what_is_not_asked_for_is_confined_and_said_to_be(visited: House, works: frozenset[Tier]) -> None:
    if Tier.FILES not in works:
        pytest.skip("this host cannot")
    visited.ok("add", "-f", "--id", "agent", f"cat {visited.home.root}/secret && exit 9; ls -A {visited.home.root} | wc -l")
    assert visited.state("agent") == "done" and int(visited.ok("logs", "agent").split()[-1]) <= 5, "the paths that lead to its own"


def test_a_task_that_limits_its_network_gets_a_tier_that_can(visited: House, works: frozenset[Tier]) -> None:
    if Tier.OFFLINE not in works:
        pytest.skip("this host cannot")
    port = json.loads((visited.repo / "places.json").read_text())["port"]
    probe = f"{sys.executable} -c \"import socket; socket.create_connection(('127.0.0.1', {port}), timeout=5)\""
    visited.ok("run", visited.plan(shell_task("agent", f"{probe} 2>&1 && exit 9; exit 0", network=False)))
    assert "Connection refused" in visited.ok("logs", "agent")
    refused = visited.run("run", visited.plan(shell_task("odd", "true", network=False, sandbox=1)))
    assert refused.returncode == 3 and "network" in refused.stderr, refused.stderr
    assert visited.state("odd") == "none"


def test_nothing_is_left_of_a_killed_agents_tree(visited: House, works: frozenset[Tier]) -> None:
    if Tier.FILES not in works:
        pytest.skip("this host cannot")
    endless = "(setsid sh -c 'sleep 600' &) ; (setsid setsid sleep 601 &) ; touch begun; sleep 602"
    visited.ok("run", "-d", visited.plan(shell_task("agent", endless, sandbox=1)))
    wait_until(lambda: (where := visited.task("agent").worktree) and Path(where, "begun").exists(), "it to begin")
    visited.ok("kill", "agent")
    visited.wait_final()
    assert visited.state("agent") == "cancelled"
    wait_until(lambda: not visited.tagged(), "its tree to be gone")


# A host without one ---------------------------------------------------------------------------------------------------------------


@pytest.fixture
def poor(house: House) -> House:
    """Its supervisor runs where no sandbox can be built: as an ordinary user to whom namespaces are denied, without bubblewrap."""
    if os.geteuid() != 0:
        pytest.skip("only root can deny namespaces to a process")
    house.config.write_text('grace = "1s"\n[limits]\ndisk_free_min = 0\n')
    return house


def test_a_host_without_a_sandbox_is_told_of_loudly_and_refuses_what_is_asked(poor: House, tmp_path: Path) -> None:
    """CAP_SYS_ADMIN and bubblewrap are taken away, and the limit on user namespaces is 0 in a user namespace of the test's own."""
    (tmp_path / "bin").mkdir()
    for name in ("git", "tmux", "sh", "true", "env", "cat", "setpriv", "unshare"):
        (tmp_path / "bin" / name).symlink_to(subprocess.run(["which", name], capture_output=True, text=True, check=True).stdout.strip())
    deny = 'echo 0 > /proc/sys/user/max_user_namespaces && exec setpriv --bounding-set -all --inh-caps -all --no-new-privs -- "$@"'
    argv = ["unshare", "--user", "--map-root-user", "sh", "-c", deny, "sh", sys.executable, "-I", "-m", "supervisor.cli.main", "up"]
    log = tmp_path / "poor.out"
    with log.open("wb") as out:
        daemon = subprocess.Popen(
            argv, cwd=poor.repo, env={**poor.env, "PATH": str(tmp_path / "bin")}, stdin=subprocess.DEVNULL, stdout=out, stderr=out
        )
    try:
        wait_until(lambda: daemon.poll() is not None or poor.ready(), "the daemon to be ready")
        assert daemon.poll() is None, log.read_text()
        assert "no sandbox works here, agents run with all your rights (tier 0)" in log.read_text()
        poor.ok("add", "-f", "--id", "plain", "true")
        asked = poor.run("run", poor.plan(shell_task("asked", "true", sandbox=1)))
        assert asked.returncode == 1 and "this host cannot isolate a task as it asks tier 1" in poor.task("asked").reason
        offline = poor.run("run", poor.plan(shell_task("offline", "true", network=False)))
        assert offline.returncode == 1 and "this host cannot isolate" in poor.task("offline").reason
    finally:
        daemon.terminate()
        daemon.wait()


# At a terminal --------------------------------------------------------------------------------------------------------------------

TERMINAL = """
import os, signal, sys, time
out = os.environ["NIGHTCREW_OUT"]

def size(*_):
    with open(f"{out}/size.new", "w") as file:
        file.write("{0.columns}x{0.lines}".format(os.get_terminal_size(0)))
    os.rename(f"{out}/size.new", f"{out}/size")

signal.signal(signal.SIGWINCH, size)
open("/dev/tty").close()
with open(f"{out}/began", "w") as file:
    file.write("warm" if "colorsys" in sys.modules else "cold")
size()
try:
    while True:
        time.sleep(0.02)
except KeyboardInterrupt:
    sys.exit(5)
"""


def test_a_confined_agent_has_its_terminal_ctrl_c_and_resizes(house: House, works: frozenset[Tier]) -> None:
    """One that starts cold, and one that is forked."""
    if Tier.FILES not in works:
        pytest.skip("this host cannot")
    commit(house, "nightcrew.toml", SNAPSHOTS)
    commit(house, "agent.py", TERMINAL)
    house.start_daemon()
    keys = {"kind": "terminal", "sandbox": 1}
    words = [sys.executable, "agent.py"]
    house.ok("snapshot", "create", "warm")
    house.ok("run", "-d", house.plan(shell_task("cold", words, **keys) + shell_task("warm", words, snapshot="warm", **keys)))
    for name in ("cold", "warm"):
        _has_its_terminal(house, name)
    house.wait_final()
    for name in ("cold", "warm"):
        assert (house.state(name), house.task(name).reason) == ("failed", "failed: exit code 5")


def _has_its_terminal(house: House, name: str) -> None:
    where = house.home.attempt(house.task(name).id, 1) / "out"
    wait_until((where / "size").exists, "it to begin")
    assert (where / "began").read_text() == name
    tmux = ["tmux", "-S", str(house.home.tmux_socket)]
    session = f"={house.task(name).id.replace('/', '_')}_1:"
    subprocess.run([*tmux, "resize-window", "-t", session, "-x", "77", "-y", "33"], check=True)
    wait_until(lambda: (where / "size").read_text() == "77x33", "it to hear of the new size")
    subprocess.run([*tmux, "send-keys", "-t", session, "C-c"], check=True)
