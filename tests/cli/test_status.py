"""`status`, and how tasks are named on every verb."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from supervisor.store import queries
from supervisor.store.ledger import Ledger
from tests.cli.terminal import Terminal
from tests.server.test_agent_evidence import EACH
from tests.store.kit import RUN, Wall, submit, whole
from tests.support import House, plan_of, shell_task, wait_until

RFC3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


def shape(house: House, *words: str) -> Any:
    return json.loads(house.ok("status", "--json", *words))


def newest(house: House, name: str) -> queries.TaskView:
    return house.task(name)


def test_the_plain_table_says_what_everybody_does(crew: House) -> None:
    wait_until(lambda: crew.ok("status").count("at work") == 2, "both agents' last lines to be shown")
    wait_until(lambda: crew.ok("status").count("● running") == 2, "the supervisor to have seen both")
    lines = crew.ok("status").splitlines()
    assert [line.split()[:3] for line in lines[:-1]] == [["●", "running", newest(crew, name).id] for name in ("agent", "agent-1")]
    assert lines[-1] == "  … and 1 more: 1 failed; nightcrew status --all, or nightcrew status RUN", "of an earlier run"
    text = crew.ok("status", crew.task("good").run)
    assert re.search(r"✓ done +\S+/good +\d\d:\d\d +Make a file  1 commit on nightcrew/\S+/good/work\n", text)
    assert re.search(r"✗ failed +\S+/bad +\d\d:\d\d +exit code 7\n", text)
    assert re.search(r"− skipped +\S+/behind +\d\d:\d\d  \S+/bad is failed\n", text)
    assert text.index("bad ") < text.index("good "), "what went wrong comes first"


def test_everything_is_listed_run_by_run(crew: House) -> None:
    lines = crew.ok("status", "--all").splitlines()
    assert [line for line in lines if line.startswith("run ")] == [
        f"run {newest(crew, 'agent-1').run}  going  2 running",
        f"run {newest(crew, 'good').run}  plan  2 done, 1 failed, 1 skipped",
    ]


def test_failed_task_stays_in_sight_until_it_is_cleaned_away(house: House) -> None:
    house.start_daemon()
    house.run("add", "-f", "--id", "bad", "echo half > half; exit 1")
    bad = house.task("bad").id
    for number in range(2):
        house.ok("add", "-f", "--id", f"good{number}", "true")
    assert "… and 1 more: 1 failed; nightcrew status --all" in house.ok("status")
    assert f"failed      {bad}" in house.ok("status", "--all")
    assert bad in [task["id"] for task in shape(house)["tasks"]]
    house.ok("clean", "--yes", "--discard", bad)
    assert "failed" not in house.ok("status") and f"failed      {bad}" not in house.ok("status", "--all")


def test_of_many_that_wait_the_oldest_are_shown_and_the_rest_is_counted(house: House) -> None:
    house.home.root.mkdir(mode=0o700)
    with closing(Ledger(house.home.ledger, Wall())) as ledger:
        names = submit(ledger, *(f"t{number}" for number in range(130)), run=RUN)
        ledger.commit([command for name in names[:60] for command in whole(name)])
        ledger.commit(whole(names[60])[:2])
    lines = house.ok("status").splitlines()
    assert [line.split()[2] for line in lines[:-1]] == [names[60], *names[61:111], *names[:50]]
    assert lines[-1] == "  … and 29 more: 19 ready, 10 done; nightcrew status --all, or nightcrew status RUN"
    assert len(house.ok("status", RUN).splitlines()) == 130
    assert "\n  waits     waits for a supervisor: nightcrew up -d\n" in house.ok("status", names[-1]), "whole, on a line of its own"
    assert len(house.ok("status", "--all").splitlines()) == 70 + 1, "one line a run"
    assert len(shape(house)["tasks"]) == 130, "for programs nothing is left out"


def test_one_task_shows_its_history(crew: House) -> None:
    text = crew.ok("status", "bad")
    view = crew.task("bad")
    for words in (
        f"worktree  {view.worktree}",
        f"branch    {view.branch}",
        "attempt 1 starts",
        "attempt 1 ended: failed; exit code 7; the task is failed",
    ):
        assert words in text


def test_json_has_a_schema_and_rfc3339_times(crew: House) -> None:
    everything = shape(crew, "--all")
    assert everything["schema"] == 1
    assert everything["supervisor"]["running"] is True
    assert isinstance(everything["supervisor"]["pid"], int)
    assert {run["counts"]["running"] for run in everything["runs"] if "running" in run["counts"]} == {2}
    (good,) = shape(crew, "good")["tasks"]
    assert good["state"] == "done" and good["epoch"] == 1 and good["title"] == "Make a file"
    assert all(RFC3339.fullmatch(good[key]) for key in ("submitted", "started", "ended"))
    result = good["result"]
    assert result["schema"] == 1 and result["output"] == {"answer": 42} and result["exit"] == {"code": 0, "signal": None}
    assert result["diff"] == {"files": 1, "plus": 1, "minus": 0} and result["commits"] == 1
    assert all(RFC3339.fullmatch(result[key]) for key in ("queued", "started", "ended"))
    (behind,) = shape(crew, "behind")["tasks"]
    assert (behind["state"], behind["epoch"], behind["started"], behind["result"]) == ("skipped", 0, None, None)
    assert [entry["event"] for entry in shape(crew, "good")["journal"]] == ["ready", "start", "tree gone", "end done"]


def test_a_name_means_the_newest_and_a_prefix_must_be_unique(crew: House) -> None:
    newest_run = newest(crew, "agent").run
    assert [task["run"] for task in shape(crew, "agent")["tasks"]] == [newest_run], "the newest run that has the name"
    assert len(shape(crew, newest_run)["tasks"]) == 2
    assert [task["name"] for task in shape(crew, "goo")["tasks"]] == ["good"]
    older = newest(crew, "good").run
    assert [task["name"] for task in shape(crew, f"{older}/ag")["tasks"]] == ["agent"]
    ambiguous = crew.run("status", f"{newest_run}/agent-")
    assert ambiguous.returncode == 0, "agent-1 is the only one that begins so"
    ambiguous = crew.run("status", f"{older}/")
    assert ambiguous.returncode == 2
    for name in ("good", "bad", "behind", "agent"):
        assert f"{older}/{name}" in ambiguous.stderr
    one_wanted = crew.run("logs", newest_run)
    assert one_wanted.returncode == 2 and f"{newest_run}/agent-1" in one_wanted.stderr


def test_watch_redraws_until_ctrl_c(house: House, terminal: Callable[..., Terminal]) -> None:
    house.start_daemon()
    house.ok("add", "--id", "wide", "--title", "漢字" * 60, "echo seen; sleep 600")
    house.ok("add", "--id", "second", "sleep 600")
    here = terminal()
    here.nightcrew("status", "--watch")
    here.sees("2 running")
    rows = [line for line in here.screen().splitlines() if "●" in line]
    assert len(rows) == 2 and rows[0].endswith("…"), "a wide title is cut at the edge and wraps nothing"
    house.ok("kill", "second")
    here.sees("1 running")
    assert here.screen().count("second") == 1, "nothing of the frame before is left"
    here.press("C-c")
    assert "1 running" not in here.sees("left with 130"), "the screen is as it was before"


def test_who_needs_a_person_is_first_on_every_screen_and_why_a_text_waits(house: House, terminal: Callable[..., Terminal]) -> None:
    own, watching = terminal(80, 24), terminal(120, 40)
    own.nightcrew("up")
    wait_until(house.ready, "the supervisor")
    tasks = [shell_task("other", "sleep 600"), shell_task("agent", ["sh", "-c", EACH], kind="terminal", title="a title of many words " * 5)]
    house.ok("run", "-d", house.plan(plan_of(tasks)))
    wait_until(lambda: [task.attempt_state for task in house.tasks()] == ["running"] * 2, "both to run")
    watching.nightcrew("status", "--watch")
    for screen in (own, watching):
        assert "needs you" not in screen.sees("2 running")
    draft = Path(str(house.task("agent").worktree), "draft")
    draft.write_text(json.dumps({"session_id": "s", "tool_name": "Bash", "tool_input": {"command": "make"}}))
    draft.rename(draft.with_name("PermissionRequest.event"))
    for screen in (own, watching):
        rows = screen.sees("needs you").splitlines()
        assert "1 needs you, 2 running" in rows[0]
        assert re.match(r"\? needs you +\S+/agent +\d+s  Bash: make +a title", rows[2]) and "/other" in rows[3]
    house.ok("send", "agent", "and then?")
    for screen in (own, watching):
        screen.sees("Bash: make  1 text waits")
    watching.sees("1 text waits  a title of")
    own.press("C-c")
    own.sees("left with 0")


def test_watch_before_anything_ran_waits_for_it(house: House, terminal: Callable[..., Terminal]) -> None:
    here = terminal()
    here.nightcrew("status", "--watch")
    here.sees("nothing to do")
    house.start_daemon()
    house.ok("add", "sleep 600")
    here.sees("1 running")
    here.press("C-c")
    here.sees("left with 130")


def test_colour_only_where_somebody_sees_it(crew: House, house: House, terminal: Callable[..., Terminal]) -> None:
    assert "\x1b" not in crew.ok("status")
    assert "\x1b[32m" in crew.ok("status", env={"FORCE_COLOR": "1"})
    house.start_daemon()
    house.ok("add", "-f", "--id", "one", "true")
    here = terminal()
    here.nightcrew("status")
    here.sees("left with 0")
    assert "\x1b[32m✓" in here.screen(styles=True)
    here.nightcrew("status", env={"NO_COLOR": "1"})
    here.sees("left with 0")
    assert "\x1b[" not in here.screen(styles=True).replace("\x1b[39m", "").replace("\x1b[0m", "")


def test_a_terminal_that_is_not_utf8_gets_escapes_not_a_traceback(crew: House) -> None:
    done = crew.run("status", env={"PYTHONIOENCODING": "", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"})
    assert done.returncode == 0 and done.stderr in ("", "nightcrew: 2 agents work without a sandbox, with all your rights\n")


def test_how_many_agents_work_without_a_sandbox_is_said_once(house: House) -> None:
    house.start_daemon()
    for name in ("first", "second"):
        house.ok("add", "--id", name, "--sandbox", "0", "sleep 600")
    said = "nightcrew: 2 agents work without a sandbox, with all your rights\n"
    wait_until(lambda: house.run("status").stderr == said, "both to be counted")
