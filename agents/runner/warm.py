"""A Python program run in this very process, a fork of the zygote, instead of in a new interpreter.

What a new interpreter does before and after a program is done here by hand: streams, path, `__main__`, signals, and at the end threads,
`atexit` and every buffer. What stays the zygote's: the seed of string hashes (PYTHONHASHSEED; sets of strings have one order in all forks
of a zygote), `sys.flags`, and whatever a preloaded module did when it was imported. `random` has a new seed (`os.fork` sees to it), and
numpy's is set here. Objects from before the fork stay frozen: the garbage collector leaves them alone and their memory shared.
"""

from __future__ import annotations

import atexit
import builtins
import contextlib
import ctypes
import gc
import importlib.machinery
import io
import locale
import os
import runpy
import signal
import sys
import threading
import time
import types
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

from agents.runner import huge_pages, venv
from agents.runner.process_title import Title
from agents.runner.python_program import Program, recognise

__all__ = ["OURS", "TITLE", "prepare", "recognise", "run"]

TITLE = Title()
OURS = ("agents", "supervisor", "worktrees")
"""Packages of nightcrew."""
_TAG = b"NIGHTCREW_TAG"  # supervisor.core.identity.TAG_VARIABLE
_ours: list[str] = []
_kept: list[types.ModuleType] = []
_ballast: list[object] = []
_STEP, _SMALL, _POOL = 16, 512, 2**14  # of CPython's Objects/obmalloc.c: objects up to 512 bytes share pools with others of their size
_HEAD, _GAPS_MAX = sys.getsizeof(b""), 10_000
_UNFLUSHED = 120  # what Python exits with when stdout cannot be flushed at the end


def prepare() -> None:
    """To be called before the first fork, when everything is imported and collected, so that forks share more of its memory and cost less:
    a fork that went through all names would copy them, and one that fills the gaps which dead objects left would copy a page for each."""
    _ours[:] = [name for name in sys.modules if name.partition(".")[0] in OURS]
    _fill_gaps()
    huge_pages.collapse()


def _fill_gaps() -> None:
    _ballast.clear()
    for size in range(_STEP, _SMALL + 1, _STEP):
        filling = _filling(size)
        if len(filling) >= _GAPS_MAX:  # an allocator that lays nothing in rows, as a debugging one
            _ballast.clear()
            return
        _ballast.extend(filling)


def _filling(size: int) -> list[object]:
    """Objects of `size` bytes for every gap of that size: the last of them lie in a row, where there was nothing before."""
    held: list[object] = []
    row = 0
    while row < _POOL // size // 2 and len(held) < _GAPS_MAX:
        held.append(bytes(size - _HEAD) if size > _HEAD else complex(0, len(held)) if size > _STEP else object())
        row = row + 1 if len(held) > 1 and id(held[-1]) - id(held[-2]) == size else 0
    return held


def run(program: Program, argv: list[bytes], environment: Mapping[bytes, bytes]) -> NoReturn:
    """Become `program` and end as it ends. Only in a forked process with its handles, directory and limits in place."""
    TITLE.show(argv)
    os.environb.clear()
    TITLE.show_environment([name + b"=" + value for name, value in environment.items() if name == _TAG])
    os.environb.update(environment)
    time.tzset()
    _signals()
    _streams(program)
    _interpreter(program)
    code = _outcome(program)
    _end_threads_and_files()
    if code is None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit(code or 0)


def _signals() -> None:
    """As Python starts: it ignores two, and Ctrl-C raises KeyboardInterrupt."""
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _streams(program: Program) -> None:
    errors = "surrogateescape" if _locale() in ("C", "C.UTF-8", "C.utf8", "UTF-8") else "strict"
    unbuffered = "u" in program.options
    sys.stdin = sys.__stdin__ = _stream(0, "r", errors, unbuffered=False)  # type: ignore[misc]  # they are Final for programs
    sys.stdout = sys.__stdout__ = _stream(1, "w", errors, unbuffered)  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = _stream(2, "w", "backslashreplace", unbuffered)  # type: ignore[misc]


def _locale() -> str:
    """Set what decides how characters are classified, as Python does at its start (PEP 538); its name. `recognise` lets only UTF-8 pass."""
    try:
        name = locale.setlocale(locale.LC_CTYPE, "")
    except locale.Error:  # it is not installed here
        name = "C"
    if name == "C":
        with contextlib.suppress(locale.Error):  # nor is this one
            name = os.environ["LC_CTYPE"] = locale.setlocale(locale.LC_CTYPE, "C.UTF-8")
    return name


def _stream(handle: int, mode: str, errors: str, unbuffered: bool) -> io.TextIOWrapper[Any]:
    """What `create_stdio` in CPython's Python/pylifecycle.c makes."""
    raw = io.FileIO(handle, mode, closefd=False)
    raw.name = ("<stdin>", "<stdout>", "<stderr>")[handle]
    binary: Any = raw
    if not unbuffered:
        binary = io.BufferedReader(raw) if mode == "r" else io.BufferedWriter(raw)
    by_line = not unbuffered and (raw.isatty() or handle == 2)
    text = io.TextIOWrapper(binary, "utf-8", errors, "\n", line_buffering=by_line, write_through=unbuffered)
    text.mode = mode  # type: ignore[misc]  # it is what CPython sets
    return text


