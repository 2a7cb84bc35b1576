"""`nightcrew analyze` and `report` on real repositories: what is found, what is shown, and what happens when an analyst does not answer."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.kit import KEY, know_prices, rows, upstream
from tests.gateway.simulator import Simulator
from tests.support import House, git, make_repository, wait_until
from tests.warm import NIGHTCREW

ROOT = Path(__file__).resolve().parents[2]
FLAWED = {
    "shop/__init__.py": '"""A shop."""\n',
    "shop/run.py": "import subprocess\n\n\ndef run(command):\n    subprocess.call(command, shell=True)\n",
    "shop/broken.py": "def half(:\n",
    "tests/test_shop.py": "def test_nothing():\n    assert True\n",
}


@pytest.fixture(scope="module")
def flawed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository that every test may look at: an analysis changes nothing in it."""
    return make_repository(tmp_path_factory.mktemp("flawed") / "a shop", FLAWED)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """A supervisor with warm analysts, which each test asks for runs of its own."""
    root = tmp_path_factory.mktemp("running")
    made = House(root, make_repository(root / "repo"))
    try:
        made.start_daemon()
        yield made
    finally:
        made.reap()


def analyze(house: House, where: Path, *args: str, code: int = 0) -> dict[str, Any]:
    done = house.run("analyze", str(where), "--json", *args)
    assert done.returncode == code, f"{done.stderr}\n{house.daemon_output()}"
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_the_demo_finds_what_is_planted_and_says_how_to_go_on(running: House, tmp_path: Path) -> None:
    env = {**running.env, "XDG_CACHE_HOME": str(tmp_path)}
    for _ in range(2):
        done = subprocess.run([ROOT / "tools/demo.sh", "--json", "--no-open"], env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{done.stderr}\n{running.daemon_output()}"
    report = json.loads(done.stdout)
    found = {(one["file"], one["code"]) for one in report["summary"]["issues"]}
    planted = {("shop/orders.py", code) for code in ("B602", "B608", "B301", "B105")} | {("shop/legacy.py", "syntax-error")}
    assert planted <= found, found
    said = json.dumps(report["summary"])
    assert "`total` has cyclomatic complexity 18" in said and "begin with shop/stock.py" in said
    shop = tmp_path / "nightcrew/demo/shop"
    assert git(shop, "rev-list", "--count", "HEAD") == "1" and git(shop, "status", "--porcelain") == "", "it is made once"
    assert "nightcrew analyze ../your-repository" in done.stderr


def test_five_analysts_and_a_lead_look_at_a_repository(running: House, flawed: Path) -> None:
    report = analyze(running, flawed)
    assert [(one["name"], one["state"]) for one in report["summary"]["perspectives"]] == [
        (name, "done") for name in ("security", "complexity", "docstrings", "tests", "structure")
    ]
    assert (report["summary"]["files"], report["run"]["state"], report["repository"]["name"]) == (4, "done", "a shop")
    assert [one["file"] for one in report["summary"]["issues"] if one["code"] == "B602"] == ["shop/run.py"]
    assert [one["file"] for one in report["findings"] if one["code"] == "syntax-error"] == ["shop/broken.py"]
    assert (running.task("lead").result or {})["output"] == {**report["summary"], "prose": None}
    assert {task["phase"] for task in report["tasks"]} == {"crew", "lead"}
    assert git(flawed, "status", "--porcelain") == "" and git(flawed, "rev-parse", "HEAD") == report["repository"]["commit"]


def test_the_report_is_written_and_shown_again(running: House, flawed: Path, tmp_path: Path) -> None:
    first = running.ok("analyze", "-a", "security,structure", "-o", str(tmp_path / "out"), cwd=flawed)
    assert "health " in first and "shop/run.py:5" in first and first.rstrip().endswith(f"report: {tmp_path / 'out' / 'report.html'}")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["report.html", "report.json", "report.md"]
    again = json.loads(running.ok("report", "--json", cwd=flawed))
    assert again["summary"] == json.loads((tmp_path / "out" / "report.json").read_text())["summary"]
    run = running.task("lead").run
    assert (running.home.root / "runs" / run / "report.html").exists(), "report writes beside the records"
    assert running.run("report", "absent", cwd=flawed).returncode == 4


def test_only_those_that_are_asked_for(running: House, flawed: Path) -> None:
    report = analyze(running, flawed, "--agents", "tests, structure", "--exclude", "shop/broken.py")
    assert [one["name"] for one in report["summary"]["perspectives"]] == ["tests", "structure"]
    assert (report["summary"]["files"], report["exclude"]) == (3, ["shop/broken.py"])


def test_an_exclude_that_matches_nothing_is_said(running: House, flawed: Path) -> None:
    words = ("--agents", "tests", "--exclude", "vendor/*", "--exclude", "shop/", "--exclude", "*.md", "--json")
    done = running.run("analyze", str(flawed), *words)
    assert done.returncode == 0 and json.loads(done.stdout)["summary"]["files"] == 1
    assert [line for line in done.stderr.splitlines() if "--exclude" in line] == [
        "nightcrew: no Python file matches --exclude 'vendor/*', '*.md'"
    ]
    assert "--exclude" not in running.run("analyze", "--agents", "tests", "--exclude", "shop", "-d", cwd=flawed).stderr


def test_what_becomes_of_each_is_told_on_stderr(running: House, flawed: Path) -> None:
    done = running.run("analyze", str(flawed), "--agents", "tests,structure")
    run = running.task("lead").run
    told = [line.split()[:3] for line in done.stderr.splitlines() if line[0] in "●✓✗"]
    assert {(sign, state) for sign, state, _ in told} <= {("●", "running"), ("✓", "done")}, "no step of an attempt that was met by chance"
    assert sorted(task for sign, _, task in told if sign == "✓") == [f"{run}/lead", f"{run}/structure", f"{run}/tests"]
    assert f"{run}/tests" not in done.stdout


def test_a_baseline_is_measured_before_and_written_down(running: House, flawed: Path, tmp_path: Path) -> None:
    report = analyze(running, flawed, "--baseline", "--together", "--agents", "tests,structure", "-o", str(tmp_path / "out"))
    figures = json.loads((tmp_path / "out" / "benchmark_results.json").read_text())
    assert figures["repo"] == "a shop" and figures["files"] == 4 and figures["plainly"] == report["summary"]["parallel"]
    for key in ("sequential_s", "parallel_s", "setup_s", "work_s", "speedup", "efficiency_usable", "efficiency_agents"):
        assert figures[key] > 0, key
    assert [one["name"] for one in figures["per_agent"]] == ["structure", "tests"]
    began = {task["name"]: task["attempts"][0] for task in report["tasks"]}
    assert max(began[name]["ended"] for name in ("alone-tests", "alone-structure")) <= min(
        began[name]["created"] for name in ("tests", "structure")
    )
    assert max(began[name]["up"] for name in ("tests", "structure")) <= min(began[name]["began"] for name in ("tests", "structure"))


def test_a_repository_that_no_analyst_can_read(running: House, tmp_path: Path) -> None:
    report = analyze(running, make_repository(tmp_path / "looked-at", {"x.py": "def f(:\n"}))
    assert report["summary"]["health"] is None
    assert any(action.startswith("Mend or exclude 1 file") for action in report["summary"]["actions"])


def test_without_python_files_nothing_starts(house: House, tmp_path: Path) -> None:
    done = house.run("analyze", str(make_repository(tmp_path / "notes", {"README": "no code\n"})))
    assert done.returncode == 4 and "no Python files in notes at " in done.stderr and done.stdout == ""
    assert not house.home.ledger.exists()


def test_a_directory_inside_is_said_to_mean_the_whole(running: House, flawed: Path) -> None:
    done = running.run("analyze", "-C", str(flawed / "shop"), "--agents", "tests", "--timeout", "60")
    assert done.returncode == 0 and f"is inside {flawed}: all of that is looked at" in done.stderr
    assert "is inside" not in running.run("analyze", "--agents", "tests", "-d", str(flawed)).stderr
    both = running.run("analyze", "-C", str(flawed), str(flawed))
    assert both.returncode == 2 and "PATH and -C are the same" in both.stderr


def test_report_never_shows_another_repositorys_run_unsaid(running: House, flawed: Path, tmp_path: Path) -> None:
    running.ok("analyze", "--agents", "tests", cwd=flawed)
    none = running.run("report", cwd=running.repo)
    assert none.returncode == 4 and f"no run of {running.repo} yet; next: nightcrew analyze" in none.stderr
    outside = running.run("report", "--json", cwd=tmp_path)
    assert outside.returncode == 0 and json.loads(outside.stdout)["repository"]["name"] == "a shop"
    assert f"the newest run of all, {running.task('lead').run} of {flawed}" in outside.stderr


def test_a_repository_without_a_commit_is_refused(house: House, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    git(tmp_path / "empty", "init", "-q")
    done = house.run("analyze", str(tmp_path / "empty"))
    assert done.returncode in (4, 6) and len(done.stderr.splitlines()) == 1 and "commit" in done.stderr


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--agents", "poetry"), "'poetry' is no analyst; there are security, complexity, docstrings, tests, structure"),
        (("--agents", ","), "is no analyst"),
        (("--timeout", "soon"), "a duration is"),
        (("--timeout", "0s"), "it is more than nothing"),
        (("--base", "nowhere"), "no such commit"),
    ],
)
def test_what_makes_no_sense_is_said_before_anything_starts(house: House, flawed: Path, args: tuple[str, ...], said: str) -> None:
    done = house.run("analyze", str(flawed), *args)
    assert done.returncode in (2, 4) and said in done.stderr and not house.home.ledger.exists()


