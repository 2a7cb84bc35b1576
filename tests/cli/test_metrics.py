"""`nightcrew metrics`: who may scrape, what, and while whom. That Prometheus does it: tests/observability."""

from __future__ import annotations

import json
import urllib.error
import urllib.request

import pytest

from tests.support import House, wait_until


def scrape(port: int, token: str) -> tuple[int, str]:
    request = urllib.request.Request(f"http://127.0.0.1:{port}/metrics", headers={"Authorization": f"Bearer {token}"})
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310 - ours
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, ""


def test_where_nobody_serves_it_says_so(house: House) -> None:
    done = house.run("metrics", "show")
    assert (done.returncode, done.stdout) == (5, "") and done.stderr.startswith(
        "nightcrew: nobody serves metrics here; next: nightcrew metrics token"
    )
    assert not house.home.root.exists(), "looking makes nothing"
    done = house.run("metrics", "config")
    assert (done.returncode, done.stdout) == (5, "") and "nobody has served metrics here yet; kept: the token" in done.stderr


def test_a_token_is_made_once_and_anew_when_asked(house: House) -> None:
    file = house.home.metrics_token
    assert json.loads(house.ok("metrics", "token", "--json")) == {"schema": 1, "file": str(file), "made": True}
    first = file.read_text()
    assert first.startswith("ncm_") and file.stat().st_mode & 0o777 == 0o600
    done = house.run("metrics", "token")
    assert (done.stdout, file.read_text()) == (f"{file}\n", first) and "was there already" in done.stderr
    house.ok("metrics", "token", "--new")
    assert file.read_text() != first and file.stat().st_mode & 0o777 == 0o600
    file.chmod(0o640)
    done = house.run("metrics", "token")
    assert done.returncode == 6 and "others can read it" in done.stderr and f"chmod 600 {file}" in done.stderr


@pytest.fixture
def served(house: House) -> int:
    """The port, with a supervisor and no provider."""
    house.start_daemon()
    house.ok("metrics", "token")
    wait_until(lambda: house.gateway() is not None, "somebody to serve the page")
    record = house.gateway()
    assert record is not None and not record.passes
    return record.port


def test_the_page_is_there_while_there_is_a_token(house: House, served: int) -> None:
    token = house.home.metrics_token.read_text().strip()
    assert f'targets: ["127.0.0.1:{served}"]' in house.ok("metrics", "config")
    wait_until(lambda: "nightcrew_supervisor_up 1.0" in scrape(served, token)[1], "the supervisor to say that it is there")
    assert "nightcrew_slots_used 0.0" in house.ok("metrics", "show") and "nightcrew_supervisor_up 1.0" in house.ok("gateway", "metrics")
    assert scrape(served, "ncm_" + "0" * 48) == (401, "")
    assert "gateway" not in house.ok("status"), "it is not one that agents are sent to"
    assert json.loads(house.ok("status", "--json"))["gateway"] is None
    house.home.metrics_token.unlink()
    assert scrape(served, token) == (401, "")
    wait_until(lambda: house.gateway() is None, "it to end")
    house.ok("metrics", "token")
    wait_until(lambda: house.gateway() is not None, "another one")
    again = house.gateway()
    assert again is not None and again.port == served
    house.ok("down")
    assert house.gateway() is None
