"""The model against the rows: every sum once more by plain SQL, and what becomes of rows that are missing or damaged."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from supervisor.features.night import morning_json as night_report
from supervisor.features.night.morning_rows import Night
from supervisor.host.paths import Home
from supervisor.kernel.errors import NotFound
from supervisor.kernel.states import Decider, TaskState
from supervisor.results import ranking
from supervisor.results.ranking import Facts
from tests.views.night.kit import BEGAN, HOUR, MODELS, RUN, account, books, random_night, result

NOW = BEGAN + 9 * HOUR


def ask(file: Path, sql: str) -> list[Any]:
    with contextlib.closing(sqlite3.connect(file)) as db:
        return db.execute(sql).fetchall()


def test_every_figure_is_the_ledgers(tmp_path: Path) -> None:
    home = random_night(tmp_path / "home", 60, seed=16)
    night = night_report.read(home, RUN, NOW)
    figures = night.figures()

    assert figures["states"] == dict(ask(home.ledger, "SELECT state, count(*) FROM task GROUP BY state"))
    assert figures["tasks"] == len(night.tasks) == 60
    (again, attempts), *_ = ask(home.ledger, "SELECT count(*) FILTER (WHERE epoch > 1), count(*) FROM attempt")
    assert (figures["again"], figures["attempts"]) == (again, attempts)

    names = ("slot_queue_s", "launch_s", "model_s", "local_s", "token_queue_s", "human_s", "paused_s", "wall_s")
    sums = ", ".join(f"total(json_extract(account, '$.{name}'))" for name in names)
    (times,) = ask(home.ledger, f"SELECT {sums}, count(*) FROM attempt")  # noqa: S608 - names of ours
    ours = night.times
    told = (ours.slot_s, ours.launch_s, ours.model_s, ours.own_s, ours.tokens_s, ours.person_s, ours.paused_s, ours.wall_s, ours.measured)
    assert told == pytest.approx(times)
    assert night.alone_s == pytest.approx(times[1] + times[2] + times[3])


def test_tokens_and_money_are_the_accounts(tmp_path: Path) -> None:
    home = random_night(tmp_path / "home", 60, seed=17)
    night = night_report.read(home, RUN, NOW)
    kinds = "sum(input), sum(output), sum(cache_read), sum(cache_write), sum(cost_usd), sum(estimated)"
    more = """count(*) FILTER (WHERE status = 429), count(*) FILTER (WHERE end NOT IN ('refused', 'never sent')),
              count(*) FILTER (WHERE cost_usd IS NULL AND input + output + cache_read + cache_write > 0)"""
    sql = f"SELECT {{}}, {kinds}, {more} FROM request GROUP BY 1"  # noqa: S608 - literals

    def told(spent: Any) -> tuple[Any, ...]:
        tokens = spent.tokens
        sums = (tokens.input, tokens.output, tokens.cache_read, tokens.cache_write, pytest.approx(spent.known_usd), spent.estimated)
        return (*sums, spent.refused, spent.requests, spent.unpriced)

    (whole,) = ask(home.gateway_account, sql.format("1"))
    assert told(night.spent) == whole[1:]
    assert night.spent.cost_usd is None  # some of it has no price
    by_task = {task.id: told(task.spent) for task in night.tasks if task.spent.requests or task.spent.refused}
    assert by_task == {row[0]: row[1:] for row in ask(home.gateway_account, sql.format("agent"))}
    assert {name: told(spent) for name, spent in night.by_model.items()} == {
        row[0]: row[1:] for row in ask(home.gateway_account, sql.format("model"))
    }
    assert night.spent.cache_hits == pytest.approx(whole[3] / (whole[1] + whole[3] + whole[4]))


def test_a_pruned_account_gives_way_to_the_results(tmp_path: Path) -> None:
    with books(tmp_path / "home") as made:
        made.run()
        task = made.task("lint")
        tokens = {"input": 900, "output": 100, "cache_read": 0, "cache_write": 0, "estimated": 0}
        answered = [{"asked": "opus", "answered": MODELS[0], "requests": 4}]
        made.attempt(task, 1, BEGAN, BEGAN + 60, result=result(task, tokens=tokens, cost_usd=0.5, models=answered))
        made.request(task, 1, BEGAN + 50, input=100, output=20, cache_read=0, cache_write=0, cost_usd=0.1)
    night = night_report.read(made.home, RUN, NOW)
    assert (night.spent.tokens.total, night.spent.known_usd, night.spent.requests) == (1000, 0.5, 4)
    assert night.by_model[MODELS[0]] == night.spent
    made.home.gateway_account.unlink()
    assert night_report.read(made.home, RUN, NOW).spent.cost_usd == 0.5


def test_a_damaged_account_is_said_and_the_rest_is_told(tmp_path: Path) -> None:
    home = random_night(tmp_path / "home", 5, seed=1)
    for suffix in ("-wal", "-shm"):
        home.gateway_account.with_name(home.gateway_account.name + suffix).unlink(missing_ok=True)
    home.gateway_account.write_bytes(b"SQLite format 3\0" + b"\xff" * 5000)
    night = night_report.read(home, RUN, NOW)
    assert len(night.tasks) == 5
    assert "account" in night.trouble[0]
    assert night.spent.requests == 0


@pytest.mark.parametrize(
    "text", ["{", "[]", "null", '"x"', '{"tokens": 5, "diff": [], "gate": 1, "notes": 3, "models": {}, "agent": []}', "[" * 5000]
)
def test_results_that_are_no_results(tmp_path: Path, text: str) -> None:
    with books(tmp_path / "home") as made:
        made.run()
        task = made.task("lint", "failed", "exit code 1")
        made.attempt(task, 1, BEGAN, BEGAN + 60, "failed", result=text, account=text)
    night = night_report.read(made.home, RUN, NOW)
    assert night.tasks[0].work is None
    assert night.times.unmeasured == 1
    assert bool(night.trouble) is not text.startswith('{"tokens')


def test_numbers_that_are_none(tmp_path: Path) -> None:
    with books(tmp_path / "home") as made:
        made.run()
        task = made.task("lint")
        wrong = '{"tokens": {"input": 1e999, "output": -5, "cache_read": "7", "cache_write": true}, "cost_usd": NaN, "commits": "2"}'
        made.attempt(task, 1, BEGAN, BEGAN + 60, result=wrong, account='{"wall_s": "x", "model_s": Infinity}')
    night = night_report.read(made.home, RUN, NOW)
    assert night.spent.tokens.total == 0
    assert night.times.wall_s == night.times.model_s == 0.0


def one(tmp_path: Path, *events: tuple[str, float], state: str = "running", end: str | None = None) -> Night:
    with books(tmp_path / "home") as made:
        made.run()
        task = made.task("ask", state)
        made.attempt(task, 1, BEGAN, BEGAN + 100 if end else None, end)
        for event, after in events:
            made.note(task, 1, event, BEGAN + after, **({"question": "May I?"} if event == "set aside" else {}))
    return night_report.read(made.home, RUN, BEGAN + 200)


def test_a_question_stands_until_somebody_lets_it_go_on(tmp_path: Path) -> None:
    asked = one(tmp_path / "a", ("set aside", 10.0), ("paused", 10.0))
    assert [(task.question, task.asked_at) for task in asked.needing] == [("May I?", BEGAN + 10)]
    assert not one(tmp_path / "b", ("set aside", 10.0), ("resumed", 20.0)).needing
    assert not one(tmp_path / "e", ("set aside", 10.0), ("waiting", 20.0), state="ready", end="failed").needing
    assert not one(tmp_path / "c", ("set aside", 10.0), state="done", end="done").needing
    ended = one(tmp_path / "d", ("set aside", 10.0), state="cancelled", end="cancelled")
    assert ended.needing == ended.tasks
    assert not ended.unwell


def test_the_spans_of_one_attempt(tmp_path: Path) -> None:
    with books(tmp_path / "home") as made:
        made.run()
        task = made.task("lint")
        made.attempt(task, 1, BEGAN + 30, BEGAN + 101, account=account(70.0, slot_queue_s=30.0, token_queue_s=10.0))
        made.request(task, 1, BEGAN + 50, queued_ms=10_000.0)
        made.request(task, 1, BEGAN + 50, queued_ms=5_000.0)
        made.request(task, 1, BEGAN + 90, queued_ms=20.0)
        made.note(task, 1, "paused", BEGAN + 60)
        made.note(task, 1, "resumed", BEGAN + 70)
        made.note(task, 1, "paused", BEGAN + 80)
        made.note(task, 1, "set aside", BEGAN + 80, question="?")
        made.note(task, 1, "resumed", BEGAN + 100)
    spans = [(begin - BEGAN, end - BEGAN, kind) for begin, end, kind in night_report.read(made.home, RUN, NOW).tasks[0].attempts[0].spans]
    assert spans == [
        (0, 30, "slot"),
        (30, 31, "launch"),
        (31, 40, "work"),
        (40, 50, "tokens"),
        (50, 60, "work"),
        (60, 70, "paused"),
        (70, 80, "work"),
        (80, 100, "person"),
        (100, 101, "work"),
    ]


def test_events_of_other_hours_are_not_told(tmp_path: Path) -> None:
    with books(tmp_path / "home") as made:
        made.note(None, None, "machine slept", BEGAN - 50, seconds=5.0)
        made.run()
        task = made.task("lint")
        made.attempt(task, 1, BEGAN, BEGAN + 100)
        made.note(None, None, "clock jumped", BEGAN + 50, seconds=-3600.0)
        made.note(None, None, "outage", BEGAN + 60, why="no provider serves anything")
        made.note(None, None, "admission", BEGAN + 61, why="of no interest")
        made.note(None, None, "night over", BEGAN + 62, run="1122-0ther", why="another night's")
        made.note(None, None, "night closing", BEGAN + 63, run=RUN, why="its cap is reached")
        made.note(None, None, "machine rebooted", BEGAN + 9000)
    told = [(event.kind, event.words, event.until) for event in night_report.read(made.home, RUN, NOW).events]
    assert told == [
        ("machine", "the clock was set back by 1h", None),
        ("outage", "no provider serves anything", None),
        ("night", "nothing more was started: its cap is reached", None),
    ]


def test_breakers_are_told_from_their_opening_to_their_closing(tmp_path: Path) -> None:
    with books(tmp_path / "home") as made:
        made.run()
        made.task("lint", "running")
        for at, after in ((10, "open"), (20, "half-open"), (30, "open"), (40, "closed")):
            data = f'{{"breaker": "limit", "after": "{after}", "why": "the limit is near"}}'
            made.account.execute("INSERT INTO journal (at, about, event, data) VALUES (?, 'pool', 'breaker', ?)", (BEGAN + at, data))
    (event,) = night_report.read(made.home, RUN, NOW).events
    assert (event.at, event.until, event.words) == (BEGAN + 10, BEGAN + 40, "the breaker of pool opened: the limit is near")


def test_a_night_that_goes_on_and_one_that_is_over(tmp_path: Path) -> None:
    going = one(tmp_path / "a")
    assert going.ended is None
    assert going.night_s == 200.0
    assert going.times.unmeasured == 1
    over = one(tmp_path / "b", state="done", end="done")
    assert (over.ended, over.night_s, over.alone_s) == (BEGAN + 100, 100.0, 100.0)


def test_what_never_began(tmp_path: Path) -> None:
    with books(tmp_path / "home") as made:
        made.run()
        made.task("late", "expired", "the night ended at 06:30")
    night = night_report.read(made.home, RUN, NOW)
    assert [(task.state, task.reason) for task in night.unstarted] == [(TaskState.EXPIRED, "the night ended at 06:30")]
    assert night.ended == BEGAN
    with pytest.raises(NotFound):
        night_report.read(made.home, "1122-none", NOW)


@pytest.mark.parametrize("decided", [False, True])
def test_of_candidates_the_chosen_one_alone_is_ready(tmp_path: Path, decided: bool) -> None:
    with books(tmp_path / "home") as made:
        made.run()
        tries = [made.task(f"api-{number}", candidate_of="api") for number in (1, 2)]
        for number, task in enumerate(tries, start=1):
            made.attempt(task, 1, BEGAN, BEGAN + number * HOUR, result=result(task, gate={"passed": True}))
        group = made.task("api", "done" if decided else "waiting", decide=Decider.PERSON)
        made.ledger.executemany("INSERT INTO dependency (task, needs) VALUES (?, ?)", [(group, task) for task in tries])
        if decided:
            ranked = ranking.shape(ranking.rank([Facts(task, TaskState.DONE, 1) for task in tries]))
            row = (group, tries[1], 1, "c0ffee", "person", "It is whole.", ranked, BEGAN + 3 * HOUR)
            made.ledger.execute("INSERT INTO choice VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
    night = night_report.read(made.home, RUN, BEGAN + 9 * HOUR)
    assert [task.name for task in night.tasks if task.ready] == (["api-2"] if decided else [])
    assert night.figures()["ready"] == int(decided)
    (told,) = night_report.of(night)["choices"]
    assert [place["task"] for place in told["places"]] == tries
    assert told["commands"] == [f"nightcrew take {group}"] if decided else [f"nightcrew diff {tries[0]}", f"nightcrew choose {group} api-1"]
    assert told["said"] == (f"{tries[1]} was chosen by person: It is whole." if decided else "a person chooses")


def test_a_home_without_an_account(tmp_path: Path) -> None:
    home = random_night(tmp_path / "home", 3, seed=2)
    home.gateway_account.unlink()
    assert not night_report.read(Home(home.root), RUN, NOW).trouble
