"""Programs that are there, absent, too old, silent or hanging."""

from __future__ import annotations

from pathlib import Path

import pytest

from supervisor.doctor import software
from supervisor.doctor.finding import State
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
    check = software.CHECKS[name]
    absent = check(machine.place())
    assert absent.state is State.FAIL and absent.seen == "not on PATH" and "apt install" in absent.fix
    machine.program(name, said)
    assert check(machine.place()).state is state


def test_a_program_that_hangs(machine: Machine) -> None:
    machine.program("git", "while :; do :; done")
    found = software.git(machine.place(tool_s=0.2))
    assert found.state is State.FAIL and "did not answer in 0.2 s" in found.seen


def test_agents_are_for_information(machine: Machine) -> None:
    assert software.agents(machine.place()).seen == "none found; shell tasks work"
    machine.program("claude", "echo 2.1.0; echo more")
    machine.program("codex", "echo codex-cli 0.9")
    found = software.agents(machine.place())
    assert found.state is State.OK and found.seen.startswith("claude 2.1.0; codex codex-cli 0.9; not on PATH: aider, gemini")
    machine.program("codex", "echo no runtime; exit 1")
    found = software.agents(machine.place())
    assert found.state is State.UNKNOWN and "codex: on PATH" in found.seen


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
