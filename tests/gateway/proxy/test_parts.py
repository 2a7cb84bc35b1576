"""The small parts: what is hidden in the log, which way a request goes, where keys come from, where it listens."""

from __future__ import annotations

import base64
import json
import logging
import os
import random
import stat
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import pytest

from supervisor.gateway import lifecycle, provider_keys
from supervisor.gateway.admission.types import Agent
from supervisor.gateway.lifecycle import clean_environment
from supervisor.gateway.provider_keys import Form, Handler, Log, Redactor
from supervisor.gateway.proxy import gateway
from supervisor.gateway.proxy.forward import Way, way
from supervisor.host.clock import SystemClock
from supervisor.host.paths import Home
from supervisor.kernel.audit import LogFormat
from supervisor.kernel.engines import Engine, EngineKind
from supervisor.kernel.errors import Refused
from supervisor.kernel.gateway_settings import Api, GatewaySettings, KeySource, Route, Upstream
from supervisor.kernel.states import TaskClass

SECRET = "sk-ant-api03-Q2FuYXJ5+S2V5/MTIzNDU2Nzg5MA-xyzzy"
LEAK = 9
"""Characters of a secret that may stand at a cut: fewer than any fragment that is looked for."""


def longest_shown(secret: str, text: str) -> int:
    """Of the secret's characters in a row, how many at most stand in the text."""
    return max(
        (size for size in range(1, len(secret) + 1) for at in range(len(secret) - size + 1) if secret[at : at + size] in text), default=0
    )


@pytest.fixture
def redactor() -> Redactor:
    made = Redactor()
    made.add(SECRET)
    return made


@pytest.mark.parametrize(
    "disguise",
    [
        SECRET,
        f"Authorization: Bearer {SECRET}",
        quote(SECRET, safe=""),
        f"https://x/v1?key={quote(SECRET, safe='')}&alt=sse",
        SECRET.encode().hex(),
        "".join(f"{char}\x1b[0m" for char in SECRET),
        f"\x1b[31m{SECRET[:20]}\x1b[0m{SECRET[20:]}",
        f'{{"x-api-key": "{SECRET}"}}',
    ],
)
def test_a_key_is_hidden_in_every_disguise(redactor: Redactor, disguise: str) -> None:  # X15
    shown = redactor.clean(f"before {disguise} after")
    assert "before" in shown
    assert "after" in shown
    for form in (SECRET, quote(SECRET, safe=""), SECRET.encode().hex(), base64.b64encode(SECRET.encode()).decode()):
        assert longest_shown(form, shown) <= LEAK, shown


@pytest.mark.parametrize("before", [b"", b"a", b"u:", b"usr", b"user"])
@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
def test_a_key_is_hidden_in_base64_wherever_it_begins(redactor: Redactor, before: bytes, encode: Callable[[bytes], bytes]) -> None:  # X15
    around = 6  # characters at its two ends that belong to what stands around it as well
    encoded = encode(before + SECRET.encode() + b"!").decode()
    shown = redactor.clean(f"say {encoded} end")
    assert longest_shown(encoded, shown) <= LEAK + around
    assert len(shown.replace("[hidden]", "")) <= len("say  end") + 2 * around


def test_a_key_cut_in_two_anywhere_is_hidden_in_both_parts(redactor: Redactor) -> None:  # X15
    for cut in range(1, len(SECRET)):
        for part in (f"chunk 1: {SECRET[:cut]}", f"{SECRET[cut:]} was chunk 2"):
            assert longest_shown(SECRET, redactor.clean(part)) <= LEAK


@pytest.mark.parametrize(
    "text",
    [
        "nct_cnVuL2E6MQ_0123456789abcdef",
        "nca_0123456789abcdef",
        "Basic dXNlcjpwYXNzd29yZA==",
        "bearer abcdefgh",
        "?key=abcd&x=1",
        "sk-proj-abcdefghijklmnopqrst",
    ],
)
def test_what_looks_like_a_credential_is_hidden_unknown(text: str) -> None:
    shown = Redactor().clean(f"say {text} end")
    assert "[hidden]" in shown
    assert not set(text.split()[-1].split("=")) & set(shown.split())


