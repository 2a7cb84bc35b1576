"""Unit files by the grammar that systemd documents: systemd.syntax(7), systemd.service(5), systemd.timer(5)."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.host import autostart
from supervisor.host.autostart import Program
from supervisor.kernel.night import Timetable

MARKER = "nightcrew night x 0123456789ab"
KEYS = {
    "Unit": {"Description", "StartLimitIntervalSec", "StartLimitBurst"},
    "Service": {
        "Type",
        "ExecStart",
        "Environment",
        "KillMode",
        "OOMPolicy",
        "TimeoutStopSec",
        "Restart",
        "RestartSec",
        "RestartPreventExitStatus",
    },
    "Timer": {"OnCalendar", "Persistent", "AccuracySec"},
    "Install": {"WantedBy"},
}
_DAY = "(Mon|Tue|Wed|Thu|Fri|Sat|Sun)"
VALUES = {
    "Type": "exec",
    "KillMode": "process",
    "OOMPolicy": "continue",
    "TimeoutStopSec": r"\d+",
    "Restart": "on-failure",
    "RestartSec": r"[2-9]|\d\d+",
    "RestartPreventExitStatus": r"\d+( \d+)*",
    "OnCalendar": rf"({_DAY}(,{_DAY})* )?\*-\*-\* \d\d:\d\d:00",
    "Persistent": "true",
    "AccuracySec": r"\d+s",
    "WantedBy": r"(timers|default)\.target",
    "StartLimitIntervalSec": r"\d+",
    "StartLimitBurst": r"\d+",
    "Description": "[^%]+",
}
ESCAPES = {"n": "\n", "t": "\t", '"': '"', "\\": "\\"}


def parsed(text: str) -> dict[str, list[tuple[str, str]]]:
    """Sections with their keys and values. Fails for anything that systemd.syntax(7) does not allow, and for a key that no man page has
    in that section."""
    sections: dict[str, list[tuple[str, str]]] = {}
    section = ""
    for line in text.split("\n"):
        if not line or line.startswith(("#", ";")):
            continue
        assert not line.endswith("\\"), "the next line would belong to it"
        if found := re.fullmatch(r"\[(\w+)\]", line):
            section = found[1]
            assert section not in sections
            sections[section] = []
            continue
        key, equals, value = line.partition("=")
        assert equals and key in KEYS[section], line
        assert key in ("ExecStart", "Environment") or re.fullmatch(VALUES[key], value), line
        sections[section].append((key, value))
    return sections


def words(value: str) -> list[str]:
    """The words of a value as systemd cuts and unquotes them, specifiers included. Fails for a specifier that is not `%%`."""
    found, rest = [], value
    while rest:
        match = re.match(r'"((?:[^"\\]|\\.)*)"(?: |$)', rest)
        assert match, rest
        text = re.sub(r"\\(x[0-9a-f]{2}|.)", lambda one: chr(int(one[1][1:], 16)) if one[1][0] == "x" else ESCAPES[one[1]], match[1])
        assert "%" not in text.replace("%%", ""), "a specifier"
        found.append(text.replace("%%", "%"))
        rest = rest[match.end() :]
    return found


def command(unit: str) -> list[str]:
    [line] = [value for key, value in parsed(unit)["Service"] if key == "ExecStart"]
    assert line.startswith(":"), "variables would be put in"
    given = words(line[1:])
    return given[len(VIA) :] if tuple(given[: len(VIA)]) == VIA else given


VIA = ("/bin/sh", "-c", 'exec "$0" "$@"')
PLAIN = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=15)


@given(PLAIN.map(lambda text: f"/{text}"), st.lists(PLAIN, max_size=4), PLAIN)
def test_hostile_words_and_variables_are_read_back_as_they_are(program: str, arguments: list[str], variable: str) -> None:
    unit = autostart.night_service(MARKER, "x", Program((program, *arguments), {"NIGHTCREW_HOME": variable}))
    assert command(unit) == [program, *arguments]
    assert [words(value) for key, value in parsed(unit)["Service"] if key == "Environment"] == [[f"NIGHTCREW_HOME={variable}"]]
    assert unit.startswith(f"# {MARKER}\n")


def test_a_path_that_systemd_takes_for_no_program_is_run_by_a_shell(tmp_path: Path) -> None:
    program = tmp_path / 'it\'s "a" pro%gram$HOME\n'
    program.write_text('#!/bin/sh\nprintf "%s\\0" "$@"\n')
    program.chmod(0o755)
    unit = autostart.night_service(MARKER, "x", Program((str(program), "a b", "$HOME")))
    [line] = [value for key, value in parsed(unit)["Service"] if key == "ExecStart"]
    argv = words(line[1:])
    assert tuple(argv[:3]) == VIA
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert done.stdout == "a b\0$HOME\0"


def every_unit(program: Program) -> dict[str, str]:
    return {
        "night.service": autostart.night_service(MARKER, "chores", program),
        "night.timer": autostart.night_timer(MARKER, "chores", Timetable(1350)),
        "some.timer": autostart.night_timer(MARKER, "chores", Timetable(0, (0, 6))),
        "some.service": autostart.night_service(MARKER, "chores", program),
        "supervisor.service": autostart.supervisor_service(MARKER, program, (2, 3, 6)),
    }


def test_every_unit_keeps_to_the_grammar_and_ends_no_pane() -> None:
    units = {name: parsed(text) for name, text in every_unit(Program((sys.executable, "-I", "x"), {"A": "b"})).items()}
    for name, unit in units.items():
        if name.endswith(".timer"):
            assert ("Persistent", "true") in unit["Timer"] and unit["Install"] == [("WantedBy", "timers.target")]
        else:
            assert {("Type", "exec"), ("KillMode", "process"), ("OOMPolicy", "continue")} <= set(unit["Service"])
    assert {("Restart", "on-failure"), ("RestartSec", "5"), ("RestartPreventExitStatus", "2 3 6")} <= set(
        units["supervisor.service"]["Service"]
    )
    assert "Install" not in units["night.service"]


def verified(home: Path, *files: str) -> subprocess.CompletedProcess[str]:
    """What `systemd-analyze verify` says of the files. Skips where it cannot begin: it needs a manager's directories, and a `/tmp` (by
    that name, whatever TMPDIR says) in which this user may write."""
    env = {"PATH": os.environ["PATH"], "HOME": str(home), "XDG_RUNTIME_DIR": str(home)}
    done = subprocess.run(["systemd-analyze", "verify", "--user", *files], capture_output=True, text=True, env=env, check=False)
    if any(reason in done.stderr for reason in ("Failed to initialize manager", "Failed to setup working directory")):
        pytest.skip(f"systemd-analyze cannot begin here: {done.stderr.strip()}")
    return done


def test_systemd_itself_takes_every_unit(tmp_path: Path) -> None:
    """`systemd-analyze verify` reads them as the manager would; nothing is started."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not here: the units were checked against the documented grammar alone")
    place = tmp_path / "it's a pl%ace $HOME"
    place.mkdir()
    program = place / "python"
    program.symlink_to("/bin/true")
    for name, text in every_unit(Program((str(program), "-I", "a %b", '"'), {"NIGHTCREW_HOME": f"{place}\n"})).items():
        (tmp_path / name).write_text(text)
    files = sorted(os.fspath(file) for file in tmp_path.iterdir() if file.suffix in (".service", ".timer"))
    done = verified(tmp_path, *files)
    names = [Path(file).name for file in files]
    said = [line for line in done.stderr.splitlines() if any(name in line for name in names)]  # units of others are none of ours
    assert (done.returncode, said) == (0, [])


def test_systemd_itself_refuses_what_the_checker_refuses(tmp_path: Path) -> None:
    """So that neither check passes for nothing."""
    broken = autostart.supervisor_service(MARKER, Program(("/bin/true",)), (2,)).replace("Restart=on-failure", "Restart=sometimes")
    with pytest.raises(AssertionError):
        parsed(broken)
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not here")
    (tmp_path / "broken.service").write_text(broken)
    assert "sometimes" in verified(tmp_path, str(tmp_path / "broken.service")).stderr
