"""`nightcrew map` as a person runs it: real workers, real files."""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from supervisor.features.map import commands as map_commands
from supervisor.kernel.errors import UsageError
from tests import warm
from tests.support import House, git, make_repository, wait_until

MODULE = """
import json, os, signal

def size(path):
    return len(open(path, "rb").read())

def double(line):
    return 2 * int(line)
"""


FILES = {"README": "hello\n", "tools.py": MODULE, **{f"f{number}.txt": "x" * number for number in range(6)}}


@pytest.fixture
def mapped(lasting: House, tmp_path: Path) -> House:
    """A supervisor that has seen others, and a repository of the test's own with a module and some files."""
    lasting.repo = make_repository(tmp_path / "mapped", FILES)
    return lasting


@pytest.fixture
def alone(house: House, tmp_path: Path) -> House:
    """The same, and the supervisor has seen nothing."""
    house.repo = make_repository(tmp_path / "mapped", FILES)
    house.start_daemon()
    return house


def results(house: House, *words: str, code: int = 0) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The output of `nightcrew map --json WORDS`, and its summary."""
    done = house.run("map", "--json", "--class", "interactive", "--agents", "2", *words)
    assert done.returncode == code, f"{done.stdout}\n{done.stderr}\n{house.daemon_output()}"
    summary = json.loads(done.stdout)
    return [json.loads(line) for line in Path(summary["out"]).read_text().splitlines()], summary


def test_files_and_a_command_then_only_what_changed(mapped: House) -> None:
    lines, summary = results(mapped, "--files", "*.txt", "--", "wc", "-c", "{file}")
    assert [(line["item"], line["result"]) for line in lines] == [(f"f{n}.txt", f"{n} f{n}.txt") for n in range(6)]
    assert (summary["done"], summary["failed"], summary["missing"]) == (6, 0, 0)
    first = summary["run"]

    (mapped.repo / "f3.txt").write_text("other")
    git(mapped.repo, "commit", "-q", "-a", "-m", "changed")
    lines, summary = results(mapped, "--files", "*.txt", "--", "wc", "-c", "{file}")
    assert lines[3]["result"] == "5 f3.txt" and summary["run"] not in ("", first)
    assert [view.name for view in mapped.tasks() if view.run == summary["run"]] == ["w1"]  # one item, one worker


def test_who_asks_with_a_changed_workload_while_it_runs_gets_the_changes_too(mapped: House, tmp_path: Path) -> None:
    """Each size of the file has a door of its own that holds the worker."""
    held = f"def held(path):\n    os.read(os.open({str(tmp_path)!r} '/go%d' % size(path), os.O_RDONLY), 1)\n    return size(path)\n"
    (mapped.repo / "tools.py").write_text(MODULE + held)
    git(mapped.repo, "commit", "-q", "-a", "-m", "held")
    for size in (3, 5):
        os.mkfifo(tmp_path / f"go{size}")
    made = tmp_path / "made"
    where = ("--out", str(made), "--sandbox", "0")  # for another file it would be begun again for that alone
    words = ("map", "--json", "--class", "interactive", "--agents", "2", *where, "--files", "f3.txt", "--call", "tools:held")
    mapped.ok(*words, "--detach")
    door = os.open(tmp_path / "go3", os.O_WRONLY)  # once a worker is at it
    (mapped.repo / "f3.txt").write_text("other")
    git(mapped.repo, "commit", "-q", "-a", "-m", "changed")
    said, told = tmp_path / "said", tmp_path / "told"
    with said.open("wb") as out, told.open("wb") as err:
        again = warm.start(words, mapped.repo, mapped.env, out.fileno(), err.fileno())
    wait_until(lambda: "what changed since it began comes after that" in told.read_text(), "it to say so")
    os.close(door)
    door = os.open(tmp_path / "go5", os.O_WRONLY)
    assert json.loads(made.read_text())["result"] == 3
    os.close(door)
    assert again.wait(60) == 0
    assert json.loads(said.read_text())["out"] == str(made) and json.loads(made.read_text())["result"] == 5


def test_lines_and_a_function(mapped: House, tmp_path: Path) -> None:
    work = tmp_path / "lines"
    work.write_text("".join(f"{n}\n" for n in range(20)) + "no number\n")
    lines, _ = results(mapped, "--lines", str(work), "--retries", "0", "--call", "tools:double", code=1)
    assert [line.get("result") for line in lines] == [*range(0, 40, 2), None]
    assert lines[-1]["error"].startswith("ValueError: invalid literal")


def test_a_workload_of_nothing_is_an_error_that_says_what_was_looked_at(house: House, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.write_text("\n\n")
    for words, said in (
        (("--files", "*.none", "--files", "src/**"), "no file matches *.none src/**: none of the 1 plain files of HEAD matches"),
        (("--lines", str(empty)), f"no item in {empty}: it has no line that is not empty"),
        (("--jsonl", str(empty)), f"no item in {empty}: it has no line that is not empty"),
        (("--from-command", "true"), "no item in true: it has no line that is not empty"),
        (("--files", "*.none", "--dry-run"), "none of the 1 plain files of HEAD matches"),
    ):
        done = house.run("map", *words, "--", "true")
        assert (done.returncode, said in done.stderr) == (4, True), done.stderr
    assert not (house.home.root / "maps").exists()


def test_status_shows_the_workers_of_a_map_as_one_line(alone: House) -> None:
    results(alone, "--files", "*.txt", "--", "true")
    run = alone.tasks()[0].run
    alone.wait_final()
    (line,) = (line.split() for line in alone.ok("status").splitlines())
    both, late = ["✓", "done", run, "map", "true", "2", "done"], ["−", "cancelled", run, "map", "true", "1", "done,", "1", "cancelled"]
    assert [*line[:3], *line[4:]] in (both, late), "the second worker may begin when the first has done all"
    assert len(alone.ok("status", run).splitlines()) == 2, "asked for, each is shown"


def test_what_would_be_done(alone: House) -> None:
    def plan(*words: str) -> dict[str, Any]:
        return dict(json.loads(alone.ok("map", "--dry-run", "--json", "--files", "*.txt", *words, "--", "cat")))

    before = plan()
    assert (before["items"], before["to_do"], before["workers"], before["predicted_s"]) == (6, 6, 6, None)
    assert not (alone.home.root / "maps").exists() and alone.tasks() == []
    results(alone, "--files", "*.txt", "--", "cat")
    after = plan()
    assert (after["done"], after["to_do"], after["predicted_s"]) == (6, 0, 0.0) and after["items_per_shard"] >= 1
    assert plan("--fresh")["to_do"] == 6


def test_names_that_no_text_holds(mapped: House) -> None:
    names = [b"-n.txt", b"a\nb.txt", b"\xff\xfe.txt", b"x" * 251 + b".txt"]
    for name in names:
        with open(os.fsencode(mapped.repo) + b"/" + name, "wb") as file:
            file.write(name)
    git(mapped.repo, "add", "-A")
    git(mapped.repo, "commit", "-q", "-m", "names")
    lines, _ = results(mapped, "--files", "*.txt", "--", "sha256sum", "{file}")
    found = {os.fsencode(line["item"]): line["result"] for line in lines}
    for name in names:
        assert hashlib.sha256(name).hexdigest() in found[name]


def test_objects_in_order_and_a_changed_script(mapped: House, tmp_path: Path) -> None:
    work, script = tmp_path / "work.jsonl", mapped.repo / "run.sh"
    work.write_text('{"n": 2}\n\n{"n": 1, "s": "ü"}\n{"n": 2}\n')
    for words in ("first", "second"):
        script.write_text(f"echo {words} $1 $2\n")
        git(mapped.repo, "add", "-A")
        git(mapped.repo, "commit", "-q", "-m", words)
        lines, _ = results(mapped, "--jsonl", str(work), "--", "sh", "run.sh", "{n}", "{s}")
        assert [line["item"] for line in lines] == [{"n": 2}, {"n": 1, "s": "ü"}, {"n": 2}]
        assert [line["result"] for line in lines] == [f"{words} 2 {{s}}", f"{words} 1 ü", f"{words} 2 {{s}}"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--files", "*"), "what is to be done"),
        (("--", "true"), "which items?"),
        (("--files", "*", "--lines", "-", "--", "true"), "which items?"),
        (("--files", "*", "--call", "tools"), "MODULE:FUNCTION"),
        (("--files", "*", "--out", "/nowhere/out", "--", "true"), "no directory"),
        (("--lines", "/nowhere", "--", "true"), "No such file"),
        (("--from-command", "exit 3", "--", "true"), "exit code 3"),
        (("--files", "*", "--base", "none", "--", "true"), "no such commit"),
    ],
)
def test_what_cannot_be_done_is_refused_before_anything_is_made(house: House, words: tuple[str, ...], said: str) -> None:
    done = house.run("map", *words)
    assert done.returncode != 0 and said in done.stderr
    assert not (house.home.root / "maps").exists()


def test_a_function_that_cannot_be_imported_ends_the_workers_and_says_why(mapped: House) -> None:
    done = mapped.run("map", "--json", "--class", "interactive", "--agents", "1", "--files", "f0.txt", "--call", "tools:none")
    assert done.returncode == 1
    assert "has no attribute 'none'" in json.loads(done.stdout)["why"]


EVIL = """
import json, os, socket, sys, time
def wait(name):
    while not os.path.exists(os.path.join(ROOM, name)):
        time.sleep(0.02)
