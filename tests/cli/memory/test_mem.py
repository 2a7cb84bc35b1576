"""`nightcrew mem`: a person without a supervisor and with one, and an agent in a sandbox."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from memory import local
from memory import mem_commands as writing
from memory.mem_commands import archived_path, note_path, waiting_path
from supervisor.sandbox import executors
from supervisor.sandbox.policy import Tier
from supervisor.server import lock
from tests.support import House, make_repository, plan_of, shell_task
from worktrees.git import Git
from worktrees.repository import discover

EVIL = "\x1b]0;owned\x07\x1b[31m<script>alert(1)</script>\u202egnp.exe\u200b\U000e0072"
DRIVES = set("\x1b\x07\u202e\u200b\U000e0072")
NOTHING = {
    "mail ls": "no mail",
    "mail ls --pairs": "nobody wrote to anybody",
    "mail read": "no mail",
    "mem search port": "nothing found",
    "mem prune": "nothing to prune",
    "mem log": "nothing was changed",
}
AGENT = """
mem() { "$NIGHTCREW_AGENT" mem "$@"; }
printf 'The server takes port 8080.\\n' | mem put semantic/port.md
cat "$NIGHTCREW_MEMORY/semantic/port.md"
echo x >> "$NIGHTCREW_MEMORY/semantic/port.md" || echo 'it is read-only'
printf 'push to main\\n' | mem put procedural/release.md
printf x | mem put --if-version '' semantic/port.md; echo "left with $?"
mem append 'the mirror was down'
printf 'mine\\n' | mem put "agents/$NIGHTCREW_TASK/notes.md"
printf 'theirs\\n' | mem put agents/1121-aaaa/other/notes.md; echo "left with $?"
mem ls semantic
ls "$NIGHTCREW_MEMORY/.." "$NIGHTCREW_MEMORY/../mail"; echo "left with $?"
"""


def mem(house: House, *words: str, cwd: Path | None = None, code: int = 0) -> dict[str, Any]:
    done = house.run("mem", *words, "--json", cwd=cwd)
    assert done.returncode == code, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def memory_of(house: House, repo: Path | None = None) -> Path:
    return house.home.memory(discover(Git(house.home.root / "git"), repo or house.repo).project)


def test_without_a_supervisor_only_what_counts_supersedes_a_note(house: House) -> None:
    memory = memory_of(house)
    for path, text in {"procedural/a.md": "# How\n", "semantic/b.md": "---\nsupersedes: procedural/a.md\n---\n# Fact\n"}.items():
        (memory / path).parent.mkdir(parents=True, exist_ok=True)
        (memory / path).write_text(text)
    assert mem(house, "show", "procedural/a.md")["superseded_by"] == []
    house.config.write_text('[memory]\napproval = ["core"]\n')
    assert mem(house, "show", "procedural/a.md")["superseded_by"] == ["semantic/b.md"]
    house.config.write_text("memory = 5\n")
    assert mem(house, "show", "procedural/a.md")["superseded_by"] == [], "what nobody can read is the default"
    assert lock.holder(house.home.lock) is None, "no supervisor was started"


def test_looking_takes_no_supervisor_and_nothing_drives_the_terminal(house: House, monkeypatch: pytest.MonkeyPatch) -> None:  # X12
    memory = memory_of(house)
    (memory / "semantic").mkdir(parents=True)
    (memory / "core.md").write_text("# What all must know\n")
    (memory / "semantic" / "evil.md").write_text(f"---\ntitle: {json.dumps(EVIL)}\n---\n{EVIL}\n")
    (memory / "semantic" / f"{EVIL.replace('/', '-')}.md").write_text("a name")
    (memory / "semantic" / "link.md").symlink_to("/etc/passwd")
    os.mkfifo(memory / "semantic" / "pipe.md")
    entries = mem(house, "ls")["entries"]
    assert [entry["path"] for entry in entries] == ["core.md", "semantic/evil.md"]
    for words in (["ls"], ["ls", "semantic"], ["log"], ["log", "-p", "core.md"], ["quarantine"]):
        done = house.run("mem", *words)
        assert done.returncode == 0 and not DRIVES & set(done.stdout + done.stderr), words
    assert "<script>" in house.ok("mem", "ls") and "root:" not in house.run("mem", "show", "semantic/link.md").stdout
    assert mem(house, "show", "semantic/evil.md")["text"].endswith(f"{EVIL}\n"), "in JSON it is as it is"
    assert house.run("mem", "show", "semantic/none.md").returncode == 4
    assert house.run("mem", "show", "../mail").returncode == 2
    assert json.loads(house.ok("mail", "ls", "--json"))["mails"] == []
    for words, code in ((["no such file"], 4), (["the", "port", "is", "8080"], 2), ([os.devnull, "--text", "8080"], 2)):
        refused = house.run("mem", "put", "semantic/port.md", *words)
        assert refused.returncode == code and "--text TEXT gives a text, - stdin" in refused.stderr
    refused = house.run("mem", "put", "semantic/port.md", str(memory / "none"))
    assert f"cannot read {memory / 'none'}: No such file or directory" in refused.stderr
    assert "kept: semantic/port.md as it is; next: nightcrew mem put semantic/port.md FILE" in " ".join(refused.stderr.split())
    assert lock.holder(house.home.lock) is None, "no supervisor was started"
    monkeypatch.setenv("NIGHTCREW_TOKEN", "an agent's")
    monkeypatch.setenv("NIGHTCREW_AGENTS_SOCKET", "somewhere")
    monkeypatch.setenv("NIGHTCREW_MEMORY", str(memory))
    assert note_path(None, None, "sem") == ["semantic/evil.md", "semantic/link.md", "semantic/pipe.md"]  # type: ignore[arg-type]


def test_who_reads_an_old_note_is_told_of_the_new_one(house: House) -> None:
    memory = memory_of(house)
    (memory / "semantic").mkdir(parents=True)
    (memory / "semantic" / "old.md").write_text("old\n")
    (memory / "semantic" / "other.md").write_text("other\n")
    (memory / "semantic" / "new.md").write_text("---\nsupersedes: semantic/old.md\n---\nnew\n")
    shown = house.run("mem", "show", "semantic/old.md")
    assert (shown.stdout, shown.stderr) == ("old\n", "nightcrew: superseded by semantic/new.md\n")
    assert house.run("mem", "show", "semantic/other.md").stderr == ""


def test_what_is_called_otherwise_is_named(house: House) -> None:
    memory = memory_of(house)
    for path in ("semantic/has space.md", "semantic/x.txt", "semantic/sub/y.md", "foo/bar.md", "README.md", "semantic/good.md", ".git/x"):
        (memory / path).parent.mkdir(parents=True, exist_ok=True)
        (memory / path).write_text("x\n")
    (memory / "agents" / "run 1").mkdir(parents=True)
    found = mem(house, "ls")
    why = {one["path"]: one["why"] for one in found["refused"]}
    assert set(why) == {"semantic/has space.md", "semantic/x.txt", "semantic/sub", "foo", "README.md", "agents/run 1"}
    assert [entry["path"] for entry in found["entries"]] == ["semantic/good.md"] and found["more_refused"] == 0
    assert "letters" in why["semantic/has space.md"] and "NAME.md" in why["semantic/x.txt"] and "core.md" in why["README.md"]
    for number in range(30):
        (memory / f"stray{number}").touch()
    shown = house.run("mem", "ls").stderr
    assert "README.md is not read: " in shown and "and 16 more are not read" in shown and shown.endswith(f"in {memory}\n")
    assert "nothing below none; next: nightcrew mem ls" in house.run("mem", "ls", "none").stderr
    missed, never = house.run("mem", "show", "semantic/god.md"), house.run("mem", "log", "semantic/nope.md")
    assert missed.returncode == never.returncode == 4
    assert "semantic/good.md?" in missed.stderr and "nothing is there, and nothing was semantic/nope.md" in never.stderr
    assert "nightcrew mem export" in house.run("mem", "import", "nofile").stderr


def test_a_look_leaves_nothing_behind(house: House) -> None:
    house.start_daemon()
    for words in (["ls"], ["show", "core.md"], ["log"], ["quarantine"]):
        house.run("mem", *words)
    assert not memory_of(house).parent.exists()
    kept = house.run("mem", "put", "semantic/a.md", "--text", "x", "--if-version", "0123456789abcdef")
    assert kept.returncode == 6 and "nothing is there: what you wrote is kept as" in kept.stderr


def test_who_decides_is_offered_what_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in ("memory/semantic/a.md", "quarantine/semantic/b.md", "archive/semantic/c.md"):
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).touch()
    monkeypatch.setattr("memory.local.memory_files", lambda: tmp_path / "memory")
    assert waiting_path(None, None, "sem") == ["semantic/b.md"]  # type: ignore[arg-type]
    assert archived_path(None, None, "") == ["semantic/a.md", "semantic/c.md"]  # type: ignore[arg-type]
    offers = {verb.name: verb.params[0]._custom_shell_complete for verb in (writing.approve, writing.restore)}
    assert offers == {"approve": waiting_path, "restore": archived_path}


def test_completion_looks_at_no_more_than_a_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent can write the directory: a link in its place leads nowhere, and a tree of any size is left after so many looks."""
    others = tmp_path / "others"
    (others / "semantic").mkdir(parents=True)
    (others / "semantic" / "secret.md").touch()
    project = tmp_path / "project"
    project.mkdir()
    (project / "memory").symlink_to(others)
    monkeypatch.setattr("memory.local.memory_files", lambda: project / "memory")
    assert note_path(None, None, "") == []  # type: ignore[arg-type]
    (project / "memory").unlink()
    (project / "memory" / "semantic").mkdir(parents=True)
    (project / "memory" / "agents").symlink_to(others)
    (project / "memory" / "procedural").symlink_to(others / "semantic")
    for number in range(20):
        (project / "memory" / "semantic" / f"{number:02}.md").touch()
    assert len(note_path(None, None, "")) == 20  # type: ignore[arg-type]
    monkeypatch.setattr("memory.mem_commands.ENTRIES_MAX", 10)
    assert 0 < len(note_path(None, None, "")) < 10  # type: ignore[arg-type]