def _interpreter(program: Program) -> None:
    sys.executable = os.path.abspath(program.words[0])
    if program.prefix:
        sys.prefix = sys.exec_prefix = program.prefix
    sys.orig_argv = list(program.words)
    sys.argv = [program.script or "-m", *program.arguments]  # runpy puts a module's file in the place of "-m"
    sys.dont_write_bytecode = "B" in program.options
    if program.preloaded is not None:
        _forget(program.preloaded.apart)
        venv.enter(program.preloaded, program.prefix)
    if not program.options & {"I", "P"}:
        sys.path.insert(0, os.path.dirname(os.path.realpath(program.script)) if program.script else os.getcwd())
    if program.preloaded is not None or program.module.partition(".")[0] not in OURS:
        _forget(_ours)
    if (numpy_random := sys.modules.get("numpy.random")) is not None:
        numpy_random.seed()
    if (temporary := sys.modules.get("tempfile")) is not None:
        # A preloaded module may have asked for it, under another TMPDIR.
        temporary.tempdir = None  # type: ignore[attr-defined]  # it is known as a module, not as which
    gc.enable()


def _forget(names: Iterable[str]) -> None:
    """A program may have packages of its own by these names. Ours stay alive, because taking them down would write to their memory."""
    _kept.extend(sys.modules.pop(name) for name in names if name in sys.modules)


def _outcome(program: Program) -> int | None:
    """Run it; the status to exit with, or None when an interrupt ended it."""
    try:
        _execute(program)
    except SystemExit as end:
        return _exit_code(end.code)
    except BaseException as error:  # noqa: BLE001 - this is the outermost frame of a program, as the interpreter is for others
        failure = error
    else:
        return 0
    _say(failure, ours=2)
    return None if isinstance(failure, KeyboardInterrupt) else 1


def _execute(program: Program) -> None:
    main = types.ModuleType("__main__")
    main.__dict__.update(__annotations__={}, __builtins__=builtins)
    sys.modules["__main__"] = main
    if program.module:
        runpy._run_module_as_main(program.module)  # type: ignore[attr-defined]  # what `python -m` itself calls
        return
    file = program.script if program.script.startswith("/") else f"{os.getcwd()}/{program.script.removeprefix('./')}"  # as _Py_abspath
    main.__loader__ = importlib.machinery.SourceFileLoader("__main__", file)
    main.__dict__.update(__file__=file, __cached__=None)
    code = compile(program.source, file, "exec", dont_inherit=True)
    exec(code, main.__dict__)  # noqa: S102 - it is the program


def _exit_code(code: object) -> int:
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    print(code, file=sys.stderr)
    return 1


def _say(error: BaseException, ours: int = 0) -> None:
    """As the interpreter says what ended a program, without our own first frames."""
    trace = error.__traceback__
    while trace is not None and ours:
        trace, ours = trace.tb_next, ours - 1
    try:
        sys.excepthook(type(error), error.with_traceback(trace), trace)
    except BaseException as broken:  # noqa: BLE001 - the program's own hook; Python then shows both by its own
        failure = broken
    else:
        return
    print("Error in sys.excepthook:", file=sys.stderr)
    below = failure.__traceback__ and failure.__traceback__.tb_next  # without this very frame
    sys.__excepthook__(type(failure), failure.with_traceback(below), below)
    print("\nOriginal exception was:", file=sys.stderr)
    sys.__excepthook__(type(error), error, trace)


def _end_threads_and_files() -> None:
    """What Py_FinalizeEx does, but for taking the modules down, which would copy all memory that is shared with the zygote."""
    for step in (threading._shutdown, atexit._run_exitfuncs):  # type: ignore[attr-defined]  # what the interpreter itself calls
        try:
            step()
        except BaseException as error:  # noqa: BLE001 - an interrupt while it waits for threads must not keep the rest from being done
            _say(error)
    try:
        if sys.stdout is not None and not sys.stdout.closed:
            sys.stdout.flush()
    except (OSError, ValueError) as error:
        print(f"Exception ignored in: {sys.stdout!r}\n{type(error).__name__}: {error}", file=sys.stderr)
        os._exit(_UNFLUSHED)
    files = [item for item in gc.get_objects() if issubclass(type(item), (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom))]
    for file in sorted(files, key=lambda file: not isinstance(file, io.TextIOWrapper)):  # text first: it flushes into the others
        try:
            file.flush()
        except (OSError, ValueError):  # closed, or its reader is gone: Python ignores that of files nobody closed, too
            continue
    ctypes.pythonapi.fflush(None)  # the C library's buffers, which `os._exit` leaves alone
