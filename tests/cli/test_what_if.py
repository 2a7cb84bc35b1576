"""`nightcrew capacity --what-if`: its arithmetic against figures reckoned by hand, and what it finds out by itself."""

from __future__ import annotations

import json
import random
import re
import shlex
import struct
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from supervisor.features.capacity.rules import Sheet, measured
from supervisor.kernel.gateway_settings import Quota
from supervisor.store.ledger import Ledger
from tests.store.kit import Wall, spec, submit, whole
from tests.support import House

PAGE = Path(__file__).parent.parent.parent / "docs" / "capacity.md"
ROOMY = {"cores": 1e6, "memory": 1e6}
"""A machine that never binds."""


def sheet(*limits: Quota, **given: float) -> Sheet:
    return Sheet({**ROOMY, **given}, limits)


def carried(found: Sheet, side: str = "cloud") -> dict[str, int]:
    return {one.name: one.agents for one in found.carries(side)}


# By hand ----------------------------------------------------------------------------------------------------------------------------------


def test_the_scarcest_limit_binds() -> None:
    # 6 requests in 120 s are 3 a minute. Of 10,000 tokens a half comes from a cache: 5,000 count, 15,000 a minute; output 3 x 400 = 1,200.
    # 100 / 3 = 33.3; 80,000 / 15,000 = 5.3; 16,000 / 1,200 = 13.3.
    limits = Quota("requests", 100, 60), Quota("input", 80_000, 60), Quota("output", 16_000, 60)
    found = sheet(*limits, requests=6, seconds=120, input=10_000, cached=0.5, output=400)
    assert carried(found) == {
        "cloud_input_in_60_s": 5,
        "cloud_output_in_60_s": 13,
        "cloud_requests_in_60_s": 33,
        "machine_cores": 20_000_000,
        "machine_memory": 2_483_526,
    }
    assert found.carries("cloud")[0].name == "cloud_input_in_60_s"
    # 5 agents x 3,600 / 120 s = 150 tasks an hour; x 6 x 10,400 = 9,360,000 tokens.
    assert found.values["cloud_tasks"] == 150
    assert found.values["cloud_tokens"] == 9_360_000


def test_what_is_read_from_a_cache_counts_where_the_provider_counts_it() -> None:
    # 1 request a minute of 10,000 tokens, all of which count: 80,000 / 10,000 = 8; with 400 of output 80,000 / 10,400 = 7.7.
    use = {"requests": 1.0, "seconds": 60.0, "input": 10_000.0, "cached": 0.9, "cached_counts": 1.0, "output": 400.0}
    assert carried(sheet(Quota("input", 80_000, 60), **use))["cloud_input_in_60_s"] == 8
    assert carried(sheet(Quota("tokens", 80_000, 60), **use))["cloud_tokens_in_60_s"] == 7


def test_limits_of_a_day_count_by_the_day() -> None:
    # 7 requests in 300 s are 1.4 a minute, 2,016 a day; 10,000 / 2,016 = 4.96 agents; 10,000 / 7 = 1,428.6 tasks.
    found = sheet(Quota("requests", 10_000, 86_400))
    assert carried(found)["cloud_requests_in_86400_s"] == 4
    assert found.values["requests_in_86400_s"] == pytest.approx(10_000 / 7)


def test_the_machine_binds_on_both_sides() -> None:
    # 4 cores x 2 / 0.5 = 16 agents; 8 GB / 0.4 GB = 20.
    found = Sheet({"cores": 4, "agent_cores": 0.5, "memory": 8, "agent_memory": 0.4, "weights": 1, "vram": 99, "layers": 0, "kv_heads": 0,
                   "head_dim": 0, "slots": 18})  # fmt: skip
    assert carried(found) == {"machine_cores": 16, "machine_memory": 20}
    assert carried(found, "local") == {"machine_cores": 16, "local_slots": 18, "machine_memory": 20}


