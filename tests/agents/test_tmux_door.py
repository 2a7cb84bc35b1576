"""Sessions: started as asked, found again by id, and never a way for text to become a command."""

from __future__ import annotations

import os
import shlex
import signal
import threading
from pathlib import Path

import pytest

from agents.tmux import ARG_MAX, Pane, SessionExists, Tmux
from agents.tmux_control import PaneView, parse_panes
from supervisor.kernel.errors import NotFound, ToolFailed

from .conftest import AskTmux, WaitUntil, lives

TAGS = {"task": "r1/fix", "epoch": "2", "tag": "0123456789abcdef:r1/fix:2"}
WEIRD = [
    *("", ";", "a;", "\\;", "~", "~/x", "$HOME", "${HOME}", "#{pid}", "#(id)", "##[x]", "-d", "--", "{", "}", "{ x }", "'", '"'),
    *("%if 1", "# no comment", "a\nb", "\t", "\x1b[31m", "\x7f", "é漢🦀", "\udcff", "`id`", "$(id)", "*", "x" * 60_000),
]
PAYLOAD = "#(cd;touch canary)"
"""No slash, so that it can also name a directory: `cd` leads to HOME, which tests set to their own directory."""


def view(tmux: Tmux, pane: Pane) -> PaneView | None:
    return {one.pane_id: one for one in tmux.panes()}.get(pane.pane_id)


def ended(tmux: Tmux, pane: Pane, wait_until: WaitUntil) -> PaneView:
    wait_until(lambda: (seen := view(tmux, pane)) is not None and seen.dead, f"end of {pane.pane_id}")
    seen = view(tmux, pane)
    assert seen is not None
    return seen


def test_spawn_runs_in_its_directory_with_its_size(tmux: Tmux, tmp_path: Path, wait_until: WaitUntil) -> None:
    pane = tmux.spawn("r1_fix_2", ["sh", "-c", "pwd; stty size; read x"], tmp_path, TAGS, size=(120, 30))
    wait_until(lambda: tmux.capture(pane.pane_id).replace("\n", "") == f"{tmp_path}30 120", "directory (which may wrap) and size")


def test_arguments_reach_the_program_byte_for_byte(tmux: Tmux, tmp_path: Path, wait_until: WaitUntil) -> None:
    out = tmp_path / "argv"
    pane = tmux.spawn("a", ["sh", "-c", 'out=$1; shift; printf "%s\\0" "$@" > "$out"', "sh", str(out), *WEIRD], tmp_path, {})
    ended(tmux, pane, wait_until)
    assert out.read_bytes().decode("utf-8", "surrogateescape").split("\0")[:-1] == WEIRD


def test_a_single_word_is_a_program_and_not_a_shell_line(tmux: Tmux, tmp_path: Path, wait_until: WaitUntil) -> None:
    path = tmp_path / "my prog; touch x"
    path.write_text(f"#!/bin/sh\necho $$ > {shlex.quote(str(tmp_path))}/pid\n")
    path.chmod(0o755)
    pane = tmux.spawn("a", [str(path)], tmp_path, {})
    ended(tmux, pane, wait_until)
    assert (tmp_path / "pid").read_text().strip() == str(pane.pid)


@pytest.mark.parametrize("script", ["exit 0", "exit 7", "kill -9 $$", "kill -15 $$"])
def test_a_pane_that_ended_keeps_its_tags(tmux: Tmux, tmp_path: Path, wait_until: WaitUntil, script: str) -> None:
    pane = tmux.spawn("a", ["sh", "-c", script], tmp_path, TAGS)
    assert dict(ended(tmux, pane, wait_until).tags) == TAGS


def test_every_end_is_told(tmux: Tmux, tmp_path: Path, wait_until: WaitUntil) -> None:
    """A tmux with libutempter misses one end in ten of such programs until the next program ends, so one at a time."""
    for number in range(30):
        pane = tmux.spawn(f"a{number}", ["sh", "-c", f"seq 1 300; printf last; exit {number}"], tmp_path, {}, size=(80, 10))
        assert ended(tmux, pane, wait_until).closed


def test_a_program_that_closes_its_terminal_is_not_dead(tmux: Tmux, tmp_path: Path, wait_until: WaitUntil) -> None:
    pane = tmux.spawn("a", ["sh", "-c", "trap '' HUP; exec sleep 600 <&- >&- 2>&-"], tmp_path, {})
    wait_until(lambda: (seen := view(tmux, pane)) is not None and seen.closed, "the closed terminal")
    os.kill(pane.pid, 0)
    seen = view(tmux, pane)
    assert seen is not None and not seen.dead
    os.kill(pane.pid, signal.SIGKILL)
    ended(tmux, pane, wait_until)


def test_the_whole_last_screen_is_kept(tmux: Tmux, tmp_path: Path, wait_until: WaitUntil) -> None:
    whole = "\n".join([*map(str, range(1, 301)), "last"])
    pane = tmux.spawn("a", ["sh", "-c", "stty -echo; seq 1 300; printf last; read x"], tmp_path, {}, size=(80, 10))
    wait_until(lambda: tmux.capture(pane.pane_id) == whole, "the output")
    tmux.send_text(pane.pane_id, "")
    ended(tmux, pane, wait_until)
    assert tmux.capture(pane.pane_id) == whole
    assert tmux.capture(pane.pane_id, history=False) == "\n".join([*map(str, range(292, 301)), "last"])


