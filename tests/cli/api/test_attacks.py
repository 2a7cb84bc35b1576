"""Who has no token, a wrong one, or a browser."""

from __future__ import annotations

import contextlib
import re
import socket
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

from supervisor.views.web import serving
from tests.cli.api.kit import Served

EVERY = [("GET", "/tasks"), ("POST", "/tasks"), ("GET", "/tasks/0101-aaaa/x"), ("POST", "/tasks/0101-aaaa/x/cancel"), ("GET", "/events"),
         ("GET", "/capacity"), ("GET", "/token"), ("GET", "/repositories"), ("GET", "/tasks/0101-aaaa/x/log")]  # fmt: skip


@pytest.mark.parametrize(("method", "path"), EVERY, ids=" ".join)
def test_no_route_without_a_token_that_holds(served: Served, token: str, method: str, path: str) -> None:
    forged = token[:-1] + ("A" if token[-1] != "A" else "B")
    given: list[dict[str, str]] = [
        {}, {"Authorization": f"Bearer {forged}"}, {"Authorization": f"Basic {token}"}, {"Authorization": token},
        {"Authorization": "Bearer "},
        {"Authorization": f"Bearer {token} {token}"}, {"Cookie": f"token={token}"}, {"X-Api-Key": token},
        {"Authorization": "Bearer nct_MDEwMS1hYWFhL3g6MQ_0123456789abcdef"},
    ]  # fmt: skip
    answers = [served.ask("", method, path, {} if method == "POST" else None, headers) for headers in given]
    assert {answer.status for answer in answers} == {401}
    assert all(answer.headers["www-authenticate"].startswith("Bearer") and answer.fields == set() for answer in answers)
    assert served.ask("", "GET", f"{path}?token={token}").status in (401, 405)


def test_a_token_whose_time_is_over_opens_nothing(served: Served) -> None:
    assert served.ask(served.token("over", "--expires", "0"), "GET", "/token").status == 401


def test_pages_of_other_sites_and_rebound_names_get_nothing(served: Served, token: str) -> None:
    for headers in (
        {"Origin": "https://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"},
    ):  # fmt: skip
        assert served.submit(token).status == 201
        assert served.ask(token, "POST", "/tasks", {"command": "true"}, headers).status == 403, headers
        assert served.ask(token, "GET", "/tasks", headers=headers).status == 403, headers
    assert served.ask(token, "GET", "/tasks", headers={"Host": "evil.example"}).status == 421
    assert served.ask(token, "POST", "/tasks", {"command": "true"}, {"Content-Type": "text/plain"}).status == 415
    assert served.ask(token, "OPTIONS", "/tasks", headers={"Origin": "https://evil.example"}).status == 403
    assert not any(name.startswith("access-control") for name in served.ask(token, "GET", "/tasks").headers)


def test_a_body_of_100_mb_is_refused_unread(served: Served, token: str) -> None:
    known = serving.read(served.house.home)
    assert known is not None and known.identity is not None
    process = psutil.Process(known.identity.pid)
    before = process.memory_info().rss
    head = f"POST /api/v1/tasks HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\nAuthorization: Bearer {token}\r\n"
    head += "Content-Type: application/json\r\n"
    answer = served.wire(f"{head}Content-Length: 104857600\r\n\r\n".encode())  # nothing of it was sent
    assert re.match(rb"HTTP/1.1 413 ", answer), answer
    with socket.create_connection(("127.0.0.1", served.port), timeout=60) as connection, contextlib.suppress(OSError):
        connection.sendall(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode())
        for _ in range(100):
            connection.sendall(b"100000\r\n" + b" " * 2**20 + b"\r\n")
    assert process.memory_info().rss - before < 40 * 2**20
    assert served.ask(token, "GET", "/token").status == 200


@pytest.mark.parametrize(
    "raw", [b"", b"{", b"[]", b"null", b'{"command": NaN}', b"\xff\xfe", b"[" * 100_000, b'{"command": "\\ud800"}'], ids=repr
)
def test_what_is_no_request_is_a_problem(served: Served, token: str, raw: bytes) -> None:
    refused = served.ask(token, "POST", "/tasks", raw=raw)
    assert refused.status in (400, 422) and refused.json["status"] == refused.status and refused.fields is not None


def test_other_methods_and_addresses(served: Served, token: str) -> None:
    for method, path, status in (
        ("PUT", "/tasks", 405), ("DELETE", "/tasks", 405), ("GET", "/nope", 404), ("GET", "/tasks/x", 404), ("GET", "/tasks/%00/%0a", 404),
        ("GET", "/tasks/..%2f..%2fetc/passwd", 404), ("POST", "/capacity", 405), ("GET", "/tasks/0101-aaaa/x/result", 404),
    ):  # fmt: skip
        answer = served.ask(token, method, path, {} if method == "POST" else None)
        assert (answer.status, answer.json["status"], answer.fields) == (status, status, set()), (method, path)


def test_a_flood_is_held_and_others_are_served(served: Served, token: str) -> None:
    flooded = served.token("flood", "--scope", "read", "--rate", "5")
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda number: served.ask(flooded if number % 2 else "nck_wrong", "GET", "/token"), range(200)))
    statuses = [answer.status for answer in answers]
    assert statuses.count(401) == 100 and statuses.count(429) >= 60 and set(statuses) == {200, 401, 429}
    assert all("retry-after" in answer.headers for answer in answers if answer.status == 429)
    assert served.ask(token, "GET", "/token").status == 200


def test_a_server_that_only_shows_takes_nothing(served: Served, token: str) -> None:
    task = served.submit(token, id="shown").json["id"]
    served.stop()
    served.start("--read-only")
    try:
        assert served.submit(token).status == 403 and served.ask(token, "POST", f"/tasks/{task}/cancel").status == 403
        assert served.ask(token, "GET", f"/tasks/{task}").status == 200
    finally:
        served.stop()
        served.start()


def test_its_description_needs_no_token(served: Served) -> None:
    document = served.ask("", "GET", "/openapi.json")
    assert document.json["openapi"] == "3.1.0" and len(document.json["paths"]) == 10
    assert "default-src 'none'" in document.headers["content-security-policy"]
