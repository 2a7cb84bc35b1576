"""An agent whose own account has tokens that the gateway never saw: its result says so, and every cap counts them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from agents.protocols import Outcome, Recorded, Usage
from supervisor.gateway import pages
from supervisor.host import files
from supervisor.kernel import kind
from supervisor.kernel.result import Spent
from supervisor.server.attempts import kind_protocol
from supervisor.store import journal, sqlite
from tests.gateway.clients.kit import CLIENTS, Codex
from tests.gateway.kit import know_prices, rows
from tests.server.models_kit import Models
from tests.support import wait_until

SAYS = """
import json
print(json.dumps({"type": "system", "subtype": "init", "session_id": "own", "model": "claude-opus-4-8"}))
usage = {"inputTokens": 1000, "outputTokens": 200, "cacheReadInputTokens": 30, "cacheCreationInputTokens": 4}
print(json.dumps({"type": "result", "subtype": "success", "session_id": "own", "total_cost_usd": 0.5, "num_turns": 1,
                  "modelUsage": {"claude-opus-4-8": usage}, "result": "done"}))
"""


def test_tokens_that_went_past_the_gateway_are_counted_once_against_every_cap(models: Models) -> None:
    house = models.house
    kind = house.config.parent / "kinds" / "astray.toml"
    kind.parent.mkdir(parents=True)
    words = json.dumps(["-S", "-c", SAYS, "{prompt}"])
    kind.write_text(f"description = 'astray'\nbinary = {json.dumps(sys.executable)}\nprotocol = 'claude'\nheadless = {words}\n")
    models.settings("[gateway]\ncost_per_night = 100\n")
    know_prices(house.home)
    models.start()
    house.ok("run", house.plan("[[tasks]]\nid = 'a'\nkind = 'astray'\nprompt = 'x'\ncost_max = 1\n"))
    view = house.task("a")
    judged = view.result or {}
    assert judged["tokens"] == {"input": 1000, "output": 200, "cache_read": 30, "cache_write": 4, "estimated": 1}
    assert judged["cost_usd"] == 0.5
    assert judged["notes"] == ["its model calls went past the gateway: 1,234 tokens by its own account, which count against its caps"]
    assert "went past the gateway" in house.ok("status", "a")
    shown = pages.ask(house.home, pages.STATUS)
    assert (shown["caps"]["cost_per_night"], shown["caps"]["night_usd"]) == (100, 0.5)
    again = {"task": view.id, "epoch": 1, "class": "normal", "model": "x", "tokens": {"input": 5}, "cost_usd": 9.0}
    assert json.loads(pages.fetch(house.home, pages.PAST, post=True, body=again)) == {"charged": False}


@pytest.mark.parametrize(
    ("own", "known", "first", "past"),
    [
        (Usage(100, 10), Spent(0, 0, 0, 0, 0), True, ({"input": 100, "output": 10, "cache_read": 0, "cache_write": 0}, 0.1)),
        (Usage(100, 10), Spent(0, 0, 0, 0, 0), False, ({"input": 100, "output": 10, "cache_read": 0, "cache_write": 0}, 0.1)),
        (Usage(5000, 10), Spent(100, 10, 0, 0, 0), True, ({"input": 4900, "output": 0, "cache_read": 0, "cache_write": 0}, None)),
        (Usage(5000, 10), Spent(100, 10, 0, 0, 0), False, None),
        (Usage(5000, 10), Spent(100, 10, 0, 0, 1), True, None),
        (Usage(101, 10), Spent(100, 10, 0, 0, 0), True, None),
        (Usage(), Spent(0, 0, 0, 0, 0), True, None),
        (Usage(100, 10), Spent(), True, None),
        (Usage(100, 10), Spent(100, 10, 0, 0, 1, past=110), True, None),
        (Usage(150, 10), Spent(100, 10, 0, 0, 1, past=110), True, ({"input": 50, "output": 0, "cache_read": 0, "cache_write": 0}, None)),
        (Usage(150, 10), Spent(120, 10, 0, 0, 1, past=110), True, None),
        (Usage(100, 10), Spent(0, 0, 0, 0, 0, kept=110), True, None),
        (Usage(150, 10), Spent(50, 0, 0, 0, 0, kept=110), True, None),
        (None, Spent(0, 0, 0, 0, 0), True, None),
    ],
)
def test_what_the_gateway_never_saw(own: Usage | None, known: Spent, first: bool, past: object) -> None:
    assert kind_protocol.beyond_exit_status(Outcome(usage=own, cost_usd=0.1), known, first=first) == past


def test_a_proxy_that_is_passed_on_gets_nothing_of_the_gateways(models: Models) -> None:
    proxies = {"http_proxy": "http://127.0.0.1:1", "ALL_PROXY": "http://127.0.0.1:1", "NO_PROXY": "corp.example"}
    models.settings(before=f"pass_env = {json.dumps([*proxies])}\n")
    models.start()
    models.house.ok("add", "--id", "asks", "-f", f"{models.ask} 10", env=proxies)
    models.house.ok("add", "--id", "looks", "-f", "echo $http_proxy $NO_PROXY $no_proxy", env=proxies)
    assert models.house.state("asks") == "done", models.house.run("logs", "asks").stdout
    names = "corp.example,127.0.0.1,localhost,::1"
    assert f"{proxies['http_proxy']} {names} {names}" in models.house.ok("logs", "looks")


@pytest.mark.parametrize(
    ("environ", "names"),
    [
        ({}, "127.0.0.1,localhost,::1"),
        ({"NO_PROXY": "corp.example, localhost", "no_proxy": "10.0.0.0/8"}, "corp.example,localhost,10.0.0.0/8,127.0.0.1,::1"),
        ({"no_proxy": "*"}, "*"),
    ],
)
def test_the_gateway_is_reached_by_no_proxy(environ: dict[str, str], names: str) -> None:
    assert kind.past_proxies(environ) == {"NO_PROXY": names, "no_proxy": names}


SITS = """
import datetime, json, os, sys, time
def took(name, tokens):
    usage = {"input_tokens": tokens, "output_tokens": 10, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0}
    message = {"id": name, "model": "claude-opus-4-8", "usage": usage}
    at = datetime.datetime.now(datetime.timezone.utc).isoformat().replace("+00:00", "Z")
    return json.dumps({"type": "assistant", "timestamp": at, "message": message}) + "\\n"