def test_a_screen_full_of_protocol_does_not_shift_the_answers(tmux: Tmux, tmp_path: Path, wait_until: WaitUntil) -> None:
    forged = "printf '%%end %s %s 1\\n%%begin %s %s 1\\n' $t $n $t $n"
    script = f"s=$(date +%s); for n in $(seq 1 250); do for t in $s $((s+1)); do {forged}; done; done; printf whole; read x"
    pane = tmux.spawn("a", ["sh", "-c", script], tmp_path, {}, size=(80, 50))
    wait_until(lambda: tmux.capture(pane.pane_id).endswith("whole"), "the output")
    for _ in range(20):
        assert len(tmux.capture(pane.pane_id).splitlines()) == 1001
        assert lives(tmux, pane.session_id)


def test_tags_are_there_from_the_first_moment(tmux: Tmux, socket: Path, tmp_path: Path) -> None:  # E7
    stop = threading.Event()
    untagged: list[PaneView] = []

    def watch() -> None:
        with Tmux(socket) as other:
            while not stop.is_set():
                untagged.extend(one for one in other.panes() if not one.control and not one.tags)

    tmux.ensure_server()
    watcher = threading.Thread(target=watch)
    watcher.start()
    for number in range(40):
        tmux.spawn(f"a{number}", ["cat"], tmp_path, TAGS)
    stop.set()
    watcher.join()
    assert untagged == []


def test_tags_are_readable_by_hand_too(tmux: Tmux, ask_tmux: AskTmux, tmp_path: Path) -> None:
    pane = tmux.spawn("a", ["cat"], tmp_path, TAGS)
    assert ask_tmux("display-message", "-p", "-t", pane.session_id, "#{@nightcrew_task} #{@nightcrew_epoch}") == "r1/fix 2\n"


def test_a_taken_name_is_told_apart_and_left_alone(tmux: Tmux, tmp_path: Path) -> None:
    first = tmux.spawn("a", ["cat"], tmp_path, TAGS)
    with pytest.raises(SessionExists):
        tmux.spawn("a", ["cat"], tmp_path, {"task": "other"})
    assert [pane.tags for pane in tmux.panes() if not pane.control] == [TAGS]
    assert lives(tmux, first.session_id)


def test_stopping_one_never_touches_a_longer_name(tmux: Tmux, tmp_path: Path) -> None:  # I05
    short, long = (tmux.spawn(name, ["cat"], tmp_path, {}) for name in ("agent-1", "agent-10"))
    assert tmux.kill_session(short.session_id)
    assert (lives(tmux, short.session_id), lives(tmux, long.session_id)) == (False, True)
    assert not tmux.kill_session(short.session_id)


@pytest.mark.parametrize("name", ["", "a.b", "a:b", "A", "_control", "#{pid}", "a b", "é", "x" * 49])
def test_a_name_that_tmux_would_change_is_refused(tmux: Tmux, tmp_path: Path, name: str) -> None:  # I03
    with pytest.raises(ValueError, match="session name"):
        tmux.spawn(name, ["cat"], tmp_path, {})


@pytest.mark.parametrize("name", ["-x", "0", "--", "x" * 48])
def test_odd_names_that_tmux_keeps_work(tmux: Tmux, tmp_path: Path, name: str) -> None:
    pane = tmux.spawn(name, ["cat"], tmp_path, TAGS)
    seen = view(tmux, pane)
    assert seen is not None and (seen.session_name, seen.tags) == (name, TAGS)


@pytest.mark.parametrize("key", ["pane", "control", "A", "a b", ""])
def test_a_tag_that_would_hide_ours_is_refused(tmux: Tmux, tmp_path: Path, key: str) -> None:
    with pytest.raises(ValueError, match="tag"):
        tmux.spawn("a", ["cat"], tmp_path, {key: "x"})


@pytest.mark.parametrize("target", ["", "a", "=a", "$", "$1;kill-server", "%x"])
def test_only_ids_are_addresses(tmux: Tmux, target: str) -> None:
    with pytest.raises(ValueError, match="id"):
        tmux.kill_session(target)


def test_a_missing_directory_and_an_overlong_argument_are_named(tmux: Tmux, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="gone"):
        tmux.spawn("a", ["cat"], tmp_path / "gone", {})
    with pytest.raises(ToolFailed, match="by file"):
        tmux.spawn("a", ["echo", "x" * (ARG_MAX + 1)], tmp_path, {})
    tmux.ensure_server()
    with pytest.raises(NotFound, match="%99"):
        tmux.capture("%99")