def test_a_list_a_log_and_a_text_drive_no_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:  # X12
    """Whatever a supervisor, or a file, says."""
    entry = {"path": f"semantic/{EVIL}.md", "size": 1, "version": EVIL, "mtime": 0.0, "title": EVIL}
    change = {"path": EVIL, "at": 0.0, "author": EVIL, "epoch": 1, "action": "put", "version": EVIL}
    for shown in (local.entries([entry], 1.0), local.change(change, 1.0)):
        assert not DRIVES & set(shown) and "\\x1b]0;owned" in shown and "\n" not in shown
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    local.text(f"a\tb\n{EVIL}")
    said = capsys.readouterr().out
    assert said.startswith("a\tb\n\\x1b]0;owned") and not DRIVES & set(said)


def test_a_day_with_it(house: House, tmp_path: Path) -> None:
    """Writing starts a supervisor; nothing that was written is lost by writing again, removing, or moving it elsewhere."""
    first, second = tmp_path / "first", tmp_path / "second"
    for words, said in NOTHING.items():
        done = house.run(*words.split())
        assert (done.returncode, done.stdout) == (0, "") and done.stderr.rstrip().endswith(said), "nothing was ever run here"
    first.write_text("# Build\nuse make\n")
    second.write_text("# Build\nuse ninja\n")
    one = mem(house, "put", "semantic/build.md", "--text", first.read_text())
    assert (memory_of(house) / "semantic" / "build.md").read_text() == first.read_text()
    assert mem(house, "put", "semantic/build.md", str(second), "--if-version", one["version"])["conflict"] == ""
    kept = mem(house, "put", "semantic/build.md", str(first), "--if-version", one["version"], code=6)["conflict"]
    assert house.ok("mem", "show", "semantic/build.md") == second.read_text() and house.ok("mem", "show", kept) == first.read_text()
    log = house.ok("mem", "log", "-p", "semantic/build.md")
    assert "-use make" in log and "+use ninja" in log and "person" in log
    house.ok("mem", "restore", "semantic/build.md", "--version", one["version"])
    assert house.ok("mem", "show", "semantic/build.md") == first.read_text()
    house.ok("mem", "rm", kept)
    assert [entry["path"] for entry in mem(house, "ls")["entries"]] == ["semantic/build.md"]
    house.ok("mem", "restore", kept)
    assert house.run("mem", "wait", "semantic/*", "--timeout", "0").returncode == 124
    assert "semantic/build.md" in house.ok("mem", "wait", "semantic/*", "--since", "0", "--timeout", "0"), "what changed before"
    assert house.run("mem", "put", "semantic/x.sh", str(first)).returncode == 2
    moved(house, tmp_path)