def test_a_purse_carries_agents() -> None:
    # 7 x (9,000 x $1 + 9,000 x $0.1 + 500 x $5) / 10^6 = 7 x $0.0124 = $0.0868 a task; 720 x 3,600 / 300 = 8,640 tasks a month: $749.952.
    price = {"price_input": 1.0, "price_output": 5.0, "price_cache_read": 0.1}
    found = sheet(cached=0.5, budget=2_000, **price)
    assert found.values["task_cost"] == pytest.approx(0.0868)
    assert found.values["agent_cost"] == pytest.approx(749.952)
    assert carried(found)["cloud_budget"] == 2
    # 2 agents x 12 tasks an hour x $0.0868
    assert found.values["cloud_price"] == pytest.approx(2.0832)


SMALL = {"weights": 10.0, "layers": 10.0, "kv_heads": 10.0, "head_dim": 1_000.0, "context": 5_000.0, "input": 1_000.0}
"""A token takes 2 x 10 x 10 x 1,000 x 2 = 400,000 bytes, a slot of 5,000 tokens 2 GB."""


@pytest.mark.parametrize(
    ("cards", "vram", "agents"),
    [
        (1, 20, 4),  # 20 x 0.9 = 18; (18 - 10) / 2 = 4
        (2, 20, 8),  # two copies
        (1, 12, 0),  # 10.8 hold the weights and no slot
        (2, 12, 5),  # together 21.6; (21.6 - 10) / 2 = 5.8
        (5, 12, 10),  # two pairs, and one card that is left
    ],
)
def test_vram_is_weights_and_a_kv_cache_for_each_agent(cards: int, vram: int, agents: int) -> None:
    found = sheet(cards=cards, vram=vram, **SMALL)
    assert found.values["slot_kv"] == 2
    assert carried(found, "local")["local_room"] == agents
    assert sheet(cards=cards, vram=vram, agents=7, **SMALL).values["vram_needed"] == 24  # 10 + 7 x 2


def test_without_a_card_the_engine_and_the_agents_share_the_memory() -> None:
    # (30 - 10) / (2 + 0.5) = 8
    found = Sheet({"cores": 99, "memory": 30, "agent_memory": 0.5, "cards": 0, **SMALL})
    assert carried(found, "local")["local_room"] == 8


def test_a_prompt_that_is_longer_than_a_slot_is_carried_by_none() -> None:
    found = sheet(vram=20, **{**SMALL, "input": 4_501})  # 4,501 + 500 > 5,000
    assert found.carries("local")[0].name == "local_context"
    assert "local_tasks" not in found.values


def test_speed_by_the_bandwidth() -> None:
    # 1,000 GB/s x 0.5 = 500. A step: 10 / 500 = 20 ms for the weights; (1,000 + 500 / 2) x 400,000 bytes = 0.5 GB / 500 = 1 ms a stream.
    # 5 tokens a second are 200 ms: 20 + 180 x 1 = 180 streams. 4 fit; their step is 24 ms: 166.7 tokens a second.
    found = sheet(vram=20, bandwidth=1_000, share=0.5, **SMALL)
    assert carried(found, "local")["local_pace"] == 180
    assert carried(found, "local")["local_room"] == 4
    assert found.values["local_speed"] == pytest.approx(4 / 0.024)
    # An answer takes 500 x 24 ms = 12 s; a task 300 x 0.2 + 7 x 12 = 144 s; 4 x 3,600 / 144 = 100 tasks an hour.
    assert found.values["local_tasks"] == pytest.approx(100)
    # With prompts at 2,000 tokens a second, 4 at a time: 7 x 1,000 x 4 / 2,000 = 14 s more, 158 s.
    with_prompts = sheet(vram=20, bandwidth=1_000, share=0.5, prompt_speed=2_000, **SMALL)
    assert with_prompts.values["local_seconds"] == pytest.approx(158)
    # Ten agents on four slots wait for each other: an answer takes 12 x 10 / 4 = 30 s.
    assert sheet(vram=20, bandwidth=1_000, share=0.5, agents=10, **SMALL).values["answer"] == pytest.approx(30)


def test_two_copies_are_twice_as_fast() -> None:
    one, two = (sheet(cards=cards, vram=20, bandwidth=1_000, **SMALL) for cards in (1, 2))
    assert two.values["local_speed"] == pytest.approx(2 * one.values["local_speed"])
    assert carried(two, "local")["local_pace"] == 2 * carried(one, "local")["local_pace"]


