"""Test which keys of a renewed login come back to the person's file, and which never do."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.sandbox.policy import AHEAD_MAX_MS, LOGIN_MAX, LOGINS, directories, is_left_out, renewed

NOW = 1_800_000_000_000
CLAUDE: dict[str, Any] = {
    "claudeAiOauth": {"accessToken": "old-a", "refreshToken": "old-r", "expiresAt": NOW, "scopes": ["user"], "subscriptionType": "max"},
    "mcpOAuth": {"docs|1": {"serverUrl": "https://docs.example", "accessToken": "m-old", "refreshToken": "m-r", "expiresAt": NOW}},
}
CODEX = {
    "OPENAI_API_KEY": None,
    "tokens": {"id_token": "i1", "access_token": "a1", "refresh_token": "r1", "account_id": "me"},
    "last_refresh": "2026-11-20T10:00:00.123456789Z",
}
GOOGLE = {"access_token": "a1", "refresh_token": "r1", "scope": "s", "token_type": "Bearer", "id_token": "i", "expiry_date": NOW}
QWEN = {"access_token": "a1", "refresh_token": "r1", "token_type": "Bearer", "resource_url": "portal.example", "expiry_date": NOW}
OPENCODE = {
    "anthropic": {"type": "oauth", "refresh": "r1", "access": "a1", "expires": NOW},
    "other": {"type": "api", "key": "k1"},
    "https://known.example": {"type": "wellknown", "key": "K", "token": "t1"},
}


def changed(shape: dict[str, Any], **leaves: Any) -> dict[str, Any]:
    """A copy with other values, named by the keys that lead to them: `a__b`."""
    made: dict[str, Any] = json.loads(json.dumps(shape))
    for path, value in leaves.items():
        *above, last = path.split("__")
        at = made
        for name in above:
            at = at[name]
        at[last] = value
    return made


def merged(usual: str, real: Any, own: Any) -> Any:
    found = renewed(LOGINS[usual], json.dumps(real).encode(), json.dumps(own).encode(), NOW)
    return json.loads(found) if found is not None else None


@pytest.mark.parametrize(
    ("usual", "real", "leaves"),
    [
        (
            ".claude/.credentials.json",
            CLAUDE,
            {
                "claudeAiOauth__accessToken": "new-a",
                "claudeAiOauth__refreshToken": "new-r",
                "claudeAiOauth__expiresAt": NOW + 1,
            },
        ),
        (".codex/auth.json", CODEX, {"tokens__access_token": "a2", "last_refresh": "2026-11-21T10:00:00.5Z"}),
        (".gemini/oauth_creds.json", GOOGLE, {"access_token": "a2", "expiry_date": NOW + 3600}),
        (".qwen/oauth_creds.json", QWEN, {"access_token": "a2", "refresh_token": "r2", "expiry_date": NOW + 3600}),
        (".local/share/opencode/auth.json", OPENCODE, {"anthropic__access": "a2", "anthropic__expires": NOW + 3600}),
    ],
)
def test_renewed_tokens_come_back_and_what_else_the_copy_says_does_not(usual: str, real: Any, leaves: dict[str, Any]) -> None:
    wanted = changed(real, **leaves)
    assert merged(usual, real, wanted) == wanted
    more = changed(wanted, evil={"command": "sh"}, resource_url="evil.example", env={"LD_PRELOAD": "x"})
    assert merged(usual, real, more) == wanted, "nothing is added, and what is no token stays"
    assert merged(usual, wanted, real) is None, "an older one never replaces a newer one"
    assert merged(usual, real, real) is None


def test_a_copy_without_a_value_leaves_the_persons() -> None:
    own = changed(GOOGLE, access_token="a2", expiry_date=NOW + 1)
    del own["refresh_token"]
    assert merged(".gemini/oauth_creds.json", GOOGLE, own) == changed(GOOGLE, access_token="a2", expiry_date=NOW + 1)


@pytest.mark.parametrize(
    "leaves",
    [
        {"claudeAiOauth__accessToken": ["sh"]},
        {"claudeAiOauth__accessToken": ""},
        {"claudeAiOauth__accessToken": "a b"},
        {"claudeAiOauth__accessToken": "a\nb"},
        {"claudeAiOauth__accessToken": "\u202e"},
        {"claudeAiOauth__accessToken": "a" * 20_000},
        {"claudeAiOauth__refreshToken": {"x": 1}},
        {"claudeAiOauth__expiresAt": NOW},
        {"claudeAiOauth__expiresAt": NOW + AHEAD_MAX_MS + 1},
        {"claudeAiOauth__expiresAt": str(NOW + 5)},
        {"claudeAiOauth__expiresAt": True},
        {"claudeAiOauth__expiresAt": 1e400},
        {"claudeAiOauth": "x"},
    ],
)
def test_what_is_no_renewal_changes_nothing(leaves: dict[str, Any]) -> None:
    own = changed(CLAUDE, claudeAiOauth__accessToken="new", claudeAiOauth__expiresAt=NOW + 1)
    assert merged(".claude/.credentials.json", CLAUDE, own) is not None, "this one is"
    assert merged(".claude/.credentials.json", CLAUDE, changed(own, **leaves)) is None


@pytest.mark.parametrize("own", [b"", b"{", b"[]", b"[" * 100_000, b'{"x":"' + b"x" * LOGIN_MAX + b'"}', b"\xff\xfe", b"NaN"])
def test_what_is_no_file_with_logins_changes_nothing(own: bytes) -> None:
    assert renewed(LOGINS[".claude/.credentials.json"], json.dumps(CLAUDE).encode(), own, NOW) is None
    assert renewed(LOGINS[".claude/.credentials.json"], own, json.dumps(CLAUDE).encode(), NOW) is None


values = st.recursive(st.none() | st.booleans() | st.floats() | st.integers() | st.text(), lambda inner: st.lists(inner), max_leaves=4)


@given(
    st.dictionaries(
        st.sampled_from([*CLAUDE["claudeAiOauth"], "evil"]),
        values | st.integers(NOW, NOW + 10**9) | st.text("ab", min_size=1),
        max_size=6,
    ),
    st.dictionaries(st.sampled_from(["mcpOAuth", "hooks", "env"]), values, max_size=2),
)
def test_whatever_an_agent_writes_only_tokens_change(login: dict[str, Any], more: dict[str, Any]) -> None:
    found = merged(".claude/.credentials.json", CLAUDE, {**CLAUDE, **more, "claudeAiOauth": {**CLAUDE["claudeAiOauth"], **login}})
    if found is None:
        return
    assert found.keys() == CLAUDE.keys() and found["mcpOAuth"] == CLAUDE["mcpOAuth"]
    now, before = found["claudeAiOauth"], CLAUDE["claudeAiOauth"]
    assert now.keys() == before.keys() and (now["scopes"], now["subscriptionType"]) == (before["scopes"], before["subscriptionType"])
    assert all(type(now[name]) is type(before[name]) or name == "expiresAt" for name in now)


def test_a_file_keeps_its_layout() -> None:
    own = json.dumps(changed(QWEN, access_token="a2", expiry_date=NOW + 1)).encode()
    groups = LOGINS[".qwen/oauth_creds.json"]
    assert b"\n" in (renewed(groups, json.dumps(QWEN, indent=2).encode(), own, NOW) or b"")
    assert b"\n" not in (renewed(groups, json.dumps(QWEN).encode() + b"\n", own, NOW) or b"\n")


def test_places_that_variables_name_are_places_too() -> None:
    said = {"CLAUDE_CONFIG_DIR": "/c", "XDG_CONFIG_HOME": "/x/", "GEMINI_CLI_HOME": "/g", "CODEX_HOME": "relative", "XDG_CACHE_HOME": "/k"}
    found = dict(directories("/h", said))
    assert {"/c": ".claude", "/h/.claude": ".claude", "/x/opencode": ".config/opencode", "/g/.gemini": ".gemini"}.items() <= found.items()
    assert found["/k/opencode"] == found["/h/.cache/opencode"] == ".cache/opencode"
    assert not [path for path in found if not path.startswith("/")]
    in_container = [path for path, _ in directories("/", {"XDG_DATA_HOME": "//tmp", "XDG_CONFIG_HOME": "/"})]
    assert {"/.claude", "/tmp/goose", "/goose"} <= set(in_container)
    assert not [path for path in in_container if path.startswith("//")], "which nobody could mount"


@pytest.mark.parametrize(("name", "is_out"), [("projects", True), ("s.sqlite-wal", True), ("settings.json", False), ("skills", False)])
def test_what_is_left_out(name: str, is_out: bool) -> None:
    assert is_left_out(name) is is_out
