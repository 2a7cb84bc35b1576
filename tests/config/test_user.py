"""The user's settings."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from supervisor.config import user
from supervisor.features.notify.rules import Kind
from supervisor.host.paths import settings_file
from supervisor.kernel.errors import ConfigError
from supervisor.kernel.retention import DAY_S, Keep, Limit
from supervisor.kernel.settings import Settings


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
        cores.lanes = 3
        cores.per_lane = 5
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
        grows=False,
        grace_s=0.0,
        nice=19,
        log_max=2**20,
        memory_max=2 * 10**9,
        file_max=0,
        open_files=64,
        disk_free_min=500_000,
        cores_reserve=2,
        lanes=3,
        per_lane=5,
        shared_caches=False,
        pass_env=("SSH_AUTH_SOCK",),
    )


def test_what_is_kept(tmp_path: Path) -> None:
    assert user.load(tmp_path / "absent", 1).keep == Keep()
    assert user.load(write(tmp_path, '[gateway]\nkeep = "7d"\n'), 1).keep.recordings == Limit(7 * DAY_S), "as long as their account"
    text = '[keep]\nresults = { age = "90d", size = "1GiB" }\nrecordings = { size = "1MiB" }\n[keep.history]\nage = "1h"\n'
    kept = user.load(write(tmp_path, text), 1).keep
    assert kept == Keep(results=Limit(90 * DAY_S, 2**30), recordings=Limit(size=2**20), history=Limit(3600.0))


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
        ("keep.logs = { age = 30 }", ":1 keep.logs.age: Input should be greater than or equal to 3600, not 30"),
        ('keep.result = { age = "30d" }', ":1 result: did you mean results?"),
        ("pass_env = [1]", ":1 pass_env: Input should be a valid string"),
        ('pass_env = ["A=B"]', ":1 pass_env: 'A=B' cannot be the name of an environment variable"),
        ('pass_env = ["A\\u0000"]', ":1 pass_env: 'A\\x00' cannot be the name"),
        ('pass_env = ["NIGHTCREW_TOKEN"]', ":1 pass_env: NIGHTCREW_TOKEN: names that begin with NIGHTCREW_ are nightcrew's own"),
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
    assert settings_file() == tmp_path / ".config" / "nightcrew" / "config.toml"
    monkeypatch.setenv("XDG_CONFIG_HOME", "/xdg")
    assert settings_file() == Path("/xdg/nightcrew/config.toml")
    monkeypatch.setenv("NIGHTCREW_CONFIG", "/own.toml")
    assert settings_file() == Path("/own.toml")


@pytest.mark.parametrize("urls", ['["json://SECRET@x", "SECRET"]', '"json://SECRET@x"', '["file:///SECRET"]', '["env:A", "env:A"]'])
def test_an_address_that_cannot_be_is_refused_and_never_repeated(tmp_path: Path, urls: str) -> None:
    file = tmp_path / "config.toml"
    file.write_text(f"[notify]\nurls = {urls}\n")
    with pytest.raises(ConfigError) as raised:
        user.load_notify(file)
    assert "config.toml:2 notify.urls" in raised.value.line() and "SECRET" not in raised.value.line()


def test_messages_as_the_file_has_them(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    keys = ['urls = ["env:NTFY", "file:~/x", "ntfy://topic"]', 'on = ["failed"]', "urgent = []", 'quiet_hours = "22:00-06:00"']
    file.write_text("\n".join(["[notify]", *keys]))
    terms = user.load_notify(file)
    assert terms.names == ("env:NTFY", "file:~/x", "urls[2]") and "ntfy://topic" not in repr(terms)
    assert (terms.on, terms.urgent, str(terms.quiet), terms.text) == (frozenset({Kind.FAILED}), frozenset(), "22:00-06:00", False)


def test_messages_keep_the_quiet_hours_of_the_night_where_they_have_none(tmp_path: Path) -> None:
    file = write(tmp_path, '[night]\nquiet_hours = "23:00-07:00"\n')
    assert str(user.load_notify(file).quiet) == "23:00-07:00"
    assert str(user.load_notify(write(tmp_path, file.read_text() + '[notify]\nquiet_hours = "22:00-06:00"\n')).quiet) == "22:00-06:00"
