"""The gateway's text: every line fits, and says what the figures say."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from supervisor.gateway.account.queries import Figures, Percentiles, Window
from supervisor.gateway.account.writer import Account
from supervisor.gateway.admission.types import AgentView, BreakerState, DimensionView, PoolKey, PoolView, TrafficView, Usage
from supervisor.gateway.admission.types import Window as Subscription
from supervisor.gateway.pages import status
from supervisor.host.paths import Home
from supervisor.kernel.errors import LedgerError, ToolFailed
from supervisor.kernel.states import TaskClass
from supervisor.views import gateway
from supervisor.views.status import columns
from tests.gateway.account.kit import AGENT, LANE, NOW, Wall, opened, served, unpriced

FIGURES = Figures(
    318, 1, 1.06, 1300.0, Usage(20_000, 9000, 300_000, 9000), 4.21, 0, 0, Percentiles(0.12, 3.2, 12.4), Percentiles(1.2, 6.0, 19.0),
    Percentiles(4.1, 12.0, 31.0), 2, 3,
)  # fmt: skip
POOL = PoolKey("work", LANE)


def agent(name: str, **facts: Any) -> AgentView:
    shape: dict[str, Any] = {
        "task_class": TaskClass.NORMAL, "used_tpm": 12_000.0, "share_tpm": 16_000.0, "cap_tpm": None, "cost_usd": 1.0, "in_flight": 1,
        "queued": 0, "place": None, "waiting_s": 0.0,
    }  # fmt: skip
    return AgentView(name, **{**shape, **facts})


def pool(**facts: Any) -> PoolView:
    dimensions = (DimensionView("input", 80_000.0, 14_000.0, 80_000.0, 9000.0, 3200.0, 0.82),)
    shape: dict[str, Any] = {
        "breaker": BreakerState.CLOSED, "breaker_why": "", "exhausted_in_s": 41.0, "opens_in_s": None, "in_flight": 12,
        "dimensions": dimensions, "windows": (Subscription("5h", 0.83, 4320.0, spent=False),),
    }  # fmt: skip
    return PoolView(POOL, **{**shape, **facts})


def shape(*agents: AgentView, pools: tuple[PoolView, ...] = (), total: Figures = FIGURES, problems: tuple[Any, ...] = ()) -> dict[str, Any]:
    """What `look` gives while a gateway runs, as it comes over the socket."""
    view = TrafficView(pools or (pool(),), agents, {LANE: 31}, {LANE: 41.2})
    window = Window(300.0, {one.name: FIGURES for one in agents}, {str(POOL): FIGURES}, total)
    page = {"port": 43817, "pid": 4242, "since": NOW - 11_520, "running": True, **status(view, window, problems)}
    return gateway._priced(json.loads(json.dumps(page)))


def shown(what: dict[str, Any], width: int = 200) -> str:
    return gateway.text(what, NOW, width=width, color=False)


def test_the_heading_and_the_totals() -> None:
    text = shown(shape())
    assert text.splitlines()[:5] == [
        "gateway  up 3h12m, 127.0.0.1:43817, pid 4242, 12 in flight, 31 queued",
        "         anthropic/opus-4: 31 queued, a new request waits 41s",
        "last 5m  318 requests, 1.06/s, 1.3k tokens/s, errors 0.3%, 429: 2 theirs, 3 ours",
        "         $4.21, 80k tokens/$, cache hits 91%",
        "         P50/P95/P99 s: wait 0.1/3.2/12, first byte 1.2/6.0/19, turn 4.1/12/31",
    ]


def test_one_line_an_agent_who_waits_longest_first() -> None:
    text = shown(
        shape(
            agent("1121-k3f9/lint"), agent("1121-k3f9/docs", used_tpm=0.0), agent("1121-k3f9/cart", place=4, waiting_s=41.0, cap_tpm=20e3)
        )
    )
    heading, *lines = text.partition("AGENT")[2].splitlines()
    assert "\n\nrun 1121-k3f9\nAGENT" in text, "the one run is said once"
    assert [line.split()[0] for line in lines] == ["cart", "lint", "docs"]
    assert "CACHE" in heading and "FIRST BYTE" in heading
    cart = lines[0].split()
    wanted = ["cart", "normal", "████░░", "12k/16k", "20k", "#4", "41s", "0.1/3.2/12", "1.2/6.0/19", "4.1/12/31", "$4.21", "91%"]
    assert cart[: len(wanted)] == wanted


@pytest.mark.parametrize("width", [20, 40, 60, 80, 81, 100, 132, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    agents = [agent(f"1121-k3f9/{'漢字' * number}{'x' * number}", place=number, waiting_s=number * 1e4) for number in range(1, 30)]
    pools = (pool(), pool(breaker=BreakerState.OPEN, breaker_why="x" * 300, opens_in_s=1e6))
    problems = (ToolFailed("cannot read the key", why="y" * 300),)
    lines = shown(shape(*agents, pools=pools, problems=problems), width).splitlines()
    assert max(map(columns, lines)) <= width
    assert sum("漢" in line for line in lines) == 29, "each agent has its line"


def test_at_80_columns_the_table_has_what_matters_most() -> None:
    heading = next(line for line in shown(shape(agent("1121-k3f9/lint")), 80).splitlines() if line.startswith("AGENT"))
    assert {"TPM/SHARE", "PLACE", "COST"} <= set(heading.split()) and "WAIT P50/95/99" in heading


def test_a_breaker_says_why_and_when_it_tries_again() -> None:
    text = shown(shape(pools=(pool(breaker=BreakerState.OPEN, breaker_why="429 from the provider", opens_in_s=12.0, exhausted_in_s=None),)))
    assert "work/anthropic/opus-4  breaker OPEN  input █████░ 82%" in text
    assert "  429 from the provider; tries again in 12s" in text
    assert "  others use 3.2k input/min of it" in text and "  5h window 83% used, resets in 1h12m" in text
    assert "work/anthropic/opus-4  breaker closed  empty in 41s  input" in shown(shape())


@pytest.mark.parametrize(
    ("why", "said"),
    [
        ("key refused", "next: mend the key file, then nightcrew gateway reload"),
        ("spend cap reached: 400", "next: raise the spend limit at the provider"),
        ("unreachable: connection refused", "next: see its url in the settings, then nightcrew doctor"),
    ],
)
def test_what_a_person_must_mend_names_the_next_step(why: str, said: str) -> None:
    assert said in shown(shape(pools=(pool(breaker=BreakerState.OPEN, breaker_why=why, opens_in_s=12.0),)), 80)


def test_who_is_done_and_what_nothing_uses_leave_the_screen() -> None:
    what = shape(agent("r/works"), agent("r/late", in_flight=0, used_tpm=0.0), agent("r/over", in_flight=0, used_tpm=0.0), agent("r/just"))
    for one in what["agents"]:
        one["ended"] = one["name"] in ("r/over", "r/just")
    text = shown(what)
    assert "over" not in text and text.splitlines()[-1] == "and 1 that is done"
    assert all(f"\n{name} " in text for name in ("works", "late", "just")), "one that ended a moment ago is still there"
    pools = (pool(in_flight=0), pool(breaker=BreakerState.OPEN, in_flight=0))
    what = shape(pools=pools)
    what["lanes"] = []
    what["pools"] = [{**one, "figures": None} for one in what["pools"]]
    text = shown(what)
    assert "breaker OPEN" in text and "breaker closed" not in text and "and 1 limit that nothing uses" in text
    assert "empty in" not in text, "nothing is under way that could empty it"
    assert "OPEN" not in shown({**what, "accounts": ["another"]}), "its upstream is gone"


@pytest.mark.parametrize("rows", [12, 15, 24])
def test_the_last_row_says_how_many_more(rows: int) -> None:
    what = shape(*(agent(f"r/agent-{number:02}") for number in range(30)))
    lines = gateway.text(what, NOW, width=80, color=False, rows=rows).splitlines()
    there = sum(line.startswith("agent-") for line in lines)
    assert len(lines) == rows and lines[-1] == f"… and {30 - there} more agents"
    assert there > 0 or rows == 12, "its limits and totals take all of the smallest"
    one = gateway.text(shape(agent("r/a"), agent("r/b")), NOW, width=80, color=False, rows=13)
    assert one.splitlines()[-1] == "… and 2 more agents"
    assert "more" not in gateway.text(what, NOW, width=80, color=False, rows=60)


def test_caps_are_shown_where_there_are_any() -> None:
    held = agent("r/held", queued=1, place=None, cap_tpm=6000.0, cost_usd=1.08)
    what = shape(held, agent("q/other"))
    assert "tonight" not in shown(what)
    what |= {"tonight_usd": 1.08, "caps": {"cost_per_night": 3.0}}
    what["agents"][0]["cost_max"] = 3.0
    text = shown(what, 80)
    assert "tonight $1.08 of $3.00" in text
    (heading,) = [line.split() for line in text.splitlines() if line.startswith("AGENT")]
    assert heading[:2] == ["AGENT", "RUN"] and "CAP" in heading and "CAP" not in shown(shape(agent("r/other")))
    (row,) = [line for line in text.splitlines() if line.startswith("held")]
    assert "own cap" in row and "6.0k" in row and "$1.08 of $3.00" in row


def test_nothing_is_minus_zero() -> None:
    text = shown(shape(agent("r/a", used_tpm=-0.3), pools=(pool(dimensions=(DimensionView("input", 1.0, 1.0, 1.0, 0.0, 0.0, -0.001),)),)))
    assert "-0" not in text and " 0/16k" in text and " 0%" in text


@pytest.mark.parametrize("width", [60, 80])
def test_what_does_not_fit_goes_on_in_the_next_line(width: int) -> None:
    problem = ToolFailed(
        "there is no key for the upstream", on="try", why="no file /home/person/.nightcrew/keys/try.key", hint="put it there"
    )
    assert "…" not in shown(shape(problems=(problem,)), width)
    assert "next: put it there" in " ".join(shown(shape(problems=(problem,)), width).split())


def test_what_an_agent_is_called_cannot_drive_the_terminal() -> None:
    text = gateway.text(shape(agent("run/\x1b[2J\u202e")), NOW, width=200, color=False)
    assert "\x1b" not in text and "\u202e" not in text and "\\x1b[2J" in text


def test_colour_only_when_it_is_wanted() -> None:
    broken = shape(pools=(pool(breaker=BreakerState.OPEN),), problems=(ToolFailed("cannot read the key"),))
    assert "\x1b" not in gateway.text(broken, NOW, width=100, color=False)
    colored = gateway.text(broken, NOW, width=100, color=True)
    assert "\x1b[31mOPEN\x1b[0m" in colored and "\x1b[31m! cannot read the key" in colored
    assert "\x1b[32mclosed\x1b[0m" in gateway.text(shape(), NOW, width=100, color=True)


@pytest.mark.parametrize(
    ("known", "unpriced", "said"), [(4.21, 0, "$4.21"), (0.0, 0, "$0.00"), (0.0123, 0, "$0.0123"), (4.21, 2, ">$4.21"), (0.0, 2, "$?")]
)
def test_a_price_that_is_not_known_is_never_a_zero(known: float, unpriced: int, said: str) -> None:
    what = shape(total=Figures(requests=3, known_usd=known, unpriced=unpriced))
    assert f"         {said}, " in shown(what)
    assert what["figures"]["cost_usd"] == (None if unpriced else known)


def test_the_one_line_for_status() -> None:
    what = shape(agent("1121-k3f9/lint"), pools=(pool(breaker=BreakerState.HALF_OPEN),))
    said = "12 in flight, 31 queued, a new request waits 41s, 12k tokens/min, $4.21 in 5m"
    assert gateway.line(what) == f"gateway  breaker of work/anthropic/opus-4 half-open: one request tries, {said}"
    refused = pool(breaker=BreakerState.OPEN, breaker_why="key refused")
    what = shape(
        pools=(pool(breaker=BreakerState.HALF_OPEN), refused), problems=(ToolFailed("there is no key for the upstream", on="try"),)
    )
    trouble = "! there is no key for the upstream try, breaker of work/anthropic/opus-4 OPEN (key refused; next: mend the key file, then "
    assert gateway.line(what).startswith(f"gateway  {trouble}nightcrew gateway reload) and 1 more, 24 in flight")


def test_nothing_that_moves_is_unknown_without_figures() -> None:
    view = TrafficView((pool(exhausted_in_s=None, dimensions=(), windows=()),), (agent("run/a", share_tpm=None),), {}, {})
    page = {"port": 1, "pid": 2, "since": NOW, "running": True, **status(view, Window(300.0, {}, {}, Figures()), ())}
    text = shown(gateway._priced(page))
    assert "0 requests" in text and "errors -" in text and "- tokens/$" in text and "run run\nAGENT" in text
    assert "nan" not in text.lower() and "None" not in text


# While no gateway runs -----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def home(tmp_path: Path) -> Home:
    (tmp_path / "home").mkdir(mode=0o700)
    return Home(tmp_path / "home")


async def write(home: Home) -> None:
    book = Account(home.gateway_account, Wall())
    book.start(unpriced)
    for at in (NOW - 1000, NOW - 60, NOW):
        book.settle(await book.open(opened(at=at)), served())
    await book.close()


def test_who_is_raised_is_seen_and_nobody_else_has_the_column() -> None:
    assert "RAISED" not in shown(shape(agent("1121-k3f9/lint")))
    text = shown(shape(agent("1121-k3f9/lint"), agent("1121-k3f9/cart", raised=1.34, turn_wait_s=14.2, queued=2)))
    heading, lint, cart = text.partition("AGENT")[2].splitlines()[:3]
    assert "RAISED" in heading and "x1.3" in cart + lint and (cart + lint).count(" x") == 1


def test_what_engines_spend_is_shown_where_there_are_any() -> None:
    assert "ENGINE" not in shown(shape(agent("1121-k3f9/lint"))) and "engine" not in shown(shape())
    what = shape(agent("1121-k3f9/lint"), agent("1121-k3f9/docs"))
    what["agents"][0]["figures"] |= {"engine_s": 62.0, "kv_bytes": 3 * 2**20}
    what["engines"] = [{"name": "box", "memory": 2**30, "gpu_memory": None}, {"name": "card", "memory": 2**30, "gpu_memory": 2**34}]
    heading, *lines = shown(what).partition("AGENT")[2].splitlines()
    lint, docs = sorted(lines[:2], reverse=True)
    assert "ENGINE" in heading and "KV" in heading and "1m02s" in lint and "3.0 MiB" in lint and "MiB" not in docs
    assert lines[2:] == ["engine box  1.0 GiB of memory", "engine card  1.0 GiB of memory, 16.0 GiB on GPUs"]


def test_where_there_never_was_a_gateway_there_is_nothing(home: Home) -> None:
    assert gateway.look(home, NOW) is None
    assert list(home.root.iterdir()) == [], "looking leaves nothing behind"


def test_the_account_speaks_while_no_gateway_runs(home: Home) -> None:
    asyncio.run(write(home))
    what = gateway.look(home, NOW + 7200)
    assert what is not None and (what["running"], what["why"], what["last"]) == (False, "no gateway is running", NOW)
    assert what["figures"]["requests"] == 2, "the five minutes before its last request"
    (one,) = what["agents"]
    assert (one["name"], one["used_tpm"], one["place"], one["figures"]["requests"]) == (AGENT, None, None, 2)
    assert json.loads(json.dumps(what)) == what
    text = gateway.text(what, NOW + 7200, width=80, color=False)
    assert text.startswith("gateway  no gateway is running\n         its last request was 2h ago; up to then:\nlast 5m  2 requests")
    assert AGENT.partition("/")[2] in text and "closed" not in text
    assert gateway.line(what) == "gateway  no gateway is running"


def test_a_gateway_that_is_gone_left_its_record_and_no_account(home: Home) -> None:
    home.gateway_record.write_text("{}")
    what = gateway.look(home, NOW)
    assert what is not None and (what["running"], what["last"], what["agents"]) == (False, None, [])
    assert "nothing ever went through it" in gateway.text(what, NOW, width=80, color=False)


def test_a_damaged_account_is_said(home: Home) -> None:
    home.gateway_account.write_bytes(b"no database" * 1000)
    with pytest.raises(LedgerError, match="the account is damaged"):
        gateway.look(home, NOW)


def test_what_kept_answers_saved() -> None:
    text = shown(shape() | {"cache": {"bytes": 3 * 2**20, "hits": 12, "tokens": 34_000, "usd": 1.5}})
    assert "kept     3.0 MiB of answers, 12 requests answered, 34k tokens and $1.50 saved" in text
    assert "kept" not in shown(shape())
