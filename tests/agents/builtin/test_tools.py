"""The tools by themselves: what they refuse, what they bound, and that a file is whole or untouched."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nightcrew.plugins.builtin.tools import Output, Place, Result, Tools, groups, shortened


@pytest.fixture
def tools(repo: Path) -> Iterator[Tools]:
    made = Tools(Place(repo.resolve()))
    yield made
    made.close()


def call(tools: Tools, name: str, **given: Any) -> Result:
    """One call's result."""
    found: list[Result] = []
    asyncio.run(tools.run([{"name": name, "input": given, "id": "t"}], lambda _, result: found.append(result)))
    return found[0]


def refused(tools: Tools, name: str, **given: Any) -> str:
    """Why a call fails."""
    result = call(tools, name, **given)
    assert result.is_error, result
    return result.text


# Paths ----------------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["../outside", "/etc/passwd", "link", "sub/../../outside", "dir-link/new"])
def test_no_tool_follows_a_path_out_of_the_worktree(tools: Tools, repo: Path, path: str) -> None:
    (repo.parent / "outside").write_text("theirs\n")
    (repo / "link").symlink_to(repo.parent / "outside")
    (repo / "dir-link").symlink_to(repo.parent)
    for name, more in (("read", {}), ("write", {"content": "x"}), ("edit", {"old": "theirs", "new": "x"}), ("grep", {"pattern": "."})):
        assert "outside the worktree" in refused(tools, name, path=path, **more)
    assert (repo.parent / "outside").read_text() == "theirs\n" and not (repo.parent / "new").exists()


def test_a_link_within_the_worktree_is_followed_and_stays(tools: Tools, repo: Path) -> None:
    (repo / "link").symlink_to("README")
    assert not call(tools, "edit", path="link", old="hello", new="bye").is_error
    assert (repo / "link").is_symlink() and (repo / "README").read_text() == "bye\n"


def test_other_places_may_be_allowed(repo: Path, tmp_path: Path) -> None:
    tools = Tools(Place(repo.resolve(), (tmp_path.resolve() / "out",)))
    assert call(tools, "write", path=str(tmp_path / "out" / "report"), content="x").text.startswith("made ")
    tools.close()


# Files ----------------------------------------------------------------------------------------------------------------------------------


def test_a_binary_file_is_said_as_such(tools: Tools, repo: Path) -> None:
    (repo / "image").write_bytes(b"\x89PNG\0\0")
    assert refused(tools, "read", path="image") == "image is a binary file of 6 bytes; use bash to look into it"


def test_a_pipe_is_not_waited_for(tools: Tools, repo: Path) -> None:
    os.mkfifo(repo / "pipe")
    for name, more in (("read", {}), ("write", {"content": "x"}), ("edit", {"old": "a", "new": "b"})):
        assert refused(tools, name, path="pipe", **more) == "pipe is not a plain file"
    assert "use glob" in refused(tools, "read", path=".")


def test_long_files_come_in_parts(tools: Tools, repo: Path) -> None:
    (repo / "long").write_text("".join(f"line {number}\n" for number in range(1, 100_001)))
    (repo / "wide").write_text("x" * 1_000_000 + "\nnext\n")
    first = call(tools, "read", path="long").text
    assert first.startswith("1\tline 1\n") and first.endswith("2000\tline 2000\n[more follows: read on with offset=2001]\n")
    assert call(tools, "read", path="long", offset=99_999).text == "99999\tline 99999\n100000\tline 100000\n"
    assert call(tools, "read", path="long", offset=200_000).text == "(long has no line 200000: it is 1088895 bytes long)"
    wide = call(tools, "read", path="wide").text
    assert len(wide) < 2200 and "[... about 998000 more characters in this line]\n2\tnext\n" in wide


def test_an_edit_must_fit_exactly_once(tools: Tools, repo: Path) -> None:
    (repo / "code").write_bytes(b"one\ntwo\none\n")
    assert "is there 2 times" in refused(tools, "edit", path="code", old="one", new="1")
    assert "is not there" in refused(tools, "edit", path="code", old="three", new="3")
    assert "are the same" in refused(tools, "edit", path="code", old="two", new="two")
    assert "is empty" in refused(tools, "edit", path="code", old="", new="x")
    assert (repo / "code").read_bytes() == b"one\ntwo\none\n"
    assert call(tools, "edit", path="code", old="one", new="1", all=True).text == "changed code at line 1 and 1 more places"
    assert (repo / "code").read_bytes() == b"1\ntwo\n1\n"