def moved(house: House, tmp_path: Path) -> None:
    """Its memory, into that of another repository."""
    archive, other = tmp_path / "memory.tar.gz", make_repository(tmp_path / "other")
    house.ok("mem", "export", str(archive))
    assert archive.stat().st_mode & 0o777 == 0o600
    found = mem(house, "import", str(archive), cwd=other)
    assert (sorted(found["imported"]), found["conflicts"]) == ([entry["path"] for entry in mem(house, "ls")["entries"]], [])
    assert sorted(mem(house, "import", str(archive), cwd=other)["same"]) == sorted(found["imported"])
    (memory_of(house, other) / "semantic" / "build.md").write_text("another\n")
    again = mem(house, "import", str(archive), cwd=other, code=6)
    assert [one["path"] for one in again["conflicts"]] == ["semantic/build.md"]
    assert (memory_of(house, other) / "semantic" / "build.md").read_text() == "another\n"
    archive.write_bytes(archive.read_bytes()[:100])
    assert house.run("mem", "import", str(archive), cwd=other).returncode == 6


def test_mail_is_listed_as_the_supervisor_lists_it_when_none_runs(house: House) -> None:
    house.start_daemon()
    house.ok("run", "-d", house.plan(plan_of([shell_task("one", "exec sleep 600"), shell_task("two", "exec sleep 600")])))
    for name, text in (("one", "first"), ("two", "second"), ("one", "third")):
        house.ok("mail", "send", name, text)
    thread = json.loads(house.ok("mail", "ls", "--of", "two", "--json"))["mails"][0]["thread"]
    ways = [[], ["--sent"], ["--all", "--of", "one"], ["--of", house.task("two").id], ["--thread", thread], ["--pairs"]]
    before = [json.loads(house.ok("mail", "ls", "--json", *words)) for words in ways]
    assert [len(found.get("mails", found.get("pairs"))) for found in before] == [0, 3, 2, 1, 1, 2]
    house.ok("down")
    assert [json.loads(house.ok("mail", "ls", "--json", *words)) for words in ways] == before
    assert house.run("mail", "ls", "--of", "nobody").returncode == 4
    assert lock.holder(house.home.lock) is None, "no supervisor was started"


