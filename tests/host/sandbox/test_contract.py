"""What both executors promise in each tier, to the agent and to whoever waits for it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from dataclasses import replace
from pathlib import Path

import pytest

from supervisor.host.paths import Home
from supervisor.sandbox import executors
from supervisor.sandbox.policy import Tier
from tests.host.sandbox.kit import PYTHON, Box, children, living
from tests.support import git, signal_if_there, wait_until

pytestmark = pytest.mark.in_turns
ASK = "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); print(s.recv(32).decode())"


def test_inside_is_an_ordinary_worktree_and_a_commit_stays_there(box: Box) -> None:
    before = git(box.house.repo, "for-each-ref")
    git(box.house.worktree, "checkout", "-q", "--", "README")  # another test in the same house may have changed it
    script = "git status --short; echo work > new; git add new; git commit -qm work; git status --short; git fsck --strict --no-dangling"
    done = box.run("sh", "-ec", f"{script}; git rev-parse HEAD")
    assert done.returncode == 0, done.stderr
    assert git(box.house.private, "--git-dir=.", "rev-parse", "nightcrew/run/mine/work") == done.stdout.strip()
    assert git(box.house.repo, "for-each-ref") == before
    assert git(box.house.repo, "fsck", "--strict", "--no-dangling") == ""


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    "words",
    [
        ["stash"], ["branch", "mine"], ["tag", "mine"], ["worktree", "prune"], ["config", "user.name", "x"], ["gc", "-q"],
        ["pack-refs", "--all"], ["fetch", "-q", ".", "main:other"], ["worktree", "add", "-q", "--detach", "/tmp/second"],
        ["notes", "add", "-m", "x"],
    ],
    ids=lambda words: "-".join(words[:2]),
)  # fmt: skip
def test_what_git_does_beyond_the_branch_works_and_stays_inside(box: Box, words: list[str]) -> None:
    refs, config = git(box.house.repo, "for-each-ref"), (box.house.repo / ".git" / "config").read_text()
    done = box.run(
        "sh",
        "-c",
        'git reset -q --hard; rm -rf /tmp/second; git branch -qD mine other; git tag -d mine; echo changed >> README; git "$@"',
        "sh",
        *words,
    )
    assert done.returncode == 0 or (words[0] == "notes" and "existing notes" in done.stderr), done.stderr
    assert (git(box.house.repo, "for-each-ref"), (box.house.repo / ".git" / "config").read_text()) == (refs, config)
    assert git(box.house.neighbour, "status", "--short") == ""


def test_the_persons_git_goes_on_beside_it(box: Box) -> None:
    """Packing refs, collecting garbage, renaming the agent's branch: its own repository stays whole."""
    go = box.house.worktree / "go"
    go.unlink(missing_ok=True)
    commit = "git commit -q --allow-empty -m"
    script = f"{commit} early; echo up; while [ ! -e go ]; do sleep 0.02; done; {commit} late; git fsck --strict; git rev-parse HEAD~2"
    with box.start("sh", "-ec", script) as agent:
        assert agent.stdout is not None
        agent.stdout.readline()
        git(box.house.repo, "pack-refs", "--all", "--prune")
        git(box.house.repo, "gc", "-q", "--prune=now")
        git(box.house.repo, "worktree", "prune")
        go.touch()
        base = agent.stdout.read().decode().strip()
    assert base != ""
    assert git(box.house.repo, "rev-parse", "nightcrew/run/mine/work") != ""


def test_it_reads_the_memory_of_its_project_and_nothing_beside_it(box: Box) -> None:
    memory = box.house.memory
    done = box.run("sh", "-ec", f"cat {memory}/core.md {memory}/semantic/fact.md; ls {memory.parent}; ls {memory.parent.parent}")
    assert done.returncode == 0, done.stderr
    told = f"known: {box.house.canary}"
    assert done.stdout == f"{told}{told}memory\nproject\n"


def test_a_memory_that_became_a_link_is_not_shown(tmp_path: Path) -> None:
    home = Home(tmp_path / "state")
    memory = home.memory("project")
    memory.mkdir(parents=True)
    assert executors.unmoved(home, memory) == str(memory)
    memory.rmdir()
    memory.symlink_to("/etc")
    assert executors.unmoved(home, memory) == ""


def test_the_places_of_its_own(box: Box) -> None:
    attempt = box.house.attempt
    script = (
        f"echo a > /tmp/a; echo b > $TMPDIR/b; echo c > {attempt}/out/c; echo d > $HOME/.claude/d; echo e >> $HOME/.claude.json; "
        f"cat {attempt}/prompt.md"
    )
    done = box.run("sh", "-ec", script)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == "prompt.md"
    assert (attempt / "tmp" / "a").read_text() + (attempt / "tmp" / "b").read_text() + (attempt / "out" / "c").read_text() == "a\nb\nc\n"
    own = attempt / "home" / str(box.house.user.resolve()).lstrip("/")
    assert (own / ".claude" / "d").read_text() + (own / ".claude.json").read_text() == "d\n{}e\n"
    assert not (box.house.user / ".claude" / "d").exists()
    assert (box.house.user / ".claude.json").read_text() == "{}"


def test_its_two_doors(box: Box) -> None:
    for name, path in (("agents", box.house.home.agents_socket), ("gateway", box.house.home.gateway_socket)):
        assert box.python(ASK, str(path)).stdout == f"I am {name}\n"


