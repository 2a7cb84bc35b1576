"""`nightcrew map --prompt`, `--kind`, `--plan` and `--merge` as a person runs them: real workers, agents and git, a simulated provider."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from supervisor.features.map.commands import merge_lines
from supervisor.host import files
from supervisor.kernel.gateway_settings import Limits
from supervisor.sandbox import executors
from tests.gateway.kit import know_prices, upstream
from tests.gateway.simulator import Fault, Simulator
from tests.support import House, git, make_repository, wait_until

SCHEMA = {"type": "object", "properties": {"score": {"type": "integer"}}, "required": ["score"]}
ANSWER = "$NIGHTCREW_OUT/answer.json"


@pytest.fixture(scope="module")
def _sim() -> Iterator[Simulator]:
    with Simulator(limits=Limits(rpm=1e5, itpm=1e8, otpm=1e7)) as simulator:
        yield simulator


@pytest.fixture
def sim(_sim: Simulator) -> Iterator[Simulator]:
    yield _sim
    _sim.clear()


def furnish(house: House, sim: Simulator) -> House:
    """A supervisor with a gateway, a repository with four files and a binary one."""
    files.private_dir(house.home.root)
    know_prices(house.home)
    house.config.write_text(f'sandbox = 0\n[limits]\ndisk_free_min = 0\n[agents]\nkind = "builtin"\n{upstream(house.home, sim.url)}')
    for number in range(4):
        (house.repo / f"f{number}.txt").write_text(f"file {number}\n")
    (house.repo / "f9.txt").write_bytes(b"\0binary")
    git(house.repo, "add", "-A")
    git(house.repo, "commit", "-q", "-m", "files")
    (house.home.root.parent / "schema.json").write_text(json.dumps(SCHEMA))
    house.start_daemon()
    return house


@pytest.fixture(scope="module")
def mapped(_sim: Simulator, tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """One for all tests that change nothing of it."""
    root = tmp_path_factory.mktemp("maps")
    house = House(root, make_repository(root / "repo"))
    yield furnish(house, _sim)
    house.reap()


def results(house: House, *words: str, code: int = 0) -> tuple[list[dict[str, Any]], dict[str, Any], str]:
    """The output of `nightcrew map --json WORDS`, its summary, and what it said."""
    done = house.run("map", "--json", "--class", "interactive", "--agents", "2", *words)
    assert done.returncode == code, f"{done.stdout}\n{done.stderr}\n{house.account()}"
    summary = json.loads(done.stdout)
    return [json.loads(line) for line in Path(summary["out"]).read_text().splitlines()], summary, done.stderr


def schema(house: House) -> str:
    return str(house.home.root.parent / "schema.json")


def test_prompts_answer_by_the_schema_and_only_what_failed_is_asked_again(mapped: House, sim: Simulator) -> None:
    sim.faults(
        Fault(contains="file 1", text='{"score": "high"}', times=1),
        Fault(contains="is not of type 'integer'", text='{"score": 1}', times=1),
        Fault(contains="file 2", text="garbage"),
        Fault(text='{"score": 7}'),
    )
    asked = ("--files", "f*.txt", "--prompt", "Rate this: {content}", "--schema", schema(mapped))
    dry = json.loads(mapped.ok("map", "--json", "--dry-run", *asked))
    assert dry["to_do"] == 5 and dry["prompt"]["calls"] == 5 and dry["prompt"]["cost_usd"]["low"] < dry["prompt"]["cost_usd"]["high"]
    lines, summary, _ = results(mapped, *asked, code=1)
    assert [line.get("result") for line in lines] == [{"score": 7}, {"score": 1}, None, {"score": 7}, None]
    assert lines[2]["error"].startswith("it is not JSON") and lines[2]["error"].endswith("the last answer: garbage")
    assert lines[4]["error"] == "it is binary" and summary["failed"] == 2
    before = len(sim.last())

    sim.clear()
    sim.faults(Fault(text='{"score": 2}'))
    lines, _, _ = results(mapped, *asked, code=1)
    assert lines[2]["result"] == {"score": 2} and len(sim.last()) == before + 1
    assert sim.tally().refused == {}


@pytest.mark.soak  # the key stays refused for whoever comes after, so it has a supervisor of its own
def test_a_refused_key_ends_the_map_and_fails_no_item(house: House, sim: Simulator) -> None:
    furnish(house, sim)
    sim.faults(Fault(status=401))
    lines, summary, _ = results(house, "--files", "f[0-3].txt", "--prompt", "Rate this: {content}", code=1)
    assert lines == [] and (summary["failed"], summary["missing"]) == (0, 4) and "no model answers" in summary["why"]


def test_agents_are_planned_asked_again_and_merged(mapped: House, sim: Simulator) -> None:
    def script(text: str, command: str) -> Fault:
        return Fault(contains=text, command=command, times=1)

    sim.faults(
        script("Split this work", f'echo \'{{"groups": [{{"items": [1, 3]}}, {{"items": [1, 2, 9]}}]}}\' > {ANSWER}'),
        script(
            "[1 of 2: f0.txt]",
            f'echo a >> f0.txt; echo a >> f3.txt; echo \'{{"f0.txt": {{"score": 0}}, "f2.txt": {{"score": 2}}}}\' > {ANSWER}',
        ),
        script("Rate f1.txt", f"echo '{{}}' > {ANSWER}"),
        Fault(contains="Rate f1.txt", text="Done.", times=1),
        script("'score' is a required property", f"echo b >> f1.txt; echo '{{\"score\": 1}}' > {ANSWER}"),
        script("Rate f3.txt", f"echo c >> f3.txt; echo '{{\"score\": 3}}' > {ANSWER}"),
        Fault(text="Done."),
    )
    asked = ("--files", "f[0-3].txt", "--prompt", "Rate {file}", "--kind", "builtin", "--schema", schema(mapped), "--plan", "--merge")
    lines, summary, said = results(mapped, *asked)
    assert "named twice: 1 (stay" in said and "no items: 9 (left" in said and "named nowhere: 4 (each" in said
    assert [line["result"]["output"]["score"] for line in lines] == [0, 1, 2, 3]
    assert lines[0]["result"]["commit"] == lines[2]["result"]["commit"] != lines[1]["result"]["commit"]
    merge = summary["merge"]
    assert merge["merged"] == 2 and [(left["item"], left["files"]) for left in merge["left"]] == [("f3.txt", ["f3.txt"])]
    assert [git(mapped.repo, "show", f"{merge['branch']}:f{n}.txt") for n in (0, 1, 3)] == ["file 0\na", "file 1\nb", "file 3\na"]
    assert git(mapped.repo, "status", "--porcelain") == "" and mapped.task("s2").epoch == 2

    again = results(mapped, *asked)
    assert (again[0], again[1]["merge"]) == (lines, merge) and "splits" not in again[2]


def test_what_commands_change_is_merged_and_a_failed_item_leaves_nothing(mapped: House) -> None:
    change = "echo {index} >> {file}; echo {index} > n{index}; test {index} != 1"
    tier = "1" if any(int(tier) for tier in executors.known().tiers) else "0"  # confined, where that works: commits arrive from elsewhere
    words = ("--files", "f[0-3].txt", "--merge", "--retries", "0", "--sandbox", tier, "--", "sh", "-c", change)
    lines, summary, _ = results(mapped, *words, code=1)
    assert [line["ok"] for line in lines] == [True, False, True, True]
    merge = summary["merge"]
    assert merge["merged"] == 3 and merge["left"] == []
    names = git(mapped.repo, "log", "--format=%s", "--name-only", f"HEAD..{merge['branch']}").split()
    assert names == ["f3.txt", "f3.txt", "n3", "f2.txt", "f2.txt", "n2", "f0.txt", "f0.txt", "n0"]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--prompt", "{fiel}"], "did you mean file"),
        (["--prompt", "{content}", "--kind", "builtin"], "an agent has the files in its worktree"),
        (["--prompt", "{file}", "--merge"], "a model that is asked changes no file"),
        (["--schema", "x.json", "--", "true"], "there is no model to be asked"),
        (["--prompt", "@/nowhere", "--kind", "builtin"], "cannot read the prompt"),
        (["--prompt", "x", "--kind", "shell"], "shell"),
        (["--prompt", "x", "--shard", "2"], "not without --kind"),
        (["--prompt", "x", "--network", "no"], "no model can be asked without a network"),
    ],
)
def test_what_does_not_go_together_is_refused(house: House, words: list[str], why: str) -> None:
    done = house.run("map", "--files", "*", *words)
    assert done.returncode in (2, 3) and why in done.stderr, done.stderr


def test_without_a_gateway_no_model_is_asked(house: House) -> None:
    done = house.run("map", "--files", "*", "--prompt", "x")
    assert done.returncode == 6 and "no upstream and no key" in done.stderr, done.stderr


def test_a_person_is_told_of_the_merge() -> None:
    left = {"position": 4, "item": "a\nb", "why": "it conflicts", "files": ["x\ty"], "ref": "refs/nightcrew/map/i/left/4"}
    merge = {"branch": "nightcrew/map/i", "tip": "0" * 40, "merged": 1, "left": [left, {**left, "files": [], "ref": None}] * 6, "why": ""}
    lines = list(merge_lines(merge))
    assert lines[0] == "1 edit merged into the branch nightcrew/map/i"
    assert lines[1] == "left out: a\\nb: it conflicts in x\\ty; git diff nightcrew/map/i...refs/nightcrew/map/i/left/4"
    assert lines[2] == "left out: a\\nb: it conflicts" and lines[-1] == "and 2 more, see the summary"
    assert list(merge_lines({**merge, "why": "it is checked out"})) == ["not merged: it is checked out"]
    assert list(merge_lines({**merge, "merged": 0, "left": []})) == ["nothing to merge: no item changed a file"]
    assert list(merge_lines(None)) == []


LATE = """
import asyncio, os, pathlib, time
from supervisor.features.map import service
merge, watch = service.merge, service.MapDesk._watch
def slow(*args):
    time.sleep(2 * service.LOOK_S)
    return merge(*args)
async def late(self, name, run, *more):
    await asyncio.sleep(3 * service.LOOK_S)
    await watch(self, name, run, *more)
    pathlib.Path(os.environ["NIGHTCREW_HOME"], "watched").write_text(run)
service.merge, service.MapDesk._watch = slow, late
"""
"""A supervisor whose look at the maps that run is old by the time it acts on it."""


def test_a_map_of_which_nothing_is_left_keeps_its_merge(house: House) -> None:
    house.start_daemon(first=LATE)
    words = ("--files", "README", "--merge", "--sandbox", "0", "--", "sh", "-c", "echo more >> {file}")
    merge = results(house, *words)[1]["merge"]
    watched = house.home.root / "watched"
    watched.unlink(missing_ok=True)
    again = results(house, *words)[1]
    wait_until(watched.exists, "the look from when it was opened to be acted on")
    assert json.loads(Path(again["out"]).with_name("summary.json").read_text())["merge"] == merge
