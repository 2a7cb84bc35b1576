"""What a request must pass, whoever sends it."""

from __future__ import annotations

import pytest
from multidict import CIMultiDict

from supervisor.features.api.rules import Scope
from supervisor.views.web.sessions import Access, Guard, Names, Sessions, Who

GUARD = Guard(Names(8421, ("desk.tailnet.ts.net",)))
OURS = {"Host": "127.0.0.1:8421"}
JSON = {"Content-Type": "application/json", "Content-Length": "2"}


FOREIGN = ("", "evil.com", "evil.com:8421", "127.0.0.1", "127.0.0.1:80", "localhost:8422", "127.0.0.1.evil.com:8421")
ODD = ("0.0.0.0:8421", "[::1]:8421", "127.0.0.1:8421.")


def status(method: str, **headers: str) -> int | None:
    denied = GUARD.check(method, CIMultiDict({name.replace("_", "-"): value for name, value in headers.items()}))
    return None if denied is None else denied.status


@pytest.mark.parametrize("host", ["127.0.0.1:8421", "localhost:8421", "desk.tailnet.ts.net"])
def test_it_answers_under_its_own_names(host: str) -> None:
    assert status("GET", Host=host) is None


@pytest.mark.parametrize("host", FOREIGN + ODD)
def test_a_name_that_was_rebound_to_this_machine_gets_nothing(host: str) -> None:
    assert status("GET", Host=host) == 421


@pytest.mark.parametrize(
    "origin",
    [
        "null",
        "",
        "http://evil.com",
        "https://127.0.0.1:8421",
        "http://127.0.0.1:8422",
        "http://localhost:8421.evil.com",
        "http://desk.tailnet.ts.net",
    ],
)
def test_pages_of_others_get_nothing(origin: str) -> None:
    assert status("GET", **OURS, Origin=origin) == 403
    assert status("POST", **OURS, **JSON, Origin=origin) == 403


def test_what_a_request_may_be() -> None:
    assert status("POST", **OURS, **JSON) is None
    assert status("POST", **OURS, Content_Type="text/plain") == 415
    assert status("POST", **OURS, Content_Type="application/x-www-form-urlencoded") == 415
    assert status("POST", **OURS, Content_Type="application/json", Content_Length="100000000") == 413
    assert status("GET", **OURS, Content_Length="3") == 400
    assert status("GET", **OURS, Upgrade="websocket") == 400
    assert [status(method, **OURS) for method in ("PUT", "OPTIONS", "TRACE", "CONNECT")] == [405] * 4


def test_an_act_comes_from_a_page_of_ours() -> None:
    ours = CIMultiDict({"Origin": "http://127.0.0.1:8421"})
    assert GUARD.check_site(Access.ACT, ours) is None
    assert GUARD.check_site(Access.ACT, CIMultiDict()) is not None, "who sends no Origin is no page of ours"
    for access in (Access.DATA, Access.ACT):
        assert GUARD.check_site(access, CIMultiDict({**ours, "Sec-Fetch-Site": "cross-site"})) is not None
        assert GUARD.check_site(access, CIMultiDict({**ours, "Sec-Fetch-Site": "same-site"})) is not None, "another port of this machine"


class OneToken:
    revoked = False

    async def verify(self, token: str) -> Who | None:
        return await self.holder("phone") if token == "the phone's" else None

    async def holder(self, token_id: str) -> Who | None:
        return Who("phone", "me", frozenset({Scope.READ})) if token_id == "phone" and not self.revoked else None


@pytest.mark.asyncio
async def test_a_session_is_a_cookie_and_its_own_key() -> None:
    one, two = Sessions(b"1" * 32, OneToken(), user="me"), Sessions(b"2" * 32, OneToken(), user="me")
    mine, other = await one.open(one.token), await one.open(one.token)
    assert mine is not None and other is not None and await one.open("") is None and await one.open(two.token) is None
    assert await one.who(mine.cookie) is not None and await Sessions(b"1" * 32, OneToken(), user="me").who(mine.cookie) is not None
    assert await two.who(mine.cookie) is None
    assert one.has_key(mine.cookie, mine.key) and not one.has_key(other.cookie, mine.key) and not one.has_key(mine.cookie, "")
    for forged in ("", ".", "local", "local.x.", mine.cookie[:-1], mine.cookie.replace("local", "phone"), "é.ü", "\udcff.\udcff"):
        assert await one.who(forged) is None and await one.open(forged) is None


@pytest.mark.asyncio
async def test_a_session_ends_when_its_token_is_revoked() -> None:
    tokens = OneToken()
    sessions = Sessions(b"1" * 32, tokens, user="me")
    phone = await sessions.open("the phone's")
    assert phone is not None and await sessions.open("another") is None
    who = await sessions.who(phone.cookie)
    assert who is not None and who.may(Scope.READ) and not who.may(Scope.ACT)
    tokens.revoked = True
    assert await sessions.who(phone.cookie) is None