def ask(op, **args):
    door = socket.socket(socket.AF_UNIX)
    door.connect(os.environ["NIGHTCREW_AGENTS_SOCKET"])
    shape = {"version": "x", "verb": "map", "args": {"op": op, **args}, "token": os.environ["NIGHTCREW_TOKEN"]}
    door.sendall(json.dumps(shape).encode() + b"\\n")
    return json.loads(door.makefile().readline())
ROOM, item = sys.argv[1:]
open(os.path.join(ROOM, item), "w").close()
wait({"evil": "good", "good": "go"}[item])
if item == "evil":
    said = [ask("stop", why="\x1b]0;x\x07 no reason"), ask("keep", **{"as": "x", "data": "x" * 200000}), ask("keep", data="x")]
    open(os.path.join(ROOM, "go"), "w").close()
    print(json.dumps([one["ok"] for one in said]))
"""


def test_an_item_neither_ends_its_map_nor_keeps_anything_in_it(mapped: House, tmp_path: Path) -> None:
    work, script = tmp_path / "lines", tmp_path / "evil.py"
    work.write_text("evil\ngood\n")
    script.write_text(EVIL)
    lines, summary = results(mapped, "--lines", str(work), "--", sys.executable, str(script), str(tmp_path), "{line}")
    assert [line["result"] for line in lines] == [[True, False, False], ""] and summary["why"] == ""
    assert Path(summary["out"]).with_name("map.db").stat().st_size < 200_000


def test_an_item_of_the_only_worker_cannot_stop_its_map(mapped: House, tmp_path: Path) -> None:
    work, script = tmp_path / "lines", tmp_path / "evil.py"
    work.write_text("evil\ngood\n")
    script.write_text(EVIL)
    for name in ("good", "go"):
        (tmp_path / name).touch()
    command = (sys.executable, str(script), str(tmp_path), "{line}")
    lines, summary = results(mapped, "--agents", "1", "--lines", str(work), "--", *command)
    assert [line["result"] for line in lines] == [[True, False, False], ""] and summary["why"] == ""


@pytest.mark.parametrize(
    ("line", "why"),
    [
        *((line, "it is no JSON object") for line in (b'[["a", "b"]]', b'["ab"]', b"[]", b'""', b"[1]", b"null")),
        (b"\xff\xfe", "it is no UTF-8"),
        (b'{"a": \x00', "it is no JSON: Expecting value, at character 7"),
        (b'{"a": NaN}', "NaN is no number of JSON"),
        (b"[" * 100_000, "it is nested too deeply"),
    ],
)
def test_a_line_that_is_no_object(tmp_path: Path, line: bytes, why: str) -> None:
    path = tmp_path / "work.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"a": 1}\n\n' + line)
    with pytest.raises(UsageError) as refused:
        map_commands.of_objects(str(path))
    assert refused.value.on == f"{path}:3" and refused.value.why == why


@pytest.mark.parametrize(
    ("pattern", "matches", "others"),
    [
        ("*.py", ["a.py"], ["b/a.py", "a.pyc"]),
        ("**/*.py", ["a.py", "b/a.py", "b/c/a.py"], ["a.txt"]),
        ("src/**", ["src/a", "src/b/c"], ["a/src"]),
        ("./a?[0-9].py", ["ab1.py"], ["a/1.py", "abc.py"]),
        ("[!a]*", ["b"], ["a", "ab"]),
        ("a[", ["a["], ["a"]),
        ("*", [".hidden"], [".hidden/a"]),
        ("(x)+", ["(x)+"], ["x"]),
    ],
)
def test_globs(pattern: str, matches: list[str], others: list[str]) -> None:
    form = re.compile(map_commands.glob(pattern), re.DOTALL)
    assert all(map(form.fullmatch, matches)) and not any(map(form.fullmatch, others))


def test_one_that_goes_on_by_itself_is_followed_by_the_same_command(alone: House) -> None:
    words = ("--class", "interactive", "--agents", "2", "--files", "*.txt", "--", "sh", "-c", "sleep 0.3; echo 1")
    run = alone.ok("map", "--detach", *words).strip()
    done = alone.run("map", "--json", *words)
    assert done.returncode == 0 and json.loads(done.stdout)["done"] == 6
    assert "runs already" in done.stderr and {view.run for view in alone.tasks()} == {run}
