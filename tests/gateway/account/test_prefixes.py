"""What is seen of prompts: how much caches gave, and the first character at which one stopped sharing with the one before it."""

from __future__ import annotations

import contextlib
import json
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from supervisor.cli.gateway import command
from supervisor.gateway.account import prefixes, queries, schema
from supervisor.gateway.account.charges import OpenRow, SettledRow
from supervisor.gateway.account.prefixes import Prefixes
from supervisor.gateway.admission.types import LaneKey, Usage
from supervisor.gateway.wire.requests import read, recognise
from supervisor.host.paths import Home
from supervisor.kernel.gateway_settings import Api
from supervisor.kernel.states import TaskClass
from tests.gateway import kit
from tests.gateway.simulator import SimSettings, running

SYSTEM = "You are an agent of a crew. " * 20


def turns(*texts: str) -> list[dict[str, Any]]:
    return [{"role": ("user", "assistant")[place % 2], "content": text} for place, text in enumerate(texts)]


class Agent:
    """Sends requests of one agent past a `Prefixes`."""

    def __init__(self) -> None:
        self.seen = Prefixes("")

    def ask(self, path: str = "/v1/messages", *, cached: int = 0, recorded: bool = False, **shape: Any) -> None:
        body = json.dumps({"model": "m", "max_tokens": 9, **shape}).encode()
        recognised = recognise("POST", path)
        assert recognised is not None
        asked = read(recognised, {}, body)
        lane = LaneKey(Api.ANTHROPIC, "m")
        opened = OpenRow("run/a", 1, "m", lane, "u", "u", TaskClass.NORMAL, 0.0, 0.0, 1, Usage(), Usage(), None, "s", "k", asked.model)
        usage = Usage(1000 - cached, 5, cached)
        row = SettledRow("served", usage, body=body, prompt_at=asked.prompt_at, recorded=recorded)
        self.seen.look(opened, row)

    @property
    def broke(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.seen.__conform__(None)).get("breaks", {}).get("run/a", {})
        return found


def test_a_conversation_that_grows_breaks_nothing() -> None:
    agent = Agent()
    said = ["one", "two", "three", "four", "five"]
    for count in (1, 3, 5):
        agent.ask(messages=turns(*said[:count]), system=SYSTEM, tools=[{"name": "t"}])
        agent.ask("/v1/chat/completions", messages=turns(*said[:count]), model="other")
    assert agent.broke == {}


def test_a_mark_of_the_cache_that_moves_breaks_nothing() -> None:
    agent = Agent()
    mark = {"cache_control": {"type": "ephemeral"}}

    def turn(text: str, more: dict[str, Any]) -> dict[str, Any]:
        return {"role": "user", "content": [{"type": "text", "text": text, **more}]}

    agent.ask(messages=[turn("one", mark)], system=SYSTEM)
    agent.ask(messages=[turn("one", {}), turn("two", mark)], system=SYSTEM)
    assert agent.broke == {}


def test_what_was_read_from_the_cache_broke_nowhere() -> None:
    agent = Agent()
    agent.ask(messages=turns("one"))
    agent.ask(messages=[{"role": "user", "content": [{"type": "text", "text": "one"}]}], cached=900)
    assert agent.broke == {}


@pytest.mark.parametrize("recorded", [True, False])
def test_the_first_character_that_differs_is_named(recorded: bool) -> None:
    agent = Agent()
    tools = [{"name": "look"}, {"name": "run at 10:41"}]
    agent.ask(messages=turns("one"), system=SYSTEM, tools=tools, recorded=recorded)
    later = [tools[0], {"name": "run at 10:42"}]
    agent.ask(messages=turns("one"), system=SYSTEM, tools=later, recorded=recorded)
    at = json.dumps(tools).index("1", json.dumps(tools).index(":41"))
    assert agent.broke["block"] == "tools[1]"
    assert agent.broke["offset"] == json.dumps(tools[1]).index("10:41") + 4
    assert (agent.broke["shared"], agent.broke["count"]) == (at, 1)
    assert agent.broke["lost"] > len(SYSTEM)
    wanted = json.dumps(later)[at - 40 : at] + "2"
    assert agent.broke["after"][:41] == (wanted if recorded else "")
    assert len(agent.broke["before"]) == (80 if recorded else 0)


@pytest.mark.parametrize(
    ("before", "after", "block"),
    [
        ({"messages": turns("a", "b", "c")}, {"messages": turns("a", "B", "c")}, "messages[1]"),
        ({"messages": turns("a", "b", "c")}, {"messages": turns("a")}, "the end"),
        ({"messages": turns("a"), "system": "10:41"}, {"messages": turns("a"), "system": "10:42"}, "system"),
        ({"messages": turns("ä\u2028é", "b")}, {"messages": turns("ä\u2028é", "c")}, "messages[1]"),
    ],
)
def test_the_block_is_named(before: dict[str, Any], after: dict[str, Any], block: str) -> None:
    agent = Agent()
    agent.ask(**before)
    agent.ask(**after)
    assert agent.broke["block"] == block


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefixes, "_KEPT_MAX", 3)
    monkeypatch.setattr(prefixes, "_TEXTS_MAX", 1)
    agent = Agent()
    for number in range(10):
        agent.ask(messages=turns("x"), system=f"{number}")
    kept = json.loads(agent.seen.__conform__(None))
    assert len(kept["prefixes"]) == 3
    assert "breaks" not in kept, "no text was held"


@pytest.mark.asyncio
async def test_of_real_traffic_and_over_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = Home(tmp_path / "home")
    async with running(SimSettings()) as sim:
        settings = "[gateway]\nrecord = true\n" + kit.upstream(home, sim.url)
        for start in (1, 2):
            async with kit.gateway(tmp_path, settings) as gate:
                token = gate.crew.agent("run/a", epoch=start)
                for minute in ("10:41", "10:42"):
                    for said in (("hi",), ("hi", "Hello.", "go on")):
                        body = kit.messages(messages=turns(*said), system=f"{SYSTEM}It is {minute}.")
                        assert (await gate.post("/v1/messages", body, token)).status == 200
    with contextlib.closing(schema.connect_readonly(home.gateway_account)) as db:
        shape = queries.cache(db, time.time() - 3600)
    assert [of["requests"] for of in shape["prefixes"].values()] == [4, 4]
    assert shape["agents"]["run/a"]["requests"] == 8
    assert sum(of["input"] for of in shape["prefixes"].values()) == shape["agents"]["run/a"]["input"]
    broke = shape["breaks"]["run/a"]
    assert (broke["block"], broke["offset"], broke["count"]) == ("system", 1 + len(SYSTEM) + len("It is 10:4"), 2)
    monkeypatch.setenv("NIGHTCREW_HOME", str(home.root))
    shown = CliRunner().invoke(command, ["cache"])
    assert shown.exit_code == 0, shown.output
    assert "run/a: a prompt stopped sharing with the one before it" in shown.output
    assert "It is 10:42" in shown.output
    assert json.loads(CliRunner().invoke(command, ["cache", "--json"]).stdout)["breaks"] == shape["breaks"]
