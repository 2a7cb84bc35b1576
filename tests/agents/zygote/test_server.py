"""The zygote itself: what it refuses, what it survives, how it is found again, and many forks at once."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from agents import zygote
from agents.zygote import lifecycle
from supervisor.host import procfs
from supervisor.kernel.errors import Refused, TimedOut
from tests.agents.runner.kit import ROOT, until
from tests.agents.zygote import kit
from tests.agents.zygote.kit import PRELOAD, Warm, write_request


@pytest.fixture
def client(compiled_client: Path) -> Path:
    """One is enough here."""
    return compiled_client


def connect(place: zygote.Place) -> socket.socket:
    handle = socket.socket(socket.AF_UNIX, lifecycle.KIND)
    handle.settimeout(20)
    handle.connect(os.fspath(place.socket))
    return handle


IDLE = 7
"""Handles of a zygote that serves nobody: 0, 1, 2, the lock, the listener, and both ends of the pipe that signals come by."""


def handles_of(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def serves(warm: Warm) -> None:
    """It still forks runners, whatever happened before, and holds nothing of that."""
    assert warm.run(warm.attempt("sh", "-c", "exit 3")) == (3, "")


def test_the_record_says_who_it_is_and_what_it_has(served: zygote.Place) -> None:
    record = zygote.find(served)
    assert record is not None
    seen = procfs.look(record.identity.pid)
    assert seen is not None and (seen.ticks, procfs.boot_id()) == (record.identity.ticks, record.identity.boot_id)
    assert record.preload == PRELOAD
    assert 5e6 < record.rss < 5e8 and 0 < record.seconds < 60
    for path in (served.socket, served.record, served.lock, served.log):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    assert stat.S_IMODE(served.socket.parent.stat().st_mode) == 0o700


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": 1}', '{"pid": "x", "ticks": 1, "boot_id": "b"}', "[" * 100_000])
def test_a_record_that_is_not_whole_is_none(text: str, tmp_path: Path) -> None:
    place = zygote.Place(tmp_path / "z")
    place.record.write_text(text)
    assert place.read() is None
    assert zygote.find(place) is None


def test_a_record_that_names_another_process_finds_nobody(served: zygote.Place, tmp_path: Path) -> None:
    """Who could write the record could have us kill whom it names."""
    place = zygote.Place(tmp_path / "z")
    me = procfs.look(os.getpid())
    assert me is not None
    shape = json.loads(served.record.read_text()) | {"pid": me.pid, "ticks": me.ticks}
    place.record.write_text(json.dumps(shape))
    assert place.read() is not None
    assert zygote.find(place) is None
    assert not zygote.stop(place)


def test_it_keeps_no_variable_no_handle_and_no_directory_of_its_starter(tmp_path: Path) -> None:
    """A canary in the starter's environment and an inherited handle on a file: neither is in the zygote, nor in its first image."""
    secret = os.open(tmp_path / "secret", os.O_RDWR | os.O_CREAT)
    os.set_inheritable(secret, True)
    with kit.place() as place:
        argv = zygote.Wanted(PRELOAD, env=("PATH",)).argv(place)
        environ = {**os.environ, "CANARY": "canary-value"}
        process = subprocess.Popen(argv, env=environ, cwd=tmp_path, stdin=subprocess.DEVNULL, close_fds=False)
        try:
            until(lambda: zygote.find(place), "ready")
            environment = Path(f"/proc/{process.pid}/environ").read_bytes()
            assert b"canary-value" not in environment and b"PATH=" in environment
            links = {os.readlink(f"/proc/{process.pid}/fd/{name}") for name in os.listdir(f"/proc/{process.pid}/fd")}
            assert str(tmp_path / "secret") not in links
            assert os.readlink(f"/proc/{process.pid}/cwd") == "/"
        finally:
            os.close(secret)
            process.kill()
            process.wait()


def test_a_second_zygote_of_one_socket_is_refused_and_the_first_goes_on(warm: Warm) -> None:
    with pytest.raises(Refused, match="zygote already"):
        zygote.start(warm.place, zygote.Wanted(), os.environ)
    serves(warm)


def test_one_that_was_killed_is_replaced(tmp_path: Path, client: Path) -> None:
    with kit.living(zygote.Wanted()) as place, kit.attempts(tmp_path) as lab:
        record = zygote.find(place)
        assert record is not None
        os.kill(record.identity.pid, signal.SIGKILL)
        until(lambda: zygote.find(place) is None, "its end")
        assert place.socket.exists() and place.record.exists()
        second = zygote.start(place, zygote.Wanted(), os.environ)
        try:
            serves(Warm(place, client, lab))
        finally:
            second.process.kill()
            second.process.wait()


