"""What the keys around a sandbox come to for an agent: the hosts that it may reach, the caches that it finds, and commits unsigned."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.sandbox import executors
from supervisor.sandbox.policy import Tier
from tests.server.snapshot_kit import commit
from tests.support import House, git, shell_task, wait_until

INTERNET = """
import fcntl, http.server, socket, struct, subprocess, sys
from supervisor.sandbox import exec_step

class Host(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"I am " + self.headers["host"].encode())
    def log_message(self, *_):
        pass

address, hosts = sys.argv[1:]
exec_step.loopback_up()
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as door:
    request = struct.pack("16sHH4s8x", b"lo:1", socket.AF_INET, 0, socket.inet_aton(address))
    fcntl.ioctl(door, 0x8916, request)  # SIOCSIFADDR
subprocess.run(["mount", "--bind", hosts, "/etc/hosts"], check=True)
server = http.server.ThreadingHTTPServer((address, 80), Host)
print("up", flush=True)
server.serve_forever()
"""
"""A network of two hosts, seen by nobody but who enters its namespaces."""
ADDRESS = "1.2.3.4"
HOSTS = f"127.0.0.1 localhost inside.example\n{ADDRESS} good.example below.good.example other.example\n"
SURFER = """
import http.client, json, os, socket, urllib.error, urllib.request

def plain(host):
    try:
        return urllib.request.urlopen(f"http://{host}/", timeout=30).read().decode()
    except urllib.error.HTTPError as refused:
        return refused.read().decode()

def tunnel(host):
    door = os.environ["https_proxy"].rpartition(":")[2]
    line = http.client.HTTPConnection("127.0.0.1", int(door), timeout=30)
    line.set_tunnel(host, 80)
    try:
        line.request("GET", "/")
        return line.getresponse().read().decode()
    except OSError as refused:
        return str(refused)

def direct(address):
    try:
        socket.create_connection((address, 80), timeout=30)
        return "connected"
    except OSError as refused:
        return refused.strerror

hosts = ["good.example", "below.good.example", "other.example", "inside.example"]
print(json.dumps({"plain": [plain(host) for host in hosts], "tunnel": [tunnel(host) for host in hosts], "direct": direct("1.2.3.4")}))
"""


@pytest.fixture(scope="module")
def works() -> frozenset[Tier]:
    return executors.probe().tiers


@pytest.fixture
def online(house: House, tmp_path: Path, works: frozenset[Tier]) -> Iterator[House]:
    """A house whose supervisor lives in a network with two hosts of our own, under addresses of the internet."""
    if Tier.OFFLINE not in works:
        pytest.skip("this host has no tier 2")
    (tmp_path / "hosts").write_text(HOSTS)
    user = [] if os.geteuid() == 0 else ["--user", "--map-current-user", "--keep-caps"]  # the supervisor's paths tell of its number
    internet = subprocess.Popen(
        ["unshare", *user, "--net", "--mount", sys.executable, "-I", "-c", INTERNET, ADDRESS, str(tmp_path / "hosts")],
        stdout=subprocess.PIPE,
    )
    with internet:
        try:
            assert internet.stdout is not None and internet.stdout.readline() == b"up\n"
            enter = ["nsenter", "-t", str(internet.pid), *(["--user", "--preserve-credentials"] if user else []), "--net", "--mount"]
            with living_in(house, enter):
                yield house
        finally:
            internet.kill()


@contextlib.contextmanager
def living_in(house: House, enter: list[str]) -> Iterator[None]:
    """Its supervisor, started through `enter`."""
    with (house.home.root.parent / "up.out").open("w+") as said:
        argv = [*enter, sys.executable, "-I", "-m", "supervisor.cli.main", "up"]
        daemon = subprocess.Popen(argv, cwd=house.repo, env=house.env, stdin=subprocess.DEVNULL, stdout=said, stderr=said)
        try:
            wait_until(lambda: daemon.poll() is not None or house.ready(), "the daemon to be ready")
            said.seek(0)
            assert daemon.poll() is None, said.read()
            yield
        finally:
            daemon.terminate()
            daemon.wait()


def test_a_task_reaches_the_hosts_that_it_names_and_no_other(online: House) -> None:
    commit(online, "surfer.py", SURFER)
    words = [sys.executable, "surfer.py"]
    online.ok("run", online.plan(shell_task("agent", words, network=["good.example", "*.good.example", "inside.example"])))
    said = json.loads(online.ok("logs", "agent").splitlines()[-1])
    assert online.task("agent").tier == 2
    for way in ("plain", "tunnel"):
        good, below, other, inside = said[way]
        assert (good, below) == ("I am good.example", "I am below.good.example")
        assert "403" in other or "other.example is not among the hosts" in other, other
        assert "403" in inside or "inside.example leads into this machine" in inside, inside
    assert said["direct"] == "Network is unreachable", "there is no way but the proxy"
    online.ok("add", "-f", "--id", "typed", "--network", "good.example", f"{sys.executable} surfer.py")
    typed = json.loads(online.ok("logs", "typed").splitlines()[-1])
    assert [answer[:4] == "I am" for answer in typed["plain"]] == [True, False, False, False]


# Commits ---------------------------------------------------------------------------------------------------------------------------

SIGNS = {"user.email": "home@example.invalid", "commit.gpgSign": "true", "tag.gpgSign": "true", "gpg.program": "false"}


@pytest.mark.parametrize("tier", [0, 1])
def test_who_signs_each_commit_has_agents_that_can_commit_in_a_sandbox(house: House, works: frozenset[Tier], tier: int) -> None:
    if tier not in works | {0}:
        pytest.skip("this host has no tier 1")
    for name, text in SIGNS.items():
        git(house.repo, "config", name, text)
    params = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "user.name", "GIT_CONFIG_VALUE_0": "Params"}
    house.start_daemon()
    done = house.run("run", house.plan(shell_task("agent", "git commit --allow-empty -m signed 2>&1", sandbox=tier, params=params)))
    said = house.ok("logs", "agent")
    assert (done.returncode, "gpg failed to sign the data" in said) == ((0, False) if tier else (1, True)), said
    if tier:
        assert git(house.repo, "log", "-1", "--format=%an %s", str(house.task("agent").branch)) == "Params signed"


# Caches ----------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shared", [True, False], ids=["shared", "own"])
def test_caches_are_shared_unless_the_settings_say_no(house: House, works: frozenset[Tier], shared: bool) -> None:
    if Tier.FILES not in works:
        pytest.skip("this host has no tier 1")
    home, modules = house.home.root.parent / "user", house.home.root.parent / "modules"
    places = (home / ".cargo" / "bin", home / ".cache", home / ".cache" / "pip", modules)
    for place in places:
        place.mkdir(parents=True, exist_ok=True)
        (place / "file").write_text("good")
    house.config.write_text(f"shared_caches = {str(shared).lower()}\n" + house.config.read_text())
    house.start_daemon()
    params = {"HOME": str(home), "GOMODCACHE": str(modules)}
    script = 'cat ~/.cache/pip/new; for place; do echo evil > "$place/file"; done; echo evil > ~/.cache/pip/new'
    for name in ("first", "second"):
        command = shlex.join(["sh", "-c", script, "sh", *map(str, places)])
        house.ok("run", house.plan(shell_task(name, command, sandbox=1, params=params)))
    assert ("evil" in house.ok("logs", "second").splitlines()) is shared, "the agents of a project share their own"
    found = [(place / "file").read_text().strip() for place in places]
    assert found == ["good", "good", "good", "evil" if shared else "good"]
    assert not (home / ".cache" / "pip" / "new").exists()
