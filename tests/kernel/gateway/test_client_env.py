"""What an agent's client is told."""

from __future__ import annotations

from supervisor.kernel import kind
from supervisor.kernel.gateway_settings import Api, GatewaySettings, KeySource, Upstream
from supervisor.kernel.states import TaskClass


def env(*upstreams: Upstream, patient: bool = False) -> dict[str, str]:
    return dict(kind.block(GatewaySettings(upstreams=upstreams), 8765, "nct_x_y", patient=patient))


def test_without_an_upstream_nothing_is_said() -> None:
    assert env(patient=True) == {}


def test_each_api_gets_its_own_address_and_the_token_for_a_key() -> None:
    found = env(*(Upstream(str(api), api, "https://x") for api in Api))
    assert found["ANTHROPIC_BASE_URL"] == found["GOOGLE_GEMINI_BASE_URL"] == "http://127.0.0.1:8765"
    assert found["OPENAI_BASE_URL"] == "http://127.0.0.1:8765/v1"
    assert {found[name] for name in ("ANTHROPIC_AUTH_TOKEN", "OPENAI_API_KEY", "GEMINI_API_KEY")} == {"nct_x_y"}
    assert "ANTHROPIC_API_KEY" not in found, "Claude Code would send both, and ask a person about it"


def test_only_who_is_alone_waits_long() -> None:
    one = Upstream("a", Api.ANTHROPIC, "https://x")
    assert "CLAUDE_CODE_RETRY_WATCHDOG" in env(one, patient=True)
    assert "CLAUDE_CODE_RETRY_WATCHDOG" not in env(one)
    assert "CLAUDE_CODE_RETRY_WATCHDOG" not in env(Upstream("o", Api.OPENAI, "https://x"), patient=True)
    assert [kind.is_patient(one) for one in TaskClass] == [False, True, True]


def test_a_client_with_its_own_login_keeps_it() -> None:
    found = env(Upstream("a", Api.ANTHROPIC, "https://x", key=KeySource("client")))
    assert found["ANTHROPIC_BASE_URL"] == "http://127.0.0.1:8765/a/nct_x_y"
    assert "ANTHROPIC_AUTH_TOKEN" not in found


def test_one_upstream_with_a_key_of_ours_is_enough_for_the_token() -> None:
    found = env(Upstream("a", Api.ANTHROPIC, "https://x", key=KeySource("client")), Upstream("b", Api.ANTHROPIC, "https://x"))
    assert found["ANTHROPIC_AUTH_TOKEN"] == "nct_x_y"
    assert found["ANTHROPIC_BASE_URL"] == "http://127.0.0.1:8765"
