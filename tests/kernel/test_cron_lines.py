"""Lines of a crontab: what cron and its shell make of them, and that nobody else's line is touched."""

from __future__ import annotations

import subprocess

from hypothesis import given
from hypothesis import strategies as st

from supervisor.host import autostart
from supervisor.host.autostart import RESTART_S, Program
from supervisor.kernel.night import Timetable

HOSTILE = ["a b", "100%", "\\%", "%%", "\\", "a\\", "it's", 'q"q', "$HOME", "`id`", "*", "#no", "ü→", "; rm -rf x", "-n", "a=b", "!x", "\t"]
MARKER = "nightcrew night x 0123456789ab"


def as_cron_runs_it(command: str) -> tuple[str, str]:
    """The command and its stdin as Debian's cron cuts them (do_command.c): `\\%` is a percent sign, the first other `%` ends the
    command."""
    taken, escaped = [], False
    for index, char in enumerate(command):
        if escaped and char != "%":
            taken.append("\\")
        elif not escaped and char == "%":
            return "".join(taken), command[index + 1 :]
        escaped = char == "\\"
        if not escaped:
            taken.append(char)
    return "".join([*taken, "\\" if escaped else ""]), ""


def said(command: str) -> list[str]:
    run, stdin = as_cron_runs_it(command)
    assert not stdin
    done = subprocess.run(["/bin/sh", "-c", run], capture_output=True, check=True, text=True)
    return done.stdout.split("\0")[:-1]


def test_hostile_words_reach_the_program_as_they_are() -> None:
    program = Program(("/usr/bin/printf", r"%s\0", *HOSTILE), {})
    assert said(autostart.cron_command(program)) == HOSTILE


def test_hostile_variables_reach_the_program_as_they_are() -> None:
    text = " ".join(HOSTILE)
    program = Program(("/bin/sh", "-c", r'printf "%s\0" "$X"'), {"X": text})
    assert said(autostart.cron_command(program)) == [text]


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0\n\r"), max_size=12), min_size=1, max_size=5))
def test_no_word_ends_the_command_or_leaves_its_quotes(words: list[str]) -> None:
    import shlex

    run, stdin = as_cron_runs_it(autostart.cron_command(Program(tuple(words))))
    assert not stdin
    assert shlex.split(run) == words


def test_a_night_is_started_under_a_lock_and_its_line_names_it() -> None:
    line = autostart.night_line(Timetable(22 * 60 + 30, (0, 4)), Program(("/a b/py", "x"), {"H": "1%"}), "/l k", "/lo%g", MARKER)
    assert line == f"30 22 * * 1,5 H=1\\% flock -n '/l k' '/a b/py' x >>/lo\\%g 2>&1 # {MARKER}"


def test_the_supervisor_is_started_again_after_a_crash_and_not_after_an_end(tmp_path: object) -> None:
    ends = f"{tmp_path}/ends"
    script = 'n=$(cat "$0" 2>/dev/null || echo 0); echo $((n+1)) >"$0"; exit $([ "$n" = 2 ] && echo 6 || echo 137)'
    line = autostart.supervisor_line(Program(("/bin/sh", "-c", script, ends)), (2, 3, 6), f"{tmp_path}/log", MARKER)
    run, _ = as_cron_runs_it(line.removeprefix("@reboot "))
    subprocess.run(["/bin/sh", "-c", run.replace(f"sleep {RESTART_S}", "sleep 0")], check=True)
    with open(ends) as file:
        assert file.read() == "3\n"  # killed twice, and refused the third time


def test_a_line_break_and_a_line_that_is_too_long_are_named() -> None:
    assert "line break" in autostart.why_not("a\nb")
    assert "990 bytes" in autostart.why_not("ü" * 496)
    assert not autostart.why_not("ü" * 495)


LINES = st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\n\0"), max_size=20), max_size=6)


@given(LINES, st.booleans())
def test_a_crontab_gets_our_line_once_and_gives_it_back_byte_by_byte(lines: list[str], ended: bool) -> None:
    text = "\n".join(lines) + ("\n" if ended and lines else "")
    line = f"1 2 * * * x # {MARKER}"
    once = autostart.with_line(text, line, MARKER)
    assert autostart.with_line(once, line, MARKER) == once
    assert once.count(MARKER) == 1 and once.endswith(f"{line}\n")
    assert autostart.line_of(once, MARKER) == line
    assert autostart.without(once, MARKER) == text + ("" if not text or text.endswith("\n") else "\n")


def test_only_a_line_that_ends_with_the_marker_is_ours() -> None:
    others = f"# {MARKER} was here\n5 * * * * echo {MARKER}\n5 * * * * x # {MARKER}0\n"
    assert autostart.without(others, MARKER) == others
    assert not autostart.line_of(others, MARKER)
    off = f"#1 2 * * * x # {MARKER}\n"
    assert not autostart.line_of(off, MARKER) and not autostart.without(off, MARKER)