def test_a_place_that_cannot_be_written_is_said_before_anything_starts(house: House, running: House, flawed: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = house.run("analyze", str(flawed), "-o", str(tmp_path / "file" / "below"))
    assert done.returncode != 0 and str(tmp_path / "file") in done.stderr and not house.home.ledger.exists()
    assert running.run("analyze", str(flawed), "-a", "tests", "-o", "deep/report", cwd=tmp_path).returncode == 0
    assert (tmp_path / "deep" / "report" / "report.html").exists()


# Analysts that do not answer -------------------------------------------------------------------------------------------------------


def test_one_that_dies_is_reported_with_its_reason_and_the_others_are_too(house: House, tmp_path: Path) -> None:
    flawed = make_repository(tmp_path / "a shop", FLAWED)  # what it leaves, others would find
    house.start_daemon()
    house.config.write_text("slots = 1\nsandbox = 0\n[limits]\ndisk_free_min = 0\n")
    house.ok("analyze", str(flawed), "--detach")
    house.ok("kill", house.task("structure").id)  # the last one, which waits for the others
    house.wait_final()
    assert house.state("structure") == "cancelled"
    report = json.loads(house.ok("report", "--json", cwd=flawed))
    states = {one["name"]: one["state"] for one in report["summary"]["perspectives"]}
    assert states.pop("structure") == "failed" and set(states.values()) == {"done"} and report["run"]["state"] == "failed"
    assert "cancelled" in report["summary"]["failed"][0]["reason"]
    assert report["summary"]["actions"][0].endswith(f"Run again: nightcrew retry {house.task('structure').id}")
    assert report["summary"]["health"] is not None


def test_one_that_takes_too_long_is_ended_and_fails_alone(running: House, tmp_path: Path) -> None:
    running.wait_final()  # what other tests left going
    repo = make_repository(tmp_path / "large", {f"m{number}.py": "import os\n" + "os.system('ls')\n" * 1500 for number in range(60)})
    report = analyze(running, repo, "--timeout", "1s", "--agents", "security,tests", code=1)
    security, _tests = report["summary"]["perspectives"]
    assert (security["state"], report["run"]["state"]) == ("failed", "failed")
    # Whoever notices first: the runner, the analyst, or the command below it.
    assert re.search(r"stopped after 1(\.\d)?s|(within|no answer in) \d+ms", security["reason"]), security["reason"]
    assert running.tagged() == []


def test_ctrl_c_stops_following_and_the_analysts_go_on(running: House, flawed: Path) -> None:
    following = subprocess.Popen(
        [*NIGHTCREW, "analyze", "-a", "security,structure", str(flawed)],
        env=running.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    assert following.stdout is not None and following.stderr is not None
    assert any("/security" in line for line in following.stderr), "it follows"
    os.kill(following.pid, signal.SIGINT)
    said = following.stderr.read()
    following.stdout.close()
    following.stderr.close()
    if following.wait(60) != 0:  # it had not ended by itself just before
        assert following.returncode == 130
        assert f"the analysts go on; to end them: nightcrew kill {running.task('lead').run}" in said
    running.wait_final()
    assert {str(task.state) for task in running.tasks() if task.run == running.task("lead").run} == {"done"}


# Prose ------------------------------------------------------------------------------------------------------------------------------


def test_without_a_gateway_the_report_is_whole_and_says_so(running: House, flawed: Path) -> None:
    done = running.run("analyze", str(flawed), "--agents", "tests", "--model", "claude-test", "--json")
    lead = running.task("lead")
    assert done.returncode == 0 and f"no prose; nightcrew logs {lead.run}/lead says why" in done.stderr
    assert json.loads(done.stdout)["prose"] is None
    assert "no prose: " in (running.home.attempt(lead.id, 1) / "stderr.log").read_text()


def test_a_model_writes_the_prose_through_the_gateway_and_the_report_marks_it(house: House, flawed: Path) -> None:
    text = "Fix shop/run.py first.\n\n<b>Then</b> rest."
    with Simulator() as sim:
        sim.faults(text=text)
        house.config.write_text(house.config.read_text() + upstream(house.home, sim.url))
        know_prices(house.home)
        house.start_daemon()
        done = house.run("analyze", str(flawed), "--agents", "security", "--model", "claude-haiku-4-5", "--json")
        assert json.loads(done.stdout)["prose"] == {"text": text, "model": "claude-haiku-4-5"}, done.stderr
    lead = house.task("lead")
    page = (house.home.root / "runs" / lead.run / "report.html").read_text()
    assert "Written by a model" in page and "&lt;b&gt;Then" in page
    assert json.loads(house.ok("report", "--json", cwd=flawed))["prose"]["model"] == "claude-haiku-4-5", "kept for later"
    (row,) = rows(house.home)
    assert (row["agent"], row["end"], row["model"]) == (lead.id, "served", "claude-haiku-4-5"), "it is in the account"
    assert lead.result is not None and lead.result["tokens"]["output"] > 0
    asked_for = [path for path in (house.home.root / "runs").rglob("*") if path.is_file() and KEY.encode() in path.read_bytes()]
    assert asked_for == [], "the key is the gateway's alone"


def test_nothing_of_an_analysis_stays_in_the_repository(running: House, flawed: Path) -> None:
    running.wait_final()  # what other tests left going
    run = analyze(running, flawed, "--agents", "tests,structure")["run"]["id"]
    tasks = [task.id for task in running.tasks() if task.run == run]
    wait_until(lambda: all(task.branch is None for task in running.tasks() if task.id in tasks), "the worktrees to go")
    assert git(flawed, "for-each-ref", "--format=%(refname)") == "refs/heads/main"
    assert len(git(flawed, "worktree", "list").splitlines()) == 1
    assert not any(Path(task.worktree or "").exists() for task in running.tasks() if task.id in tasks)
    again = running.run("take", running.task("tests").id, "-C", str(flawed))
    assert again.returncode == 4 and "it changed nothing" in again.stderr
    removable = json.loads(running.ok("clean", "--json", cwd=flawed))["removable"]
    assert [one["attempt"] for one in removable if one["attempt"].partition(":")[0] in tasks] == []
