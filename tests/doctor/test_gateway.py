"""The gateway and the files of keys, as doctor sees them."""

from __future__ import annotations

import os
import signal
import stat
from pathlib import Path

import pytest

from supervisor.doctor import crew
from supervisor.doctor import state_directory as state
from supervisor.doctor.examine import CheckContext, Finding, State
from supervisor.host import files
from supervisor.server import gateway_process
from tests.gateway.kit import upstream
from tests.support import House, wait_until

DEAD_END = "http://127.0.0.1:9"
"""Nobody listens there, and nothing is sent."""


def at(house: House, *, tool_s: float = 10.0) -> CheckContext:
    return CheckContext(home=house.home, config=house.config, cwd=house.repo, environ=house.env, tool_s=tool_s)


def settings(house: House, **how: str) -> Path:
    """An upstream, and the file of its key."""
    files.private_dir(house.home.root)
    house.config.write_text(house.config.read_text() + upstream(house.home, DEAD_END, **how))
    return house.home.keys / "sim.key"


def told(finding: Finding) -> tuple[State, str]:
    return finding.state, finding.seen


def test_they_are_among_what_doctor_looks_at() -> None:
    assert crew.CHECKS["gateway"] is crew.process and state.CHECKS["keys"] is crew.keys


def test_none_is_needed_and_no_key_is_kept(house: House) -> None:
    assert crew.process(at(house)).state is State.OK
    assert told(crew.keys(at(house))) == (State.OK, "none of a provider is kept here")
    assert not house.home.root.exists()


def test_a_gateway_is_seen_at_work_gone_and_hanging(house: House) -> None:
    settings(house)
    assert told(crew.process(at(house))) == (State.OK, "none runs; the supervisor starts one")
    daemon = house.start_daemon()
    wait_until(lambda: crew.process(at(house)).state is State.OK, "it to be ready")
    record = house.gateway()
    assert record is not None
    assert crew.process(at(house)).seen == f"pid {record.identity.pid}, 127.0.0.1:{record.port}; upstreams: sim"
    os.kill(daemon.pid, signal.SIGSTOP)  # it would start another
    try:
        os.kill(record.identity.pid, signal.SIGSTOP)
        hangs = crew.process(at(house, tool_s=0.3))
        assert hangs.state is State.FAIL and "did not answer" in hangs.seen and f"kill -9 {record.identity.pid}" in hangs.fix
        os.kill(record.identity.pid, signal.SIGKILL)
        wait_until(lambda: gateway_process.running(house.home) is None, "it to be gone")
        gone = crew.process(at(house))
        assert told(gone) == (State.FAIL, "none runs, although the supervisor does") and "nothing new starts" in gone.why
    finally:
        os.kill(daemon.pid, signal.SIGCONT)


def test_an_upstream_that_cannot_be_used_is_a_warning(house: House) -> None:
    settings(house).unlink()
    house.start_daemon()
    wait_until(lambda: crew.process(at(house)).state is not State.FAIL, "it to be ready")
    found = crew.process(at(house))
    key = house.home.keys / "sim.key"
    assert found.state is State.WARN and "sim.key" in found.seen
    assert found.fix == f"put the key into {key} (mode 600), then nightcrew gateway reload" == crew.keys(at(house)).fix
    missing = crew.keys(at(house))
    assert missing.state is State.FAIL and missing.seen == f"no file {house.home.keys / 'sim.key'}" and missing.mend is None


@pytest.mark.parametrize(
    ("pool", "state", "seen", "fix"),
    [
        ("key refused", State.FAIL, "the key of sim is refused", "put the key into {key} (mode 600), then nightcrew gateway reload"),
        ("spend cap reached", State.WARN, "sim has reached its spend cap", "nightcrew gateway status"),
        ("unreachable: refused", State.WARN, "sim has not served anthropic/opus (unreachable: refused)", "see whether the provider can"),
        ("rate limited", None, "", ""),
    ],
)
def test_an_open_breaker_says_what_to_do(house: House, pool: str, state: State | None, seen: str, fix: str) -> None:
    key = settings(house)
    found_settings = crew._settings(at(house))
    assert found_settings is not None
    shape = {"account": "sim", "lane": "anthropic/opus", "breaker": "open", "breaker_why": pool}
    found = crew._usable(at(house), found_settings, {"pools": [shape], "problems": []}, "pid 1")
    assert (found.state if found else None) is state
    if found is not None:
        assert found.seen.startswith(f"pid 1: {seen}") and found.fix.startswith(fix.format(key=key))


@pytest.mark.parametrize("name", ["sim.key", "forgotten.key", "secret"])
def test_a_secret_that_others_can_read_is_closed(house: House, name: str) -> None:
    settings(house)
    path = house.home.secret if name == "secret" else house.home.keys / name
    path.write_text("ab" * 32 + "\n")
    path.chmod(0o644)
    found = crew.keys(at(house))
    assert told(found) == (State.FAIL, f"{path}: others can read it") and found.fix == f"chmod 600 {path}"
    assert found.mend is not None and found.mend().startswith(f"{path} is 0600")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert crew.keys(at(house)).state is State.OK


def test_a_link_or_a_sentence_in_place_of_a_key_is_left_to_its_owner(house: House, tmp_path: Path) -> None:
    path = settings(house)
    path.write_text("not a single word")
    assert crew.keys(at(house)).state is State.FAIL and crew.keys(at(house)).mend is None
    path.unlink()
    target = tmp_path / "elsewhere"
    target.write_text("sk-word")
    target.chmod(0o644)
    path.symlink_to(target)
    found = crew.keys(at(house))
    assert found.state is State.FAIL and found.mend is None
    assert stat.S_IMODE(target.stat().st_mode) == 0o644


def test_a_keyrings_program_is_not_run(house: House, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    settings(house, more=f'key_command = ["touch", "{ran}"]')
    assert crew.keys(at(house)).state is State.OK and not ran.exists()


def test_settings_that_cannot_be_read_are_anothers_affair(house: House) -> None:
    house.config.write_text("[gateway]\nports = 1\n")
    assert crew.process(at(house)).state is State.UNKNOWN
    assert crew.keys(at(house)).state is State.OK