def test_ordinary_words_stay(redactor: Redactor) -> None:
    text = "429 for run/a: no turn came within 240 s; basic rules: the bearer of the key is sk-ant"
    assert redactor.clean(text) == text.replace("basic rules:", "basic [hidden]").replace("bearer of", "bearer of")


def test_the_log_is_one_line_each_private_and_bounded(tmp_path: Path, redactor: Redactor) -> None:
    path = tmp_path / "gateway.log"
    log = Log(path, redactor, SystemClock(), max_bytes=2000)
    log.say(f"two\nlines \x1b[31mred {SECRET}")
    text = path.read_text()
    assert text.endswith("Z two\\nlines red [hidden]\n")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    for number in range(100):
        log.say(f"line {number} " + "x" * 50)
    sizes = [file.stat().st_size for file in tmp_path.iterdir()]
    assert len(sizes) == 2
    assert max(sizes) <= 2000
    assert "line 99" in path.read_text()


def test_the_log_as_json_hides_secrets_in_every_part(tmp_path: Path, redactor: Redactor) -> None:
    path = tmp_path / "gateway.log"
    log = Log(path, redactor, SystemClock(), form=Form(LogFormat.JSON))
    log.say_seldom(Refused(f"no {SECRET}", on=SECRET, why=f"\n{SECRET}", kept=SECRET, hint=SECRET))
    log.alert("run/a", f"a {SECRET} leaked")
    log.say("ready")
    assert SECRET not in path.read_text()
    shapes = [json.loads(line) for line in path.read_text().splitlines()]
    assert [shape["level"] for shape in shapes] == ["warning", "error", "info"]
    assert {shape["logger"] for shape in shapes} == {"nightcrew.gateway"}
    hidden = dict.fromkeys(("on", "kept", "hint"), "[hidden]")
    assert shapes[0]["error"] == {"class": "Refused", "what": "no [hidden]", "why": "\\n[hidden]", **hidden}


def test_what_repeats_is_said_once(tmp_path: Path, redactor: Redactor) -> None:
    path = tmp_path / "gateway.log"
    log = Log(path, redactor, SystemClock())
    for _ in range(1000):
        log.say_seldom("401")
    log.say_seldom("401", every_s=0.0)
    assert [line.partition(" ")[2] for line in path.read_text().splitlines()] == ["401", "401 (999 more of these before)"]


def test_what_libraries_say_goes_the_same_way(tmp_path: Path, redactor: Redactor) -> None:
    path = tmp_path / "gateway.log"
    logger = logging.Logger("aiohttp.client")
    logger.addHandler(Handler(Log(path, redactor, SystemClock())))
    try:
        raise ValueError(f"the key {SECRET} is bad")
    except ValueError:
        logger.exception("Unclosed connection")
    (line,) = path.read_text().splitlines()
    assert "Unclosed connection" in line
    assert "ValueError: the key [hidden] is bad" in line


def test_a_client_that_left_is_no_traceback(tmp_path: Path, redactor: Redactor) -> None:
    path = tmp_path / "gateway.log"
    logger = logging.Logger("nightcrew.gateway")
    logger.addHandler(Handler(Log(path, redactor, SystemClock())))
    for _ in range(3):
        try:
            raise ConnectionResetError("Cannot write to closing transport")
        except ConnectionError:
            logger.exception("Error handling request")
    (line,) = path.read_text().splitlines()
    assert line.endswith("Z a client left while it was answered (ConnectionResetError)")


# Ways ---------------------------------------------------------------------------------------------------------------------------------

A, B = Upstream("a", Api.ANTHROPIC, "http://a", models=("claude-opus-*",)), Upstream("b", Api.ANTHROPIC, "http://b")
LOCAL = Upstream("local", Api.OPENAI, "http://l", models=("llama*",))