OWNED = {"vram": 20.0, "bandwidth": 1_000.0, "share": 0.5, "hardware": 3_600.0, "months": 36.0, "hourly": 0.1, "price_cache_read": 0.0}


def test_own_hardware_is_cheaper_from_the_break_even_on() -> None:
    # $100 a month. A task costs 7 x (1,000 x $1 + 500 x $2) / 10^6 = $0.014 in the cloud, 100 an hour $1.40.
    # 100 / (1.40 - 0.10) = 76.9 hours a month, x 100 x 7 x 1,500 tokens an hour = 80,769,231 tokens.
    found = sheet(price_input=1, price_output=2, **OWNED, **SMALL)
    assert found.values["fixed"] == 100
    assert found.values["break_even"] == pytest.approx(76.923, rel=1e-4)
    assert found.values["break_even_tokens"] == pytest.approx(80_769_231, rel=1e-6)
    # busy all the time: ($100 / 720 + $0.10) / 100
    assert found.values["local_task_cost"] == pytest.approx(0.0023889, rel=1e-4)


def test_where_the_cloud_costs_less_than_the_power_there_is_no_break_even() -> None:
    found = sheet(price_input=0.01, price_output=0.02, **OWNED, **SMALL)
    assert [one.value for one in found.steps if one.name == "break_even"] == [None]
    assert "break_even_tokens" not in found.values


def test_what_is_not_known_is_left_out() -> None:
    names = {one.name for one in sheet().steps}
    assert not names & {"task_cost", "cloud_price", "vram_needed", "local_tasks", "break_even"}
    assert "rate" in names
    assert sheet(seconds=0).values.get("rate") is None


def test_each_figure_shows_its_formula_with_its_numbers() -> None:
    assert [one.formula for one in sheet(requests=6, seconds=120).steps if one.name == "rate"] == ["60 * requests / seconds = 60 * 6 / 120"]


# Speed ------------------------------------------------------------------------------------------------------------------------------------


def test_five_ten_and_twenty_agents_are_predicted_within_15_percent_of_a_noisy_engine(seed: int) -> None:
    """Engines with a step of a + b x streams, from such that read much memory to such that only compute, each measurement off by 5 %."""
    chance = random.Random(seed)
    for _ in range(500):
        a, b = chance.uniform(0, 0.05), chance.uniform(0.0005, 0.02)
        noisy = {n: n / (a + b * n) * chance.uniform(0.95, 1.05) for n in (1, 4, 8, 16)}
        speed = measured(noisy)
        for n in (5, 10, 20):
            assert n / speed.step_s(n) == pytest.approx(n / (a + b * n), rel=0.15), (a, b, noisy)


@pytest.mark.parametrize(
    ("points", "streams", "tokens_per_s"),
    [
        # A processor, two threads, prompts of 54 tokens: the middle of each range that was measured; 8 streams gave 62.9 to 84.9.
        ({1: 44.6, 4: 47.7, 16: 84.7}, 8, (62.9, 84.9)),
        # The same from its lower and its upper ends.
        ({1: 44.6, 4: 38.6, 8: 62.9}, 16, (78.0 * 0.85, 91.4 * 1.15)),
        # An H200, Llama 3 8B: 50 streams gave 3,514 tokens a second; of the smaller model 5,803.
        ({1: 120.5, 8: 860, 200: 6_517}, 50, (3_514 * 0.85, 3_514 * 1.15)),
        ({1: 169, 8: 1_299, 200: 12_427}, 50, (5_803 * 0.85, 5_803 * 1.15)),
    ],
)
def test_engines_that_were_measured(points: dict[int, float], streams: int, tokens_per_s: tuple[float, float]) -> None:
    least, most = tokens_per_s
    assert least <= streams / measured(points).step_s(streams) <= most


