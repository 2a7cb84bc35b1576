"""The way out of tier 2: which names, which addresses, and what a request becomes."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Sequence

import pytest

from supervisor.sandbox import egress_proxy


@pytest.mark.parametrize(
    ("host", "names", "allowed"),
    [
        ("example.org", ["example.org"], True),
        ("EXAMPLE.org.", ["Example.ORG"], True),
        ("a.example.org", ["example.org"], False),
        ("a.example.org", ["*.example.org"], True),
        ("a.b.example.org", ["*.example.org"], True),
        ("example.org", ["*.example.org"], False),
        ("badexample.org", ["*.example.org", "example.org"], False),
        ("example.org.evil", ["example.org", "*.example.org"], False),
        ("", ["*"], False),
        ("a", ["*"], False),
        ("a", [], False),
    ],
)
def test_names(host: str, names: Sequence[str], allowed: bool) -> None:
    assert egress_proxy.allowed(host, names) is allowed


@pytest.mark.parametrize("address", ["1.1.1.1", "2606:4700::1111", "64:ff9b::101:101", "2002:101:101::1"])
def test_addresses_of_the_internet(address: str) -> None:
    assert egress_proxy.public(address)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "127.8.8.8", "0.0.0.1", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "224.0.0.1",
        "255.255.255.255",
        "::1", "::", "fe80::1%eth0", "fc00::1", "ff02::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::7f00:1", "64:ff9b::a00:1",
        "2002:7f00:1::1", "2001:0:1::1",
    ],
)  # fmt: skip
def test_addresses_of_this_machine_and_its_network(address: str) -> None:
    assert not egress_proxy.public(address)


@pytest.fixture
def proxy() -> Iterator[socket.socket]:
    """A connection to the proxy that lets two names through: one that leads to this machine, and one that leads nowhere."""
    ours, theirs = socket.socketpair()
    names = ["localhost", "nowhere.invalid"]

    def attend() -> None:
        with theirs:
            egress_proxy.serve(theirs, names)

    keeper = threading.Thread(target=attend)
    keeper.start()
    with ours:
        yield ours
    keeper.join()


def answer(proxy: socket.socket, request: bytes) -> str:
    proxy.sendall(request)
    proxy.shutdown(socket.SHUT_WR)
    return b"".join(iter(lambda: proxy.recv(4096), b"")).decode()


@pytest.mark.parametrize(
    ("request_", "status", "words"),
    [
        (b"CONNECT example.org:443 HTTP/1.1\r\n\r\n", 403, "not among the hosts"),
        (b"GET http://example.org/ HTTP/1.1\r\n\r\n", 403, "not among the hosts"),
        (b"CONNECT localhost:22 HTTP/1.1\r\n\r\n", 403, "into this machine"),
        (b"GET http://localhost:8080/x HTTP/1.1\r\nHost: example.org\r\n\r\n", 403, "into this machine"),
        (b"CONNECT nowhere.invalid:443 HTTP/1.1\r\n\r\n", 502, "has no address"),
        (b"GET http://user@localhost@example.org/ HTTP/1.1\r\n\r\n", 403, "not among the hosts"),
        (b"GET ftp://localhost/ HTTP/1.1\r\n\r\n", 400, "only CONNECT"),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, "only CONNECT"),
        (b"CONNECT localhost HTTP/1.1\r\n\r\n", 400, "only CONNECT"),
        (b"CONNECT localhost:99999 HTTP/1.1\r\n\r\n", 400, "not a request"),
        (b"nonsense\r\n\r\n", 400, "not a request"),
        (b"half a head", 400, "no whole request head"),
    ],
)
def test_refusals_say_why(proxy: socket.socket, request_: bytes, status: int, words: str) -> None:
    said = answer(proxy, request_)
    assert said.startswith(f"HTTP/1.1 {status} ")
    assert words in said


def test_a_plain_request_becomes_one_to_a_server() -> None:
    head = (
        b"GET http://a.example:81/p?q=1 HTTP/1.1\r\nHost: other.example\r\nProxy-Authorization: x\r\nAccept: */*\r\nConnection: keep-alive"
    )
    host, port, onward = egress_proxy._understand(head)
    assert (host, port) == ("a.example", 81)
    assert onward == b"GET /p?q=1 HTTP/1.1\r\nHost: a.example:81\r\nAccept: */*\r\nConnection: close\r\n\r\n"
