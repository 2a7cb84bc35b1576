"""`nightcrew review`: what a person sees of a result, what they say of it, and who gets that."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from supervisor.client import protocol
from supervisor.host import files
from supervisor.kernel.errors import Refused
from supervisor.results import verdicts
from supervisor.store import sqlite
from tests.gateway.kit import know_prices, upstream
from tests.gateway.simulator import Simulator
from tests.support import House, git, plan_of, shell_task

HAND = 'description = "a shell that does what its prompt says"\nbinary = "sh"\nprompt = "stdin"\nheadless = ["-s"]\n'
EVIL = "\u202e\x1b]0;evil\x07"
WEAKENS = "sed -i 's/def test_two/import pytest\\n@pytest.mark.skip\\ndef test_two/' tests/test_calc.py"
MAKES = "printf 'def mul(a, b):\\n    return a * b\\n' >> calc.py; printf 'a\\033[2Jb\\n' > 'odd name'"
WORK = f"{WEAKENS}; {MAKES}; git add -A; git commit -qm mul"


def hand(house: House, name: str, prompt: str, **keys: object) -> str:
    """A task of an agent to which a person can write."""
    kinds = house.config.parent / "kinds"
    kinds.mkdir(exist_ok=True)
    (kinds / "hand.toml").write_text(HAND)
    said = "".join(f"{key} = {json.dumps(value)}\n" for key, value in keys.items())
    return f'[[tasks]]\nid = "{name}"\nkind = "hand"\nsandbox = 0\nprompt = {json.dumps(prompt)}\n{said}'


@pytest.fixture
def reviewed(house: House) -> House:
    """Its task `mul` is done, and skipped a test on the way."""
    (house.repo / "tests").mkdir()
    (house.repo / "calc.py").write_text("def add(a, b):\n    return a + b\n")
    (house.repo / "tests/test_calc.py").write_text("def test_one():\n    assert 1\n\ndef test_two():\n    assert 2\n")
    git(house.repo, "add", "-A")
    git(house.repo, "commit", "-qm", "calc")
    house.start_daemon()
    house.run(
        "run", house.plan(plan_of([hand(house, "mul", WORK, title=f"multiply {EVIL}", gate="test -f calc.py"), shell_task("idle", "true")]))
    )
    return house


def shape(house: House) -> dict[str, object]:
    return dict(json.loads(house.ok("review", "mul", "--json")))


def test_what_weakens_the_gate_is_said_first_and_nothing_drives_the_terminal(reviewed: House) -> None:
    said = reviewed.ok("review", "mul")
    lines = said.splitlines()
    at = lines.index("This may make its gate say less:")
    assert lines[at + 1] == "  tests/test_calc.py: 1 line more that keep tests from running" and at < lines.index(
        "gate: test -f calc.py: passed"
    )
    assert "      2     2       return a + b" in lines and "            3 + def mul(a, b):" in lines
    assert "\x1b" not in said and "\u202e" not in said and "a\\x1b[2Jb" in said
    facts = shape(reviewed)
    assert [flag["why"] for flag in facts["flags"] if flag["weakens"]] == ["1 line more that keep tests from running"]  # type: ignore[attr-defined]
    assert facts["gate"]["result"]["passed"] is True and facts["verdict"] is None  # type: ignore[index]


def test_comments_are_kept_shown_and_dropped(reviewed: House) -> None:
    made = reviewed.run("review", "mul", "--comment", "calc.py:3-4", "What of floats?")
    mul = reviewed.task("mul").id
    assert made.stderr == f"nightcrew: comment 1 of {mul}, not sent yet; next: nightcrew review {mul} --send\n"
    reviewed.ok("review", "mul", "--comment", "tests/test_calc.py:5", "Why skip?")
    assert "comment 1 (not sent) calc.py:3-4: What of floats?" in reviewed.ok("review", "mul", "--stat")
    reviewed.ok("review", "mul", "--drop", "1")
    kept = shape(reviewed)["comments"]
    assert [(one["path"], one["first"], one["quoted"]) for one in kept] == [("tests/test_calc.py", 5, "@pytest.mark.skip")]  # type: ignore[attr-defined]
    for words, code in [
        (("--comment", "calc.py:9", "x"), 2), (("--comment", "gone.py:1", "x"), 4), (("--comment", "calc.py:1", " "), 2),
        (("--drop", "1"), 4),
        (("--accept", "--undo"), 2), (("-m", "x"), 2), (("--undo",), 4),
    ]:  # fmt: skip
        assert reviewed.run("review", "mul", *words).returncode == code, words
    assert len(shape(reviewed)["comments"]) == 1  # type: ignore[arg-type]
    said = reviewed.ok("review", "mul").splitlines()
    at = next(number for number, line in enumerate(said) if "@pytest.mark.skip" in line)
    assert said[at + 1] == "              | comment 2: Why skip?", "it stands below its line"


def test_a_command_gets_no_comments_that_nobody_could_be_sent(house: House) -> None:
    house.start_daemon()
    house.ok("run", house.plan(plan_of([shell_task("made", "echo x > made")])))
    editor = {"EDITOR": f"touch {house.repo}/opened; true"}
    for words in (("--comment", "made:1", "Why?"), ("--edit",)):
        refused = house.run("review", "made", *words, env=editor)
        assert refused.returncode == 6 and "reads no prompt" in refused.stderr and "nightcrew diff" in refused.stderr
    args = {"op": "comment", "task": house.task("made").id, "comments": []}
    with pytest.raises(Refused, match="cannot ask for more"):
        protocol.call(house.home.daemon_socket, "review", args, timeout_s=30)
    assert not (house.repo / "opened").exists() and json.loads(house.ok("review", "made", "--json"))["comments"] == []


def test_comments_are_written_in_the_editor(reviewed: House, tmp_path: Path) -> None:
    editor = tmp_path / "editor"
    editor.write_text("""#!/bin/sh\nsed -i 's/^ *3 + def mul.*/&\\n# What of floats?\\n# And of texts?/' "$1"\n""")
    editor.chmod(0o755)
    mine = {"EDITOR": str(editor), "VISUAL": str(editor)}
    reviewed.ok("review", "mul", "--edit", env=mine)
    kept = shape(reviewed)["comments"]
    assert [(one["path"], one["first"], one["text"]) for one in kept] == [("calc.py", 3, "What of floats?\nAnd of texts?")]  # type: ignore[attr-defined]
    editor.write_text("""#!/bin/sh\nsed -i '1i # stray' "$1"; sed -i '$a # lost?' "$1"\n""")
    refused = reviewed.run("review", "mul", "--edit", env=mine)
    assert refused.returncode == 2 and len(shape(reviewed)["comments"]) == 1  # type: ignore[arg-type]
    kept = next((reviewed.home.root / "reviews").iterdir())
    assert str(kept) in refused.stderr and "# lost?" in kept.read_text(), "what was written is not lost"
    editor.write_text("""#!/bin/sh\nsed -i '1d' "$1"\n""")
    reviewed.ok("review", "mul", "--edit", env=mine)
    assert len(shape(reviewed)["comments"]) == 2 and not kept.exists()  # type: ignore[arg-type]


