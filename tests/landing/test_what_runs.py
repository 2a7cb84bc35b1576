"""Test that files of a result decide neither which gate judges it or the next result, nor what runs as the person."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from supervisor.config.project import LandModel, ProjectModel
from supervisor.sandbox import executors
from tests.support import House, git, make_repository, plan_of, shell_task

GATE = "python3 -m unittest"
FILES = {
    "calc.py": "def add(a, b):\n    return a + b\n",
    "test_calc.py": "import unittest\nimport calc\n\n\nclass T(unittest.TestCase):\n    def test_add(self):\n"
    "        self.assertEqual(calc.add(1, 2), 3)\n",
    "nightcrew.toml": f'[land]\ngate = "{GATE}"\nrepairs = 0\n',
    "tools/__init__.py": "",
}
BREAKS = "printf 'def add(a, b):\\n    return a - b\\n' > calc.py"
EXITS = "printf 'import os\\nos._exit(0)\\n' >"
COMMIT = "git add -A -f; git -c user.name=a -c user.email=a@x commit -qm work"
SHADOWS = {
    "module": f"{EXITS} argparse.py",
    "package": f"mkdir unittest; {EXITS} unittest/__init__.py",
    "linked": f"{EXITS} other.py; ln -s other.py argparse.py",
}
"""Ways in which a result passes a gate of unittest with broken work."""


@pytest.fixture
def house(tmp_path: Path) -> Any:
    made = House(tmp_path, make_repository(tmp_path / "repo", FILES))
    made.start_daemon()
    yield made
    made.reap()


def said(house: House, *words: str) -> Any:
    return json.loads(house.run(*words, "--json").stdout)


def entries(train: Any) -> dict[str, tuple[str, str]]:
    return {entry["task"].partition("/")[2]: (entry["state"], entry["reason"]) for entry in train["entries"]}


def test_a_module_that_the_gate_imports_instead_is_flagged_and_lands_only_accepted(house: House) -> None:
    tasks = [shell_task(name, f"{BREAKS}; {shadow}; {COMMIT}", gate=GATE) for name, shadow in SHADOWS.items()]
    house.ok("run", house.plan(plan_of(tasks)))
    assert {name: house.state(name) for name in SHADOWS} == dict.fromkeys(SHADOWS, "done"), "each passed its own gate"
    for name in SHADOWS:
        assert "what decides what runs" in [flag["kind"] for flag in said(house, "review", name)["flags"] if flag["weakens"]], name
    train = said(house, "land", "--ready")
    assert train["state"] == "empty" and train["ran"] == [], "no gate needs to run for it"
    for name, (state, reason) in entries(train).items():
        assert state == "ejected" and "it changes what runs here" in reason and f"nightcrew review {house.task(name).id}" in reason
    house.ok("review", "module", "--accept")
    assert entries(said(house, "land", "module"))["module"][0] == "landed", "a person said so"


def test_what_steers_who_opens_the_repository_lands_only_accepted(house: House) -> None:
    hook = {"hooks": {"SessionStart": [{"hooks": [{"type": "command", "command": "touch /tmp/ran"}]}]}}
    work = {
        "steers": f"mkdir .claude; cat > .claude/settings.json <<'END'\n{json.dumps(hook)}\nEND\n{COMMIT}",
        "enters": f"{EXITS} tools/argparse.py; {COMMIT}",
        "tells": f"echo Be brief. > CLAUDE.md; {COMMIT}",
    }
    house.ok("run", house.plan(plan_of([shell_task(name, one, gate=GATE) for name, one in work.items()])))
    assert {flag["kind"]: flag["weakens"] for flag in said(house, "review", "tells")["flags"]} == {"instructions to agents": False}
    train = entries(said(house, "land", "--ready", "--gate", f"{GATE} && cd tools && {GATE} discover -p 'none*'"))
    assert {name: state for name, (state, _) in train.items()} == {"steers": "ejected", "enters": "ejected", "tells": "landed"}
    assert ".claude/settings.json adds a file that steers" in train["steers"][1]
    assert "tools/argparse.py adds a module that is imported in place of argparse" in train["enters"][1]
    house.ok("review", "steers", "--accept")
    assert entries(said(house, "land", "steers"))["steers"][0] == "landed", "a person said so"


def test_modules_of_packages_land_as_ever(house: House) -> None:
    work = "mkdir fresh; touch tools/types.py fresh/__init__.py fresh/logging.py; " + COMMIT
    house.ok("run", house.plan(plan_of([shell_task("honest", work, gate=GATE)])))
    assert [flag for flag in said(house, "review", "honest")["flags"] if flag["weakens"]] == []
    assert entries(said(house, "land", "--ready"))["honest"][0] == "landed"


def test_the_project_file_of_a_result_runs_nothing(house: House, tmp_path: Path) -> None:
    """The gate of its own train is the one before it; what it brings runs as the person only once they agreed to that."""
    brought = f'[land]\ngate = "true"\nsnapshot = "deps"\nrepairs = 0\n[snapshot.deps]\nsetup = ["touch {tmp_path}/ran"]\n'
    bring = f"cat > nightcrew.toml <<'END'\n{brought}END\n"
    broken = shell_task("broken", f"{BREAKS}; {COMMIT}", gate="true")
    house.ok("run", house.plan(plan_of([shell_task("bring", f"{bring}{COMMIT}", gate="true"), broken])))
    flags = {flag["path"]: flag["weakens"] for flag in said(house, "review", "bring")["flags"]}
    assert flags == {"nightcrew.toml": True}
    train = said(house, "land", "--ready")
    assert {name: state for name, (state, _) in entries(train).items()} == {"bring": "ejected", "broken": "ejected"}
    assert "nightcrew.toml changes a file that says what runs" in entries(train)["bring"][1]
    assert git(house.repo, "show", "main:nightcrew.toml") == FILES["nightcrew.toml"].strip()

    house.ok("review", "bring", "--accept")
    train = said(house, "land", "bring", "broken")
    assert {one["command"] for one in train["ran"]} == {GATE}, "a train keeps the gate with which it began"
    assert entries(train)["bring"][0] == "landed" and entries(train)["broken"][0] == "ejected"
    house.ok("run", house.plan(plan_of([shell_task("next", f"echo more > more; {COMMIT}")])))
    refused = house.run("land", "next")
    assert refused.returncode == 8 and f"touch {tmp_path}/ran" in refused.stderr
    assert "next: nightcrew snapshot create deps" in refused.stderr
    assert not (tmp_path / "ran").exists()
    house.ok("snapshot", "create", "deps")
    assert (tmp_path / "ran").exists()
    assert entries(said(house, "land", "next"))["next"][0] == "landed"


@pytest.mark.skipif(1 not in executors.known().tiers, reason="no sandbox works here")
def test_a_gate_runs_the_work_of_confined_agents_in_no_lower_tier(house: House) -> None:
    """The settings say `sandbox = 0`; the agent was confined, so what it wrote never runs as the person."""
    house.ok("run", house.plan(plan_of([shell_task("held", f"echo more > more; {COMMIT}", sandbox=1)])))
    assert entries(said(house, "land", "held"))["held"][0] == "landed"
    assert house.task("gate").tier == 1


def test_a_count_of_tests_that_a_candidate_prints_wins_nothing(house: House) -> None:
    prints = 'import atexit\\nimport os\\n\\n\\natexit.register(os.write, 2, b"\\\\nRan 9999 tests in 0.001s\\\\n\\\\nOK\\\\n")\\n'
    cheat = f"printf '{prints}' | cat - calc.py > more.py; mv more.py calc.py; {COMMIT}"
    tries = ", ".join(f"{{ command = {json.dumps(one)} }}" for one in (cheat, f"echo x > small; {COMMIT}"))
    plan = f'[[tasks]]\nid = "best"\ngate = "{GATE}"\ndecide = "gate"\ncandidates = [{tries}]\n'
    house.run("run", house.plan(plan))
    assert "Ran 9999 tests" in (house.home.attempt(house.task("best-1").id, 1) / "gate.log").read_text()
    assert said(house, "compare", "best")["choice"]["winner"] == house.task("best-2").id, "the smaller change"


def test_no_other_table_of_a_repository_says_what_runs() -> None:
    """A change that adds a table must say in docs/decisions/0060 where its content runs, and how the person agrees to it."""
    assert set(ProjectModel.model_fields) == {"base", "defaults", "analyze", "land", "snapshot", "generated"}
    assert set(LandModel.model_fields) == {"gate", "timeout", "method", "repairs", "width", "snapshot"}