def test_what_the_user_does_by_hand_is_followed_by_id(
    tmux: Tmux, ask_tmux: AskTmux, tmp_path: Path, wait_until: WaitUntil
) -> None:  # P17 P18
    pane = tmux.spawn("a", ["cat"], tmp_path, TAGS)
    ask_tmux("rename-session", "-t", "=a", "my: #{pid} \\ | name")
    ask_tmux("rename-window", "-t", pane.pane_id, "mine")
    ask_tmux("split-window", "-t", pane.pane_id, "--", "sh", "-c", "printf '\\033]2;a title | with %% \\\\ ; $1\\033\\\\'; cat")
    wait_until(lambda: any("a title" in one.title for one in tmux.panes()), "the title of the split")
    ours, theirs = (one for one in tmux.panes() if one.session_id == pane.session_id)
    assert (ours.pane_id, dict(ours.tags), ours.session_name.startswith("my")) == (pane.pane_id, TAGS, True)
    assert (dict(theirs.tags), theirs.title) == ({}, "a title | with % \\ ; $1")
    ask_tmux("break-pane", "-d", "-s", pane.pane_id)
    ask_tmux("new-session", "-d", "-t", pane.session_id)
    shown = [one for one in tmux.panes() if one.pane_id == pane.pane_id]
    assert [(one.session_id, dict(one.tags)) for one in shown] == [(pane.session_id, TAGS)]
    ask_tmux("kill-pane", "-t", pane.pane_id)
    assert (view(tmux, pane), lives(tmux, pane.session_id)) == (None, True)


def test_a_session_closed_by_hand_is_seen(tmux: Tmux, ask_tmux: AskTmux, tmp_path: Path) -> None:  # P17
    pane = tmux.spawn("a", ["cat"], tmp_path, TAGS)
    ask_tmux("kill-session", "-t", pane.session_id)
    assert (view(tmux, pane), lives(tmux, pane.session_id)) == (None, False)


def test_rows_survive_values_that_only_a_hostile_user_can_set() -> None:
    rows = ["$1 %4 77 0 1 3   task\\=a\\%20b my\\ name", "second line $9 %9 1", "$2 %3 78 1 0   1  _control \\ti\\ \\\\\\ tle"]
    control, damaged = parse_panes(rows)
    assert (control.pane_id, control.control, control.dead, control.title) == ("%3", True, False, "ti \\ tle")
    assert (damaged.pane_id, damaged.dead, dict(damaged.tags), damaged.session_name) == ("%4", True, {"task": "a b"}, "my name")


def test_a_signal_may_have_a_name() -> None:
    row = "$1 %4 77 0 1  {}   a b"
    assert [parse_panes([row.format(said)])[0].dead for said in ("9", "kill", "SIGTERM", "odd", "")] == [True, True, True, True, False]


def test_no_text_is_ever_executed(  # I03
    socket: Path, short_dir: Path, wait_until: WaitUntil, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(short_dir))
    cwd = short_dir / f"a {PAYLOAD} #[b #{{pid}} ##"
    cwd.mkdir()
    with Tmux(socket) as tmux:
        pane = tmux.spawn("a", ["sh", "-c", 'pwd; printf "\\033]2;%s\\033\\\\" "$1"; cat', "sh", PAYLOAD], cwd, {"task": PAYLOAD})
        tmux.send_text(pane.pane_id, PAYLOAD)
        wait_until(lambda: (seen := view(tmux, pane)) is not None and seen.title == PAYLOAD, "the title")
        wait_until(lambda: tmux.capture(pane.pane_id).count("touch canary)") >= 3, "directory, typed text and its echo")
        assert cwd.name in tmux.capture(pane.pane_id).replace("\n", "")
        seen = view(tmux, pane)
        assert seen is not None and dict(seen.tags) == {"task": PAYLOAD}
        tmux._ask(("display-message", "-p", PAYLOAD.replace("canary", "proof")))  # where formats are expanded the same text does run
        wait_until((short_dir / "proof").exists, "the proof that the payload works")
    assert not (short_dir / "canary").exists()


def test_the_server_and_its_panes_see_an_allow_list(  # X16
    socket: Path, short_dir: Path, ask_tmux: AskTmux, wait_until: WaitUntil, monkeypatch: pytest.MonkeyPatch
) -> None:
    (short_dir / ".tmux.conf").write_text("set -g history-limit 5\nset -s exit-empty on\n")
    poison = ("LD_PRELOAD", "PYTHONPATH", "BASH_ENV", "GIT_DIR", "AWS_SECRET_ACCESS_KEY", "ANTHROPIC_API_KEY", "TMUX", "TMUX_PANE")
    for name in poison:
        monkeypatch.setenv(name, "/poison")
    monkeypatch.setenv("HOME", str(short_dir))
    with Tmux(socket) as tmux:
        pane = tmux.spawn("a", ["sh", "-c", "env > env"], short_dir, {})
        ended(tmux, pane, wait_until)
        assert "/poison" not in (short_dir / "env").read_text()
        pid = tmux.ensure_server()
    assert b"/poison" not in Path(f"/proc/{pid}/environ").read_bytes()
    monkeypatch.undo()
    assert ask_tmux("show-options", "-gv", "history-limit") == "10000\n"
    assert ask_tmux("show-options", "-sv", "exit-empty") == "off\n"
    assert ask_tmux("show-options", "-gv", "update-environment").strip() == ""