def test_an_edit_keeps_line_ends_mode_and_other_bytes(tools: Tools, repo: Path) -> None:
    (repo / "script").write_bytes(b"one\r\ntwo\r\n\xff\r\n")
    (repo / "script").chmod(0o751)
    assert not call(tools, "edit", path="script", old="one\ntwo", new="1\n2").is_error
    assert (repo / "script").read_bytes() == b"1\r\n2\r\n\xff\r\n"
    assert (repo / "script").stat().st_mode & 0o777 == 0o751


def test_a_write_that_fails_leaves_the_old_file(tools: Tools, repo: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    repo.chmod(0o555)
    try:
        assert "cannot write" in refused(tools, "write", path="README", content="x")
    finally:
        repo.chmod(0o755)
    assert (repo / "README").read_text() == "hello\n" and sorted(os.listdir(repo)) == [".git", "README"]


# Searching ------------------------------------------------------------------------------------------------------------------------------


def test_searches_leave_out_what_git_ignores_and_what_is_binary(tools: Tools, repo: Path) -> None:
    (repo / ".gitignore").write_text("built\n")
    for name in ("built", "src/a.py", "src/deep/b.py", "notes.md"):
        (repo / name).parent.mkdir(parents=True, exist_ok=True)
        (repo / name).write_text("needle ä\n")
    (repo / "data").write_bytes(b"needle\0")
    (repo / "README").unlink()
    assert call(tools, "glob", pattern="*").text.split() == [".gitignore", "data", "notes.md", "src/a.py", "src/deep/b.py"]
    assert call(tools, "glob", pattern="src/*.py").text == "src/a.py"
    assert call(tools, "glob", pattern="*.rs").text == "(no file)"
    assert call(tools, "grep", pattern="NEEDLE", ignore_case=True, glob="*.py", path="src").text.split("\n") == [
        "src/a.py:1:needle ä", "src/deep/b.py:1:needle ä"
    ]  # fmt: skip
    assert call(tools, "grep", pattern="nothing").text == "(no match)"
    assert "git grep" in refused(tools, "grep", pattern="(")
    assert "without '..'" in refused(tools, "glob", pattern="../*")


def test_many_matches_are_cut(tools: Tools, repo: Path) -> None:
    (repo / "many").write_text("x\n" * 1000)
    text = call(tools, "grep", pattern="x").text
    assert text.count("\n") == 200 and text.endswith("[800 more matches: ask for less at once]")


# What a model may give ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "given", "why"),
    [
        ("bash", {}, "'command' is missing"),
        ("bash", {"command": ["ls"]}, "'command' is not a text"),
        ("bash", {"command": "ls", "timeout_s": "1"}, "'timeout_s' is not a number from 0 to 3600"),
        ("bash", {"command": "ls", "timeout_s": float("nan")}, "'timeout_s' is not a number from 0 to 3600"),
        ("read", {"path": "a\0b"}, "'path' holds a NUL character"),
        ("read", {"path": "none"}, "No such file or directory"),
        ("write", {"path": "a", "content": "\ud800"}, "no character"),
        ("edit", {"path": "README", "old": "hello", "new": "x", "all": "yes"}, "'all' is neither true nor false"),
        ("fetch", {"url": "http://"}, "there is no tool 'fetch'"),
    ],
)
def test_what_is_given_is_checked(tools: Tools, name: str, given: dict[str, Any], why: str) -> None:
    assert why in refused(tools, name, **given)


def test_which_calls_run_at_once() -> None:
    def calls(*words: str) -> list[str]:
        shapes = [{"name": word.split()[0], "input": {"path": word.partition(" ")[2]}} for word in words]
        return ["+".join(str(call["name"]) for call in group) for group in groups(shapes)]

    assert calls("read a", "grep", "bash", "bash") == ["read+grep+bash+bash"]
    assert calls("edit a", "edit b", "write c", "read d") == ["edit+edit+write+read"]
    assert calls("edit a", "edit ./a", "read a", "bash") == ["edit", "edit", "read+bash"]
    assert calls("bash", "write a", "glob") == ["bash", "write", "glob"]


def test_output_holds_its_beginning_and_its_end() -> None:
    output = Output(head=10, tail=5)
    for piece in (b"01234", b"56789abc", b"defghij", b"k" * 3):
        output.add(piece)
    assert output.text() == "0123456789\n[... 8 bytes left out ...]\nijkkk"
    assert shortened("0123456789", 6) == "0123\n[... 4 characters left out ...]\n89"
    binary = Output(10, 5)
    binary.add(b"a\0b")
    assert binary.text() == "(binary output, 3 bytes)"