def test_the_floor_of_a_measured_card() -> None:
    """An H200, bf16, 512 + 200 tokens: 46 % of the bandwidth was reached at 1 stream (8.15 ms a token) and 41 % at 50 (11.5 ms)."""
    shape = {"billions": 8.03, "layers": 32.0, "kv_heads": 8.0, "head_dim": 128.0, "vram": 141.0, "bandwidth": 4_300.0}
    for agents, share, step_s in ((1, 0.46, 0.00815), (50, 0.41, 0.0115)):
        found = sheet(agents=agents, share=share, input=512, output=200, **shape)
        assert found.values["step"] == pytest.approx(step_s, rel=0.05)


def test_one_point_means_that_more_streams_add_nothing() -> None:
    assert 16 / measured({4: 50.0}).step_s(16) == pytest.approx(50)
    assert measured({4: 50.0}).streams(5) == 10


@pytest.mark.parametrize("points", [{}, {0: 5.0}, {1: 0.0}])
def test_points_that_say_nothing_are_refused(points: dict[int, float]) -> None:
    with pytest.raises(ValueError, match="above 0"):
        measured(points)


# The command ------------------------------------------------------------------------------------------------------------------------------


def examples() -> list[tuple[str, str, float]]:
    """The command of each example of the page, the figure that it names, and its value."""
    found = re.findall(r"^(nightcrew capacity --what-if .*)\n# (\w+): ([\d.,]+)$", PAGE.read_text(), re.MULTILINE)
    return [(command, figure, float(value.replace(",", ""))) for command, figure, value in found]


def figures(house: House, *words: str) -> dict[str, dict[str, Any]]:
    told = json.loads(house.ok("capacity", "--what-if", *words, "--json"))
    return {one["name"]: one for one in told["figures"]}


def test_the_page_has_an_example_for_each_figure_that_it_corrects() -> None:
    assert len(examples()) >= 6


@pytest.mark.parametrize(("command", "figure", "value"), examples())
def test_an_example_of_the_page_gives_what_the_page_says(house: House, command: str, figure: str, value: float) -> None:
    words = shlex.split(command)[3:]
    assert figures(house, *words)[figure]["value"] == pytest.approx(value, rel=0.005)


def test_text_shows_what_binds_and_what_to_add(house: House) -> None:
    text = house.ok("capacity", "--limit", "requests=60/min", "--cores", "99", "--memory", "99")  # which implies --what-if
    assert re.search(r"^requests +7  Requests of a task. <- assumed$", text, re.MULTILINE)
    assert re.search(r"^rate +1.4  requests a minute of an agent <- 60 \* requests / seconds = 60 \* 7 / 300$", text, re.MULTILINE)
    assert re.search(r"^cloud:\n  beyond +42 agents: a second account \(cloud_requests_in_60_s\)$", text, re.MULTILINE)


def test_use_is_that_of_the_newest_tasks(house: House) -> None:
    """Two tasks of `claude`, one of another kind: 20 requests, 90,000 + 10,000 tokens of prompts, 10,000 of them new."""
    house.home.root.mkdir(parents=True, exist_ok=True)
    with closing(Ledger(house.home.ledger, Wall())) as ledger:
        for number, kind in enumerate(("claude", "claude", "codex")):
            (task,) = submit(ledger, spec("t", kind=kind), run=f"0731-{number:04}")
            ledger.commit(whole(task))
            result = {"tokens": {"input": 1_000, "output": 2_000, "cache_read": 45_000, "cache_write": 4_000}, "models": [{"requests": 10}]}
            write(ledger, task, result, {"wall_s": 100.0 * (number + 1), "model_s": 60.0 * (number + 1)})
    found = figures(house)
    assert {name: found[name]["value"] for name in ("requests", "input", "output", "cached", "seconds", "tools")} == {
        "requests": 10, "input": 5_000, "output": 200, "cached": 0.9, "seconds": 150, "tools": pytest.approx(0.4),
    }  # fmt: skip
    assert found["requests"]["formula"] == "measured, claude"
    assert figures(house, "--kind", "codex", "--requests", "3")["seconds"]["value"] == 300
    assert figures(house, "--kind", "other")["requests"]["formula"] == "assumed"