def test_a_verdict_holds_for_the_commit_that_was_seen(reviewed: House) -> None:
    branch, tip = str(reviewed.task("mul").branch), str(shape(reviewed)["commit"])
    assert [row["task"] for row in json.loads(reviewed.ok("review", "--json"))["results"]] == [reviewed.task("mul").id]
    assert reviewed.run("review", "mul", "--accept", "--at", "beef").returncode == 6
    mul = reviewed.task("mul").id
    accepted = reviewed.run("review", "mul", "--accept", "--at", tip[:12])
    assert accepted.stderr == f"nightcrew: {mul} is accepted at {tip[:12]}; next: nightcrew take {mul}\n"
    assert json.loads(reviewed.ok("review", "--json"))["results"] == []
    assert "review accepted" in reviewed.ok("status", "mul")
    newer = git(reviewed.repo, "commit-tree", f"{branch}^{{tree}}", "-p", branch, "-m", "more")
    git(reviewed.repo, "update-ref", f"refs/heads/{branch}", newer)
    assert [row["verdict"] for row in json.loads(reviewed.ok("review", "--json"))["results"]] == ["accepted before it changed"]
    reviewed.ok("review", "mul", "--reject", "-m", "too slow")
    with sqlite.connect_readonly(reviewed.home.ledger) as db:
        decision = verdicts.decision(db, reviewed.task("mul").id)
    assert decision is not None and (decision.tip, decision.why) == (newer, "too slow")
    assert git(reviewed.repo, "rev-parse", decision.ref) == newer
    before = git(reviewed.repo, "rev-parse", "HEAD")
    refused = reviewed.run("take", "mul")
    assert (refused.returncode, git(reviewed.repo, "rev-parse", "HEAD")) == (6, before) and "you rejected it" in refused.stderr
    reviewed.ok("review", "mul", "--undo")
    assert shape(reviewed)["verdict"] is None


STRANGE = """
printf 'one\\r\\nTWO\\r\\n' > crlf; chmod +x calc.py; git mv tests/test_calc.py tests/test_moved.py; ln -s /etc/passwd link
printf 'a\\0b' > bin; printf 'x\\033]52;c;aA==\\007\\342\\200\\256\\n' > "$(printf 'bad\\377')"; printf 'no end' > end
git add -A; git update-index --add --cacheinfo "160000,$(git rev-parse HEAD),sub"; git commit -qm strange; mkdir sub
"""