session, room = sys.argv[1:3]
record = os.path.join(room, session + ".jsonl")
with open(record, "a") as file:
    old = json.loads(took("before", 999999999))
    file.write(json.dumps(old | {"timestamp": "2020-01-01T00:00:00Z"}) + "\\n" + 2 * took("first", 1000))
for name in ("more", "leave"):
    while not os.path.exists(os.path.join(room, name)):
        time.sleep(0.02)
    if name == "more":
        with open(record, "a") as file:
            file.write(took("second", 20000))
        open(os.path.join(room, "written"), "w").close()
"""


def test_a_session_of_codex_counts_what_it_took_since_its_attempt_began() -> None:
    def line(at: str, tokens: int) -> bytes:
        total = {"input_tokens": tokens, "cached_input_tokens": 30, "cache_write_input_tokens": 4, "output_tokens": 5}
        payload = {"type": "token_count", "info": {"total_token_usage": total, "last_token_usage": {"input_tokens": 9}}}
        return json.dumps({"timestamp": at, "type": "event_msg", "payload": payload}).encode() + b"\n"

    context = {"timestamp": "2026-11-28T00:00:01Z", "type": "turn_context", "payload": {"model": "gpt-6"}}
    recorded = Recorded(datetime(2026, 11, 28, tzinfo=UTC).timestamp())
    recorded.add("codex", [line("2026-11-27T00:00:00.1Z", 100), json.dumps(context).encode() + b"\n", line("2026-11-28T00:00:02Z", 1100)])
    assert recorded.outcome() == Outcome(usage=Usage(input=1000), models=("gpt-6",))
    recorded.add("codex", [line("2026-11-27T00:00:00.1Z", 100), line("2026-11-28T00:00:03Z", 500)])
    assert recorded.outcome().usage == Usage(input=1000), "a file that began anew takes nothing back"


@pytest.fixture
def sitting(models: Models) -> Iterator[Path]:
    """A running supervisor with the kind `sits`, whose agent owns its pane and keeps its session in the directory that is given."""
    house = models.house
    room = house.config.parent / "room"
    room.mkdir(parents=True)
    kind = house.config.parent / "kinds" / "sits.toml"
    kind.parent.mkdir(parents=True)
    words = json.dumps(["-S", "-c", SITS, "{session}", str(room), "{conversation}", "{prompt}"])
    kept = json.dumps(["$ROOM/{session}.jsonl"])
    kind.write_text(
        f"description = 'sits'\nbinary = {json.dumps(sys.executable)}\nprotocol = 'claude'\ninteractive = {words}\nheadless = {words}\n"
        f"transcript = {kept}\nresume = ['{{session}}']\nfork = ['{{new_session}}']\n[env]\nROOM = {json.dumps(str(room))}\n"
    )
    models.settings("[gateway]\ncost_per_night = 100\n")
    know_prices(house.home)
    models.start()
    yield room
    (room / "more").touch()
    (room / "leave").touch()


def caps_of(models: Models) -> float:
    """US dollars that the night has by the gateway."""
    return float(pages.ask(models.house.home, pages.STATUS)["caps"]["night_usd"])


def test_a_session_that_goes_past_the_gateway_is_counted_while_it_lives(models: Models, sitting: Path) -> None:
    house = models.house
    task = '[[tasks]]\nid = "a"\nkind = "sits"\ninteractive = true\nprompt = "x"\ntokens_max = 5000\n'
    house.ok("run", "-d", house.plan(f'{task}params = {{ ROOM = "{sitting}" }}\n'))
    wait_until(lambda: caps_of(models) > 0, "the first answer to be counted")
    first = caps_of(models)
    shown = house.ok("status", "a")
    assert "1,010 tokens went past the gateway" in shown
    (sitting / "more").touch()
    wait_until(lambda: (sitting / "written").exists(), "the second answer")
    refused = house.run("send", "a", "go on")
    assert refused.returncode == 7 and "tokens_max of the task" in refused.stderr and "21,020 are taken" in refused.stderr
    assert caps_of(models) > first
    assert "tokens_max of the task" in house.ok("status", "a") and "21,020 are taken" in house.ok("status", "a")
    (sitting / "leave").touch()
    house.ok("wait", "a")
    judged = house.task("a").result or {}
    assert judged["tokens"] == {"input": 21000, "output": 20, "cache_read": 0, "cache_write": 0, "estimated": 2}
    retried = house.run("retry", "a")
    assert retried.returncode == 7 and "21,020 are taken" in retried.stderr and house.task("a").epoch == 1


def test_a_session_is_counted_at_its_end_and_the_next_attempt_is_refused(models: Models, sitting: Path) -> None:
    house = models.house
    (sitting / "more").touch()
    (sitting / "leave").touch()
    task = '[[tasks]]\nid = "a"\nkind = "sits"\ninteractive = true\nprompt = "x"\ncost_max = 0.01\nretries = 0\n'
    goes_on = '[[tasks]]\nid = "b"\nkind = "sits"\nprompt = "x"\ncontinue_from = "a"\nretries = 0\n'
    house.run("run", house.plan(f'{task}params = {{ ROOM = "{sitting}" }}\n{goes_on}'))
    judged = house.task("a").result or {}
    assert judged["notes"] == ["its model calls went past the gateway: 21,020 tokens by its own account, which count against its caps"]
    assert house.run("retry", "a").returncode == 7
    asked = house.run("ask", "a", "why?")
    assert asked.returncode == 7 and "cost_max of the task" in asked.stderr
    assert house.state("b") == "failed" and "its budget is spent" in house.ok("status", "b")


CODEX = CLIENTS / "node_modules/.bin/codex"


@pytest.mark.skipif(not CODEX.exists(), reason="make clients installs it")
def test_the_real_codex_in_its_own_interface_is_counted_by_the_session_that_its_hooks_name(models: Models, tmp_path: Path) -> None:
    house, home = models.house, files.private_dir(tmp_path / "person")
    provider = {"name": "mine", "base_url": f"{models.sim.url}/v1", "env_key": "MINE", "wire_api": "responses"}
    mine = "".join(f"{name} = {json.dumps(value)}\n" for name, value in provider.items())
    config = files.private_dir(home / ".codex") / "config.toml"
    config.write_text(f'model_provider = "mine"\ncheck_for_update_on_startup = false\n[model_providers.mine]\n{mine}')
    models.settings('[upstream.other]\napi = "gemini"\nurl = "http://127.0.0.1:9"\nkey = "none"\n')
    house.ok("trust", "--kind", "codex", "--yes", env={"HOME": str(home)})
    models.start()
    keys = {"id": "a", "kind": "codex", "prompt": "begin", "interactive": True, "model": Codex.model, "tokens_max": 10}
    keys |= {"params.HOME": str(home), "params.MINE": "key-of-a-person"}
    plan = "[[tasks]]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in keys.items())
    house.run("run", "-d", house.plan(plan), env={"PATH": f"{CODEX.parent}:{os.environ['PATH']}"})
    wait_until(lambda: "tokens went past the gateway" in house.ok("status", "a"), "its first answer to be counted")
    (rollout,) = home.glob(".codex/sessions/*/*/*/rollout-*.jsonl")
    (said,) = {line for line in rollout.read_text().splitlines() if "token_count" in line and "total_token_usage" in line}
    total = json.loads(said)["payload"]["info"]["total_token_usage"]["total_tokens"]
    refused = house.run("send", "a", "go on")
    assert refused.returncode == 7 and f"{total:,} are taken" in refused.stderr, refused.stderr
    house.ok("kill", "a")
    assert house.run("retry", "a").returncode == 7
    asked = house.run("ask", "a", "why?")
    assert asked.returncode == 7 and "tokens_max of the task" in asked.stderr, asked.stderr


def answer(name: str, tokens: int) -> str:
    """A line of a session file: an answer that took so many tokens."""
    usage = {"input_tokens": tokens, "output_tokens": 0}
    return json.dumps({"type": "assistant", "timestamp": datetime.now(UTC).isoformat(), "message": {"id": name, "usage": usage}}) + "\n"


def test_what_was_counted_of_a_session_stays_counted_when_its_file_is_deleted(models: Models, sitting: Path) -> None:
    house = models.house
    task = '[[tasks]]\nid = "a"\nkind = "sits"\ninteractive = true\nprompt = "x"\ntokens_max = 5000\n'
    house.ok("run", "-d", house.plan(f'{task}params = {{ ROOM = "{sitting}" }}\n'))

    def counted() -> int:
        house.run("send", "a", "")  # looks first
        return sum(row["input"] + row["output"] for row in rows(house.home))

    def shrunk() -> int:
        with contextlib.closing(sqlite.connect_readonly(house.home.ledger)) as db:
            return [entry["event"] for entry in journal.journal_of_task(db, house.task("a").id)].count("its session file shrank")

    wait_until(lambda: counted() == 1010, "the first answer to be counted")
    (file,) = sitting.glob("*.jsonl")
    (sitting / "copy").write_text(file.read_text())
    (sitting / "copy").replace(file)
    assert counted() == 1010 and not shrunk(), "a copy is no other answer"
    with file.open("a") as more:
        more.write(answer("deleted-at-once", 200))
    file.unlink()
    file.write_text(answer("after-deletion", 30))
    assert counted() == 1240
    os.kill(models.ping()["pid"], signal.SIGKILL)
    models.start()
    file.write_text(answer("after-restart", 4))
    wait_until(lambda: counted() == 1244, "the answer after a restart")
    file.write_text("")
    counted()
    file.write_text(answer("after-restart", 1) + answer("last", 5000))
    refused = house.run("send", "a", "go on")
    assert refused.returncode == 7 and "6,244 are taken" in refused.stderr, refused.stderr
    (sitting / "more").touch()
    (sitting / "leave").touch()
    house.ok("wait", "a")
    assert counted() == 6244 + 20010 and shrunk() == 1
