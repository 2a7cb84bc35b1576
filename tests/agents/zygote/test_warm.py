"""A program that is run in a fork of the zygote does what it does in an interpreter of its own: both are run, and compared."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
import uuid
import zipfile
from pathlib import Path

import pytest

from agents import zygote
from supervisor.host import processes
from supervisor.kernel import names
from supervisor.kernel.names import TAG_VARIABLE
from tests.agents.runner.kit import ROOT, Attempt, running, until
from tests.agents.zygote import kit
from tests.agents.zygote.kit import Warm

PROGRAMS = {
    "name and arguments": "import sys; print(__name__, sys.argv[1:], __file__ == sys.argv[0], __spec__, __builtins__.__name__)",
    "main is main": "import sys; x = 5; print(sys.modules['__main__'].x, 'f' in dir(), sorted(k for k in globals() if k[0] == '_'))",
    "path": "import sys; print(sys.path[0] == sys.path[1], sys.path)",
    "interpreter": "import sys; print(sys.executable, sys.orig_argv, sys.dont_write_bytecode, sys.prefix, sys.base_exec_prefix)",
    "directory and umask": "import os; print(os.getcwd(), os.umask(0o77))",
    "environment": "import os, subprocess, sys; print(sorted(os.environ.items()), flush=True); subprocess.run(['env', '-0'])",
    "C environment": "import os; print(flush=True) or os.execvp('env', ['env'])",
    "streams": "import sys\nfor f in (sys.stdin, sys.stdout, sys.stderr): print(f.name, f.mode, f.encoding, f.errors, f.newlines,"
    " f.line_buffering, f.write_through, f.isatty(), f.fileno(), type(f), f is getattr(sys, '__' + f.name[1:-1] + '__'))",
    "stdin": "import sys; print(sys.stdin.readline(), input(), sys.stdin.buffer.read())",
    "bytes that are no text": "import sys; print('\\udcff', sys.argv)",
    "handles": "import os; print(sorted(os.listdir('/proc/self/fd'))[:3], len(os.listdir('/proc/self/fd')))",
    "signals": "import signal; print(*(signal.getsignal(n) for n in sorted(signal.valid_signals())), signal.pthread_sigmask(0, []))",
    "signals of a child": "import subprocess; subprocess.run(['grep', '-E', 'Sig(Blk|Ign)', '/proc/self/status'])",
    "limits": "import os, resource as r; print(os.nice(0), os.sched_getaffinity(0), [r.getrlimit(n) for n in range(16)])",
    "group": "import os; print(os.getpgrp() == os.getpid())",
    "locale": "import locale; print(locale.setlocale(locale.LC_CTYPE, None), locale.getpreferredencoding(False))",
    "time zone": "import time; print(time.tzname, time.localtime(0).tm_hour)",
    "collector": "import gc; print(gc.isenabled(), gc.get_threshold(), gc.get_debug())",
    "threads": "import threading; print(threading.current_thread().name, threading.active_count(), threading.main_thread().is_alive())",
    "exit": "import sys; print('a', end=''); sys.exit(7)",
    "exit 256 + 3": "raise SystemExit(259)",
    "exit 2**40 + 5": "raise SystemExit(2**40 + 5)",
    "exit -1": "raise SystemExit(-1)",
    "exit by words": "import sys; sys.exit('because')",
    "exit by nothing": "import sys; sys.exit()",
    "exit by True": "import sys; sys.exit(True)",
    "exception": "def f():\n    1 / 0\nf()",
    "chained exception": "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    raise ValueError('x') from e",
    "group of exceptions": "raise ExceptionGroup('many', [ValueError(1), TypeError(2)])",
    "own exception hook": "import sys; sys.excepthook = lambda *a: print('mine', a[0].__name__); 1 / 0",
    "broken exception hook": "import sys\ndef hook(*a): raise ValueError('hook')\nsys.excepthook = hook\n1 / 0",
    "syntax error": "print('never')\nif",
    "a coding line": "# -*- coding: latin-1 -*-\nprint(ascii('\xe9'))",
    "an undecodable byte": "print('\udcff')",
    "interrupt": "import os, signal; os.kill(os.getpid(), signal.SIGINT)",
    "interrupt, caught": "import signal\ntry:\n    signal.raise_signal(2)\nexcept KeyboardInterrupt: print(1)",
    "interrupt, atexit": "import atexit, os, signal; atexit.register(print, 'last'); os.kill(os.getpid(), signal.SIGINT)",
    "killed": "import os, signal; print('lost', end=''); os.kill(os.getpid(), signal.SIGSEGV)",
    "closed pipe": "import os; r, w = os.pipe(); os.close(r)\ntry: os.write(w, b'x')\nexcept BrokenPipeError: print('EPIPE')",
    "atexit": "import atexit; atexit.register(print, 'one'); atexit.register(print, 'two', flush=True); print('zero')",
    "atexit that fails": "import atexit; atexit.register(lambda: 1 / 0); atexit.register(print, 'two')",
    "thread": "import threading, time; threading.Thread(target=lambda: (time.sleep(.05), print('late'))).start(); print('end')",
    "daemon thread": "import threading, time; threading.Thread(target=time.sleep, args=(60,), daemon=True).start(); print('end')",
    "pool": "from concurrent.futures import ThreadPoolExecutor as P; P().submit(print, 'pooled')",
    "unclosed file": "f = open('left', 'w'); f.write('buffered'); g = open('left2', 'wb'); g.write(b'bytes'); keep = [f, g]",
    "output closed": "import os; print('lost'); os.close(1)",
    "closed stdout": "import sys; print('x'); sys.stdout.close()",
    "no stdout": "import sys; sys.stdout = None",
    "exit at once": "import os; print('kept', flush=True); print('lost'); os._exit(4)",
    "fork": "import os\nif os.fork() == 0: print('child'); raise SystemExit(2)\nprint(os.waitstatus_to_exitcode(os.wait()[1]))",
    "processes": "import multiprocessing as m\nwith m.get_context('fork').Pool(2) as p: print(p.map(abs, [-1, -2]))",
    "pickle": "import pickle\nclass C: pass\nprint(pickle.loads(pickle.dumps(C())).__class__, C.__module__)",
    "own agents package": "import os, sys; os.makedirs('own/agents', exist_ok=True); open('own/agents/__init__.py', 'w').write('x = 1')\n"
    "sys.path.insert(0, 'own'); import agents; print(agents.x, 'supervisor' in sys.modules)",
    "warnings": "import warnings; warnings.warn('careful'); print(warnings.filters)",
    "C output": "import ctypes; ctypes.CDLL(None).printf(b'from C')",
    "traceback module": "import sys, traceback\ntry: 1/0\nexcept Exception: traceback.print_exc(); print(sys._getframe().f_code.co_name)",
}


def outcome(attempt: Attempt, folder: Path) -> tuple[object, ...]:
    record = attempt.record()
    left = tuple(sorted((path.name, path.read_bytes()) for path in folder.iterdir() if path.is_file() and path.suffix != ".py"))
    said = re.sub(rb"0x[0-9a-f]{8,}", b"an address", attempt.read("stderr.log"))
    return record.code, record.signal, record.why, record.detail, attempt.read("stdout.log"), said, left


def both(warm: Warm, /, *argv: str, **changes: object) -> tuple[tuple[object, ...], tuple[object, ...]]:
    """The outcome of an attempt that is forked, and of the same one that is started cold."""
    folder = warm.lab.folder / "here"
    folder.mkdir(exist_ok=True)
    core = min(os.sched_getaffinity(0))
    tag = f"{uuid.uuid4().hex[:16]}:run/task:1"  # one for both, and nobody else's: a runner ends whoever has its tag or mark
    made: dict[str, object] = {
        "cwd": str(folder),
        "stdin": str(warm.lab.folder / "input"),
        "nice": 1,
        "cores": (core,),
        "mark": names.mark(tag),
        **changes,
    }
    (warm.lab.folder / "input").write_text("first\nsecond\nthird\n")
    pair = [warm.attempt(*argv, tag=tag, **made) for _ in range(2)]
    found = []
    for attempt, is_forked in zip(pair, (True, False), strict=True):
        (warm.start(attempt) if is_forked else attempt.start()).communicate(timeout=60)
        found.append(outcome(attempt, folder))
        for file in folder.glob("left*"):
            file.unlink()
    return found[0], found[1]


@pytest.fixture
def forked(served: zygote.Place, tmp_path: Path, compiled_client: Path) -> object:
    """One client is enough here."""
    with kit.attempts(tmp_path) as lab:
        yield Warm(served, compiled_client, lab)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_script_does_what_it_does_in_an_interpreter_of_its_own(forked: Warm, name: str) -> None:
    script = forked.lab.folder / "program.py"
    script.write_bytes(PROGRAMS[name].encode("latin-1" if "latin" in PROGRAMS[name] else "utf-8", "surrogateescape"))
    env = (("PATH", "/usr/bin:/bin"), ("LANG", "C.UTF-8"), ("TZ", "Asia/Tokyo"), (TAG_VARIABLE, "x"))
    warm, cold = both(forked, sys.executable, "-I", str(script), "a", "b c", env=env, rlimits=(("NOFILE", 99),))
    assert warm == cold


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        *(
            ((options), kind)
            for options in [("-I",), ("-I", "-u"), ("-IB",), (), ("-P",), ("-s", "-E", "-q")]
            for kind in ("script", "module")
        ),
        *(((), kind) for kind in ("relative", "package", "no such module", "no such script")),
    ],
    ids=str,
)
def test_options_and_kinds(forked: Warm, options: tuple[str, ...], kind: str) -> None:
    here = forked.lab.folder / "here"
    here.mkdir()
    source = "import sys; print(__name__, __package__, sys.argv, sys.path, sys.orig_argv, sys.stdout.write_through, __file__)\n1 / 0"
    (here / "named.py").write_text(source)
    (here / "pack").mkdir()
    (here / "pack" / "__init__.py").touch()
    (here / "pack" / "__main__.py").write_text(source)
    words = {
        "script": [str(here / "named.py")],
        "relative": ["named.py"],
        "module": ["-m", "named"],
        "package": ["-m", "pack"],
        "no such module": ["-m", "absent"],
        "no such script": ["absent.py"],
    }[kind]
    warm, cold = both(forked, sys.executable, *options, *words, "x")
    assert warm == cold


HOW = "import sys; print('forked' if 'colorsys' in sys.modules else 'cold', sys.path[0], sys.argv, sys.flags.optimize)"


@pytest.mark.parametrize(
    ("how", "argv", "changes"),
    [
        ("forked", ["{python}", "-I", "{script}"], {}),
        ("forked", ["{script}"], {}),
        ("forked", ["./how.py"], {"cwd": "{folder}"}),
        ("forked", ["how.py"], {"env": (("PATH", "/nowhere:{folder}:/bin"),)}),
        ("forked", ["python", "{script}"], {"env": (("PATH", "{bin}:/bin"),)}),
        ("forked", ["{by_env}"], {"env": (("PATH", "{bin}:/bin"),)}),
        ("forked", ["{python}", "-I", "{script}"], {"env": (("PYTHONPATH", "/x"),)}),
        ("cold", ["{python}", "{script}"], {"env": (("PYTHONPATH", "/x"),)}),
        ("cold", ["{python}", "-O", "{script}"], {}),
        ("cold", ["{python}", "-I", "-X", "dev", "{script}"], {}),
        ("cold", ["{python}", "-I", "-c", HOW], {}),
        ("cold", ["{python}", "-I", "{folder}/zipped"], {}),
        ("cold", ["{python}", "-I", "{folder}"], {}),
        ("cold", ["{python}", "-I", "-"], {"stdin": "{script}"}),
        ("cold", ["{python}", "-I"], {"stdin": "{script}"}),
        ("cold", ["{base}", "-I", "{script}"], {}),
        ("cold", ["{python}", "-I", "{script}"], {"env": (("LC_ALL", "de_DE.ISO-8859-1"),)}),
        ("cold", ["sh", "-c", "{python} -I {script}"], {}),
        ("cold", ["{python}", "-I", "{script}"], {"wrap": ("env", "--")}),
        ("cold", ["{python}", "-I", "{script}"], {"warm": False}),
    ],
)
def test_what_is_forked_and_what_is_executed(forked: Warm, how: str, argv: list[str], changes: dict[str, object]) -> None:
    folder = forked.lab.folder
    script, by_env = folder / "how.py", folder / "by_env"
    script.write_text(f"#!{sys.executable} -I\n{HOW}\n")
    by_env.write_text(f"#!/usr/bin/env python\n{HOW}\n")
    (folder / "__main__.py").write_text(HOW)
    with zipfile.ZipFile(folder / "zipped", "w") as archive:
        archive.writestr("__main__.py", HOW)
    for file in (script, by_env):
        file.chmod(0o755)
    names = {
        "python": sys.executable,
        "base": str(Path(sys.executable).resolve()),
        "bin": str(Path(sys.executable).parent),
        "script": str(script),
        "by_env": str(by_env),
        "folder": str(folder),
    }

    def filled(value: object) -> object:
        if isinstance(value, str):
            return value.replace("{python}", names["python"]).format_map(names) if "{" in value and value != HOW else value
        return tuple(map(filled, value)) if isinstance(value, tuple | list) else value

    words = filled(tuple(argv))
    assert isinstance(words, tuple)
    warm, cold = both(forked, *words, **{key: filled(value) for key, value in changes.items()})
    said = warm[4]
    assert isinstance(said, bytes)
    assert said.startswith(how.encode()), warm
    assert isinstance(cold[4], bytes)
    assert said.partition(b" ")[2] == cold[4].partition(b" ")[2]


LOCALE = """
import locale, os, sys
print(locale.setlocale(locale.LC_CTYPE), locale.getpreferredencoding().lower(), sorted(os.environ.items()))
print(sys.stdin.encoding, sys.stdin.errors, sys.stdout.errors, open(__file__).encoding.lower(), "\xe9".isalpha(), ascii(sys.argv))
print("colorsys" in sys.modules, file=sys.stderr)
"""


@pytest.mark.parametrize(
    ("how", "env"),
    [
        (b"True\n", {}),
        (b"True\n", {"LANG": "C.UTF-8"}),
        (b"True\n", {"LANG": "en_US.UTF-8"}),
        (b"True\n", {"LANG": "xx_YY.UTF-8"}),
        (b"True\n", {"LC_ALL": "C.UTF-8", "LANG": "C"}),
        (b"True\n", {"LC_CTYPE": "POSIX"}),
        (b"True\n", {"LANG": "C"}),
        (b"False\n", {"LC_ALL": "C"}),
        (b"False\n", {"LC_ALL": "POSIX", "LANG": "C.UTF-8"}),
        (b"False\n", {"LANG": "en_US.ISO-8859-1"}),
    ],
    ids=str,
)
def test_the_locale_is_that_of_its_environment(forked: Warm, how: bytes, env: dict[str, str]) -> None:
    script = forked.lab.folder / "locale_.py"
    script.write_text(LOCALE)
    warm, cold = both(forked, sys.executable, "-I", str(script), "\xe9\udcff", env=tuple({"PATH": "/bin", **env}.items()))
    assert warm[5] == how
    assert warm[:5] == cold[:5]


def test_our_own_programs_are_run_too(forked: Warm) -> None:
    warm, cold = both(forked, sys.executable, "-I", "-m", "nightcrew.plugins.analyze")
    assert warm == cold
    assert warm[0] == 2, "it has been told nothing"


def test_random_numbers_differ_and_the_seed_of_hashes_does_not(forked: Warm) -> None:
    source = "import random; print(random.random(), random.getrandbits(64), hash('word'))"
    seen = [forked.lines(forked.program(source))[0].split() for _ in range(4)]
    assert len({numbers[0] for numbers in seen}) == len({numbers[1] for numbers in seen}) == 4
    assert len({numbers[2] for numbers in seen}) == 1, "a stated limit: PYTHONHASHSEED is the zygote's"


def test_what_was_preloaded_is_frozen_and_shared(forked: Warm) -> None:
    attempt = forked.program("import gc, sys; print(gc.get_freeze_count() > 1000, len(gc.get_objects()) < 20000, 'decimal' in sys.modules)")
    assert forked.lines(attempt) == ["True True True"]


def test_it_is_shown_as_itself_and_carries_its_tag_and_mark(forked: Warm) -> None:
    attempt = forked.program("import os, signal; print(os.getpid(), flush=True); signal.pause()", "a word")
    client = forked.start(attempt)
    pid = int(attempt.heard())
    command = Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").split(b"\0")
    assert [*map(os.fsdecode, command)] == [*attempt.spec.argv]
    assert attempt.spec.tag.encode() in Path(f"/proc/{pid}/environ").read_bytes()
    assert pid in [who.pid for who in processes.tagged(attempt.spec.tag)]
    client.terminate()
    client.wait(30)
    assert not processes.tagged(attempt.spec.tag)


def test_a_limit_of_memory_hits_the_program_alone(forked: Warm) -> None:
    """P13."""
    attempt = forked.program("x = bytearray(2**31)", rlimits=(("AS", 2**30),))
    assert forked.run(attempt)[0] == 1
    assert b"MemoryError" in attempt.read("stderr.log")
    assert zygote.find(forked.place) is not None


def test_it_dies_with_its_runner(forked: Warm) -> None:
    attempt = forked.program("import os, signal; print(os.getpid(), flush=True); signal.pause()")
    client = forked.start(attempt)
    pid = int(attempt.heard())
    os.kill(forked.runner(attempt), signal.SIGKILL)
    assert client.wait(30) == 137
    until(lambda: not running(pid), "its end")


def test_packages_of_another_environment_come_first(tmp_path: Path, compiled_client: Path) -> None:
    """As in a project's own environment of the same Python."""
    other = tmp_path / "venv"
    subprocess.run([sys.executable, "-I", "-m", "venv", "--without-pip", "--symlinks", other], check=True)
    packages = next((other / "lib").glob("python*/site-packages"))
    (packages / "click.py").write_text("who = 'theirs'")
    (packages / "only_there.py").write_text("")
    (tmp_path / "editable").mkdir()
    (tmp_path / "editable" / "mine.py").write_text("")
    (packages / "mine.pth").write_text(f"{tmp_path / 'editable'}\n")
    with kit.living(zygote.Wanted(("only_there",), (str(packages),))) as place, kit.attempts(tmp_path) as lab:
        warm = Warm(place, compiled_client, lab)
        (tmp_path / "asks.py").write_text("import sys, click, mine; print('only_there' in sys.modules, click.who, sys.prefix)")
        attempt = warm.attempt(str(other / "bin" / "python"), str(tmp_path / "asks.py"))
        assert warm.lines(attempt) == [f"True theirs {other}"]


