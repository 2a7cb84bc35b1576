"""Files that hold secrets: private, whole, and made once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from supervisor.host import secrets
from supervisor.kernel.errors import NotFound, Refused


def test_our_secret_is_made_once_even_by_many_at_once(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        made = set(pool.map(lambda _: secrets.own(tmp_path / "secret"), range(32)))
    assert len(made) == 1
    assert len(made.pop()) == 32
    assert (tmp_path / "secret").stat().st_mode & 0o777 == 0o600
    assert [file.name for file in tmp_path.iterdir()] == ["secret"], "no draft stays"


def test_another_house_has_another_secret(tmp_path: Path) -> None:
    assert secrets.own(tmp_path / "one") != secrets.own(tmp_path / "two")


@pytest.mark.parametrize("text", ["", "abc", "a b", "x" * 63, "\x00" * 64])
def test_a_secret_that_is_not_whole_is_refused_and_kept(tmp_path: Path, text: str) -> None:
    file = tmp_path / "secret"
    file.write_text(text)
    file.chmod(0o600)
    with pytest.raises(Refused):
        secrets.own(file)
    assert file.read_text() == text


def test_what_others_can_read_is_no_secret(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("sk-ant-canary\n")
    file.chmod(0o640)
    with pytest.raises(Refused, match="chmod 600"):
        secrets.key(file)
    file.chmod(0o600)
    assert secrets.key(file) == "sk-ant-canary"


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("sk-ant-canary")
    (tmp_path / "real").chmod(0o600)
    (tmp_path / "key").symlink_to("real")
    with pytest.raises(Refused):
        secrets.key(tmp_path / "key")


def test_a_key_is_stored_once(tmp_path: Path) -> None:
    file = tmp_path / "keys" / "anthropic.key"
    assert secrets.store(file, "one")
    assert secrets.store(file, "one")
    assert not secrets.store(file, "two")
    assert secrets.key(file) == "one"
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)


@pytest.mark.parametrize("text", ["two words", "line\nbreak", "", "k\u00e9y", "k\x1b"])
def test_what_can_be_no_header_is_not_stored(tmp_path: Path, text: str) -> None:
    with pytest.raises(Refused):
        secrets.store(tmp_path / "keys" / "x.key", text)
    with pytest.raises(NotFound):
        secrets.key(tmp_path / "keys" / "x.key")
