"""The gateway's keys of the user's file."""

from __future__ import annotations

from pathlib import Path

import pytest

from supervisor.config import user
from supervisor.kernel.errors import ConfigError
from supervisor.kernel.gateway_settings import Api, GatewaySettings, KeySource, Limits, Quota, Route
from supervisor.kernel.states import TaskClass


def load(tmp_path: Path, text: str, stored: Path | None = None) -> GatewaySettings:
    file = tmp_path / "config.toml"
    file.write_text(text)
    return user.load_gateway(file, stored)


def refused(tmp_path: Path, text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text)
    return caught.value.line()


def test_without_a_file_there_is_no_upstream(tmp_path: Path) -> None:
    assert user.load_gateway(tmp_path / "none.toml", tmp_path / "keys") == GatewaySettings()


def test_a_stored_key_is_an_upstream(tmp_path: Path) -> None:
    (tmp_path / "openai.key").write_text("x")
    assert [(one.name, one.url) for one in load(tmp_path, "slots = 3", tmp_path).upstreams] == [("openai", "https://api.openai.com")]


def test_what_the_file_says_counts_instead_of_stored_keys(tmp_path: Path) -> None:
    (tmp_path / "openai.key").write_text("x")
    assert [one.name for one in load(tmp_path, '[upstream.mine]\napi = "anthropic"', tmp_path).upstreams] == ["mine"]


def test_everything_at_once(tmp_path: Path) -> None:
    found = load(
        tmp_path,
        """
        [gateway]
        port = 8765
        hold = "2m"
        cost_per_night = 20.0
        record = true
        keep = "7d"
        [upstream.work]
        api = "anthropic"
        account = "company"
        itpm = 80000.0
        otpm = 16000
        key_command = ["pass", "show", "anthropic"]
        [upstream.work.classes."opus-4"]
        itpm = 30000
        [upstream.local]
        api = "openai"
        url = "http://127.0.0.1:11434/v1/"
        key = "none"
        models = ["qwen*"]
        learn = false
        [[route]]
        model = "claude-haiku-*"
        upstream = "local"
        as = "qwen3"
        [quota.search]
        rate = "60/min"
        burst = 5
        [prices."qwen3"]
        input = 0
        output = 0.5
        """,
    )
    work, local = found.upstreams
    assert (work.url, work.account, work.key) == (
        "https://api.anthropic.com",
        "company",
        KeySource("command", argv=("pass", "show", "anthropic")),
    )
    assert work.limits_of("sonnet-4") == Limits(itpm=80000, otpm=16000)
    assert work.limits_of("opus-4") == Limits(itpm=30000)
    assert (local.url, local.api, local.key.kind, local.learn) == ("http://127.0.0.1:11434", Api.OPENAI, "none", False)
    assert found.routes == (Route("claude-haiku-*", "local", "qwen3"),)
    assert found.quotas == (Quota("search", 60.0, 60.0, 5.0),)
    assert found.prices == {"qwen3": {"input": 0.0, "output": 0.5}}
    assert (found.port, found.policy.hold_s, found.policy.cost_per_night, found.record, found.keep_days) == (8765, 120.0, 20.0, True, 7.0)


def test_a_route_of_a_class_and_size_with_a_fallback(tmp_path: Path) -> None:
    found = load(
        tmp_path,
        """
        [gateway]
        fallback_at = 0.5
        [[route]]
        model = "claude-opus-*"
        class = "batch"
        size = "small"
        fallback = "claude-haiku-4-5"
        """,
    )
    assert found.routes == (Route("claude-opus-*", "", "", TaskClass.BATCH, "small", "claude-haiku-4-5"),)
    assert found.policy.fallback_at == 0.5


def test_a_route_by_the_weight_of_work(tmp_path: Path) -> None:
    found = load(tmp_path, '[[route]]\nmodel = "*"\nwork = "trivial"\nas = "small"')
    assert found.routes == (Route("*", "", "small", work="trivial"),)
    assert "trivial" in refused(tmp_path, '[[route]]\nmodel = "*"\nwork = "hard"')


@pytest.mark.parametrize(
    ("rate", "limit", "period"), [("60/min", 60, 60), ("5/s", 5, 1), ("1.5 / hour", 1.5, 3600), ("200/day", 200, 86400), ("7/m", 7, 60)]
)
def test_rates(tmp_path: Path, rate: str, limit: float, period: float) -> None:
    (found,) = load(tmp_path, f'[quota.x]\nrate = "{rate}"').quotas
    assert (found.limit, found.period_s) == (limit, period)


@pytest.mark.parametrize("rate", ["60", "0/min", "-1/min", "nan/min", "1e9/min", "60/year", "/min"])
def test_what_is_no_rate(tmp_path: Path, rate: str) -> None:
    assert "60/min" in refused(tmp_path, f'[quota.x]\nrate = "{rate}"')