def test_stopped_it_leaves_nothing_but_its_runners(mortal: Warm) -> None:
    attempt = mortal.attempt("sh", "-c", "echo begun; until test -e go; do sleep 0.01; done; exit 9")
    client = mortal.start(attempt)
    attempt.heard()
    assert zygote.stop(mortal.place)
    assert not mortal.place.socket.exists() and not mortal.place.record.exists()
    assert not zygote.stop(mortal.place)
    (mortal.lab.folder / "go").touch()
    assert client.wait(30) == 9
    assert attempt.record().code == 9


MODULES = {
    "starts_one": "import threading, time; threading.Thread(target=time.sleep, args=(60,), daemon=True).start()",
    "fails": "1 / 0",
    "leaves": "raise SystemExit(3)",
}


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("starts_one", "on starts_one: importing it started 1 more thread"),
        ("fails", "on fails: ZeroDivisionError"),
        ("leaves", "on leaves: SystemExit"),
        ("absent", "absent: ModuleNotFoundError"),
    ],
)
def test_what_cannot_be_preloaded_is_refused_by_name(name: str, why: str, tmp_path: Path) -> None:
    for module, source in MODULES.items():
        (tmp_path / f"{module}.py").write_text(source)
    with kit.place() as place, pytest.raises(Refused) as refused:
        zygote.start(place, zygote.Wanted(("decimal", name, "json"), (str(tmp_path),)), os.environ)
    assert name in str(refused.value) and why.partition(": ")[2] in str(refused.value)


def test_one_that_does_not_get_ready_is_ended(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(f"import os, time; open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid())); time.sleep(60)")
    with kit.place() as place, pytest.raises(TimedOut):
        zygote.start(place, zygote.Wanted(("slow",), (str(tmp_path),)), os.environ, timeout_s=1.5)
    pid = tmp_path / "pid"
    assert not pid.exists() or procfs.look(int(pid.read_text())) is None


def test_a_socket_whose_path_is_too_long_is_refused(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 120)
    with pytest.raises(Refused, match="path too long"):
        zygote.start(zygote.Place(deep / "zygote.sock"), zygote.Wanted(), os.environ)
    assert not list(deep.glob("*.json"))


Attack = Callable[[zygote.Place, random.Random], list[socket.socket]]


def silence(place: zygote.Place, _dice: random.Random) -> list[socket.socket]:
    return [connect(place) for _ in range(40)]


def empty(place: zygote.Place, _dice: random.Random) -> list[socket.socket]:
    for _ in range(40):
        connect(place).close()
    return []


def rubbish(place: zygote.Place, dice: random.Random) -> list[socket.socket]:
    whole = write_request(lifecycle.Request(b"/tmp", {b"A": b"b"}))
    for _ in range(200):
        data = bytearray(whole)
        for _ in range(dice.randrange(4)):
            data[dice.randrange(len(data))] = dice.randrange(256)
        with connect(place) as handle, contextlib.suppress(OSError):
            handle.send(bytes(data[: dice.choice([len(data), dice.randrange(1, len(data))])]))
            handle.send(dice.randbytes(dice.randrange(1, 500)))
    return []


def foreign_handles(place: zygote.Place, _dice: random.Random) -> list[socket.socket]:
    """Too few, too many at once, and too many in pieces, of which there could be so many that a careless reader runs out of handles."""
    null = os.open(os.devnull, os.O_RDWR)
    whole = write_request(lifecycle.Request(b"/tmp", {}))
    held = []
    for count in (0, 1, 2, 4, 50):
        handle = connect(place)
        socket.send_fds(handle, [whole], [null] * count)
        held.append(handle)
        if count < 3:
            assert handle.recv(lifecycle.ANSWER).startswith(b"no three handles are needed")
    pieces = connect(place)
    socket.send_fds(pieces, [whole[:6]], [null] * 3)
    with contextlib.suppress(OSError):
        socket.send_fds(pieces, [whole[6:]], [null] * 3)
    assert said(pieces) == b"", "closed without a word"
    os.close(null)
    return [*held, pieces]


def said(handle: socket.socket) -> bytes:
    try:
        return handle.recv(lifecycle.ANSWER)
    except ConnectionResetError:
        return b""


def half(place: zygote.Place, _dice: random.Random) -> list[socket.socket]:
    handle = connect(place)
    handle.send(b"\xff\xff\0\0half")
    return [handle]


def oversize(place: zygote.Place, _dice: random.Random) -> list[socket.socket]:
    handle = connect(place)
    handle.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2**20)
    with contextlib.suppress(OSError):
        handle.send(b"\xff" * 190_000)
    return [handle]


