"""Eight hours by the clock on the wall, over both changes of the clocks: every figure of the report is what the world says."""

from __future__ import annotations

import contextlib
import random
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from supervisor.features.night import morning_json as night_report
from supervisor.features.night.morning_rows import Night, Spent
from supervisor.gateway.admission.types import Usage
from supervisor.host.paths import Home
from supervisor.kernel.states import End, TaskState
from tests.server.virtual_night import CAP_USD, MODELS, OTHER_BOOT, RUN, VirtualNight

BERLIN = ZoneInfo("Europe/Berlin")
SPRING, AUTUMN = datetime(2026, 3, 28, tzinfo=BERLIN), datetime(2026, 10, 24, tzinfo=BERLIN)


def clock(day: datetime, hours: int, minutes: int) -> float:
    """The moment at which the clock on the wall shows this, of the evening or of the next morning."""
    shown = day.replace(hour=hours, minute=minutes) + timedelta(days=hours < 12)
    return shown.timestamp()


def befalls(night: VirtualNight, day: datetime) -> None:
    """Two outages, a restart of the machine, a spent window, a closed lid, a clock that is set, two questions; at five the cap."""
    for hours, minutes, act in (
        (23, 0, partial(night.clock_is_set, 5.0)),
        (23, 40, night.asks_a_person),
        (0, 10, night.provider_dies),
        (0, 25, night.provider_is_back),
        (0, 50, partial(night.sleeps, 900.0)),
        (1, 15, night.half_of_them_die),
        (1, 40, partial(night.reboots, 180.0)),
        (3, 15, partial(night.window_is_spent, clock(day, 4, 0))),
        (4, 0, night.window_opens),
        (4, 20, night.asks_a_person),
        (5, 0, night.becomes_dear),
    ):
        night.when(clock(day, hours, minutes), act)


@pytest.mark.parametrize(
    ("day", "hours", "tasks"),
    [
        pytest.param(SPRING, 7.0, 300, id="spring"),
        pytest.param(AUTUMN, 9.0, 300, id="autumn"),
        pytest.param(AUTUMN, 9.0, 3000, id="large", marks=[pytest.mark.soak, pytest.mark.timeout(1200)]),
    ],
)
def test_every_figure_of_the_report_is_what_happened(tmp_path: Path, day: datetime, hours: float, tasks: int, seed: int) -> None:
    begin, until = clock(day, 22, 30), clock(day, 6, 30)
    assert until - begin == hours * 3600
    night = VirtualNight(Home(tmp_path / "home"), begin, until, random.Random(seed))
    with contextlib.closing(night.ledger):
        night.submit_night(tasks)
        befalls(night, day)
        night.run(night.now + (hours + 1) * 3600)
        night.keep_account()
    found = night_report.read(night.home, RUN, now=night.wall)
    _tells_of_tasks(night, found, tasks)
    _tells_of_costs(night, found)
    _tells_of_times(night, found, begin)
    _tells_what_befell(night, found, day)


def _tells_of_tasks(night: VirtualNight, found: Night, tasks: int) -> None:
    diary, figures = night.diary, found.figures()
    newest = dict(sorted(diary.started))
    done = {task for task, epoch in newest.items() if diary.ended.get((task, epoch), (None,))[0] is End.DONE}
    assert {task.id for task in found.tasks if task.state is TaskState.DONE} == done
    assert (figures["tasks"], figures["states"]["done"], figures["ready"]) == (tasks, len(done), len(done))
    assert (figures["attempts"], figures["again"]) == (len(diary.started), sum(epoch > 1 for _, epoch in diary.started))
    assert len(found.unstarted) == tasks - len(newest) == sum(not task.attempts for task in found.tasks)
    assert {task.id for task in found.needing} == set(diary.asked) and figures["needs"] == 2
    assert all(task.final or task.id in diary.asked for task in found.tasks), "what waits for a person is all that is left"
    assert not night.alive.keys() - {key for key in night.alive if key[0] in diary.asked}
    assert figures["states"]["expired"] + figures["states"]["failed"] + figures["states"]["skipped"] > 0


def _tells_of_costs(night: VirtualNight, found: Night) -> None:
    requests, spent = night.diary.requests, found.spent
    tokens = Usage(*(sum(getattr(one[3], kind) for one in requests) for kind in ("input", "output", "cache_read", "cache_write")))
    assert (spent.requests, spent.tokens, spent.unpriced, spent.refused) == (len(requests), tokens, 0, 0)
    assert spent.cost_usd == pytest.approx(night.diary.usd) and night.diary.usd <= CAP_USD
    for name in MODELS:
        of_model = [one for one in requests if one[2] == name]
        assert isinstance(found.by_model[name], Spent) and found.by_model[name].requests == len(of_model)
        assert found.by_model[name].known_usd == pytest.approx(sum(one[4] for one in of_model))
    for task in found.tasks:
        assert task.spent.known_usd == pytest.approx(sum(one[4] for one in requests if one[0][0] == task.id))


def _tells_of_times(night: VirtualNight, found: Night, begin: float) -> None:
    diary, times = night.diary, found.times
    accounts = [night.account(key) for key in diary.ended]
    assert (times.measured, times.unmeasured) == (len(diary.ended), len(diary.started) - len(diary.ended))
    assert times.wall_s == pytest.approx(sum(one["wall_s"] for one in accounts))
    assert times.working_s == pytest.approx(sum(one["model_s"] + one["local_s"] for one in accounts))
    assert (found.began, found.ended) == (begin, diary.over)
    for task in found.tasks:
        for one in task.attempts:
            end, ended = diary.ended.get((task.id, one.epoch), (None, None))
            assert (one.end, one.ended) == (end, ended)


def _tells_what_befell(night: VirtualNight, found: Night, day: datetime) -> None:
    words = [event.words for event in found.events]
    assert found.figures()["outages"] == 2, "\n".join(map(str, found.events))
    for said in ("the machine slept for 15m", "the clock was set forward by 5s", "the machine was started anew"):
        assert words.count(said) == 1, words
    assert any(one.startswith("nothing more was started: the night's cost_max was reached") for one in words), words
    closed = next(event.at for event in found.events if event.words.startswith("nothing more"))
    assert clock(day, 5, 0) <= closed < clock(day, 5, 30), "the cap was reached when requests became dear"
    again = [one.cause for task in found.tasks for one in task.attempts if one.epoch > 1]
    for cause in ("its limit is spent until", "the machine was restarted", "its provider failed it", "its runner died"):
        assert any(cause in one for one in again), cause
    spent = [one for task in found.tasks for one in task.attempts if "its limit is spent" in one.cause]
    assert all(one.created >= clock(day, 4, 1) for one in spent), "nobody began before the limit opened"
    assert night.home.boot.read_text().strip() != OTHER_BOOT
