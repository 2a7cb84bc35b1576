"""Checkouts that are broken, odd, or out to get us."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nightcrew.plugins.analyze.sources import find
from tests.agents.analysts.kit import brief, checkout, look, run, write
from tests.support import git

PERSPECTIVES = ("security", "complexity", "docstrings", "tests", "structure")
CALL = "import subprocess\nsubprocess.call('x', shell=True)\n"

BROKEN: dict[str, bytes] = {
    "python2.py": b"print 'x'\n",
    "null.py": b"x = 1\0\n",
    "not_utf8.py": b"x = '\xe9'\n",
    "bad_cookie.py": b"# coding: no-such-codec\nx = 1\n",
    "binary_cookie.py": b"# coding: zlib\nx = 1\n",
    "indent.py": b"if 1:\nx\n",
    "parentheses.py": b"(" * 100_000 + b")" * 100_000,
    "minus.py": b"-" * 100_000 + b"1\n",
    "chain.py": b"x = " + b"1+" * 200_000 + b"1\n",
    "elif.py": b"if a: pass\n" + b"elif a: pass\n" * 60_000,
    "unicode_escape.py": b"# coding: unicode_escape\nx = \\\n",
}
FINE: dict[str, bytes] = {
    "latin1.py": b"# -*- coding: latin-1 -*-\nx = '\xe9'\n",
    "bom.py": b"\xef\xbb\xbfx = 1\n",
    "empty.py": b"",
    "no_newline.py": b"x = 1",
    "crlf.py": b"x = 1\r\ny = 2\r\n",
    "escape.py": b"x = '\\d'\n",  # a warning, not an error
    "digits.py": b"x = 0x" + b"f" * 100_000 + b"\n",
}


@pytest.mark.in_turns
@pytest.mark.parametrize("perspective", PERSPECTIVES)
def test_what_cannot_be_parsed_is_counted_by_all_and_reported_by_one(tmp_path: Path, perspective: str) -> None:
    facts = look(checkout(tmp_path / "r", {**BROKEN, **FINE}), perspective)
    assert (facts.files, facts.unparsable) == (len(BROKEN) + len(FINE), len(BROKEN))
    errors = {item.file for item in facts.findings if item.code in {"syntax-error", "not-scanned"}}
    assert errors == (set(BROKEN) if perspective == "structure" else set())


def test_five_megabytes_are_not_parsed(tmp_path: Path) -> None:
    path = checkout(tmp_path / "r", {"data.py": b"x = [" + b"1," * 2_500_000 + b"]\n", "a.py": b"x = 1\n"})
    for perspective in PERSPECTIVES:
        facts = look(path, perspective)
        assert (facts.files, facts.lines, facts.unparsable) == (2, 1, 1), perspective
        found = [item for item in brief(facts.findings) if item[1] == "data.py"]
        assert found == ([("low", "data.py", 0, "too-large")] if perspective == "structure" else [])


def test_a_tree_as_deep_as_one_can_be_is_still_looked_at(tmp_path: Path) -> None:
    path = checkout(tmp_path / "r", {"deep.py": "def f():\n    return " + "1+" * 2_800 + "1\n"})
    for perspective in ("complexity", "docstrings", "structure"):
        assert look(path, perspective).unparsable == 0, perspective


def test_a_blind_spot_of_bandit_is_told(tmp_path: Path) -> None:
    path = checkout(tmp_path / "r", {"deep.py": "x = " + "1+" * 2_800 + "1\n" + CALL})
    facts = look(path, "security")
    assert facts.unparsable == 1
    assert brief(facts.findings) == [("medium", "deep.py", 0, "not-scanned")]
    assert facts.counts["issues"] == 0


NAMES = (
    "<script>alert(1)</script>.py",
    "-rf.py",
    "--ini=x.py",
    "line\nbreak.py",
    "tab\tand space .py",
    "quote'\"$(touch owned)`touch owned`;.py",
    "*.py",
    "@file.py",
    "bytes\udcff\udcfe.py",
    "\u202egnp.py",
    ".github/hidden.py",
    "my.git/inside.py",
    "my.hg/inside.py",
    "CVSReader.py",
    ".tox/x.py",
    "a\\b.py",
    "é/ü.py",
)


@pytest.mark.parametrize("perspective", ["security", "structure"])
def test_names_are_only_names(tmp_path: Path, perspective: str) -> None:
    path = checkout(tmp_path / "r", dict.fromkeys(NAMES, CALL if perspective == "security" else "x(\n"))
    facts = look(path, perspective)
    assert facts.files == len(NAMES)
    expected = {os.fsencode(name).decode("utf-8", "backslashreplace") for name in NAMES}
    seen = {item.file for item in facts.findings if item.code in {"B602", "syntax-error"}}
    # What one line cannot hold as it is comes back as an escape.
    assert seen == {name.replace("\n", "\\n").replace("\t", "\\t").replace("\u202e", "\\u202e") for name in expected}
    assert not (path / "owned").exists()


def test_links_lead_nowhere(tmp_path: Path) -> None:
    secret = tmp_path / "secret.py"
    secret.write_text("x(\n" * 50)
    outside = tmp_path / "outside"
    write(outside / "b.py", "x(\n" * 50)
    path = checkout(tmp_path / "r", {"ok.py": "x = 1\n", "package/b.py": "y = 1\n", "gone.py": "", "now_a_link.py": "", "pipe.py": ""})
    (path / "passwd.py").symlink_to("/etc/passwd")
    (path / "loop.py").symlink_to("loop.py")
    (path / "around").symlink_to(".")
    (path / "directory.py").mkdir()
    write(path / "directory.py/in.py", "z = 1\n")
    git(path, "add", "-A")
    # And what the checkout became after git listed it.
    (path / "gone.py").unlink()
    (path / "now_a_link.py").unlink()
    (path / "now_a_link.py").symlink_to(secret)
    (path / "pipe.py").unlink()
    os.mkfifo(path / "pipe.py")
    (path / "package").rename(path / "moved")
    (path / "package").symlink_to(outside)
    assert [source.shown for source in find(path, 60)] == ["directory.py/in.py", "ok.py", "package/b.py"]
    for perspective in PERSPECTIVES:
        facts = look(path, perspective)
        assert (facts.files, facts.lines, facts.unparsable) == (2, 2, 0), perspective
        assert {item.file for item in facts.findings} <= {"ok.py", "directory.py/in.py", "."}


def test_untracked_files_and_submodules_are_not_the_repository(tmp_path: Path) -> None:
    path = checkout(tmp_path / "r", {"a.py": "x = 1\n"})
    write(path / "untracked.py", "x(\n")
    git(path, "update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},module.py")
    assert look(path, "structure").files == 1


SHADOWS = (
    "bandit",
    "radon",
    "ast",
    "json",
    "sitecustomize",
    "usercustomize",
    "agents",
    "supervisor",
    "encodings/evil",
    "stevedore",
    "yaml",
)


@pytest.mark.in_turns
@pytest.mark.parametrize("perspective", PERSPECTIVES)
def test_nothing_of_the_checkout_is_imported_or_obeyed(tmp_path: Path, perspective: str) -> None:
    owned = tmp_path / "owned"
    trap = f"open({str(owned)!r}, 'w')\n"
    hook = tmp_path / "hook"
    write(hook, f"#!/bin/sh\ntouch {owned}\n")
    hook.chmod(0o755)
    files = {f"{name}.py": trap for name in SHADOWS} | {f"{name}/__init__.py": trap for name in SHADOWS}
    settings = "[bandit]\nskips = B602\nexclude = /\ntargets = /\n[tool.bandit]\nskips = ['B602']\nexclude_dirs = ['.']\n"
    path = checkout(
        tmp_path / "r",
        {
            **files,
            "nightcrew/plugins/analyze/__main__.py": trap,
            "cookie.py": f"# coding: evil\n{trap}",
            "flaw.py": CALL,
            ".bandit": settings,
            "bandit.yaml": "skips: [B602]\n",
            "setup.cfg": settings,
            "tox.ini": settings,
            "radon.cfg": "[radon]\nexclude = *\n",
            "pyproject.toml": settings,
        },
    )
    for key in ("core.fsmonitor", "core.pager", "core.sshCommand"):
        git(path, "config", key, str(hook))
    facts = look(path, perspective, PYTHONPATH=str(path), PYTHONSTARTUP=str(path / "ast.py"), GIT_DIR="/nowhere")
    assert not owned.exists()
    assert facts.files == 2 * len(SHADOWS) + 3
    if perspective == "security":
        assert [item.file for item in facts.findings if item.code == "B602"] == ["flaw.py"]


def test_outside_a_repository_it_says_so(tmp_path: Path) -> None:
    done = run(tmp_path, "structure", GIT_CEILING_DIRECTORIES=str(tmp_path.parent))
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr.count(b"\n") == 1
    assert b"git failed: fatal: not a git repository" in done.stderr
