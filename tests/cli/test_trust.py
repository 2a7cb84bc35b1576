"""`nightcrew trust`: the records in which the programs keep it, written once, with everything else in them kept."""

from __future__ import annotations

import json
import os
import stat
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.terminal import Terminal
from tests.support import House, git

OLD_TOML = '# mine\nmodel = "m"  # why\n\n[projects."/other"]\ntrust_level = "untrusted"\n'


@pytest.fixture
def person(tmp_path: Path) -> Path:
    """A home."""
    home = tmp_path / "person"
    (home / ".codex").mkdir(parents=True)
    return home


def trust(house: House, person: Path, *words: str, **env: str) -> tuple[int, str, str]:
    done = house.run("trust", *words, env={"HOME": str(person), **env})
    return done.returncode, done.stdout, done.stderr


def test_every_other_key_and_the_mode_stay(house: House, person: Path) -> None:
    claude, codex = person / ".claude.json", person / ".codex" / "config.toml"
    old = {"oauthAccount": {"token": "s\u00e9cret"}, "projects": {str(house.repo): {"allowedTools": ["x"]}, "/other": {}}, "n": 1}
    claude.write_text(json.dumps(old))
    claude.chmod(0o640)
    codex.write_text(OLD_TOML)
    for kind in ("claude", "codex"):
        code, shown, said = trust(house, person, "--kind", kind, "--yes")
        assert code == 0, said
        assert str(house.repo) in shown and "trust" in shown.lower()
    old["projects"][str(house.repo)]["hasTrustDialogAccepted"] = True  # type: ignore[index]
    assert json.loads(claude.read_text()) == old and stat.S_IMODE(claude.stat().st_mode) == 0o640
    assert codex.read_text() == f'{OLD_TOML}\n[projects."{house.repo}"]\ntrust_level = "trusted"\n'
    assert "already" in trust(house, person, "--kind", "claude")[2], "nobody is asked twice"
    assert not (person / ".claude.json.lock").exists()


def test_it_is_the_main_worktree_that_is_trusted_and_a_link_stays_a_link(house: House, person: Path) -> None:
    git(house.repo, "worktree", "add", "-q", str(house.repo.parent / "linked"))
    (person / "dotfiles").mkdir()
    (person / ".claude.json").symlink_to("dotfiles/claude.json")
    assert trust(house, person, "--kind", "claude", "--yes", str(house.repo.parent / "linked"))[0] == 0
    assert (person / ".claude.json").is_symlink()
    assert [*json.loads((person / "dotfiles" / "claude.json").read_text())["projects"]] == [str(house.repo)]
    assert stat.S_IMODE((person / "dotfiles" / "claude.json").stat().st_mode) == 0o600, "it may hold a login one day"


@pytest.mark.parametrize(
    "before",
    [
        '[projects."ROOT"]\ntrust_level = "untrusted"\n',
        '[projects."ROOT"]\nother = 1\n',
        '[projects]\n[projects."/a"]\ntrust_level = "untrusted"\n[projects."ROOT"]\ntrust_level = "untrusted"\n',
        "a = 1",
        "",
    ],
)
def test_toml_is_changed_by_a_line(house: House, person: Path, before: str) -> None:
    file = person / ".codex" / "config.toml"
    before = before.replace("ROOT", str(house.repo))
    file.write_text(before)
    code, _, said = trust(house, person, "--kind", "codex", "--yes")
    assert code == 0, said
    wanted = tomllib.loads(before)
    wanted.setdefault("projects", {}).setdefault(str(house.repo), {})["trust_level"] = "trusted"
    assert tomllib.loads(file.read_text()) == wanted


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        (".claude.json", "{broken", "malformed"),
        (".claude.json", "[]", "holds no table"),
        (".claude.json", '{"projects": []}', "projects is no table"),
        (".codex/config.toml", "a = ", "malformed"),
        (".codex/config.toml", 'projects = { "/a" = { trust_level = "trusted" } }\n', "cannot be added"),
    ],
)
def test_what_is_not_understood_is_not_touched(house: House, person: Path, name: str, text: str, why: str) -> None:
    (person / name).write_text(text)
    code, _, said = trust(house, person, "--kind", "codex" if "codex" in name else "claude", "--yes")
    assert code != 0 and why in said and "it was not touched" in said
    assert (person / name).read_text() == text


def test_a_lock_that_is_held_is_respected_and_one_left_behind_is_not(house: House, person: Path) -> None:
    lock = person / ".claude.json.lock"
    lock.mkdir()
    ahead = lock.stat().st_mtime + 3600
    os.utime(lock, (ahead, ahead))  # its holder touches it again and again
    code, _, said = trust(house, person, "--kind", "claude", "--yes")
    assert code != 0 and "keeps it locked" in said and not (person / ".claude.json").exists()
    os.utime(lock, (0, 0))
    assert trust(house, person, "--kind", "claude", "--yes")[0] == 0
    assert not lock.exists()


def test_nothing_is_written_unasked(house: House, person: Path, terminal: Callable[..., Terminal]) -> None:
    assert "there is no terminal" in trust(house, person, "--kind", "claude")[2]
    here = terminal()
    for answer, there in (("n", False), ("y", True)):
        here.nightcrew("trust", "--kind", "claude", env={"HOME": str(person)})
        here.sees("Write it?")
        here.type(answer)
        here.sees(f"left with {0 if there else 1}")
        assert (person / ".claude.json").exists() == there
    assert "keeps no record" in trust(house, person, "--kind", "aider", "--yes")[2]
    assert "did you mean claude" in trust(house, person, "--kind", "claud")[2]


def test_another_directory_by_the_programs_own_variable(house: House, person: Path) -> None:
    own = person / "elsewhere"
    code, _, said = trust(house, person, "--kind", "codex", "--yes", CODEX_HOME=str(own))
    assert code == 0, said
    assert (own / "config.toml").exists() and not (person / ".codex" / "config.toml").exists()