def test_its_own_loopback(box: Box) -> None:
    program = "import socket; d = socket.create_server(('127.0.0.1', 0)); c = socket.create_connection(d.getsockname()); print('met')"
    assert box.python(program).stdout == "met\n"


def test_it_holds_no_right_and_can_gain_none(box: Box) -> None:
    status = dict(
        line.split(":\t")
        for line in box.run("grep", "-E", "^(Cap(Prm|Eff|Inh|Amb)|NoNewPrivs|Seccomp):", "/proc/self/status").stdout.splitlines()
    )
    assert {status[name] for name in ("CapPrm", "CapEff", "CapInh", "CapAmb")} == {"0" * 16}
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")


@pytest.mark.in_turns
@pytest.mark.parametrize(
    ("command", "status"),
    [("exit 0", 0), ("exit 7", 7), ("kill -TERM $$", 143), ("kill -KILL $$", 137), ("exec no-such-command", 127), ("exec /dev/null", 126)],
)
def test_how_it_ends_is_told(box: Box, command: str, status: int) -> None:
    assert box.run("sh", "-c", command).returncode == status


def test_a_command_that_is_not_there(box: Box) -> None:
    done = box.run("no-such-command")
    assert (done.returncode, "no-such-command" in done.stderr) == (127, True)


def test_what_it_leaves_behind_ends_with_it(box: Box) -> None:
    marker = uuid.uuid4().hex
    program = """
import os, sys
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        print('left', flush=True)
        os.closerange(0, 3)
        os.execvp(sys.argv[1], [*sys.argv[1:]])
    os._exit(0)
os.wait()
print('gone')
"""
    done = box.python(program, *PYTHON, "-c", "import time; time.sleep(600)", marker)
    assert "gone" in done.stdout
    wait_until(lambda: not living(marker), "what was left to end", 10)


@pytest.mark.parametrize("victim", ["outer", "parent"])
def test_nobody_inside_outlives_who_waits_outside(box: Box, victim: str) -> None:
    parent = "import subprocess, sys; subprocess.Popen(sys.argv[1:]).wait()"
    words = [*box.prefix, "sh", "-c", "sleep 600; true"]
    top = subprocess.Popen([*PYTHON, "-c", parent, *words], cwd=box.house.worktree, start_new_session=True)
    below: list[int] = []
    try:
        wait_until(lambda: len(children(top.pid)) >= 4 + (box.tier is Tier.OFFLINE), "outer, init, sh, sleep; the loopback proxy in tier 2")
        below = children(top.pid)
        os.kill(below[0] if victim == "outer" else top.pid, signal.SIGKILL)
        wait_until(lambda: not any(map(_lives, below)), "everything inside to end", 10)
    finally:
        for pid in [top.pid, *filter(_lives, below)]:
            signal_if_there(pid)
        top.wait()


def test_a_polite_stop_of_the_whole_tree_leaves_the_agent_its_grace(box: Box) -> None:
    with box.start("sh", "-c", "trap 'echo saved; exit 5' TERM; echo up; while :; do sleep 0.02; done") as agent:
        assert agent.stdout is not None
        agent.stdout.readline()
        for pid in [agent.pid, *children(agent.pid)]:
            signal_if_there(pid, signal.SIGTERM)
        assert agent.stdout.read() == b"saved\n"
        assert agent.wait() == 5


def test_what_it_sends_to_its_own_group_stays_inside(box: Box) -> None:
    with subprocess.Popen([*box.prefix, "sh", "-c", "kill -KILL 0"], cwd=box.house.worktree, process_group=0) as agent:
        assert agent.wait() == 137  # an exit status that the process outside told, and no signal that reached it


def test_orphans_are_collected(box: Box) -> None:
    program = """
import os, time
def there(): return {name for name in os.listdir('/proc') if name.isdigit()}
before = there()
for _ in range(20):
    if os.fork() == 0:
        if os.fork() == 0: os._exit(0)
        os._exit(0)
    os.wait()
until = time.monotonic() + 10
while (left := there() - before) and time.monotonic() < until: time.sleep(0.01)
print(len(left))
"""
    assert box.python(program).stdout == "0\n"


def test_no_handle_of_ours_comes_in(box: Box) -> None:
    program = "import os; print(sorted(int(n) for n in os.listdir('/proc/self/fd') if os.path.exists(f'/proc/self/fd/{n}')))"
    assert box.python(program).stdout == "[0, 1, 2]\n"


def test_a_place_that_is_not_there_is_refused(box: Box) -> None:
    policy = box.house.policy(box.tier)
    broken = box.house.prefix(box.executor, replace(policy, writable=(*policy.writable, "/no/such/place")))
    done = box.house.run(broken, "true")
    assert done.returncode != 0
    assert "/no/such/place" in done.stderr


def test_tier_two_knows_no_network_but_its_own(box: Box) -> None:
    names = box.python("import socket; print(*[name for _, name in socket.if_nameindex()])").stdout.split()
    host = subprocess.run(
        [sys.executable, "-c", "import socket; print(*[n for _, n in socket.if_nameindex()])"], capture_output=True, text=True, check=True
    )
    assert "lo" in names
    assert (names == host.stdout.split()) == (box.tier is Tier.FILES)


def _lives(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