@pytest.mark.parametrize(
    "wrong",
    [
        "[gateway]\nlisten = '0.0.0.0'",
        "[gateway]\nport = 70000",
        "[gateway]\nhold = -1",
        "[gateway]\nmargin = inf",
        "[gateway]\ncost_per_night = 0",
        "[upstream.a]\napi = 'mistral'",
        "[upstream.a]\napi = 'openai'\nurl = 'ftp://x'",
        "[upstream.a]\napi = 'openai'\nurl = 'https://user:pw@x'",
        "[upstream.a]\napi = 'openai'\nurl = 'https://x:port'",
        "[upstream.a]\napi = 'openai'\nitpm = nan",
        "[upstream.a]\napi = 'openai'\ntpm = 0",
        "[upstream.a]\napi = 'openai'\nmodels = []",
        "[upstream.a]\napi = 'openai'\nkey = 'none'\nkey_file = 'x'",
        "[upstream.'A b']\napi = 'openai'",
        "[[route]]\nmodel = '*'\nupstream = 'nowhere'",
        "[[route]]\nmodel = '*'\nfallback = '*'",
        "[[route]]\nmodel = '*'\nfallback = 'x'\nclass = 'interactive'",
        "[[route]]\nmodel = '*'\nsize = 'huge'",
        "[gateway]\nfallback_at = 0",
        "[quota.'../x']\nrate = '1/s'",
        "[prices.x]\ninput = 1",
    ],
)
def test_what_is_refused_names_the_file_and_line(tmp_path: Path, wrong: str) -> None:
    assert f"{tmp_path / 'config.toml'}:" in refused(tmp_path, wrong)


def test_a_key_does_not_travel_in_the_clear(tmp_path: Path) -> None:
    assert "plain http" in refused(tmp_path, "[upstream.a]\napi = 'openai'\nurl = 'http://llm.company.example'")
    for url in ("http://127.0.0.1:1", "http://localhost:1", "http://[::1]:1", "https://llm.company.example"):
        assert load(tmp_path, f"[upstream.a]\napi = 'openai'\nurl = '{url}'").upstreams[0].url == url
    assert load(tmp_path, "[upstream.a]\napi = 'openai'\nurl = 'http://llm.company.example'\nkey = 'none'").upstreams


@pytest.mark.parametrize(
    ("api", "url", "base"),
    [
        ("openai", "https://api.groq.com/openai/v1", "https://api.groq.com/openai"),
        ("openai", "https://api.openai.com", "https://api.openai.com"),
        ("anthropic", "https://gw.example/anthropic/v1/", "https://gw.example/anthropic"),
        ("gemini", "https://x.example/v1beta", "https://x.example"),
    ],
)
def test_the_version_may_be_written_into_the_url_or_not(tmp_path: Path, api: str, url: str, base: str) -> None:
    assert load(tmp_path, f"[upstream.a]\napi = '{api}'\nurl = '{url}'").upstreams[0].url == base


@pytest.mark.parametrize(("api", "counts"), [("anthropic", False), ("openai", True), ("gemini", True)])
def test_whether_cached_input_counts_is_the_apis_rule_unless_the_file_says_otherwise(tmp_path: Path, api: str, counts: bool) -> None:
    written = f"[upstream.a]\napi = '{api}'"
    assert load(tmp_path, written).upstreams[0].cached_counts is counts
    for said in (True, False):
        assert load(tmp_path, f"{written}\ncached_counts = {str(said).lower()}").upstreams[0].cached_counts is said


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("[upstream.a]\napi = 'openai'\nulr = 'https://x'", ":3 ulr: did you mean url?"),
        ("[upstream.a]\napi = 'openai'\n[upstream.a.classes.opus-4]\nitmp = 3", ":4 itmp: did you mean itpm?"),
        ("[quota.q]\nrate = '1/s'\nbrust = 3", ":3 brust: did you mean burst?"),
        (
            "[upstream.near]\napi = 'openai'\n[[route]]\nmodel = '*'\nupstream = 'nera'",
            ":5 route.upstream: there is no [upstream.nera]; did you mean near?",
        ),
        ("[upstream.a]\napi = 'openai'\nurl = 'http://far.example'", ":3 upstream.a.url: a key does not travel"),
    ],
)
def test_a_mistake_inside_a_named_table_is_explained(tmp_path: Path, wrong: str, said: str) -> None:
    assert said in refused(tmp_path, wrong)


def test_a_key_that_was_written_into_the_settings_is_not_repeated(tmp_path: Path) -> None:
    said = refused(tmp_path, "[upstream.a]\napi = 'openai'\nkey = 'sk-ant-canary'")
    assert "canary" not in said
    assert "keys/NAME.key" in said
