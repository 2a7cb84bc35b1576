"""`attach` and `up` as a person at a terminal meets them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from agents.tmux import Tmux
from supervisor.server import lock
from tests.cli.terminal import COMMAND, Terminal
from tests.support import House, wait_until

Open = Callable[..., Terminal]


def start(house: House, *words: str, name: str = "agent") -> None:
    house.ok("add", "--id", name, *words)
    wait_until(lambda: house.state(name) == "running" and house.task(name).attempt_state == "running", f"{name} to run")


def test_attach_shows_the_pane_and_detaching_changes_nothing(house: House, terminal: Open) -> None:
    house.start_daemon()
    start(house, "echo 'what the agent says'; sleep 600")
    here = terminal()
    here.nightcrew("attach")
    screen = here.sees("what the agent says")
    assert f"nightcrew {house.task('agent').id.replace('/', '_')}_1" in screen, "the status line says whose pane it is"
    assert "Ctrl-b Ctrl-b d leaves: it goes on" in screen, "the terminal of these tests is a tmux, whose own prefix comes first"
    here.type("nobody hears this")
    here.sees("nobody hears this")  # keys that come in one go with a text are pasted ones for tmux, and no bindings
    here.press("C-b", "d")
    screen = here.sees("left with 0")
    assert f"nightcrew: {house.task('agent').id} is running" in screen
    assert house.state("agent") == "running"


def test_typing_reaches_an_agent_of_kind_terminal(house: House, terminal: Open) -> None:
    house.start_daemon()
    start(house, "--kind", "terminal", 'read line; echo "$line" > heard; exit 3')
    here = terminal()
    here.nightcrew("attach", "agent")
    here.sees("nightcrew ")
    here.type("hello from outside")
    wait_until(lambda: house.task("agent").final, "the agent to end")
    screen = here.sees("left with")
    assert "is failed (exit code 3)" in screen, "attach says how it ended"
    assert house.task("agent").result is not None
    show = house.ok("diff", "agent")
    assert "+hello from outside" in show
    assert "hello from outside" in house.ok("logs", "agent"), "its record is the screen"


def test_attach_from_inside_our_own_server_switches_there(house: House, terminal: Open) -> None:
    house.start_daemon()
    start(house, "--kind", "terminal", "exec sh", name="inner")
    start(house, "echo 'the other one'; sleep 600", name="other")
    here = terminal()
    here.nightcrew("attach", "inner")
    here.sees("nightcrew ")
    inside = {**house.env, "NIGHTCREW_HOME": str(house.home.root)}
    exported = " ".join(f"{name}='{inside[name]}'" for name in ("NIGHTCREW_HOME", "NIGHTCREW_CONFIG"))
    here.type(f"{exported} TERM=screen-256color TMUX={house.home.tmux_socket},1,0 {' '.join(COMMAND)} attach other")
    here.sees("the other one")
    here.press("C-b", "d")
    here.sees("left with 0")
    assert (house.state("inner"), house.state("other")) == ("running", "running")


def test_attach_needs_a_live_agent_and_a_terminal(crew: House) -> None:
    ended = crew.run("attach", "bad")
    assert ended.returncode == 4 and f"it is failed (exit code 7); next: nightcrew logs {crew.task('bad').id}" in ended.stderr
    never = crew.run("attach", "behind")
    assert never.returncode == 4 and "it is skipped" in never.stderr
    wait_until(lambda: crew.task("agent").attempt_state == "running", "the agent to run")
    blind = crew.run("attach", "agent")
    assert blind.returncode == 2 and "attach needs a terminal" in blind.stderr


def test_up_in_a_terminal_shows_the_crew_and_leaves_at_ctrl_c(house: House, terminal: Open) -> None:
    here = terminal()
    here.nightcrew("up")
    here.sees("nothing to do")
    start(house, "echo 'last words'; sleep 600")
    here.sees("last words")
    second = house.run("up")
    assert second.returncode == 6
    here.press("C-c")
    screen = here.sees("left with 0")
    assert "nightcrew: the supervisor left; 1 agent goes on" in screen
    assert house.sessions() == {f"{house.task('agent').id}:1"}
    here.nightcrew("up")
    here.sees("1 running")
    here.hang_up()
    wait_until(lambda: lock.holder(house.home.lock) is None, "the supervisor to leave with its terminal")
    assert house.sessions() == {f"{house.task('agent').id}:1"}, "a closed terminal ends no agent"


def test_the_supervisor_in_the_background_has_a_pane(house: House, terminal: Open) -> None:
    here = terminal()
    here.nightcrew("up", "-d")
    said = here.sees("left with 0")
    assert "the supervisor runs (pid " in said and "gateway" not in said, "without an upstream nothing is said of one"
    start(house, "sleep 600")
    here.nightcrew("attach", "supervisor")
    here.sees("1 running")
    here.press("C-b", "d")
    here.sees("left with 0")
    down = house.run("down")
    assert (down.returncode, down.stdout) == (0, "") and "the supervisor left; 1 agent goes on" in down.stderr
    assert house.run("down").returncode == 5
    wait_until(lambda: house.run("attach", "supervisor").returncode == 5, "its process to end: a dead pane is not shown")
    assert "next: nightcrew up -d" in house.run("attach", "supervisor").stderr
    house.start_daemon()
    house.ok("kill", "agent")
    assert "goes on" not in house.run("down").stderr
    assert house.tmux_pid() is None, "with nobody left the server ends too"


def test_a_supervisor_without_a_pane_of_ours_is_explained(house: House) -> None:
    house.start_daemon()
    done = house.run("attach", "supervisor")
    assert done.returncode == 4 and "it runs in another terminal" in done.stderr


def test_an_agent_cannot_leave_its_mark_on_the_terminal(house: House, terminal: Open) -> None:
    """What it prints is shown by tmux: titles, clipboard and colours stay inside."""
    house.start_daemon()
    start(house, "printf '\\033]0;owned\\007\\033]52;c;b3duZWQ=\\007\\033[31mred'; sleep 600")
    here = terminal()
    here.nightcrew("attach", "agent")
    here.sees("red")
    with Tmux(house.home.tmux_socket) as tmux:
        assert "owned" not in {pane.session_name for pane in tmux.panes()}
    here.press("C-b", "d")
    here.sees("left with 0")
    assert Path(house.repo / ".git").exists()
