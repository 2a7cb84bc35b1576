"""What tier 2 can reach: the gateway through its own loopback, named hosts through the proxy, and nothing else."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from supervisor.sandbox.executors import Executor
from supervisor.sandbox.policy import Tier, variables
from tests.host.sandbox.kit import PYTHON, House, need

CALL = "import socket; s = socket.create_connection(('127.0.0.1', 7777), 10); print(s.recv(32).decode())"
CALL_OFTEN = """
import socket
calls = [socket.create_connection(('127.0.0.1', 7777), 30) for _ in range(60)]
print(len({call.recv(32) for call in calls}), len(calls))
"""
THROUGH_AND_BACK = """
import hashlib, os, socket, threading
data = os.urandom(1 << 22)
call = socket.create_connection(('127.0.0.1', 7777), 30)
def send():
    call.sendall(data); call.shutdown(socket.SHUT_WR)
threading.Thread(target=send).start()
back = b''.join(iter(lambda: call.recv(1 << 16), b''))
print(back == data)
"""
ASK = """
import os, sys, urllib.request, urllib.error
try:
    print(urllib.request.urlopen(sys.argv[1], timeout=20).read().decode())
except urllib.error.HTTPError as error:
    print(error.code, error.read().decode())
"""


pytestmark = pytest.mark.in_turns


@pytest.fixture(params=list(Executor))
def executor(request: pytest.FixtureRequest) -> Executor:
    """Each that has tier 2 here."""
    found: Executor = request.param
    need(found, Tier.OFFLINE)
    return found


def test_the_gateway_answers_on_its_port(crew: House, executor: Executor) -> None:
    prefix = crew.prefix(executor, crew.policy(Tier.OFFLINE))
    assert crew.run(prefix, *PYTHON, "-c", CALL).stdout == "I am gateway\n"
    assert crew.run(prefix, *PYTHON, "-c", CALL_OFTEN).stdout == "1 60\n"


def test_much_goes_both_ways_at_once(crew: House, executor: Executor) -> None:
    path = str(crew.home.run_dir / "echo.sock")
    door = socket.socket(socket.AF_UNIX)
    door.bind(path)
    door.listen()
    keeper = threading.Thread(target=_echo, args=(door,))
    keeper.start()
    try:
        prefix = crew.prefix(executor, replace(crew.policy(Tier.OFFLINE), gateway_socket=path))
        assert crew.run(prefix, *PYTHON, "-c", THROUGH_AND_BACK).stdout == "True\n"
    finally:
        door.shutdown(socket.SHUT_RDWR)
        keeper.join()
        door.close()


def test_without_a_network_not_even_the_gateway(crew: House, executor: Executor) -> None:
    done = crew.run(crew.prefix(executor, crew.policy(Tier.OFFLINE, False)), *PYTHON, "-c", CALL)
    assert "ConnectionRefusedError" in done.stderr


def test_a_gateway_that_is_down_hangs_up(crew: House, executor: Executor) -> None:
    policy = replace(crew.policy(Tier.OFFLINE), gateway_socket=str(crew.home.run_dir / "nobody.sock"))
    done = crew.run(crew.prefix(executor, policy), *PYTHON, "-c", CALL)
    assert (done.stdout, "refused" in done.stderr) == ("\n", False)


def test_the_proxy_refuses_in_words(crew: House, executor: Executor) -> None:
    policy = crew.policy(Tier.OFFLINE, ("localhost",))
    names = [f"{name}={text}" for name, text in variables(policy).items() if name != "NO_PROXY" and name != "no_proxy"]
    for address, words in (("http://example.org/", "not among"), (f"http://localhost:{crew.port}/", "into this machine")):
        done = crew.run(crew.prefix(executor, policy), "env", *names, *PYTHON, "-c", ASK, address)
        assert done.stdout.startswith("403 "), done.stderr
        assert words in done.stdout


INTERNET = """
import http.server, json, os, subprocess, sys, threading
os.closerange(3, 256)
for words in ("ip link set lo up", "ip address add 11.1.1.1/32 dev lo", f"mount --bind {sys.argv[1]} /etc/hosts"):
    subprocess.run(words.split(), check=True)
class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        text = f"reached {self.headers['Host']} {self.path}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)
    def log_message(self, *_): pass
server = http.server.ThreadingHTTPServer(("11.1.1.1", 8080), Page)
threading.Thread(target=server.serve_forever, daemon=True).start()
done = subprocess.run(json.loads(sys.argv[2]), stdin=subprocess.DEVNULL)
os._exit(done.returncode)
"""
"""A machine of its own, on which 11.1.1.1 is a server in the internet."""
REACH = """
import http.client, socket, sys, urllib.request
print(urllib.request.urlopen('http://a.test:8080/plain?q=1', timeout=20).read().decode())
tunnel = http.client.HTTPConnection('127.0.0.1', int(sys.argv[1]), timeout=20)
tunnel.set_tunnel('deep.b.test', 8080)
tunnel.request('GET', '/tunnel')
print(tunnel.getresponse().read().decode())
for refused in ('c.test', '11.1.1.1'):
    try:
        print(urllib.request.urlopen(f'http://{refused}:8080/', timeout=20).read())
    except OSError as error:
        print(refused, error)
try:
    socket.create_connection(('11.1.1.1', 8080), 5)
    print('direct')
except OSError:
    print('no way around')
"""


def test_named_hosts_are_reached(crew: House, executor: Executor, tmp_path: Path) -> None:
    own = ("unshare", "--net", "--mount") if os.geteuid() == 0 else ("unshare", "--map-root-user", "--net", "--mount")
    if shutil.which("ip") is None or subprocess.run([*own, "true"], check=False).returncode:
        pytest.skip("no network of our own for the test's internet: `ip` and namespaces are needed")
    (tmp_path / "hosts").write_text("127.0.0.1 localhost\n11.1.1.1 a.test deep.b.test c.test\n")
    policy = crew.policy(Tier.OFFLINE, ("a.test", "*.b.test"))
    names = [f"{name}={text}" for name, text in variables(policy).items()]
    command = [*crew.prefix(executor, policy), "env", *names, *PYTHON, "-c", REACH, str(policy.proxy_port)]
    done = crew.run((), *own, sys.executable, "-I", "-c", INTERNET, str(tmp_path / "hosts"), json.dumps(command))
    assert done.stdout.splitlines() == [
        "reached a.test:8080 /plain?q=1",
        "reached deep.b.test:8080 /tunnel",
        "c.test HTTP Error 403: Forbidden",
        "11.1.1.1 HTTP Error 403: Forbidden",
        "no way around",
    ], done.stderr


def _echo(door: socket.socket) -> None:
    try:
        peer, _ = door.accept()
    except OSError:
        return
    with peer:
        for piece in _pieces(peer):
            peer.sendall(piece)


def _pieces(peer: socket.socket) -> Iterator[bytes]:
    while piece := peer.recv(65536):
        yield piece
