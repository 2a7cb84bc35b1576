"""What every verb owes a person: an example in its help, and colours only where they were not declined."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import click
import pytest

from supervisor.cli.main import VERBS, cli
from supervisor.client import common
from tests.cli.terminal import Terminal
from tests.support import House

Opener = Callable[..., Terminal]


def commands(group: click.Group, before: str = "") -> Iterator[tuple[str, click.Command]]:
    """Every verb, and those inside groups, with the words that lead to it."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield f"{before}{name}", command
        if isinstance(command, click.Group):
            yield from commands(command, f"{before}{name} ")


EVERY = dict(commands(cli))


@pytest.mark.parametrize("verb", EVERY)
def test_its_help_has_an_example_that_begins_with_it(verb: str) -> None:
    text = EVERY[verb].help or ""
    examples = text.partition("\b\n")[2].strip().splitlines()
    assert examples, "no block of examples"
    assert any(re.search(rf"\bnightcrew {verb}\b", line) for line in examples)
    assert max(map(len, examples)) <= 76, "click does not wrap examples, and a terminal has 80 columns"


def test_every_verb_was_looked_at() -> None:
    assert set(VERBS) <= set(EVERY) and "bench spawn" in EVERY


@pytest.mark.parametrize(
    ("environ", "terminal", "color"),
    [
        ({}, True, True),
        ({}, False, False),
        ({"TERM": "dumb"}, True, False),
        ({"NO_COLOR": "1"}, True, False),
        ({"NO_COLOR": ""}, True, True),
        ({"FORCE_COLOR": "1"}, False, True),
        ({"FORCE_COLOR": "1", "TERM": "dumb"}, False, True),
        ({"FORCE_COLOR": ""}, False, False),
    ],
    ids=str,
)
def test_when_colours_are_used(monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], terminal: bool, color: bool) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, text in environ.items():
        monkeypatch.setenv(name, text)
    monkeypatch.setattr("sys.stdout.isatty", lambda: terminal)
    assert common.use_color() is color


LOOKS = [["status", "--all"], ["status", "good"], ["logs", "good"], ["doctor"], ["--help"], ["kill", "--help"], ["statsu"]]


@pytest.mark.parametrize("words", LOOKS, ids=" ".join)
def test_nothing_is_styled_where_it_was_declined(crew: House, words: list[str]) -> None:
    for env in ({}, {"NO_COLOR": "1"}, {"TERM": "dumb"}):
        done = crew.run(*words, env=env)
        assert "\x1b" not in done.stdout + done.stderr


@pytest.mark.parametrize("env", [{"NO_COLOR": "1"}, {"TERM": "dumb"}], ids=str)
def test_nor_on_a_terminal(crew: House, terminal: Opener, env: dict[str, str]) -> None:
    window = terminal()
    home = {"NIGHTCREW_HOME": str(crew.home.root)}
    window.nightcrew("status", "--all", env=home)
    window.sees("left with 0")
    assert "\x1b[3" in window.screen(styles=True), "it would be coloured"
    window = terminal()  # the first one still shows how the first command ended
    window.nightcrew("status", "--all", env={**home, **env})
    window.sees("left with 0")
    assert "\x1b[3" not in window.screen(styles=True)


def test_a_terminal_that_cannot_move_its_cursor_is_not_drawn_on(crew: House, terminal: Opener) -> None:
    window = terminal()
    window.nightcrew("status", "--watch", env={"NIGHTCREW_HOME": str(crew.home.root), "TERM": "dumb"})
    window.sees("TERM=dumb cannot move its cursor")
    window.sees("left with 2")