@pytest.mark.skipif(Tier.FILES not in executors.known().tiers, reason="this host has no sandbox")
def test_an_agent_in_a_sandbox_reads_the_files_and_writes_by_the_socket(house: House) -> None:
    house.start_daemon()
    assert house.run("run", house.plan(shell_task("one", AGENT, sandbox=1))).returncode in (0, 1)
    said = house.ok("logs", "one")
    assert "The server takes port 8080." in said and "it is read-only" in said
    assert said.count("left with 6") == 2, "a conflict, and another agent's notes"
    assert "\nleft with 2\n" in said, "its mail is not there"
    paths = [entry["path"] for entry in mem(house, "ls")["entries"]]
    assert f"agents/{house.task('one').id}/notes.md" in paths and "procedural/release.md" not in paths
    assert {change["author"] for change in mem(house, "log", "semantic/port.md")["changes"]} == {house.task("one").id}
    assert [entry["path"] for entry in mem(house, "quarantine")["entries"]] == ["procedural/release.md"]
    assert house.run("mem", "approve", "procedural/release.md").returncode, "nobody saw it"
    assert "push to main" in house.ok("mem", "show", "quarantine/procedural/release.md")
    house.ok("mem", "approve", "procedural/release.md")
    assert "push to main" in house.ok("mem", "show", "procedural/release.md")


def test_a_long_log_is_asked_for_in_pieces(house: House) -> None:
    house.start_daemon()
    for number in range(5):
        house.ok("mem", "put", "semantic/a.md", "--text", f"text {number}")
    numbers = [one["number"] for one in mem(house, "log", "-n", "2", "-p")["changes"]]
    assert numbers == [5, 4]
    shown = house.run("mem", "log", "-n", "3", "-p", "semantic/a.md")
    assert shown.returncode == 0 and "next: nightcrew mem log -p semantic/a.md --before 3" in shown.stderr
    rest = mem(house, "log", "-p", "semantic/a.md", "--before", "3")
    assert [one["number"] for one in rest["changes"]] == [2, 1] and rest["before"] is None
    assert "+text 1" in rest["changes"][0]["patch"] and "--before" not in house.run("mem", "log").stderr
    house.ok("down")
    assert mem(house, "log", "-p", "semantic/a.md", "--before", "3") == rest, "and without a supervisor"
