"""What any program of this machine can send: no token, no manners."""

from __future__ import annotations

import os
import resource
import socket

import pytest

from supervisor.views.web import serving
from supervisor.views.web.server import CROWD
from tests.cli.api.kit import Served
from tests.support import wait_until
from tests.web.independent.attacker import Attacker
from tests.web.independent.wire import Wire, replies

BODY = b"2\r\n{}\r\n0\r\n\r\n"
SMUGGLED = {
    "both lengths": ({"Content-Length": "4", "Transfer-Encoding": "chunked"}, b"0\r\n\r\n"),
    "both, other way round": ({"Transfer-Encoding": "chunked", "Content-Length": "3"}, BODY),
    "an unknown coding": ({"Transfer-Encoding": "xchunked"}, BODY),
    "chunked not last": ({"Transfer-Encoding": "chunked, identity"}, BODY),
    "two lengths": ({"Content-Length": "2", "content-length": "3"}, b"{}"),
    "a sign": ({"Content-Length": "+2"}, b"{}"),
    "a list of lengths": ({"Content-Length": "2, 2"}, b"{}"),
    "a folded header": ({"Content-Length": "2", "X-Long": "a\r\n b"}, b"{}"),
    "a blank before the colon": ({"Content-Length ": "2"}, b"{}"),
    "a bare CR": ({"X-Long": "a\rHost: evil.example", "Content-Length": "2"}, b"{}"),
    "a NUL": ({"X-Long": "a\0b", "Content-Length": "2"}, b"{}"),
    "a bad chunk": ({"Transfer-Encoding": "chunked"}, b"0x2\r\n{}\r\n0\r\n\r\n"),
    "chunks ended by LF": ({"Transfer-Encoding": "chunked"}, b"2\n{}\n0\n\n"),
    "another Host in a trailer": ({"Transfer-Encoding": "chunked"}, b"2\r\n{}\r\n0\r\nHost: evil.example\r\n\r\n"),
}


@pytest.fixture(scope="module")
def session(served: Served, attacker: Attacker) -> dict[str, str]:
    """Of the person, with what a page of ours sends."""
    printed = served.house.ok("web").split()[0]
    return {**attacker.enter(printed.removeprefix(served.url)), "Origin": served.url}


@pytest.mark.parametrize("how", SMUGGLED)
def test_a_second_request_is_never_smuggled_in(served: Served, session: dict[str, str], how: str) -> None:
    """A body that two readers could end in two places is refused, and what comes after it is not read."""
    wire, (headers, body) = Wire(served.port), SMUGGLED[how]
    hidden = wire.head("GET", "/data/maps", session)
    first = wire.head("POST", "/act/kill", {**session, "Content-Type": "application/json", "Connection": "keep-alive", **headers})
    assert [reply.status for reply in replies(wire.raw(first + body + hidden))] == [400]


@pytest.mark.parametrize("host", ["evil.example", "LOCALHOST", "localhost.", "127.1", "[::1]", "0x7f.1", "user@127.0.0.1", "127.0.0.1."])
def test_another_name_gets_nothing(served: Served, session: dict[str, str], host: str) -> None:
    assert Wire(served.port).ask("GET", "/data/maps", {**session, "Host": f"{host}:{served.port}"}).status == 421


def test_two_hosts_or_none(served: Served, session: dict[str, str]) -> None:
    wire = Wire(served.port)
    for host in ({"Host": "-"}, {"host": "evil.example"}):
        assert [one.status for one in replies(wire.raw(wire.head("GET", "/data/maps", {**session, **host})))] == [400]


@pytest.mark.parametrize(("headers", "status"), [({"Content-Length": "0" * 5000 + "2"}, 400), ({"Content-Encoding": "gzip"}, 415)])
def test_a_body_that_is_not_as_it_says(
    served: Served, session: dict[str, str], attacker: Attacker, headers: dict[str, str], status: int
) -> None:
    wire = Wire(served.port)
    for path, who in (("/act/kill", session), ("/api/v1/tasks", {"Authorization": f"Bearer {attacker.token}"})):
        reply = wire.ask("POST", path, {**who, **headers}, b"{}")
        assert reply.status < 500 and reply.status >= 400, reply
        if status == 415:
            assert reply.status == 415 and reply.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("place", ["1:99999999999999999999999999", "1:9223372036854775808", "1:9223372036854775807", "2:0", "²:0", "-1:0"])
def test_a_log_from_nowhere_is_one_answer(attacker: Attacker, place: str) -> None:
    """The first of these once ended in a second answer inside the first."""
    task = attacker.api("POST", "/tasks", {"command": "true"}, Idempotency_Key="nowhere").json["id"]
    attacker.api("GET", f"/tasks/{task}/wait?timeout=60")
    reply = attacker.api("GET", f"/tasks/{task}/log", Last_Event_ID=place)
    assert b"HTTP/1.1" not in reply.body and reply.status in (200, 422)
    assert reply.status == 422 or b"event: end" in reply.body


