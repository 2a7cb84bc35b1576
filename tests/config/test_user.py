"""The user's settings."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from supervisor.config import user
from supervisor.core.errors import ConfigError
from supervisor.core.spec import Settings


def write(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "config.toml"
    file.write_text(text)
    return file


def test_no_file_is_the_defaults_with_two_slots_a_core_and_at_least_eight(tmp_path: Path) -> None:
    assert user.load(tmp_path / "absent", 1) == Settings(slots=8)
    assert user.load(tmp_path / "absent" / "deeper", 16) == Settings(slots=32)
    assert user.load(write(tmp_path, "# nothing\n"), 2) == Settings(slots=8)


@pytest.mark.parametrize("data", [b"", b"\xef\xbb\xbf", b" \r\n", b"# nothing yet\n"])
def test_an_empty_file_is_the_defaults(tmp_path: Path, data: bytes) -> None:
    file = tmp_path / "config.toml"
    file.write_bytes(data)
    assert user.load(file, 4) == user.load(tmp_path / "none", 4)
    assert user.load_gateway(file) == user.load_gateway(tmp_path / "none")


def test_every_key(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        """
        slots = 9
        grace = "0s"
        nice = 19
        shared_caches = false
        pass_env = ["SSH_AUTH_SOCK"]
        cores.reserve = 2
        [limits]
        log_max = "1MiB"
        memory_max = "2GB"
        file_max = 0
        open_files = 64
        disk_free_min = "500k"
        """,
    )
    assert user.load(file, 4) == Settings(
        slots=9,
        grace_s=0.0,
        nice=19,
        log_max=2**20,
        memory_max=2 * 10**9,
        file_max=0,
        open_files=64,
        disk_free_min=500_000,
        cores_reserve=2,
        shared_caches=False,
        pass_env=("SSH_AUTH_SOCK",),
    )


@pytest.mark.parametrize(
    ("written", "size"),
    [("4096", 4096), ('"4096"', 4096), ('"5000b"', 5000), ('"4.5 KiB"', 4608), ('"2T"', 2 * 10**12), ('"8 GiB"', 2**33), ('"1M"', 10**6)],
)
def test_sizes(tmp_path: Path, written: str, size: int) -> None:
    assert user.load(write(tmp_path, f"limits.log_max = {written}\n"), 1).log_max == size


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("slot = 3", ":1 slot: did you mean slots?"),
        ("\nslots = 0", ":2 slots: Input should be greater than or equal to 1, not 0"),
        ("slots = 1001", ":1 slots: Input should be less than or equal to 1000"),
        ("slots = 4.0", ":1 slots: Input should be a valid integer"),
        ("slots = inf", ":1 slots: Input should be a valid integer"),
        ("nice = -1", ":1 nice: Input should be greater than or equal to 0"),
        ('grace = "1h"', ":1 grace: Input should be less than or equal to 600"),
        ("grace = 1e309", ":1 grace: Input should be a finite number"),
        ("[limits]\nlog_maxx = 1", ":2 log_maxx: did you mean log_max?"),
        ("[limits]\nlog_max = 100", ":2 limits.log_max: Input should be greater than or equal to 4096, not 100"),
        ('[limits]\nlog_max = "64 MiBs"', ':2 limits.log_max: a size is a number of bytes or text such as "64MiB"'),
        ('[limits]\nlog_max = "-1k"', ":2 limits.log_max: a size is"),
        ('[limits]\nlog_max = ""', ":2 limits.log_max: a size is"),
        ("limits = { log_max = 1.5 }", ":1 limits.log_max: Input should be a valid integer, not 1.5"),
        (f'[limits]\nlog_max = "{"9" * 400}GB"', ":2 limits.log_max: Input should be less than or equal to 9223372036854775807"),
        ("[limits]\nmemory_max = 99999999999999999999", ":2 limits.memory_max: Input should be less than or equal to 9223372036854775807"),
        ("[limits]\nopen_files = 99999999999999999999", ":2 limits.open_files: Input should be less than or equal to"),
        ("[cores]\nreserve = -1", ":2 cores.reserve: Input should be greater than or equal to 0"),
        ("pass_env = [1]", ":1 pass_env: Input should be a valid string"),
        ("slots = 1\nslots = 2", ":2: not valid TOML: Cannot overwrite a value"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, text: str, answer: str) -> None:
    file = write(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        user.load(file, 4)
    assert f"{file}{answer}" in caught.value.line()


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every file")
def test_settings_that_cannot_be_read_are_not_the_defaults(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir()
    write(closed, "slots = 3\n")
    closed.chmod(0)
    try:
        with pytest.raises(ConfigError, match="Permission denied"):
            user.load(closed / "config.toml", 4)
    finally:
        closed.chmod(0o700)


def test_where_the_file_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("NIGHTCREW_CONFIG", raising=False)
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    assert user.path() == tmp_path / ".config" / "nightcrew" / "config.toml"
    monkeypatch.setenv("XDG_CONFIG_HOME", "/xdg")
    assert user.path() == Path("/xdg/nightcrew/config.toml")
    monkeypatch.setenv("NIGHTCREW_CONFIG", "/own.toml")
    assert user.path() == Path("/own.toml")
