"""`nightcrew map --prompt --economy` as a person runs it: real workers, a real gateway, a simulated provider."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from supervisor.gateway.account import schema
from supervisor.host import files
from supervisor.kernel.gateway_settings import Limits
from tests.gateway.kit import know_prices, rows, upstream
from tests.gateway.simulator import Fault, Simulator
from tests.support import House, git, signal_if_there, wait_until

ASKED = ("--files", "f*.txt", "--prompt", "Rate this: {content}", "--model", "claude-haiku-4-5", "--economy")


@pytest.fixture
def sim() -> Iterator[Simulator]:
    with Simulator(limits=Limits(rpm=1e5, itpm=1e8, otpm=1e7)) as simulator:
        yield simulator


@pytest.fixture
def mapped(house: House, sim: Simulator) -> House:
    files.private_dir(house.home.root)
    know_prices(house.home)
    house.config.write_text(f"sandbox = 0\n[limits]\ndisk_free_min = 0\n{upstream(house.home, sim.url)}")
    for number in range(6):
        (house.repo / f"f{number}.txt").write_text(f"file {number}\n")
    git(house.repo, "add", "-A")
    git(house.repo, "commit", "-q", "-m", "files")
    house.start_daemon()
    return house


def made(house: House) -> bool:
    """Whether the gateway knows of a batch that its provider has made."""
    if not house.home.gateway_account.exists():
        return False
    with closing(schema.connect_readonly(house.home.gateway_account)) as db:
        return bool(db.execute("SELECT id FROM batch WHERE id IS NOT NULL").fetchall())


@pytest.mark.parametrize("killed", [False, pytest.param(True, marks=pytest.mark.soak)], ids=["alone", "killed"])
def test_a_map_goes_by_one_batch_also_when_its_worker_is_killed(mapped: House, sim: Simulator, killed: bool) -> None:
    if killed:
        sim.faults(Fault(api="batches", hold="all", times=1))
    sim.faults(Fault(api="batch", contains="file 3", text="three"), Fault(api="batch", text="fine"))
    mapped.ok("map", "--detach", "--agents", "4", *ASKED)
    if killed:
        wait_until(lambda: made(mapped), "the batch to be made")
        (worker,) = mapped.tasks()
        signal_if_there(json.loads((mapped.home.attempt(worker.id, 1) / "started.json").read_text())["pid"])
        wait_until(lambda: mapped.tasks()[0].epoch == 2, "its next attempt")
        sim.release("all")
    done = mapped.run("map", "--json", *ASKED)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{mapped.account()}"
    lines = [json.loads(line) for line in Path(json.loads(done.stdout)["out"]).read_text().splitlines()]
    assert [line["result"] for line in lines] == ["fine", "fine", "fine", "three", "fine", "fine"]
    (row,) = rows(mapped.home)
    assert (row["end"], row["flags"]) == ("served", "batch") and 0 < row["cost_usd"] <= row["bound_usd"]
    assert [entry["path"] for entry in sim.last() if entry["method"] == "POST"] == ["/v1/messages/batches"]
    assert [task.kind for task in mapped.tasks()] == ["map-prompt"], "one group is one worker's"


@pytest.mark.parametrize(
    "words",
    [("--economy", "--", "true"), ("--economy", "--prompt", "x", "--kind", "builtin"), ("--economy", "--prompt", "x", "--plan")],
    ids=["command", "agents", "plan"],
)
def test_only_single_calls_go_by_batches(house: House, words: tuple[str, ...]) -> None:
    done = house.run("map", "--files", "*", *words)
    assert done.returncode == 2 and "--economy" in done.stderr, done.stderr
