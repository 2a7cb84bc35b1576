"""`nightcrew snapshot` as a person meets it: what it prints, what it refuses, what a mistake looks like."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.snapshot_kit import SETUP, VERIFY, commit, create, states, with_dependencies
from tests.support import House, make_repository


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """A house with one snapshot that two tasks started from, and one that failed. For tests that only look."""
    root = tmp_path_factory.mktemp("shelf")
    made = with_dependencies(House(root, make_repository(root / "repo")))
    try:
        made.start_daemon()
        create(made)
        for name in ("one", "two"):
            made.ok("add", "-f", "--snapshot", "deps", "--id", name, "sleep 0.2")
        assert made.run("snapshot", "create", "broken", "--setup", "printf 'sad \\033[31mred\\n'; exit 4").returncode == 1
        yield made
    finally:
        made.reap()


def test_create_talks_on_stderr_and_prints_the_id(house: House) -> None:
    with_dependencies(house)
    done = house.run("snapshot", "create", "deps", "--setup", SETUP, "--verify", VERIFY)
    assert done.returncode == 0 and done.stdout.startswith("deps@") and len(done.stdout.split()) == 1
    assert f"$ {SETUP}\nmade the dependencies\n$ {VERIFY}\n" in done.stderr, "what the commands print, as they print it"
    assert "snapshot deps is ready: " in done.stderr.splitlines()[-1]
    again = house.run("snapshot", "create", "deps", "--setup", SETUP, "--verify", VERIFY, "--json")
    shape = json.loads(again.stdout)
    assert (shape["schema"], shape["name"], shape["state"], shape["made_of"]["setup"]) == (1, "deps", "ready", [SETUP])
    assert "snapshot deps is ready: it was made of the same before" in again.stderr


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("deps",), 4, "nobody said what is in the snapshot deps: nightcrew.toml has no [snapshot.deps]"),
        (("Deps", "--setup", "true"), 2, "bad value NAME: 'Deps' cannot be the name of a snapshot"),
        (("../up", "--setup", "true"), 2, "bad value NAME: '../up' cannot be the name of a snapshot"),
        (("deps", "--setup", " "), 2, "bad value --setup: a command must not be empty"),
        (("deps", "--kind", "filesystem", "--preload", "json"), 2, 'preload needs kind = "memory"'),
        (("deps", "--preload", "json,"), 2, "bad value --preload: '' is no module"),
        (("deps", "--kind", "memory"), 2, 'kind = "memory" needs preload'),
        (("deps", "--kind", "memory", "--preload", "os; rm"), 2, "bad value --preload: 'os; rm' is no module"),
        (("deps", "--copy", "../secret"), 2, "bad value --copy: '../secret' leads out of the repository"),
        (("deps", "--copy", ".git/config"), 2, "bad value --copy: '.git/config': git's own files cannot be named"),
        (("deps", "--setup", "true", "--base", "no-such-commit"), 4, "no-such-commit"),
        (("deps", "--verify", "true"), 2, "a snapshot needs setup, preload or copy"),
    ],
)
def test_a_mistake_is_named_and_nothing_is_made(house: House, words: tuple[str, ...], code: int, said: str) -> None:
    done = house.run("snapshot", "create", *words)
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    assert said in done.stderr and "Traceback" not in done.stderr
    assert not house.home.ledger.exists() or states(house) == [], "no supervisor was even started"


def test_modules_to_preload_make_it_one_of_memory(house: House) -> None:
    house.start_daemon()
    house.ok("snapshot", "create", "warm", "--preload", "colorsys, json", "--preload", "ast")
    shape = json.loads(house.ok("snapshot", "show", "warm", "--json"))
    assert (shape["kind"], shape["made_of"]["preload"]) == ("memory", ["colorsys", "json", "ast"])


def test_a_name_like_another_names_it(house: House) -> None:
    commit(house, "nightcrew.toml", '[snapshot.deps]\nsetup = ["true"]\n')
    done = house.run("snapshot", "create", "dpes")
    assert done.returncode == 4 and "did you mean deps?" in done.stderr


def test_outside_of_a_repository_it_says_so(house: House, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    done = house.run("snapshot", "create", "deps", "--setup", "true", cwd=tmp_path / "empty")
    assert done.returncode != 0 and "Traceback" not in done.stderr and "nightcrew: " in done.stderr


def test_ls_lists_and_its_json_has_every_fact(shelf: House) -> None:
    lines = shelf.ok("snapshot", "ls").splitlines()
    assert [line.split()[:2] for line in lines] == [["NAME", "STATE"], ["broken", "failed"], ["deps", "ready"]]
    assert "\033" not in "\n".join(lines), "what a set-up printed steers no terminal from here"
    found = {row["name"]: row for row in json.loads(shelf.ok("snapshot", "ls", "--json"))["snapshots"]}
    deps = found["deps"]
    assert (deps["kind"], deps["uses"], deps["made_of"]["verify"]) == ("filesystem", 2, [VERIFY])
    assert deps["made_of"]["lock_files"].keys() == {"uv.lock"} and deps["setup_s"] > 0 and deps["disk"] > 0
    assert "set-up failed" in found["broken"]["reason"]


def test_ls_of_an_empty_house_tells_the_next_step(house: House) -> None:
    assert "no tasks" in house.run("snapshot", "ls").stderr or "no snapshots" in house.run("snapshot", "ls").stderr


def test_show_says_what_it_is_made_of_and_what_it_came_to(shelf: House) -> None:
    page = shelf.ok("snapshot", "show", "deps")
    for text in (SETUP, VERIFY, "uv.lock", "environments now: 2", "the median of 2"):
        assert text in page, page
    shape = json.loads(shelf.ok("snapshot", "show", "deps", "--json"))
    assert (shape["changed"], shape["attempts"]) == ([], 2) and shape["fork_s"] > 0 and shape["work_s"] >= 0.2
    missing = shelf.run("snapshot", "show", "nothing")
    assert missing.returncode == 4 and "no snapshot is called nothing" in missing.stderr


def test_advise_answers_from_what_was_measured(shelf: House) -> None:
    shape = json.loads(shelf.ok("snapshot", "advise", "deps", "-n", "50", "--json"))
    assert (shape["runs"], shape["attempts"]) == (50, 2) and shape["setup_s"] > 0
    assert shelf.ok("snapshot", "advise", "deps").strip() != ""
    unused = shelf.run("snapshot", "advise", "broken")
    assert unused.returncode == 2 and "nothing was measured yet of broken" in unused.stderr


def test_rm_and_prune_say_what_they_did(house: House) -> None:
    house.start_daemon()
    with_dependencies(house)
    create(house)
    create(house, "other")
    assert house.run("snapshot", "create", "bad", "--setup", "false").returncode == 1
    looked = house.run("snapshot", "prune")
    assert looked.stdout.startswith("would remove  bad@") and "next: nightcrew snapshot prune --yes" in looked.stderr
    assert house.ok("snapshot", "prune", "--yes").startswith("removed  bad@")
    assert "nothing to prune" in house.run("snapshot", "prune", "--yes").stderr
    removed = house.ok("snapshot", "rm", "deps", "other").splitlines()
    assert [line.split("@")[0] for line in removed] == ["removed  deps", "removed  other"]
    assert house.run("snapshot", "rm", "deps").returncode == 4


def test_of_names_of_which_one_is_unknown_none_is_removed(house: House) -> None:
    with_dependencies(house)
    create(house)
    done = house.run("snapshot", "rm", "deps", "unknown")
    assert done.returncode == 4 and "unknown" in done.stderr
    assert states(house) == ["ready"]