@pytest.mark.parametrize(
    ("routes", "api", "model", "expected"),
    [
        ((), Api.ANTHROPIC, "claude-opus-4-8", Way(("a", "b"))),
        ((), Api.ANTHROPIC, "claude-haiku-4-5", Way(("b",))),
        ((), Api.OPENAI, "gpt-5", Way(())),
        ((), Api.GEMINI, "gemini", Way(())),
        ((Route("claude-*", "b"),), Api.ANTHROPIC, "claude-opus-4-8", Way(("b",))),
        ((Route("claude-haiku*", as_model="claude-opus-4-8"),), Api.ANTHROPIC, "claude-haiku-4-5", Way(("a", "b"), "claude-opus-4-8")),
        ((Route("gpt-*", "local", "anything"),), Api.OPENAI, "gpt-5", Way(("local",), "anything")),
        ((Route("*", "local"),), Api.ANTHROPIC, "claude-opus-4-8", Way(("a", "b"))),
        ((Route("x"), Route("*", "b"), Route("*", "a")), Api.ANTHROPIC, "claude-opus-4-8", Way(("b",))),
    ],
)
def test_ways(routes: tuple[Route, ...], api: Api, model: str, expected: Way) -> None:
    settings = GatewaySettings((A, B, LOCAL), routes)
    assert way(settings, api, model, {"a", "b", "local"}, Agent("a", 1)) == expected


CHEAP = Route("claude-*", fallback="claude-haiku-4-5")


@pytest.mark.parametrize(
    ("routes", "agent", "expected"),
    [
        ((CHEAP,), Agent("n", 1, TaskClass.BATCH), Way(("a", "b"), "", Way(("b",), "claude-haiku-4-5"))),
        ((CHEAP,), Agent("n", 1), Way(("a", "b"))),
        ((CHEAP,), Agent("n", 1, TaskClass.INTERACTIVE), Way(("a", "b"))),
        ((Route("*", "a", fallback="x"),), Agent("n", 1, TaskClass.BATCH), Way(("a",), "", Way(("a",), "x"))),
        ((Route("*", "b", task_class=TaskClass.BATCH), Route("*", "a")), Agent("n", 1), Way(("a",))),
        ((Route("*", "b", task_class=TaskClass.BATCH), Route("*", "a")), Agent("n", 1, TaskClass.BATCH), Way(("b",))),
        ((Route("*", "b", size="small"), Route("*", "a")), Agent("n", 1, size="small"), Way(("b",))),
        ((Route("*", "b", size="small"), Route("*", "a")), Agent("n", 1, size="large"), Way(("a",))),
        ((Route("*", "b", size="small"), Route("*", "a")), Agent("n", 1), Way(("a",))),
    ],
)
def test_ways_of_an_agent(routes: tuple[Route, ...], agent: Agent, expected: Way) -> None:
    a = replace(A, models=("claude-opus-*",))
    found = way(GatewaySettings((a, B, LOCAL), routes), Api.ANTHROPIC, "claude-opus-4-8", {"a", "b", "local"}, agent)
    assert found == expected


BY_WORK = (Route("*", "a", "small", work="trivial"), Route("*", "b", work="complex"), Route("*", "a"))


@pytest.mark.parametrize(
    ("work", "expected"),
    [
        ("trivial", Way(("a",), "small")),
        ("simple", Way(("a",))),
        ("complex", Way(("b",))),
        ("", Way(("a",))),
    ],
)
def test_ways_by_the_weight_of_work(work: str, expected: Way) -> None:
    settings = GatewaySettings((A, B, LOCAL), BY_WORK)
    assert way(settings, Api.ANTHROPIC, "claude-opus-4-8", {"a", "b", "local"}, Agent("n", 1), work) == expected


def test_a_way_says_whether_an_engine_may_serve_it() -> None:
    engine = Engine("box", EngineKind.ADOPTED)
    box = Upstream("box.anthropic", Api.ANTHROPIC, "", account="box", models=("qwen",), engine=engine)
    settings = GatewaySettings((A, box), (Route("tiny", "box", "qwen"),))
    found = {
        model: way(settings, Api.ANTHROPIC, model, {"a", "box.anthropic"}, Agent("n", 1)) for model in ("qwen", "tiny", "claude-opus-4")
    }
    assert {model: one.to_engine for model, one in found.items()} == {"qwen": True, "tiny": True, "claude-opus-4": False}


