"""What every task that has not started waits for."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path

from memory.lease_rows import Waits
from supervisor.kernel.decision import Collect, Finish, MarkRunning, Pause, SetState, Start
from supervisor.kernel.leases import Wait, WaitKind
from supervisor.kernel.night import NightOrder, NightTerms
from supervisor.kernel.pressure import ADMIT, Conditions, Decision, Held, Verdict
from supervisor.kernel.states import End, TaskClass, TaskState, Until
from supervisor.store import journal, queries
from supervisor.store.ledger import Ledger
from supervisor.views import status, waits
from tests.store.kit import RUN, Wall, spec, submission, submit, whole

BATCH = TaskClass.BATCH
SLOTS = Verdict(Decision.DEFER, "slots", "waits for a slot (4 of 4 taken)")
MODELS = Verdict(Decision.DEFER, "models", "waits for the model limit", since=5.0)
TASKS = (
    spec("a"),
    spec("b"),
    spec("c"),
    spec("d"),
    spec("after", after=("a", "b", "c", "d")),
    spec("any", after=("a", "b"), after_any=("a", "b")),
    spec("both", after=("a", "b", "c"), after_any=("a", "b")),
    spec("batch", task_class=BATCH),
    spec("resting", retries=3),
    spec("held"),
    spec("still"),
    spec("room"),
    spec("asks"),
    spec("denied", retries=1),
    spec("spent"),
)


def told(path: Path, now: Conditions | None, *, runs: bool = True) -> dict[str, tuple[str, str]]:
    """Code and words by name."""
    wall = Wall()
    with closing(Ledger(path / "ledger.db", wall)) as ledger:
        if not ledger.run_exists(RUN):
            ids = {name.partition("/")[2]: name for name in submit(ledger, *TASKS)}
            ledger.commit([Start(ids["d"], 1, ""), SetState(ids["held"], TaskState.PAUSED, "")])
            for name, until, for_whom in (("still", Until.PERSON, ""), ("room", Until.SLOT, "r/x")):
                ledger.commit([Start(ids[name], 1, ""), MarkRunning(ids[name], 1), Pause(ids[name], 1, until, for_whom)])
            ledger.commit(whole(ids["resting"], 1, End.FAILED, TaskState.READY, 32.0))
            ledger.commit([Start(ids["asks"], 1, ""), MarkRunning(ids["asks"], 1), Pause(ids["asks"], 1, Until.PERSON, "", "May I?")])
            ledger.commit([Start(ids["denied"], 1, ""), MarkRunning(ids["denied"], 1), Collect(ids["denied"], 1, End.FAILED, "")])
            ledger.commit([Finish(ids["denied"], 1, End.FAILED, "", TaskState.PAUSED, 0.0, reason="needs you: Bash", question="Bash")])
            ledger.commit(whole(ids["spent"], 1, End.LOST, TaskState.PARKED, 7202.0))
            assert queries.set_aside(ledger.db) == [(ids["asks"], "May I?", wall.now), (ids["denied"], "Bash", wall.now)]
            assert [journal.times_set_aside(ledger.db, ids[name]) for name in ("asks", "denied", "held")] == [1, 1, 0]
        found = waits.reasons(ledger.db, queries.unfinished(ledger.db), now, runs=runs, wall=wall.now + 2)
    return {name.partition("/")[2]: (verdict.code, verdict.words) for name, verdict in found.items()}


def test_each_waits_for_what_decides_first(tmp_path: Path) -> None:
    held: Held = {BATCH: MODELS}
    assert told(tmp_path, Conditions(ADMIT, held, SLOTS)) == {
        **dict.fromkeys("abc", ("slots", SLOTS.words)),
        "after": ("after", "waits for a, b, c and 1 more"),
        "any": ("after", "waits for one of a or b"),
        "both": ("after", "waits for c"),
        "batch": ("models", MODELS.words),
        "resting": ("backoff", "runs again in 30s"),
        "held": ("paused", "a person holds it: nightcrew resume held"),
        "still": ("paused", "a person holds it: nightcrew resume still"),
        "room": ("slots", "made room for r/x, waits for a slot"),
        "asks": ("paused", "it was set aside: nightcrew attach asks"),
        "denied": ("paused", "it was set aside: nightcrew resume denied"),
        "spent": ("limit", "its limit opens in 2h"),
    }
    closed = Verdict(Decision.DEFER, "disk", "nothing new starts: less free disk than disk_free_min")
    assert told(tmp_path, Conditions(closed, held, SLOTS))["batch"] == ("disk", closed.words)
    assert told(tmp_path, Conditions())["batch"] == ("turn", "is about to start")


def test_without_an_answer_nothing_is_taken_for_healthy(tmp_path: Path) -> None:
    assert told(tmp_path, None)["a"] == ("unknown", "the supervisor does not answer")
    found = told(tmp_path, None, runs=False)
    assert found["a"] == found["resting"] == ("no_supervisor", "waits for a supervisor: nightcrew up -d")
    assert found["any"] == ("after", "waits for one of a or b")


def test_status_shows_it_in_words_and_as_json(tmp_path: Path) -> None:
    with closing(Ledger(tmp_path / "ledger.db", Wall())) as ledger:
        (task,) = submit(ledger, spec("a"))
        (view,) = queries.unfinished(ledger.db)
        reasons = waits.reasons(ledger.db, [view], Conditions(slots=SLOTS), runs=True, wall=0.0)
        ledger.commit([Start(task, 1, "")])
        (running,) = queries.unfinished(ledger.db)
        assert waits.reasons(ledger.db, [running], None, runs=True, wall=0.0) == {}
    shown = status.line(view, 0.0, status.Layout(200, color=False), waits=status.Waiting(reasons=reasons))
    assert shown.endswith("-  waits for a slot (4 of 4 taken)"), "its title is its name, and says nothing"
    long = replace(view, title="A long title")
    line = status.line(long, 0.0, status.Layout(90, color=False), waits=status.Waiting(reasons=reasons))
    assert "(4 of 4 taken)  A lo" in line, "on a narrow screen the reason is what is left"
    assert waits.shape(reasons[view.id]) == {
        "decision": "defer",
        "code": "slots",
        "words": SLOTS.words,
        "since": "2023-11-14T22:13:20.000Z",
    }
    assert waits.shape(reasons.get("another")) is None


def test_an_agent_that_waits_at_the_supervisor_says_for_what(tmp_path: Path) -> None:
    wall = Wall()
    with closing(Ledger(tmp_path / "ledger.db", wall)) as ledger:
        task, other = submit(ledger, spec("a"), spec("b"))
        ledger.commit([Start(name, 1, "") for name in (task, other)])
        views = queries.unfinished(ledger.db)

        def shown() -> dict[str, tuple[str, str]]:
            found = waits.reasons(ledger.db, views, None, runs=True, wall=0.0)
            return {name.partition("/")[2]: (verdict.code, verdict.words) for name, verdict in found.items()}

        def wait(kind: WaitKind, what: str, *holders: str, any_of: bool = False) -> int:
            return ledger.of(Waits).begin("p", Wait(0, task, 1, kind, what, holders, wall.now, wall.now + 60, any_of))

        assert shown() == {}
        said = [
            (wait(WaitKind.LEASE, "src/**", other), ("lease", "waits for the lease src/** of b")),
            (wait(WaitKind.TASK, "b, c", other, "r/c", any_of=True), ("task", "waits for one of b or c")),
            (wait(WaitKind.HUMAN, "a reply", "person"), ("person", "waits for a person: a reply")),
            (wait(WaitKind.MEMORY, "semantic/plan.md"), ("note", "waits for the note semantic/plan.md")),
        ]
        for more, (number, (code, words)) in zip(range(3, -1, -1), said, strict=True):
            assert shown() == {"a": (code, words + (f", and for {more} more" if more else ""))}
            ledger.of(Waits).end([(number, "over")])
        assert shown() == {}
        wait(WaitKind.RATE, "quota x")
        assert waits.reasons(ledger.db, views, None, runs=False, wall=0.0) == {}, "who would give it its turn?"


def test_a_task_waits_for_its_night_as_a_whole_or_for_what_its_kind_costs(tmp_path: Path) -> None:
    """Those that agents added wait with it; what waits for something that comes first says that."""
    full = Verdict(Decision.DEFER, "night", "waits for its night (2 of 2 agents)")
    wall, order = Wall(), NightOrder(NightTerms(parallel=2))
    with closing(Ledger(tmp_path / "ledger.db", wall)) as ledger:
        ledger.submit(submission("a", spec("other", kind="dear"), key="n", night=order), "1122-nnnn")
        ledger.submit(submission(spec("child", parent="1122-nnnn/a"), key="c"), "1122-cccc")
        ledger.submit(submission("day", key="d"), "1122-dddd")
        ledger.commit(
            [SetState(name, TaskState.READY, "") for name in ("1122-nnnn/a", "1122-nnnn/other", "1122-cccc/child", "1122-dddd/day")]
        )

        def codes(**nights: Verdict) -> dict[str, str]:
            now = Conditions(nights={name.replace("_", " ").replace("n1122", "1122-nnnn"): verdict for name, verdict in nights.items()})
            found = waits.reasons(ledger.db, queries.unfinished(ledger.db), now, runs=True, wall=wall.now)
            return {name.partition("/")[2]: verdict.code for name, verdict in found.items()}

        assert codes(n1122=full) == {"a": "night", "other": "night", "child": "night", "day": "turn"}
        assert codes(n1122_dear=full) == {"a": "turn", "other": "night", "child": "turn", "day": "turn"}