@pytest.mark.parametrize("attack", [silence, empty, rubbish, foreign_handles, half, oversize])
def test_no_client_can_stop_the_others(warm: Warm, attack: Attack, seed: int) -> None:
    pid = warm.pid()
    held = attack(warm.place, random.Random(seed))
    serves(warm)
    for handle in held:
        handle.close()
    assert warm.pid() == pid
    until(lambda: handles_of(pid) == IDLE, "it holds nothing of them")


def test_with_very_many_silent_clients_the_oldest_is_let_go(warm: Warm) -> None:
    held = [connect(warm.place) for _ in range(200)]
    serves(warm)
    assert held[0].recv(1) == b"", "closed"
    for handle in held:
        handle.close()


def test_a_silent_client_is_let_go_after_some_seconds(warm: Warm) -> None:
    with connect(warm.place) as handle:
        assert handle.recv(1) == b""


def test_another_user_is_turned_away(tmp_path: Path, client: Path) -> None:
    """The socket's mode keeps others out already; here it is opened on purpose, so that the check behind it is seen."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("needs root, to become another user")
    ask = (
        f"import socket; s = socket.socket(socket.AF_UNIX, {int(lifecycle.KIND)}); s.connect('{{}}'); s.settimeout(20)\n"
        "try: s.send(bytes(4)); print(s.recv(9))\n"
        "except OSError as error: print(error)"
    )
    with kit.living(zygote.Wanted()) as place, kit.attempts(tmp_path) as lab:
        python = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "/usr/bin/env", "python3"]
        if subprocess.run([*python, "-c", ""], capture_output=True, check=False).returncode:
            pytest.skip("the other user has no Python")
        argv = [*python, "-c", ask.format(place.socket)]
        closed = subprocess.run(argv, capture_output=True, text=True, check=False)
        assert "PermissionError" in closed.stderr
        place.socket.chmod(0o777)
        place.socket.parent.chmod(0o755)
        opened = subprocess.run(argv, capture_output=True, text=True, check=False)
        assert opened.stdout in ("b''\n", "[Errno 32] Broken pipe\n", "[Errno 104] Connection reset by peer\n"), opened.stderr
        serves(Warm(place, client, lab))


def test_fifty_at_once_all_end_and_are_recorded(warm: Warm) -> None:
    made = [warm.program("import sys, time; print('up', flush=True); sys.exit(int(sys.argv[1]))", str(number)) for number in range(50)]
    clients = [warm.start(attempt) for attempt in made]
    assert [client.wait(60) for client in clients] == list(range(50))
    assert [attempt.record().code for attempt in made] == list(range(50))
    assert {attempt.read("stdout.log") for attempt in made} == {b"up\n"}
    assert len({warm.runner(attempt) for attempt in made}) == 50
    children = Path(f"/proc/{warm.pid()}/task/{warm.pid()}/children")
    until(lambda: not children.read_text(), "all reaped: a runner tells its client that it ends before it does")


def test_agents_hold_nothing_of_one_another(warm: Warm) -> None:
    first = warm.attempt("sh", "-c", "echo up; exec sleep 60")
    warm.start(first)
    first.heard()
    second = warm.program("import os; print(*(os.readlink(f'/proc/self/fd/{fd}') for fd in os.listdir('/proc/self/fd')[:3]))")
    names = warm.lines(second)[0].split()
    assert len(names) == 3 and names[0] == "/dev/null"
    runner = warm.runner(first)
    targets = [os.readlink(f"/proc/{runner}/fd/{name}") for name in os.listdir(f"/proc/{runner}/fd")]
    assert sum(target.startswith("socket:") for target in targets) == 1, "its own connection and no other"
    until(lambda: handles_of(warm.pid()) == IDLE + 1, "and the zygote holds no terminal and no pipe, only that connection")
    os.kill(runner, signal.SIGTERM)


UNREACHABLE = """
import sys
sys.path.append(sys.argv.pop(1))
from agents.zygote import __main__, server
server._LOOK_S = 0.05
sys.exit(__main__.main([*sys.argv[1:], "--room", "." * 9000]))
"""


def test_one_that_nobody_can_reach_any_more_ends_itself() -> None:
    with kit.place() as place:
        argv = [sys.executable, "-I", "-c", UNREACHABLE, str(ROOT), str(place.socket)]
        process = subprocess.Popen(argv, env={**os.environ, "NIGHTCREW_ROOM": "x"}, stdin=subprocess.DEVNULL)
        try:
            until(place.read, "ready")
            place.socket.unlink()
            assert process.wait(30) == 0
        finally:
            process.kill()
            process.wait()