def test_an_upstream_without_a_key_is_passed_over() -> None:
    assert way(GatewaySettings((A, B)), Api.ANTHROPIC, "claude-opus-4-8", {"b"}, Agent("a", 1)) == Way(("b",))
    assert way(GatewaySettings((A, B), (Route("*", "a"),)), Api.ANTHROPIC, "claude-opus-4-8", {"b"}, Agent("a", 1)) == Way(()), (
        "a route leads nowhere else"
    )


# Keys ---------------------------------------------------------------------------------------------------------------------------------


def test_keys_come_from_files_commands_or_nowhere(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.keys.mkdir(mode=0o700)
    for path in (home.keys / "plain.key", tmp_path / "elsewhere", home.keys / "open.key"):
        path.write_text("key-of-" + path.stem + "\n")
        path.chmod(0o600)
    (home.keys / "open.key").chmod(0o644)

    def one(name: str, source: KeySource) -> Upstream:
        return Upstream(name, Api.OPENAI, "http://x", source)

    def printing(code: str) -> KeySource:
        return KeySource("command", argv=(sys.executable, "-I", "-c", code))

    found = provider_keys.read_all(
        home,
        (
            one("plain", KeySource()),
            one("named", KeySource("file", str(tmp_path / "elsewhere"))),
            one("printed", printing("print('from-keyring')")),
            one("nothing", KeySource("none")),
            one("own", KeySource("client")),
            one("open", KeySource()),
            one("missing", KeySource()),
            one("failing", printing("print('half-a-key'); raise SystemExit(3)")),
            one("two", printing("print('two words')")),
            one("absent", KeySource("command", argv=("/no/such/program",))),
        ),
    )
    assert found.keys == {"plain": "key-of-plain", "named": "key-of-elsewhere", "printed": "from-keyring", "nothing": "", "own": ""}
    assert set(found.problems) == {"open", "missing", "failing", "two", "absent"}
    assert "chmod 600" in found.problems["open"].line()
    assert "half-a-key" not in found.problems["failing"].line()
    assert "key-of-plain" not in repr(found)


# Where it listens ----------------------------------------------------------------------------------------------------------------------


def test_it_listens_on_loopback_and_says_who_has_the_port() -> None:
    with gateway.on_port(0) as first:
        assert first.getsockname()[0] == "127.0.0.1"
        with pytest.raises(Refused, match=f"pid {os.getpid()} has it"):
            gateway.on_port(first.getsockname()[1], pause=lambda _: None)


def test_a_record_that_makes_no_sense_is_no_record(tmp_path: Path) -> None:
    home = Home(tmp_path)
    assert lifecycle.kept_port(home) == 0
    whole = {"schema": 1, "pid": 7, "ticks": 1, "boot_id": "", "port": 8080, "version": "1"}
    others = [json.dumps({**whole, **odd}) for odd in ({"schema": 2}, {"port": "x"}, {"port": 99999})]
    for text in ("", "{", "[]", *others):
        home.gateway_record.write_text(text)
        assert lifecycle.kept_port(home) == 0
    home.gateway_record.write_text(json.dumps(whole))
    assert lifecycle.kept_port(home) == 8080


def test_the_lock_is_held_until_it_is_given_back(tmp_path: Path) -> None:
    home = Home(tmp_path)
    handle = lifecycle.lock(home)
    with pytest.raises(Refused, match="a gateway is already running"):
        lifecycle.lock(home)
    os.close(handle)
    os.close(lifecycle.lock(home))


def test_the_environment_is_cleaned_of_what_is_not_needed() -> None:
    rng = random.Random(7)
    names = [f"V{rng.randrange(10**6)}" for _ in range(5)]
    dirty = {"PATH": "/bin", "LC_ALL": "C", "ANTHROPIC_API_KEY": "x", "HTTPS_PROXY": "y", **dict.fromkeys(names, "z")}
    assert clean_environment(dirty) == {"PATH": "/bin", "LC_ALL": "C"}
    assert clean_environment({"PATH": "/bin", "LC_ALL": "C"}) is None