def test_whatever_a_result_holds_is_shown_and_never_acts(house: House) -> None:
    (house.repo / "tests").mkdir()
    (house.repo / "calc.py").write_text("def add(a, b):\n    return a + b\n")
    (house.repo / "tests/test_calc.py").write_text("def test_one():\n    assert 1\n")
    (house.repo / "crlf").write_text("one\r\ntwo\r\n")
    git(house.repo, "add", "-A")
    git(house.repo, "commit", "-qm", "calc")
    house.start_daemon()
    house.run(
        "run", house.plan(plan_of([hand(house, "odd", STRANGE), shell_task("bad", "exit 3"), shell_task("never", "true", after=["bad"])]))
    )
    said = house.ok("review", "odd")
    stat = [line.strip() for line in house.ok("review", "odd", "--stat").splitlines() if line.startswith("  ")]
    assert stat == [
        "A bad\\udcff  +1 -0", "A bin  binary", "M calc.py  +0 -0  mode 100644 -> 100755", "M crlf  +1 -1  CRLF line ends",
        "A end  +1 -0", "A link  +1 -0  symbolic link", "A sub  +1 -0  submodule", "R tests/test_calc.py -> tests/test_moved.py  +0 -0",
    ]  # fmt: skip
    assert not any((char < " " and char != "\n") or char in "\x7f\x9b\u202e" for char in said) and "x\\x1b]52;c;aA==\\x07\\u202e" in said
    assert "      2       - two" in said.splitlines(), "its line ends are how the file is written"
    assert "            1 + no end  (no line end)" in said.splitlines()
    colored = house.ok("review", "odd", env={"FORCE_COLOR": "1"})
    assert set(re.findall("\x1b.", colored)) == {"\x1b["} and "\u202e" not in colored
    house.ok("review", "odd", "--comment", "bad\\udcff:1", "by the name that is shown")
    house.ok("review", "odd", "--comment", "crlf:2", "Why?\udcff")
    said = json.loads(house.ok("review", "odd", "--json"))
    assert [(one["path"], one["quoted"]) for one in said["comments"]] == [("bad\\xff", "x\\x1b]52;c;aA==\\x07\\u202e"), ("crlf", "TWO")]
    assert json.loads(house.ok("review", "bad", "--json"))["reason"] == "exit code 3"
    assert house.run("review", "never").returncode == 4 and house.run("review", "never", "--undo").returncode == 4
    house.ok("take", "odd")
    merged = json.loads(house.ok("review", "odd", "--json"))
    assert merged["merged"] and len(merged["files"]) == 8, "what it changed is shown still"


AGENT = '[[tasks]]\nid = "agent"\nkind = "builtin"\nprompt = "Make the file."\nsandbox = 0\n'


def test_an_agent_gets_what_was_said_once_and_goes_on_with_its_work(house: House) -> None:
    files.private_dir(house.home.root)
    know_prices(house.home)
    commit = "git add made; git -c user.name=a -c user.email=a@b commit -qm made"
    with Simulator() as sim:
        house.config.write_text(f"[limits]\ndisk_free_min = 0\n{upstream(house.home, sim.url)}")
        sim.faults(tool="write", tool_input={"path": "made", "content": "one\n"}, contains="Make the file.", times=1)
        sim.faults(tool="bash", tool_input={"command": commit}, contains="Make the file.", times=1)
        sim.faults(tool="write", tool_input={"path": "made", "content": "two\n"}, contains="Say two.", times=1)
        sim.faults(tool="bash", tool_input={"command": commit}, contains="Say two.", times=1)
        sim.faults(text="Done as asked.")
        house.start_daemon()
        house.run("run", house.plan(AGENT))
        assert "  Done as asked." in house.ok("review", "agent").splitlines()
        house.ok("review", "agent", "--comment", "made:1", "Say two.")
        more = json.loads(house.ok("review", "agent", "--send", "--json"))
        house.wait_final()
        assert more["sent"] == 1 and house.run("review", "agent", "--send").returncode == 2
        view = house.task("agent-more")
        prompt = (house.home.root / "runs" / view.run / "agent-more" / "1" / "prompt.md").read_text()
        assert "made, line 1:\n    > one\nSay two." in prompt and view.state == "done"
        assert view.base_oid == git(house.repo, "rev-parse", str(house.task("agent").branch)), "it has the work"
        assert git(house.repo, "log", "--format=%s", f"{view.base_oid}..{view.branch}") == "made", "it answers with a commit"
        assert git(house.repo, "show", f"{view.branch}:made") == "two"
        sent = json.loads(house.ok("review", "agent", "--json"))["comments"]
        assert [one["sent_to"] for one in sent] == [view.id]
        with sqlite.connect_readonly(house.home.ledger) as db:
            assert db.execute("SELECT count(*) FROM run").fetchone()[0] == 2