_GAPS = """
import sys
import textwrap
sys.path.insert(0, sys.argv[1])
from agents.runner import warm
many = [bytes(31) for _ in range(30_000)]
del many[::64]  # one gap a page
if sys.argv[2] == "prepared": warm.prepare()
new = [bytes(31) for _ in range(100)]
print(len({id(each) >> 12 for each in new}))
"""


def test_what_a_fork_makes_lies_together() -> None:
    """Or each small object would have a page copied that was shared."""
    pages = {
        how: int(subprocess.run([sys.executable, "-I", "-c", _GAPS, ROOT, how], capture_output=True, check=True).stdout)
        for how in ("prepared", "as it is")
    }
    assert pages["prepared"] <= 4 and pages["as it is"] > 50, pages


def test_a_temporary_directory_that_a_preloaded_module_asked_for_is_not_the_programs(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text("import tempfile; print(tempfile.gettempdir(), flush=True)")
    own = tmp_path / "own"
    own.mkdir()
    forked = textwrap.dedent("""
        import os, sys, tempfile
        from agents.runner import warm
        tempfile.gettempdir()
        argv, environment = [os.fsencode(word) for word in sys.argv[2:]], {**os.environb, b"TMPDIR": os.fsencode(sys.argv[1])}
        warm.prepare()
        warm.run(warm.recognise(argv, environment), argv, environment)
    """)
    argv = [sys.executable, "-c", forked, str(own), sys.executable, "-I", str(script)]
    assert subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split() == [str(own)]
