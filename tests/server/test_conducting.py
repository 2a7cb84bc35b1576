"""Agents that add tasks: by `$NIGHTCREW_AGENT`, within the rule, once each; what becomes of them when who added them ends."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

import pytest

from supervisor.client import protocol
from supervisor.gateway.proxy.front import Roster
from supervisor.host import attempt_tokens, secrets
from supervisor.kernel.errors import BudgetSpent, NotFound, NotRunning, Refused, UsageError
from supervisor.sandbox import executors
from supervisor.server.agent_requests import BURST
from supervisor.store import journal, sqlite
from tests.support import House, at_once, plan_of, shell_task, signal_if_there, wait_until

FOREVER = "exec sleep 600"
COMMIT = "echo made > made; git add made; git -c user.name=a -c user.email=a@b commit -qm made"
SCRIPT = f"""
    one=$("$NIGHTCREW_AGENT" add --id one '{COMMIT}')
    "$NIGHTCREW_AGENT" add --id two --base "$one" 'cat made' || echo "too early: $?"
    "$NIGHTCREW_AGENT" wait "$one" >&2
    two=$("$NIGHTCREW_AGENT" add --id two --after "$one" --base "$one" 'echo "{{\\"saw\\": \\"$(cat made)\\"}}"')
    "$NIGHTCREW_AGENT" wait --timeout 100 one "$two"
    "$NIGHTCREW_AGENT" result two
    git merge -q "$("$NIGHTCREW_AGENT" result one | sed 's/.*"tip": "\\([0-9a-f]*\\)".*/\\1/')"
    "$NIGHTCREW_AGENT" wait nobody || echo "not mine: $?"
