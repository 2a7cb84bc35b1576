"""`nightcrew token`, and whoever looks at a token that comes by HTTP."""

from __future__ import annotations

import json
import time

from supervisor.features.api.rows import TokenBook
from supervisor.features.api.rules import Kind
from tests.cli.test_completion import words
from tests.support import House


def test_a_token_is_shown_once_and_opens_nothing_once_it_is_revoked(house: House) -> None:
    house.start_daemon()
    made = json.loads(house.ok("token", "create", "ci", "--quota", "5", "--json"))
    text, number = made["token"], made["id"]
    again = house.ok("token", "create", "gone", "--expires", "1h", "--scope", "read", "--all-repos").strip()
    secret = text.rpartition("_")[2]
    assert secret.encode() not in house.home.ledger.read_bytes() + house.home.ledger.with_name("ledger.db-wal").read_bytes()
    listed = json.loads(house.ok("token", "ls", "--json"))["tokens"]
    assert [(one["name"], one["scopes"]) for one in listed] == [("ci", ["read", "submit"]), ("gone", ["read"])]
    assert secret not in house.ok("token", "ls") and len(listed[0]["projects"]) == 1 and listed[1]["projects"] == []

    def look() -> None:
        now = [0.0]
        book = TokenBook(house.home.ledger, lambda: now[0], lambda: time.time() + now[0])
        try:
            found = book.verify(text, Kind.API)
            assert found is not None and (found.id, found.user, found.quota, found.confined) == (number, "ci", 5, True)
            for wrong in (text[:-1] + ("a" if text[-1] != "a" else "b"), text.replace(number, "f" * 12), again + "x", again, "", "nck_"):
                assert (book.verify(wrong, Kind.API) is None) is (wrong is not again)
            assert book.verify(text, Kind.DEVICE) is None and book.holder(number, Kind.API) is not None
            assert words(house, "token", "revoke", "") == ["ci", "gone"]
            house.ok("token", "revoke", "ci")
            assert words(house, "token", "revoke", "") == ["gone"]
            now[0] = 3601.0
            assert book.verify(text, Kind.API) is None and book.holder(number, Kind.API) is None
            assert book.verify(again, Kind.API) is None, "its time is over"
        finally:
            book.close()

    look()
    refused = house.run("token", "revoke", "ci")
    assert refused.returncode == 4 and "no token is called ci" in refused.stderr
    assert len(json.loads(house.ok("token", "ls", "--all", "--json"))["tokens"]) == 2


def test_without_a_ledger_nothing_opens(house: House) -> None:
    def look() -> None:
        book = TokenBook(house.home.ledger, time.monotonic, time.time)
        assert book.verify(f"nck_{'0' * 12}_{'a' * 43}", Kind.API) is None
        book.close()

    look()
    assert house.ok("token", "ls") == ""
    assert house.run("token", "create", "x" * 65).returncode == 2
