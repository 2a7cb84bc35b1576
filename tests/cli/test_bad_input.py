"""Whatever a person gets wrong is one line on stderr: what, on what, why, what next; the right exit code; no traceback."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from supervisor.cli.main import VERBS
from supervisor.host import files
from tests.cli.terminal import COMMAND
from tests.support import House, git, make_repository

Done = subprocess.CompletedProcess[str]


def refused(done: Done, code: int, *words: str) -> str:
    """Check the form of an error; its line."""
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("nightcrew: ") and "; next: " in line and "Traceback" not in line, line
    assert done.returncode == code, f"{done.returncode} with {line}"
    for word in words:
        assert word in line, line
    return line


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["statsu"], 2, "did you mean status?"),
        (["run"], 2, "Missing argument 'PLAN'; next: nightcrew run --help"),
        (["run", "no-such.toml"], 3, "no-such.toml: there is no such file"),
        (["run", "/"], 3, "/: Is a directory"),
        (["add"], 2, "next: nightcrew add --help"),
        (["add", ""], 2, "must not be empty"),
        (["add", "--id", "a b", "true"], 2, "an id has 1 to 64"),
        (["add", "--kind", "shel", "true"], 2, "did you mean shell?"),
        (["add", "--timeout", "5x", "true"], 2, '"90s"'),
        (["add", "--priority", "101", "true"], 2, "0<=x<=100"),
        (["add", "--class", "urgent", "true"], 2, "'interactive', 'normal', 'batch'"),
        (["add", "--sandbox", "7", "true"], 2, "'--sandbox': 7 is not in the range 0<=x<=2"),
        (["add", "--network", "maybe", "true"], 2, "'maybe' is no host of the internet"),
        (["add", "--network", "pypi.org,http://x", "true"], 2, "'http://x' is not the name of a host"),
        (["add", "--network", "no,pypi.org", "true"], 2, "'no' is no host"),
        (["add", "--network", ",", "true"], 2, "say yes, no, or which hosts"),
        (["add", "--network", "pypi.org", "--sandbox", "1", "true"], 2, 'network = ["pypi.org"] needs tier 2, and sandbox = 1 is below it'),
        (["add", "--base", "no-such", "true"], 4, "no such commit no-such"),
        (["add", "--base", "--upload-pack=x", "true"], 4, "only names of branches, tags and commits"),
        (["add", "--kind", "codex", "say hi", "--timeout", "1m"], 2, "--timeout is behind the prompt: options go before it"),
        (["add", "-C", "/no/such", "true"], 4, "no such directory /no/such"),
        (["status", "nobody"], 4, "nobody; next: nightcrew status --all"),
        (["status", ""], 2, "an empty name means no task"),
        (["status", "a\nb\x1b[31m"], 4, r"a\nb\x1b[31m"),
        (["status", "--watch"], 2, "needs a terminal"),
        (["status", "--watch", "--json"], 2, "do not go together"),
        (["kill"], 2, "give names, or --all"),
        (["wait", "--timeout", "-1"], 2, "a duration is"),
        (["wait", "nobody"], 4, "nobody"),
        (["logs", "nobody"], 4, "nobody"),
        (["attach", "nobody"], 4, "nobody"),
        (["retry", "nobody"], 4, "nobody"),
        (["diff", "nobody"], 4, "nobody"),
        (["take", "nobody"], 4, "nobody"),
        (["clean", "nobody"], 4, "nobody"),
        (["clean", "--discard"], 2, "--discard needs names"),
        (["down", "--later"], 2, "--later"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_each_mistake_is_one_line(crew: House, words: list[str], code: int, said: str) -> None:
    refused(crew.run(*words), code, said)


def test_bytes_that_are_no_text_are_no_name_but_may_be_a_command(house: House) -> None:
    refused(house.run("status", "a\udcff"), 4, "nothing was ever run")
    house.start_daemon()
    house.ok("add", "-f", "--id", "bytes", "--title", "t\udcff", "printf '\udcff'")
    raw = subprocess.run([*COMMAND, "logs", "bytes"], env=house.env, capture_output=True, check=True)
    assert raw.stdout == b"\xff"
    assert house.task("bytes").title == "t\\udcff"
    refused(house.run("kill", "a\udcff"), 4, "no task or run is called")


def test_before_anything_ran(house: House) -> None:
    for words in (["logs", "x"], ["kill", "--all"], ["wait"], ["retry", "x"], ["diff", "x"]):
        refused(house.run(*words), 4, "nothing was ever run here; next: nightcrew run PLAN")
    refused(house.run("down"), 5, "no supervisor is running; next: nightcrew up -d")
    done = house.run("status")
    assert (done.returncode, done.stderr) == (0, "nightcrew: nothing was ever run here; next: nightcrew run PLAN\n")
    assert not house.home.root.exists(), "asking creates nothing"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[[tasks]]\nid = "a"\ncomand = "x"\n', "plan.toml:3 comand: did you mean command?"),
        ('[[tasks]]\nid = "a"\ncommand = "x"\nretries = -1\n', "plan.toml:4 tasks.retries"),
        ('[[tasks]]\nid = "a"\ncommand = "x"\ntimeout = inf\n', "plan.toml:4 tasks.timeout"),
        ('[[tasks]]\nid = "a"\ncommand = "x"\nafter = ["b"]\n[[tasks]]\nid = "b"\ncommand = "x"\nafter = ["a"]\n', "wait for each other: "),
        ('[[tasks]]\nid = "a"\ncommand = "x"\nafter = ["aa"]\n', "no task has the id 'aa'"),
        ('[[tasks]]\nid = "a"\ncommand = "x"\n[[tasks]]\nid = "a"\ncommand = "y"\n', "plan.toml:5 tasks.id"),
        ("[[tasks]\n", "plan.toml:1"),
        ("", "it is empty"),
        ("\ufeff# only a comment\r\n", "missing key"),
    ],
    ids=["unknown", "negative", "infinite", "cycle", "dangling", "twice", "broken", "empty", "no-tasks"],
)
def test_a_bad_plan_names_file_line_and_key(house: House, text: str, said: str) -> None:
    refused(house.run("run", house.plan(text)), 3, said, "next: mend it, then nightcrew run again")
    assert not house.home.ledger.exists(), "nothing of it was taken"


def test_a_bad_settings_file_stops_every_verb_that_would_start_a_supervisor(house: House) -> None:
    house.config.write_text("slots = 0\n")
    for words in (["up", "-d"], ["up"], ["add", "true"]):
        refused(house.run(*words), 3, "config.toml:1 slots")
    assert house.tmux_pid() is None


def test_a_state_directory_that_cannot_be_written_is_named(house: House) -> None:
    files.private_dir(house.home.root)
    files.private_dir(house.home.run_dir)
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as left:
        left.bind(str(house.home.tmux_socket))  # of a server before: tmux says of such a one that its address is in use
    root = str(house.home.root)
    ours = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    closed = [*ours, 'mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" && shift && exec "$@"', "sh", root]
    tried = subprocess.run([*closed, "true"], capture_output=True, text=True, check=False)
    if tried.returncode:
        pytest.skip(f"no user namespace may be made here: {tried.stderr.strip()}")
    for words in (["up", "-d"], ["up"], ["add", "true"]):
        argv = [*closed, *COMMAND, *words]
        done = subprocess.run(argv, cwd=house.repo, env=house.env, capture_output=True, text=True, timeout=60, check=False)
        refused(done, 1, f"cannot write {root}: Read-only file system")


# Repositories ---------------------------------------------------------------------------------------------------------------------


def test_places_that_hold_no_work_each_say_what_to_do(house: House, tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    refused(house.run("add", "true", cwd=tmp_path / "plain"), 4, "not a git repository", "cd into your repository")
    git(tmp_path, "init", "-q", "--bare", "bare.git")
    refused(house.run("add", "true", cwd=tmp_path / "bare.git"), 6, "a bare repository has no checkout")
    git(tmp_path, "init", "-q", "empty")
    refused(house.run("add", "true", cwd=tmp_path / "empty"), 6, "no commit", "commit --allow-empty")
    broken = make_repository(tmp_path / "broken")
    git(broken, "config", "core.bare", "true")
    refused(house.run("add", "true", cwd=broken), 6, "says it is bare, yet it has a checkout", "core.bare false")
    refused(house.run("add", "true", cwd=house.repo / ".git"), 6, "inside of a .git directory")


def test_detached_and_mid_rebase_work_with_a_note(house: House) -> None:
    house.start_daemon()
    git(house.repo, "checkout", "-q", "--detach")
    done = house.run("add", "-f", "--id", "one", "true")
    assert done.returncode == 0 and "nightcrew: HEAD is detached" in done.stderr
    git(house.repo, "switch", "-q", "main")
    git(house.repo, "branch", "side")
    for branch in ("main", "side"):
        git(house.repo, "switch", "-q", branch)
        (house.repo / "README").write_text(branch)
        git(house.repo, "commit", "-qam", branch)
    with pytest.raises(subprocess.CalledProcessError):
        git(house.repo, "rebase", "main")
    done = house.run("add", "-f", "--id", "two", "true")
    assert done.returncode == 0 and "a rebase is in progress in your checkout" in done.stderr
    house.ok("add", "-f", "--id", "three", "echo 3 > three")
    refused(house.run("take", "three"), 6, "a rebase is in progress", "your checkout as it was")


PATHS = ("with space #(touch X)", "a;b $(touch X) %H#{pid}", "-rf", 'ünï-漢字 it\'s "q"', "new\nline")


def test_paths_are_only_paths(house: House, tmp_path: Path) -> None:
    house.start_daemon()
    for number, name in enumerate(PATHS):
        repo, task = make_repository(tmp_path / name), f"work-{number}"
        house.ok("add", "--id", task, "pwd > where; echo ok", cwd=repo)
    house.wait_final()
    for number, name in enumerate(PATHS):
        repo, task = tmp_path / name, f"work-{number}"
        assert house.ok("logs", task) == "ok\n", name
        house.ok("take", task, cwd=repo)
        assert (repo / "where").exists(), name
    house.ok("clean", "--yes")
    house.ok("status")
    assert [view.name for view in house.tasks() if Path(view.worktree or "/nowhere").exists()] == []
    assert list(tmp_path.rglob("X")) == [] and not Path("X").exists()


def test_a_path_that_is_no_text_is_refused(house: House, tmp_path: Path) -> None:
    repo = make_repository(tmp_path / "caf\udce9")
    refused(house.run("add", "true", cwd=repo), 6, "its path is not UTF-8")


def test_the_state_may_lie_at_a_strange_and_a_long_path(house: House, tmp_path: Path) -> None:
    for name, is_up in (("st ate #(touch X) ;", False), ("long-" * 30, True)):
        (tmp_path / name).mkdir()
        other = House(tmp_path / name, house.repo)
        try:
            if is_up:
                other.start_daemon()
            other.ok("add", "-f", "true")
            assert other.ok("status").startswith("✓ done")
        finally:
            other.reap()
    assert list(tmp_path.rglob("X")) == []


# Tools ------------------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def tools(tmp_path: Path) -> Callable[..., dict[str, str]]:
    """A PATH with only what is named, or with a program that prints an old version."""

    def path(**fakes: str) -> dict[str, str]:
        folder = tmp_path / "tools"
        folder.mkdir(exist_ok=True)
        for name in ("sh", "git", "tmux", "nice", "env", "cat", "sleep"):
            (folder / name).unlink(missing_ok=True)
            if name not in fakes:
                found = next(Path(part) / name for part in os.environ["PATH"].split(":") if (Path(part) / name).exists())
                (folder / name).symlink_to(found)
            elif fakes[name]:
                (folder / name).write_text(f"#!/bin/sh\necho '{fakes[name]}'\n")
                (folder / name).chmod(stat.S_IRWXU)
        return {"PATH": str(folder)}

    return path


@pytest.mark.parametrize(("tool", "said"), [("tmux", ""), ("git", ""), ("tmux", "tmux 2.8"), ("git", "git version 2.20.1")])
def test_a_tool_that_is_missing_or_old_is_named_with_what_is_needed(
    house: House, tools: Callable[..., dict[str, str]], tool: str, said: str
) -> None:
    line = refused(house.run("add", "true", env=tools(**{tool: said})), 2, tool)
    assert re.search(r"\d\.\d+", line), "the version that is needed"
    assert "install" in line and said in line
    assert not house.home.ledger.exists()


# Help -------------------------------------------------------------------------------------------------------------------------------


def test_help_of_every_verb_is_whole(house: House) -> None:
    top = house.ok("--help")
    for verb, line in VERBS.items():
        assert verb in top and line in top
        text = house.ok(verb, "--help")
        assert text.startswith((f"Usage: nightcrew {verb} ", f"Usage: nightcrew {verb}\n"))
        assert "\b" not in text
    for verb in ("run", "add", "status"):
        assert re.search(rf"^  nightcrew {verb} \S", house.ok(verb, "-h"), re.MULTILINE), "an example"
    assert house.ok("--version").startswith("nightcrew 0.")


def test_debug_shows_where_it_came_from(house: House) -> None:
    done = house.run("--debug", "status", "x")
    assert "Traceback" in done.stderr and done.returncode == 4