def write(ledger: Ledger, task: str, result: dict[str, Any], account: dict[str, Any]) -> None:
    with ledger._desk.writing(durable=False):
        ledger._desk.db.execute(
            "UPDATE attempt SET result = ?, account = ? WHERE task = ?", (json.dumps(result), json.dumps(account), task)
        )


def test_limits_and_engine_of_the_settings(house: House, tmp_path: Path) -> None:
    file = tmp_path / "tiny.gguf"
    shape = {"block_count": 3, "attention.head_count": 4, "attention.head_count_kv": [1, 2, 3], "embedding_length": 64}
    facts = {
        "general.architecture": "tiny",
        **{f"tiny.{name}": value for name, value in shape.items()},
        "tokenizer.ggml.tokens": ["a", "b"],
    }
    gguf(file, facts)
    house.config.write_text(
        "[upstream.one]\napi = 'anthropic'\nkey = 'none'\nrpm = 10\n"
        "[upstream.two]\napi = 'anthropic'\nkey = 'none'\nrpm = 20\n"
        f"[engine.own]\nmodel = '{file}'\nslots = 3\ncontext = 30000\n"
    )
    found = figures(house, "--local", "own", "--cards", "0")
    assert found["requests_in_60_s"]["formula"].endswith("= 30 * 1440 / (7 * 1)")
    assert {name: found[name]["value"] for name in ("slots", "context", "layers", "kv_heads", "head_dim")} == {
        "slots": 3, "context": 30_000, "layers": 3, "kv_heads": 2, "head_dim": 16,
    }  # fmt: skip
    assert found["weights"]["value"] == file.stat().st_size / 1e9
    assert found["token_kv"]["value"] == 2 * (1 + 2 + 3) * 16 * 2


def gguf(file: Path, facts: dict[str, Any]) -> None:
    """A GGUF header, version 3, with numbers, texts and lists of them."""

    def text(value: str) -> bytes:
        return struct.pack("<Q", len(value)) + value.encode()

    def typed(value: Any) -> tuple[int, bytes]:
        match value:
            case str():
                return 8, text(value)
            case list():
                kind = typed(value[0])[0]
                return 9, struct.pack("<IQ", kind, len(value)) + b"".join(typed(one)[1] for one in value)
            case _:
                return 4, struct.pack("<I", value)

    body = b"".join(text(name) + struct.pack("<I", typed(value)[0]) + typed(value)[1] for name, value in facts.items())
    file.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, len(facts)) + body)


def test_a_price_of_the_settings_and_a_measured_engine(house: House, tmp_path: Path) -> None:
    house.config.write_text('[prices."own-*"]\ninput = 2.0\noutput = 8.0\n')
    report = tmp_path / "local.json"
    report.write_text(json.dumps({"model": "m", "tokens_per_s": {"1": 10, "4": 20}, "prompt_tokens_per_s": 1_000}))
    found = figures(house, "--model", "own-1", "--local", "qwen3-1.7b", "--vram", "99", "--measured", str(report), "--agents", "4")
    assert [found[name]["value"] for name in ("price_input", "price_output", "price_cache_read")] == [2, 8, 2]
    assert found["local_speed"]["value"] == pytest.approx(20)
    assert found["prompt"]["value"] == pytest.approx(18_000 * 4 / 1_000)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--limit", "requests=60"), "no limit requests=60: a limit is such as"),
        (("--model", "nobody-knows"), "its price is not known nobody-knows; next: nightcrew up"),
        (("--local", "nothing.gguf"), "cannot read the model's shape nothing.gguf: [Errno 2] No such file"),
        (("--measured", "nothing.json"), "cannot read the measured speed nothing.json"),
    ],
)
def test_what_it_cannot_use_is_named(house: House, words: tuple[str, ...], said: str) -> None:
    done = house.run("capacity", "--what-if", *words)
    assert done.returncode in (2, 3)
    assert said in done.stderr


def test_another_file_is_no_model(house: House, tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    for data in (b"something else", b"GGUF\x03\x00\x00\x00"):
        file.write_bytes(data)
        assert f"cannot read the model's shape {file}" in house.run("capacity", "--what-if", "--local", str(file)).stderr