def test_what_strangers_send_is_not_logged(served: Served, session: dict[str, str]) -> None:
    """It would fill the terminal of who serves, and once it showed there a session with its key."""
    wire = Wire(served.port)
    wire.raw(wire.head("GET", "/data/maps", session).replace(b"\r\n", b"\n"))
    wire.raw(bytes.fromhex("16030100a5010000a10303") + os.urandom(200), quiet_s=1)
    assert wire.ask("GET", "/data/maps", session).status == 200
    said = (served.house.home.root.parent / "web.out").read_text()
    assert "Traceback" not in said and session["X-Nightcrew-Key"] not in said


def test_a_crowd_that_says_nothing_keeps_nobody_out(served: Served, session: dict[str, str], attacker: Attacker) -> None:
    """Once 1024 silent connections of any program here were the end of the page."""
    known = serving.read(served.house.home)
    assert known is not None and known.identity is not None
    server = known.identity.pid
    soft, hard = resource.prlimit(server, resource.RLIMIT_NOFILE)
    room = min(soft, 2 * CROWD)
    if resource.getrlimit(resource.RLIMIT_NOFILE)[0] < room + 200:
        pytest.skip("this process may not have as many open files")
    resource.prlimit(server, resource.RLIMIT_NOFILE, (room, hard))
    crowd: list[socket.socket] = []
    try:
        for number in range(room + 50):
            crowd.append(Wire(served.port).connect())
            if number % 2:
                crowd[-1].sendall(b"GET / HTTP/1.1\r\nHost: ")
        # As many as are no crowd may stay for a minute, beside what the server itself has open.
        wait_until(lambda: len(os.listdir(f"/proc/{server}/fd")) < CROWD + 100, "the silent ones to be let go")
        assert Wire(served.port).ask("GET", "/data/maps", session).status == 200
        assert attacker.api("GET", "/token").status == 200
    finally:
        for one in crowd:
            one.close()
        resource.prlimit(server, resource.RLIMIT_NOFILE, (soft, hard))


def test_who_answers_proves_itself_before_it_gets_the_key(served: Served, session: dict[str, str]) -> None:
    """For one address and one question: what another server was told is worth nothing to it."""
    wire, asked = Wire(served.port), f"/data/proof?nonce={'a' * 32}"
    cookie = {"Cookie": session["Cookie"]}
    here = wire.ask("GET", asked, cookie)
    there = wire.ask("GET", asked, {**cookie, "Host": f"localhost:{served.port}"})
    other = wire.ask("GET", f"/data/proof?nonce={'b' * 32}", cookie)
    assert len({one.json["proof"] for one in (here, there, other)}) == 3 and session["X-Nightcrew-Key"] not in here.json.values()
    assert wire.ask("GET", asked).status == 401 and wire.ask("GET", "/data/proof?nonce=1", cookie).status == 400
    assert wire.ask("GET", asked, {**cookie, "Host": f"127.0.0.1:{served.port + 1}"}).status == 421


def test_a_page_of_another_port_opens_none_of_ours(served: Served, session: dict[str, str]) -> None:
    """Browsers send it the cookie; with an address of its making it once put another key in place of the right one."""
    wire, cookie = Wire(served.port), {"Cookie": session["Cookie"]}
    assert wire.ask("GET", "/", {**cookie, "Sec-Fetch-Site": "same-site"}).status == 403
    assert wire.ask("GET", "/", {**cookie, "Sec-Fetch-Site": "same-origin"}).status == 200


@pytest.mark.parametrize("text", ['"\\ud800"', '"a\\udfff"', '"\\u0000"', "null", "1e400", "[]"])
def test_a_text_that_is_none_is_said(served: Served, session: dict[str, str], text: str) -> None:
    """Half a character was an error of the server's."""
    wire = Wire(served.port)
    for act in ("send", "go-on", "comment", "verdict"):
        body = f'{{"task": "0101-aaaa/x", "tasks": ["0101-aaaa/x"], "tip": "x", "path": "x", "verdict": "x", "line": 1, "text": {text}}}'
        assert wire.ask("POST", f"/act/{act}", session, body.encode()).status == 400, act


@pytest.mark.soak
def test_a_body_that_does_not_come_holds_no_connection_for_ever(attacker: Attacker) -> None:
    wire = attacker.wire
    headers = {"Authorization": f"Bearer {attacker.token}", "Content-Type": "application/json", "Content-Length": "1000"}
    [reply] = replies(wire.raw(wire.head("POST", "/api/v1/tasks", headers) + b"{", quiet_s=60))
    assert reply.status == 400 and reply.is_problem
