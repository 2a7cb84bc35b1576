"""Programs that are there, absent, too old, silent or hanging."""

from __future__ import annotations

from pathlib import Path

import pytest

from supervisor.doctor import machine as software
from supervisor.doctor.examine import State
from tests.doctor.conftest import Machine


@pytest.mark.parametrize(
    ("name", "said", "state"),
    [
        ("tmux", "echo tmux 3.3a", State.OK),
        ("tmux", "echo tmux next-3.7", State.OK),
        ("tmux", "echo tmux master", State.OK),
        ("tmux", "echo tmux 3.2a", State.FAIL),
        ("tmux", "echo broken >&2; exit 1", State.FAIL),
        ("git", "echo git version 2.39.5", State.OK),
        ("git", "echo git version 2.38.0.windows.1", State.OK),
        ("git", "echo git version 2.37.9", State.FAIL),
        ("git", "echo what", State.FAIL),
    ],
)
def test_what_nightcrew_needs(machine: Machine, name: str, said: str, state: State) -> None:
    check = software.SOFTWARE_CHECKS[name]
    absent = check(machine.place())
    assert absent.state is State.FAIL and absent.seen == "not on PATH" and "apt install" in absent.fix
    machine.program(name, said)
    assert check(machine.place()).state is state


def test_a_program_that_hangs(machine: Machine) -> None:
    machine.program("git", "while :; do :; done")
    found = software.git(machine.place(tool_s=0.2))
    assert found.state is State.FAIL and "did not answer in 200ms" in found.seen


def test_agents_are_for_information(machine: Machine) -> None:
    assert software.agents(machine.place()).seen == "none found; shell tasks work"
    machine.program("claude", "echo 2.1.999; echo more")
    machine.program("codex", "echo codex-cli 0.999")
    found = software.agents(machine.place())
    assert found.state is State.OK and found.seen.startswith("claude 2.1.999; codex codex-cli 0.999; not on PATH: aider, gemini")
    machine.program("codex", "echo no runtime; exit 1")
    found = software.agents(machine.place())
    assert found.state is State.UNKNOWN and "codex: on PATH" in found.seen


def test_an_agent_that_does_not_answer_is_not_called_broken(machine: Machine) -> None:
    machine.program("claude", "echo 2.1.999")
    machine.program("codex", "while :; do :; done")
    machine.program("qwen", "exit 1")
    found = software.agents(machine.place(agent_s=0.2))
    assert (
        found.state is State.UNKNOWN
        and "codex did not answer in 200ms" in found.seen
        and "qwen: on PATH, but --version fails" in found.seen
    )
    assert "codex: on PATH" not in found.seen and "codex" not in found.seen.partition("not on PATH")[2]


def test_an_agent_has_a_limit_of_its_own(machine: Machine) -> None:
    machine.program("claude", "echo 2.1.999")
    assert software.agents(machine.place(tool_s=0.0)).seen.startswith("claude 2.1.999")


def test_a_kind_that_cannot_be_read_is_named(machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NIGHTCREW_CONFIG", str(tmp_path / "config.toml"))
    (tmp_path / "kinds").mkdir()
    (tmp_path / "kinds" / "ours.toml").write_text("binary = 1")
    found = software.agents(machine.place())
    assert found.state is State.WARN and f"{tmp_path}/kinds/ours.toml:1" in found.seen


def test_our_packages_are_our_own(machine: Machine) -> None:
    assert software.packages(machine.place()).state is State.OK
    machine.environ["PYTHONPATH"] = "/somewhere"
    assert "PYTHONPATH is set, and neither nightcrew nor its agents use it" in software.packages(machine.place()).seen


def test_an_agent_that_is_too_old_is_told_with_what_to_do(machine: Machine) -> None:
    machine.program("claude", "echo 2.0.5")
    found = software.agents(machine.place())
    assert found.state is State.WARN and "older than claude 2.1.329" in found.seen and "nightcrew kinds test claude" in found.fix


def test_who_is_logged_in(machine: Machine) -> None:
    assert software.logins(machine.place()).seen == "none to ask"
    machine.program("claude", 'test "$*" = "auth status"')
    machine.program("codex", "exit 1")
    found = software.logins(machine.place())
    assert found.state is State.WARN and found.seen == "nobody is logged in to codex"
    place = machine.place()
    place.config.write_text('[upstream.sim]\napi = "openai"\nurl = "http://127.0.0.1:1"\nkey = "none"\n')
    assert software.logins(place).seen == "logged in to claude; by the gateway alone: codex"


def test_what_a_program_says_before_its_version_is_left_out(machine: Machine) -> None:
    machine.program("codex", "echo WARNING: going on; echo codex-cli 0.169.0")
    assert "codex codex-cli 0.169.0;" in software.agents(machine.place()).seen