"""


def conductor(script: str, name: str = "lead", **keys: object) -> str:
    """A task that may add others."""
    return shell_task(name, f"set -eu\n{script}", **{"children_max": 10, **keys})


def start(house: House, *tasks: str) -> None:
    house.ok("run", "--detach", house.plan(plan_of(tasks)))


@pytest.fixture
def lead(house: House) -> str:
    """The token of an attempt that may add 60 tasks in three levels, and lives as long as the test. Two slots."""
    house.config.write_text("slots = 2\n" + house.config.read_text())
    house.start_daemon()
    start(house, conductor(FOREVER, children_max=60, depth_max=3))
    return token(house)


def token(house: House, name: str = "lead", epoch: int = 1) -> str:
    wait_until(lambda: house.task(name).attempt_state == "running" and house.task(name).epoch == epoch, "it to run")
    return attempt_tokens.derive(secrets.own(house.home.secret), house.task(name).id, epoch)


def ask(house: House, verb: str, whose: str, **args: Any) -> dict[str, Any]:
    return protocol.call(house.home.agents_socket, verb, args, timeout_s=60, token=whose)


def add(house: House, whose: str, text: str = FOREVER, **more: Any) -> str:
    options = {name: more.pop(name) for name in list(more) if name not in ("after", "on", "base", "key")}
    return str(ask(house, "add", whose, text=text, options={"id": "child", **options}, **more)["task"])


def happened_to(house: House, task: str) -> list[tuple[str, dict[str, Any]]]:
    with contextlib.closing(sqlite.connect_readonly(house.home.ledger)) as db:
        return [(entry["event"], entry["data"]) for entry in journal.journal_of_task(db, task)]


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.soak)], ids=["two", "every"])
def test_a_script_conducts_in_one_slot_in_each_tier(house: House, every: bool) -> None:
    """In two of them: without a sandbox, and in the one that confines most."""
    house.config.write_text('slots = 1\ngrace = "1s"\n[limits]\ndisk_free_min = 0\n')
    house.start_daemon()
    tiers = [0, *sorted(int(tier) for tier in executors.known().tiers if tier > 0)]
    best = min(tiers[1:], default=0)
    tiers = tiers if every else sorted({0, tiers[-1]})
    start(house, *(conductor(SCRIPT, f"lead-{tier}", sandbox=tier) for tier in tiers))
    house.wait_final()
    for tier in tiers:
        lead = house.task(f"lead-{tier}")
        assert lead.state == "done", house.run("logs", lead.id)
        lines = house.ok("logs", "--stream", "stdout", lead.id).splitlines()
        assert lines[0] == "too early: 4" and [line.split("\t")[1] for line in lines[1:3]] == ["done", "done"]
        assert json.loads(lines[3])["result"]["output"] == {"saw": "made"} and lines[4] == "not mine: 4"
        assert (lead.result or {})["commits"] == 1, "it merged its child's commit by its name"
        mine = [view for view in house.tasks() if view.parent == lead.id]
        assert [(view.name, view.parent_epoch, view.tier) for view in mine] == [("one", 1, tier or best), ("two", 1, tier or best)]
        assert ("added by an agent", {"by": f"{lead.id}:1"}) in happened_to(house, mine[0].id)
    shown = house.ok("status", mine[0].id)
    assert f"added by  {lead.id}:1" in shown and "children" in house.ok("status", lead.id)
    assert "added by an agent" in house.ok("audit", "show")


def test_the_same_task_is_added_once_also_by_the_next_attempt(house: House, lead: str) -> None:
    first = add(house, lead)
    assert add(house, lead) == first and add(house, lead, key="x") == add(house, lead, "true", key="x") != first
    house.ok("down", "--now")
    with pytest.raises(NotRunning):
        add(house, lead)
    house.start_daemon()
    assert add(house, lead) == first, "by the next supervisor"
    runner = json.loads((house.home.attempt(house.task("lead").id, 1) / "started.json").read_text())["pid"]
    signal_if_there(runner)
    again = token(house, epoch=2)
    assert add(house, again) == first, "by the next attempt"
    assert next(one["task"] for one in ask(house, "list", again)["tasks"]) == first
    assert house.task("child").state == "running", "and its children went on meanwhile"


def test_killed_with_all_below_it(house: House, lead: str) -> None:
    add(house, lead, children_max=5, depth_max=2)
    below = add(house, token(house, "child"), id="grandchild", children_max=3)
    wait_until(lambda: house.state("grandchild") == "running", "three levels in two slots")
    waiting = add(house, token(house, "grandchild"), id="fourth", after=None)
    with pytest.raises(Refused, match=r"depth_max of .* is 1, so its children have at most 0"):
        add(house, token(house, "grandchild"), id="fifth", children_max=1)
    assert {one["task"] for one in ask(house, "list", lead)["tasks"]} >= {below, waiting}, "it sees all below it"
    house.ok("kill", "lead")
    house.wait_final()
    assert {str(view.state) for view in house.tasks()} == {"cancelled"}


def test_nobody_reaches_what_another_added(house: House, lead: str) -> None:
    start(house, conductor(FOREVER, "other"))
    mine = add(house, lead)
    foreign = house.task("other").id
    verbs: dict[str, dict[str, Any]] = {"wait": {"timeout_s": 0}, "result": {}, "send": {"text": "x"}, "kill": {}}
    for verb, more in verbs.items():
        for name in (foreign, house.task("lead").id, "", "x" * 500):
            with pytest.raises(NotFound, match="none of its tasks is called"):
                pytest.fail(str(ask(house, verb, lead, tasks=[mine, name], **more)))
    with pytest.raises(NotFound, match="none of its tasks is called"):
        add(house, lead, after=[foreign])
    forged = attempt_tokens.derive(b"another secret", house.task("lead").id, 1)
    with pytest.raises(Refused, match="its token is not one of ours"):
        add(house, forged)
    with pytest.raises(Refused, match="its task may add none: it has no children_max"):
        add(house, token(house, "child"))
    assert house.state("other") == "running"


def test_a_flood_is_refused_and_shown(house: House, lead: str) -> None:
    refused = 0
    for number in range(int(BURST) + 20):
        try:
            add(house, lead, "true", key=f"{number}", priority=0)
        except Refused:
            refused += 1
    assert 10 <= refused <= 20
    events = [data for event, data in happened_to(house, house.task("lead").id) if event == "add refused"]
    assert len(events) == 1 and "may not add a task" in house.daemon_output()
    assert "add refused" in house.ok("status", "lead")


def test_what_an_agent_may_not_say(house: House, lead: str) -> None:
    wrong: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"params": {"HOME": "/"}}, UsageError, "an agent cannot give params"),
        ({"prompt_file": "/etc/passwd", "kind": "claude"}, UsageError, "an agent cannot give prompt_file"),
        ({"kind": "terminal"}, Refused, "no person would sit at it"),
        ({"kind": "landing-gate"}, UsageError, "are nightcrew's own"),
        *(({"kind": kind}, UsageError, "brings its own command") for kind in ("map-worker", "map-prompt", "analyst", "lead")),
        ({"paths": ["**"]}, Refused, "may cover the whole project"),
        ({"kind": "nothing"}, UsageError, "is not a kind of agent"),
        ({"priority": "x"}, UsageError, "bad value"),
        ({"sandbox": 7}, UsageError, "bad value"),
        ({"children_max": 60}, Refused, "children_max of .* is 60"),
    ]
    for options, error, match in wrong:
        with pytest.raises(error, match=match):
            pytest.fail(add(house, lead, **options))
    with pytest.raises(UsageError, match="text: it is too long"):
        add(house, lead, "x" * 200_000)
    title = "\x1b]0;owned\x07\u202e\ud800"
    add(house, lead, title=title, id="hostile")
    shown = house.ok("status", "hostile") + house.ok("status", "--json", "hostile")
    assert "\x1b" not in shown and "\u202e" not in shown and "owned" in shown


def test_dollars_run_out(house: House) -> None:
    house.start_daemon()
    start(house, conductor(FOREVER, cost_max=1.0, children_max=4))
    whose = token(house)
    add(house, whose, key="a")
    add(house, whose, key="b", cost_max=0.7)
    assert _cap(house, whose) == pytest.approx(0.05), "what it gave away the gateway lets it spend no more"
    with pytest.raises(BudgetSpent, match=r"\$0.05 is left of the cost_max of .*, \$1.00, and it asks for \$0.06"):
        add(house, whose, key="c", cost_max=0.06)


def test_parallel_requests_stay_within_children_max_and_cost_max(house: House) -> None:
    house.start_daemon()
    start(house, conductor(FOREVER, "few", children_max=1, cost_max=1.0), conductor(FOREVER, "poor", children_max=60, cost_max=1.0))
    few = at_once(house.home.agents_socket, [child_request(number, cost_max=1.0) for number in range(45)], token(house, "few"))
    poor = at_once(house.home.agents_socket, [child_request(number, cost_max=0.4) for number in range(45)], token(house, "poor"))
    assert [sum(answer["ok"] for answer in answers) for answers in (few, poor)] == [1, 2]
    assert {answer["error"]["error"] for answer in few + poor if not answer["ok"]} == {"Refused", "BudgetSpent"}


def test_a_child_starts_although_its_parent_left_before_the_answer(house: House, lead: str) -> None:
    wanted = [child_request(number, text="true") for number in range(20)]
    at_once(house.home.agents_socket, wanted, lead, answers=False)
    assert ask(house, "whoami", lead)["epoch"] == 1
    answers = at_once(house.home.agents_socket, wanted, lead)
    children = [answer["value"]["task"] for answer in answers]
    assert len(set(children)) == 20
    wait_until(lambda: all(view.final for view in house.tasks() if view.parent), "every child to end")


def child_request(number: int, text: str = FOREVER, **options: object) -> tuple[str, dict[str, Any]]:
    return "add", {"text": text, "options": {"id": "child", **options}, "key": f"{number}"}


def _cap(house: House, whose: str) -> float | None:
    """What the gateway lets an agent spend."""

    async def asked() -> float | None:
        roster = Roster(house.home.ledger, secrets.own(house.home.secret), lambda: 0.0)
        agent = await roster.agent(whose)
        await roster.close()
        return agent.cost_max if agent is not None else None

    return asyncio.run(asked())


def test_a_task_of_a_person_comes_after_others_of_earlier_runs(house: House) -> None:
    house.start_daemon()
    house.ok("add", "-f", "--id", "good", "true")
    assert house.run("add", "-f", "--id", "bad", "false").returncode == 1
    house.ok("add", "-f", "--id", "follows", "--after", "good", "true")
    assert house.run("add", "-f", "--id", "skipped", "--after", "good", "--after", "bad", "true").returncode == 1
    assert [house.state(name) for name in ("follows", "skipped")] == ["done", "skipped"]


def test_the_command_without_a_supervisor_and_with_too_much(house: House) -> None:
    house.start_daemon()
    script = """
        head -c 2000000 /dev/zero | tr '\\0' x | "$NIGHTCREW_AGENT" add - || echo "too long: $?"
        "$NIGHTCREW_AGENT" add --nonsense 1 true || echo "unknown: $?"
        "$NIGHTCREW_AGENT" || echo "usage: $?"
        NIGHTCREW_AGENTS_SOCKET=/nowhere "$NIGHTCREW_AGENT" add true || echo "alone: $?"
        child=$("$NIGHTCREW_AGENT" add 'exec sleep 600')
        "$NIGHTCREW_AGENT" wait --timeout 0.1 "$child" || echo "time: $?"
        "$NIGHTCREW_AGENT" kill "$child"
        "$NIGHTCREW_AGENT" wait "$child" || echo "not well: $?"
    """
    start(house, conductor(script))
    house.wait_final()
    child = house.task("task").id
    assert house.ok("logs", "--stream", "stdout", "lead").splitlines() == [
        "too long: 2", "unknown: 2", "usage: 2", "alone: 5", f"{child}\trunning", "time: 124", child, f"{child}\tcancelled", "not well: 1",
    ]  # fmt: skip
